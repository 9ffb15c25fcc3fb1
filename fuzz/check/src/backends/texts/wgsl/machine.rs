//! Runs a module: groups one after the other, their threads from barrier to barrier.

use std::cell::Cell;

use gradiff::graph::{Constant, DType};
use gradiff_eval::scalar;
use naga::{
    AddressSpace, Barrier, Binding, BuiltIn, Expression, Function, GlobalVariable, Handle, Literal,
    Module, Type, TypeInner,
};

use super::arithmetic::{self, Lanes, dtype_of};
use super::program::{Step, flatten};
use crate::backends::texts::races::{Accesses, ThreadId};

/// A module that is ready to run.
pub(super) struct Program {
    module: Module,
    entry: Vec<Step>,
    functions: Vec<Vec<Step>>,
}

/// An array of a group or of the launch.
pub(super) struct Array {
    pub(super) name: String,
    pub(super) elements: Vec<Option<Constant>>,
    pub(super) is_stored: bool,
}

/// The value of an expression.
#[derive(Clone, Copy, Debug)]
enum Value {
    Data(Lanes),
    Array(usize),
    Element(usize, i64),
    Variable(usize),
    Lane(usize, usize),
}

impl Value {
    fn data(&self) -> Result<&Lanes, String> {
        match self {
            Value::Data(lanes) => Ok(lanes),
            value => Err(format!("{value:?} is not data")),
        }
    }
}

/// A call of a function.
struct Frame {
    next: usize,
    values: Vec<Option<Value>>,
    variables: Vec<Option<Lanes>>,
    arguments: Vec<Lanes>,
}

impl Program {
    /// A program from a module that naga has validated.
    ///
    /// # Errors
    /// A statement outside the subset, a barrier outside of the entry.
    pub(super) fn new(module: Module) -> Result<Program, String> {
        let [entry] = &module.entry_points[..] else { return Err("not one entry".to_string()) };
        let entry = flatten(&entry.function)?;
        let functions = module
            .functions
            .iter()
            .map(|(_, function)| flatten(function))
            .collect::<Result<Vec<_>, _>>()?;
        if functions.iter().flatten().any(|step| matches!(step, Step::Barrier(_))) {
            return Err("a barrier outside of the entry".to_string());
        }
        Ok(Program { module, entry, functions })
    }

    /// Number of threads of a group in each dimension.
    pub(super) fn group(&self) -> [u32; 3] {
        self.module.entry_points[0].workgroup_size
    }

    /// For each binding, the type of its elements and whether it may be written.
    ///
    /// # Errors
    /// Bindings that are not 0, 1, ... of group 0, or not arrays in storage.
    pub(super) fn bindings(&self) -> Result<Vec<(DType, bool)>, String> {
        let mut rows = Vec::new();
        for (_, variable) in self.module.global_variables.iter() {
            let Some(binding) = &variable.binding else { continue };
            let AddressSpace::Storage { access } = variable.space else {
                return Err("a parameter that is not an array".to_string());
            };
            if binding.group != 0 {
                return Err(format!("a binding of group {}", binding.group));
            }
            let is_stored = access.contains(naga::StorageAccess::STORE);
            rows.push((binding.binding as usize, (self.element(variable.ty)?, is_stored)));
        }
        rows.sort_by_key(|(binding, _)| *binding);
        let is_in_order = rows.iter().enumerate().all(|(at, (binding, _))| at == *binding);
        if !is_in_order {
            return Err("bindings that are not numbered from 0 on".to_string());
        }
        Ok(rows.into_iter().map(|(_, row)| row).collect())
    }

    fn inner(&self, ty: Handle<Type>) -> &TypeInner {
        &self.module.types[ty].inner
    }

    /// The type of the elements of an array.
    fn element(&self, ty: Handle<Type>) -> Result<DType, String> {
        match self.inner(ty) {
            TypeInner::Array { base, .. } => match self.inner(*base) {
                TypeInner::Scalar(scalar) => dtype_of(*scalar),
                base => Err(format!("an array of {base:?}")),
            },
            inner => Err(format!("{inner:?} is not an array")),
        }
    }

    /// Number of elements of an array in the text.
    fn count(&self, ty: Handle<Type>) -> Result<usize, String> {
        match self.inner(ty) {
            TypeInner::Array { size: naga::ArraySize::Constant(count), .. } => {
                Ok(count.get() as usize)
            }
            _ => Err("local memory without a constant size".to_string()),
        }
    }

    /// Runs a grid of groups on the arrays of the bindings, in their order.
    ///
    /// # Errors
    /// Behaviour that is refused.
    pub(super) fn launch(
        &self,
        grid: [u32; 3],
        arrays: Vec<Array>,
        steps_max: u64,
    ) -> Result<Vec<Array>, String> {
        let count = arrays.len();
        let mut launch = Launch {
            program: self,
            arrays,
            of_globals: Vec::new(),
            accesses: Vec::new(),
            storage_count: count,
            ids: [ThreadId::default(); 2],
            fuel: steps_max,
        };
        for (handle, variable) in self.module.global_variables.iter() {
            let number = launch.number(variable)?;
            debug_assert_eq!(handle.index(), launch.of_globals.len());
            launch.of_globals.push(number);
        }
        let accesses = |array: &Array| {
            // Reads alone race with nothing.
            let count = if array.is_stored { array.elements.len() } else { 0 };
            vec![Cell::default(); count]
        };
        launch.accesses = launch.arrays.iter().map(accesses).collect();
        let mut groups = 0..;
        for z in 0..grid[2] {
            for y in 0..grid[1] {
                for x in 0..grid[0] {
                    for local in &mut launch.arrays[count..] {
                        local.elements.fill(None);
                    }
                    for local in &mut launch.accesses[count..] {
                        local.fill(Cell::default());
                    }
                    launch.run_group([x, y, z], groups.next().unwrap_or_default())?;
                }
            }
        }
        launch.arrays.truncate(count);
        Ok(launch.arrays)
    }
}

/// A launch in progress.
struct Launch<'a> {
    program: &'a Program,
    arrays: Vec<Array>,
    /// The array of each global variable.
    of_globals: Vec<usize>,
    /// The accesses of each element of the arrays that may be written.
    accesses: Vec<Vec<Cell<Accesses>>>,
    /// Number of arrays in storage, which are the first.
    storage_count: usize,
    /// The thread that is running, for accesses to storage and to local memory.
    ids: [ThreadId; 2],
    /// Number of steps that may still be executed.
    fuel: u64,
}

impl Launch<'_> {
    /// The array of a global variable; one in local memory is new.
    fn number(&mut self, variable: &GlobalVariable) -> Result<usize, String> {
        match (&variable.binding, variable.space) {
            (Some(binding), _) => Ok(binding.binding as usize),
            (None, AddressSpace::WorkGroup) => {
                let elements = vec![None; self.program.count(variable.ty)?];
                let name = variable.name.clone().unwrap_or_default();
                self.arrays.push(Array { name, elements, is_stored: true });
                Ok(self.arrays.len() - 1)
            }
            (None, space) => Err(format!("a variable in {space:?}")),
        }
    }

    /// Runs the group at these coordinates, which is that of this number.
    fn run_group(&mut self, group: [u32; 3], number: u64) -> Result<(), String> {
        let module = &self.program.module;
        let entry = &module.entry_points[0].function;
        let [width, height, depth] = self.program.group();
        let mut threads = Vec::new();
        for z in 0..depth {
            for y in 0..height {
                for x in 0..width {
                    let vector = |counters: [u32; 3]| {
                        Lanes::of(&counters.map(|x| Constant::from_bits(DType::U32, x.into())))
                    };
                    let argument = |argument: &naga::FunctionArgument| match argument.binding {
                        Some(Binding::BuiltIn(BuiltIn::WorkGroupId)) => vector(group),
                        Some(Binding::BuiltIn(BuiltIn::LocalInvocationId)) => vector([x, y, z]),
                        _ => Err("an argument that is not the number of a thread".to_string()),
                    };
                    let arguments =
                        entry.arguments.iter().map(argument).collect::<Result<_, _>>()?;
                    threads.push(self.frame(entry, arguments)?);
                }
            }
        }
        let steps = &self.program.entry;
        // Numbers of the barriers so far that order accesses to storage and to local memory.
        let mut epochs = [0u64; 2];
        loop {
            for (thread, frame) in (0..).zip(&mut threads) {
                for (id, epoch) in self.ids.iter_mut().zip(epochs) {
                    *id = ThreadId::new(number, epoch, thread)?;
                }
                self.run(entry, steps, frame)?;
            }
            let first = threads[0].next;
            if threads.iter().any(|thread| thread.next != first) {
                return Err("not all threads of a group reach a barrier".to_string());
            }
            match steps.get(first.wrapping_sub(1)) {
                Some(Step::Barrier(memory)) => {
                    epochs[usize::from(*memory == Barrier::WORK_GROUP)] += 1;
                }
                _ => return Ok(()),
            }
        }
    }

    /// A call that has not started.
    fn frame(&mut self, function: &Function, arguments: Vec<Lanes>) -> Result<Frame, String> {
        let values = vec![None; function.expressions.len()];
        let variables = vec![None; function.local_variables.len()];
        let mut frame = Frame { next: 0, values, variables, arguments };
        for (handle, variable) in function.local_variables.iter() {
            if let Some(init) = variable.init {
                let value = *self.value(function, &frame, init)?.data()?;
                frame.variables[handle.index()] = Some(value);
            }
        }
        Ok(frame)
    }

    /// Runs a call until it ends or reaches a barrier; returns its result.
    fn run(
        &mut self,
        function: &Function,
        steps: &[Step],
        frame: &mut Frame,
    ) -> Result<Option<Lanes>, String> {
        while let Some(step) = steps.get(frame.next) {
            self.fuel = self.fuel.checked_sub(1).ok_or("it loops without an end")?;
            frame.next += 1;
            match step {
                Step::Emit(expressions) => {
                    for expression in expressions {
                        let value = self.evaluate(function, frame, *expression)?;
                        frame.values[expression.index()] = Some(value);
                    }
                }
                Step::Store { pointer, value } => {
                    let value = *self.value(function, frame, *value)?.data()?;
                    let pointer = self.value(function, frame, *pointer)?;
                    self.store(frame, pointer, value)?;
                }
                Step::Jump(to) => frame.next = *to,
                Step::JumpUnless(condition, to) => {
                    if !self.value(function, frame, *condition)?.data()?.truth()? {
                        frame.next = *to;
                    }
                }
                Step::Barrier(_) => return Ok(None),
                Step::Call { function: called, arguments, result } => {
                    let program = self.program;
                    let data = |argument| Ok(*self.value(function, frame, argument)?.data()?);
                    let arguments =
                        arguments.iter().copied().map(data).collect::<Result<_, String>>()?;
                    let callee = &program.module.functions[*called];
                    let mut inner = self.frame(callee, arguments)?;
                    let returned =
                        self.run(callee, &program.functions[called.index()], &mut inner)?;
                    if let (Some(result), Some(returned)) = (result, returned) {
                        frame.values[result.index()] = Some(Value::Data(returned));
                    }
                }
                Step::Return(value) => {
                    frame.next = steps.len();
                    return value
                        .map(|value| Ok(*self.value(function, frame, value)?.data()?))
                        .transpose();
                }
            }
        }
        Ok(None)
    }

    fn store(&mut self, frame: &mut Frame, pointer: Value, value: Lanes) -> Result<(), String> {
        match pointer {
            Value::Element(number, index) => {
                let array = &self.arrays[number];
                if !array.is_stored {
                    return Err(format!("{} is only read by the kernel", array.name));
                }
                let at = bound(array, index)?;
                self.record(number, at, Accesses::write)?;
                self.arrays[number].elements[at] = Some(value.scalar()?);
            }
            Value::Variable(number) => frame.variables[number] = Some(value),
            Value::Lane(number, lane) => {
                let old = frame.variables[number].ok_or("a lane of a variable without a value")?;
                frame.variables[number] = Some(old.with_lane(lane, value.scalar()?)?);
            }
            Value::Data(_) | Value::Array(_) => {
                return Err("a store to something other than a variable".to_string());
            }
        }
        Ok(())
    }

    /// Records an access to an element of an array by the thread that is running.
    ///
    /// # Errors
    /// No barrier orders it with another one.
    fn record(
        &self,
        array: usize,
        at: usize,
        access: fn(&mut Accesses, ThreadId) -> bool,
    ) -> Result<(), String> {
        let Some(known) = self.accesses[array].get(at) else { return Ok(()) };
        let mut accesses = known.get();
        let is_ordered = access(&mut accesses, self.ids[usize::from(self.storage_count <= array)]);
        known.set(accesses);
        let name = &self.arrays[array].name;
        is_ordered.then_some(()).ok_or_else(|| format!("a race at element {at} of {name}"))
    }

    fn load(&self, frame: &Frame, pointer: Value) -> Result<Lanes, String> {
        let unwritten = || "a read of a variable without a value".to_string();
        match pointer {
            Value::Element(number, index) => {
                let array = &self.arrays[number];
                let at = bound(array, index)?;
                self.record(number, at, Accesses::read)?;
                let (value, name) = (array.elements[at], &array.name);
                value
                    .map(Lanes::one)
                    .ok_or_else(|| format!("element {index} of {name} has no value"))
            }
            Value::Variable(number) => frame.variables[number].ok_or_else(unwritten),
            Value::Lane(number, lane) => {
                frame.variables[number].ok_or_else(unwritten)?.lane(lane).map(Lanes::one)
            }
            Value::Data(_) | Value::Array(_) => {
                Err("a load of something other than a variable".to_string())
            }
        }
    }

    /// The value of an expression that was evaluated, or that can be evaluated at any time.
    fn value(
        &self,
        function: &Function,
        frame: &Frame,
        expression: Handle<Expression>,
    ) -> Result<Value, String> {
        match frame.values[expression.index()] {
            Some(value) => Ok(value),
            None => self.evaluate(function, frame, expression),
        }
    }

    fn evaluate(
        &self,
        function: &Function,
        frame: &Frame,
        expression: Handle<Expression>,
    ) -> Result<Value, String> {
        let value = |source: Handle<Expression>| self.value(function, frame, source);
        let data = |source: Handle<Expression>| Ok::<Lanes, String>(*value(source)?.data()?);
        Ok(Value::Data(match &function.expressions[expression] {
            Expression::FunctionArgument(number) => {
                *frame.arguments.get(*number as usize).ok_or("a missing argument")?
            }
            Expression::GlobalVariable(variable) => {
                return Ok(Value::Array(self.of_globals[variable.index()]));
            }
            Expression::LocalVariable(variable) => return Ok(Value::Variable(variable.index())),
            Expression::Access { base, index } => {
                return element(value(*base)?, data(*index)?.int()?);
            }
            Expression::AccessIndex { base, index } => {
                return element(value(*base)?, i64::from(*index));
            }
            Expression::Load { pointer } => self.load(frame, value(*pointer)?)?,
            Expression::Select { condition, accept, reject } => {
                arithmetic::select(&data(*condition)?, &data(*accept)?, &data(*reject)?)?
            }
            Expression::Math { fun, arg, arg1, arg2, arg3 } => {
                let arguments = [Some(*arg), *arg1, *arg2, *arg3].into_iter().flatten();
                let arguments = arguments.map(data).collect::<Result<Vec<_>, _>>()?;
                arithmetic::math(*fun, &arguments.iter().collect::<Vec<_>>())?
            }
            Expression::CallResult(_) => {
                return Err("the result of a call before the call".to_string());
            }
            expression => self.of_module(expression, &data)?,
        }))
    }

    /// Evaluates expressions that are also allowed in constants.
    fn of_module(
        &self,
        expression: &Expression,
        data: &dyn Fn(Handle<Expression>) -> Result<Lanes, String>,
    ) -> Result<Lanes, String> {
        let module = &self.program.module;
        match expression {
            Expression::Literal(value) => literal(*value).map(Lanes::one),
            Expression::Constant(constant) => {
                let constants = |handle| {
                    self.of_module(&module.global_expressions[handle], &|_| {
                        Err("a constant of constants".to_string())
                    })
                };
                constants(module.constants[*constant].init)
            }
            Expression::ZeroValue(ty) => match self.program.inner(*ty) {
                TypeInner::Scalar(scalar) => Ok(Lanes::one(scalar::zero(dtype_of(*scalar)?))),
                TypeInner::Vector { size, scalar } => {
                    Ok(Lanes::splat(scalar::zero(dtype_of(*scalar)?), *size as usize))
                }
                inner => Err(format!("a zero of {inner:?}")),
            },
            Expression::Compose { components, .. } => {
                let parts = components.iter().map(|part| data(*part));
                let parts = parts.collect::<Result<Vec<_>, _>>()?;
                Lanes::of(&parts.iter().flat_map(|part| part.values().to_vec()).collect::<Vec<_>>())
            }
            Expression::Splat { size, value } => {
                Ok(Lanes::splat(data(*value)?.scalar()?, *size as usize))
            }
            Expression::Swizzle { size, vector, pattern } => {
                let vector = data(*vector)?;
                let lanes = pattern.iter().take(*size as usize);
                let lanes = lanes.map(|lane| vector.lane(*lane as usize));
                Lanes::of(&lanes.collect::<Result<Vec<_>, _>>()?)
            }
            Expression::Unary { op, expr } => arithmetic::unary(*op, &data(*expr)?),
            Expression::Binary { op, left, right } => {
                arithmetic::binary(*op, &data(*left)?, &data(*right)?)
            }
            Expression::As { expr, kind, convert } => {
                arithmetic::convert(&data(*expr)?, *kind, *convert)
            }
            expression => Err(format!("the expression {expression:?}")),
        }
    }
}

/// The element at an index of an array, a variable or a value.
fn element(base: Value, index: i64) -> Result<Value, String> {
    let lane = || usize::try_from(index).map_err(|_| format!("lane {index}"));
    Ok(match base {
        Value::Array(array) => Value::Element(array, index),
        Value::Variable(number) => Value::Lane(number, lane()?),
        Value::Data(lanes) => Value::Data(Lanes::one(lanes.lane(lane()?)?)),
        Value::Element(..) | Value::Lane(..) => return Err("a part of a scalar".to_string()),
    })
}

fn bound(array: &Array, index: i64) -> Result<usize, String> {
    let at = usize::try_from(index).ok().filter(|at| *at < array.elements.len());
    let (name, size) = (&array.name, array.elements.len());
    at.ok_or_else(|| format!("element {index} of {name}, which has {size} elements"))
}

fn literal(value: Literal) -> Result<Constant, String> {
    let (dtype, bits) = match value {
        Literal::Bool(value) => (DType::Bool, u64::from(value)),
        Literal::I32(value) => (DType::I32, u64::from(value as u32)),
        Literal::U32(value) => (DType::U32, u64::from(value)),
        Literal::I64(value) => (DType::I64, value as u64),
        Literal::U64(value) => (DType::U64, value),
        Literal::F16(value) => (DType::F16, u64::from(value.to_bits())),
        Literal::F32(value) => (DType::F32, u64::from(value.to_bits())),
        Literal::F64(value) => (DType::F64, value.to_bits()),
        literal => return Err(format!("the literal {literal:?}")),
    };
    Ok(Constant::from_bits(dtype, bits))
}
