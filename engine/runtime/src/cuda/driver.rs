//! NVIDIA's driver through cudarc, which loads it at the first call.
//!
//! cudarc panics if the library or one of its functions is missing, so [`load`] looks for the
//! library first, and refuses a driver that is too old to have all functions.

use std::ffi::CStr;

use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys::{self, CUevent, CUresult};

use crate::Error;

/// The first version of CUDA whose driver allocates in the order of a stream.
const MIN_VERSION: i32 = 11020;

/// Error codes that no kernel causes.
const UNUSABLE: [CUresult; 8] = [
    CUresult::CUDA_ERROR_OUT_OF_MEMORY,
    CUresult::CUDA_ERROR_NOT_INITIALIZED,
    CUresult::CUDA_ERROR_DEVICE_UNAVAILABLE,
    CUresult::CUDA_ERROR_NO_DEVICE,
    CUresult::CUDA_ERROR_ECC_UNCORRECTABLE,
    CUresult::CUDA_ERROR_NVLINK_UNCORRECTABLE,
    CUresult::CUDA_ERROR_SYSTEM_NOT_READY,
    CUresult::CUDA_ERROR_SYSTEM_DRIVER_MISMATCH,
];

/// Loads and initialises the driver. Returns the version of CUDA that it is for, such as 12040.
pub(super) fn load() -> Result<i32, String> {
    // SAFETY: the initialisers of the driver's library have no preconditions.
    if !unsafe { sys::is_culib_present() } {
        return Err("no libcuda.so or nvcuda.dll was found; install NVIDIA's driver (it needs an \
                    NVIDIA GPU)"
            .into());
    }
    check("cuInit", result::init()).map_err(|error| error.to_string())?;
    let mut version = 0;
    // SAFETY: the pointer is to a local integer.
    let code = unsafe { sys::cuDriverGetVersion(&mut version) };
    check("cuDriverGetVersion", code.result()).map_err(|error| error.to_string())?;
    if version < MIN_VERSION {
        return Err(format!(
            "the driver is for CUDA {}, but one for CUDA {} or later is needed; update NVIDIA's \
             driver",
            version_text(version),
            version_text(MIN_VERSION)
        ));
    }
    Ok(version)
}

/// The text of a version of CUDA: 12.4 for 12040.
pub(super) fn version_text(version: i32) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

/// Converts the result of a call to one with an error of the device.
pub(super) fn check<T>(call: &'static str, result: Result<T, DriverError>) -> Result<T, Error> {
    result.map_err(|error| {
        let text = |text: Result<&CStr, DriverError>| {
            text.map_or("unknown error".into(), |text| text.to_string_lossy().into_owned())
        };
        let why = format!("{} ({})", text(error.error_string()), text(error.error_name()));
        match UNUSABLE.contains(&error.0) {
            true => Error::DeviceUnusable { device: "cuda", call, why },
            false => Error::Driver { device: "cuda", call, why },
        }
    })
}

/// Returns the milliseconds between two events. All drivers have this function. cudarc, which
/// follows CUDA 13, declares only its successor, which drivers before CUDA 12.8 do not have.
///
/// # Safety
/// The events are alive and complete.
pub(super) unsafe fn elapsed(start: CUevent, end: CUevent) -> Result<f32, DriverError> {
    type Elapsed = unsafe extern "C" fn(*mut f32, CUevent, CUevent) -> CUresult;
    let missing = |_| DriverError(CUresult::CUDA_ERROR_NOT_FOUND);
    let mut millis = 0f32;
    // SAFETY: the events were created, so the library is loaded; its documentation gives the
    // function this type. The pointer is to a local float.
    let code = unsafe {
        let elapsed = sys::culib().get::<Elapsed>("cuEventElapsedTime").map_err(missing)?;
        elapsed(&mut millis, start, end)
    };
    code.result().map(|()| millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_driver_error_is_one_line() {
        if let Err(text) = load() {
            assert!(text.contains("NVIDIA's driver") && !text.contains('\n'), "{text}");
        }
    }
}
