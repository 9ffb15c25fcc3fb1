//! A device that runs nothing, to time and inspect everything that precedes a launch.

use std::sync::Arc;

use gradiff_graph::{BoundedLinear, Target};

use crate::locked::Locked;
use crate::memory::Memory;
use crate::signature::Signature;
use crate::{Device, Error, Executable};

/// The device `null`.
pub(crate) struct Null;

/// A kernel that is checked against its memories but not run.
struct Unrun(Signature);

impl Device for Null {
    fn name(&self) -> &'static str {
        "null"
    }

    fn compile(&self, kernels: &[&BoundedLinear]) -> Result<Vec<Arc<dyn Executable>>, Error> {
        let compile = |kernel: &&BoundedLinear| {
            let unrun: Arc<dyn Executable> = Arc::new(Unrun(Signature::of(kernel)?));
            Ok(unrun)
        };
        kernels.iter().map(compile).collect()
    }

    fn target(&self) -> Target {
        Target::PLAIN
    }

    fn describe(&self) -> String {
        "runs nothing; results cannot be read".to_string()
    }
}

impl Executable for Unrun {
    fn run(&self, memories: &[&Memory]) -> Result<(), Error> {
        Locked::new(&self.0, memories).map(drop)
    }
}
