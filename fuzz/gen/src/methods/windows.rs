//! Draws products and methods over windows.

use gradiff_corpus::{
    Arg, BinaryOp, DType, Method, ReduceOp, Shape, Statement, TensorType, ValueId, promote,
    statement_type,
};

use super::floats::{is_exact, is_near};
use crate::elementwise::reduced_dtype;
use crate::fact::{self, Fact, Policy};
use crate::programs::Builder;
use crate::{shapes, transfer};

/// Number of attempts at arguments that fit.
const TRIES: usize = 8;

/// Maximum number of products for each element of the limit of a value.
const PRODUCTS: usize = 16;

/// Maximum number of elements of a value of a wide convolution.
const WIDE: usize = 1 << 12;

/// Maximum number of products of a wide convolution.
const WIDE_PRODUCTS: usize = 1 << 15;

impl Builder<'_> {
    /// Adds a matrix product of an existing value and a new one.
    pub(super) fn draw_matmul(&mut self, method: Method) -> Option<ValueId> {
        let x = self.pick(|tensor, _| !tensor.shape.is_empty())?;
        let TensorType { dtype, shape } = self.type_of(x).clone();
        let (k, rows) = shape.split_last()?;
        let row_count = shapes::count(rows);
        let spare = PRODUCTS * self.limit / shapes::count(&shape).max(1);
        let columns = spare.min(self.limit / row_count.max(1)).clamp(1, 40);
        let columns = self.palette.size(self.choices).min(columns);
        let mut other: Shape = match self.choices.below(4) {
            0 => vec![*k],
            1 | 2 => vec![*k, columns],
            // Axes that broadcast with those of the first.
            _ => {
                let mut outer = rows[..rows.len().saturating_sub(1)].to_vec();
                if let Some(size) = outer.first_mut().filter(|_| self.choices.one_in(2)) {
                    *size = 1;
                }
                outer.extend([*k, columns]);
                outer
            }
        };
        if self.max_rank < other.len() || !self.has_room(2) {
            return None;
        }
        if self.limit < shapes::count(&other) {
            other = vec![*k];
        }
        let second = self.factor_dtype_for(dtype)?;
        let y = self.fresh(second, other);
        self.push_products(method, x, y, *k, Vec::new(), false)
    }

    /// Adds a product of a value with a new weight, plus a new bias.
    pub(super) fn draw_linear(&mut self) -> Option<ValueId> {
        let policy = self.policy;
        let x = self.pick(|tensor, fact| {
            !tensor.shape.is_empty()
                && tensor.dtype.is_float()
                && (is_near(fact, policy) || is_exact(fact, policy))
        })?;
        let TensorType { dtype, shape } = self.type_of(x).clone();
        let (k, rows) = shape.split_last()?;
        let row_count = shapes::count(rows);
        let spare = PRODUCTS * self.limit / shapes::count(&shape).max(1);
        let columns = spare.min(self.limit / row_count.max(1)).clamp(1, 20);
        let columns = self.palette.size(self.choices).min(columns);
        let weight = if self.choices.one_in(4) { vec![*k] } else { vec![*k, columns] };
        let mut result = rows.to_vec();
        result.push(if weight.len() == 1 { *k } else { columns });
        let bias = match self.choices.below(3) {
            0 => vec![result[result.len() - 1]],
            1 => vec![1],
            _ => result.clone(),
        };
        if !self.has_room(3) || self.limit < shapes::count(&result).max(shapes::count(&weight)) {
            return None;
        }
        let mut dtypes = [dtype; 2];
        for slot in &mut dtypes {
            let drawn = self.dtype();
            if drawn.is_float() && self.choices.one_in(4) {
                *slot = drawn;
            }
        }
        let weight = self.fresh(dtypes[0], weight);
        let bias = self.fresh(dtypes[1], bias);
        let bias = Some((bias.0, bias.1, dtypes[1])).filter(|_| !self.choices.one_in(3));
        let mut promoted = promote(dtype, dtypes[0]);
        if let Some((_, _, dtype)) = &bias {
            promoted = promote(promoted, *dtype);
        }
        let factors = [(&self.fact(x), dtype), (&weight.1, dtypes[0])];
        let added = bias.as_ref().map(|(_, fact, dtype)| (fact, *dtype));
        let fact = affine(factors, added, *k, promoted, policy)?;
        let mut srcs = vec![x, self.push(weight.0, weight.1)];
        srcs.extend(bias.map(|(statement, fact, _)| self.push(statement, fact)));
        Some(self.push_method(Method::Linear, srcs, vec![], fact))
    }

    /// Adds a convolution of new images, or an existing value, with new weights.
    pub(super) fn draw_convolution(&mut self, method: Method) -> Option<ValueId> {
        let is_transposed = method == Method::ConvTranspose2d;
        let found = self.pick(|tensor, _| {
            (3..=5).contains(&tensor.shape.len()) && !tensor.shape[2..].contains(&0)
        });
        let is_existing = found.is_some() && self.choices.one_in(2);
        let (image, dtype, shape) = match found.filter(|_| is_existing) {
            Some(found) => {
                let TensorType { dtype, shape } = self.type_of(found).clone();
                (Some(found), dtype, shape)
            }
            None => {
                let dtype = self.dtype();
                let rank = 1 + self.choices.below(2) as usize;
                let mut shape = vec![1 + self.choices.below(2) as usize];
                shape.push(1 + self.choices.below(4) as usize);
                shape.extend((0..rank).map(|_| 1 + self.choices.below(7) as usize));
                if rank == 2 && self.choices.one_in(4) {
                    shape.push(1 + self.choices.below(4) as usize);
                }
                (None, dtype, shape)
            }
        };
        if self.limit < shapes::count(&shape) || !self.has_room(3) {
            return None;
        }
        let rank = shape.len() - 2;
        let divisors: Vec<usize> = (1..=shape[1].max(1)).filter(|n| shape[1] % n == 0).collect();
        let groups = if self.choices.one_in(2) { 1 } else { self.choices.pick(&divisors) };
        let outputs = 1 + self.choices.below(3) as usize;
        let mut weight = match is_transposed {
            true => vec![shape[1], outputs],
            false => vec![outputs * groups, shape[1] / groups],
        };
        weight.extend((0..rank).map(|_| 1 + self.choices.below(4) as usize));
        if self.max_rank < shape.len() || self.limit < shapes::count(&weight) {
            return None;
        }
        let images = (image, TensorType { dtype, shape });
        self.convolution_with(method, images, weight, groups, PRODUCTS * self.limit)
    }

    /// Adds a convolution of new images and weights, of as many channels as models have.
    pub(crate) fn wide_convolution(&mut self) -> Option<ValueId> {
        self.raise_limit(WIDE)?;
        let is_transposed = self.choices.one_in(4);
        let dtype = self.dtype();
        let inputs: usize = self.choices.pick(&[8, 3, 16]);
        let outputs: usize = self.choices.pick(&[8, 16, 17, 24, 32]);
        let kernel = self.choices.pick(&[3, 1, 5, 7]);
        let size = self.choices.pick(&[5, 8, 9]);
        let is_even = inputs.is_multiple_of(2) && outputs.is_multiple_of(2);
        let groups = if is_even && self.choices.one_in(4) { 2 } else { 1 };
        let count = 1 + self.choices.below(2) as usize;
        let shape = vec![count, inputs, size, size - self.choices.below(2) as usize];
        let (method, weight) = match is_transposed {
            true => (Method::ConvTranspose2d, vec![inputs, outputs / groups, kernel, kernel]),
            false => (Method::Conv2d, vec![outputs, inputs / groups, kernel, kernel]),
        };
        if self.limit < shapes::count(&weight) {
            return None;
        }
        let images = (None, TensorType { dtype, shape });
        self.convolution_with(method, images, weight, groups, WIDE_PRODUCTS)
    }

    /// Adds a convolution of an existing value, or of new images of this type, with new weights of
    /// this shape, if it has at most so many `products`.
    fn convolution_with(
        &mut self,
        method: Method,
        (image, image_type): (Option<ValueId>, TensorType),
        weight: Shape,
        groups: usize,
        products: usize,
    ) -> Option<ValueId> {
        let is_transposed = method == Method::ConvTranspose2d;
        let rank = weight.len() - 2;
        let stride = self.numbers_of_windows(rank, 1, 3);
        let dilation = self.numbers_of_windows(rank, 1, 3);
        let padding = self.padding_of_windows(rank, 5);
        let mut args = vec![Arg::Int(groups as i64)];
        args.extend([stride, dilation, padding].map(Arg::Ints));
        if is_transposed {
            args.push(Arg::Ints(self.numbers_of_windows(rank, 0, 2)));
        }
        let second = self.factor_dtype_for(image_type.dtype)?;
        let count = weight[1..].iter().product::<usize>().max(1);
        let terms = match is_transposed {
            true => count / weight[1].max(1) * image_type.shape[1].max(1),
            false => count,
        };
        let weight_type = TensorType { dtype: second, shape: weight };
        // Options that leave nothing, or results that are too large, are given up.
        let statement =
            Statement::Method { method, srcs: vec![ValueId(0), ValueId(1)], args: args.clone() };
        let result = statement_type(&statement, &[image_type.clone(), weight_type.clone()]).ok()?;
        if self.limit < result.count() || products < result.count() * count {
            return None;
        }
        let weights = self.fresh(second, weight_type.shape);
        let image = match image {
            Some(found) => found,
            None => {
                let (statement, fact) = self.fresh(image_type.dtype, image_type.shape);
                self.push(statement, fact)
            }
        };
        self.push_products(method, image, weights, terms, args, true)
    }

    /// Draws the dtype of a second factor, mostly that of the first one; bool has no products, but
    /// is promoted.
    pub(super) fn factor_dtype_for(&mut self, dtype: DType) -> Option<DType> {
        let is_same = dtype != DType::Bool && !self.choices.one_in(4);
        let second = if is_same { dtype } else { self.dtype() };
        (promote(dtype, second) != DType::Bool).then_some(second)
    }

    /// Adds pooling over the last axes of a value.
    pub(super) fn draw_pool(&mut self, method: Method) -> Option<ValueId> {
        let (is_mean, policy) = (method == Method::AvgPool2d, self.policy);
        let is_position = method == Method::MaxPool2dIndices;
        let src = self
            .pick(|tensor, fact| {
                !tensor.shape.is_empty()
                    && (!is_mean || tensor.dtype.is_float())
                    && (!is_position || fact::decided(fact, policy))
            })
            .or_else(|| self.new_image(is_mean))?;
        let TensorType { dtype, shape } = self.type_of(src).clone();
        let found = (0..TRIES).find_map(|_| self.pool_args(method, dtype, &shape));
        let args = found?;
        let before = self.fact(src);
        if is_position {
            let last = shapes::count(&shape) as f64;
            let fact = Fact::exact(-1.0, last, 0);
            return Some(self.push_method(method, vec![src], args, fact));
        }
        let fact = match is_mean {
            // The bounds of the elements hold for their mean, but nothing else does.
            true => Fact { special: true, err: f64::MAX, raw: false, ..Fact::patterns(dtype) },
            false if dtype.is_float() => {
                let smallest = Fact { special: true, ..Fact::exact(0.0, 0.0, before.grid) };
                Fact { raw: false, ..before.join(&smallest) }
            }
            false => {
                let (lo, _) = fact::range(dtype);
                before.join(&Fact::exact(lo, lo, 0))
            }
        };
        Some(self.push_method(method, vec![src], args, fact))
    }

    /// Adds zeros with elements at positions: those of windows, or others.
    pub(super) fn draw_unpool(&mut self) -> Option<ValueId> {
        let policy = self.policy;
        let src =
            self.pick(|tensor, fact| !tensor.shape.is_empty() && fact::decided(fact, policy))?;
        let TensorType { dtype, shape } = self.type_of(src).clone();
        let is_of_windows = self.choices.one_in(2);
        let (x, positions, sizes) = match is_of_windows {
            true => {
                let args = (0..TRIES)
                    .find_map(|_| self.pool_args(Method::MaxPool2dIndices, dtype, &shape))?;
                let Arg::Ints(kernel) = &args[0] else { return None };
                let sizes = shape[shape.len() - kernel.len()..].to_vec();
                if !self.has_room(3) {
                    return None;
                }
                let positions = Fact::exact(-1.0, shapes::count(&sizes) as f64, 0);
                let positions =
                    self.push_method(Method::MaxPool2dIndices, vec![src], args, positions);
                let windows = self.type_of(positions).shape.clone();
                let (statement, fact) = self.fresh(dtype, windows);
                (self.push(statement, fact), positions, sizes)
            }
            false => {
                let axes = 1 + self.choices.below(shape.len().min(2) as u32) as usize;
                let sizes: Vec<usize> =
                    (0..axes).map(|_| self.palette.size(self.choices)).collect();
                let dtype = self.int_dtype().filter(|_| self.has_room(2))?;
                let count = shapes::count(&sizes);
                let (statement, fact) = self.listed_index(dtype, shape.clone(), count);
                (src, self.push(statement, fact), sizes)
            }
        };
        let outer = &shape[..shape.len() - sizes.len()];
        if self.limit < shapes::count(outer) * shapes::count(&sizes) {
            return None;
        }
        let zeros = Fact { raw: true, ..Fact::exact(0.0, 0.0, 0) };
        let fact = self.fact(x).join(&zeros);
        let args = vec![Arg::Ints(sizes.iter().map(|size| *size as i64).collect())];
        Some(self.push_method(Method::MaxUnpool2d, vec![x, positions], args, fact))
    }

    /// Adds data of two axes, floats if they must be.
    fn new_image(&mut self, needs_float: bool) -> Option<ValueId> {
        let dtype = match self.dtype() {
            dtype if needs_float && !dtype.is_float() => DType::F32,
            dtype => dtype,
        };
        let shape: Shape = (0..2).map(|_| 1 + self.choices.below(7) as usize).collect();
        let is_allowed = self.config.dtypes.contains(&dtype) && self.max_rank >= 2;
        if !is_allowed || self.limit < shapes::count(&shape) || !self.has_room(2) {
            return None;
        }
        let (statement, fact) = self.fresh(dtype, shape);
        Some(self.push(statement, fact))
    }

    /// Draws the arguments of pooling; `None` if the windows do not fit or are too many.
    fn pool_args(&mut self, method: Method, dtype: DType, shape: &[usize]) -> Option<Vec<Arg>> {
        let rank = 1 + self.choices.below(shape.len().min(2) as u32) as usize;
        let is_volume = rank == 2 && 2 < shape.len() && self.choices.one_in(4);
        let rank = if is_volume { 3 } else { rank };
        let kernel = self.numbers_of_windows(rank, 1, 4);
        // With a stride of 1 no window reaches beyond the padding.
        let is_ceil = self.choices.one_in(2);
        let stride = match (is_ceil, self.choices.one_in(2)) {
            (true, _) => self.numbers_of_windows(rank, 2, 4),
            (false, true) => kernel.clone(),
            (false, false) => self.numbers_of_windows(rank, 1, 3),
        };
        let terms = kernel.iter().product::<i64>() as usize;
        let dilation = self.numbers_of_windows(rank, 1, 3);
        let padding = self.padding_of_windows(rank, 3);
        let mut args = [kernel, stride, dilation, padding].map(Arg::Ints).to_vec();
        args.push(Arg::Flag(is_ceil));
        if method == Method::AvgPool2d {
            args.push(Arg::Flag(self.choices.one_in(2)));
        }
        let source = TensorType { dtype, shape: shape.to_vec() };
        let shape_of = |args: Vec<Arg>| {
            let statement = Statement::Method { method, srcs: vec![ValueId(0)], args };
            statement_type(&statement, std::slice::from_ref(&source)).ok()
        };
        let found = shape_of(args.clone())?;
        if is_ceil && !self.choices.one_in(4) {
            // Mostly a window more or less than without.
            let mut floor_args = args.clone();
            floor_args[4] = Arg::Flag(false);
            if shape_of(floor_args).is_none_or(|floor| floor == found) {
                return None;
            }
        }
        let count = found.count();
        (count <= self.limit && count * terms <= PRODUCTS * self.limit).then_some(args)
    }

    /// Adds a method that sums `terms` products of both sources, and zeros if `has_zeros`.
    pub(super) fn push_products(
        &mut self,
        method: Method,
        x: ValueId,
        y: (Statement, Fact),
        terms: usize,
        args: Vec<Arg>,
        has_zeros: bool,
    ) -> Option<ValueId> {
        let fact = self.fact_of_products(x, (&y.1, dtype_of(&y.0)), terms, has_zeros)?;
        let second = self.push(y.0, y.1);
        Some(self.push_method(method, vec![x, second], args, fact))
    }

    /// Returns the fact of sums of `terms` products of a value and a second factor, and zeros if
    /// `has_zeros`.
    pub(super) fn fact_of_products(
        &self,
        x: ValueId,
        (y, second): (&Fact, DType),
        terms: usize,
        has_zeros: bool,
    ) -> Option<Fact> {
        let (policy, first) = (self.policy, self.type_of(x).dtype);
        let dtype = promote(first, second);
        let zero = Fact::exact(0.0, 0.0, 0);
        let x = if has_zeros { self.fact(x).join(&zero) } else { self.fact(x) };
        let left = fact::cast(&x, first, dtype, policy)?;
        let right = fact::cast(y, second, dtype, policy)?;
        let product = transfer::binary(BinaryOp::Mul, &left, &right, dtype, policy)?;
        let to = reduced_dtype(ReduceOp::Sum, dtype);
        let sum = transfer::reduce(ReduceOp::Sum, &product, terms, dtype, to, policy)?;
        let sum = if has_zeros { sum.join(&zero) } else { sum };
        fact::cast(&sum, to, dtype, policy)
    }

    /// Draws a padding: mostly before and after each axis, else one number for both.
    fn padding_of_windows(&mut self, rank: usize, greatest: u32) -> Vec<i64> {
        let count = if self.choices.one_in(4) { rank } else { 2 * rank };
        self.numbers_of_windows(count, 0, greatest)
    }

    /// Draws numbers from `least` to `most`, mostly the same one for all.
    fn numbers_of_windows(&mut self, count: usize, least: u32, greatest: u32) -> Vec<i64> {
        let draw = |this: &mut Self| least + this.choices.below(greatest - least + 1);
        if self.choices.one_in(2) {
            return vec![i64::from(draw(self)); count];
        }
        (0..count).map(|_| i64::from(draw(self))).collect()
    }
}

/// Fact of a product of `terms` terms, plus a bias.
fn affine(
    factors: [(&Fact, DType); 2],
    bias: Option<(&Fact, DType)>,
    terms: usize,
    dtype: DType,
    policy: Policy,
) -> Option<Fact> {
    let cast = |(fact, from)| fact::cast(fact, from, dtype, policy);
    let [x, weight] = factors.map(cast);
    let product = transfer::binary(BinaryOp::Mul, &x?, &weight?, dtype, policy)?;
    let sum = transfer::reduce(ReduceOp::Sum, &product, terms.max(1), dtype, dtype, policy)?;
    match bias {
        Some(bias) => transfer::binary(BinaryOp::Add, &sum, &cast(bias)?, dtype, policy),
        None => Some(sum),
    }
}

/// The dtype of new data.
fn dtype_of(statement: &Statement) -> DType {
    match statement {
        Statement::Input { dtype, .. }
        | Statement::Const { dtype, .. }
        | Statement::Arange { dtype, .. } => *dtype,
        _ => panic!("{statement:?} is not data"),
    }
}
