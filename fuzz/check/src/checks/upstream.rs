//! Checks of a peer's shape trackers and index expressions, for peers that have their own.
//!
//! In: cases, of which a peer says where elements are, or what an expression is at points. Out:
//! what contradicts the model of real elements, or the meaning of the written expression.

use gradiff_corpus::{Case, ExprCase, ViewOps};
use serde_json::{Value, json};

use crate::backends::engine::Turn;
use crate::backends::peer::Peer;
use crate::checks::exprs::{points, unlimited};
use crate::models::columns::Column;
use crate::models::model::{Checker, Model};
use crate::{Kind, Outcome};

/// Points at which an expression is compared.
const POINTS: usize = 64;
/// Points that a script shows.
const SCRIPT_POINTS: usize = 4;

/// The check of a case by a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Everything agrees. Of an expression, the number of operations that are left, and their text.
    Right(u64, String),
    /// It does not have what the case needs, for this reason.
    Skipped(String),
    /// The kind of failure; the first difference, or how the peer failed.
    Wrong(Kind, String),
}

/// A peer that has shape trackers or index expressions.
pub struct Upstream(Peer);

impl Upstream {
    /// Opens the peer of this name, as `tinygrad@0.10.2`.
    ///
    /// # Errors
    /// It is not available.
    pub fn open(name: &str) -> Result<Upstream, String> {
        Peer::open(name, Turn::ALWAYS).map(Upstream)
    }

    /// The reason why it cannot be asked about cases like this one; `None` if it can.
    pub fn missing(&self, case: &Case) -> Option<String> {
        let (request, things) = match case {
            Case::Program(_) => ("run", "programs"),
            Case::Views(_) => ("views", "shape trackers"),
            Case::Expr(_) => ("exprs", "index expressions"),
        };
        (!self.0.answers(request)).then(|| format!("it has no {things}"))
    }

    /// Checks cases that are all sequences of movements, or all expressions. If the peer dies or
    /// answers otherwise than it should, each is asked about alone.
    pub fn check(&self, cases: &[Case]) -> Vec<Answer> {
        match self.asked(cases) {
            Ok(answers) => answers,
            Err((kind, reason)) if cases.len() < 2 => {
                vec![Answer::Wrong(kind, reason); cases.len()]
            }
            Err(_) => {
                cases.iter().flat_map(|case| self.check(std::slice::from_ref(case))).collect()
            }
        }
    }

    /// # Errors
    /// The peer did not answer for each case.
    fn asked(&self, cases: &[Case]) -> Result<Vec<Answer>, (Kind, String)> {
        let Some(first) = cases.first() else { return Ok(Vec::new()) };
        if let Some(reason) = self.missing(first) {
            return Ok(vec![Answer::Skipped(reason); cases.len()]);
        }
        let request = match first {
            Case::Program(_) => return Ok(vec![Answer::Skipped("a program".into()); cases.len()]),
            Case::Views(_) => "views",
            Case::Expr(_) => "exprs",
        };
        let asked: Vec<Value> = cases.iter().map(question).collect();
        let answer = self.0.ask(json!({ request: asked }));
        let answer = answer.map_err(|outcome| match outcome {
            Outcome::Timeout(_) => (Kind::Timeout, outcome.reason("answer")),
            Outcome::Environment(_) => (Kind::Environment, outcome.reason("answer")),
            _ => (Kind::Crash, outcome.reason("answer")),
        })?;
        let answers = answer[request].as_array().filter(|list| list.len() == cases.len());
        let answers =
            answers.ok_or_else(|| (Kind::Crash, format!("an answer without {request}")))?;
        Ok(cases.iter().zip(answers).map(|(case, answer)| judged(case, answer)).collect())
    }
}

/// Asks a peer about a sequence of movements or an expression. A peer that is not available skips
/// it.
pub fn ask(name: &str, case: &Case) -> Answer {
    match Upstream::open(name) {
        Ok(upstream) => {
            let answer = upstream.check(std::slice::from_ref(case)).pop();
            answer.unwrap_or_else(|| Answer::Skipped("it gave no answer".to_string()))
        }
        Err(reason) => Answer::Skipped(reason),
    }
}

/// A script for the framework of a peer that shows what is wrong with a case: the elements, strides
/// or inverse of a tracker, or an expression at a few points.
///
/// # Errors
/// The peer is not available, finds nothing wrong with the case, or writes no scripts.
pub(crate) fn script(name: &str, case: &Case) -> Result<String, String> {
    let upstream = Upstream::open(name)?;
    let Some(Answer::Wrong(_, detail)) = upstream.check(std::slice::from_ref(case)).pop() else {
        return Err("nothing is wrong".to_string());
    };
    let mut subject = question(case);
    let (about, expected) = match case {
        Case::Program(_) => return Err("a program".to_string()),
        Case::Views(views) => {
            let (model, about) = (moved(views), about(&detail));
            let is_inverted = model.has_all_once(views.shape.iter().product());
            let expected = match about {
                "inverse" if is_inverted => json!(model.inverse(&views.shape).origin),
                "inverse" => Value::Null,
                _ => json!(model.origin.iter().map(|at| (*at).max(-1)).collect::<Vec<i32>>()),
            };
            (about, expected)
        }
        Case::Expr(expr) => {
            let answer = upstream.0.ask(json!({ "exprs": [subject] })).unwrap_or_default();
            let points = Points::of(expr);
            let known = |number: &usize| points.expected.at(*number).is_some();
            let is_wrong = |number: &usize| points.agree(&answer["exprs"][0], *number).is_err();
            let (wrong, right): (Vec<usize>, Vec<usize>) =
                (0..points.list.len()).filter(known).partition(is_wrong);
            let shown: Vec<usize> = wrong.into_iter().chain(right).take(SCRIPT_POINTS).collect();
            let value = |number: &usize| points.expected.at(*number).unwrap_or(0) as i64;
            subject["points"] = shown.iter().map(|at| json!(points.list[*at])).collect();
            ("values", shown.iter().map(value).collect())
        }
    };
    upstream.0.script(json!({ "script": subject, "about": about, "expected": expected }))
}

/// The property of a tracker that a failure is about.
fn about(detail: &str) -> &'static str {
    let forms = ["merged", "simplified", "composed", "inverse"];
    match detail {
        _ if detail.contains("an inverse") => "inverse",
        _ if detail.contains("stride") => "strides",
        _ => forms.into_iter().find(|form| detail.starts_with(form)).unwrap_or("refused"),
    }
}

fn question(case: &Case) -> Value {
    match case {
        Case::Program(_) => Value::Null,
        Case::Views(views) => gradiff_corpus::views_to_json(views),
        Case::Expr(expr) => {
            let mut value = gradiff_corpus::expr_to_json(expr);
            value["points"] = json!(points_of(expr));
            value
        }
    }
}

fn judged(case: &Case, answer: &Value) -> Answer {
    if let Some(reason) = answer["skipped"].as_str() {
        return Answer::Skipped(reason.to_string());
    }
    if let Some(reason) = answer["refused"].as_str() {
        return Answer::Wrong(Kind::Refused, format!("refused: {reason}"));
    }
    let found = match case {
        Case::Program(_) => Err("a program".to_string()),
        Case::Views(views) => view_agrees(views, answer).map(|()| (0, String::new())),
        Case::Expr(expr) => expr_agrees(expr, answer),
    };
    match found {
        Ok((ops, text)) => Answer::Right(ops, text),
        Err(difference) => Answer::Wrong(Kind::Mismatch, difference),
    }
}

// --- Shape trackers ---------------------------------------------------------------------------

fn moved(case: &ViewOps) -> Model {
    case.ops.iter().fold(Model::new(&case.shape), |model, op| model.moved(op))
}

fn view_agrees(case: &ViewOps, answer: &Value) -> Result<(), String> {
    let model = moved(case);
    if answer["shape"] != json!(model.shape) {
        return Err(format!("shape {}, expected {:?}", answer["shape"], model.shape));
    }
    let forms = answer["index"].as_object().filter(|forms| !forms.is_empty());
    for (form, list) in forms.ok_or("an answer without an index")? {
        agrees(&model, list).map_err(|problem| format!("{form}: {problem}"))?;
    }
    let list = |key: &str| answer[key].as_array().ok_or(format!("an answer without {key}"));
    let ([plain, valid], masked) = (strides_of(answer, model.shape.len())?, list("masked")?);
    for (axis, strides) in plain.into_iter().zip(valid).enumerate() {
        let is_masked = masked.get(axis).and_then(Value::as_bool).ok_or("masked has no flag")?;
        Checker::new(&|_| 0).axis_agrees(&model, axis, strides.into(), is_masked)?;
    }
    if answer["inverse"].is_null() {
        return Ok(());
    }
    if !model.has_all_once(case.shape.iter().product()) {
        return Err("an inverse, although not every element occurs once".to_string());
    }
    agrees(&model.inverse(&case.shape), &answer["inverse"])
        .map_err(|problem| format!("inverse: {problem}"))
}

/// The strides of the axes, validity ignored and not, if they have any.
fn strides_of(answer: &Value, rank: usize) -> Result<[Vec<Option<i64>>; 2], String> {
    let stride = |stride: &Value| match stride {
        Value::Null => Some(None),
        stride => stride.as_i64().map(Some),
    };
    let list = |list: &Value| -> Option<Vec<Option<i64>>> {
        list.as_array().filter(|list| list.len() == rank)?.iter().map(stride).collect()
    };
    let lists = answer["strides"].as_array().filter(|lists| lists.len() == 2);
    let lists = lists.and_then(|lists| Some([list(&lists[0])?, list(&lists[1])?]));
    lists.ok_or_else(|| format!("strides {}, expected two lists of {rank}", answer["strides"]))
}

/// Compares the addresses of all elements.
fn agrees(model: &Model, list: &Value) -> Result<(), String> {
    let list = list.as_array().ok_or("no list of addresses")?;
    if list.len() != model.origin.len() {
        return Err(format!("{} elements, expected {}", list.len(), model.origin.len()));
    }
    let place = |at: i64| if at < 0 { "padding".to_string() } else { format!("element {at}") };
    for (element, (found, expected)) in list.iter().zip(&model.origin).enumerate() {
        let expected = i64::from(*expected);
        let found = found.as_i64().ok_or("an address that is no integer")?;
        if found != expected && (found >= 0 || expected >= 0) {
            let (found, expected) = (place(found), place(expected));
            return Err(format!("element {element} is {found} of the buffer, expected {expected}"));
        }
    }
    Ok(())
}

// --- Index expressions ------------------------------------------------------------------------

fn points_of(case: &ExprCase) -> Vec<Vec<i64>> {
    let (count, columns) = points::<i128>(case, POINTS);
    let value = |point: usize| {
        columns.iter().map(|column| column.at(point).unwrap_or(0) as i64).collect::<Vec<_>>()
    };
    (0..count).map(value).collect()
}

/// The points at which an expression is compared, and its values there, where they are promised.
struct Points<'a> {
    case: &'a ExprCase,
    list: Vec<Vec<i64>>,
    expected: Column<i128>,
}

impl Points<'_> {
    fn of(case: &ExprCase) -> Points<'_> {
        Points { case, list: points_of(case), expected: unlimited(case, POINTS) }
    }

    /// Compares the value at a point, and the bounds with it.
    fn agree(&self, answer: &Value, number: usize) -> Result<(), String> {
        let Some(expected) = self.expected.at(number) else { return Ok(()) };
        let named = self.case.vars.iter().zip(&self.list[number]);
        let named = named.map(|(var, value)| format!("{}={value}", var.name));
        let at = || named.collect::<Vec<_>>().join(", ");
        let found = &answer["values"][number];
        if found.as_i64().map(i128::from) != Some(expected) {
            let text = answer["text"].as_str().unwrap_or("?");
            return Err(format!("{text} is {found}, expected {expected}, at {}", at()));
        }
        let bounds = answer["bounds"].as_array().into_iter().flatten().filter_map(|bounds| {
            let bound = |side: usize| bounds[side].as_i64().map(i128::from);
            Some((bound(0)?, bound(1)?))
        });
        for (low, high) in bounds {
            if expected < low || high < expected {
                return Err(format!("{expected} is outside its bounds {low}..{high}, at {}", at()));
            }
        }
        Ok(())
    }
}

/// Compares values and bounds. Returns the number of operations, and their text.
fn expr_agrees(case: &ExprCase, answer: &Value) -> Result<(u64, String), String> {
    let values = answer["values"].as_array().ok_or("an answer without values")?;
    let points = Points::of(case);
    if values.len() != points.list.len() {
        return Err(format!("{} values for {} points", values.len(), points.list.len()));
    }
    (0..values.len()).try_for_each(|number| points.agree(answer, number))?;
    let text = answer["text"].as_str().unwrap_or("?");
    Ok((answer["ops"].as_u64().unwrap_or(0), text.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_without_forms_or_strides_are_wrong() {
        let Ok(Case::Views(case)) =
            gradiff_corpus::parse("view [2,3]\nflip axes=[1]\n").map(|file| file.case)
        else {
            panic!("it is a sequence of movements")
        };
        let answer = json!({
            "shape": [2, 3], "index": {"merged": [2, 1, 0, 5, 4, 3]},
            "strides": [[3, -1], [3, null]], "masked": [false, false], "inverse": null,
        });
        assert_eq!(view_agrees(&case, &answer), Ok(()));
        for (key, value) in [
            ("index", json!({})),
            ("strides", Value::Null),
            ("strides", json!([null, null])),
            ("strides", json!([[3, -1]])),
            ("strides", json!([[3, -1], [3]])),
            ("strides", json!([[3, "x"], [3, -1]])),
        ] {
            let mut answer = answer.clone();
            answer[key] = value;
            assert!(view_agrees(&case, &answer).is_err(), "{answer}");
        }
    }
}
