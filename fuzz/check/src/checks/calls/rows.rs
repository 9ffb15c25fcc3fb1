//! The table of calls: one row for each fallible method, or for methods that fail alike.

mod movements;
mod readings;

use gradiff::{Error, Tensor, keepdim};
use gradiff_corpus::{
    Arg, ArgKind, Arity, BinaryOp, DType, Index, Literal, Method, Operand, ReduceOp, Shape,
    Statement, TensorType, UnaryOp, ValueId, promote, statement_type,
};
use movements::{
    arange, expand, from_bytes, from_slice, full, pad, reshape, scalar, shrink, squeeze, transpose,
    unsqueeze, zeros,
};
use readings::{engine_new, item, read, run, to_vec};

use super::{
    Call, Draw, Expected, Row, batches, contractions, copies, devices, files, folds, gradients,
    indexing, intervals, limits, memories, modules, name_of, nodes, optimisers, options, orders,
    pools, random, repeated, rules, selections, sizes, slices, statistics, stores, threads,
    uniform, values, views, wide, windows,
};
use crate::backends::translate;

/// Limit of the elements of a tensor, as the API promises.
const ELEMENT_LIMIT: i128 = 1 << 40;

/// All rows.
pub(super) const ROWS: [(&str, Row); 97] = [
    ("statements", Row::Call(statement)),
    ("unary", Row::Call(unary)),
    ("binary", Row::Call(binary)),
    ("where and mulacc", Row::Call(ternary)),
    ("cast", Row::Call(cast)),
    ("bitcast", Row::Call(bitcast)),
    ("sum, prod, max", Row::Call(reduce)),
    ("permute and flip", Row::Call(axes)),
    ("cat", Row::Call(cat)),
    ("gather", Row::Call(gather)),
    ("methods", Row::Call(method)),
    ("damaged statements", Row::Call(damaged)),
    ("reshape", Row::Call(reshape)),
    ("expand", Row::Call(expand)),
    ("pad", Row::Call(pad)),
    ("shrink", Row::Call(shrink)),
    ("full", Row::Call(full)),
    ("zeros and ones", Row::Call(zeros)),
    ("arange", Row::Call(arange)),
    ("from_bytes", Row::Call(from_bytes)),
    ("from_slice", Row::Call(from_slice)),
    ("transpose", Row::Call(transpose)),
    ("squeeze", Row::Call(squeeze)),
    ("unsqueeze", Row::Call(unsqueeze)),
    ("matmul", Row::Call(matmul)),
    ("mean", Row::Call(mean)),
    ("softmax and log_softmax", Row::Call(softmax)),
    ("functions of floats", Row::Call(functions)),
    ("div", Row::Call(div)),
    ("item", Row::Check(item)),
    ("to_vec and to_ndarray", Row::Check(to_vec)),
    ("read", Row::Check(read)),
    ("Engine::new", Row::Check(engine_new)),
    ("classes of errors", Row::Check(devices::classes_of_errors)),
    ("run", Row::Check(run)),
    ("folds", Row::Check(folds::folds)),
    ("nodes of tensor level", Row::Check(nodes::nodes)),
    ("equal elements", Row::Check(uniform::equal_elements)),
    ("intervals", Row::Check(intervals::intervals)),
    ("conversions", Row::Check(values::conversions)),
    ("functions of elements", Row::Check(values::functions)),
    ("functions of all magnitudes", Row::Check(values::functions_of_all_magnitudes)),
    ("texts of rules", Row::Check(rules::texts)),
    ("powers", Row::Check(values::powers)),
    ("functions of rows", Row::Check(values::rows_of_numbers)),
    ("integers", Row::Check(values::integers)),
    ("readings", Row::Check(values::readings)),
    ("random numbers", Row::Check(random::random)),
    ("sums of batches", Row::Check(batches::batches)),
    ("contractions", Row::Check(contractions::contractions)),
    ("selections by masks", Row::Check(selections::selections)),
    ("names of devices", Row::Check(copies::names)),
    ("operands on devices", Row::Check(copies::operands)),
    ("graphs on devices", Row::Check(copies::graphs)),
    ("compiled once", Row::Check(devices::compiled_once)),
    ("searches", Row::Check(devices::searches)),
    ("sizes with variables", Row::Check(sizes::sizes)),
    ("shapes near the limit", Row::Check(limits::shapes)),
    ("buffers near the limit", Row::Check(limits::buffers)),
    ("views near the limit", Row::Check(views::views)),
    ("gradients of computed tensors", Row::Check(gradients::gradients)),
    ("changed options", Row::Check(options::options)),
    ("windows near the limit", Row::Check(windows::windows)),
    ("stacks of views", Row::Check(windows::stacks)),
    ("indices near the limit", Row::Check(wide::indices)),
    ("long axes", Row::Check(windows::long_axes)),
    ("memories", Row::Check(memories::memories)),
    ("launches", Row::Check(memories::launches)),
    ("launched often", Row::Check(memories::launched_often)),
    ("long launches", Row::Check(memories::long_launches)),
    ("stores that repeat elements", Row::Check(repeated::stores)),
    ("entries on disk", Row::Check(stores::stores)),
    ("files", Row::Check(files::round_trips)),
    ("blocks of GGUF", Row::Check(files::quantised)),
    ("checkpoints", Row::Check(files::checkpoints)),
    ("files that are refused", Row::Check(files::refusals)),
    ("layers", Row::Check(modules::match_formulas)),
    ("convolutions", Row::Check(modules::match_convolutions)),
    ("norms", Row::Check(modules::match_norms)),
    ("cells", Row::Check(modules::match_cells)),
    ("state dicts", Row::Check(modules::state_dicts)),
    ("new layers", Row::Check(modules::initial_values)),
    ("refusals of layers", Row::Check(modules::refusals)),
    ("optimisers", Row::Check(optimisers::match_scalar_loops)),
    ("clipped gradients", Row::Check(optimisers::clipped_gradients)),
    ("refusals of optimisers", Row::Check(optimisers::refusals)),
    ("schedules", Row::Check(optimisers::schedules)),
    ("likes", Row::Check(random::likes)),
    ("sums of gradients", Row::Check(gradients::accumulations)),
    ("spreads and means", Row::Check(statistics::statistics)),
    ("threads", Row::Check(threads::threads)),
    ("indices of all kinds", Row::Check(indexing::indices)),
    ("pools", Row::Check(pools::pools)),
    ("orders", Row::Check(orders::orders)),
    ("comparisons", Row::Check(orders::comparisons)),
    ("slices of buffers", Row::Check(slices::slices)),
    ("random integers and choices", Row::Check(random::integers_and_choices)),
];

impl Draw {
    fn dtype(&mut self) -> DType {
        self.pick(&DType::ALL)
    }

    fn dtype_or_void(&mut self) -> Option<DType> {
        let dtype = self.dtype();
        (!self.one_in(8)).then_some(dtype)
    }

    fn shape(&mut self) -> Shape {
        let rank = self.below(4);
        (0..rank).map(|_| self.pick(&[2, 1, 3, 4, 2, 1, 3, 0])).collect()
    }

    /// An axis of a shape in most cases, else one out of range.
    fn axis(&mut self, rank: usize) -> usize {
        match self.below(12) {
            0 => rank,
            1 => rank + 1,
            2 => self.pick(&[i64::MAX as usize, 1 << 31, 1 << 32]),
            _ => self.below(rank.max(1)),
        }
    }

    /// The number of an axis, negative half of the time, and the axis: `None` if there is none.
    fn axis_number(&mut self, rank: usize) -> (i64, Option<usize>) {
        let rank = rank as i64;
        let number = match self.below(12) {
            0 => rank,
            1 => -rank - 1,
            2 => self.pick(&[i64::MAX, i64::MIN, 1 << 32, -1 << 31]),
            _ => self.below(2 * rank.max(1) as usize) as i64 - rank,
        };
        let axis = (-rank..rank).contains(&number).then(|| number.rem_euclid(rank) as usize);
        (number, axis)
    }

    /// Axes of a shape in any order: in most cases each once.
    fn axes(&mut self, rank: usize) -> Vec<usize> {
        let mut axes: Vec<usize> = (0..rank).collect();
        for at in 1..rank {
            axes.swap(at, self.below(at + 1));
        }
        match self.below(6) {
            0 => axes.truncate(self.below(rank + 1)),
            1 => {
                let axis = self.axis(rank);
                axes.push(axis);
            }
            2 if rank > 0 => {
                let at = self.below(rank);
                axes[at] = self.axis(rank);
            }
            _ => {}
        }
        axes
    }

    /// The size, or at times another, which may be negative or too large.
    fn odd_size(&mut self, size: i64) -> i64 {
        match self.below(24) {
            0 => -1,
            1 => self.pick(&[i64::MIN, i64::MAX, -size]),
            2 => self.pick(&[1 << 40, (1 << 40) + 1, 1 << 20, 1 << 32, 1 << 62]),
            3 => size + 1,
            4 => 0,
            5 => 1,
            _ => size,
        }
    }

    fn odd_shape(&mut self, shape: &[usize]) -> Vec<i64> {
        let mut sizes: Vec<i64> = shape.iter().map(|size| self.odd_size(*size as i64)).collect();
        match self.below(12) {
            0 => sizes.push(1),
            1 => sizes.insert(0, 2),
            2 => drop(sizes.pop()),
            3 => sizes.reverse(),
            _ => {}
        }
        sizes
    }

    pub(super) fn literal(&mut self) -> Literal {
        match self.below(5) {
            0 => Literal::Bool(self.one_in(2)),
            1 => Literal::Float(self.pick(&[0.0, 1.5, -0.0, f64::NAN, f64::INFINITY, 1e300])),
            _ => {
                let bits = self.pick(&[0, 7, 8, 15, 16, 31, 32, 63, 64]);
                let end = self.pick(&[1, -1]) * (1_i128 << bits);
                // The range of the text form.
                let value = end + self.pick(&[0, 1, -1]);
                Literal::Int(value.clamp(i64::MIN.into(), u64::MAX.into()))
            }
        }
    }

    /// A tensor of a type: the result of an earlier call, or zeros.
    fn tensor(&mut self, source: &TensorType) -> Tensor {
        let mut given = self.given.iter().filter(|(known, _)| known == source);
        match given.next_back() {
            Some((_, tensor)) => tensor.clone(),
            None => self.zeros(source),
        }
    }

    /// A tensor of zeros of a type: in a buffer, or a constant.
    fn zeros(&mut self, source: &TensorType) -> Tensor {
        let (dtype, shape) = (translate::dtype(source.dtype), sizes(&source.shape));
        let tensor = match self.below(2) {
            0 => Tensor::zeros(dtype, &shape),
            _ => Tensor::from_bytes(
                dtype,
                &shape,
                &vec![0; source.count() * source.dtype.size_bytes()],
            ),
        };
        tensor.expect("a small tensor of zeros is legal")
    }

    /// The type of an operand: in a chain usually that of the result of an earlier call.
    fn source_type(&mut self) -> TensorType {
        if !self.given.is_empty() && !self.one_in(4) {
            let at = self.below(self.given.len());
            return self.given[at].0.clone();
        }
        TensorType { dtype: self.dtype(), shape: self.shape() }
    }

    /// The given type, or one that differs a little.
    fn similar_type(&mut self, source: &TensorType) -> TensorType {
        let mut shape = source.shape.clone();
        match self.below(8) {
            0 => shape = self.shape(),
            1 => shape.push(2),
            2 => drop(shape.pop()),
            3 if !shape.is_empty() => {
                let at = self.below(shape.len());
                shape[at] += 1;
            }
            4 if !shape.is_empty() => {
                let at = self.below(shape.len());
                shape[at] = 1;
            }
            5 => drop(shape.drain(..shape.len().min(1))),
            _ => {}
        }
        let dtype = if self.one_in(3) { self.dtype() } else { source.dtype };
        TensorType { dtype, shape }
    }
}

pub(super) fn sizes(shape: &[usize]) -> Vec<i64> {
    shape.iter().map(|size| *size as i64).collect()
}

/// The shape if it is legal: no size is negative, and the product of the sizes other than 0 is
/// within the limit.
fn legal(shape: &[i64]) -> Option<Shape> {
    let sizes: Shape =
        shape.iter().map(|size| usize::try_from(*size).ok()).collect::<Option<_>>()?;
    let mut nonzero = sizes.iter().filter(|size| **size != 0);
    let count = nonzero.try_fold(1_i128, |count, size| count.checked_mul(*size as i128));
    (count? <= ELEMENT_LIMIT).then_some(sizes)
}

/// The statement with sorted axes where the API takes them in any order.
fn in_order(statement: &Statement) -> Statement {
    let mut statement = statement.clone();
    if let Statement::Reduce { axes, .. } | Statement::Flip { axes, .. } = &mut statement {
        axes.sort_unstable();
    }
    statement
}

/// A call of a statement on tensors of these types; the expected type is that of the corpus.
pub(super) fn typed(draw: &mut Draw, types: &[TensorType], statement: Statement) -> Call {
    let mut types = types.to_vec();
    if let Statement::Method { method: method @ (Method::Get | Method::Set), .. } = &statement {
        // As positions, the API takes masks as well.
        let first = if method.is_in_place() { 2 } else { 1 };
        let masks = types.iter_mut().skip(first).filter(|source| source.dtype == DType::Bool);
        masks.for_each(|source| source.dtype = DType::I8);
    }
    let types = &types[..];
    let tensors: Vec<Tensor> = types.iter().map(|source| draw.tensor(source)).collect();
    Call {
        said: format!("{statement:?} of {types:?}"),
        expected: statement_type(&in_order(&statement), types).ok(),
        work: Box::new(move || translate::value(&statement, &tensors, &mut Tensor::from_bytes)),
    }
}

fn call(
    label: String,
    expected: Expected,
    work: impl FnOnce() -> Result<Tensor, Error> + 'static,
) -> Call {
    Call { said: label, expected, work: Box::new(work) }
}

fn operand(draw: &mut Draw, count: u32) -> Operand {
    match draw.below(4) {
        0 => Operand::Literal(draw.literal()),
        _ => Operand::Value(ValueId(draw.below(count as usize) as u32)),
    }
}

/// A call of any row that is a statement.
fn statement(draw: &mut Draw) -> Call {
    let rows = [unary, binary, ternary, cast_statement, reduce, axes, cat, gather];
    draw.pick(&rows)(draw)
}

fn unary(draw: &mut Draw) -> Call {
    let source = draw.source_type();
    let op = draw.pick(&UnaryOp::ALL);
    typed(draw, &[source], Statement::Unary { op, src: ValueId(0) })
}

fn binary(draw: &mut Draw) -> Call {
    let x = draw.source_type();
    let types = [draw.similar_type(&x), x];
    // `div` accepts more than the statement; it has a row of its own.
    let op = match draw.pick(&BinaryOp::ALL) {
        BinaryOp::Div => BinaryOp::Pow,
        op => op,
    };
    let value = Operand::Value(ValueId(draw.below(2) as u32));
    let srcs = match draw.below(4) {
        0 => [operand(draw, 2), value],
        _ => [value, operand(draw, 2)],
    };
    typed(draw, &types, Statement::Binary { op, srcs })
}

fn ternary(draw: &mut Draw) -> Call {
    let x = draw.source_type();
    let mut test = draw.similar_type(&x);
    if !draw.one_in(4) {
        test.dtype = DType::Bool;
    }
    let types = [test, draw.similar_type(&x), x];
    let first = match draw.below(4) {
        0 => operand(draw, 3),
        _ => Operand::Value(ValueId(0)),
    };
    let srcs = [first, operand(draw, 3), operand(draw, 3)];
    let statement = match draw.below(2) {
        0 => Statement::Where { srcs },
        _ => Statement::MulAcc { srcs },
    };
    typed(draw, &types, statement)
}

/// A call of a method of the table. No legal result is near the limits of the corpus, which allows
/// fewer elements than the API; numbers by a step could be, so there are none.
fn method(draw: &mut Draw) -> Call {
    let mut x = draw.source_type();
    if x.count() > 64 {
        x.shape = draw.shape();
    }
    let method = match draw.pick(&Method::ALL) {
        Method::ArangeFloat => Method::Linspace,
        method => method,
    };
    let row = method.row();
    let count = match row.arity {
        Arity::Exactly(count) => count,
        Arity::Between(least, limit) => least + draw.below(limit - least + 1),
        Arity::List => 1 + draw.below(4),
    };
    let mut types: Vec<TensorType> = Vec::with_capacity(count);
    for number in 0..count {
        types.push(if number == 0 || draw.one_in(2) { x.clone() } else { draw.similar_type(&x) });
    }
    if count == 3 && draw.one_in(2) {
        types[1].dtype = draw.pick(&[DType::I32, DType::U64, DType::I8]);
    }
    let length = if draw.one_in(3) { draw.below(3) } else { x.shape.len() };
    let mut number = || match draw.below(12) {
        0 => draw.pick(&[i64::MIN, i64::MAX, 1 << 62, -1 << 62]),
        _ => draw.below(9) as i64 - 3,
    };
    let mut args = Vec::with_capacity(row.parameters.len());
    for (_, kind) in row.parameters {
        args.push(match kind {
            ArgKind::Int => Arg::Int(number()),
            ArgKind::Ints => Arg::Ints((0..length).map(|_| number()).collect()),
            ArgKind::Flag => Arg::Flag(number() > 0),
            ArgKind::Number => Arg::Number(Literal::Int(number().into())),
            ArgKind::DType => Arg::DType(x.dtype),
            ArgKind::Word(words) => {
                Arg::Word(words[number().rem_euclid(words.len() as i64) as usize])
            }
            ArgKind::Indices => Arg::Indices((0..length).map(|_| index(&mut number)).collect()),
        });
    }
    // The engine is given the sources that its indices name.
    if let [Arg::Indices(indices)] = &args[..] {
        let named = if method.is_in_place() { 2 } else { 1 };
        let sources = indices.iter().filter(|index| **index == Index::Source).count();
        types.resize_with(named + sources, || draw.similar_type(&x));
    }
    let srcs = (0..types.len() as u32).map(ValueId).collect();
    typed(draw, &types, Statement::Method { method, srcs, args })
}

/// A call of the corpus with one change.
fn damaged(draw: &mut Draw) -> Call {
    let (statement, types) = super::damaged::damaged(draw);
    typed(draw, &types, statement)
}

/// Draws an index by numbers from -3 on.
fn index(number: &mut impl FnMut() -> i64) -> Index {
    match number() {
        -3..=-1 => Index::Source,
        0 | 1 => Index::Position(number()),
        2 => Index::NewAxis,
        3 => Index::Ellipsis,
        kind => {
            let mut end = |is_there: bool| Some(number()).filter(|_| is_there);
            let (start, stop) = (end(kind % 2 == 0), end(kind % 3 == 0));
            Index::Slice { start, stop, step: number() }
        }
    }
}

fn cast_statement(draw: &mut Draw) -> Call {
    let (source, dtype) = (draw.source_type(), draw.dtype());
    typed(draw, &[source], Statement::Bitcast { src: ValueId(0), dtype })
}

fn cast(draw: &mut Draw) -> Call {
    let (source, to) = (draw.source_type(), draw.dtype_or_void());
    let x = draw.tensor(&source);
    let expected = to.map(|dtype| TensorType { dtype, ..source.clone() });
    call(format!("cast of {source:?} to {to:?}"), expected, move || x.cast(name_of(to)))
}

fn bitcast(draw: &mut Draw) -> Call {
    let (source, to) = (draw.source_type(), draw.dtype_or_void());
    let x = draw.tensor(&source);
    let is_legal = |to: &DType| {
        let is_data = source.dtype != DType::Bool && *to != DType::Bool;
        is_data && source.dtype.size_bytes() == to.size_bytes()
    };
    let expected = to.filter(is_legal).map(|dtype| TensorType { dtype, ..source.clone() });
    call(format!("bitcast of {source:?} to {to:?}"), expected, move || x.bitcast(name_of(to)))
}

fn reduce(draw: &mut Draw) -> Call {
    let source = draw.source_type();
    let op = draw.pick(&ReduceOp::ALL);
    let axes = draw.axes(source.shape.len());
    typed(draw, &[source], Statement::Reduce { op, src: ValueId(0), axes })
}

fn axes(draw: &mut Draw) -> Call {
    let source = draw.source_type();
    let (src, axes) = (ValueId(0), draw.axes(source.shape.len()));
    let statement = match draw.below(2) {
        0 => Statement::Permute { src, axes },
        _ => Statement::Flip { src, axes },
    };
    typed(draw, &[source], statement)
}

fn cat(draw: &mut Draw) -> Call {
    let first = draw.source_type();
    let types = [draw.similar_type(&first), first.clone(), first];
    let axis = draw.axis(types[1].shape.len());
    let count = draw.below(4);
    let srcs = (0..count).map(|_| ValueId(draw.below(3) as u32)).collect();
    typed(draw, &types, Statement::Cat { srcs, axis })
}

fn gather(draw: &mut Draw) -> Call {
    let source = draw.source_type();
    let mut index = draw.similar_type(&source);
    if !draw.one_in(4) {
        index.dtype = draw.pick(&[DType::I32, DType::I64, DType::U8]);
    }
    let axis = draw.axis(source.shape.len());
    let statement = Statement::Gather { src: ValueId(0), axis, index: ValueId(1) };
    typed(draw, &[source, index], statement)
}

/// The shape to which both shapes broadcast, if there is one.
pub(super) fn broadcast(x: &[usize], y: &[usize]) -> Option<Shape> {
    let rank = x.len().max(y.len());
    let size = |shape: &[usize], at: usize| match (at + shape.len()).checked_sub(rank) {
        Some(axis) => shape[axis],
        None => 1,
    };
    let sizes = (0..rank).map(|at| match (size(x, at), size(y, at)) {
        (a, b) if a == b || b == 1 => Some(a),
        (1, b) => Some(b),
        _ => None,
    });
    sizes.collect()
}

fn matmul(draw: &mut Draw) -> Call {
    let k = draw.pick(&[2, 3, 1]);
    let (mut x, mut y) = (draw.source_type(), draw.source_type());
    x.shape.extend([2, k]);
    y.shape =
        draw.similar_type(&TensorType { shape: x.shape[..x.shape.len() - 2].into(), ..x }).shape;
    y.shape.extend([k, 3]);
    for source in [&mut x, &mut y] {
        match draw.below(8) {
            0 => drop(source.shape.pop()),
            1 => source.shape.truncate(1),
            2 => {
                let at = source.shape.len() - 1 - draw.below(2);
                source.shape[at] += 1;
            }
            _ => {}
        }
    }
    let srcs = vec![ValueId(0), ValueId(1)];
    let statement = Statement::Method { method: Method::Matmul, srcs, args: Vec::new() };
    let expected = statement_type(&statement, &[x.clone(), y.clone()]).ok();
    let tensors = [draw.tensor(&x), draw.tensor(&y)];
    call(format!("matmul of {x:?} and {y:?}"), expected, move || tensors[0].matmul(&tensors[1]))
}

fn mean(draw: &mut Draw) -> Call {
    let mut source = draw.source_type();
    if draw.one_in(2) {
        source.dtype = draw.pick(&[DType::F32, DType::F16]);
    }
    let axes = draw.axes(source.shape.len());
    let x = draw.tensor(&source);
    let statement = Statement::Reduce { op: ReduceOp::Sum, src: ValueId(0), axes: axes.clone() };
    let sum = statement_type(&in_order(&statement), std::slice::from_ref(&source)).ok();
    let expected = sum.filter(|_| source.dtype.is_float());
    let numbers: Vec<i64> = axes.iter().map(|axis| *axis as i64).collect();
    let mean = move || x.mean(keepdim(&numbers[..]));
    call(format!("mean of {source:?} along {axes:?}"), expected, mean)
}

fn softmax(draw: &mut Draw) -> Call {
    let mut source = draw.source_type();
    if draw.one_in(2) {
        source.dtype = draw.pick(&[DType::F32, DType::BF16]);
    }
    let x = draw.tensor(&source);
    let (axis, found) = draw.axis_number(source.shape.len());
    let expected = found.filter(|_| source.dtype.is_float()).map(|_| source.clone());
    if draw.one_in(2) {
        return call(format!("log_softmax of {source:?} along {axis}"), expected, move || {
            x.log_softmax(axis)
        });
    }
    call(format!("softmax of {source:?} along {axis}"), expected, move || x.softmax(axis))
}

fn functions(draw: &mut Draw) -> Call {
    let source = draw.source_type();
    let x = draw.tensor(&source);
    type Function = fn(&Tensor) -> Result<Tensor, Error>;
    let functions: [(&str, Function); 4] = [
        ("exp", Tensor::exp),
        ("log", Tensor::log),
        ("sigmoid", Tensor::sigmoid),
        ("relu", Tensor::relu),
    ];
    let (name, function) = draw.pick(&functions);
    let is_legal = source.dtype.is_float() || (name == "relu" && source.dtype != DType::Bool);
    let expected = is_legal.then(|| source.clone());
    call(format!("{name} of {source:?}"), expected, move || function(&x))
}

fn div(draw: &mut Draw) -> Call {
    let x = draw.source_type();
    let y = draw.similar_type(&x);
    let float = |dtype: DType| if dtype.is_float() { dtype } else { DType::F32 };
    let a = draw.tensor(&x);
    if draw.one_in(3) {
        let literal = draw.literal();
        let is_number = !matches!(literal, Literal::Bool(_));
        let expected =
            is_number.then(|| TensorType { dtype: float(x.dtype), shape: x.shape.clone() });
        let label = format!("div of {x:?} by {literal}");
        return call(label, expected, move || a.div(scalar(&literal)));
    }
    let dtype = float(promote(x.dtype, y.dtype));
    // If neither is a float, both become f32.
    let dtype = if x.dtype.is_float() || y.dtype.is_float() { dtype } else { DType::F32 };
    let expected = broadcast(&x.shape, &y.shape).map(|shape| TensorType { dtype, shape });
    let b = draw.tensor(&y);
    call(format!("div of {x:?} by {y:?}"), expected, move || a.div(&b))
}
