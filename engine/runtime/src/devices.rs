//! The table of all devices, and the choice of the default one.

use std::ffi::OsString;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

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

/// The devices of which the first that opens is the default device, if no variable selects one.
/// `opencl` and `wgpu` are not among them: they also open with drivers that compute on the CPU, and
/// are slower there than `c`.
const DEFAULT_ORDER: [&str; 4] = ["cuda", "c", "jit", "interp"];

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

/// Returns the row of a device. Upper case is accepted, and `:0` after the name.
fn row_of(name: &str) -> Result<&'static Row, Error> {
    let base = name.strip_suffix(":0").unwrap_or(name);
    let row = DEVICES.iter().find(|row| row.name.eq_ignore_ascii_case(base));
    row.ok_or_else(|| Error::NoDevice { name: name.to_string(), known: device_names() })
}

/// Returns the canonical name of a device: `cuda` for `cuda`, `CUDA` and `cuda:0`. The device is
/// not opened. Of several devices of a kind, `GRADIFF_CUDA_DEVICE` and the like choose one.
///
/// # Errors
/// [`Error::NoDevice`] if no device has the name.
pub fn device_name(name: &str) -> Result<&'static str, Error> {
    row_of(name).map(|row| row.name)
}

/// Returns the device of this name, one of [`devices`], as [`device_name`] reads it.
///
/// # Errors
/// [`Error::NoDevice`] if no device has the name, [`Error::Unavailable`] if this machine does not
/// meet its requirements.
pub fn device(name: &str) -> Result<Arc<dyn Device>, Error> {
    crate::environment::check()?;
    row_of(name)?.device()
}

/// Returns the name of the default device of the process: that whose environment variable is 1, its
/// name in upper case with `_` for `-` (`C=1`, `JIT=1`, `WGPU_CORE=1`); without one, the first of
/// `cuda`, `c`, `jit` and `interp` that opens. It is chosen at the first call that succeeds.
///
/// # Errors
/// [`Error::DefaultDevice`] if several of the variables are 1, or one is neither 0, 1 nor empty.
pub fn default_device() -> Result<&'static str, Error> {
    static DEFAULT: OnceLock<&'static str> = OnceLock::new();
    if let Some(name) = DEFAULT.get() {
        return Ok(name);
    }
    crate::environment::check()?;
    let opens = |name: &str| device(name).is_ok();
    let name = choose(&|variable| std::env::var_os(variable), &opens)?;
    Ok(DEFAULT.get_or_init(|| name))
}

/// Chooses the default device by the values of variables and by which devices open.
fn choose(
    variable: &dyn Fn(&str) -> Option<OsString>,
    opens: &dyn Fn(&str) -> bool,
) -> Result<&'static str, Error> {
    let mut selected: Vec<(&'static str, String)> = Vec::new();
    for row in &DEVICES {
        let name = row.name.to_ascii_uppercase().replace('-', "_");
        let value = variable(&name).unwrap_or_default();
        match &*value.to_string_lossy() {
            "" | "0" => {}
            "1" => selected.push((row.name, format!("{name}=1"))),
            text => {
                let settings = format!("{name}={text}");
                let why = "it must be 1 for the default device, else 0";
                return Err(Error::DefaultDevice { settings, why });
            }
        }
    }
    match &selected[..] {
        [] => {
            let first = DEFAULT_ORDER.into_iter().find(|name| opens(name));
            first.map_or_else(|| device_name("interp"), Ok)
        }
        [(name, _)] => Ok(name),
        several => {
            let settings: Vec<&str> = several.iter().map(|(_, text)| text.as_str()).collect();
            let why = "only one device can be the default one";
            Err(Error::DefaultDevice { settings: settings.join(" "), why })
        }
    }
}

/// Returns the canonical names of all devices. None is opened.
pub fn device_names() -> Vec<&'static str> {
    DEVICES.iter().map(|row| row.name).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The default device with these variables, where these devices open.
    fn chosen(variables: &[(&str, &str)], opening: &[&str]) -> Result<&'static str, String> {
        let value = |name: &str| {
            let set = variables.iter().find(|(known, _)| *known == name);
            set.map(|(_, value)| OsString::from(value))
        };
        choose(&value, &|name| opening.contains(&name)).map_err(|error| error.to_string())
    }

    #[test]
    fn default_device_is_selected_by_its_variable() {
        for row in &DEVICES {
            let variable = row.name.to_uppercase().replace('-', "_");
            assert_eq!(chosen(&[(&variable, "1")], &["cuda", "c"]), Ok(row.name));
        }
        let zeros = [("C", "0"), ("CUDA", ""), ("JIT", "1"), ("c", "1")];
        assert_eq!(chosen(&zeros, &["c"]), Ok("jit"));
    }

    #[test]
    fn default_device_is_the_first_that_opens() {
        for (opening, expected) in [
            (&["interp", "jit", "c", "opencl", "cuda", "wgpu"][..], "cuda"),
            (&["interp", "jit", "c", "opencl", "wgpu"], "c"),
            (&["wgpu", "jit", "interp", "null"], "jit"),
            (&["opencl", "interp"], "interp"),
        ] {
            assert_eq!(chosen(&[], opening), Ok(expected));
            assert_eq!(chosen(&[("INTERP", "0"), ("NULL", "")], opening), Ok(expected));
        }
    }

    #[test]
    fn wrong_variables_are_refused() {
        for (variables, words) in [
            (&[("C", "1"), ("WGPU_CORE", "1")][..], "C=1 WGPU_CORE=1: only one device"),
            (&[("CUDA", "yes")], "CUDA=yes: it must be 1"),
            (&[("JIT", "1"), ("OPENCL", "2")], "OPENCL=2: it must be 1"),
        ] {
            let error = chosen(variables, &["c"]).unwrap_err();
            assert!(error.starts_with(words), "{error}");
        }
    }

    #[test]
    fn names_are_read_in_any_case_and_with_the_number_0() {
        for (name, canonical) in [
            ("c", "c"),
            ("C", "c"),
            ("Cuda:0", "cuda"),
            ("WGPU-core", "wgpu-core"),
            ("jit:0", "jit"),
        ] {
            assert_eq!(device_name(name).unwrap(), canonical);
        }
        for name in ["", "cpu", "cuda:1", "c:00", ":0", " c", "interp:0:0", "wgpu_core"] {
            let error = device_name(name).unwrap_err().to_string();
            assert!(error.starts_with(&format!("there is no device `{name}`; ")), "{error}");
        }
    }
}
