//! NVIDIA's compiler NVRTC through cudarc, which loads it at the first call.
//!
//! As for the driver, [`load`] must succeed before any other function of this file is called.

use std::ffi::{CStr, CString, c_char};

use cudarc::nvrtc::result::{self, NvrtcError};
use cudarc::nvrtc::sys::{self, nvrtcProgram, nvrtcResult};

/// The first version that lists its architectures and returns machine code.
const MIN_VERSION: (i32, i32) = (11, 2);

/// Loads the compiler.
pub(super) fn load() -> Result<(), String> {
    const INSTALL: &str = "install NVRTC (of the CUDA toolkit, or `pip install \
                           nvidia-cuda-nvrtc-cu12` with LD_LIBRARY_PATH at its folder lib)";
    // SAFETY: the initialisers of the compiler's library have no preconditions.
    if !unsafe { sys::is_culib_present() } {
        return Err(format!("no libnvrtc was found; {INSTALL}"));
    }
    if version() < MIN_VERSION {
        let (major, minor) = MIN_VERSION;
        return Err(format!("NVRTC is older than {major}.{minor}; {INSTALL}"));
    }
    Ok(())
}

fn version() -> (i32, i32) {
    let (mut major, mut minor) = (0, 0);
    // SAFETY: the pointers are to local integers.
    unsafe { sys::nvrtcVersion(&mut major, &mut minor) };
    (major, minor)
}

/// The version, as 12.4.
pub(super) fn version_text() -> String {
    let (major, minor) = version();
    format!("{major}.{minor}")
}

/// The newest architecture up to `max` that the compiler supports.
fn newest_arch(max: i32) -> Option<i32> {
    let mut count = 0;
    // SAFETY: the pointer is to a local integer.
    let counted = unsafe { sys::nvrtcGetNumSupportedArchs(&mut count) }.result();
    let mut archs = vec![0i32; usize::try_from(count).unwrap_or(0)];
    if counted.is_err() || archs.is_empty() {
        return None;
    }
    // SAFETY: the buffer has as many integers as there are architectures.
    unsafe { sys::nvrtcGetSupportedArchs(archs.as_mut_ptr()) }.result().ok()?;
    archs.into_iter().filter(|arch| *arch <= max).max()
}

/// Compiles to machine code for an architecture, or to PTX if it is newer than the compiler.
pub(super) fn code(text: &str, arch: i32, include: &[String]) -> Result<Vec<u8>, String> {
    let known = newest_arch(arch).ok_or("NVRTC does not support an architecture this old")?;
    let is_exact = known == arch;
    let kind = if is_exact { "sm" } else { "compute" };
    let mut options = vec![format!("--gpu-architecture={kind}_{known}"), "--fmad=false".into()];
    options.extend(include.iter().map(|path| format!("--include-path={path}")));
    let text = CString::new(text).map_err(|_| "the source has a zero byte")?;
    let mut program = result::create_program(&text, Some(c"kernels.cu")).map_err(message)?;
    // SAFETY: the program was created above.
    let code = match unsafe { result::compile_program(program, &options) } {
        Ok(()) if is_exact => bytes(program, sys::nvrtcGetCUBINSize, sys::nvrtcGetCUBIN),
        Ok(()) => bytes(program, sys::nvrtcGetPTXSize, sys::nvrtcGetPTX),
        Err(_) => Err(match bytes(program, sys::nvrtcGetProgramLogSize, sys::nvrtcGetProgramLog) {
            Ok(log) => String::from_utf8_lossy(&log).trim_end_matches('\0').to_string(),
            Err(why) => why,
        }),
    };
    // SAFETY: the program was created above and is not used any more.
    unsafe { sys::nvrtcDestroyProgram(&mut program) };
    code
}

/// Returns an output of a program, by the functions that give its size and copy it.
fn bytes(
    program: nvrtcProgram,
    size: unsafe fn(nvrtcProgram, *mut usize) -> nvrtcResult,
    copy: unsafe fn(nvrtcProgram, *mut c_char) -> nvrtcResult,
) -> Result<Vec<u8>, String> {
    let mut count = 0;
    // SAFETY: the program is alive; the pointer is to a local integer.
    unsafe { size(program, &mut count) }.result().map_err(message)?;
    let mut bytes = vec![0u8; count];
    // SAFETY: the buffer has as many bytes as the compiler writes.
    unsafe { copy(program, bytes.as_mut_ptr().cast()) }.result().map_err(message)?;
    Ok(bytes)
}

fn message(error: NvrtcError) -> String {
    // SAFETY: the text of a code is terminated by 0 and lives as long as the process.
    unsafe { CStr::from_ptr(sys::nvrtcGetErrorString(error.0)) }.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_compiler_error_is_one_line() {
        if let Err(text) = load() {
            assert!(text.contains("pip install") && !text.contains('\n'), "{text}");
        }
    }

    /// Runs if NVRTC is installed, with or without a GPU.
    #[test]
    fn kernels_compile_and_wrong_ones_are_quoted() {
        let Ok(()) = load() else { return };
        let kernel = "extern \"C\" __global__ void E_1(int* data0) { data0[0] = 42; }";
        let machine_code = code(kernel, 80, &[]).unwrap();
        assert!(machine_code.starts_with(b"\x7fELF"), "machine code for sm_80");
        // An architecture that NVRTC does not know: PTX.
        let ptx = code(kernel, 999, &[]).unwrap();
        assert!(String::from_utf8_lossy(&ptx).contains(".visible .entry E_1"));
        let error = code("nonsense", 90, &[]).unwrap_err();
        assert!(error.contains("kernels.cu(1)"), "{error}");
        assert!(code(kernel, 1, &[]).is_err());
    }
}
