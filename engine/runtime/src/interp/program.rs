//! The bytecode of the interpreter.

use gradiff_graph::tensor_core::TensorCore;
use gradiff_graph::{DType, Local};
use smallvec::SmallVec;

use crate::Error;
use crate::error::Array;
use crate::scalar::Function;
use crate::signature::{Parameter, Signature};

/// The slot number that means "no gate".
pub(super) const NO_GATE: u32 = u32::MAX;

/// A bytecode step. `target` and `join` are indices of steps, `number` is that of a barrier; all
/// other numbers are those of slots.
#[derive(Clone, Copy)]
pub(super) enum Step {
    Alu {
        function: Function,
        to: u32,
        x: u32,
        y: u32,
        z: u32,
    },
    Copy {
        to: u32,
        from: u32,
    },
    Load {
        to: u32,
        access: Access,
    },
    Store {
        from: u32,
        access: Access,
    },
    LoadLocal {
        to: u32,
        access: Access,
    },
    StoreLocal {
        from: u32,
        access: Access,
    },
    Loop {
        counter: u32,
        end: u32,
        target: u32,
    },
    EndLoop {
        counter: u32,
        end: u32,
        target: u32,
    },
    /// Changes the current group or thread.
    Locate(Transition),
    /// Runs the steps up to `join` in each thread of the group.
    Fork {
        join: u32,
    },
    Join,
    Barrier {
        number: u32,
    },
}

/// The beginning or end of an iteration of launched ranges.
#[derive(Clone, Copy)]
pub(super) enum Transition {
    EnterGroup,
    LeaveGroup,
    EnterThread,
    LeaveThread,
}

/// An access of an element of an array.
#[derive(Clone, Copy)]
pub(super) struct Access {
    pub(super) index: u32,
    pub(super) gate: u32,
    /// The number of the parameter, or of the local array.
    pub(super) array: u16,
    pub(super) dtype: DType,
    /// The lane of a vector access, which is added to the index.
    pub(super) lane: u8,
    /// The uop, for messages.
    pub(super) position: u32,
}

/// A compiled kernel.
pub(super) struct Program {
    pub(super) signature: Signature,
    pub(super) steps: Vec<Step>,
    /// The initial values of the slots.
    pub(super) slots: Vec<u64>,
    pub(super) locals: Vec<Local>,
    /// The launched ranges, if there are groups, threads or local arrays.
    pub(super) launch: Option<Launch>,
    pub(super) barriers: Vec<Barrier>,
}

/// The slots of counters, and the sizes of their ranges; outermost first.
pub(super) type Counters = SmallVec<[(u32, u32); 3]>;

/// The launched ranges of a kernel.
#[derive(Default)]
pub(super) struct Launch {
    /// The ranges whose iterations are groups.
    pub(super) groups: Counters,
    /// The ranges whose iterations are threads of a group.
    pub(super) threads: Counters,
    pub(super) group_count: u32,
    pub(super) thread_count: u32,
}

/// A tensor core product by the threads of each warp. Slots are those of each thread.
pub(super) struct Product {
    pub(super) core: &'static TensorCore,
    /// The slots of the fragments of A, B and C.
    pub(super) src: [Vec<u32>; 3],
    /// The slots of the result.
    pub(super) to: Vec<u32>,
}

/// A synchronisation point: a barrier, or a tensor core product.
pub(super) struct Barrier {
    /// The product to compute when all threads have reached it.
    pub(super) product: Option<Product>,
    /// The uop.
    pub(super) position: u32,
    /// The counters of the loops around it.
    pub(super) counters: SmallVec<[u32; 4]>,
}

impl Program {
    /// The index of the accessed element, after a bounds check; `None` if the gate is false.
    #[inline]
    pub(super) fn element(
        &self,
        slots: &[u64],
        access: Access,
        size_elements: i64,
        array: impl Fn() -> Array,
    ) -> Result<Option<usize>, Error> {
        if access.gate != NO_GATE && slots[access.gate as usize] == 0 {
            return Ok(None);
        }
        let index = (slots[access.index as usize] as i64).wrapping_add(i64::from(access.lane));
        if 0 <= index && index < size_elements {
            return Ok(Some(index as usize));
        }
        let (kernel, position) = (self.signature.name.clone(), access.position as usize);
        Err(Error::OutOfBounds { kernel, position, array: array(), index, size_elements })
    }

    pub(super) fn parameter(&self, access: Access) -> &Parameter {
        &self.signature.parameters[usize::from(access.array)]
    }

    pub(super) fn uninitialised(
        &self,
        access: Access,
        array: Array,
        element: usize,
        size_elements: i64,
    ) -> Error {
        let (kernel, position) = (self.signature.name.clone(), access.position as usize);
        Error::Uninitialised { kernel, position, array, index: element as i64, size_elements }
    }
}
