//! Checks of a peer's shape trackers and index expressions, for peers that have their own.
//!
//! In: cases, of which a peer says where elements are, or what an expression is at points. Out:
//! what contradicts the model of real elements, or the meaning of the written expression.

use gradiff_corpus::{Case, ExprCase, ViewOps};
use serde_json::{Value, json};

use crate::Outcome;
use crate::backends::engine::Turn;
use crate::backends::peer::Peer;
use crate::checks::exprs::{points, unlimited};
use crate::models::model::{Checker, Model};

/// Points at which an expression is compared.
const POINTS: usize = 64;

/// The check of a case by a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Everything agrees. Of an expression, the number of nodes that are left, and their text.
    Right(u64, String),
    /// It does not have what the case needs, for this reason.
    Skipped(String),
    /// The first difference, or how the peer failed.
    Wrong(String),
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
            Err(reason) if cases.len() < 2 => vec![Answer::Wrong(reason); cases.len()],
            Err(_) => {
                cases.iter().flat_map(|case| self.check(std::slice::from_ref(case))).collect()
            }
        }
    }

    /// # Errors
    /// The peer did not answer for each case.
    fn asked(&self, cases: &[Case]) -> Result<Vec<Answer>, String> {
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
        let answer = self.0.ask(&json!({ request: asked })).map_err(|outcome| match outcome {
            Outcome::Timeout(seconds) => format!("no answer within {seconds} s"),
            Outcome::Crash(reason) | Outcome::Environment(reason) => reason,
            outcome => format!("{outcome:?}"),
        })?;
        let answers = answer[request].as_array().filter(|list| list.len() == cases.len());
        let answers = answers.ok_or_else(|| format!("an answer without {request}"))?;
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
        return Answer::Wrong(format!("refused: {reason}"));
    }
    let found = match case {
        Case::Program(_) => Err("a program".to_string()),
        Case::Views(views) => view_agrees(views, answer).map(|()| (0, String::new())),
        Case::Expr(expr) => expr_agrees(expr, answer),
    };
    found.map_or_else(Answer::Wrong, |(nodes, text)| Answer::Right(nodes, text))
}

// --- Shape trackers ---------------------------------------------------------------------------

fn view_agrees(case: &ViewOps, answer: &Value) -> Result<(), String> {
    let model = case.ops.iter().fold(Model::new(&case.shape), |model, op| model.moved(op));
    if answer["shape"] != json!(model.shape) {
        return Err(format!("shape {}, expected {:?}", answer["shape"], model.shape));
    }
    let forms = answer["index"].as_object().ok_or("an answer without an index")?;
    for (form, list) in forms {
        agrees(&model, list).map_err(|problem| format!("{form}: {problem}"))?;
    }
    let list = |key: &str| answer[key].as_array().ok_or(format!("an answer without {key}"));
    let (strides, masked) = (list("strides")?, list("masked")?);
    for axis in 0..model.shape.len() {
        let stride = |number: usize| strides.get(number).and_then(|of| of[axis].as_i64());
        let is_masked = masked.get(axis).and_then(Value::as_bool).ok_or("masked has no flag")?;
        Checker::new(&|_| 0).axis_agrees(&model, axis, [stride(0), stride(1)], is_masked)?;
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

/// Compares values and bounds. Returns the number of nodes, and their text.
fn expr_agrees(case: &ExprCase, answer: &Value) -> Result<(u64, String), String> {
    let values = answer["values"].as_array().ok_or("an answer without values")?;
    let points = points_of(case);
    let expected = unlimited(case, POINTS);
    if values.len() != points.len() {
        return Err(format!("{} values for {} points", values.len(), points.len()));
    }
    let text = answer["text"].as_str().unwrap_or("?");
    for (number, (point, found)) in points.iter().zip(values).enumerate() {
        let Some(expected) = expected.at(number) else { continue };
        let named = case.vars.iter().zip(point).map(|(var, value)| format!("{}={value}", var.name));
        let at = || named.clone().collect::<Vec<_>>().join(", ");
        if found.as_i64().map(i128::from) != Some(expected) {
            return Err(format!("{text} is {found}, expected {expected}, at {}", at()));
        }
        for bounds in answer["bounds"].as_array().into_iter().flatten() {
            let bound = |side: usize| bounds[side].as_i64().map(i128::from);
            let (Some(low), Some(high)) = (bound(0), bound(1)) else { continue };
            if expected < low || high < expected {
                return Err(format!("{expected} is outside its bounds {low}..{high}, at {}", at()));
            }
        }
    }
    Ok((answer["nodes"].as_u64().unwrap_or(0), text.to_string()))
}
