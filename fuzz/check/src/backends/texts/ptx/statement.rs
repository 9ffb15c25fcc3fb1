//! The parser of a module: declarations and statements, with names that are not resolved.

use std::str::FromStr;

/// A module of one entry.
pub(super) struct Module<'a> {
    /// Types and names of the parameters.
    pub(super) parameters: Vec<(&'a str, &'a str)>,
    /// Limits of the threads of a group in x, y and z.
    pub(super) threads_max: [u32; 3],
    pub(super) body: Vec<(usize, Statement<'a>)>,
}

/// A statement of a body.
pub(super) enum Statement<'a> {
    /// `.reg .kind %prefix<count>;`
    Registers {
        kind: &'a str,
        prefix: &'a str,
        count: u32,
    },
    /// `.shared .align alignment .b8 name[size_bytes];`
    Shared {
        name: &'a str,
        alignment: u64,
        size_bytes: usize,
    },
    Label(&'a str),
    Instruction {
        guard: Option<Guard<'a>>,
        opcode: &'a str,
        operands: Vec<Operand<'a>>,
    },
}

/// The predicate before an instruction: `@%p0` or `@!%p0`.
#[derive(Clone, Copy)]
pub(super) struct Guard<'a> {
    pub(super) register: &'a str,
    pub(super) is_negated: bool,
}

/// An operand as it is written.
pub(super) enum Operand<'a> {
    /// A register, a label, a variable or a constant without a sign.
    Word(&'a str),
    Negative(&'a str),
    /// `[base+offset]`
    Address {
        base: &'a str,
        offset: i64,
    },
    /// `{a, b}`
    List(Vec<&'a str>),
}

struct Reader<'a> {
    tokens: Vec<(usize, &'a str)>,
    at: usize,
}

/// Parses a text.
///
/// # Errors
/// A text that is not a module of one entry in this grammar, with the line.
pub(super) fn parse(text: &str) -> Result<Module<'_>, String> {
    let mut reader = Reader { tokens: tokens(text)?, at: 0 };
    reader.module().map_err(|problem| format!("line {}: {problem}", reader.line()))
}

fn is_of_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || "._$%".contains(c)
}

/// Words and signs with their lines.
fn tokens(text: &str) -> Result<Vec<(usize, &str)>, String> {
    let mut tokens = Vec::with_capacity(text.len() / 4);
    for (number, line) in text.lines().enumerate() {
        let mut rest = line.trim_start();
        while let Some(first) = rest.chars().next() {
            let length = match first {
                _ if is_of_word(first) => rest.find(|c| !is_of_word(c)).unwrap_or(rest.len()),
                _ if "{}[]()<>,;:+-@!".contains(first) => 1,
                _ => {
                    return Err(format!("line {}: {first:?} is not allowed in a text", number + 1));
                }
            };
            let (token, after) = rest.split_at(length);
            tokens.push((number + 1, token));
            rest = after.trim_start();
        }
    }
    Ok(tokens)
}

impl<'a> Reader<'a> {
    /// The line of the last token that was read.
    fn line(&self) -> usize {
        self.tokens.get(self.at.saturating_sub(1)).map_or(0, |(line, _)| *line)
    }

    fn peek(&self) -> &'a str {
        self.tokens.get(self.at).map_or("", |(_, token)| token)
    }

    fn next(&mut self) -> &'a str {
        let token = self.peek();
        self.at += 1;
        token
    }

    /// Skips the token if it is the next one; returns whether it is.
    fn skip_if(&mut self, token: &str) -> bool {
        let is_next = self.peek() == token;
        self.at += usize::from(is_next);
        is_next
    }

    fn expect(&mut self, token: &str) -> Result<(), String> {
        match self.next() {
            found if found == token => Ok(()),
            "" => Err(format!("the text ends where {token:?} is expected")),
            found => Err(format!("{found:?} where {token:?} is expected")),
        }
    }

    fn word(&mut self) -> Result<&'a str, String> {
        let token = self.next();
        let is_word = token.starts_with(is_of_word);
        is_word.then_some(token).ok_or_else(|| format!("{token:?} where a word is expected"))
    }

    fn number<T: FromStr>(&mut self) -> Result<T, String> {
        let token = self.next();
        token.parse().map_err(|_| format!("{token:?} is not a number that fits here"))
    }

    fn module(&mut self) -> Result<Module<'a>, String> {
        self.head()?;
        self.expect(".visible")?;
        self.expect(".entry")?;
        self.word()?;
        self.expect("(")?;
        let mut parameters = Vec::new();
        while !self.skip_if(")") {
            if !parameters.is_empty() {
                self.expect(",")?;
            }
            self.expect(".param")?;
            let kind = self.word()?;
            parameters.push((kind, self.word()?));
        }
        self.expect(".maxntid")?;
        let mut threads_max = [1; 3];
        for (dimension, size) in threads_max.iter_mut().enumerate() {
            if dimension != 0 {
                self.expect(",")?;
            }
            *size = self.number()?;
        }
        self.expect("{")?;
        let mut body = Vec::new();
        while !self.skip_if("}") {
            let statement = self.statement()?;
            body.push((self.line(), statement));
        }
        match self.next() {
            "" => Ok(Module { parameters, threads_max, body }),
            token => Err(format!("{token:?} after the entry")),
        }
    }

    /// Reads version, target and size of addresses: products of bf16 and tf32 and the conversions
    /// to them exist since version 7.0 and sm_80.
    fn head(&mut self) -> Result<(), String> {
        self.expect(".version")?;
        let version = self.word()?;
        let major = version.split_once('.').and_then(|(major, _)| major.parse::<u32>().ok());
        if major.is_none_or(|major| major < 7) {
            return Err(format!("version {version}, but the subset is of 7.0"));
        }
        self.expect(".target")?;
        let target = self.word()?;
        let capability = target.strip_prefix("sm_").and_then(|number| number.parse::<u32>().ok());
        if capability.is_none_or(|capability| capability < 80) {
            return Err(format!("target {target}, but the subset is of sm_80"));
        }
        self.expect(".address_size")?;
        self.expect("64")
    }

    fn statement(&mut self) -> Result<Statement<'a>, String> {
        let statement = match self.peek() {
            ".reg" => self.registers()?,
            ".shared" => self.shared()?,
            word => {
                let guard = self.guard()?;
                let opcode = self.word()?;
                if guard.is_none() && self.skip_if(":") {
                    return Ok(Statement::Label(word));
                }
                Statement::Instruction { guard, opcode, operands: self.operands()? }
            }
        };
        self.expect(";")?;
        Ok(statement)
    }

    fn registers(&mut self) -> Result<Statement<'a>, String> {
        self.expect(".reg")?;
        let (kind, prefix) = (self.word()?, self.word()?);
        self.expect("<")?;
        let count = self.number()?;
        self.expect(">")?;
        Ok(Statement::Registers { kind, prefix, count })
    }

    fn shared(&mut self) -> Result<Statement<'a>, String> {
        self.expect(".shared")?;
        // The default is the alignment of the type, which is one byte.
        let alignment = if self.skip_if(".align") { self.number()? } else { 1u64 };
        if !alignment.is_power_of_two() {
            return Err(format!("an alignment of {alignment}, which is not a power of two"));
        }
        self.expect(".b8")?;
        let name = self.word()?;
        self.expect("[")?;
        let size_bytes = self.number()?;
        self.expect("]")?;
        Ok(Statement::Shared { name, alignment, size_bytes })
    }

    fn guard(&mut self) -> Result<Option<Guard<'a>>, String> {
        if !self.skip_if("@") {
            return Ok(None);
        }
        let is_negated = self.skip_if("!");
        Ok(Some(Guard { register: self.word()?, is_negated }))
    }

    fn operands(&mut self) -> Result<Vec<Operand<'a>>, String> {
        let mut operands = Vec::new();
        while self.peek() != ";" {
            if !operands.is_empty() {
                self.expect(",")?;
            }
            operands.push(self.operand()?);
        }
        Ok(operands)
    }

    fn operand(&mut self) -> Result<Operand<'a>, String> {
        if self.skip_if("-") {
            return Ok(Operand::Negative(self.word()?));
        }
        if self.skip_if("{") {
            let mut list = vec![self.word()?];
            while !self.skip_if("}") {
                self.expect(",")?;
                list.push(self.word()?);
            }
            return Ok(Operand::List(list));
        }
        if !self.skip_if("[") {
            return Ok(Operand::Word(self.word()?));
        }
        let base = self.word()?;
        let mut offset = 0;
        if self.skip_if("+") {
            let is_negative = self.skip_if("-");
            let number: i64 = self.number()?;
            offset = if is_negative { -number } else { number };
        }
        self.expect("]")?;
        Ok(Operand::Address { base, offset })
    }
}
