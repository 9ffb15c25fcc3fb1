//! Calls of the tensor API with drawn arguments, most of them slightly wrong: a legal call gives a
//! tensor of the right type, an illegal one fails with [`gradiff::Error::Invalid`], none panics.
//!
//! In: a seed, or bytes for a chain of calls. Out: the first call whose answer is wrong. Whether a
//! call is legal is decided by the corpus' typing where a statement does the same, else by the rows
//! here, never by the engine.

mod batches;
mod chain;
mod contractions;
mod copies;
mod damaged;
mod devices;
mod files;
mod folds;
mod gradients;
mod indexing;
mod intervals;
mod limits;
mod memories;
mod modules;
mod nodes;
mod optimisers;
mod options;
mod orders;
mod pools;
mod random;
mod repeated;
mod rows;
mod rules;
mod selections;
mod sizes;
mod slices;
mod statistics;
mod stores;
mod threads;
mod uniform;
mod values;
mod views;
mod wide;
mod windows;

pub(crate) use chain::check_chain;
pub(crate) use folds::wrong_fold;
pub(crate) use intervals::wrong_interval;
pub(crate) use nodes::wrong_node;
pub(crate) use sizes::wrong_size;
pub(crate) use views::wrong_view;

use gradiff::{DType, Error, Tensor};
use gradiff_corpus::TensorType;

use crate::backends::refusal::Refusal;
use crate::backends::translate;
use crate::blame::Crate;
use crate::random::Random;

/// Prefix of this check's reports.
pub(crate) const SAID: &str = "call of the API";

/// Rows that check the runtime alone.
const RUNTIME_ROWS: [&str; 5] =
    ["memories", "launches", "launched often", "long launches", "entries on disk"];

/// Name of the check of parts on a device with memory of its own.
const PARTS: &str = "parts on devices";

/// The crates of the rows that are not of the crate tensor.
const CRATES: [(Crate, &[&str]); 8] = [
    (Crate::Runtime, &RUNTIME_ROWS),
    (Crate::Runtime, &[PARTS]),
    (Crate::Rewrite, &["texts of rules"]),
    (Crate::Schedule, &["buffers near the limit"]),
    (Crate::View, &["views near the limit", "stacks of views"]),
    (Crate::Graph, &["folds", "intervals", "nodes of tensor level", "sizes with variables"]),
    (Crate::Files, &["files", "blocks of GGUF", "checkpoints", "files that are refused"]),
    (
        Crate::Nn,
        &[
            "layers",
            "convolutions",
            "norms",
            "cells",
            "state dicts",
            "new layers",
            "refusals of layers",
            "optimisers",
            "clipped gradients",
            "refusals of optimisers",
            "schedules",
        ],
    ),
];

/// Names of the checks of slices of buffers.
const SLICES: [&str; 2] = ["slices of buffers", "slices on devices"];

/// Prefix of the crate in which a graph's meaning changes.
const OF_ENGINE: &str = "(engine/";

/// Calls of each of [`RUNTIME_ROWS`] when blame asks whether the runtime is right.
const BLAME_CALLS: u64 = 100;

/// The crate to blame for a problem that [`check_calls`] reports.
pub fn crate_of_calls(problem: &str) -> Crate {
    let is_from = |name: &str| problem.contains(&format!(", {name}: "));
    let named = problem.split_once(OF_ENGINE).and_then(|(_, rest)| rest.split_once(')'));
    if let Some(known) = named.and_then(|(name, _)| Crate::named(name)) {
        // Which slices kernels read is decided after the last graph that can be evaluated.
        let is_of_slices = known == Crate::Runtime && SLICES.into_iter().any(is_from);
        return if is_of_slices && check_runtime().is_ok() { Crate::Tensor } else { known };
    }
    let row = CRATES.iter().find(|(_, names)| names.iter().any(|name| is_from(name)));
    match row.map(|(crate_name, _)| *crate_name) {
        Some(Crate::Runtime) => Crate::Runtime,
        // A memory of another size, in place of a result: the caller is wrong unless memories are.
        _ if problem.contains("Runtime(Memory") && check_runtime().is_ok() => Crate::Tensor,
        // Any other error of the runtime.
        _ if problem.contains("Runtime(") => Crate::Runtime,
        // What searches find is kept on disk.
        _ if is_from("searches") && check_runtime().is_err() => Crate::Runtime,
        known => known.unwrap_or(Crate::Tensor),
    }
}

/// Checks memories, launches and entries on disk against their models.
///
/// # Errors
/// The first that differs from its model.
pub fn check_runtime() -> Result<(), String> {
    for (name, row) in rows::ROWS.iter().filter(|(name, _)| RUNTIME_ROWS.contains(name)) {
        let Row::Check(check) = row else { continue };
        for seed in 0..BLAME_CALLS {
            let checked = crate::catch(|| check(&mut Draw::new(seed)));
            checked.and_then(|checked| checked).map_err(|problem| format!("{name}: {problem}"))?;
        }
    }
    Ok(())
}

/// Draws the arguments of calls.
pub(crate) struct Draw {
    /// Bytes that choose, one or two for a choice, the last first.
    bytes: Vec<u8>,
    /// The numbers that choose when there are no bytes.
    random: Random,
    /// Results of earlier calls of a chain, for later ones to take.
    given: Vec<(TensorType, Tensor)>,
}

impl Draw {
    pub(crate) fn new(seed: u64) -> Draw {
        Draw { bytes: Vec::new(), random: Random::new(seed), given: Vec::new() }
    }

    /// Draws from the bytes, and from a fixed seed when they are used up.
    fn of_bytes(bytes: &[u8]) -> Draw {
        Draw { bytes: bytes.iter().rev().copied().collect(), ..Draw::new(0) }
    }

    /// 64 bits.
    pub(crate) fn bits(&mut self) -> u64 {
        self.random.bits()
    }

    pub(crate) fn below(&mut self, count: usize) -> usize {
        let choice = match (self.bytes.pop(), count) {
            (None, _) => self.bits(),
            (Some(byte), ..=256) => u64::from(byte),
            (Some(byte), _) => u64::from(byte) << 8 | u64::from(self.bytes.pop().unwrap_or(0)),
        };
        (choice % count as u64) as usize
    }

    pub(crate) fn one_in(&mut self, of: usize) -> bool {
        self.below(of) == 0
    }

    pub(crate) fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())]
    }

    /// A float that is halfway between two values of a narrower type, or so near to that that a
    /// rounding to another type in between may decide.
    pub(crate) fn near_tie(&mut self) -> f64 {
        // Bits of the significands of bf16, f16 and f32.
        let bits = self.pick(&[8, 11, 24]);
        let odd = (1 << bits) + 1 + 2 * self.below(1 << (bits - 1)) as i64;
        let exponent = -bits + self.pick(&[0, 0, 1, 15, -14, -15, -24, 40]);
        let digits = if self.one_in(2) { 22 + self.below(6) } else { 20 + self.below(32) };
        let off = (8 + self.below(8)) as f64 * 2f64.powi(-3 - digits as i32);
        let off = self.pick(&[0.0, off, -off]);
        self.pick(&[1.0, -1.0]) * odd as f64 * 2f64.powi(exponent) * (1.0 + off)
    }
}

/// The answer that a call must give: a tensor of this type, or a refusal.
type Expected = Option<TensorType>;

/// A call: its text, the expected answer, and the call itself.
struct Call {
    said: String,
    expected: Expected,
    work: Box<dyn FnOnce() -> Result<Tensor, Error>>,
}

impl Call {
    /// Makes the call. Returns its tensor if it gives one, as expected.
    fn check(self) -> Result<Option<Tensor>, String> {
        let said = self.said;
        let answer = crate::catch(self.work).map_err(|panic| format!("{said}: {panic}"))?;
        match (self.expected, answer) {
            (None, Err(Error::Invalid(message))) if !message.is_empty() => Ok(None),
            (None, Err(error)) => {
                Err(format!("{said}: it must be refused as invalid, but the error is: {error}"))
            }
            (None, Ok(tensor)) => Err(format!("{said}: it must be refused, but gives {tensor:?}")),
            (Some(expected), Ok(tensor)) => {
                let shape: Vec<i64> = expected.shape.iter().map(|size| *size as i64).collect();
                let is_right =
                    tensor.dtype() == translate::dtype(expected.dtype) && tensor.shape() == shape;
                let name = expected.dtype.name();
                let wrong =
                    || format!("{said}: it must give {name}{shape:?}, but gives {tensor:?}");
                if !is_right {
                    return Err(wrong());
                }
                // The graph of a call is one that a program could make by itself.
                match crate::catch(|| Tensor::from_uop(tensor.uop()))? {
                    Ok(_) => Ok(Some(tensor)),
                    Err(error) => Err(format!("{said}: its node is refused: {error}")),
                }
            }
            (Some(_), Err(error)) => Err(format!("{said}: it is legal, but is refused: {error}")),
        }
    }
}

/// A check that gives no tensor: reads, engines and plans.
type Check = fn(&mut Draw) -> Result<(), String>;

/// The action of a row.
enum Row {
    /// Draws a call that gives a tensor.
    Call(fn(&mut Draw) -> Call),
    /// Makes and judges any other call.
    Check(Check),
}

/// Checks `count` calls that follow from the seed.
///
/// # Errors
/// The first call whose answer is wrong: the call, the expected and the actual answer, and the
/// seed of this call alone.
pub fn check_calls(seed: u64, count: u64) -> Result<(), String> {
    for number in 0..count {
        let seed = seed.wrapping_add(number);
        let checked = check_call(&mut Draw::new(seed));
        checked.map_err(|problem| format!("{SAID}, (check_calls({seed}, 1)), {problem}"))?;
    }
    Ok(())
}

/// Checks calls that follow from the seed on a device with memory of its own.
///
/// # Errors
/// The first whose answer is wrong, or the failure of the machine.
pub(crate) fn check_device(device: &str, seed: u64) -> Result<(), Refusal> {
    type OnDevice = fn(&str, &mut Draw) -> Result<(), Refusal>;
    let checks: [(&str, OnDevice); 2] =
        [(PARTS, memories::parts_on), (SLICES[1], slices::slices_on)];
    for (name, check) in checks {
        let checked = crate::catch(|| check(device, &mut Draw::new(seed)));
        let part = format!("{SAID}, (check_device({device:?}, {seed})), {name}");
        checked.map_err(Refusal::from).flatten().map_err(|refusal| refusal.at(&part))?;
    }
    Ok(())
}

/// Checks calls that are legal, or legal but for a single thing: of each method, with each dtype
/// and some shapes of each source, and with each argument at both sides of its limits. There are
/// thousands, of which every `of`-th one is made.
///
/// # Errors
/// The first call whose answer is wrong.
pub fn check_damaged(turn: u64, of: u64) -> Result<(), String> {
    let turn = turn % of;
    for (number, (statement, types)) in (0..).zip(damaged::sweep()) {
        if number % of == turn {
            let call = rows::typed(&mut Draw::new(number), &types, statement);
            call.check().map_err(|problem| {
                format!("{SAID}, (check_damaged({number}, {})), sweep: {problem}", u64::MAX)
            })?;
        }
    }
    Ok(())
}

/// Checks that calls on constants of about as many elements as a tensor may have give a tensor or
/// are refused as invalid. Every `of`-th one is made.
///
/// # Errors
/// The first call that panics or fails in another way.
pub fn check_large(turn: u64, of: u64) -> Result<(), String> {
    let calls = damaged::large().skip((turn % of) as usize).step_by(of as usize);
    for (statement, types) in calls {
        let zeros = |source: &TensorType| {
            let shape: Vec<i64> = source.shape.iter().map(|size| *size as i64).collect();
            Tensor::zeros(translate::dtype(source.dtype), &shape)
        };
        let call = || {
            let tensors = types.iter().map(zeros).collect::<Result<Vec<Tensor>, Error>>()?;
            translate::value(&statement, &tensors, &mut Tensor::from_bytes)
        };
        let said = || format!("{SAID}, large sources: {statement:?} of {types:?}");
        // Where it says none, nothing does: the corpus has a limit of elements of its own. Calls
        // that it takes may be refused, since the API counts the elements of steps between, too.
        let expected = gradiff_corpus::statement_type(&statement, &types).ok();
        match crate::catch(call) {
            Ok(Ok(tensor)) => {
                let is_expected = |expected: TensorType| {
                    let sizes = expected.shape.iter().map(|size| *size as i64);
                    tensor.dtype() == translate::dtype(expected.dtype)
                        && sizes.eq(tensor.shape().iter().copied())
                };
                if !expected.clone().is_none_or(is_expected) {
                    let found = format!("{} {:?}", tensor.dtype(), tensor.shape());
                    return Err(format!("{}: it gives {found}, not {expected:?}", said()));
                }
            }
            Ok(Err(Error::Invalid(_))) => {}
            Ok(Err(error)) => return Err(format!("{}: it fails with: {error}", said())),
            Err(panic) => return Err(format!("{}: {panic}", said())),
        }
    }
    Ok(())
}

/// Programs of one method each, on small sources and with arguments at their limits. There are
/// thousands, of which every `of`-th one is returned.
pub fn small_programs(turn: u64, of: u64) -> Vec<gradiff_corpus::Program> {
    damaged::small().skip((turn % of) as usize).step_by(of as usize).collect()
}

/// Checks a call of a drawn row. Returns the tensor that it gives, if any.
fn check_call(draw: &mut Draw) -> Result<Option<Tensor>, String> {
    check_row(draw, &rows::ROWS.iter().collect::<Vec<_>>())
}

/// Checks a call of a drawn row. Every other time, the row is one that gives a tensor if the call
/// is legal, so that later calls have tensors to take.
fn check_link(draw: &mut Draw) -> Result<Option<Tensor>, String> {
    if draw.one_in(2) {
        return check_call(draw);
    }
    let gives_tensor = |row: &&(&str, Row)| matches!(row.1, Row::Call(_));
    check_row(draw, &rows::ROWS.iter().filter(gives_tensor).collect::<Vec<_>>())
}

fn check_row(draw: &mut Draw, rows: &[&(&str, Row)]) -> Result<Option<Tensor>, String> {
    let (name, row) = rows[draw.below(rows.len())];
    let checked = match row {
        Row::Call(call) => crate::catch(|| call(draw)).and_then(Call::check),
        Row::Check(check) => {
            crate::catch(|| check(draw)).and_then(|checked| checked.map(|()| None))
        }
    };
    checked.map_err(|problem| format!("{name}: {problem}"))
}

/// The engine's dtype, or void.
fn name_of(dtype: Option<gradiff_corpus::DType>) -> DType {
    dtype.map_or(DType::Void, translate::dtype)
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use rayon::prelude::*;

    use super::*;

    /// Checks the calls of these seeds, on all cores. The first wrong ones are listed.
    fn check_seeds(seeds: Range<u64>) {
        let wrong = seeds.into_par_iter().filter_map(|seed| check_calls(seed, 1).err());
        let wrong: Vec<String> = wrong.take_any(20).collect();
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn calls_are_answered_as_they_must_be() {
        check_seeds(0..12_000);
    }

    #[test]
    fn each_method_takes_the_sources_that_it_must() {
        let wrong = (0..64u64).into_par_iter().filter_map(|turn| check_damaged(turn, 64).err());
        let wrong: Vec<String> = wrong.take_any(20).collect();
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn large_sources_give_a_tensor_or_are_refused() {
        let wrong: Vec<String> = (0..64).filter_map(|turn| check_large(turn, 64).err()).collect();
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn small_programs_agree_with_the_oracle() {
        let backends = crate::backends(&["interp".to_string()]);
        let backends = backends.unwrap_or_else(|error| panic!("{}", error.message));
        let programs = small_programs(0, 1);
        let names = programs.iter().flat_map(|program| program.statements.last());
        let names: std::collections::BTreeSet<&str> = names.map(gradiff_corpus::name).collect();
        assert!(programs.len() > 2_000 && names.len() > 120, "{} {}", programs.len(), names.len());
        let programs: Vec<&gradiff_corpus::Program> = programs.iter().collect();
        let (_, failures) = crate::agree(&programs, &backends);
        let failures: Vec<String> = failures
            .into_iter()
            .map(|(at, failure)| format!("{}{}\n", programs[at], failure.detail))
            .collect();
        assert!(failures.is_empty(), "{}", failures.concat());
    }

    #[test]
    #[ignore = "takes minutes; .ci/nightly runs it"]
    fn more_calls_are_answered_as_they_must_be() {
        check_seeds(12_000..60_000);
    }

    /// Checks the rows that are not single calls and prints the time of each.
    #[test]
    fn rows_hold() {
        for (name, row) in &rows::ROWS {
            let Row::Check(check) = row else { continue };
            let start = std::time::Instant::now();
            let wrong = |seed: u64| {
                let checked = crate::catch(|| check(&mut Draw::new(seed))).flatten();
                checked.err().map(|why| format!("seed {seed}: {why}"))
            };
            let wrong: Vec<String> =
                (0..200).into_par_iter().filter_map(wrong).take_any(3).collect();
            println!("{name}: {:?} each", start.elapsed() / 200);
            assert!(wrong.is_empty(), "{name}: {}", wrong.join("\n"));
        }
    }

    /// Checks the rows that are single calls, each on its own: together, most calls are of others.
    #[test]
    fn calls_of_each_row_hold() {
        for (name, row) in &rows::ROWS {
            let Row::Call(call) = row else { continue };
            let checked = |seed: u64| crate::catch(|| call(&mut Draw::new(seed)))?.check();
            let wrong = |seed: u64| Some(format!("seed {seed}: {}", checked(seed).err()?));
            let wrong: Vec<String> = (0..4_000).filter_map(wrong).take(12).collect();
            assert!(wrong.is_empty(), "{name}: {}", wrong.join("\n"));
        }
    }

    /// Each row draws legal and illegal arguments.
    #[test]
    fn rows_draw_both_kinds() {
        for (name, row) in &rows::ROWS {
            let Row::Call(call) = row else { continue };
            let legal = (0..600).filter(|seed| call(&mut Draw::new(*seed)).expected.is_some());
            let legal = legal.count();
            println!("{name}: {legal} of 600 are legal");
            assert!((20..=580).contains(&legal), "{name}: {legal} of 600 are legal");
        }
    }

    #[test]
    fn failures_of_the_machine_are_no_wrong_answers() {
        // On most machines there is no such device.
        let Err(error) = gradiff::runtime::device("cuda") else { return };
        let outcome = check_device("cuda", 0).expect_err("there is no device").outcome();
        let is_environment = matches!(outcome, crate::Outcome::Environment(_));
        assert_eq!(is_environment, error.is_environment(), "{outcome:?}");
    }

    #[test]
    fn crates_are_those_of_rows() {
        let names = CRATES.iter().flat_map(|(_, names)| names.iter().copied());
        for name in names.filter(|name| *name != PARTS) {
            assert!(rows::ROWS.iter().any(|(known, _)| *known == name), "{name}");
        }
    }

    #[test]
    fn wrong_answers_are_reported() {
        let call = |expected: Expected, work: fn() -> Result<Tensor, Error>| {
            Call { said: "x".to_string(), expected, work: Box::new(work) }.check()
        };
        let of = |dtype, shape: &[usize]| Some(TensorType { dtype, shape: shape.to_vec() });
        let tensor = || Tensor::full(DType::I32, &[2], 1);
        let refused = || Err(Error::Invalid("no".to_string()));
        use gradiff_corpus::DType as Type;
        assert!(matches!(call(of(Type::I32, &[2]), tensor), Ok(Some(_))));
        assert!(matches!(call(None, refused), Ok(None)));
        for (expected, work, words) in [
            (None, tensor as fn() -> _, "must be refused, but gives"),
            (of(Type::I32, &[2]), refused, "is legal, but is refused"),
            (of(Type::I32, &[3]), tensor, "must give i32[3]"),
            (of(Type::I64, &[2]), tensor, "must give i64[2]"),
            (None, || panic!("there"), "panic: there"),
            (None, || Err(Error::Invalid(String::new())), "as invalid"),
        ] {
            let problem = call(expected, work).expect_err("it is wrong");
            assert!(problem.contains(words), "{problem}");
        }
    }
}
