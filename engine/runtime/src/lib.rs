//! Devices, memory, compilers and launches.
//!
//! In: linear uops and bytes. Out: executables and bytes. This crate knows nothing of tensors,
//! schedules or views, and never changes a kernel. No other crate of the engine has unsafe code,
//! but for the promise of [`BoundedLinear`](gradiff_graph::BoundedLinear), on which devices rely.
//!
//! # Safety
//!
//! No safe call of this crate, or of the crates that use it, may end in undefined behaviour. Each
//! item says what some unsafe blocks rely on and, in brackets, which check would show that it does
//! not hold. `.ci/sanitize` runs the sanitizers.
//!
//! * `pool`, `system`: a block is initialised and aligned to 64 bytes; it belongs to a single
//!   memory, or is shared and not written (Miri, AddressSanitizer).
//! * `data`: a part stays within its block; bytes are written under the write lock, and shared
//!   bytes are copied before (Miri, AddressSanitizer, poison).
//! * `locked`, pointers for kernels: each points to as many elements as the kernel declares, of the
//!   declared dtype, and the memory is locked until the launch is over; a memory that is written is
//!   in one slot only; each bool is 0 or 1 (tests of devices, gcc's sanitizers).
//! * `jit`, `c`, launches: the kernel is a `BoundedLinear`; an executable keeps its code loaded;
//!   the stack frame of a kernel is probed page by page, so that an overflow hits the guard page
//!   (`interp`, drawn kernels, gcc's sanitizers).
//! * `c`, threads: no iteration of a thread range writes an element that another iteration
//!   accesses, and all iterations end before the launch returns (`BoundedLinear::check`, `interp`;
//!   Miri for `threads`).
//! * `c`, objects: functions have the types that are declared here; an object was compiled from a
//!   source of this crate and is in a folder that only the user may write to (tests of the cache).
//! * `cuda`, `opencl`, drivers: functions have the types that cudarc and opencl-sys declare;
//!   NVIDIA's driver and compiler return only codes that cudarc declares, those of CUDA 13.4 (tests
//!   of drivers, stand-in of CUDA).
//! * `cuda`, `opencl`, memory: a handle is released once, by its owner; a copy is complete before
//!   the bytes on the host are freed; a buffer has as many bytes as its memory (tests of drivers,
//!   stand-in of CUDA).
//! * `process`, `folder`: nothing is allocated between `fork` and `exec`; a function that runs at
//!   exit does not unwind (review).
//! * crate `kernel`, `lower`: views are inside their arrays, a store reaches each element once,
//!   empty views are gated, and passes do not change which elements are accessed (`interp`, an
//!   evaluator after each pass).
//!
//! An element that was never written may be read, and has an arbitrary value: a kernel that was
//! read from text can return what was on the stack.

mod c;
mod cache;
#[cfg(test)]
mod child;
mod cuda;
mod data;
mod device;
mod devices;
mod environment;
mod error;
mod folder;
mod half_float;
mod interp;
mod jit;
mod launch;
mod locked;
mod memory;
mod null;
mod opencl;
mod poison;
mod pool;
mod process;
mod remote;
mod scalar;
mod signature;
mod system;
mod threads;
#[cfg(feature = "wgpu")]
mod wgpu;

pub use cache::{Cache, cache_folder};
pub use device::{Device, Executable};
pub use devices::{DeviceRow, default_device, device, device_name, device_names, devices};
pub use environment::Variable;
pub use error::{Array, Error, Worker};
pub use memory::{Memory, memory_of};
pub use poison::{finds_damage, set_poison};
pub use pool::check_freed;
