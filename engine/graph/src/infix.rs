//! Index expressions in infix form, in tinygrad's style: `(((ridx0*-3)+ridx1)+5)`.

use rustc_hash::FxHashMap;

use crate::{Arg, Op, UOp};

/// Returns the expression in infix form with every operation in parentheses. Ranges are `ridxN`,
/// variables their names; `//` and `%` round down; `cdiv(a,b)` and `cmod(a,b)` truncate; `(c?a:b)`
/// is `where`. Shared parts are repeated.
pub fn infix(root: &UOp) -> String {
    let mut texts: FxHashMap<UOp, String> = FxHashMap::default();
    for node in root.toposort() {
        let src: Vec<&str> = node.src().iter().map(|source| texts[source].as_str()).collect();
        let text = render(&node, &src);
        texts.insert(node, text);
    }
    texts.remove(root).expect("the root is last in the order")
}

fn render(node: &UOp, src: &[&str]) -> String {
    let operator = match node.op() {
        Op::Add => "+",
        Op::Sub => "-",
        Op::Mul => "*",
        Op::FDiv => "/",
        Op::FloorDiv => "//",
        Op::FloorMod => "%",
        Op::CmpLt => "<",
        Op::CmpNe => "!=",
        Op::And => "&",
        Op::Or => "|",
        Op::Xor => "^",
        Op::Shl => "<<",
        Op::Shr => ">>",
        _ => "",
    };
    match (node.op(), node.arg(), src) {
        (_, _, [x, y]) if !operator.is_empty() => format!("({x}{operator}{y})"),
        (_, Arg::Const(value), _) if node.dtype() == crate::DType::Bool => {
            String::from(if value.is_true() { "True" } else { "False" })
        }
        (_, Arg::Const(value), _) => value.to_string(),
        (Op::Range, Arg::Axis(axis), _) => format!("ridx{axis}"),
        (_, Arg::Var(variable), _) => variable.name.clone(),
        (_, Arg::Global(global), _) => format!("data{}", global.slot),
        (Op::Neg, _, [x]) => format!("(-{x})"),
        (Op::Where, _, [condition, x, y]) => format!("({condition}?{x}:{y})"),
        (Op::Cast, _, [x]) => format!("{}({x})", node.dtype()),
        (Op::Bitcast, _, [x]) => format!("bitcast<{}>({x})", node.dtype()),
        (Op::Index, _, [global, index]) => format!("{global}[{index}]"),
        (Op::Index, _, [global, index, gate]) => format!("{global}[{index} if {gate}]"),
        (op, ..) => format!("{op}({})", src.join(",")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;

    #[test]
    fn infix_matches_tinygrad() {
        let range = |axis| {
            UOp::new(Op::Range, DType::I32, [UOp::int(DType::I32, 4)], Arg::plain_axis(axis))
        };
        let int = |value| UOp::int(DType::I32, value);
        let product = UOp::binary(Op::Mul, range(0), int(-3));
        let sum = UOp::binary(Op::Add, UOp::binary(Op::Add, product, range(1)), int(5));
        assert_eq!(infix(&sum), "(((ridx0*-3)+ridx1)+5)");
        let below = UOp::not(UOp::binary(Op::CmpLt, range(0), int(1)));
        assert_eq!(infix(&below), "((ridx0<1)!=True)");
        let chosen = UOp::select(below, range(0), UOp::binary(Op::CDiv, int(7), range(1)));
        assert_eq!(infix(&chosen), "(((ridx0<1)!=True)?ridx0:cdiv(7,ridx1))");
    }
}
