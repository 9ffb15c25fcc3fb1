//! Threefry-2x32 in ops that every device has: sums, shifts and exclusive ors of 32-bit words.
//!
//! In: a `Threefry` node. Out: an equal node, which joins two words to 64 bits. Ops over constant
//! words are folded here, since no constant folding follows.

use gradiff_graph::evaluate::{THREEFRY_PARITY, THREEFRY_ROTATIONS};
use gradiff_graph::{Constant, DType, Op, UOp, evaluate};

/// Expands the op `Threefry` into ops over 32-bit words; returns a node of another op unchanged.
pub fn decompose(uop: &UOp) -> UOp {
    let (Op::Threefry, [counter, key]) = (uop.op(), uop.src()) else { return uop.clone() };
    let (key_low, key_high) = halves(key);
    let parity = word(THREEFRY_PARITY);
    let last = binary(Op::Xor, binary(Op::Xor, key_low.clone(), key_high.clone()), parity);
    let key_schedule = [key_low, key_high, last];
    let (low, high) = halves(counter);
    let mut low = binary(Op::Add, low, key_schedule[0].clone());
    let mut high = binary(Op::Add, high, key_schedule[1].clone());
    // Each group has four rounds, after which words of the key schedule are added.
    for (group, injection) in (1..=5u32).enumerate() {
        for rotation in THREEFRY_ROTATIONS[group % 2] {
            low = binary(Op::Add, low, high.clone());
            high = binary(Op::Xor, low.clone(), rotated(high, rotation));
        }
        let added = binary(Op::Add, key_schedule[(group + 2) % 3].clone(), word(injection));
        low = binary(Op::Add, low, key_schedule[(group + 1) % 3].clone());
        high = binary(Op::Add, high, added);
    }
    let wide = |half| cast(DType::U64, half);
    let upper = binary(Op::Shl, wide(high), UOp::int(DType::U64, 32));
    binary(Op::Or, upper, wide(low))
}

/// The two words of a 64-bit value, the low one first.
fn halves(value: &UOp) -> (UOp, UOp) {
    let upper = match widened(value) {
        Some(_) => UOp::int(DType::U64, 0),
        None => binary(Op::Shr, value.clone(), UOp::int(DType::U64, 32)),
    };
    let low = widened(value).unwrap_or(value);
    (cast(DType::U32, low.clone()), cast(DType::U32, upper))
}

/// The source of a cast from an integer, if its value is not negative and fits in 32 bits.
fn widened(value: &UOp) -> Option<&UOp> {
    let [source] = value.src() else { return None };
    let is_narrow = value.op() == Op::Cast && source.dtype().is_int();
    let (min, max) = crate::bounds(source);
    (is_narrow && 0 <= min && max < 1 << 32).then_some(source)
}

/// A word rotated to the left.
fn rotated(value: UOp, bits: u32) -> UOp {
    let bits = i64::from(bits);
    let left = binary(Op::Shl, value.clone(), UOp::int(DType::U32, bits));
    binary(Op::Or, left, binary(Op::Shr, value, UOp::int(DType::U32, 32 - bits)))
}

/// A constant word.
fn word(value: u32) -> UOp {
    UOp::int(DType::U32, value.into())
}

/// The cast, folded if the value has the dtype already or is a constant.
fn cast(dtype: DType, value: UOp) -> UOp {
    if value.dtype() == dtype {
        return value;
    }
    let folded = value.as_const().and_then(|value| evaluate(Op::Cast, dtype, &[value]));
    folded.map_or_else(|| UOp::unary(Op::Cast, dtype, value), UOp::constant)
}

/// The op, folded if both sources are constants, or if one of them is 0 and so leaves the other as
/// it is.
fn binary(op: Op, x: UOp, y: UOp) -> UOp {
    let dtype = x.dtype();
    let zero = Constant::zero(dtype);
    match (x.as_const(), y.as_const()) {
        (Some(a), Some(b)) if let Some(value) = evaluate(op, dtype, &[a, b]) => {
            UOp::constant(value)
        }
        (_, Some(b)) if b == zero => x,
        (Some(a), _) if a == zero && op.is_commutative() => y,
        _ => UOp::binary(op, x, y),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gradiff_graph::{Arg, Variable};

    fn variable(name: &str, dtype: DType) -> UOp {
        let variable = Variable { name: name.into(), min: 0, max: i32::MAX.into() };
        UOp::new(Op::DefineVar, dtype, [], Arg::Var(variable.into()))
    }

    /// Evaluates the node with these values of the variables.
    fn value(root: &UOp, variables: &[(UOp, Constant)]) -> Constant {
        let mut values: rustc_hash::FxHashMap<UOp, Constant> = variables.iter().cloned().collect();
        for node in root.toposort() {
            if values.contains_key(&node) {
                continue;
            }
            let src: Vec<Constant> = node.src().iter().map(|source| values[source]).collect();
            let value = node.as_const().or_else(|| evaluate(node.op(), node.dtype(), &src));
            values.insert(node, value.expect("every op here can be evaluated"));
        }
        values[root]
    }

    /// The op table's cost, by which unrolling is limited, is the number of ops.
    #[test]
    fn cost_is_the_number_of_ops() {
        let (x, key) = (variable("x", DType::U64), variable("k", DType::U64));
        let node = UOp::new(Op::Threefry, DType::U64, [x, key], Arg::None);
        let nodes = decompose(&node).toposort();
        let count = nodes.iter().filter(|node| node.op().is_elementwise()).count() as i64;
        let cost = Op::Threefry.row().cost;
        assert!((count - 5..=count + 5).contains(&cost), "{count} ops, {cost} in the table");
    }

    #[test]
    fn decomposed_threefry_is_threefry() {
        let (x, key) = (variable("x", DType::U64), variable("k", DType::U64));
        let node = UOp::binary(Op::Threefry, x.clone(), key.clone());
        let expanded = decompose(&node);
        assert!(expanded.toposort().iter().all(|node| node.op() != Op::Threefry));
        let mut bits = 0x0123_4567_89ab_cdefu64;
        for _ in 0..200 {
            bits = bits.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31) ^ 0x5555;
            let counter = Constant::int(DType::U64, bits.into());
            let word = Constant::int(DType::U64, (bits >> 7).wrapping_mul(77).into());
            let values = [(x.clone(), counter), (key.clone(), word)];
            let expected = evaluate(Op::Threefry, DType::U64, &[counter, word]);
            assert_eq!(Some(value(&expanded, &values)), expected);
        }
    }

    #[test]
    fn decomposed_threefry_of_a_small_counter_computes_its_low_word_alone() {
        let x = variable("x", DType::I32);
        let counter = UOp::unary(Op::Cast, DType::U64, x.clone());
        let node = UOp::binary(Op::Threefry, counter, UOp::int(DType::U64, 7));
        let expanded = decompose(&node);
        let wide = expanded.toposort().into_iter().filter(|node| node.dtype() == DType::U64);
        // The shift of the upper word, the constant 32, the two casts, and the `or` that joins
        // them.
        assert_eq!(wide.count(), 5);
        let values = [(x, Constant::int(DType::I32, 12345))];
        let src = [12345, 7].map(|value| Constant::int(DType::U64, value));
        assert_eq!(Some(value(&expanded, &values)), evaluate(Op::Threefry, DType::U64, &src));
    }
}
