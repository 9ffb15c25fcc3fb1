//! The evaluator: computes all elements of each statement in turn.

use std::collections::BTreeMap;
use std::rc::Rc;

use gradiff_corpus::{
    Args, BinaryOp, DType, Fill, Literal, Operand, Program, ReduceOp, Shape, Statement, UnaryOp,
    ValueId, fill, literal_bits,
};

use crate::cast::{bitcast, cast};
use crate::cell::{Cell, Reason};
use crate::derivative;
use crate::infer::{self, Check, broadcast, count, limit, promote};
use crate::judge::Expected;
use crate::methods::Call;
use crate::movement;
use crate::reduce::SumDepth;
use crate::value::Value;
use crate::{arithmetic, integer, methods, reduce, transcendental};

/// The reason why a program is ill-formed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{message}", statement.map_or(String::new(), |number| format!("statement {number}: ")))]
pub struct Error {
    /// Number of the ill-formed statement; `None` if an output is ill-formed.
    pub statement: Option<usize>,
    /// The operation, and what is allowed.
    pub message: String,
}

/// Evaluates a program: returns for each output, in order, the results that a legal computation may
/// give.
///
/// # Errors
/// The program is ill-formed: an unknown value, a dtype that an op does not take, shapes that do
/// not fit, a literal that its dtype cannot represent, more than 2^24 elements in a value.
pub fn evaluate(program: &Program) -> Result<Vec<Expected>, Error> {
    expected_outputs(program, SumDepth::Cascaded)
}

/// Evaluates a program like [`evaluate`], for an engine that adds up all elements of a reduction in
/// a single accumulator. For long sums the error bounds are much wider.
///
/// # Errors
/// Those of [`evaluate`].
pub fn evaluate_in_order(program: &Program) -> Result<Vec<Expected>, Error> {
    expected_outputs(program, SumDepth::Sequential)
}

fn expected_outputs(program: &Program, sum_depth: SumDepth) -> Result<Vec<Expected>, Error> {
    let values = run(program, sum_depth, &mut |_| {})?;
    let output = |id: &ValueId| {
        let value = values[id.0 as usize].clone().expect("outputs are never dropped");
        let Value { dtype, shape, cells } = value;
        Expected::new(dtype, shape, Rc::unwrap_or_clone(cells))
    };
    Ok(program.outputs.iter().map(output).collect())
}

/// Returns whether every float in the program, intermediate values included, is certainly finite:
/// neither an infinity nor NaN. Properties that hold for finite numbers only can be checked on such
/// programs.
///
/// # Errors
/// Those of [`evaluate`].
pub fn is_finite(program: &Program) -> Result<bool, Error> {
    let mut statements = program.statements.iter();
    let mut is_finite = true;
    let is_number = |cell: &Cell| matches!(cell, Cell::Real(_));
    run(program, SumDepth::Cascaded, &mut |value| {
        let literals = statements.next().map_or_else(Vec::new, literals);
        let is_literal_number = |number: &&Literal| match number {
            // The dtype of a comparison's sources is not known here. A literal in the range of f16
            // is finite in every float dtype.
            Literal::Float(x) if !value.dtype.is_float() => (-F16_MAX..=F16_MAX).contains(x),
            Literal::Float(_) => {
                literal_cell(value.dtype, number).is_ok_and(|cell| is_number(&cell))
            }
            _ => true,
        };
        // Integers are finite, also undefined ones.
        let are_numbers = !value.dtype.is_float() || value.cells.iter().all(is_number);
        is_finite &= are_numbers && literals.iter().all(is_literal_number);
    })?;
    Ok(is_finite)
}

/// The largest f16.
const F16_MAX: f64 = 65504.0;

/// Returns the literal operands of a statement.
fn literals(statement: &Statement) -> Vec<&Literal> {
    let operands: &[Operand] = match statement {
        Statement::Binary { srcs, .. } => srcs,
        Statement::Where { srcs } | Statement::MulAcc { srcs } => srcs,
        _ => return Vec::new(),
    };
    let literals = operands.iter().filter_map(|operand| match operand {
        Operand::Literal(literal) => Some(literal),
        Operand::Value(_) => None,
    });
    literals.collect()
}

/// Finds the statements that make elements of the outputs unspecified. Returns for each output a
/// map from each reason among its elements to the number of the first statement that introduces it.
/// Evaluates the program again, so call it only if something is unspecified.
///
/// # Errors
/// Those of [`evaluate`].
pub fn origins(program: &Program) -> Result<Vec<BTreeMap<Reason, usize>>, Error> {
    let mut origins: Vec<BTreeMap<Reason, usize>> = Vec::with_capacity(program.statements.len());
    run(program, SumDepth::Cascaded, &mut |value| {
        let number = origins.len();
        let mut inherited: BTreeMap<Reason, usize> = BTreeMap::new();
        for_each_source(&program.statements[number], |source| {
            for (reason, first) in &origins[source.0 as usize] {
                let known = inherited.entry(*reason).or_insert(*first);
                *known = (*known).min(*first);
            }
        });
        let reasons = value.cells.iter().filter_map(|cell| match cell {
            Cell::Unspecified(reason) => Some(*reason),
            _ => None,
        });
        let origin = |reason| (reason, inherited.get(&reason).copied().unwrap_or(number));
        origins.push(reasons.map(origin).collect());
    })?;
    Ok(program.outputs.iter().map(|id| origins[id.0 as usize].clone()).collect())
}

/// Computes the values of all statements in order, and calls `visit` with each. Returns the values
/// of the outputs; the others are `None`, since values are dropped after their last use.
fn run(
    program: &Program,
    sum_depth: SumDepth,
    visit: &mut dyn FnMut(&Value),
) -> Result<Vec<Option<Value>>, Error> {
    let mut values: Vec<Option<Value>> = Vec::with_capacity(program.statements.len());
    let last_uses = last_uses(program)?;
    for (number, statement) in program.statements.iter().enumerate() {
        let value = match statement {
            Statement::Gradient { of, wrt } => {
                derivative::gradient(&program.statements[..number], &values, *of, *wrt, sum_depth)
            }
            _ => evaluate_statement(statement, sum_depth, &values),
        };
        let value = value.map_err(|message| Error { statement: Some(number), message })?;
        visit(&value);
        values.push(Some(value));
        let mut drop_value = |index: usize| {
            if last_uses.get(index) == Some(&number) {
                values[index] = None;
            }
        };
        match statement {
            Statement::Gradient { .. } => (0..number).for_each(drop_value),
            _ => for_each_source(statement, |source| drop_value(source.0 as usize)),
        }
    }
    Ok(values)
}

/// Returns for each value the number of the last statement that uses it, in a gradient also as a
/// value on the way; `usize::MAX` for outputs
/// and for values that no statement uses.
fn last_uses(program: &Program) -> Result<Vec<usize>, Error> {
    let total = program.statements.len();
    let mut last_uses = vec![usize::MAX; total];
    for (number, statement) in program.statements.iter().enumerate() {
        for_each_source(statement, |source| {
            if let Some(last_use) = last_uses.get_mut(source.0 as usize) {
                *last_use = number;
            }
        });
        // A gradient uses all values on the way to the value that it is of.
        if let Statement::Gradient { of, .. } = statement {
            let mut is_used = vec![false; number];
            derivative::mark_ancestors(&program.statements[..number], *of, &mut is_used);
            for (last_use, is_used) in last_uses.iter_mut().zip(is_used) {
                if is_used {
                    *last_use = number;
                }
            }
        }
    }
    for output in &program.outputs {
        let message = format!("there is no value {}: the program has {total}", output.0);
        let missing = Error { statement: None, message };
        *last_uses.get_mut(output.0 as usize).ok_or(missing)? = usize::MAX;
    }
    Ok(last_uses)
}

pub(crate) fn for_each_source(statement: &Statement, mut visit: impl FnMut(ValueId)) {
    let mut visit_values = |operands: &[Operand]| {
        for operand in operands {
            if let Operand::Value(id) = operand {
                visit(*id);
            }
        }
    };
    match statement {
        Statement::Input { .. } | Statement::Const { .. } | Statement::Arange { .. } => {}
        Statement::Binary { srcs, .. } => visit_values(srcs),
        Statement::Where { srcs } | Statement::MulAcc { srcs } => visit_values(srcs),
        Statement::Cat { srcs, .. } | Statement::Method { srcs, .. } => {
            srcs.iter().for_each(|id| visit(*id));
        }
        Statement::Gather { src, index, .. } => {
            visit(*src);
            visit(*index);
        }
        Statement::Unary { src, .. }
        | Statement::Cast { src, .. }
        | Statement::Bitcast { src, .. }
        | Statement::Reduce { src, .. }
        | Statement::Reshape { src, .. }
        | Statement::Permute { src, .. }
        | Statement::Expand { src, .. }
        | Statement::Pad { src, .. }
        | Statement::Shrink { src, .. }
        | Statement::Flip { src, .. }
        | Statement::Contiguous { src }
        | Statement::Realize { src }
        | Statement::Detach { src } => visit(*src),
        Statement::Gradient { of, wrt } => {
            visit(*of);
            visit(*wrt);
        }
    }
}

/// The value of an earlier statement.
pub(crate) fn get(values: &[Option<Value>], id: ValueId) -> Check<&Value> {
    let missing = || format!("there is no value {} before this statement", id.0);
    values.get(id.0 as usize).and_then(Option::as_ref).ok_or_else(missing)
}

pub(crate) fn evaluate_statement(
    statement: &Statement,
    sum_depth: SumDepth,
    values: &[Option<Value>],
) -> Check<Value> {
    match statement {
        Statement::Input { dtype, shape, fill } => input(*dtype, shape, fill),
        Statement::Const { dtype, shape, value } => {
            let shape = limit(shape.clone())?;
            let cells = vec![literal_cell(*dtype, value)?; count(&shape)];
            Ok(Value::new(*dtype, shape, cells))
        }
        Statement::Arange { dtype, start, step, count } => arange(*dtype, *start, *step, *count),
        Statement::Unary { op, src } => unary(*op, get(values, *src)?),
        Statement::Binary { op, srcs } => binary(*op, srcs, values),
        Statement::Where { srcs } => select(srcs, values),
        Statement::MulAcc { srcs } => mulacc(srcs, values),
        Statement::Cast { src, dtype } => {
            let src = get(values, *src)?;
            Ok(src.map(*dtype, |cell| cast(src.dtype, *dtype, cell)))
        }
        Statement::Bitcast { src, dtype } => {
            let src = get(values, *src)?;
            infer::check_bitcast(src.dtype, *dtype)?;
            Ok(src.map(*dtype, |cell| bitcast(src.dtype, *dtype, cell)))
        }
        Statement::Reduce { op, src, axes } => reduce(*op, sum_depth, get(values, *src)?, axes),
        Statement::Method { method, srcs, args } => {
            let srcs = srcs.iter().map(|src| get(values, *src)).collect::<Check<Vec<_>>>()?;
            methods::evaluate(*method, Call { srcs: &srcs, args: Args(args), sums: sum_depth })
        }
        Statement::Contiguous { src } | Statement::Realize { src } | Statement::Detach { src } => {
            Ok(get(values, *src)?.clone())
        }
        Statement::Gradient { .. } => Err("a gradient needs the whole program".into()),
        _ => evaluate_movement(statement, values),
    }
}

/// Evaluates a statement that only moves elements.
fn evaluate_movement(statement: &Statement, values: &[Option<Value>]) -> Check<Value> {
    match statement {
        Statement::Reshape { src, shape } => {
            let src = get(values, *src)?;
            let shape = movement::reshape(&src.shape, shape)?;
            Ok(Value { shape, ..src.clone() })
        }
        Statement::Permute { src, axes } => {
            let src = get(values, *src)?;
            Ok(src.moved(movement::permute(&src.shape, axes)?))
        }
        Statement::Expand { src, shape } => {
            let src = get(values, *src)?;
            Ok(src.moved(movement::expand(&src.shape, shape)?))
        }
        Statement::Shrink { src, ranges } => {
            let src = get(values, *src)?;
            Ok(src.moved(movement::shrink(&src.shape, ranges)?))
        }
        Statement::Flip { src, axes } => {
            let src = get(values, *src)?;
            Ok(src.moved((src.shape.clone(), movement::flip(&src.shape, axes)?)))
        }
        Statement::Pad { src, pads, value } => {
            let src = get(values, *src)?;
            let added = literal_cell(src.dtype, value)?;
            let (shape, positions) = movement::pad(&src.shape, pads)?;
            let cells = positions.iter().map(|at| at.map_or(added, |at| src.cells[at])).collect();
            Ok(Value::new(src.dtype, shape, cells))
        }
        Statement::Cat { srcs, axis } => cat(srcs, *axis, values),
        Statement::Gather { src, axis, index } => {
            gather(get(values, *src)?, *axis, get(values, *index)?)
        }
        _ => panic!("{statement:?} does not move elements"),
    }
}

pub(crate) fn literal_cell(dtype: DType, literal: &Literal) -> Check<Cell> {
    let bits = literal_bits(dtype, literal)
        .ok_or_else(|| format!("{literal:?} is not representable in {}", dtype.name()))?;
    Ok(Cell::from_bits(dtype, bits))
}

fn input(dtype: DType, shape: &[usize], data: &Fill) -> Check<Value> {
    let shape = limit(shape.to_vec())?;
    let total = count(&shape);
    if let Fill::Explicit(bits) = data {
        if bits.len() != total {
            let given = bits.len();
            return Err(format!("{given} elements for shape {shape:?}, which has {total}"));
        }
        let width = if dtype == DType::Bool { 1 } else { 8 * dtype.size_bytes() };
        if let Some(bits) = bits.iter().find(|bits| width < 64 && **bits >> width != 0) {
            return Err(format!("{bits:#x} is not a bit pattern of {}", dtype.name()));
        }
    }
    let array = fill(dtype, &shape, data);
    let cells = array.bits.iter().map(|bits| Cell::from_bits(dtype, *bits)).collect();
    Ok(Value::new(dtype, shape, cells))
}

fn arange(dtype: DType, start: i64, step: i64, count: usize) -> Check<Value> {
    if !dtype.is_int() {
        return Err(format!("arange of {}: only integer dtypes are allowed", dtype.name()));
    }
    let shape = limit(vec![count])?;
    let number = |i: usize| i128::from(start) + i as i128 * i128::from(step);
    let cells = (0..count).map(|i| Cell::Int(integer::wrap(dtype, number(i)))).collect();
    Ok(Value::new(dtype, shape, cells))
}

fn unary(op: UnaryOp, src: &Value) -> Check<Value> {
    let dtype = src.dtype;
    infer::check_unary(op, dtype)?;
    Ok(src.map(dtype, |cell| match (op, cell) {
        (_, Cell::Int(bits)) => Cell::Int(integer::unary(op, dtype, bits)),
        (_, Cell::Unspecified(_)) => cell,
        (UnaryOp::Neg, _) => arithmetic::neg(cell),
        (UnaryOp::Exp2, _) => transcendental::exp2(dtype, cell),
        (UnaryOp::Log2, _) => transcendental::log2(dtype, cell),
        (UnaryOp::Sin, _) => transcendental::sin(dtype, cell),
        (UnaryOp::Sqrt, _) => arithmetic::sqrt(dtype, cell),
        (UnaryOp::Recip, _) => arithmetic::div(dtype, Cell::exact(1.0), cell),
        (UnaryOp::Not, _) => panic!("not takes no floats"),
    }))
}

/// The promoted and broadcast sources of an elementwise statement. Each has a cell for every
/// element of the result, or a single cell that stands for all of them.
struct Sources {
    dtype: DType,
    shape: Shape,
    cells: Vec<Rc<Vec<Cell>>>,
}

impl Sources {
    /// Returns the element of source `number` for the element of the result at `position`.
    fn at(&self, number: usize, position: usize) -> Cell {
        let cells = &self.cells[number];
        if cells.len() == 1 { cells[0] } else { cells[position] }
    }

    /// The value whose element at each position is `f(position)`.
    fn map(&self, dtype: DType, f: impl Fn(usize) -> Cell) -> Value {
        let total = count(&self.shape);
        Value::new(dtype, self.shape.clone(), (0..total).map(f).collect())
    }
}

/// Broadcasts a source to the shape of the result; a single cell stays single.
fn broadcast_cells(src: &Value, shape: &[usize]) -> Rc<Vec<Cell>> {
    if src.shape == shape || src.cells.len() == 1 {
        return src.cells.clone();
    }
    let positions = movement::broadcast_positions(&src.shape, shape);
    Rc::new(positions.into_iter().map(|at| src.cells[at]).collect())
}

/// Promotes the operands and broadcasts them with each other and with `condition_shape`.
fn sources(
    operands: &[Operand],
    values: &[Option<Value>],
    condition_shape: &[usize],
) -> Check<Sources> {
    let mut dtype = None;
    let mut shape = condition_shape.to_vec();
    for operand in operands {
        if let Operand::Value(id) = operand {
            let value = get(values, *id)?;
            dtype = Some(dtype.map_or(value.dtype, |dtype| promote(dtype, value.dtype)));
            shape = broadcast(&shape, &value.shape)?;
        }
    }
    let dtype = dtype.ok_or("all operands are literals: at least one must be a value")?;
    let cells_of = |operand: &Operand| -> Check<Rc<Vec<Cell>>> {
        Ok(match operand {
            Operand::Literal(value) => Rc::new(vec![literal_cell(dtype, value)?]),
            Operand::Value(id) => {
                let value = get(values, *id)?;
                if value.dtype == dtype {
                    broadcast_cells(value, &shape)
                } else {
                    let from = value.dtype;
                    broadcast_cells(&value.map(dtype, |cell| cast(from, dtype, cell)), &shape)
                }
            }
        })
    };
    let cells = operands.iter().map(cells_of).collect::<Check<_>>()?;
    Ok(Sources { dtype, shape, cells })
}

fn binary(op: BinaryOp, operands: &[Operand], values: &[Option<Value>]) -> Check<Value> {
    let sources = sources(operands, values, &[])?;
    let dtype = sources.dtype;
    infer::check_binary(op, dtype)?;
    let result = if op.is_comparison() { DType::Bool } else { dtype };
    Ok(sources.map(result, |at| combine(op, dtype, sources.at(0, at), sources.at(1, at))))
}

fn combine(op: BinaryOp, dtype: DType, x: Cell, y: Cell) -> Cell {
    match (x, y) {
        (Cell::Int(x), Cell::Int(y)) => {
            integer::binary(op, dtype, x, y).map_or_else(Cell::Unspecified, Cell::Int)
        }
        _ if dtype.is_float() => float_binary(op, dtype, x, y),
        (Cell::Unspecified(_), _) => decided_by(op, dtype, y).unwrap_or(x),
        _ => decided_by(op, dtype, x).unwrap_or(y),
    }
}

/// Returns the result of an op of integers that an operand decides, whatever the second one is.
fn decided_by(op: BinaryOp, dtype: DType, operand: Cell) -> Option<Cell> {
    let Cell::Int(bits) = operand else { return None };
    let (full, smallest) = (integer::wrap(dtype, -1), integer::smallest(dtype));
    let decisive = match op {
        BinaryOp::And | BinaryOp::Mul => 0,
        BinaryOp::Or => full,
        BinaryOp::Max => full ^ smallest,
        BinaryOp::Min => smallest,
        _ => return None,
    };
    (bits == decisive).then_some(operand)
}

fn float_binary(op: BinaryOp, dtype: DType, x: Cell, y: Cell) -> Cell {
    use arithmetic::neg;
    use std::cmp::Ordering::{Equal, Less};
    let compare = |holds: fn(Option<std::cmp::Ordering>) -> bool| {
        arithmetic::order(x, y).map_or_else(Cell::Unspecified, |order| Cell::bool(holds(order)))
    };
    match op {
        BinaryOp::Add => arithmetic::add(dtype, x, y),
        BinaryOp::Sub => arithmetic::add(dtype, x, neg(y)),
        BinaryOp::Mul => arithmetic::mul(dtype, x, y),
        BinaryOp::Div => arithmetic::div(dtype, x, y),
        BinaryOp::Pow => transcendental::pow(dtype, x, y),
        BinaryOp::Max => arithmetic::max(x, y),
        BinaryOp::Min => neg(arithmetic::max(neg(x), neg(y))),
        BinaryOp::CmpLt => match (x, y) {
            // The bounds touch at most: the numbers may be equal.
            (Cell::Real(x), Cell::Real(y)) if y.upper() <= x.lower() => Cell::bool(false),
            _ => compare(|order| order == Some(Less)),
        },
        BinaryOp::CmpEq => compare(|order| order == Some(Equal)),
        BinaryOp::CmpNe => compare(|order| order != Some(Equal)),
        BinaryOp::CDiv
        | BinaryOp::CMod
        | BinaryOp::FloorDiv
        | BinaryOp::FloorMod
        | BinaryOp::And
        | BinaryOp::Or
        | BinaryOp::Xor
        | BinaryOp::Shl
        | BinaryOp::Shr
        | BinaryOp::Threefry => panic!("{} takes no floats", op.name()),
    }
}

fn mulacc(operands: &[Operand], values: &[Option<Value>]) -> Check<Value> {
    let sources = sources(operands, values, &[])?;
    let dtype = sources.dtype;
    infer::check_binary(BinaryOp::Mul, dtype)?;
    Ok(sources.map(dtype, |at| {
        let product = combine(BinaryOp::Mul, dtype, sources.at(0, at), sources.at(1, at));
        combine(BinaryOp::Add, dtype, product, sources.at(2, at))
    }))
}

fn select(operands: &[Operand; 3], values: &[Option<Value>]) -> Check<Value> {
    let condition = match &operands[0] {
        Operand::Literal(value) => {
            Value::new(DType::Bool, vec![], vec![literal_cell(DType::Bool, value)?])
        }
        Operand::Value(id) => get(values, *id)?.clone(),
    };
    if condition.dtype != DType::Bool {
        let dtype = condition.dtype.name();
        return Err(format!("the condition of where is {dtype}, it must be bool"));
    }
    let sources = sources(&operands[1..], values, &condition.shape)?;
    let conditions = broadcast_cells(&condition, &sources.shape);
    Ok(sources.map(sources.dtype, |at| {
        let (if_true, if_false) = (sources.at(0, at), sources.at(1, at));
        match conditions[if conditions.len() == 1 { 0 } else { at }] {
            Cell::Int(condition) => {
                if condition != 0 {
                    if_true
                } else {
                    if_false
                }
            }
            Cell::Unspecified(reason) => {
                let bits = if_true.bits(sources.dtype);
                let is_same = bits.is_some() && bits == if_false.bits(sources.dtype);
                if is_same { if_true } else { Cell::Unspecified(reason) }
            }
            cell => panic!("{cell:?} is not a bool"),
        }
    }))
}

fn reduce(op: ReduceOp, sum_depth: SumDepth, src: &Value, axes: &[usize]) -> Check<Value> {
    let (shape, targets) = movement::reduce(&src.shape, axes)?;
    let mut groups: Vec<Vec<Cell>> = vec![Vec::new(); count(&shape)];
    for (cell, target) in src.cells.iter().zip(targets) {
        groups[target].push(*cell);
    }
    // A choice between values and -0.0 permits to add the values one after the other.
    let sum_depth = match src.cells.iter().any(Cell::is_negative_zero) {
        true => SumDepth::Sequential,
        false => sum_depth,
    };
    let cells =
        groups.iter().map(|group| reduce::reduce(op, sum_depth, src.dtype, group)).collect();
    Ok(Value::new(infer::reduced(op, src.dtype), shape, cells))
}

fn cat(ids: &[ValueId], axis: usize, values: &[Option<Value>]) -> Check<Value> {
    let srcs = ids.iter().map(|id| get(values, *id)).collect::<Check<Vec<_>>>()?;
    let shapes: Vec<_> = srcs.iter().map(|src| src.shape.as_slice()).collect();
    let (shape, positions) = movement::cat(&shapes, axis)?;
    let dtype = srcs[0].dtype;
    if let Some(src) = srcs.iter().find(|src| src.dtype != dtype) {
        let (a, b) = (dtype.name(), src.dtype.name());
        return Err(format!("cat of {a} and {b}: the dtypes must be equal"));
    }
    let cells = positions.into_iter().map(|(number, at)| srcs[number].cells[at]).collect();
    Ok(Value::new(dtype, shape, cells))
}

fn gather(src: &Value, axis: usize, index: &Value) -> Check<Value> {
    movement::check_gather(&src.shape, &index.shape, axis)?;
    if !index.dtype.is_int() {
        let dtype = index.dtype.name();
        return Err(format!("the index of gather is {dtype}, it must be an integer dtype"));
    }
    let size = src.shape[axis] as i128;
    let mut cells = Vec::with_capacity(index.cells.len());
    let mut indices = index.cells.iter();
    movement::for_each_index(&index.shape, |position| {
        let at = match indices.next() {
            Some(Cell::Int(bits)) => integer::value(index.dtype, *bits),
            Some(Cell::Unspecified(reason)) => {
                cells.push(Cell::Unspecified(*reason));
                return;
            }
            cell => panic!("{cell:?} is not an integer"),
        };
        cells.push(if 0 <= at && at < size {
            src.cells[movement::gathered(&src.shape, position, axis, at as usize)]
        } else {
            Cell::from_bits(src.dtype, 0)
        });
    });
    Ok(Value::new(src.dtype, index.shape.clone(), cells))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unspecified_condition_of_equal_branches_gives_their_value() {
        let reason = Reason::DivisionByZero;
        let source = |cells: Vec<Cell>, dtype| Some(Value::new(dtype, vec![3], cells));
        let values = [
            source(vec![Cell::Unspecified(reason); 3], DType::Bool),
            source(vec![Cell::Int(1), Cell::Int(2), Cell::Unspecified(reason)], DType::I8),
            source(vec![Cell::Int(1), Cell::Int(3), Cell::Int(3)], DType::I8),
        ];
        let operands = [0, 1, 2].map(|id| Operand::Value(ValueId(id)));
        let value = select(&operands, &values).expect("well-formed");
        let unspecified = Cell::Unspecified(reason);
        assert_eq!(*value.cells, vec![Cell::Int(1), unspecified, unspecified]);
    }

    #[test]
    fn origins_are_the_statements_that_introduce_reasons() {
        let text = "a = input i32[3] [1, 2, 3]\nb = input i32[3] [0, 1, 2]\nc = cdiv a b\n\
                    d = shl a -1\ne = add c d\nf = flip c axes=[0]\noutput e, f, a\n";
        let file = gradiff_corpus::parse(text).expect("a program");
        let gradiff_corpus::Case::Program(program) = file.case else { panic!("not a program") };
        let (division, shift) = (Reason::DivisionByZero, Reason::ShiftOutOfRange);
        let expected = [vec![(division, 2), (shift, 3)], vec![(division, 2)], vec![]];
        let expected = expected.map(BTreeMap::from_iter);
        assert_eq!(origins(&program).expect("well-formed"), expected);
    }

    #[test]
    fn finite_programs_have_finite_values_and_literals_only() {
        let is_finite = |text: &str| {
            let file =
                gradiff_corpus::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            let gradiff_corpus::Case::Program(program) = file.case else { panic!("not a program") };
            super::is_finite(&program).expect("well-formed")
        };
        let with = |numbers: &str, rest: &str| format!("a = input f32[2] [{numbers}]\n{rest}\n");
        assert!(is_finite(&with("1, -0.5", "b = recip a\noutput b")));
        assert!(!is_finite(&with("1, nan", "output a")));
        assert!(!is_finite(&with("1, -inf", "output a")));
        // As a literal operand: in a comparison, and in a `where` that never selects it.
        for operand in ["nan", "-inf", "1e38"] {
            assert!(!is_finite(&with("1, 2", &format!("b = cmplt a {operand}\noutput b"))));
        }
        assert!(is_finite(&with("1, 2", "b = cmplt a 1e4\noutput b")));
        assert!(is_finite(&with("1, 2", "b = max a 1e38\noutput b")));
        let quotient = "b = cast a i32\nc = cdiv b b";
        assert!(is_finite(&with("1, 0", &format!("{quotient}\noutput c"))));
        assert!(!is_finite(&with("1, 0", &format!("{quotient}\nd = cast c f32\noutput d"))));
        assert!(!is_finite(&with("1, 2", "b = cmplt a 9.0\nc = where b a inf\noutput c")));
        // As an intermediate value: 1/0, and an overflow that a wider computation would not have.
        assert!(!is_finite(&with("1, 0", "b = recip a\nc = cmplt a b\noutput c")));
        assert!(!is_finite(&with("1, 3e38", "b = mul a a\nc = cmplt a b\noutput c")));
    }
}
