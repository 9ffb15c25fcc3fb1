//! Sessions: programs run as applications use the library. Tensors are realised one after the
//! other, in any order, by engines with different options or without one, read in parts, kept,
//! dropped and computed again, while another thread does the same on the same device.
//!
//! In: a batch of programs. Out: for each program, the values that its outputs hold when the whole
//! batch has run. All choices follow from the program alone; only the order of the threads does
//! not.

use std::collections::HashMap;
use std::sync::Mutex;

use gradiff::kernel::Strategy;
use gradiff::{Engine, Tensor};
use gradiff_corpus::{Array, Program};

use crate::Outcome;
use crate::backends::engine::array;
use crate::backends::refusal::Refusal;
use crate::backends::translate;
use crate::checks::calls::{check_calls, check_device};
use crate::checks::kernels::check_kernels;
use crate::checks::parts::Part;
use crate::checks::trees::check_trees;
use crate::random::xorshift;

/// Dtype, shape and bytes of an input.
type Data = (gradiff::DType, Vec<i64>, Vec<u8>);

/// Engines on one device and the inputs that programs share.
pub(crate) struct Session {
    device: String,
    engines: Vec<Engine>,
    inputs: Mutex<HashMap<Data, Tensor>>,
    /// The device, if its kernels need no compiler: then parts may need a kernel, and kernels are
    /// drawn.
    direct: Option<&'static str>,
}

/// The state of a program after its first run.
struct Results {
    /// The outputs that are kept until the batch is over; `None` for those that were dropped.
    kept: Vec<Option<Tensor>>,
    /// The bytes of each output right after it was computed.
    bytes: Vec<Vec<u8>>,
    arrays: Vec<Array>,
}

/// One output in this many is read in part as well.
const PART_ONE_IN: usize = 8;
/// Maximal size in bytes of an output of which parts are read.
const PART_BYTES_MAX: usize = 4096;

/// Number of API calls, legal and illegal, along with each program.
const CALLS: u64 = 4;
/// On devices without a compiler, one program in this many comes with drawn kernels.
const KERNELS_ONE_IN: u64 = 2;
/// On these, one program in this many comes with drawn trees of kernels.
const TREES_ONE_IN: u64 = 16;
/// On a device with memory of its own, one program in this many comes with parts of memories.
const PARTS_ONE_IN: u64 = 4;
/// On device `c`, one program in this many comes with kernels that a compiler's flags decide.
const COMPILED_ONE_IN: u64 = 8;

/// Number of engines of a session.
pub(crate) const ENGINES: usize = 3;

/// Gives the engine of this number its options; the first one keeps those of the device.
pub(crate) fn change_options(
    number: usize,
    kernel: &mut gradiff::kernel::Options,
    schedule: &mut gradiff::schedule::Options,
) {
    match number {
        1 => (kernel.opts, schedule.merge_views) = (Strategy::None, false),
        2 => {
            (kernel.opts, schedule.rows) = (Strategy::Drawn { seed: 5, limit: 3 }, true);
        }
        _ => {}
    }
}

/// Choices that follow from a program.
struct Choices(u64);

impl Choices {
    fn of(program: &Program) -> Choices {
        Choices(crate::report::hash(&program.to_string()) | 1)
    }

    fn below(&mut self, count: usize) -> usize {
        (xorshift(&mut self.0) >> 33) as usize % count
    }
}

impl Session {
    /// A session on a device.
    ///
    /// # Errors
    /// The device is not there.
    pub(crate) fn open(device: &str) -> Result<Session, String> {
        let engine = |number: usize| -> Result<Engine, String> {
            let mut engine = Engine::new(device).map_err(|error| error.to_string())?;
            change_options(number, &mut engine.kernel, &mut engine.schedule);
            Ok(engine)
        };
        Ok(Session {
            device: device.to_string(),
            engines: (0..ENGINES).map(engine).collect::<Result<_, String>>()?,
            inputs: Mutex::default(),
            direct: ["interp", "jit"].into_iter().find(|direct| *direct == device),
        })
    }

    /// Runs the programs, two at a time, and reads what was kept when all have run.
    pub(crate) fn run(&self, programs: &[&Program]) -> Vec<Outcome> {
        let work = |part: usize| {
            let share = programs.iter().enumerate().filter(|(number, _)| number % 2 == part);
            share
                .map(|(number, program)| {
                    (number, crate::backends::engine::caught(|| self.first(program)))
                })
                .collect::<Vec<_>>()
        };
        let mut results = std::thread::scope(|scope| {
            let thread = scope.spawn(|| work(1));
            let mut results = work(0);
            results.extend(thread.join().expect("panics of programs are caught"));
            results
        });
        results.sort_by_key(|(number, _)| *number);
        self.inputs.lock().expect("no panic holds it").clear();
        let last = |result: Result<Results, Outcome>| {
            result.and_then(|results| crate::backends::engine::caught(|| read_again(results)))
        };
        let values = |outcome: Result<Vec<Array>, Outcome>| match outcome {
            Ok(values) => Outcome::Values(values),
            Err(outcome) => outcome,
        };
        results.into_iter().map(|(_, result)| values(last(result))).collect()
    }

    /// Returns whether the device has memory of its own.
    fn has_memory(&self) -> bool {
        self.engines[0].device.has_memory()
    }

    /// Computes a program, maybe twice: the second time its kernels are in the cache.
    fn first(&self, program: &Program) -> Result<Results, Refusal> {
        let mut choices = Choices::of(program);
        check_calls(choices.0, CALLS)?;
        // The lowest bit is set.
        let is_turn = |of: u64| (choices.0 >> 1).is_multiple_of(of);
        if self.has_memory() && is_turn(PARTS_ONE_IN) {
            check_device(&self.device, choices.0)?;
        }
        if self.direct.is_some() && is_turn(TREES_ONE_IN) {
            check_trees(choices.0, 1)?;
        }
        match self.direct {
            Some(device) if is_turn(KERNELS_ONE_IN) => {
                check_kernels(device, choices.0, 1)?;
            }
            // Without longer kernels, which a compiler may take long for.
            None if self.device == "c" && is_turn(COMPILED_ONE_IN) => {
                check_kernels(&self.device, choices.0, 0)?;
            }
            _ => {}
        }
        if choices.below(3) == 0 {
            self.computed(program, &mut choices)?;
        }
        self.computed(program, &mut choices)
    }

    /// Computes a program: all tensors by engines of the session, or all by reads, which use the
    /// engine of the process, as the inputs are copied to the device.
    fn computed(&self, program: &Program, choices: &mut Choices) -> Result<Results, Refusal> {
        let has_engines = choices.below(3) != 0;
        let engines = &self.engines;
        let realize = |tensors: &[&Tensor], choices: &mut Choices| match has_engines {
            true => engines[choices.below(engines.len())].realize(tensors),
            false => gradiff::realize(tensors),
        };
        let mut inner = Choices(choices.0 ^ 0x5bd1_e995);
        let placed =
            |tensor: Tensor| if has_engines { Ok(tensor) } else { tensor.to(&self.device) };
        let outputs = translate::outputs_with(
            program,
            &mut |dtype, shape, bytes| self.input(dtype, shape, bytes, choices),
            &placed,
            &mut |tensor| match inner.below(3) {
                0 => Ok(()),
                _ => Ok(realize(&[tensor], &mut inner)?),
            },
        )?;
        // An output without an input is on the device only now.
        let outputs = outputs.into_iter().map(placed).collect::<Result<Vec<Tensor>, _>>()?;
        let mut order: Vec<usize> = (0..outputs.len()).collect();
        match choices.below(3) {
            0 => {
                let together: Vec<&Tensor> = outputs.iter().collect();
                realize(&together, choices)?;
            }
            1 => order.reverse(),
            _ => {}
        }
        let mut bytes = vec![Vec::new(); outputs.len()];
        for number in order {
            realize(&[&outputs[number]], choices)?;
            bytes[number] = outputs[number].to_bytes()?;
            if choices.below(PART_ONE_IN) == 0 {
                let is_contiguous = self.direct.is_none() || choices.below(4) != 0;
                let engine = (&engines[choices.below(engines.len())], is_contiguous);
                read_part(&outputs[number], &bytes[number], engine, choices)?;
            }
        }
        let pairs = outputs.iter().zip(&bytes);
        let arrays =
            pairs.map(|(output, bytes)| array(output, bytes)).collect::<Result<_, String>>()?;
        let kept = outputs.into_iter().map(|output| (choices.below(3) != 0).then_some(output));
        Ok(Results { kept: kept.collect(), bytes, arrays })
    }

    /// A tensor of these bytes: one that another program uses as well, a part of a larger one, or a
    /// new one.
    fn input(
        &self,
        dtype: gradiff::DType,
        shape: &[i64],
        bytes: &[u8],
        choices: &mut Choices,
    ) -> Result<Tensor, gradiff::Error> {
        let key = (dtype, shape.to_vec(), bytes.to_vec());
        if let Some(known) = self.inputs.lock().expect("no panic holds it").get(&key) {
            // A tensor of its own, which an assignment may change.
            return known.reshape(shape);
        }
        let size: i64 = shape.iter().product();
        let tensor = match choices.below(3) {
            0 if size != 0 => {
                let before = choices.below(3) as i64 * 16;
                let element = dtype.size_bytes();
                let mut whole = vec![0u8; before as usize * element];
                whole.extend_from_slice(bytes);
                whole.resize(whole.len() + 5 * element, 0);
                let whole = Tensor::from_bytes(dtype, &[before + size + 5], &whole)?;
                let part = whole.shrink(&[(before, before + size)])?.reshape(shape)?;
                self.engines[0].realize(&[&part])?;
                part
            }
            _ => Tensor::from_bytes(dtype, shape, bytes)?,
        };
        self.inputs.lock().expect("no panic holds it").insert(key, tensor.clone());
        tensor.reshape(shape)
    }
}

/// Reads a part of a tensor as a tensor of its own, and compares it with the bytes of the whole.
/// If `is_contiguous`, the part is contiguous, so that no kernel is needed.
fn read_part(
    tensor: &Tensor,
    bytes: &[u8],
    (engine, is_contiguous): (&Engine, bool),
    choices: &mut Choices,
) -> Result<(), Refusal> {
    if bytes.len() > PART_BYTES_MAX {
        return Ok(());
    }
    let part = Part::drawn(tensor, is_contiguous, &mut |bound| choices.below(bound))?;
    engine.realize(&[&part.tensor])?;
    let read = part.tensor.to_bytes()?;
    if read != part.bytes(bytes) {
        return Err(format!(
            "a part of an output differs from the whole output: {}",
            part.described()
        )
        .into());
    }
    Ok(())
}

/// Reads the kept outputs again at the end; they must not have changed.
fn read_again(results: Results) -> Result<Vec<Array>, Refusal> {
    for (number, (kept, bytes)) in results.kept.iter().zip(&results.bytes).enumerate() {
        let Some(kept) = kept else { continue };
        if kept.to_bytes()? != *bytes {
            return Err(format!("output {number} has changed after it was read").into());
        }
    }
    Ok(results.arrays)
}

#[cfg(test)]
mod tests {
    use gradiff_corpus::{Case, parse};

    use super::*;

    const TEXT: &str = "a = input i32[6,4] iota\nb = add a 1\nc = realize b\nd = mul c c\n\
                        output d\noutput b\n";

    fn program() -> Program {
        let Case::Program(program) = parse(TEXT).expect("it is well formed").case else {
            panic!("it is a program")
        };
        program
    }

    /// A program's results with each output kept.
    fn results(session: &Session) -> Results {
        let program = program();
        (1..)
            .map(|seed| session.computed(&program, &mut Choices(seed)).expect("it runs"))
            .find(|results| results.kept.iter().all(Option::is_some))
            .expect("some choices keep both outputs")
    }

    fn overwrite(tensor: &Tensor) {
        let buffer = tensor.buffer().expect("it is realised");
        let memory = gradiff::runtime::memory_of(&buffer).expect("it has memory");
        let mut bytes = memory.read().expect("it is written");
        bytes[4] ^= 1;
        memory.write(&bytes).expect("as many bytes");
    }

    #[test]
    fn outputs_that_change_after_they_were_read_are_refused() {
        let session = Session::open("jit").expect("it needs nothing");
        assert_eq!(read_again(results(&session)).expect("nothing changed").len(), 2);
        let changed = results(&session);
        overwrite(changed.kept[1].as_ref().expect("it is kept"));
        let refusal = String::from(read_again(changed).expect_err("it changed"));
        assert!(refusal.contains("output 1 has changed"), "{refusal}");
    }

    #[test]
    fn parts_that_differ_from_the_whole_are_refused() {
        let session = Session::open("jit").expect("it needs nothing");
        let results = results(&session);
        let tensor = results.kept[0].as_ref().expect("it is kept");
        let engine = (&session.engines[0], false);
        let read = |seed| read_part(tensor, &results.bytes[0], engine, &mut Choices(seed));
        assert!((1..40).all(|seed| read(seed).is_ok()));
        overwrite(tensor);
        assert!((1..40).any(|seed| read(seed).is_err()), "some part begins with the first row");
    }

    #[test]
    fn sessions_agree_with_the_oracle() {
        let session = Session::open("interp").expect("it needs nothing");
        let program = program();
        let expected = gradiff_oracle::evaluate(&program).expect("it is typed");
        for outcome in session.run(&[&program; 9]) {
            let Outcome::Values(values) = outcome else { panic!("{outcome:?}") };
            for (expected, value) in expected.iter().zip(&values) {
                assert_eq!(expected.judge(value).mismatch, None);
            }
        }
    }
}
