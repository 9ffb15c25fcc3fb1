//! The table of all devices.

use std::sync::{Arc, Mutex, PoisonError};

use crate::{Device, Error};

/// A device in the list of devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceRow {
    /// The name.
    pub name: &'static str,
    /// Version and target, or why the device is not available and what to do.
    pub status: Result<String, String>,
}

/// A row of the table: a name, and the function that opens the device.
struct Row {
    name: &'static str,
    open: fn() -> Result<Arc<dyn Device>, Error>,
    opened: Mutex<Option<Arc<dyn Device>>>,
}

const fn row(name: &'static str, open: fn() -> Result<Arc<dyn Device>, Error>) -> Row {
    Row { name, open, opened: Mutex::new(None) }
}

/// All devices; first the one that has no requirements.
static DEVICES: [Row; 8] = [
    row("interp", || Ok(Arc::new(crate::interp::Interpreter))),
    row("jit", || Ok(Arc::new(crate::jit::Jit::open()?))),
    row("c", || Ok(Arc::new(crate::c::Compiler::open()?))),
    row("opencl", || Ok(Arc::new(crate::opencl::OpenCl::open()?))),
    row("cuda", || Ok(Arc::new(crate::cuda::Cuda::open()?))),
    row("wgpu", wgpu::open),
    row("wgpu-core", wgpu::open_core),
    row("null", || Ok(Arc::new(crate::null::Null))),
];

#[cfg(feature = "wgpu")]
mod wgpu {
    use super::{Arc, Device, Error};
    use crate::wgpu::Wgpu;

    pub(super) fn open() -> Result<Arc<dyn Device>, Error> {
        Ok(Arc::new(Wgpu::open()?))
    }

    pub(super) fn open_core() -> Result<Arc<dyn Device>, Error> {
        Ok(Arc::new(Wgpu::open_core()?))
    }
}

#[cfg(not(feature = "wgpu"))]
mod wgpu {
    use super::{Arc, Device, Error};

    fn absent(device: &'static str) -> Result<Arc<dyn Device>, Error> {
        let why = "it is not part of this build; build with the feature `wgpu`".into();
        Err(Error::Unavailable { device, why })
    }

    pub(super) fn open() -> Result<Arc<dyn Device>, Error> {
        absent("wgpu")
    }

    pub(super) fn open_core() -> Result<Arc<dyn Device>, Error> {
        absent("wgpu-core")
    }
}

impl Row {
    /// Returns the device, which is opened once. If it was not available, tries to open it again.
    fn device(&self) -> Result<Arc<dyn Device>, Error> {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(device) = &*opened {
            return Ok(device.clone());
        }
        Ok(opened.insert((self.open)()?).clone())
    }
}

/// Returns the device of this name, one of [`devices`].
///
/// # Errors
/// [`Error::NoDevice`] if no device has the name, [`Error::Unavailable`] if this machine does not
/// meet its requirements.
pub fn device(name: &str) -> Result<Arc<dyn Device>, Error> {
    crate::environment::check()?;
    let row = DEVICES.iter().find(|row| row.name == name);
    let known = || DEVICES.iter().map(|row| row.name).collect();
    row.ok_or_else(|| Error::NoDevice { name: name.to_string(), known: known() })?.device()
}

/// Lists all devices with their status.
pub fn devices() -> Vec<DeviceRow> {
    let status = |device: Arc<dyn Device>| format!("{}; {}", device.describe(), device.target());
    let list = |row: &Row| {
        let status = row.device().map(status).map_err(|error| error.to_string());
        DeviceRow { name: row.name, status }
    };
    DEVICES.iter().map(list).collect()
}
