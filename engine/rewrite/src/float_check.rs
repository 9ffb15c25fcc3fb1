//! Every row about floats, checked over all values of f16; of pairs one is notable and the other
//! one of every 29 values. Ulps are counted from the result in f64.

use gradiff_graph::{Arg, Constant, DType, Op, Sources, UOp, Variable, evaluate};

use crate::driver::{Options, Scope, Trace};
use crate::pattern::{Bindings, Pattern, Slots};
use crate::rule::{Claim, Rule, Types, row};
use crate::ruleset::RuleSet;

const NOTABLE: [f64; 20] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -0.5,
    2.0,
    -2.0,
    3.0,
    0.333,
    1e-7,
    -6e-8,
    65504.0,
    -65504.0,
    100.0,
    -7.25,
    f64::INFINITY,
    f64::NEG_INFINITY,
    f64::NAN,
    6.1e-5,
];

fn variable(dtype: DType, slot: usize) -> UOp {
    let variable = Variable { name: format!("v{slot}"), min: 0, max: 1 };
    UOp::new(Op::DefineVar, dtype, Sources::new(), Arg::Var(variable.into()))
}

/// The value, computed in `dtype` in place of f16; false if something on the way was not finite.
fn value(node: &UOp, given: &[(UOp, Constant)], dtype: DType) -> Option<(Constant, bool)> {
    let converted = |value: Constant| match value.to_float() {
        Some(number) => Constant::float(dtype, number),
        None => value,
    };
    let known = given.iter().find(|(variable, _)| variable == node).map(|(_, value)| *value);
    let (found, is_finite) = match node.as_const().or(known) {
        Some(value) => (converted(value), true),
        None => {
            let (mut src, mut is_finite) = (Vec::new(), true);
            for source in node.src() {
                let (value, finite) = value(source, given, dtype)?;
                src.push(value);
                is_finite &= finite;
            }
            let to = if node.dtype().is_float() { dtype } else { node.dtype() };
            (evaluate(node.op(), to, &src)?, is_finite)
        }
    };
    Some((found, is_finite && found.to_float().is_none_or(f64::is_finite)))
}

fn is_as_claimed(claim: Claim, left: &UOp, right: &UOp, given: &[(UOp, Constant)]) -> bool {
    let at = |node: &UOp, dtype| value(node, given, dtype).expect("a value");
    let ((expected, is_finite), (found, _)) = (at(left, DType::F16), at(right, DType::F16));
    let (Some(x), Some(y)) = (expected.to_float(), found.to_float()) else {
        return expected == found || claim == Claim::Finite && !is_finite;
    };
    match claim {
        Claim::Finite if !is_finite => true,
        Claim::Value if x == y => true,
        Claim::Ulp(count) if !x.is_nan() && !y.is_nan() => {
            let exact = at(left, DType::F64).0.to_float().expect("a float");
            let nearest = Constant::float(DType::F16, exact).to_float().expect("a float");
            // The distance of neighbours at the exact result; 2^-24 among subnormals.
            let unit = (2f64.powi(-10) * nearest.abs().log2().floor().exp2()).max(2f64.powi(-24));
            let is_far_out = exact.abs() >= 65520.0 && y.abs() >= 65504.0;
            y == nearest || is_far_out || (y - exact).abs() <= f64::from(count) * unit
        }
        _ => expected == found || x.is_nan() && y.is_nan(),
    }
}

/// How often the sides were compared; an error names the first point at which they differ.
pub(crate) fn check(rule: Rule) -> Result<usize, String> {
    let set = RuleSet::load(&[&[rule]]).map_err(|error| error.to_string())?;
    let (options, mut trace) = (Options::default(), Trace::default());
    let mut scope = Scope::new(&set, &options, &mut trace);
    let mut slots = Slots::new();
    // A number made of a truth value has a name here: no pattern says its type.
    let text = rule.lhs.replace("(cast s)", "s");
    let lhs = Pattern::parse_left(&text, &mut slots)?;
    let half = |value: f64| Constant::float(DType::F16, value);
    let notable: Vec<Constant> = NOTABLE.map(half).to_vec();
    let truths = [false, true].map(Constant::bool).to_vec();
    let names: Vec<&str> = (1..slots.count()).map(|slot| slots.name(slot)).collect();
    let is_constant = |name: &str| name.starts_with('c');
    let mut compared = 0;
    let (shifts, step) = if names.len() == 1 { (1, 1) } else { (names.len(), 29) };
    let all = (0..=u16::MAX).step_by(step);
    let all: Vec<Constant> = all.map(|x| Constant::from_bits(DType::F16, x.into())).collect();
    for (fixed, wide) in notable.iter().flat_map(|x| (0..shifts).map(move |wide| (x, wide))) {
        let constants = notable.iter().filter(|_| names.len() > 2).chain([fixed]);
        for constant in constants {
            let nodes: Vec<UOp> = (0..names.len())
                .map(|slot| match names[slot] {
                    "s" => UOp::unary(Op::Cast, DType::F16, variable(DType::Bool, slot)),
                    name if is_constant(name) && slot + 1 == names.len() => {
                        UOp::constant(*constant)
                    }
                    name if is_constant(name) => UOp::constant(*fixed),
                    _ => variable(DType::F16, slot),
                })
                .collect();
            let mut bound = Bindings::default();
            (1..).zip(&nodes).for_each(|(slot, node)| {
                bound.bind(slot, node);
            });
            let root =
                if lhs.op().is_some_and(Op::is_comparison) { DType::Bool } else { DType::F16 };
            let left =
                lhs.build(root, &bound, &mut scope).ok_or("the left side cannot be built")?;
            let Some(right) = set.get(0).apply(&left, &mut scope) else { continue };
            let points = match names[wide] {
                "s" => &truths,
                _ if nodes[wide].op() == Op::Const => continue,
                _ => &all,
            };
            for point in points {
                let given: Vec<(UOp, Constant)> = (0..nodes.len())
                    .filter(|slot| nodes[*slot].op() != Op::Const)
                    .map(|slot| {
                        let node = nodes[slot].src().first().unwrap_or(&nodes[slot]);
                        (node.clone(), if slot == wide { *point } else { *fixed })
                    })
                    .collect();
                compared += 1;
                if !is_as_claimed(rule.claim, &left, &right, &given) {
                    let (left, right) = (gradiff_graph::infix(&left), gradiff_graph::infix(&right));
                    return Err(format!("{}: {left}, {right} at {given:?}", rule.name));
                }
            }
        }
        if names.len() == 1 {
            break;
        }
    }
    Ok(compared)
}

#[test]
fn every_row_keeps_its_claim_over_all_of_f16() {
    let rows = crate::rules::all().filter(|rule| rule.name.starts_with("float/"));
    let mut problems = Vec::new();
    for rule in rows {
        match check(*rule) {
            Err(problem) => problems.push(problem),
            Ok(compared) if compared < 2 => problems.push(format!("{} never fired", rule.name)),
            Ok(_) => {}
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn check_stronger_claims_fails() {
    let rows = crate::rules::all().filter(|rule| rule.name.starts_with("float/"));
    // What a claim weaker than Bits costs is shown by an input: but for pow, whose library is exact
    // enough in f16, and the larger of two zeros, which is the second one here.
    let is_shown = |rule: &&Rule| {
        let starts = ["float/pow-", "float/two-", "float/half-", "float/max-", "float/min-"];
        rule.claim != Claim::Bits && !starts.iter().any(|start| rule.name.starts_with(start))
    };
    for rule in rows.filter(is_shown) {
        assert!(check(Rule { claim: Claim::Bits, ..*rule }).is_err(), "{}", rule.name);
    }
    let floats = |claim| (Types::Floats, claim);
    let wrong = [
        row("test/sqrt", floats(Claim::Ulp(1)), "(pow x 0.5)", "(sqrt x)", "", "", ""),
        row("test/cube", floats(Claim::Bits), "(pow x 3.0)", "(mul (mul x x) x)", "", "", ""),
        row("test/square", floats(Claim::Finite), "(sqrt (mul x x))", "x", "", "", ""),
    ];
    for rule in wrong {
        assert!(check(rule).is_err(), "{}", rule.name);
    }
}
