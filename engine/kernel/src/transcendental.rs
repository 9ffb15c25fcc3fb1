//! exp2, log2, sin and pow as sums, products and bits, for targets that lack them.
//!
//! How far the values may be off, in units in the last place of what is exact, whether products
//! are rounded before they are added or not (`engine/tests/transcendental.rs` tries all floats):
//!
//! |       | exp2 | log2 | sin  | e^x  | pow                               |
//! |-------|------|------|------|------|-----------------------------------|
//! | f32   | 1.3  | 1.9  | 1.9  | 1.2  | 2 + 2 for each doubling of x^y    |
//! | f64   | 2    | 2    | 2    | 1.2  | 2 + 2 for each doubling of x^y    |
//!
//! That holds of all arguments, also below the normal numbers and for the largest ones. Where a
//! device takes numbers below the normal ones for zero, these do as well.
//!
//! e^x is the `pow` whose base is the float nearest to e. It is written so for every target, also
//! for one that has `pow`: the power of that float is off by up to 45 ulps of f32, since e itself
//! is rounded, and `exp2(x * log2(e))` by 64, since the product is. The float is nearer to e than
//! half a ulp, so its power and e^x differ by less than a ulp for each doubling, which is within
//! what pow may be off by, in strict mode as well.
//!
//! A compiler that takes floats for real numbers would drop a large number that is added and taken
//! away again, so numbers are rounded to whole ones through their bits.

use std::ops::{Add, BitAnd, BitOr, BitXor, Mul, Sub};

use std::f64::consts::{E, LN_2, LOG2_E};

use gradiff_graph::{Arg, Constant, DType, Op, UOp};

use crate::Target;

/// The ops that this file can do without.
pub(crate) const OPS: [Op; 4] = [Op::Exp2, Op::Log2, Op::Sin, Op::Pow];

/// A float type and its polynomials, the coefficient of the lowest power first: through the zeros
/// of Chebyshev polynomials, rounded.
struct Format {
    float: DType,
    /// The integers as wide as it.
    int: DType,
    word: DType,
    /// Bits behind the point.
    mantissa: u32,
    /// Of the exponent 0.
    bias: i64,
    /// Of `(2^r - 1)/r` for r from -0.5 to 0.5.
    exp2: &'static [f64],
    /// Of `(e^r - 1)/r` for r from -ln(2)/2 to ln(2)/2: least error relative to e^r (Remez).
    exp: &'static [f64],
    /// ln(2) in so few bits that products by exponents are exact, and the rest.
    ln_2: [f64; 2],
    /// Of `log2(1+f)/f` for 1+f from sqrt(0.5) to sqrt(2).
    log2: &'static [f64],
    /// Of `(sin(r) - r)/r^3` and `(cos(r) - 1 + r^2/2)/r^4` over r^2, for r up to pi/4.
    sin: &'static [f64],
    cos: &'static [f64],
    /// pi/2 in few bits, and what that has cut off.
    half_pi: [f64; 2],
}

const FORMATS: [Format; 2] = [
    Format {
        float: DType::F32,
        int: DType::I32,
        word: DType::U32,
        mantissa: 23,
        bias: 127,
        exp2: &[LN_2, 0.24022651, 0.055503566, 0.009618082, 0.0013391088, 0.00015453357],
        exp: &[1.0, 0.49999994, 0.16666521, 0.04166839, 0.008368745, 0.0013814537],
        ln_2: [0.693145751953125, 1.4286068203094173e-06],
        log2: &[
            LOG2_E,
            -0.72134733,
            0.48089853,
            -0.36069655,
            0.28855255,
            -0.23960812,
            0.20485765,
            -0.19138838,
            0.18476033,
            -0.10749789,
        ],
        sin: &[-0.16666664, 0.008332748, -0.00019587841],
        cos: &[0.041666664, -0.0013888302, 0.000024547891],
        half_pi: [1.57080078125, -4.454454938240815e-06],
    },
    Format {
        float: DType::F64,
        int: DType::I64,
        word: DType::U64,
        mantissa: 52,
        bias: 1023,
        exp2: &[
            LN_2,
            0.24022650695910072,
            0.055504108664821625,
            0.00961812910762848,
            0.0013333558146406124,
            0.00015403530393370563,
            1.5252733841998576e-5,
            1.3215486808924243e-6,
            1.017805686096008e-7,
            7.054897191908525e-9,
            4.4558581456653997e-10,
            2.5729523340946688e-11,
        ],
        exp: &[
            1.0,
            0.5,
            0.16666666666666682,
            0.041666666666666095,
            0.008333333333316982,
            0.001388888888911632,
            0.00019841269896515236,
            2.4801586925794673e-5,
            2.7557234727739422e-6,
            2.7557582219434437e-7,
            2.511208452775258e-8,
            2.0826601320607446e-9,
        ],
        ln_2: [0.6931471805598903, 5.497923018708371e-14],
        log2: &[
            LOG2_E,
            -0.7213475204444817,
            0.4808983469629883,
            -0.3606737602222512,
            0.28853900817763845,
            -0.24044917347910752,
            0.2060992915747392,
            -0.18033688036778173,
            0.16029944787012013,
            -0.14426948878731313,
            0.13115412592823267,
            -0.12022513415950091,
            0.11097628777450276,
            -0.10303755970891125,
            0.09617108271788592,
            -0.09033024105166507,
            0.08513934015999088,
            -0.07895626035026825,
            0.0725703979331916,
            -0.0752975237002788,
            0.08749392542996838,
            -0.07718616407397885,
            0.03162265737578393,
        ],
        sin: &[
            -0.16666666666666666,
            0.008333333333333331,
            -0.0001984126984126506,
            2.7557319219335453e-6,
            -2.5052106231157904e-8,
            1.605853141458901e-10,
            -7.586685070091267e-13,
        ],
        cos: &[
            0.041666666666666664,
            -0.0013888888888887395,
            2.4801587298763433e-5,
            -2.7557317270560326e-7,
            2.0876146024689747e-9,
            -1.1382614868556325e-11,
        ],
        half_pi: [1.5707963407039642, -1.3909067614167116e-08],
    },
];

/// The bits of 2/pi behind the point.
const TWO_BY_PI: [u64; 19] = [
    0xa2f9_836e_4e44_1529,
    0xfc27_57d1_f534_ddc0,
    0xdb62_9599_3c43_9041,
    0xfe51_63ab_debb_c561,
    0xb724_6e3a_424d_d2e0,
    0x0649_2eea_09d1_921c,
    0xfe1d_eb1c_b129_a73e,
    0xe882_35f5_2ebb_4484,
    0xe99c_7026_b45f_7e41,
    0x3991_d639_8353_39f4,
    0x9c84_5f8b_bdf9_283b,
    0x1ff8_97ff_de05_980f,
    0xef2f_118b_5a0a_6d1f,
    0x6d36_7ecf_27cb_09b7,
    0x4f46_3f66_9e5f_ea2d,
    0x7527_bac7_ebe5_f17b,
    0x3d07_39f7_8a52_92ea,
    0x6bfb_5fb1_1f8d_5d08,
    0x5603_3046_fc7b_6bab,
];

/// About how many uops a function becomes; 0 for other nodes.
pub(crate) fn uops(node: &UOp) -> i64 {
    match node.op() {
        Op::Exp2 => 25,
        Op::Pow if exponent_of_e(node).is_some() => 25,
        Op::Log2 => 35,
        Op::Sin => 90,
        Op::Pow => 120,
        _ => 0,
    }
}

/// The x of e^x; `None` if the node is no such power, or is one of 16-bit floats, none of which is
/// near enough to e.
fn exponent_of_e(node: &UOp) -> Option<&UOp> {
    let (Op::Pow, DType::F32 | DType::F64, [base, x]) = (node.op(), node.dtype(), node.src())
    else {
        return None;
    };
    (base.as_const() == Some(Constant::float(node.dtype(), E))).then_some(x)
}

/// e^x in terms of ops that every target has; `None` if the node is none.
pub(crate) fn decompose_exp(node: &UOp, target: &Target) -> Option<UOp> {
    let x = Value(exponent_of_e(node)?.clone());
    Some(Writer::new(node.dtype(), target)?.exp(&x).0)
}

/// The node in terms of ops that every target has; `None` if it is none of [`OPS`] over f32 or
/// f64.
pub(crate) fn decompose(node: &UOp, target: &Target) -> Option<UOp> {
    let write = Writer::new(node.dtype(), target)?;
    let src: Vec<Value> = node.src().iter().cloned().map(Value).collect();
    Some(match (node.op(), &src[..]) {
        (Op::Exp2, [x]) => write.exp2(x).0,
        (Op::Log2, [x]) => write.log2(x).0,
        (Op::Sin, [x]) => write.sin(x).0,
        (Op::Pow, [x, y]) => write.pow(x, y).0,
        _ => return None,
    })
}

/// A node that is computed with as with a number.
#[derive(Clone)]
struct Value(UOp);

macro_rules! operators {
    ($($name:ident $method:ident $op:ident)*) => {
        $(
            impl $name for &Value {
                type Output = Value;

                fn $method(self, other: &Value) -> Value {
                    Value(UOp::binary(Op::$op, self.0.clone(), other.0.clone()))
                }
            }
        )*
    };
}

operators! {
    Add add Add
    Sub sub Sub
    Mul mul Mul
    BitAnd bitand And
    BitOr bitor Or
    BitXor bitxor Xor
}

impl Value {
    fn less(&self, other: &Value) -> Value {
        Value(UOp::binary(Op::CmpLt, self.0.clone(), other.0.clone()))
    }

    fn differs(&self, other: &Value) -> Value {
        Value(UOp::binary(Op::CmpNe, self.0.clone(), other.0.clone()))
    }

    /// `x` where this holds, else `y`.
    fn choose(&self, x: &Value, y: &Value) -> Value {
        Value(UOp::select(self.0.clone(), x.0.clone(), y.0.clone()))
    }

    fn shifted(&self, op: Op, amount: u32) -> Value {
        self.shifted_by(op, &Value(UOp::int(self.0.dtype(), amount.into())))
    }

    fn shifted_by(&self, op: Op, amount: &Value) -> Value {
        Value(UOp::binary(op, self.0.clone(), amount.0.clone()))
    }

    fn cast(&self, dtype: DType) -> Value {
        Value(UOp::unary(Op::Cast, dtype, self.0.clone()))
    }

    fn bits_as(&self, dtype: DType) -> Value {
        Value(UOp::unary(Op::Bitcast, dtype, self.0.clone()))
    }
}

/// Writes formulas over one type.
struct Writer {
    format: &'static Format,
    /// Whether products are added in one op.
    fused: bool,
    /// Whether it may be computed in vectors.
    in_vectors: bool,
}

impl Writer {
    /// For f32 and f64.
    fn new(dtype: DType, target: &Target) -> Option<Writer> {
        let format = FORMATS.iter().find(|format| format.float == dtype)?;
        Some(Writer { format, fused: target.mulacc, in_vectors: target.vectors.alu })
    }

    fn float(&self, value: f64) -> Value {
        Value(UOp::constant(Constant::float(self.format.float, value)))
    }

    fn int(&self, value: i64) -> Value {
        Value(UOp::int(self.format.int, value))
    }

    fn word(&self, value: u64) -> Value {
        Value(UOp::constant(Constant::from_bits(self.format.word, value)))
    }

    /// The bits of a float, as an integer.
    fn bits_of(&self, value: f64) -> i64 {
        Constant::float(self.format.float, value).bits() as i64
    }

    fn width(&self) -> u32 {
        self.format.word.bits()
    }

    fn power(exponent: i64) -> f64 {
        2f64.powi(exponent as i32)
    }

    /// `x*y + z`.
    fn fused(&self, x: &Value, y: &Value, z: &Value) -> Value {
        if !self.fused {
            return &(x * y) + z;
        }
        let src = [x, y, z].map(|value| value.0.clone());
        Value(UOp::new(Op::MulAcc, self.format.float, src, Arg::None))
    }

    /// The polynomial with these coefficients, that of the lowest power first.
    fn polynomial(&self, coefficients: &[f64], x: &Value) -> Value {
        let (last, others) = coefficients.split_last().expect("polynomials have coefficients");
        let start = self.float(*last);
        others.iter().rev().fold(start, |sum, next| self.fused(&sum, x, &self.float(*next)))
    }

    /// Added to a small number, this leaves the nearest whole number in the last bits.
    fn anchor(&self) -> f64 {
        1.5 * Writer::power(self.format.mantissa.into())
    }

    /// A whole number below a quarter of the anchor as a float. There is no instruction for
    /// vectors of 64 bits on all machines; others go without the anchor, which a compiler that
    /// takes floats for real numbers would lose.
    fn whole(&self, number: &Value) -> Value {
        if self.format.float == DType::F32 || !self.in_vectors {
            return number.cast(self.format.float);
        }
        let moved = number + &self.int(self.bits_of(self.anchor()));
        &moved.bits_as(self.format.float) - &self.float(self.anchor())
    }

    /// `2^x = 2^n * 2^r` for the whole number n that is nearest to x.
    fn exp2(&self, x: &Value) -> Value {
        let x = self.within_exponents(x, 1.0);
        let (moved, n) = self.nearest(|anchor| &x + anchor);
        let r = &x - &n;
        let p = self.fused(&self.polynomial(self.format.exp2, &r), &r, &self.float(1.0));
        self.times_power(&p, &moved)
    }

    /// `e^x = 2^n * e^r` for the whole number n that is nearest to `x * log2(e)`. The first
    /// product and the first difference are exact, so that r is rounded as a number below 1/2 is
    /// (Cody and Waite).
    fn exp(&self, x: &Value) -> Value {
        let x = self.within_exponents(x, LN_2);
        let (moved, n) = self.nearest(|anchor| self.fused(&x, &self.float(LOG2_E), anchor));
        let [upper, lower] = self.format.ln_2.map(|part| self.float(-part));
        let r = self.fused(&n, &lower, &self.fused(&n, &upper, &x));
        let p = self.fused(&self.polynomial(self.format.exp, &r), &r, &self.float(1.0));
        self.times_power(&p, &moved)
    }

    /// `x`, or the nearest number whose power of 2 is infinite or 0; in `units` for each doubling.
    fn within_exponents(&self, x: &Value, units: f64) -> Value {
        let Format { mantissa, bias, .. } = *self.format;
        let (low, high) = (-bias - i64::from(mantissa) - 1, bias + 2);
        let [low, high] = [low, high].map(|bound| self.float(bound as f64 * units));
        let x = high.less(x).choose(&high, x);
        x.less(&low).choose(&low, &x)
    }

    /// The whole number n that is nearest to a number, which `add` adds to a float: as an integer,
    /// in whose last bits is n + 2*bias, so that halves of them are exponents as floats store
    /// them, and as a float.
    fn nearest(&self, add: impl Fn(&Value) -> Value) -> (Value, Value) {
        let Format { float, int, bias, .. } = *self.format;
        let anchor = self.anchor() + (2 * bias) as f64;
        let moved = add(&self.float(anchor)).bits_as(int);
        // Without the anchor where `whole` goes without it.
        let n = match self.in_vectors {
            true => &moved.bits_as(float) - &self.float(anchor),
            false => (&moved - &self.int(self.bits_of(anchor))).cast(float),
        };
        (moved, n)
    }

    /// `p * 2^n` for the n of [`Writer::nearest`]. The power comes in two parts, so that what lies
    /// below the normal numbers is rounded once and what lies above the finite ones is infinite.
    fn times_power(&self, p: &Value, moved: &Value) -> Value {
        let Format { float, mantissa, .. } = *self.format;
        let first = moved.shifted(Op::Shr, 1);
        let scale = |exponent: &Value| exponent.shifted(Op::Shl, mantissa).bits_as(float);
        &(p * &scale(&first)) * &scale(&(moved - &first))
    }

    /// `e + log2(1+f)` for `x = 2^e * (1+f)`; what lies below the normal numbers is scaled up.
    fn log2(&self, x: &Value) -> Value {
        let Format { float, int, mantissa, bias, .. } = *self.format;
        let is_small = x.less(&self.float(Writer::power(1 - bias)));
        let scaled = x * &self.float(Writer::power(mantissa.into()));
        let bits = is_small.choose(&scaled, x).bits_as(int);
        let low = self.int(self.bits_of(std::f64::consts::FRAC_1_SQRT_2));
        let above = &bits - &low;
        let scale = self.int(mantissa.into());
        let e = &above.shifted(Op::Shr, mantissa) - &is_small.choose(&scale, &self.int(0));
        let fraction = &(&above & &self.int((1 << mantissa) - 1)) + &low;
        let f = &fraction.bits_as(float) - &self.float(1.0);
        let value = self.fused(&self.polynomial(self.format.log2, &f), &f, &self.whole(&e));
        let value = x.less(&self.float(f64::INFINITY)).choose(&value, x);
        let value = x.differs(&self.float(0.0)).choose(&value, &self.float(f64::NEG_INFINITY));
        x.less(&self.float(0.0)).choose(&self.float(f64::NAN), &value)
    }

    /// The sine or cosine of what is left of `|x|` beside a multiple of pi/2.
    fn sin(&self, x: &Value) -> Value {
        let Format { float, word, .. } = *self.format;
        let sign = self.word(1 << (self.width() - 1));
        let bits = x.bits_as(word);
        let size = &bits & &(&sign ^ &self.word(u64::MAX));
        let (quadrant, left) = self.reduced(&size);
        // Below pi/4 there is nothing to reduce.
        let is_small = size.less(&self.word(self.bits_of(0.5) as u64));
        let r = is_small.choose(&size.bits_as(float), &left);
        let quadrant = is_small.choose(&self.word(0), &quadrant);
        let z = &r * &r;
        let sine = self.fused(&self.polynomial(self.format.sin, &z), &(&z * &r), &r);
        let near = self.fused(&z, &self.float(-0.5), &self.float(1.0));
        let cosine = self.fused(&self.polynomial(self.format.cos, &z), &(&z * &z), &near);
        let is_odd = (&quadrant & &self.word(1)).differs(&self.word(0));
        let value = is_odd.choose(&cosine, &sine).bits_as(word);
        let turned = (&quadrant & &self.word(2)).shifted(Op::Shl, self.width() - 2);
        let value = (&(&value ^ &turned) ^ &(&bits & &sign)).bits_as(float);
        let is_finite = size.less(&self.word(self.bits_of(f64::INFINITY) as u64));
        is_finite.choose(&value, &self.float(f64::NAN))
    }

    /// By how many quarters of a turn the number of these bits is to be reduced, modulo 4, and
    /// what is left, from -pi/4 to pi/4: Payne's and Hanek's way. The number is `m * 2^k` with a
    /// whole m; of 2/pi only the three words count whose product with it is below 4 and not too
    /// small. The product is a fraction of words: high the first, whose top two bits are whole.
    fn reduced(&self, size: &Value) -> (Value, Value) {
        let Format { mantissa, bias, .. } = *self.format;
        let width = self.width();
        let offset = i64::from(width) - 2 - bias - i64::from(mantissa);
        let offset = &size.shifted(Op::Shr, mantissa) + &self.word(offset as u64);
        let words = self.two_by_pi(&offset);
        let ones = (1 << mantissa) - 1;
        let m = &(size & &self.word(ones)) | &self.word(ones + 1);
        let first = &m * &words[1];
        let low = &first + &self.product_high(&m, &words[2]);
        let carry = low.less(&first).choose(&self.word(1), &self.word(0));
        let high = &(&(&m * &words[0]) + &self.product_high(&m, &words[1])) + &carry;
        let nearest = &high + &self.word(1 << (width - 3));
        let quadrant = nearest.shifted(Op::Shr, width - 2);
        let high = &high - &quadrant.shifted(Op::Shl, width - 2);
        (quadrant, self.angle(&high, &low))
    }

    /// Three words of 2/pi from a bit on, counted from a word of zeros before the point.
    fn two_by_pi(&self, offset: &Value) -> [Value; 3] {
        let width = self.width();
        let table: Vec<u64> = match width {
            32 => TWO_BY_PI.iter().flat_map(|word| [word >> 32, word & 0xffff_ffff]).collect(),
            _ => TWO_BY_PI.to_vec(),
        };
        let word = |at: usize| self.word(if at == 0 { 0 } else { table[at - 1] });
        // The largest exponent is that of infinity, less one.
        let last = (i64::from(width) - 2 + self.format.bias - i64::from(self.format.mantissa))
            as usize
            / width as usize;
        let chosen = |at: usize| {
            (0..last).rev().fold(word(last + at), |others, number| {
                let end = self.word((number as u64 + 1) * u64::from(width));
                offset.less(&end).choose(&word(number + at), &others)
            })
        };
        let words = [0, 1, 2, 3].map(chosen);
        let most = self.word(u64::from(width) - 1);
        let shift = offset & &most;
        let rest = &shift ^ &most;
        [0, 1, 2].map(|at| {
            let upper = words[at].shifted_by(Op::Shl, &shift);
            &upper | &words[at + 1].shifted(Op::Shr, 1).shifted_by(Op::Shr, &rest)
        })
    }

    /// The upper half of the product of two words.
    fn product_high(&self, x: &Value, y: &Value) -> Value {
        let half = self.width() / 2;
        let ones = self.word((1 << half) - 1);
        let parts = |value: &Value| (value & &ones, value.shifted(Op::Shr, half));
        let ((x_low, x_high), (y_low, y_high)) = (parts(x), parts(y));
        let low = (&x_low * &y_low).shifted(Op::Shr, half);
        let (low, middle) = parts(&(&(&x_high * &y_low) + &low));
        let low = (&(&x_low * &y_high) + &low).shifted(Op::Shr, half);
        &(&(&x_high * &y_high) + &middle) + &low
    }

    /// The angle of a signed fraction of a quarter turn, `high` its first word with two bits before
    /// the point: in three pieces that are exact as floats, for few bits may be left of it.
    fn angle(&self, high: &Value, low: &Value) -> Value {
        let Format { float, int, word, mantissa, half_pi, .. } = *self.format;
        let (width, piece) = (self.width(), mantissa - 2);
        let taken = width - mantissa;
        let kept = piece - taken;
        let first = high.bits_as(int).shifted(Op::Shr, kept);
        let second = (high & &self.word((1 << kept) - 1)).shifted(Op::Shl, taken);
        let second = &second | &low.shifted(Op::Shr, mantissa);
        let third = (low & &self.word((1 << mantissa) - 1)).shifted(Op::Shr, 2);
        let unit = 2 - i64::from(width);
        let exact = |piece: &Value, exponent: i64| {
            &self.whole(&piece.bits_as(int)) * &self.float(Writer::power(exponent))
        };
        let first = exact(&first, unit + i64::from(kept));
        let second = exact(&second, unit - i64::from(taken));
        let third = exact(&third, unit + 2 - i64::from(width));
        let sum = &first + &second;
        let rest = &(&second - &(&sum - &first)) + &third;
        let [upper, lower] = half_pi.map(|value| self.float(value));
        // Half of the bits times half of the bits is exact.
        let mask = self.word(u64::MAX << mantissa.div_ceil(2));
        let main = (&sum.bits_as(word) & &mask).bits_as(float);
        let whole = self.float(std::f64::consts::FRAC_PI_2);
        let small = self.fused(&(&sum - &main), &whole, &(&rest * &whole));
        self.fused(&main, &upper, &self.fused(&main, &lower, &small))
    }

    /// `2^(y * log2|x|)` and what C says of signs, zeros, infinities and NaN.
    fn pow(&self, x: &Value, y: &Value) -> Value {
        let Format { float, int, word, mantissa, .. } = *self.format;
        let sign = self.word(1 << (self.width() - 1));
        let [zero, one] = [0.0, 1.0].map(|value| self.float(value));
        let size_of =
            |value: &Value| (&value.bits_as(word) & &(&sign ^ &self.word(u64::MAX))).bits_as(float);
        let size = size_of(x);
        let power = self.exp2(&(y * &self.log2(&size)));
        let power = size.differs(&one).choose(&power, &one);
        // Floats that are not below this, infinity among them, are even; NaN is seen to below.
        let is_below = size_of(y).less(&self.float(Writer::power(i64::from(mantissa) + 1)));
        let part = is_below.choose(y, &zero);
        let whole = part.cast(int);
        let is_fraction = whole.cast(float).differs(&part);
        let is_odd = (&whole & &self.int(1)).bits_as(word);
        let flipped = &is_odd.shifted(Op::Shl, self.width() - 1) & &x.bits_as(word);
        let signed = (&power.bits_as(word) ^ &flipped).bits_as(float);
        let nan = self.float(f64::NAN);
        let of_finite = self.float(f64::NEG_INFINITY).less(x).choose(&nan, &power);
        let of_negative = x.less(&zero).choose(&of_finite, &power);
        let value = is_fraction.choose(&of_negative, &signed);
        let value = y.differs(y).choose(&nan, &value);
        let value = y.differs(&zero).choose(&value, &one);
        x.differs(&one).choose(&value, &one)
    }
}
