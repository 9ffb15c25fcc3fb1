//! Answers of a solver to `(get-value ...)`, as constants.

use gradiff_graph::{Constant, DType};

/// One expression of the answer.
#[derive(Clone, Debug, PartialEq)]
enum Item {
    Word(String),
    List(Vec<Item>),
}

/// Names and their values as the solver wrote them: `((v_x (- 3)) (v_c0 #x05))`.
pub(super) fn values(
    text: &str,
    dtype_of: &dyn Fn(&str) -> Option<DType>,
) -> Vec<(String, Constant)> {
    let Some(Item::List(pairs)) = parse(text) else { return Vec::new() };
    let pair = |item: &Item| {
        let Item::List(pair) = item else { return None };
        let [Item::Word(name), value] = pair.as_slice() else { return None };
        let name = name.strip_prefix("v_")?;
        Some((name.to_owned(), constant(value, dtype_of(name)?)?))
    };
    pairs.iter().filter_map(pair).collect()
}

fn parse(text: &str) -> Option<Item> {
    let spaced = text.replace('(', " ( ").replace(')', " ) ");
    let mut stack: Vec<Vec<Item>> = vec![Vec::new()];
    for word in spaced.split_whitespace() {
        match word {
            "(" => stack.push(Vec::new()),
            ")" => {
                let list = stack.pop()?;
                stack.last_mut()?.push(Item::List(list));
            }
            _ => stack.last_mut()?.push(Item::Word(word.to_owned())),
        }
    }
    stack.pop()?.into_iter().next()
}

fn constant(value: &Item, dtype: DType) -> Option<Constant> {
    match value {
        Item::Word(word) if word == "true" || word == "false" => {
            Some(Constant::bool(word == "true"))
        }
        Item::Word(word) if word.starts_with('#') => {
            let (bits, width) = bits(word)?;
            if dtype.is_float() {
                return Some(Constant::from_bits(dtype, bits as u64));
            }
            let shift = 128 - width;
            Some(Constant::int(dtype, ((bits << shift) as i128) >> shift))
        }
        Item::Word(word) => Some(Constant::int(dtype, word.parse().ok()?)),
        Item::List(items) => list(items, dtype),
    }
}

fn list(items: &[Item], dtype: DType) -> Option<Constant> {
    let words: Vec<&str> = items
        .iter()
        .map(|item| match item {
            Item::Word(word) => word.as_str(),
            Item::List(_) => "",
        })
        .collect();
    match words.as_slice() {
        ["-", number] => Some(Constant::int(dtype, -number.parse::<i128>().ok()?)),
        ["fp", sign, exponent, mantissa] => {
            let mut float_bits = 0;
            for word in [sign, exponent, mantissa] {
                let (bits, width) = bits(word)?;
                float_bits = (float_bits << width) | bits;
            }
            Some(Constant::from_bits(dtype, float_bits as u64))
        }
        ["_", "+zero", ..] => Some(Constant::float(dtype, 0.0)),
        ["_", "-zero", ..] => Some(Constant::float(dtype, -0.0)),
        ["_", "+oo", ..] => Some(Constant::float(dtype, f64::INFINITY)),
        ["_", "-oo", ..] => Some(Constant::float(dtype, f64::NEG_INFINITY)),
        ["_", "NaN", ..] => Some(Constant::float(dtype, f64::NAN)),
        _ => None,
    }
}

/// The bits of `#x0f` or `#b01`, and their number; at most 128.
fn bits(word: &str) -> Option<(u128, u32)> {
    let (digits, radix, each) = match word.get(..2)? {
        "#x" => (&word[2..], 16, 4),
        "#b" => (&word[2..], 2, 1),
        _ => return None,
    };
    // A wider number fits in 128 bits and is extended by its sign.
    let keep = (128 / each) as usize;
    let digits = &digits[digits.len().saturating_sub(keep)..];
    Some((u128::from_str_radix(digits, radix).ok()?, each * u32::try_from(digits.len()).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_each_kind_are_read() {
        let dtype_of = |name: &str| match name {
            "b" => Some(DType::Bool),
            "h" | "z" => Some(DType::F16),
            _ => Some(DType::I8),
        };
        let text = "((v_x (- 3))\n (v_c0 #xfe) (v_b true) (v_h (fp #b1 #b01111 #b1000000000)) \
                    (v_z (_ -zero 5 11)) (other 3))";
        let found = values(text, &dtype_of);
        let expected = [
            ("x", Constant::int(DType::I8, -3)),
            ("c0", Constant::int(DType::I8, -2)),
            ("b", Constant::bool(true)),
            ("h", Constant::float(DType::F16, -1.5)),
            ("z", Constant::float(DType::F16, -0.0)),
        ];
        let expected: Vec<_> =
            expected.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        assert_eq!(found, expected);
        assert_eq!(values("(error \"no model\")", &dtype_of), []);
        assert_eq!(values(")(", &dtype_of), []);
    }
}
