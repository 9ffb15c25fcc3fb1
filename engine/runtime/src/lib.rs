//! Devices, memory, compilers and launches. The one room where unsafe code may stand, but for the
//! promise of [`BoundedLinear`](gradiff_graph::BoundedLinear), on which devices rely.
//!
//! In go linear uops, out come executables and bytes. It knows nothing of tensors, schedules or
//! views, and never changes a kernel.

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
mod library;
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
pub use device::{Device, DeviceRow, Executable, GroupLimits, Limits, device, devices};
pub use error::{Array, Error, Worker};
pub use memory::{Memory, memory_of};
pub use poison::{check_freed, set_poison};
