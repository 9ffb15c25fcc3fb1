//! What a device is, and the table of all devices.

use std::sync::{Arc, OnceLock};

use gradiff_graph::Linear;

use crate::{Error, Memory};

/// Something that kernels run on. Devices share host memory.
pub trait Device: Send + Sync {
    /// Its word on the command line.
    fn name(&self) -> &'static str;

    /// Makes kernels ready to run, in the order given; all of them in one go, which for a
    /// device with a slow compiler is far cheaper than one by one.
    ///
    /// # Errors
    /// The first kernel that cannot be compiled.
    fn compile(&self, kernels: &[&Linear]) -> Result<Vec<Arc<dyn Executable>>, Error>;

    /// Version and limits, for people.
    fn describe(&self) -> String;
}

/// A kernel made ready.
pub trait Executable: Send + Sync {
    /// Runs the kernel over `memories`, given by slot. What it writes is locked against all
    /// others meanwhile; what it reads is locked against writers.
    ///
    /// The checked interpreter reports an index out of bounds. Compiled devices trust the kernel:
    /// that its indices are within its parameters is the promise of lowering, which the checked
    /// interpreter tests.
    ///
    /// # Errors
    /// [`Error::Arguments`] if dtypes or sizes do not fit or a memory that is written stands in
    /// two slots; what the checked interpreter finds.
    fn run(&self, memories: &[&Memory]) -> Result<(), Error>;
}

/// One device in the listing of devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceRow {
    /// Its name.
    pub name: &'static str,
    /// Version and limits, or why it is not there and what to do.
    pub status: Result<String, String>,
}

/// A row of the table: a name and how to open the device.
struct Row {
    name: &'static str,
    open: fn() -> Result<Arc<dyn Device>, Error>,
    opened: OnceLock<Arc<dyn Device>>,
}

const fn row(name: &'static str, open: fn() -> Result<Arc<dyn Device>, Error>) -> Row {
    Row { name, open, opened: OnceLock::new() }
}

/// All devices, the one that needs nothing first.
static DEVICES: [Row; 3] = [
    row("interp", || Ok(Arc::new(crate::interp::Interpreter))),
    row("jit", || Ok(Arc::new(crate::jit::Jit::open()?))),
    row("c", || Ok(Arc::new(crate::c::Compiler::open()?))),
];

impl Row {
    /// The device, opened once; a device that was not there is looked for anew.
    fn device(&self) -> Result<Arc<dyn Device>, Error> {
        if let Some(device) = self.opened.get() {
            return Ok(device.clone());
        }
        let device = (self.open)()?;
        Ok(self.opened.get_or_init(|| device).clone())
    }
}

/// The device of this name: `interp`, `jit` or `c`.
///
/// # Errors
/// [`Error::NoDevice`] if no device has the name, [`Error::Unavailable`] if this machine lacks
/// what it needs.
pub fn device(name: &str) -> Result<Arc<dyn Device>, Error> {
    let row = DEVICES.iter().find(|row| row.name == name);
    let known = || DEVICES.iter().map(|row| row.name).collect();
    row.ok_or_else(|| Error::NoDevice { name: name.to_string(), known: known() })?.device()
}

/// All devices and how they stand.
pub fn devices() -> Vec<DeviceRow> {
    let status = |row: &Row| match row.device() {
        Ok(device) => Ok(device.describe()),
        Err(error) => Err(error.to_string()),
    };
    DEVICES.iter().map(|row| DeviceRow { name: row.name, status: status(row) }).collect()
}
