//! The pairs of `corpus/index/`: index and gate of loads and stores in real kernels, read from
//! their text, simplified as in a kernel, and counted.

use gradiff::graph::{Arg, DType, Global, Op, UOp};
use gradiff::rewrite::simplify;
use gradiff_check::to_uop;
use gradiff_corpus::{Case, ExprCase, parse};

/// A load in the form that kernels have: `load(index(global, index, gate))`.
pub(crate) struct Pair {
    /// Name of its origin.
    pub(crate) name: String,
    /// The load, not simplified. Variables are ranges.
    pub(crate) load: UOp,
}

/// The pairs of a file.
///
/// # Errors
/// The part that cannot be read, with the name of the pair.
pub(crate) fn read(text: &str) -> Result<Vec<Pair>, String> {
    let blocks = text.split("\n\n").filter(|block| block.starts_with("pair "));
    blocks.map(read_pair).collect()
}

fn read_pair(block: &str) -> Result<Pair, String> {
    let (name, rest) = block["pair ".len()..].split_once('\n').ok_or("a pair without lines")?;
    let vars: String = rest
        .lines()
        .filter(|line| line.starts_with("var "))
        .fold(String::new(), |text, line| text + line + "\n");
    let expression = |word: &str| -> Result<ExprCase, String> {
        let line = rest.lines().find_map(|line| line.strip_prefix(word));
        let line = line.ok_or(format!("{name}: no line `{word}`"))?;
        match parse(&format!("{vars}expr{line}\n")) {
            Ok(file) => match file.case {
                Case::Expr(case) => Ok(case),
                _ => Err(format!("{name}: not an expression")),
            },
            Err(error) => Err(format!("{name}: {error}")),
        }
    };
    let (index, valid) = (expression("index")?, expression("valid")?);
    if let Some(var) = index.vars.iter().find(|var| var.min != 0) {
        return Err(format!("{name}: variable {} does not begin at 0", var.name));
    }
    let global = Arg::Global(Global { slot: 0, size_elements: 1 << 30 });
    let global = UOp::new(Op::DefineGlobal, DType::F32, [], global);
    let sources = [global, with_ranges(&index), with_ranges(&valid)];
    let access = UOp::new(Op::Index, DType::F32, sources, Arg::None);
    Ok(Pair { name: name.to_string(), load: UOp::unary(Op::Load, DType::F32, access) })
}

/// The graph of an expression whose variables are replaced by ranges, numbered in order.
fn with_ranges(case: &ExprCase) -> UOp {
    let range = |number: usize| {
        let end = UOp::int(DType::I32, case.vars[number].max + 1);
        UOp::new(Op::Range, DType::I32, [end], Arg::plain_axis(number as i64))
    };
    let mut new: Vec<(UOp, UOp)> = Vec::new();
    for node in to_uop(case).toposort() {
        let at =
            |source: &UOp| new.iter().find(|(old, _)| old == source).expect("sorted").1.clone();
        let number = case
            .vars
            .iter()
            .position(|var| matches!(node.arg(), Arg::Var(variable) if variable.name == var.name));
        let result = match number {
            Some(number) => range(number),
            None => node.with_src(node.src().iter().map(at).collect::<Vec<_>>()),
        };
        new.push((node, result));
    }
    new.pop().expect("a graph has a root").1
}

impl Pair {
    /// The load, simplified; a constant if its gate is never open.
    pub(crate) fn simplified(&self) -> UOp {
        simplify(&self.load)
    }
}

/// Index and gate of a load; without a gate, it is always open. `None` if the node is not a load.
pub(crate) fn parts(load: &UOp) -> Option<(&UOp, Option<&UOp>)> {
    let [access] = load.src() else { return None };
    Some((&access.src()[1], access.src().get(2)))
}

/// Number of different nodes that compute index and gate: ops, constants and variables. The bounds
/// of variables are not counted.
pub(crate) fn node_count(load: &UOp) -> usize {
    let Some((index, gate)) = parts(load) else { return 0 };
    let mut counted: Vec<&UOp> = Vec::new();
    let mut pending: Vec<&UOp> = std::iter::once(index).chain(gate).collect();
    while let Some(node) = pending.pop() {
        if counted.contains(&node) {
            continue;
        }
        counted.push(node);
        if node.op() != Op::Range {
            pending.extend(node.src());
        }
    }
    counted.len()
}
