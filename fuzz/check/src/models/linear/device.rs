//! The evaluator as a device: it runs kernels that were made for a target that need not be
//! available, and checks the rules of the target.

use std::sync::Arc;

use gradiff::graph::target::{Groups, Vectors};
use gradiff::graph::{AxisKind, BoundedLinear, Constant, DType, Linear, Op, Target};
use gradiff::runtime::{Device, Error, Executable, Memory};
use gradiff_eval::Elements;
use gradiff_eval::linear::run_checked;

use super::{Rules, limits};
use crate::checks::listing::check_text;

/// The name of the device in the names of backends: `uops/cuda`.
const NAME: &str = "uops";

/// A launch that executes more lanes than this runs on the device `interp`, which is faster but
/// checks neither alignment nor overflow.
const LANE_LIMIT: u64 = 1 << 20;

/// Limit of the uops of a kernel whose text is checked; one in so many of these is checked.
const READ_BACK_LIMIT: usize = 100;
const READ_BACK_ONE_IN: usize = 16;

/// Limits of groups that kernels of small tensors reach.
const SMALL: Groups = Groups {
    threads: 32,
    sizes: [16, 4, 3],
    counts: [40, 6, 3],
    local_bytes: 256,
    element_bytes: 4,
};

/// Targets of the harness: a machine with vectors of 64 bytes and several threads, whatever the
/// host is; one whose limits small kernels reach.
const CPU_AND_SMALL: [&str; 2] = ["cpu", "small"];

/// The target of this name: one of the engine's or of the harness', the same on every machine; or
/// that of the device of this name as it is opened here. `device:NAME` is always the latter, since
/// some devices share their name with a language.
///
/// # Errors
/// No target and no device has the name, or the device is not available.
pub(crate) fn target(name: &str) -> Result<Target, String> {
    match name {
        "cpu" => Ok(Target { threads: 4, prefetches: true, ..Target::of("llvm") }),
        "small" => {
            let groups = Target::of("groups");
            let vectors =
                Vectors { aligned: true, lanes: 8, half_lanes: 8, bool_lanes: 8, ..groups.vectors };
            Ok(Target { groups: Some(SMALL), vectors, ..groups })
        }
        _ => Target::named(name).map_or_else(|| target_of_device(name), Ok),
    }
}

fn target_of_device(name: &str) -> Result<Target, String> {
    let device = gradiff::runtime::device(name.strip_prefix("device:").unwrap_or(name));
    device.map(|device| device.target()).map_err(|error| match error {
        Error::NoDevice { known, .. } => {
            let fixed: Vec<&str> = Target::names().chain(CPU_AND_SMALL).collect();
            let (fixed, devices) = (fixed.join(", "), known.join(", device:"));
            format!("no target is called {name}; there are: {fixed}, device:{devices}")
        }
        error => error.to_string(),
    })
}

/// The device of a target.
pub(crate) struct Uops {
    rules: &'static Rules,
    target: Target,
    interp: Arc<dyn Device>,
}

impl Uops {
    /// The device for the target of this name.
    ///
    /// # Errors
    /// A target without rules.
    pub(crate) fn open(name: &str) -> Result<Uops, String> {
        let rules = Rules::of(name).ok_or_else(|| format!("{name} has no rules"))?;
        let target = target(name)?;
        let interp = gradiff::runtime::device("interp").map_err(|error| error.to_string())?;
        Ok(Uops { rules, target, interp })
    }
}

impl Device for Uops {
    fn name(&self) -> &'static str {
        NAME
    }

    fn compile(&self, kernels: &[&BoundedLinear]) -> Result<Vec<Arc<dyn Executable>>, Error> {
        let compile = |kernel: &&BoundedLinear| {
            limits::check(kernel, self.rules).map_err(|problem| refused(kernel, problem))?;
            if is_read_back(kernel) {
                check_text(kernel).map_err(|problem| refused(kernel, problem))?;
            }
            if LANE_LIMIT < executed(kernel) {
                return Ok(self.interp.compile(&[kernel])?.remove(0));
            }
            let executable: Arc<dyn Executable> =
                Arc::new(Evaluated { kernel: (***kernel).clone(), rules: self.rules });
            Ok(executable)
        };
        kernels.iter().map(compile).collect()
    }

    fn target(&self) -> Target {
        self.target
    }

    /// Types that the device does not have are evaluated all the same.
    fn unsupported(&self, _: &Linear) -> Option<String> {
        None
    }

    fn describe(&self) -> String {
        format!("evaluator of linear uops, under the rules of {}", self.rules.language)
    }
}

/// Returns whether the text of the kernel is checked: that of one in sixteen short ones.
fn is_read_back(kernel: &Linear) -> bool {
    let count = kernel.uops.len();
    count < READ_BACK_LIMIT && count.is_multiple_of(READ_BACK_ONE_IN)
}

fn refused(kernel: &Linear, problem: String) -> Error {
    Error::Launch { device: NAME, kernel: kernel.name.clone(), problem }
}

/// Number of lanes of uops that a launch executes. Groups and their threads also execute the uops
/// outside of the launched ranges.
pub(crate) fn executed(kernel: &Linear) -> u64 {
    let launched = [AxisKind::Global, AxisKind::Local].map(|kind| kernel.launched(kind)).concat();
    let product = |count: u64, size: &i64| count.saturating_mul(size.unsigned_abs());
    let threads = launched.iter().map(|(_, size)| size).fold(1, product);
    let (mut iterations, mut executed) = (vec![threads], 0u64);
    for (position, uop) in (0..).zip(&kernel.uops) {
        let current = iterations.last().copied().unwrap_or(1);
        executed = executed.saturating_add(current.saturating_mul(uop.lanes.into()));
        match uop.op {
            Op::Range if launched.iter().any(|(range, _)| *range == position) => {
                iterations.push(current)
            }
            Op::Range => {
                let end = &kernel.uops[uop.src[0] as usize].arg;
                let count = match end {
                    gradiff::graph::Arg::Const(count) => count.to_int(),
                    _ => None,
                };
                let count = count.and_then(|count| u64::try_from(count).ok()).unwrap_or(1);
                iterations.push(current.saturating_mul(count));
            }
            Op::EndRange => drop(iterations.pop()),
            _ => {}
        }
    }
    executed
}

/// A kernel within the limits.
struct Evaluated {
    kernel: Linear,
    rules: &'static Rules,
}

impl Executable for Evaluated {
    fn run(&self, memories: &[&Memory]) -> Result<(), Error> {
        let mut arrays: Vec<Elements> =
            memories.iter().map(|memory| elements(memory)).collect::<Result<_, _>>()?;
        run_checked(&self.kernel, &mut arrays, &self.rules.requirements(&self.kernel))
            .map_err(|problem| refused(&self.kernel, problem))?;
        for (slot, memory) in memories.iter().enumerate() {
            if is_stored(&self.kernel, slot) {
                memory.write(&bytes(memory.dtype(), &arrays[slot]))?;
            }
        }
        Ok(())
    }
}

/// The elements of a memory; all undefined if it was never written.
fn elements(memory: &Memory) -> Result<Elements, Error> {
    let bytes = match memory.read() {
        Ok(bytes) => bytes,
        Err(Error::Unwritten { .. }) => return Ok(vec![None; memory.size_elements()]),
        Err(error) => return Err(error),
    };
    let dtype = memory.dtype();
    let element = |bytes: &[u8]| {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        Some(Constant::from_bits(dtype, u64::from_le_bytes(word)))
    };
    Ok(bytes.chunks_exact(dtype.size_bytes()).map(element).collect())
}

fn bytes(dtype: DType, elements: &Elements) -> Vec<u8> {
    let size = dtype.size_bytes();
    let word = |element: &Option<Constant>| element.map_or(0, Constant::bits).to_le_bytes();
    elements.iter().flat_map(|element| word(element).into_iter().take(size)).collect()
}

/// Returns whether a kernel stores to the parameter of a slot.
pub(crate) fn is_stored(kernel: &Linear, slot: usize) -> bool {
    let at = |position: u32| &kernel.uops[position as usize];
    kernel.uops.iter().filter(|uop| uop.op == Op::Store).any(|store| {
        let array = at(at(store.src[0]).src[0]);
        matches!(array.arg, gradiff::graph::Arg::Global(global) if global.slot == slot)
    })
}
