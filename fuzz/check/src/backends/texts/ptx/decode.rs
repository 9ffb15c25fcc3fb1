//! The decoder of statements into instructions over numbered registers; it checks each operand.

use std::collections::HashMap;

use super::arithmetic::{Apply, function, wide_product};
use super::memory::{Space, shared_base};
use super::number::Rounding;
use super::statement::{Guard, Operand, Statement, parse};
use super::types::{Class, Type};
use super::warp::{Product, Shape};

/// A decoded text.
pub(super) struct Program {
    pub(super) code: Vec<Instruction>,
    /// Types of the parameters.
    pub(super) parameters: Vec<Type>,
    pub(super) threads_max: [u32; 3],
    pub(super) shared: Vec<Shared>,
    /// Smallest access to shared memory, in bytes.
    pub(super) shared_granule: usize,
    /// Number of declared registers. They are followed by the special ones and the constants.
    pub(super) declared: usize,
    /// The special registers: x, y, z of `%tid`, `%ntid`, `%ctaid`, `%nctaid`.
    pub(super) special: [u32; 12],
    /// The initial values of all registers.
    pub(super) initial: Vec<u64>,
    /// Names of the declared registers, for messages.
    pub(super) names: Vec<String>,
}

/// An array of a group.
pub(super) struct Shared {
    pub(super) name: String,
    pub(super) alignment: u64,
    pub(super) size_bytes: usize,
}

/// An instruction with its guard: a predicate, and the value that it must have.
pub(super) struct Instruction {
    pub(super) line: usize,
    pub(super) guard: Option<(u32, bool)>,
    pub(super) action: Action,
}

/// The effect of an instruction. Registers are numbers.
pub(super) enum Action {
    /// Operands that the function does not use repeat the first one.
    Compute {
        apply: Apply,
        to: u32,
        from: [u32; 3],
    },
    Convert {
        to: u32,
        from: u32,
        conversion: Conversion,
    },
    /// Two halves in one register, the first one in the low bits.
    Pack {
        to: u32,
        halves: [u32; 2],
        bits: u32,
    },
    Parameter {
        to: u32,
        number: usize,
    },
    Load {
        access: Access,
        register_bits: u32,
    },
    Store(Access),
    Branch(usize),
    Barrier,
    Product(Box<Product>),
    Return,
}

/// A conversion between numbers.
#[derive(Clone, Copy)]
pub(super) struct Conversion {
    pub(super) from: Type,
    pub(super) to: Type,
    pub(super) rounding: Rounding,
    /// The bits of the register of the result.
    pub(super) register_bits: u32,
}

/// A load or store of one to four registers.
pub(super) struct Access {
    pub(super) space: Space,
    pub(super) kind: Type,
    pub(super) address: u32,
    pub(super) offset: i64,
    pub(super) registers: Vec<u32>,
}

const SPECIAL: [&str; 4] = ["%tid", "%ntid", "%ctaid", "%nctaid"];
const WORD: Type = Type { name: "u32", class: Class::Unsigned, bits: 32 };
const ADDRESS: Type = Type { name: "u64", class: Class::Unsigned, bits: 64 };
const PREDICATE: Type = Type { name: "pred", class: Class::Predicate, bits: 1 };

/// Shared memory that an entry may declare, in bytes.
const SHARED_BYTES_MAX: usize = 48 << 10;
/// Limit of the registers of a prefix, more than any thread has.
const REGISTERS_MAX: u32 = 1 << 20;

#[derive(Default)]
struct Decoder<'a> {
    /// First register, count and type of each prefix.
    registers: HashMap<&'a str, (u32, u32, Type)>,
    labels: HashMap<&'a str, usize>,
    parameters: HashMap<&'a str, (usize, Type)>,
    shared: HashMap<&'a str, u64>,
    constants: HashMap<u64, u32>,
    special: [u32; 12],
    initial: Vec<u64>,
}

/// Decodes the text of a module.
///
/// # Errors
/// The first problem, with its line.
pub(super) fn decode(text: &str) -> Result<Program, String> {
    let module = parse(text)?;
    let mut decoder = Decoder::default();
    let (mut names, mut shared) = (Vec::new(), Vec::new());
    let mut parameters = Vec::new();
    for (kind, name) in &module.parameters {
        let kind = dotted(kind)?;
        let is_new = decoder.parameters.insert(name, (parameters.len(), kind)).is_none();
        ensure(is_new, || format!("two parameters are named {name}"))?;
        parameters.push(kind);
    }
    let mut count = 0;
    for (line, statement) in &module.body {
        let declared = decoder.declare(statement, &mut count, &mut names, &mut shared);
        declared.map_err(|problem| format!("line {line}: {problem}"))?;
    }
    let bytes: usize = shared.iter().map(|array: &Shared| array.size_bytes).sum();
    ensure(bytes <= SHARED_BYTES_MAX, || {
        format!("{bytes} bytes of shared memory, but an entry has at most {SHARED_BYTES_MAX}")
    })?;
    let declared = decoder.initial.len();
    for register in &mut decoder.special {
        *register = decoder.initial.len() as u32;
        decoder.initial.push(0);
    }
    let mut code = Vec::new();
    for (line, statement) in &module.body {
        let Statement::Instruction { guard, opcode, operands } = statement else { continue };
        let instruction = decoder.instruction(*guard, opcode, operands);
        let (guard, action) =
            instruction.map_err(|problem| format!("line {line}: {opcode}: {problem}"))?;
        code.push(Instruction { line: *line, guard, action });
    }
    let sizes = code.iter().filter_map(|instruction| match &instruction.action {
        Action::Load { access, .. } | Action::Store(access) if access.space == Space::Shared => {
            Some(access.kind.size_bytes())
        }
        _ => None,
    });
    let shared_granule = sizes.min().unwrap_or(1);
    let Decoder { special, initial, .. } = decoder;
    let threads_max = module.threads_max;
    Ok(Program {
        code,
        parameters,
        threads_max,
        shared,
        shared_granule,
        declared,
        special,
        initial,
        names,
    })
}

fn ensure(holds: bool, problem: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(problem()) }
}

/// The type of a word with its dot.
fn dotted(word: &str) -> Result<Type, String> {
    let kind = word.strip_prefix('.').and_then(Type::named);
    kind.ok_or_else(|| format!("{word} is not a type"))
}

impl<'a> Decoder<'a> {
    /// Records a declaration or a label; `count` instructions precede it.
    fn declare(
        &mut self,
        statement: &Statement<'a>,
        count: &mut usize,
        names: &mut Vec<String>,
        shared: &mut Vec<Shared>,
    ) -> Result<(), String> {
        let is_new = match *statement {
            Statement::Registers { kind, prefix, count } => {
                let kind = dotted(kind)?;
                ensure(kind.class != Class::Alternate && kind.bits != 8, || {
                    format!("registers of type {}", kind.name)
                })?;
                ensure(prefix.starts_with('%') && count <= REGISTERS_MAX, || {
                    format!("{count} registers named {prefix}")
                })?;
                let first = self.initial.len() as u32;
                self.initial.resize((first + count) as usize, 0);
                names.extend((0..count).map(|number| format!("{prefix}{number}")));
                self.registers.insert(prefix, (first, count, kind)).is_none()
            }
            Statement::Shared { name, alignment, size_bytes } => {
                let base = shared_base(shared.len(), alignment);
                shared.push(Shared { name: name.to_owned(), alignment, size_bytes });
                self.shared.insert(name, base).is_none()
            }
            Statement::Label(name) => self.labels.insert(name, *count).is_none(),
            Statement::Instruction { .. } => {
                *count += 1;
                true
            }
        };
        ensure(is_new, || "its name is declared twice".to_owned())
    }

    fn instruction(
        &mut self,
        guard: Option<Guard<'a>>,
        opcode: &str,
        operands: &[Operand<'a>],
    ) -> Result<(Option<(u32, bool)>, Action), String> {
        let guard = match guard {
            None => None,
            Some(Guard { register, is_negated }) => {
                Some((self.register(register, PREDICATE, false)?.0, !is_negated))
            }
        };
        let (word, rest) = opcode.split_once('.').unwrap_or((opcode, ""));
        let action = match (word, rest, operands) {
            ("ret", "", []) => Action::Return,
            ("bra", "", [Operand::Word(label)]) => {
                let target = self.labels.get(label);
                Action::Branch(*target.ok_or_else(|| format!("there is no label {label}"))?)
            }
            ("bar", "sync", [Operand::Word(number)]) => {
                let number = number.parse::<u32>().ok().filter(|number| *number < 16);
                number.ok_or("a barrier has a number below 16")?;
                Action::Barrier
            }
            ("mma", _, [d, a, b, c]) => self.product(rest, [a, b, c, d])?,
            ("ld", _, [to, from]) => self.load(rest, to, from)?,
            ("st", _, [to, from]) => Action::Store(self.access(rest, to, from)?.0),
            ("mov", "b32" | "b64", [to, Operand::List(halves)]) => {
                self.pack(dotted(&format!(".{rest}"))?, to, halves)?
            }
            ("mov", _, [to, from]) => self.move_value(rest, to, from)?,
            ("cvta", "to.global.u64", [to, from]) => {
                let (to, _) = self.result(to, ADDRESS, false)?;
                Action::Compute { apply: |v| v[0], to, from: [self.source(from, ADDRESS)?; 3] }
            }
            ("cvt", _, [to, from]) => self.conversion(rest, to, from)?,
            ("ret" | "bra" | "bar" | "mma" | "ld" | "st" | "mov" | "cvta" | "cvt", ..) => {
                return Err(format!("{} operands or this form, which is unknown", operands.len()));
            }
            _ => self.computation(opcode, operands)?,
        };
        Ok((guard, action))
    }

    /// Decodes an instruction that computes: its last part is the type of its operands.
    fn computation(&mut self, opcode: &str, operands: &[Operand<'a>]) -> Result<Action, String> {
        let unknown = || "not an instruction of the subset".to_owned();
        let (word, kind) = opcode.rsplit_once('.').ok_or_else(unknown)?;
        let kind = Type::named(kind).ok_or_else(unknown)?;
        let (apply, result, sources) = match word {
            "selp" if kind.class != Class::Predicate && [16, 32, 64].contains(&kind.bits) => {
                let apply: Apply = |v| if v[2] == 0 { v[1] } else { v[0] };
                (apply, kind, vec![kind, kind, PREDICATE])
            }
            "mul.wide" => {
                let wide = format!(".{}{}", &kind.name[..1], 2 * kind.bits);
                (wide_product(kind).ok_or_else(unknown)?, dotted(&wide)?, vec![kind; 2])
            }
            _ => {
                let apply = function(word, kind).ok_or_else(unknown)?;
                let result = if word.starts_with("setp") { PREDICATE } else { kind };
                let sources = match word {
                    "shl" | "shr" => vec![kind, WORD],
                    "neg" | "not" | "rcp.rn" | "sqrt.rn" | "ex2.approx" => vec![kind],
                    "mad.lo" | "fma.rn" => vec![kind; 3],
                    _ => vec![kind; 2],
                };
                (apply, result, sources)
            }
        };
        let [to, from @ ..] = operands else { return Err("no operands".to_owned()) };
        ensure(from.len() == sources.len(), || {
            format!("{} sources, expected {}", from.len(), sources.len())
        })?;
        let numbers: Vec<u32> = from
            .iter()
            .zip(&sources)
            .map(|(operand, kind)| self.source(operand, *kind))
            .collect::<Result<_, _>>()?;
        let at = |number: usize| numbers.get(number).copied().unwrap_or(numbers[0]);
        let (to, _) = self.result(to, result, false)?;
        Ok(Action::Compute { apply, to, from: [at(0), at(1), at(2)] })
    }

    /// The number and the type of a declared register.
    fn register(&self, name: &str, kind: Type, is_relaxed: bool) -> Result<(u32, Type), String> {
        let prefix = name.trim_end_matches(|c: char| c.is_ascii_digit());
        let number = name[prefix.len()..].parse::<u32>().ok();
        let declared = self.registers.get(prefix).zip(number);
        let (first, register, number) = declared
            .filter(|((_, count, _), number)| number < count)
            .map(|((first, _, register), number)| (*first, *register, number))
            .ok_or_else(|| format!("there is no register {name}"))?;
        ensure(kind.accepts(register, is_relaxed), || {
            format!("{name} is a register of {}, but {} is expected", register.name, kind.name)
        })?;
        Ok((first + number, register))
    }

    fn result(
        &self,
        operand: &Operand<'_>,
        kind: Type,
        is_relaxed: bool,
    ) -> Result<(u32, Type), String> {
        match operand {
            Operand::Word(name) => self.register(name, kind, is_relaxed),
            _ => Err("the result is not a register".to_owned()),
        }
    }

    /// A register or a constant.
    fn source(&mut self, operand: &Operand<'_>, kind: Type) -> Result<u32, String> {
        let bits = match operand {
            Operand::Word(name) if name.starts_with('%') => {
                return Ok(self.register(name, kind, false)?.0);
            }
            Operand::Word(number) => literal(number, false, kind)?,
            Operand::Negative(number) => literal(number, true, kind)?,
            _ => return Err("an operand that is neither a register nor a constant".to_owned()),
        };
        Ok(self.constant(bits))
    }

    fn constant(&mut self, bits: u64) -> u32 {
        let initial = &mut self.initial;
        *self.constants.entry(bits).or_insert_with(|| {
            initial.push(bits);
            initial.len() as u32 - 1
        })
    }

    fn move_value(
        &mut self,
        kind: &str,
        to: &Operand<'_>,
        from: &Operand<'_>,
    ) -> Result<Action, String> {
        let kind = Type::named(kind).filter(|kind| ![8, 0].contains(&kind.bits));
        let kind = kind.filter(|kind| kind.class != Class::Alternate && kind.name != "f16");
        let kind = kind.ok_or("not an instruction of the subset")?;
        let (to, _) = self.result(to, kind, false)?;
        let from = match from {
            Operand::Word(name) => match (self.special(name), self.shared.get(name)) {
                (Some(register), _) if kind.is_integer() && kind.bits == 32 => register,
                (Some(_), _) => return Err(format!("{name} has 32 bits")),
                (None, Some(base)) if kind.bits == 64 && !kind.is_float() => {
                    let base = *base;
                    self.constant(base)
                }
                (None, Some(_)) => return Err("an address has 64 bits".to_owned()),
                (None, None) => self.source(from, kind)?,
            },
            _ => self.source(from, kind)?,
        };
        Ok(Action::Compute { apply: |v| v[0], to, from: [from; 3] })
    }

    /// A special register.
    fn special(&self, name: &str) -> Option<u32> {
        let (word, dimension) = name.rsplit_once('.')?;
        let word = SPECIAL.iter().position(|special| *special == word)?;
        let dimension = ["x", "y", "z"].iter().position(|axis| *axis == dimension)?;
        Some(self.special[3 * word + dimension])
    }

    fn pack(&self, kind: Type, to: &Operand<'_>, halves: &[&str]) -> Result<Action, String> {
        let half = Type { name: "half", class: Class::Bits, bits: kind.bits / 2 };
        let [low, high] = halves else { return Err(format!("{} parts", halves.len())) };
        let (to, _) = self.result(to, kind, false)?;
        let halves = [self.register(low, half, false)?.0, self.register(high, half, false)?.0];
        Ok(Action::Pack { to, halves, bits: half.bits })
    }

    fn conversion(
        &mut self,
        parts: &str,
        to: &Operand<'_>,
        from: &Operand<'_>,
    ) -> Result<Action, String> {
        let parts: Vec<&str> = parts.split('.').collect();
        let (mode, kinds) = match parts.as_slice() {
            [to, from] => ("", [*to, *from]),
            [mode, to, from] => (*mode, [*to, *from]),
            _ => return Err("not a conversion of the subset".to_owned()),
        };
        let is_number = |kind: &Type| kind.is_integer() || kind.is_float();
        let [result, source] = kinds.map(|kind| Type::named(kind).filter(is_number));
        let (result, source) = result.zip(source).ok_or("not a conversion between numbers")?;
        let rounding = rounding(mode, source, result)?;
        let (from, _) = match from {
            Operand::Word(name) => self.register(name, source, true)?,
            _ => return Err("the source is not a register".to_owned()),
        };
        // Registers of alternate types are declared as bits.
        let declared = match result.class {
            Class::Alternate => Type { class: Class::Bits, ..result },
            _ => result,
        };
        let (to, register) = self.result(to, declared, !result.is_float())?;
        let register_bits = register.bits;
        let conversion = Conversion { from: source, to: result, rounding, register_bits };
        Ok(Action::Convert { to, from, conversion })
    }

    fn load(
        &mut self,
        parts: &str,
        to: &Operand<'a>,
        from: &Operand<'a>,
    ) -> Result<Action, String> {
        if let Some(kind) = parts.strip_prefix("param.") {
            let kind = Type::named(kind).ok_or("an unknown type")?;
            let Operand::Address { base, offset: 0 } = from else {
                return Err("the address is not a parameter".to_owned());
            };
            let parameter = self.parameters.get(base);
            let (number, declared) =
                *parameter.ok_or_else(|| format!("there is no parameter {base}"))?;
            ensure(declared.bits == kind.bits, || format!("{base} is of type {}", declared.name))?;
            return Ok(Action::Parameter { to: self.result(to, kind, false)?.0, number });
        }
        let (access, register_bits) = self.access(parts, from, to)?;
        Ok(Action::Load { access, register_bits })
    }

    /// Decodes a load or store; also returns the bits of its widest register.
    fn access(
        &mut self,
        parts: &str,
        address: &Operand<'a>,
        registers: &Operand<'a>,
    ) -> Result<(Access, u32), String> {
        let parts: Vec<&str> = parts.split('.').collect();
        let (space, count, kind) = match parts.as_slice() {
            [space, kind] => (*space, 1, *kind),
            [space, "v2", kind] => (*space, 2, *kind),
            [space, "v4", kind] => (*space, 4, *kind),
            _ => return Err("not an access of the subset".to_owned()),
        };
        let space = match space {
            "global" => Space::Global,
            "shared" => Space::Shared,
            _ => return Err(format!("no space .{space} in the subset")),
        };
        let is_accessed =
            |kind: &Type| kind.class != Class::Alternate && kind.name != "f16" && kind.bits >= 8;
        let kind = Type::named(kind).filter(is_accessed);
        let kind = kind.ok_or("memory accesses do not have this type")?;
        ensure(count * kind.size_bytes() <= 16, || "more than 16 bytes at once".to_owned())?;
        let Operand::Address { base, offset } = address else {
            return Err("the operand is not an address".to_owned());
        };
        let (address, _) = self.register(base, ADDRESS, false)?;
        let names = match registers {
            Operand::Word(name) if count == 1 => vec![*name],
            Operand::List(names) if count > 1 => names.clone(),
            _ => Vec::new(),
        };
        ensure(names.len() == count, || format!("{count} registers are expected"))?;
        let operands: Vec<(u32, Type)> =
            names.iter().map(|name| self.register(name, kind, true)).collect::<Result<_, _>>()?;
        let bits = operands.iter().map(|(_, register)| register.bits).max().unwrap_or(kind.bits);
        let registers = operands.into_iter().map(|(register, _)| register).collect();
        Ok((Access { space, kind, address, offset: *offset, registers }, bits))
    }

    /// Decodes a product of matrices with its operands in the order a, b, c, d.
    fn product(&self, form: &str, operands: [&Operand<'a>; 4]) -> Result<Action, String> {
        let shape = Shape::named(form).ok_or("not a product of the subset")?;
        let mut registers: [Vec<u32>; 4] = Default::default();
        for (number, operand) in operands.into_iter().enumerate() {
            let Operand::List(names) = operand else {
                return Err("an operand is not a fragment".to_owned());
            };
            let (count, kind) = shape.fragment(number.min(2));
            ensure(names.len() == count, || {
                format!("{count} registers are expected in a fragment")
            })?;
            registers[number] = names
                .iter()
                .map(|name| self.register(name, kind, false).map(|(register, _)| register))
                .collect::<Result<_, _>>()?;
        }
        Ok(Action::Product(Box::new(Product { shape, registers })))
    }
}

/// The rounding of a conversion, which must be given if and only if the result may have too few
/// digits.
fn rounding(mode: &str, from: Type, to: Type) -> Result<Rounding, String> {
    let is_missing = to.name == "bf16" && from.name != "f32";
    if from.class == Class::Alternate || is_missing || to.name == "tf32" && mode != "rna" {
        return Err("not a conversion of sm_80".to_owned());
    }
    let is_exact = match (from.is_float(), to.is_float()) {
        (false, false) => true,
        (true, true) => from.bits <= to.bits && to.class != Class::Alternate,
        _ => false,
    };
    match mode {
        "" if is_exact => Ok(Rounding::Zero),
        "rna" if to.name == "tf32" && from.name == "f32" => Ok(Rounding::NearestAway),
        "rn" if !is_exact && to.is_float() => Ok(Rounding::Nearest),
        "rz" if !is_exact && to.is_float() => Ok(Rounding::Zero),
        "rzi" if from.is_float() && !to.is_float() => Ok(Rounding::Zero),
        _ => Err("this conversion does not have this rounding".to_owned()),
    }
}

/// The bits of a constant for an operand of a type.
fn literal(word: &str, is_negative: bool, kind: Type) -> Result<u64, String> {
    let bad = || format!("{word} is not a constant of type {}", kind.name);
    let hexadecimal = |digits: &str, count: usize| match digits.len() == count {
        true => u64::from_str_radix(digits, 16).map_err(|_| bad()),
        false => Err(bad()),
    };
    if kind.is_float() {
        let float = match kind.bits {
            32 => word.strip_prefix("0f").map(|digits| hexadecimal(digits, 8)),
            64 => word.strip_prefix("0d").map(|digits| hexadecimal(digits, 16)),
            _ => None,
        };
        return float.filter(|_| !is_negative).ok_or_else(bad)?;
    }
    if kind.class == Class::Predicate {
        return Err(bad());
    }
    let magnitude = match word.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).map_err(|_| bad())?,
        // A leading zero would make it octal.
        None if word.starts_with('0') && word != "0" => return Err(bad()),
        None => word.parse().map_err(|_| bad())?,
    };
    let value = if is_negative { -i128::from(magnitude) } else { i128::from(magnitude) };
    let half = 1i128 << (kind.bits - 1);
    ensure(-half <= value && value < 2 * half, bad)?;
    Ok(value as u64 & (u64::MAX >> (64 - kind.bits)))
}
