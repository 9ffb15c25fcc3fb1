//! PTX read as its manual says, one thread after the other: what the kernels compute without a
//! GPU. Barriers do nothing here, so that threads cannot meet.

use std::collections::HashMap;

use gradiff_graph::{Constant, DType};

/// A kernel, taken apart, and where it is.
pub(crate) struct Machine<'a> {
    lines: Vec<&'a str>,
    labels: HashMap<&'a str, usize>,
    pub(crate) registers: HashMap<String, u64>,
    /// Array n begins at address n << 32.
    pub(crate) arrays: Vec<Vec<u8>>,
    /// What `%ctaid.x` and `%tid.x` are.
    pub(crate) place: (u64, u64),
}

impl<'a> Machine<'a> {
    pub(crate) fn new(text: &'a str, arrays: Vec<Vec<u8>>) -> Machine<'a> {
        let body = text.split_once("{\n").expect("a kernel has a body").1;
        let lines: Vec<&str> = body.lines().map(str::trim).collect();
        let labels = lines.iter().enumerate();
        let labels = labels.filter_map(|(at, line)| Some((line.strip_suffix(':')?, at))).collect();
        Machine { lines, labels, registers: HashMap::new(), arrays, place: (0, 0) }
    }

    /// Runs one thread.
    pub(crate) fn run(&mut self) {
        self.registers.clear();
        assert_eq!(self.go(0), None, "a thread alone multiplies no matrices");
    }

    /// The statement at a place.
    pub(crate) fn line(&self, at: usize) -> &'a str {
        self.lines[at]
    }

    /// Goes on from a line to the next product of matrices, or to the end.
    pub(crate) fn go(&mut self, from: usize) -> Option<usize> {
        let mut at = from;
        while at < self.lines.len() {
            let line = self.lines[at].trim_end_matches(';');
            at += 1;
            if line.is_empty() || line.starts_with(['.', '}']) || line.ends_with(':') {
                continue;
            }
            let (guard, line) = match line.strip_prefix('@') {
                Some(rest) => rest.split_once(' ').expect("a guarded statement"),
                None => ("", line),
            };
            if !guard.is_empty() && self.value(guard, "pred") == 0 {
                continue;
            }
            let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
            match word {
                "ret" => return None,
                _ if word.starts_with("mma.sync") => return Some(at - 1),
                "bar.sync" => {}
                "bra" => at = self.labels[rest],
                _ => self.statement(word, rest),
            }
        }
        None
    }

    fn statement(&mut self, word: &str, rest: &str) {
        let parts: Vec<&str> = word.split('.').collect();
        let kind = parts[parts.len() - 1];
        let names: Vec<String> =
            rest.split(", ").map(|name| name.trim_matches(['{', '}']).to_string()).collect();
        match parts[0] {
            "ld" if parts[1] == "param" => {
                let slot = names[1].rsplit_once("data").expect("an array").1.trim_end_matches(']');
                let slot: u64 = slot.parse().expect("a slot");
                self.registers.insert(names[0].clone(), slot << 32);
            }
            "ld" | "st" => self.access(&parts, &names),
            _ => {
                // The type of the sources: the last word, but for `selp` and `setp` of a gate.
                let src: Vec<u64> = names[1..].iter().map(|name| self.value(name, kind)).collect();
                self.registers.insert(names[0].clone(), compute(&parts, &src));
            }
        }
    }

    /// Loads or stores one register after the other.
    fn access(&mut self, parts: &[&str], names: &[String]) {
        let is_load = parts[0] == "ld";
        let (place, registers) = match is_load {
            true => (&names[names.len() - 1], &names[..names.len() - 1]),
            false => (&names[0], &names[1..]),
        };
        let (base, offset) =
            place.trim_matches(['[', ']']).split_once('+').expect("an address and an offset");
        let address = self.value(base, "u64") + offset.parse::<u64>().expect("a number");
        let kind = parts[parts.len() - 1];
        let size = width(kind) as usize / 8;
        let array = (address >> 32) as usize;
        for (lane, name) in registers.iter().enumerate() {
            let start = (address & 0xffff_ffff) as usize + lane * size;
            assert_eq!(start % size, 0, "an access at a multiple of its size");
            if is_load {
                let bytes = &self.arrays[array][start..start + size];
                let bits = bytes.iter().rev().fold(0, |bits, byte| bits << 8 | u64::from(*byte));
                let bits = if kind.starts_with('s') { int(bits, kind) as u64 } else { bits };
                self.registers.insert(name.clone(), bits);
            } else {
                let bits = self.value(name, kind).to_le_bytes();
                self.arrays[array][start..start + size].copy_from_slice(&bits[..size]);
            }
        }
    }

    fn value(&self, name: &str, kind: &str) -> u64 {
        match name {
            "%ctaid.x" => self.place.0,
            "%tid.x" => self.place.1,
            _ if name.starts_with('%') => {
                *self.registers.get(name).unwrap_or_else(|| panic!("{name} has no value"))
            }
            _ => {
                let hex = |digits: &str| u64::from_str_radix(digits, 16).expect("hex digits");
                let prefixed = ["0f", "0d", "0x"].iter().find_map(|p| name.strip_prefix(p));
                match prefixed {
                    Some(digits) => hex(digits),
                    None => name.parse::<i128>().expect("a number") as u64 & mask(kind),
                }
            }
        }
    }
}

fn width(kind: &str) -> u32 {
    let digits = kind.trim_start_matches(|c: char| !c.is_ascii_digit());
    digits.parse().unwrap_or(1)
}

fn mask(kind: &str) -> u64 {
    if width(kind) == 64 { u64::MAX } else { (1 << width(kind)) - 1 }
}

/// The integer that the low bits are.
fn int(bits: u64, kind: &str) -> i128 {
    let shift = 64 - width(kind);
    match kind.starts_with('s') {
        true => i128::from(((bits << shift) as i64) >> shift),
        false => i128::from(bits & mask(kind)),
    }
}

fn float(bits: u64, kind: &str) -> f64 {
    let dtype = DType::from_name(kind).expect("a float");
    Constant::from_bits(dtype, bits).to_float().expect("a float")
}

fn of_float(value: f64, kind: &str) -> u64 {
    Constant::float(DType::from_name(kind).expect("a float"), value).bits()
}

fn compute(parts: &[&str], src: &[u64]) -> u64 {
    let kind = parts[parts.len() - 1];
    match parts[0] {
        // Two 16-bit floats in one register.
        "mov" if src.len() == 2 => src[0] | src[1] << 16,
        "cvt" if parts[1] == "rna" => (src[0] + 0x1000) & 0xffff_e000,
        "mov" | "cvta" => src[0],
        "selp" => {
            if src[2] != 0 {
                src[0]
            } else {
                src[1]
            }
        }
        "setp" => u64::from(compare(parts[1], kind, src[0], src[1])),
        "cvt" => convert(parts, src[0]),
        "not" => u64::from(src[0] == 0),
        "and" => src[0] & src[1],
        "or" => src[0] | src[1],
        "xor" => src[0] ^ src[1],
        "shl" => {
            if src[1] < 64 {
                src[0] << src[1] & mask(kind)
            } else {
                0
            }
        }
        "shr" => (int(src[0], kind) >> src[1].min(64)) as u64 & mask(kind),
        word if kind == "f32" => of_f32(word, src),
        word if kind == "f64" => of_f64(word, src),
        word => {
            let is_wide = parts[1] == "wide";
            let values: Vec<i128> = src.iter().map(|bits| int(*bits, kind)).collect();
            let mask = if is_wide { u64::MAX } else { mask(kind) };
            of_int(word, &values) as u64 & mask
        }
    }
}

fn compare(order: &str, kind: &str, x: u64, y: u64) -> bool {
    if kind.starts_with('f') {
        let (x, y) = (float(x, kind), float(y, kind));
        return match order {
            "lt" => x < y,
            "gt" => x > y,
            "neu" => x != y,
            "nan" => x.is_nan() || y.is_nan(),
            _ => panic!("setp.{order}.{kind}"),
        };
    }
    let (x, y) = (int(x, kind), int(y, kind));
    match order {
        "lt" => x < y,
        "ge" => x >= y,
        "ne" => x != y,
        "eq" => x == y,
        _ => panic!("setp.{order}.{kind}"),
    }
}

fn of_int(word: &str, v: &[i128]) -> i128 {
    match word {
        "add" => v[0] + v[1],
        "sub" => v[0] - v[1],
        "mul" => v[0].wrapping_mul(v[1]),
        "mad" => v[0].wrapping_mul(v[1]).wrapping_add(v[2]),
        "neg" => -v[0],
        "min" => v[0].min(v[1]),
        "max" => v[0].max(v[1]),
        // By zero any value comes out.
        "div" => v[0].checked_div(v[1]).unwrap_or(-1),
        "rem" => v[0].checked_rem(v[1]).unwrap_or(-1),
        _ => panic!("{word} of integers"),
    }
}

macro_rules! of_float_type {
    ($name:ident, $float:ty, $bits:ty) => {
        fn $name(word: &str, src: &[u64]) -> u64 {
            let v: Vec<$float> =
                src.iter().map(|bits| <$float>::from_bits(*bits as $bits)).collect();
            let value = match word {
                "add" => v[0] + v[1],
                "sub" => v[0] - v[1],
                "mul" => v[0] * v[1],
                "div" => v[0] / v[1],
                "neg" => -v[0],
                "rcp" => 1.0 / v[0],
                "sqrt" => v[0].sqrt(),
                "ex2" => v[0].exp2(),
                "fma" => v[0].mul_add(v[1], v[2]),
                _ => panic!("{word} of floats"),
            };
            value.to_bits().into()
        }
    };
}
of_float_type!(of_f32, f32, u32);
of_float_type!(of_f64, f64, u64);

fn convert(parts: &[&str], bits: u64) -> u64 {
    let (from, to) = (parts[parts.len() - 1], parts[parts.len() - 2]);
    let mode = if parts.len() == 4 { parts[1] } else { "" };
    match (from.contains('f'), to.contains('f')) {
        (false, false) => int(bits, from) as u64 & mask(to),
        (true, false) => {
            assert_eq!(mode, "rzi");
            let value = float(bits, from);
            let (low, high) = match (width(to), to.starts_with('s')) {
                (32, true) => (i128::from(i32::MIN), i128::from(i32::MAX)),
                (32, false) => (0, i128::from(u32::MAX)),
                (_, true) => (i128::from(i64::MIN), i128::from(i64::MAX)),
                (_, false) => (0, i128::from(u64::MAX)),
            };
            (value.trunc() as i128).clamp(low, high) as u64 & mask(to)
        }
        (true, true) if mode == "rz" => {
            let value = float(bits, from);
            cut(value as f32, |cut| f64::from(cut).abs() > value.abs())
        }
        (true, true) => of_float(float(bits, from), to),
        (false, true) if mode == "rz" => {
            let value = int(bits, from);
            cut(value as f32, |cut| (cut as i128).abs() > value.abs())
        }
        (false, true) => {
            Constant::int(DType::from_name(to).expect("a float"), int(bits, from)).bits()
        }
    }
}

/// The next float toward zero where the nearest one is too far away from it.
fn cut(nearest: f32, is_beyond: impl Fn(f32) -> bool) -> u64 {
    let bits = nearest.to_bits();
    u64::from(if is_beyond(nearest) { bits - 1 } else { bits })
}
