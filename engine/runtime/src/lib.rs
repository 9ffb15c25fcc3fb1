//! Devices, memory, compilers and launches. The one room where unsafe code may stand, but for the
//! promise of [`BoundedLinear`](gradiff_graph::BoundedLinear), on which devices rely.
//!
//! In go linear uops, out come executables and bytes. It knows nothing of tensors, schedules or
//! views, and never changes a kernel.
//!
//! # Safety
//!
//! No safe call of this crate or of those above it may end in undefined behaviour. What the unsafe
//! blocks rely on, and what would show that it does not hold (`.ci/sanitize` runs the sanitizers):
//!
//! * `pool`, `system`: a block is initialised, at a multiple of 64 bytes, and is one memory's own
//!   or shared and not written. Miri, AddressSanitizer.
//! * `memory`: a part stays within its block; bytes are written under the write lock, after a copy
//!   of those that are shared. Miri, AddressSanitizer, poison.
//! * `memory`, pointers for kernels: each leads to as many elements as the kernel declares, of its
//!   dtype, locked until the launch is over; a memory that is written is in one slot; each bool is
//!   0 or 1. Tests of devices, gcc's sanitizers.
//! * `jit`, `c`, launches: the kernel is a `BoundedLinear`; whoever can call its code keeps it; its
//!   frame is probed down to the end of the stack. `interp`, drawn kernels, gcc's sanitizers.
//! * `c`, threads: iterations of a thread range touch elements of their own, and are done before
//!   the launch returns. `BoundedLinear::check`, `interp`; Miri for `threads`.
//! * `c`, objects: functions have the types that are declared here; an object was compiled from a
//!   source of this crate and is in a folder that only the user may write to. Tests of the cache.
//! * `cuda`, `opencl`, drivers: functions have the types that cudarc and opencl-sys declare; NVIDIA's
//!   driver and compiler return only codes that cudarc declares, those of CUDA 13.4. Tests of
//!   drivers, stand-in of CUDA.
//! * `cuda`, `opencl`: a handle is released by its one owner; a copy ends before the bytes on the
//!   host do; a buffer holds the memory that it is a copy of. Tests of drivers, stand-in of CUDA.
//! * `process`, `folder`: nothing is allocated between `fork` and `exec`; what runs at exit does not
//!   unwind. Review.
//! * `kernel`, `to_linear`: views are inside their arrays, a store reaches each element once, empty
//!   views are gated, passes keep the elements that are touched. `interp`, an evaluator after each
//!   pass.
//!
//! An element that nobody wrote may be read, and is some value: a kernel that was read from text
//! can give what was on the stack.

mod c;
mod cache;
mod cuda;
mod device;
mod environment;
mod error;
mod folder;
mod half_float;
mod interp;
mod jit;
mod launch;
mod memory;
mod null;
mod opencl;
mod poison;
mod pool;
mod process;
mod remote;
mod scalar;
mod system;
mod threads;
#[cfg(feature = "wgpu")]
mod wgpu;

pub use cache::Cache;
pub use device::{Device, DeviceRow, Executable, device, devices};
pub use error::{Array, Error, Worker};
pub use memory::{Memory, memory_of};
pub use poison::{check_freed, set_poison};
