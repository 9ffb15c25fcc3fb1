//! Dtype promotion: the lattice of JAX, as in tinygrad.

use gradiff_graph::DType;

/// Returns the smallest dtype that both promote to. Bool promotes to every dtype. Two integers of
/// the same signedness give the wider one; of different signedness, the smallest signed dtype that
/// holds both, or f16 if none does (i8 and u64). An integer and a float give the float. f16 and
/// bf16 give f32. Source: <https://docs.jax.dev/en/latest/jep/9407-type-promotion.html>, without
/// weak types.
pub fn promote(a: DType, b: DType) -> DType {
    assert!(a != DType::Void, "data has a dtype");
    assert!(b != DType::Void, "data has a dtype");
    let (low, high) = (a.min(b), a.max(b));
    match (low, high) {
        (DType::F16, DType::BF16) => DType::F32,
        _ if low == DType::Bool || high.is_float() || low.is_signed() == high.is_signed() => high,
        _ => {
            let (signed_side, unsigned) = if low.is_signed() { (low, high) } else { (high, low) };
            signed(signed_side.bits().max(2 * unsigned.bits()))
        }
    }
}

/// The signed integer dtype of this width; f16 above 64 bits.
fn signed(bits: u32) -> DType {
    match bits {
        8 => DType::I8,
        16 => DType::I16,
        32 => DType::I32,
        64 => DType::I64,
        _ => DType::F16,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use DType::*;

    #[test]
    fn promote_follows_the_lattice() {
        let cases = [
            (I8, U8, I16),
            (I16, U8, I16),
            (I8, U16, I32),
            (I32, U32, I64),
            (I8, U64, F16),
            (I64, U64, F16),
            (Bool, U8, U8),
            (U16, U64, U64),
            (I64, F16, F16),
            (U64, BF16, BF16),
            (F16, BF16, F32),
            (BF16, F64, F64),
        ];
        for (a, b, expected) in cases {
            assert_eq!(promote(a, b), expected, "{a} {b}");
            assert_eq!(promote(b, a), expected, "{b} {a}");
        }
        for a in DType::ALL {
            assert_eq!(promote(a, a), a);
            assert_eq!(promote(Bool, a), a);
            for b in DType::ALL {
                let both = promote(a, b);
                assert_eq!(both, promote(b, a), "{a} {b}");
                assert_eq!(promote(both, a), both, "{a} {b}: the result is above both");
            }
        }
    }
}
