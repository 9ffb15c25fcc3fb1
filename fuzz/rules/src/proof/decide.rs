//! The decision of a rule: the queries, their order, and the meaning of the answers.
//!
//! Integer rules are first asked over an integer type of any width. Where that fails, each width
//! is asked by itself: over the integers with wrapping, then over bit-vectors. The bit-vectors are
//! as wide as the exact numbers of the rule require, so they are no approximation either.

use gradiff_graph::DType;
use gradiff_rewrite::syntax::{ParsedRule, Pattern};

use super::encode::{Encoder, Overflow, Type};
use super::induction::{self, Iterations};
use super::number::Theory;
use super::statics::{bitcasts, is_index, is_of_one_size, never};
use super::typing::{FLOATS, INTS, Kind, Typing};
use super::{Obligation, Unsupported, parsed};

/// The answer of a solver to one query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// No counter-example exists.
    Unsat,
    /// A counter-example exists; the text is the answer to `(get-value ...)` of the obligation's
    /// values.
    Sat(String),
    /// The solver gave up.
    Unknown,
}

/// The result of all queries about a rule.
#[derive(Clone, Debug)]
pub(super) enum Finding {
    /// Each obligation was proved.
    Proved,
    /// An obligation was not proved: which one and why.
    Open(String),
    /// The solver found values for which the sides differ.
    Sat { types: Vec<Option<Type>>, values: String, label: String },
}

/// Types of all classes of a rule.
pub(super) type Types = Vec<Option<Type>>;

/// An encoding of queries: the reading of nodes, and whether numbers are bit-vectors.
type Manner = (Overflow, bool);

/// The encodings that are tried for a typing, and the typings of each width if they all fail.
struct Case {
    types: Types,
    manners: Vec<Manner>,
    widths: Vec<Types>,
}

const OVER_INTEGERS: bool = false;
const OVER_VECTORS: bool = true;
const WIDTHS: [Manner; 2] = [(Overflow::Wrapped, OVER_INTEGERS), (Overflow::Wrapped, OVER_VECTORS)];

/// Asks until the rule is decided.
pub(super) fn decide(
    rule: &ParsedRule,
    ask: &mut dyn FnMut(&Obligation) -> Answer,
) -> Result<Finding, Unsupported> {
    if parsed::is_computed(rule) {
        return Err(Unsupported::new("the right side is computed"));
    }
    if matches!(rule.row.claim, gradiff_rewrite::Claim::Finite | gradiff_rewrite::Claim::Ulp(_)) {
        return Err(Unsupported::new("the claim is about exact reals or finite values"));
    }
    let typing = Typing::new(rule);
    let mut is_empty = true;
    for case in cases(rule, &typing) {
        is_empty = false;
        let mut finding = attempt(rule, &typing, &case.types, &case.manners, ask);
        if !matches!(finding, Finding::Proved) && !case.widths.is_empty() {
            finding = Finding::Proved;
            for types in &case.widths {
                let found = attempt(rule, &typing, types, &WIDTHS, ask);
                if !matches!(found, Finding::Proved) {
                    finding = found;
                    break;
                }
            }
        }
        match finding {
            Finding::Proved => {}
            // Small cases search for counter-examples to the other typings.
            Finding::Sat { .. } | Finding::Open(_) => return Ok(finding),
        }
    }
    if is_empty { Err(Unsupported::new("no dtype fits the rule")) } else { Ok(Finding::Proved) }
}

/// The obligations of the first encoding that exists, for each typing.
pub(super) fn obligations(rule: &ParsedRule) -> Result<Vec<Obligation>, Unsupported> {
    let typing = Typing::new(rule);
    let mut obligations = Vec::new();
    for case in cases(rule, &typing) {
        let mut encoded = first_encoded(rule, &typing, &case.types, &case.manners);
        if encoded.is_err() && !case.widths.is_empty() {
            let each = case.widths.iter().map(|types| first_encoded(rule, &typing, types, &WIDTHS));
            encoded = each.collect::<Result<Vec<_>, _>>().map(|lists| lists.concat());
        }
        obligations.extend(encoded?);
    }
    Ok(obligations)
}

fn first_encoded(
    rule: &ParsedRule,
    typing: &Typing,
    types: &Types,
    manners: &[Manner],
) -> Result<Vec<Obligation>, Unsupported> {
    let mut problem = Unsupported::new("the rule has no encoding");
    for manner in manners {
        match queries(rule, typing, types, *manner) {
            Ok(found) => return Ok(found),
            Err(unsupported) => problem = unsupported,
        }
    }
    Err(problem)
}

/// Tries the encodings in order until one proves all obligations.
fn attempt(
    rule: &ParsedRule,
    typing: &Typing,
    types: &Types,
    manners: &[Manner],
    ask: &mut dyn FnMut(&Obligation) -> Answer,
) -> Finding {
    let mut finding = Finding::Open(String::from("the rule has no encoding"));
    for manner in manners {
        let obligations = match queries(rule, typing, types, *manner) {
            Ok(obligations) => obligations,
            Err(Unsupported(problem)) => {
                if !matches!(finding, Finding::Sat { .. }) {
                    finding = Finding::Open(problem);
                }
                continue;
            }
        };
        let failed = obligations.iter().find_map(|obligation| {
            let label = || obligation.label.clone();
            match ask(obligation) {
                Answer::Unsat => None,
                Answer::Unknown => Some(Finding::Open(format!("no answer to: {}", label()))),
                Answer::Sat(values) => {
                    Some(Finding::Sat { types: types.clone(), values, label: label() })
                }
            }
        });
        match failed {
            None => return Finding::Proved,
            // A query over any width may have too few facts; one that wraps has all of them.
            Some(found) if manner.0 == Overflow::Wrapped => return found,
            Some(found) => finding = found,
        }
    }
    finding
}

fn queries(
    rule: &ParsedRule,
    typing: &Typing,
    types: &Types,
    (overflow, is_over_vectors): Manner,
) -> Result<Vec<Obligation>, Unsupported> {
    if matches!(rule.lhs, Pattern::Reduce(..)) {
        let mut obligations = Vec::new();
        for iterations in Iterations::of(rule) {
            let encoder = induction::write(rule, typing, types, iterations)?;
            let manner = format!("{}, {}", named(types), iterations.name());
            obligations.extend(encoder.obligations(&manner));
        }
        return Ok(obligations);
    }
    let write = |theory| Encoder::write(rule, typing, types, theory, overflow);
    let encoder = if is_over_vectors {
        let first = write(Theory::Vectors(WIDE))?;
        write(Theory::Vectors(first.script.widest + 1))?
    } else {
        write(Theory::Unbounded)?
    };
    let manner = match (overflow, is_over_vectors) {
        (Overflow::Wrapped, false) => "wrapping",
        (Overflow::Wrapped, true) => "bit-vectors",
        _ => "exact",
    };
    Ok(encoder.obligations(&format!("{}, {manner}", named(types))))
}

/// A width that every number of a rule fits, to measure the width that they need.
const WIDE: u32 = 1024;

/// The dtypes of a typing as text.
fn named(types: &Types) -> String {
    let names: Vec<String> = types
        .iter()
        .flatten()
        .map(|kind| match kind {
            Type::Any { is_signed: true } => String::from("signed"),
            Type::Any { is_signed: false } => String::from("unsigned"),
            Type::Int(dtype) | Type::Float(dtype) | Type::Raw(dtype) => dtype.to_string(),
            Type::Bool => String::from("bool"),
            Type::Void => String::from("void"),
        })
        .collect();
    names.join(" ")
}

fn cases(rule: &ParsedRule, typing: &Typing) -> Vec<Case> {
    let mut found = Vec::new();
    let raw = bitcasts(rule, typing);
    if !raw.is_empty() {
        let choices = |class: usize, kind: Kind| match kind {
            Kind::Int if raw.concat().contains(&class) => INTS.map(Type::Raw).to_vec(),
            Kind::Float if raw.concat().contains(&class) => FLOATS.map(Type::Raw).to_vec(),
            Kind::Bool => vec![Type::Raw(DType::Bool)],
            Kind::Int => any_ints(),
            Kind::Float => FLOATS.map(Type::Float).to_vec(),
            Kind::Void => vec![Type::Void],
        };
        for types in typing.assignments().iter().flat_map(|kinds| product(kinds, &choices)) {
            if is_of_one_size(&raw, &types) && !is_never(rule, typing, &types) {
                let manners = vec![(Overflow::Wrapped, OVER_INTEGERS)];
                found.push(Case { types, manners, widths: Vec::new() });
            }
        }
        return found;
    }
    let is_reduction = matches!(rule.lhs, Pattern::Reduce(..));
    for kinds in typing.assignments() {
        let count = |wanted| kinds.iter().filter(|kind| **kind == Some(wanted)).count();
        let (ints, floats) = (count(Kind::Int), count(Kind::Float));
        if ints == 1 && floats == 0 && !is_reduction {
            for is_signed in [true, false] {
                found.extend(one_int(rule, typing, &kinds, is_signed));
            }
            continue;
        }
        let choices = |class, kind: Kind| match kind {
            Kind::Int if is_reduction => any_ints(),
            // Names that are only indices are numbers; these types have the values of all others.
            Kind::Int if is_index(rule, typing, class) => {
                [DType::I64, DType::U64].map(Type::Int).to_vec()
            }
            Kind::Int => INTS.map(Type::Int).to_vec(),
            Kind::Float => FLOATS.map(Type::Float).to_vec(),
            Kind::Bool => vec![Type::Bool],
            Kind::Void => vec![Type::Void],
        };
        for types in product(&kinds, &choices) {
            if !is_never(rule, typing, &types) {
                let exact = vec![(Overflow::Proved, OVER_INTEGERS)];
                let manners = if is_reduction { exact } else { WIDTHS.to_vec() };
                found.push(Case { types, manners, widths: Vec::new() });
            }
        }
    }
    found
}

/// The case of a single integer type, signed or not: of any width, else of each width.
fn one_int(
    rule: &ParsedRule,
    typing: &Typing,
    kinds: &[Option<Kind>],
    is_signed: bool,
) -> Option<Case> {
    let types_with = |int: Type| -> Types {
        let kind = |kind: &Option<Kind>| {
            kind.map(|kind| match kind {
                Kind::Int => int,
                Kind::Bool => Type::Bool,
                _ => Type::Void,
            })
        };
        kinds.iter().map(kind).collect()
    };
    let types = types_with(Type::Any { is_signed });
    let of_sign = INTS.iter().filter(|dtype| dtype.is_signed() == is_signed);
    let widths: Vec<Types> = of_sign.map(|dtype| types_with(Type::Int(*dtype))).collect();
    let widths: Vec<Types> =
        widths.into_iter().filter(|types| !is_never(rule, typing, types)).collect();
    let manners = vec![(Overflow::Proved, OVER_INTEGERS)];
    (!widths.is_empty()).then_some(Case { types, manners, widths })
}

/// An integer type of any width.
fn any_ints() -> Vec<Type> {
    [true, false].map(|is_signed| Type::Any { is_signed }).to_vec()
}

/// All ways to choose a type for each class.
fn product(kinds: &[Option<Kind>], choices: &dyn Fn(usize, Kind) -> Vec<Type>) -> Vec<Types> {
    let mut found: Vec<Types> = vec![Vec::new()];
    for (class, kind) in kinds.iter().enumerate() {
        let choices = kind.map(|kind| choices(class, kind).into_iter().map(Some).collect());
        let choices: Vec<Option<Type>> = choices.unwrap_or(vec![None]);
        let with = |types: &Types| -> Vec<Types> {
            choices.iter().map(|choice| [types.as_slice(), &[*choice]].concat()).collect()
        };
        found = found.iter().flat_map(with).collect();
    }
    found
}

fn is_never(rule: &ParsedRule, typing: &Typing, types: &Types) -> bool {
    let of_slot = |slot: usize| typing.of_slot(slot).and_then(|class| types[class]);
    parsed::conditions(rule).any(|condition| never(condition, &of_slot))
}
