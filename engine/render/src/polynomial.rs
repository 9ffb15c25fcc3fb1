//! exp2 and log2 of vectors of f32 in C, by polynomials. Tried on all floats against the system's
//! functions of f64: exp2 is within 1.3 ulp and log2 within 1.8 ulp, with and without fused sums.

/// Of 2^r for r from -0.5 to 0.5, highest power first; Cephes' coefficients.
const EXP2: [&str; 7] = [
    "1.535336188319500e-4f",
    "1.339887440266574e-3f",
    "9.618437357674640e-3f",
    "5.550332471162809e-2f",
    "2.402264791363012e-1f",
    "6.931472028550421e-1f",
    "1.0f",
];

/// Of log2(1+f)/f for f from sqrt(0.5)-1 to sqrt(2)-1: through the zeros of a Chebyshev polynomial.
const LOG2: [&str; 10] = [
    "-0.107497894f",
    "0.184760333f",
    "-0.191388377f",
    "0.204857648f",
    "-0.239608122f",
    "0.288552561f",
    "-0.360696542f",
    "0.48089852f",
    "-0.721347354f",
    "1.44269504f",
];

/// The statements that make `p` the polynomial of a variable.
fn horner(coefficients: &[&str], variable: &str, lanes: u8) -> String {
    let mut text = format!("f32x{lanes} p = all_f32x{lanes}({});\n  ", coefficients[0]);
    for coefficient in &coefficients[1..] {
        text +=
            &format!("p = mulacc_f32x{lanes}(p, {variable}, all_f32x{lanes}({coefficient}));\n  ");
    }
    text
}

/// 2^n * 2^r for the whole number n that is nearest to x. The power comes in two parts, so that
/// what lies below the normal numbers is rounded once and what lies above the finite is infinite.
pub(crate) fn exp2(lanes: u8) -> String {
    let (f32, i32) = (format!("f32x{lanes}"), format!("i32x{lanes}"));
    format!(
        "x = select_{f32}(({i32})(x > 129.0f), all_{f32}(129.0f), x);\n  \
         x = select_{f32}(({i32})(x < -151.0f), all_{f32}(-151.0f), x);\n  \
         {f32} moved = x + 12582912.0f, r = x - (moved - 12582912.0f);\n  \
         {i32} n = ({i32})moved - 0x4b400000, half = n >> 1;\n  \
         {}return p * ({f32})((half + 127) << 23) * ({f32})((n - half + 127) << 23);",
        horner(&EXP2, "r", lanes)
    )
}

/// e + log2(1+f) for x = 2^e * (1+f); what lies below the normal numbers is scaled up.
pub(crate) fn log2(lanes: u8) -> String {
    let (f32, i32) = (format!("f32x{lanes}"), format!("i32x{lanes}"));
    format!(
        "{i32} small = ({i32})(x < 0x1p-126f);\n  \
         {i32} bits = ({i32})select_{f32}(small, x * 0x1p23f, x) - 0x3f3504f3;\n  \
         {f32} e = __builtin_convertvector((bits >> 23) - (small & 23), {f32});\n  \
         {f32} f = ({f32})((bits & 0x7fffff) + 0x3f3504f3) - 1.0f;\n  \
         {}p = mulacc_{f32}(p, f, e);\n  \
         p = select_{f32}(({i32})(x < INFINITY), p, x);\n  \
         p = select_{f32}(({i32})(x == 0.0f), all_{f32}(-INFINITY), p);\n  \
         return select_{f32}(({i32})(x < 0.0f), all_{f32}(NAN), p);",
        horner(&LOG2, "f", lanes)
    )
}
