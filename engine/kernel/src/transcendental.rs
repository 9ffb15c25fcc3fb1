//! Expands exp2, log2, sin and pow into sums, products and bit operations, for targets that do not
//! support them.
//!
//! Error bounds, in units in the last place of the exact value, whether or not products are rounded
//! before they are added (`engine/tests/transcendental.rs` tests all floats):
//!
//! |       | exp2 | log2 | sin  | e^x  | pow                               |
//! |-------|------|------|------|------|-----------------------------------|
//! | f32   | 1.3  | 1.9  | 1.9  | 1.2  | 2 + 2 for each doubling of x^y    |
//! | f64   | 2    | 2    | 2    | 1.2  | 2 + 2 for each doubling of x^y    |
//!
//! They hold for all arguments, including subnormal and the largest ones. On devices that flush
//! subnormal numbers to zero, the expansions do, too. The bound of sin in f32 is 3 where the
//! compiler treats floats as real numbers (`Target::reassociates`).
//!
//! e^x is the `pow` whose base is the float nearest to e. It is expanded for every target, even one
//! that supports `pow`: the power of that float is off by up to 45 ulps of f32, since e itself is
//! rounded, and `exp2(x * log2(e))` by 64, since the product is rounded. The float is within half a
//! ulp of e, so its power and e^x differ by less than a ulp for each doubling, which is within the
//! error bound of pow, in strict mode, too.
//!
//! A compiler that treats floats as real numbers would drop a large number that is added and then
//! subtracted, so numbers are rounded to integers through their bits.

use std::ops::{Add, BitAnd, BitOr, BitXor, Mul, Sub};

use std::f64::consts::{E, LN_2, LOG2_E};

use gradiff_graph::{Arg, Constant, DType, Op, Target, UOp};

/// The ops that this file expands.
pub(crate) const OPS: [Op; 4] = [Op::Exp2, Op::Log2, Op::Sin, Op::Pow];

/// A float type and its polynomials, with the coefficient of the lowest power first. They
/// interpolate at the zeros of Chebyshev polynomials; coefficients are rounded.
struct Format {
    float: DType,
    /// The signed integers of the same width.
    int: DType,
    /// The unsigned integers of the same width.
    word: DType,
    /// Bits of the fraction.
    mantissa: u32,
    /// The stored exponent of 1.0.
    bias: i64,
    /// `(2^r - 1)/r` for r from -0.5 to 0.5.
    exp2: &'static [f64],
    /// `(e^r - 1)/r` for r from -ln(2)/2 to ln(2)/2, with the least error relative to e^r (Remez).
    exp: &'static [f64],
    /// ln(2) in so few bits that products with exponents are exact, and the remainder.
    ln_2: [f64; 2],
    /// The integer nearest to ln(2) * 2^(width - 2), and that integer / 2^(width - 2) - ln(2).
    fixed_ln_2: (i64, f64),
    /// `log2(1+f)/f` for 1+f from sqrt(0.5) to sqrt(2).
    log2: &'static [f64],
    /// `(sin(r) - r)/r^3` over r^2, for r up to pi/4.
    sin: &'static [f64],
    /// `(cos(r) - 1 + r^2/2)/r^4` over r^2, for r up to pi/4.
    cos: &'static [f64],
    /// pi/2 in few bits, and the remainder.
    half_pi: [f64; 2],
}

const FORMATS: [Format; 2] = [
    Format {
        float: DType::F32,
        int: DType::F32.signed(),
        word: DType::F32.unsigned(),
        mantissa: DType::F32.mantissa_bits(),
        bias: DType::F32.exponent_bias(),
        exp2: &[LN_2, 0.24022651, 0.055503566, 0.009618082, 0.0013391088, 0.00015453357],
        exp: &[1.0, 0.49999994, 0.16666521, 0.04166839, 0.008368745, 0.0013814537],
        ln_2: [0.693145751953125, 1.4286068203094173e-06],
        fixed_ln_2: (0x2c5c_85fe, 4.200915072681085e-11),
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
        int: DType::F64.signed(),
        word: DType::F64.unsigned(),
        mantissa: DType::F64.mantissa_bits(),
        bias: DType::F64.exponent_bias(),
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
        fixed_ln_2: (0x2c5c_85fd_f473_de6b, 1.1458352726798733e-20),
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

/// The fractional bits of 2/pi.
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

/// Estimates the number of uops of an expanded function; 0 for other nodes.
pub(crate) fn uops(node: &UOp) -> i64 {
    match node.op() {
        Op::Pow if exponent_of_e(node).is_some() => Op::Exp2.row().cost,
        op @ (Op::Exp2 | Op::Log2 | Op::Sin | Op::Pow | Op::Threefry) => op.row().cost,
        _ => 0,
    }
}

/// Returns the x of e^x; `None` if the node is not such a power, or is one of 16-bit floats, none
/// of which is near enough to e.
fn exponent_of_e(node: &UOp) -> Option<&UOp> {
    let (Op::Pow, DType::F32 | DType::F64, [base, x]) = (node.op(), node.dtype(), node.src())
    else {
        return None;
    };
    (base.as_const() == Some(Constant::float(node.dtype(), E))).then_some(x)
}

/// Expands e^x into ops that every target supports; `None` if the node is not e^x.
pub(crate) fn decompose_exp(node: &UOp, target: &Target) -> Option<UOp> {
    let x = Value(exponent_of_e(node)?.clone());
    Some(Expander::new(node.dtype(), target)?.exp(&x).0)
}

/// Expands one of [`OPS`] over f32 or f64 into ops that every target supports; `None` for other
/// nodes.
pub(crate) fn decompose(node: &UOp, target: &Target) -> Option<UOp> {
    let expander = Expander::new(node.dtype(), target)?;
    let src: Vec<Value> = node.src().iter().cloned().map(Value).collect();
    Some(match (node.op(), &src[..]) {
        (Op::Exp2, [x]) => expander.exp2(x).0,
        (Op::Log2, [x]) => expander.log2(x).0,
        (Op::Sin, [x]) => expander.sin(x).0,
        (Op::Pow, [x, y]) => expander.pow(x, y).0,
        _ => return None,
    })
}

/// A node with the arithmetic operators of a number.
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

    /// Returns `x` where this is true, else `y`.
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

/// Builds formulas over one type.
struct Expander {
    format: &'static Format,
    /// True if `mulacc` is used.
    fused: bool,
    /// True if the compiler may treat floats as real numbers.
    reassociates: bool,
    /// True if the values may become vectors.
    in_vectors: bool,
}

impl Expander {
    /// Makes an expander for f32 or f64; `None` for other types.
    fn new(dtype: DType, target: &Target) -> Option<Expander> {
        let format = FORMATS.iter().find(|format| format.float == dtype)?;
        let (fused, reassociates) = (target.mulacc, target.reassociates);
        Some(Expander { format, fused, reassociates, in_vectors: target.vectors.alu })
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

    /// Returns the bits of a float as an integer.
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

    /// Evaluates the polynomial with these coefficients, the one of the lowest power first.
    fn polynomial(&self, coefficients: &[f64], x: &Value) -> Value {
        let (last, others) = coefficients.split_last().expect("polynomials have coefficients");
        let start = self.float(*last);
        others.iter().rev().fold(start, |sum, next| self.fused(&sum, x, &self.float(*next)))
    }

    /// A number that, added to a small one, leaves the nearest integer in the last bits.
    fn anchor(&self) -> f64 {
        1.5 * Expander::power(self.format.mantissa.into())
    }

    /// Converts an integer below a quarter of the anchor to a float. Not all machines have an
    /// instruction for vectors of 64 bits, so these use the anchor. Others do not, since a compiler
    /// that treats floats as real numbers would drop it.
    fn whole(&self, number: &Value) -> Value {
        if self.format.float == DType::F32 || !self.in_vectors {
            return number.cast(self.format.float);
        }
        let shifted = number + &self.int(self.bits_of(self.anchor()));
        &shifted.bits_as(self.format.float) - &self.float(self.anchor())
    }

    /// `2^x = 2^n * 2^r` for the integer n nearest to x.
    fn exp2(&self, x: &Value) -> Value {
        let x = self.within_exponents(x, 1.0);
        let (shifted, n) = self.nearest(|anchor| &x + anchor);
        let r = &x - &n;
        let p = self.fused(&self.polynomial(self.format.exp2, &r), &r, &self.float(1.0));
        self.times_power(&p, &shifted)
    }

    /// `e^x = 2^n * e^r` for the integer n nearest to `x * log2(e)`.
    fn exp(&self, x: &Value) -> Value {
        let x = self.within_exponents(x, LN_2);
        let (shifted, n) = self.nearest(|anchor| self.fused(&x, &self.float(LOG2_E), anchor));
        let r = if self.reassociates {
            self.less_multiple_in_integers(&x, &shifted, &n)
        } else {
            self.less_multiple(&x, &n)
        };
        let p = self.fused(&self.polynomial(self.format.exp, &r), &r, &self.float(1.0));
        self.times_power(&p, &shifted)
    }

    /// `x - n * ln(2)`. The first product and the first difference are exact, so that the error is
    /// that of a number below 1/2 (Cody-Waite).
    fn less_multiple(&self, x: &Value, n: &Value) -> Value {
        let [upper, lower] = self.format.ln_2.map(|part| self.float(-part));
        self.fused(n, &lower, &self.fused(n, &upper, x))
    }

    /// The same for compilers that would add the two parts of ln(2): in fixed-point numbers, which
    /// wrap around before the result is in their range. NaN has no such number.
    fn less_multiple_in_integers(&self, x: &Value, shifted: &Value, n: &Value) -> Value {
        let Format { float, int, fixed_ln_2: (ln_2, above), .. } = *self.format;
        let point = self.width() - 2;
        let unit = Expander::power(point.into());
        let whole = x.cast(int);
        let fraction = &(x - &whole.cast(float)) * &self.float(unit);
        let fixed = &whole.shifted(Op::Shl, point) + &fraction.cast(int);
        let multiple = &self.exponent(shifted) * &self.int(ln_2);
        let r = &(&fixed - &multiple).cast(float) * &self.float(1.0 / unit);
        x.differs(x).choose(x, &self.fused(n, &self.float(above), &r))
    }

    /// Clamps x to a range outside of which the power is infinite or 0; `units` is the logarithm of
    /// 2 to the base of the power. At its ends both factors of [`Expander::times_power`] are
    /// infinite or 0. The power of infinity must not be a finite product that overflows only when
    /// it is rounded, since a multiply-add does not round it. The power of -infinity, which masks
    /// of attention have, must not be a product that underflows: that takes a CPU a hundred cycles.
    fn within_exponents(&self, x: &Value, units: f64) -> Value {
        let bias = self.format.bias;
        let (low, high) = (-2 * bias, 2 * (bias + 1));
        let [low, high] = [low, high].map(|bound| self.float(bound as f64 * units));
        let x = high.less(x).choose(&high, x);
        x.less(&low).choose(&low, &x)
    }

    /// The number that [`Expander::nearest`] adds.
    fn nearest_anchor(&self) -> f64 {
        self.anchor() + (2 * self.format.bias) as f64
    }

    /// Returns the integer n nearest to a number, which `add` adds to its argument: first as an
    /// integer whose last bits are n + 2*bias, so that each half of it is a stored exponent, then
    /// as a float.
    fn nearest(&self, add: impl Fn(&Value) -> Value) -> (Value, Value) {
        let Format { float, int, .. } = *self.format;
        let anchor = self.nearest_anchor();
        let shifted = add(&self.float(anchor)).bits_as(int);
        // Without the anchor for scalars, as in `whole`.
        let n = match self.in_vectors {
            true => &shifted.bits_as(float) - &self.float(anchor),
            false => self.exponent(&shifted).cast(float),
        };
        (shifted, n)
    }

    /// Returns the integer n of [`Expander::nearest`].
    fn exponent(&self, shifted: &Value) -> Value {
        shifted - &self.int(self.bits_of(self.nearest_anchor()))
    }

    /// `p * 2^n` for the n of [`Expander::nearest`]. The power is split in two factors, so that a
    /// subnormal result is rounded once and an overflow gives infinity.
    fn times_power(&self, p: &Value, shifted: &Value) -> Value {
        let Format { float, mantissa, .. } = *self.format;
        let first = shifted.shifted(Op::Shr, 1);
        let scale = |exponent: &Value| exponent.shifted(Op::Shl, mantissa).bits_as(float);
        &(p * &scale(&first)) * &scale(&(shifted - &first))
    }

    /// `e + log2(1+f)` for `x = 2^e * (1+f)`; subnormal numbers are scaled up first.
    fn log2(&self, x: &Value) -> Value {
        let Format { float, int, mantissa, bias, .. } = *self.format;
        let is_small = x.less(&self.float(Expander::power(1 - bias)));
        let scaled = x * &self.float(Expander::power(mantissa.into()));
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

    /// The sine: that, or the cosine, of `|x|` reduced by a multiple of pi/2.
    fn sin(&self, x: &Value) -> Value {
        let Format { float, word, .. } = *self.format;
        let sign = self.word(1 << (self.width() - 1));
        let bits = x.bits_as(word);
        let size = &bits & &(&sign ^ &self.word(u64::MAX));
        let (quadrant, remainder) = self.reduced(&size);
        // Small numbers need no reduction.
        let is_small = size.less(&self.word(self.bits_of(0.5) as u64));
        let r = is_small.choose(&size.bits_as(float), &remainder);
        let quadrant = is_small.choose(&self.word(0), &quadrant);
        let z = &r * &r;
        let sine = self.fused(&self.polynomial(self.format.sin, &z), &(&z * &r), &r);
        let leading = self.fused(&z, &self.float(-0.5), &self.float(1.0));
        let cosine = self.fused(&self.polynomial(self.format.cos, &z), &(&z * &z), &leading);
        let is_odd = (&quadrant & &self.word(1)).differs(&self.word(0));
        let value = is_odd.choose(&cosine, &sine).bits_as(word);
        let negated = (&quadrant & &self.word(2)).shifted(Op::Shl, self.width() - 2);
        let value = (&(&value ^ &negated) ^ &(&bits & &sign)).bits_as(float);
        let is_finite = size.less(&self.word(self.bits_of(f64::INFINITY) as u64));
        is_finite.choose(&value, &self.float(f64::NAN))
    }

    /// Reduces the number with these bits by a multiple of pi/2 (Payne-Hanek); returns that
    /// multiple modulo 4, and the remainder from -pi/4 to pi/4. The number is `m * 2^k` with an
    /// integer m. Of 2/pi only the three words matter whose products with it are below 4 and not
    /// too small. The product is a fixed-point number: the top two bits of `high` are the integer
    /// part.
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

    /// Returns three words of 2/pi from a bit on, counted from a word of zeros before the point.
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
            (0..last).rev().fold(word(last + at), |later, number| {
                let end = self.word((number as u64 + 1) * u64::from(width));
                offset.less(&end).choose(&word(number + at), &later)
            })
        };
        let words = [0, 1, 2, 3].map(chosen);
        let max_shift = self.word(u64::from(width) - 1);
        let shift = offset & &max_shift;
        let rest = &shift ^ &max_shift;
        [0, 1, 2].map(|at| {
            let upper = words[at].shifted_by(Op::Shl, &shift);
            &upper | &words[at + 1].shifted(Op::Shr, 1).shifted_by(Op::Shr, &rest)
        })
    }

    /// Returns the upper half of the product of two words.
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

    /// Returns the angle of a signed fraction of pi/2, `high` its first word, with two bits before
    /// the point. It is computed from three pieces that are exact as floats, since leading bits may
    /// have cancelled.
    fn angle(&self, high: &Value, low: &Value) -> Value {
        let Format { float, int, word, mantissa, half_pi, .. } = *self.format;
        let (width, piece) = (self.width(), mantissa - 2);
        let shift = width - mantissa;
        let high_bits = piece - shift;
        let first = high.bits_as(int).shifted(Op::Shr, high_bits);
        let second = (high & &self.word((1 << high_bits) - 1)).shifted(Op::Shl, shift);
        let second = &second | &low.shifted(Op::Shr, mantissa);
        let third = (low & &self.word((1 << mantissa) - 1)).shifted(Op::Shr, 2);
        let unit = 2 - i64::from(width);
        let exact = |piece: &Value, exponent: i64| {
            &self.whole(&piece.bits_as(int)) * &self.float(Expander::power(exponent))
        };
        let first = exact(&first, unit + i64::from(high_bits));
        let second = exact(&second, unit - i64::from(shift));
        let third = exact(&third, unit + 2 - i64::from(width));
        let sum = &first + &second;
        let rest = &(&second - &(&sum - &first)) + &third;
        let [upper, lower] = half_pi.map(|value| self.float(value));
        // The product of two numbers with half of the bits each is exact.
        let mask = self.word(u64::MAX << mantissa.div_ceil(2));
        let main = (&sum.bits_as(word) & &mask).bits_as(float);
        let whole = self.float(std::f64::consts::FRAC_PI_2);
        let small = self.fused(&(&sum - &main), &whole, &(&rest * &whole));
        self.fused(&main, &upper, &self.fused(&main, &lower, &small))
    }

    /// `2^(y * log2|x|)`, with signs, zeros, infinities and NaN as in C.
    fn pow(&self, x: &Value, y: &Value) -> Value {
        let Format { float, int, word, mantissa, .. } = *self.format;
        let sign = self.word(1 << (self.width() - 1));
        let [zero, one] = [0.0, 1.0].map(|value| self.float(value));
        let size_of =
            |value: &Value| (&value.bits_as(word) & &(&sign ^ &self.word(u64::MAX))).bits_as(float);
        let size = size_of(x);
        let power = self.exp2(&(y * &self.log2(&size)));
        let power = size.differs(&one).choose(&power, &one);
        // Floats that are not below this, such as infinity, are even; NaN is handled below.
        let is_below = size_of(y).less(&self.float(Expander::power(i64::from(mantissa) + 1)));
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
