//! The checked interpreter: runs linear uops on any machine and reports errors that other devices
//! do not detect: indices out of bounds, reads of unwritten elements, races, divergent barriers.
//!
//! A kernel becomes a list of bytecode steps over 64-bit slots, one slot per lane of each uop;
//! constants are in their slots from the start. A step computes a pure function of `scalar`.
//!
//! A kernel with launched ranges is run group by group and thread by thread, and accesses of an
//! element are compared with those of other threads (`race`). A kernel with barriers is run from
//! barrier to barrier, each thread with slots of its own. A tensor core product synchronises
//! threads as well: each warp multiplies the fragments of its threads. Kernels without launched
//! ranges do not pay for this.

mod build;
mod execute;
mod group;
mod program;
mod race;

use std::sync::Arc;

use gradiff_graph::verify::verify_kernel;
use gradiff_graph::{BoundedLinear, Linear, Target};

use crate::locked::{Guard, Locked};
use crate::memory::Memory;
use crate::{Device, Error, Executable};
use execute::Run;
use group::Tracker;
use program::Program;

/// Compiles a kernel that satisfies [`verify_kernel`].
fn compile(kernel: &Linear) -> Result<Arc<dyn Executable>, Error> {
    Ok(Arc::new(Program::new(kernel)?))
}

/// The device `interp`.
pub(crate) struct Interpreter;

impl Device for Interpreter {
    fn name(&self) -> &'static str {
        "interp"
    }

    fn compile(&self, kernels: &[&BoundedLinear]) -> Result<Vec<Arc<dyn Executable>>, Error> {
        kernels.iter().map(|kernel| compile(kernel)).collect()
    }

    /// Takes kernels without a proof of bounds, since each access is checked.
    fn compile_checked(&self, kernels: &[&Linear]) -> Result<Vec<Arc<dyn Executable>>, Error> {
        let verify_and_compile = |kernel: &&Linear| {
            let unproven = |why| Error::Unproven { kernel: kernel.name.clone(), why };
            verify_kernel(kernel).map_err(unproven)?;
            compile(kernel)
        };
        kernels.iter().map(verify_and_compile).collect()
    }

    /// Without vectors and groups, which are emulated more slowly than loops. Kernels for any other
    /// target run as well.
    fn target(&self) -> Target {
        Target::PLAIN
    }

    fn describe(&self) -> String {
        "checked interpreter of linear uops: reports indices out of bounds and reads of elements \
         that were never written, races and barriers in divergent flow"
            .to_string()
    }
}

impl Executable for Program {
    fn run(&self, memories: &[&Memory]) -> Result<(), Error> {
        let mut locked = Locked::new(&self.signature, memories)?;
        let guard_of = locked.guard_of.clone();
        for (parameter, guard) in self.signature.parameters.iter().zip(&guard_of) {
            if let Guard::Write(data) = &mut locked.guards[*guard] {
                data.track_elements(parameter.dtype)?;
            }
        }
        let mut slots = self.slots.clone();
        let tracker = Tracker::new(self);
        let mut run = Run { guards: &mut locked.guards, guard_of: &guard_of, tracker };
        let result = match self.launch {
            None => self.execute::<false>(&mut run, &mut slots, 0),
            Some(_) => self.execute::<true>(&mut run, &mut slots, 0),
        };
        for guard in &mut locked.guards {
            if let Guard::Write(data) = guard {
                data.compact_flags();
            }
        }
        result.map(drop)
    }
}
