//! The kernels that the engine and a peer make of a program, and the elements that they load, store
//! and compute.

use gradiff::graph::{BoundedLinear, Op};
use gradiff_corpus::Program;
use serde_json::{Value, json};

use crate::backends::engine::Turn;
use crate::backends::peer::Peer;
use crate::models::{linear, stages};
use crate::report::snap::executions;

/// A kernel of the engine or of a peer. Counts are of elements over a whole run: each lane of a
/// vector counts, and what a loop does counts each time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelSummary {
    /// Its name.
    pub name: String,
    /// The optimisations of its loops, in the words of the engine that made it.
    pub opts: String,
    /// Elements loaded.
    pub loads: u64,
    /// Elements stored.
    pub stores: u64,
    /// Results of elementwise operations, index arithmetic included.
    pub alu: u64,
    /// Its text in C.
    pub source: String,
}

/// The kernels of a program, as the engine makes them for C with one thread.
///
/// # Errors
/// A program that the engine refuses.
pub fn kernels_here(program: &Program) -> Result<Vec<KernelSummary>, String> {
    let mut engine = gradiff::Engine::new("interp").map_err(|error| error.to_string())?;
    engine.set_target(linear::target("c")?);
    let outputs = stages::graph(program)?;
    let outputs: Vec<&gradiff::Tensor> = outputs.iter().collect();
    let plan = engine.plan(&outputs).map_err(|error| error.to_string())?;
    let summary = |item: &gradiff::PlannedKernel| {
        let code = gradiff::render::c(&item.linear).map_err(|error| error.to_string())?;
        let opts: Vec<String> = engine.opts_of(item).iter().map(ToString::to_string).collect();
        Ok(KernelSummary {
            name: item.linear.name.clone(),
            opts: opts.join(", "),
            source: code.text,
            ..counted(&item.linear)?
        })
    };
    plan.items.iter().map(summary).collect()
}

/// The counts of a kernel.
fn counted(kernel: &BoundedLinear) -> Result<KernelSummary, String> {
    let mut summary = KernelSummary::default();
    for (uop, times) in kernel.uops.iter().zip(executions(kernel)?) {
        let lanes = |lanes: u8| times.saturating_mul(lanes.into());
        match uop.op {
            Op::Load => summary.loads += lanes(uop.lanes),
            Op::Store => {
                let value = uop.src.get(1).map(|source| &kernel.uops[*source as usize]);
                summary.stores += lanes(value.map_or(1, |value| value.lanes));
            }
            op if op.is_elementwise() => summary.alu += lanes(uop.lanes),
            _ => {}
        }
    }
    Ok(summary)
}

/// Checks that a peer shows its kernels.
///
/// # Errors
/// It is not available, or shows none.
pub fn check_kernels_there(peer: &str) -> Result<(), String> {
    match Peer::open(peer, Turn::ALWAYS)?.answers("kernels") {
        true => Ok(()),
        false => Err("it shows no kernels".to_string()),
    }
}

/// The kernels of a program, as a peer makes them. The outer error says how it failed, the inner
/// one why it skips the program.
///
/// # Errors
/// The peer is not available, fails, or refuses the program.
pub fn kernels_there(
    peer: &str,
    program: &Program,
) -> Result<Result<Vec<KernelSummary>, String>, String> {
    let upstream = Peer::open(peer, Turn::ALWAYS)?;
    let program = gradiff_corpus::to_json(program).map_err(|error| error.to_string())?;
    let answer = upstream.ask(json!({ "kernels": program }));
    let answer = &answer.map_err(|outcome| outcome.reason("answer"))?["kernels"];
    if let Some(reason) = answer["refused"].as_str() {
        return Err(format!("refused: {reason}"));
    }
    if let Some(reason) = answer["skipped"].as_str() {
        return Ok(Err(reason.to_string()));
    }
    let list = answer["list"].as_array().ok_or("an answer without kernels")?;
    let text = |kernel: &Value, key: &str| kernel[key].as_str().unwrap_or_default().to_string();
    let number = |kernel: &Value, key: &str| kernel[key].as_u64().unwrap_or_default();
    let summary = |kernel: &Value| KernelSummary {
        name: text(kernel, "name"),
        opts: text(kernel, "opts"),
        loads: number(kernel, "loads"),
        stores: number(kernel, "stores"),
        alu: number(kernel, "alu"),
        source: text(kernel, "source"),
    };
    Ok(Ok(list.iter().map(summary).collect()))
}

#[cfg(test)]
mod tests {
    use gradiff_corpus::{Case, parse};

    use super::*;

    #[test]
    fn elements_are_counted_whatever_the_loops_are() {
        let text = "a = input f32[8,8] iota\nb = add a 1\nc = sum b axes=[1]\noutput c\n";
        let Case::Program(program) = parse(text).expect("a program").case else { panic!("{text}") };
        let kernels = kernels_here(&program).expect("kernels");
        assert_eq!(kernels.len(), 1);
        assert_eq!((kernels[0].loads, kernels[0].stores), (64, 8), "{kernels:?}");
        assert!(64 + 64 - 8 <= kernels[0].alu, "{kernels:?}");
    }
}
