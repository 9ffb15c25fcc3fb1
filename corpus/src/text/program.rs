//! Parses a program: `name = op ...` lines, `output` lines, `expect` lines.

use super::cursor::{Cursor, ParseError};
use super::{Parsed, expects};
use crate::{
    Arg, ArgKind, Arity, BinaryOp, Case, DType, Distribution, Expect, Fill, Index, Literal, Method,
    Operand, Program, ReduceOp, Statement, TensorType, UnaryOp, ValueId, statement_type,
};
use std::collections::BTreeMap;

/// Words that cannot name a value.
const RESERVED: [&str; 7] = ["output", "expect", "true", "false", "nan", "inf", "axes"];

#[derive(Default)]
struct Reader<'a> {
    program: Program,
    types: Vec<TensorType>,
    names: BTreeMap<&'a str, ValueId>,
    output_names: Vec<&'a str>,
    expects: Vec<Expect>,
    /// The line of each of `expects`.
    expect_lines: Vec<Cursor<'a>>,
}

pub(super) fn parse_program(lines: &[Cursor<'_>]) -> Result<Parsed, ParseError> {
    let mut reader = Reader::default();
    for line in lines {
        let mut cursor = *line;
        reader.line(&mut cursor)?;
        cursor.need_end()?;
    }
    if let (true, Some(last)) = (reader.program.outputs.is_empty(), lines.last()) {
        return Err(last.error("expected an `output` line after this one: there are no outputs"));
    }
    reader.check_expects()?;
    Ok((Case::Program(reader.program), reader.expects))
}

impl<'a> Reader<'a> {
    fn line(&mut self, cursor: &mut Cursor<'a>) -> Result<(), ParseError> {
        let start = *cursor;
        match cursor.word("`name = ...`, `output ...` or `expect ...`")? {
            "output" => self.outputs(cursor),
            "expect" => {
                let outputs: Vec<_> = (self.output_names.iter().zip(&self.program.outputs))
                    .map(|(name, value)| (*name, &self.types[value.0 as usize]))
                    .collect();
                self.expects.push(expects::parse_program_expect(cursor, &outputs)?);
                self.expect_lines.push(start);
                Ok(())
            }
            name => self.assignment(start, name, cursor),
        }
    }

    /// Checks that each output with expected elements is listed once, since its name says no more.
    fn check_expects(&self) -> Result<(), ParseError> {
        for (expect, line) in self.expects.iter().zip(&self.expect_lines) {
            let Expect::Values { output, .. } = expect else { continue };
            let name = self.output_names[*output];
            if self.output_names.iter().filter(|listed| **listed == name).nth(1).is_some() {
                let problem = format!("{name} is listed twice as an output: list it once");
                return Err(line.error(problem));
            }
        }
        Ok(())
    }

    fn outputs(&mut self, cursor: &mut Cursor<'a>) -> Result<(), ParseError> {
        loop {
            let name = cursor.peek_word().unwrap_or_default();
            let value = self.value(cursor)?;
            self.program.outputs.push(value);
            self.output_names.push(name);
            if !cursor.take(",") {
                return Ok(());
            }
        }
    }

    fn assignment(
        &mut self,
        start: Cursor<'a>,
        name: &'a str,
        cursor: &mut Cursor<'a>,
    ) -> Result<(), ParseError> {
        if RESERVED.contains(&name) {
            return Err(start.error(format!("`{name}` cannot name a value")));
        }
        cursor.need("=")?;
        let at = *cursor;
        let statement = self.statement(cursor)?;
        let tensor =
            statement_type(&statement, &self.types).map_err(|error| at.error(error.message))?;
        let value = ValueId(self.types.len() as u32);
        if self.names.insert(name, value).is_some() {
            return Err(start.error(format!("{name} is already defined: choose another name")));
        }
        self.program.statements.push(statement);
        self.types.push(tensor);
        Ok(())
    }

    fn value(&self, cursor: &mut Cursor<'a>) -> Result<ValueId, ParseError> {
        let start = *cursor;
        let name = cursor.word("the name of a value")?;
        match self.names.get(name) {
            Some(value) => Ok(*value),
            None => Err(start.error(format!("{name} is not defined above"))),
        }
    }

    /// Returns whether the next token is a word, and not the name of an argument.
    fn is_value(&self, mut cursor: Cursor<'a>) -> bool {
        cursor.word("the name of a value").is_ok() && !cursor.take("=")
    }

    fn operand(&self, cursor: &mut Cursor<'a>) -> Result<Operand, ParseError> {
        if let Some(literal) = cursor.literal() {
            return Ok(Operand::Literal(literal));
        }
        if cursor.peek_word().is_none() {
            return Err(cursor.expected("a value or a literal"));
        }
        self.value(cursor).map(Operand::Value)
    }

    fn operands<const COUNT: usize>(
        &self,
        cursor: &mut Cursor<'a>,
    ) -> Result<[Operand; COUNT], ParseError> {
        let mut srcs = [Operand::Value(ValueId(0)); COUNT];
        for src in &mut srcs {
            *src = self.operand(cursor)?;
        }
        Ok(srcs)
    }

    fn statement(&self, cursor: &mut Cursor<'a>) -> Result<Statement, ParseError> {
        let start = *cursor;
        let word = cursor.word("an operation, say `add`")?;
        if let Some(op) = UnaryOp::ALL.into_iter().find(|op| op.name() == word) {
            return Ok(Statement::Unary { op, src: self.value(cursor)? });
        }
        let reduce = ReduceOp::ALL.into_iter().find(|op| op.name() == word);
        let binary = BinaryOp::ALL.into_iter().find(|op| op.name() == word);
        if let Some(op) = reduce
            && (binary.is_none() || self.is_reduction(*cursor))
        {
            let src = self.value(cursor)?;
            return Ok(Statement::Reduce { op, src, axes: cursor.axes()? });
        }
        if let Some(op) = binary {
            return Ok(Statement::Binary { op, srcs: self.operands(cursor)? });
        }
        match word {
            "input" | "const" | "arange" => self.source(word, cursor),
            "where" => Ok(Statement::Where { srcs: self.operands(cursor)? }),
            "mulacc" => Ok(Statement::MulAcc { srcs: self.operands(cursor)? }),
            "cast" => Ok(Statement::Cast { src: self.value(cursor)?, dtype: dtype(cursor)? }),
            "bitcast" => Ok(Statement::Bitcast { src: self.value(cursor)?, dtype: dtype(cursor)? }),
            "contiguous" => Ok(Statement::Contiguous { src: self.value(cursor)? }),
            "realize" => Ok(Statement::Realize { src: self.value(cursor)? }),
            "detach" => Ok(Statement::Detach { src: self.value(cursor)? }),
            "gradient" => {
                Ok(Statement::Gradient { of: self.value(cursor)?, wrt: self.value(cursor)? })
            }
            _ => self.movement(start, word, cursor),
        }
    }

    /// Returns whether `max` is a reduction: a value and then `axes` follow, which cannot name a
    /// value.
    fn is_reduction(&self, mut cursor: Cursor<'a>) -> bool {
        cursor.word("a value").is_ok() && cursor.peek_word() == Some("axes")
    }

    fn source(&self, word: &str, cursor: &mut Cursor<'a>) -> Result<Statement, ParseError> {
        let dtype = dtype(cursor)?;
        let at = *cursor;
        let shape = cursor.shape()?;
        Ok(match word {
            "input" => Statement::Input { dtype, fill: fill(cursor, dtype)?, shape },
            "const" => Statement::Const { dtype, shape, value: cursor.need_literal()? },
            _ => {
                let [count] = shape[..] else {
                    return Err(at.error("arange has one axis: expected its size, say `[5]`"));
                };
                cursor.need_key("start")?;
                let start = cursor.signed("element 0")?;
                cursor.need_key("step")?;
                Statement::Arange { dtype, start, step: cursor.signed("the step")?, count }
            }
        })
    }

    fn movement(
        &self,
        start: Cursor<'a>,
        word: &str,
        cursor: &mut Cursor<'a>,
    ) -> Result<Statement, ParseError> {
        Ok(match word {
            "reshape" => Statement::Reshape { src: self.value(cursor)?, shape: cursor.shape()? },
            "permute" => {
                Statement::Permute { src: self.value(cursor)?, axes: cursor.movement_axes()? }
            }
            "expand" => Statement::Expand { src: self.value(cursor)?, shape: cursor.shape()? },
            "pad" => Statement::Pad {
                src: self.value(cursor)?,
                pads: cursor.pairs()?,
                value: cursor.need_literal()?,
            },
            "shrink" => Statement::Shrink { src: self.value(cursor)?, ranges: cursor.pairs()? },
            "flip" => Statement::Flip { src: self.value(cursor)?, axes: cursor.movement_axes()? },
            "cat" => {
                let srcs = cursor.list(|cursor| self.value(cursor))?;
                cursor.need_key("axis")?;
                Statement::Cat { srcs, axis: cursor.count("the number of an axis")? }
            }
            "gather" => {
                let src = self.value(cursor)?;
                let index = self.value(cursor)?;
                cursor.need_key("axis")?;
                Statement::Gather { src, axis: cursor.count("the number of an axis")?, index }
            }
            _ => match Method::from_name(word) {
                Some(method) => self.method(method, cursor)?,
                None => return Err(start.expected(&operations())),
            },
        })
    }
}

impl<'a> Reader<'a> {
    fn method(&self, method: Method, cursor: &mut Cursor<'a>) -> Result<Statement, ParseError> {
        let row = method.row();
        let srcs = match row.arity {
            Arity::Exactly(count) => {
                (0..count).map(|_| self.value(cursor)).collect::<Result<_, _>>()?
            }
            Arity::Between(least, limit) => {
                let mut srcs = Vec::new();
                while srcs.len() < least || srcs.len() < limit && self.is_value(*cursor) {
                    srcs.push(self.value(cursor)?);
                }
                srcs
            }
            Arity::List => cursor.list(|cursor| self.value(cursor))?,
        };
        let mut args = Vec::with_capacity(row.parameters.len());
        for (name, kind) in row.parameters {
            cursor.need_key(name)?;
            args.push(arg(cursor, *kind)?);
        }
        Ok(Statement::Method { method, srcs, args })
    }
}

fn arg(cursor: &mut Cursor<'_>, kind: ArgKind) -> Result<Arg, ParseError> {
    Ok(match kind {
        ArgKind::Int => Arg::Int(cursor.signed("an integer")?),
        ArgKind::Ints => Arg::Ints(cursor.list(|cursor| cursor.signed("an integer"))?),
        ArgKind::Flag => match cursor.literal() {
            Some(Literal::Bool(value)) => Arg::Flag(value),
            _ => return Err(cursor.expected("`true` or `false`")),
        },
        ArgKind::Number => Arg::Number(cursor.need_literal()?),
        ArgKind::DType => Arg::DType(dtype(cursor)?),
        ArgKind::Word(words) => {
            let start = *cursor;
            let allowed = words.join(", ");
            let word = cursor.word(&allowed)?;
            let found = words.iter().copied().find(|listed| *listed == word);
            Arg::Word(found.ok_or_else(|| start.expected(&allowed))?)
        }
        ArgKind::Indices => Arg::Indices(cursor.list(index)?),
    })
}

fn index(cursor: &mut Cursor<'_>) -> Result<Index, ParseError> {
    if cursor.take("...") {
        return Ok(Index::Ellipsis);
    }
    for (word, index) in [("new", Index::NewAxis), ("source", Index::Source)] {
        if cursor.peek_word() == Some(word) {
            cursor.take(word);
            return Ok(index);
        }
    }
    let expectation = "an index: `3`, `0:9:2`, `new`, `...` or `source`";
    let is_number = |cursor: &Cursor<'_>| {
        cursor.rest().starts_with(|first: char| first == '-' || first.is_ascii_digit())
    };
    let number = |cursor: &mut Cursor<'_>| match is_number(cursor) {
        true => cursor.signed(expectation).map(Some),
        false => Ok(None),
    };
    let start = number(cursor)?;
    if !cursor.take(":") {
        return start.map(Index::Position).ok_or_else(|| cursor.expected(expectation));
    }
    let stop = number(cursor)?;
    let step = if cursor.take(":") { number(cursor)? } else { None };
    Ok(Index::Slice { start, stop, step: step.unwrap_or(1) })
}

/// Returns the expectation of an operation, with all keywords.
fn operations() -> String {
    let fixed = "input const arange where mulacc cast bitcast reshape permute expand pad shrink \
                 flip cat gather contiguous realize detach gradient sum prod";
    let mut words: Vec<&str> = fixed.split(' ').filter(|word| !word.is_empty()).collect();
    words.extend(UnaryOp::ALL.iter().map(|op| op.name()));
    words.extend(BinaryOp::ALL.iter().map(|op| op.name()));
    words.extend(Method::ALL.iter().map(|method| method.row().name));
    format!("an operation ({})", words.join(" "))
}

fn dtype(cursor: &mut Cursor<'_>) -> Result<DType, ParseError> {
    let start = *cursor;
    let names = DType::ALL.map(DType::name).join(" ");
    let allowed = format!("a dtype ({names})");
    DType::from_name(cursor.word(&allowed)?).ok_or_else(|| start.expected(&allowed))
}

fn fill(cursor: &mut Cursor<'_>, dtype: DType) -> Result<Fill, ParseError> {
    let allowed = "`iota`, `seeded(1, small)` or a list of elements";
    if cursor.rest().starts_with('[') {
        return Ok(Fill::Explicit(cursor.list(|cursor| cursor.element(dtype))?));
    }
    let start = *cursor;
    match cursor.word(allowed)? {
        "iota" => Ok(Fill::Iota),
        "seeded" => {
            cursor.need("(")?;
            let seed = cursor.unsigned("a seed")?;
            cursor.need(",")?;
            let distribution = distribution(cursor)?;
            cursor.need(")")?;
            Ok(Fill::Seeded { seed, distribution })
        }
        _ => Err(start.expected(allowed)),
    }
}

fn distribution(cursor: &mut Cursor<'_>) -> Result<Distribution, ParseError> {
    let start = *cursor;
    let names = Distribution::ALL.map(Distribution::name).join(" ");
    let allowed = format!("a distribution ({names})");
    let word = cursor.word(&allowed)?;
    let found = Distribution::ALL.into_iter().find(|distribution| distribution.name() == word);
    found.ok_or_else(|| start.expected(&allowed))
}
