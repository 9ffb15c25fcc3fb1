//! Draws functions of matrices, and digests.

use gradiff_corpus::{Arg, DType, Distribution, Literal, Method, ValueId};

use super::floats::{is_exact, is_near, smooth, unknown};
use crate::fact::Fact;
use crate::programs::Builder;
use crate::shapes;

/// Maximum number of rows and columns: bounds of errors grow with each reflection.
const MAX_SIZE: usize = 5;
/// Maximum number n of singular values: the number of kernels grows with n log n.
const MAX_VALUES: usize = 3;
/// Number of attempts at a dtype of floats.
const DTYPE_TRIES: usize = 4;
/// The functions of digests, and the bytes that each absorbs at a time.
const RATES: [(&str, usize); 3] = [("sha3_224", 144), ("sha3_256", 136), ("shake_128", 168)];
/// Sizes of messages that are shorter.
const MESSAGES: [usize; 5] = [0, 1, 7, 8, 31];
/// Maximum number of bytes along the axis of messages.
const MAX_MESSAGE: usize = 300;
/// The factors of x, `(x xT) x` and `(x xT)^2 x`.
const FACTORS: [[f64; 3]; 5] = [
    [3.4445, -4.775, 2.0315],
    [2.0, -1.5, 0.5],
    [1.5, -0.5, 0.0],
    [1.0, 0.0, 0.0],
    [0.0, 1.0, 1.0],
];

impl Builder<'_> {
    /// Draws small matrices: new ones, whose columns are mostly far from dependent, or a value.
    fn matrices(&mut self) -> Option<ValueId> {
        let policy = self.policy;
        if !policy.inexact {
            return None;
        }
        if self.choices.one_in(3) {
            return self.pick(|tensor, fact| {
                let is_small = |sizes: &[usize; 2]| sizes.iter().all(|size| *size <= MAX_SIZE);
                tensor.dtype.is_float()
                    && tensor.shape.last_chunk().is_some_and(is_small)
                    && (is_exact(fact, policy) || is_near(fact, policy))
            });
        }
        let mut size = || 1 + self.choices.below(MAX_SIZE as u32) as usize;
        let mut shape = vec![size(), size()];
        if self.choices.one_in(3) {
            shape.insert(0, self.choices.pick(&[2, 1, 3, 0]));
        }
        let dtype = (0..DTYPE_TRIES).map(|_| self.dtype()).find(|dtype| dtype.is_float())?;
        let kinds =
            [Distribution::Unit, Distribution::Unit, Distribution::Dyadic, Distribution::Wide];
        let kind = self.choices.pick(&kinds);
        if self.limit < shapes::count(&shape) {
            return None;
        }
        let (statement, fact) = self.seeded(dtype, shape, kind);
        Some(self.push(statement, fact))
    }

    /// Adds matrices whose singular values are brought near 1.
    pub(super) fn draw_newton_schulz(&mut self) -> Option<ValueId> {
        let src = self.matrices()?;
        let mut args = vec![Arg::Int(self.choices.below(3).into())];
        let factors = self.choices.pick(&FACTORS);
        args.extend(factors.map(|factor| Arg::Number(Literal::Float(factor))));
        let eps = self.choices.pick(&[1e-7, 1e-7, 0.0, 1.0]);
        args.push(Arg::Number(Literal::Float(eps)));
        let (x, dtype) = (self.fact(src), self.type_of(src).dtype);
        let fact = smooth(&x, dtype, (-256.0, 256.0), 64.0, self.policy);
        let fact = if x.away == 0.0 { unknown(dtype) } else { fact };
        Some(self.push_method(Method::NewtonSchulz, vec![src], args, fact))
    }

    /// Adds a factor of matrices.
    pub(super) fn draw_qr(&mut self, method: Method) -> Option<ValueId> {
        let src = self.matrices()?;
        let dtype = self.type_of(src).dtype;
        Some(self.push_method(method, vec![src], vec![], unknown(dtype)))
    }

    /// Adds singular values, or a product of their vectors.
    pub(super) fn draw_svd(&mut self, method: Method) -> Option<ValueId> {
        let src = self.matrices()?;
        let sizes = self.type_of(src).shape.last_chunk::<2>().copied()?;
        if sizes.into_iter().min()? > MAX_VALUES {
            return None;
        }
        let has_flag = method != Method::SvdS;
        let args = has_flag.then(|| Arg::Flag(self.choices.one_in(2)));
        let dtype = self.type_of(src).dtype;
        Some(self.push_method(method, vec![src], args.into_iter().collect(), unknown(dtype)))
    }

    /// Adds digests of messages.
    pub(super) fn draw_keccak(&mut self) -> Option<ValueId> {
        let (function, rate) = self.choices.pick(&RATES);
        let src = match self.choices.one_in(2) {
            true => self.pick(|tensor, fact| {
                let bytes = |size: &usize| size * tensor.dtype.size_bytes();
                (fact.raw || fact.err == 0.0 && !fact.special)
                    && tensor.shape.last().is_some_and(|size| bytes(size) <= MAX_MESSAGE)
            })?,
            false => {
                let size = match self.choices.one_in(2) {
                    true => rate - 1 + self.choices.below(3) as usize,
                    false => self.choices.pick(&MESSAGES),
                };
                let mut shape = vec![size];
                if self.choices.one_in(3) {
                    shape.insert(0, self.choices.pick(&[2, 3, 0]));
                }
                if !self.config.dtypes.contains(&DType::U8) {
                    return None;
                }
                // So that messages fill what is absorbed at a time.
                self.raise_limit(shapes::count(&shape))?;
                let (statement, fact) = self.fresh(DType::U8, shape);
                self.push(statement, fact)
            }
        };
        let function = Arg::Word(function);
        let fact = Fact::exact(0.0, 255.0, 0);
        Some(self.push_method(Method::Keccak, vec![src], vec![function], fact))
    }
}
