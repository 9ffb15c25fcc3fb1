//! The functions of NVIDIA's driver and of its compiler NVRTC, loaded at run time.

use std::ffi::{CStr, c_char, c_void};

use crate::Error;
use crate::library::functions;

/// A context, stream, event, module, function, pool or program.
pub(super) type Handle = *mut c_void;
/// A list of strings.
type Strings = *const *const c_char;

functions! {
    /// The driver.
    Driver {
        init: "cuInit"(u32) -> i32;
        driver_version: "cuDriverGetVersion"(*mut i32) -> i32;
        device_count: "cuDeviceGetCount"(*mut i32) -> i32;
        device: "cuDeviceGet"(*mut i32, i32) -> i32;
        device_name: "cuDeviceGetName"(*mut c_char, i32, i32) -> i32;
        device_attribute: "cuDeviceGetAttribute"(*mut i32, i32, i32) -> i32;
        device_pool: "cuDeviceGetDefaultMemPool"(*mut Handle, i32) -> i32;
        pool_set: "cuMemPoolSetAttribute"(Handle, i32, *mut c_void) -> i32;
        retain_context: "cuDevicePrimaryCtxRetain"(*mut Handle, i32) -> i32;
        set_context: "cuCtxSetCurrent"(Handle) -> i32;
        stream_create: "cuStreamCreate"(*mut Handle, u32) -> i32;
        stream_synchronize: "cuStreamSynchronize"(Handle) -> i32;
        event_create: "cuEventCreate"(*mut Handle, u32) -> i32;
        event_destroy: "cuEventDestroy_v2"(Handle) -> i32;
        event_record: "cuEventRecord"(Handle, Handle) -> i32;
        event_synchronize: "cuEventSynchronize"(Handle) -> i32;
        event_elapsed: "cuEventElapsedTime"(*mut f32, Handle, Handle) -> i32;
        allocate: "cuMemAllocAsync"(*mut u64, usize, Handle) -> i32;
        free: "cuMemFreeAsync"(u64, Handle) -> i32;
        upload: "cuMemcpyHtoDAsync_v2"(u64, *const c_void, usize, Handle) -> i32;
        copy: "cuMemcpyDtoDAsync_v2"(u64, u64, usize, Handle) -> i32;
        download: "cuMemcpyDtoHAsync_v2"(*mut c_void, u64, usize, Handle) -> i32;
        module_load: "cuModuleLoadData"(*mut Handle, *const c_void) -> i32;
        module_unload: "cuModuleUnload"(Handle) -> i32;
        module_function: "cuModuleGetFunction"(*mut Handle, Handle, *const c_char) -> i32;
        launch: "cuLaunchKernel"(
            Handle, u32, u32, u32, u32, u32, u32, u32, Handle, *mut *mut c_void, *mut *mut c_void
        ) -> i32;
        error_name: "cuGetErrorName"(i32, *mut *const c_char) -> i32;
        error_string: "cuGetErrorString"(i32, *mut *const c_char) -> i32;
    }
}

functions! {
    /// The compiler.
    Nvrtc {
        version: "nvrtcVersion"(*mut i32, *mut i32) -> i32;
        arch_count: "nvrtcGetNumSupportedArchs"(*mut i32) -> i32;
        archs: "nvrtcGetSupportedArchs"(*mut i32) -> i32;
        create: "nvrtcCreateProgram"(
            *mut Handle, *const c_char, *const c_char, i32, Strings, Strings
        ) -> i32;
        compile: "nvrtcCompileProgram"(Handle, i32, Strings) -> i32;
        log_size: "nvrtcGetProgramLogSize"(Handle, *mut usize) -> i32;
        log: "nvrtcGetProgramLog"(Handle, *mut c_char) -> i32;
        cubin_size: "nvrtcGetCUBINSize"(Handle, *mut usize) -> i32;
        cubin: "nvrtcGetCUBIN"(Handle, *mut c_char) -> i32;
        ptx_size: "nvrtcGetPTXSize"(Handle, *mut usize) -> i32;
        ptx: "nvrtcGetPTX"(Handle, *mut c_char) -> i32;
        destroy: "nvrtcDestroyProgram"(*mut Handle) -> i32;
        error_string: "nvrtcGetErrorString"(i32) -> *const c_char;
    }
}

/// Error codes that no kernel causes: out of memory, not initialised, device unavailable, no
/// device, errors of memory (ECC) and of NVLink, system not ready, driver mismatch.
const UNUSABLE: [i32; 8] = [2, 3, 46, 100, 214, 220, 802, 803];
const DRIVERS: [&str; 3] = ["libcuda.so.1", "libcuda.so", "nvcuda.dll"];
const COMPILERS: [&str; 6] = [
    "libnvrtc.so.13",
    "libnvrtc.so.12",
    "libnvrtc.so.11.2",
    "libnvrtc.so",
    "nvrtc64_130_0.dll",
    "nvrtc64_120_0.dll",
];

impl Driver {
    /// Loads and initialises the driver.
    pub(super) fn load() -> Result<Driver, String> {
        let missing =
            |why: String| format!("{why}; install NVIDIA's driver (it needs an NVIDIA GPU)");
        let driver = Driver::open(&DRIVERS).map_err(missing)?;
        // SAFETY: `cuInit` may be called any number of times.
        driver.check("cuInit", unsafe { (driver.init)(0) }).map_err(|error| error.to_string())?;
        Ok(driver)
    }

    /// Converts the result code of a call to an error.
    pub(super) fn check(&self, call: &'static str, code: i32) -> Result<(), Error> {
        if code == 0 {
            return Ok(());
        }
        let [name, description] = [self.error_name, self.error_string].map(|text_of| {
            let mut text: *const c_char = std::ptr::null();
            // SAFETY: the pointer is to a local pointer; the text lives as long as the driver.
            unsafe { text_of(code, &mut text) };
            string_at(text)
        });
        let why = format!("{description} ({name})");
        match UNUSABLE.contains(&code) {
            true => Err(Error::DeviceUnusable { device: "cuda", call, why }),
            false => Err(Error::Driver { device: "cuda", call, why }),
        }
    }

    pub(super) fn attribute(&self, device: i32, number: i32) -> i32 {
        let mut value = 0;
        // SAFETY: the pointer is to a local integer.
        let code = unsafe { (self.device_attribute)(&mut value, number, device) };
        if code == 0 { value } else { 0 }
    }
}

/// Copies a string of the driver.
fn string_at(text: *const c_char) -> String {
    if text.is_null() {
        return "unknown error".into();
    }
    // SAFETY: strings of the driver are terminated by 0 and live as long as the driver.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

impl Nvrtc {
    /// Loads the compiler.
    pub(super) fn load() -> Result<Nvrtc, String> {
        Nvrtc::open(&COMPILERS).map_err(|why| {
            format!(
                "{why}; install NVRTC (of the CUDA toolkit, or `pip install \
                 nvidia-cuda-nvrtc-cu12` with LD_LIBRARY_PATH at its folder lib)"
            )
        })
    }

    pub(super) fn version_text(&self) -> String {
        let (mut major, mut minor) = (0, 0);
        // SAFETY: the pointers are to local integers.
        unsafe { (self.version)(&mut major, &mut minor) };
        format!("{major}.{minor}")
    }

    /// The newest architecture up to `max` that the compiler supports.
    pub(super) fn newest_arch(&self, max: i32) -> Option<i32> {
        let mut count = 0;
        // SAFETY: the pointer is to a local integer.
        let code = unsafe { (self.arch_count)(&mut count) };
        let mut archs = vec![0i32; usize::try_from(count).unwrap_or(0)];
        if code != 0 || archs.is_empty() {
            return None;
        }
        // SAFETY: the buffer has as many integers as there are architectures.
        let code = unsafe { (self.archs)(archs.as_mut_ptr()) };
        archs.into_iter().filter(|arch| code == 0 && *arch <= max).max()
    }

    /// Compiles to machine code for an architecture, or to PTX if it is newer than the compiler.
    pub(super) fn code(
        &self,
        text: &str,
        arch: i32,
        include: &[String],
    ) -> Result<Vec<u8>, String> {
        let known =
            self.newest_arch(arch).ok_or("NVRTC does not support an architecture this old")?;
        let is_exact = known == arch;
        let kind = if is_exact { "sm" } else { "compute" };
        let mut options = vec![format!("--gpu-architecture={kind}_{known}"), "--fmad=false".into()];
        options.extend(include.iter().map(|path| format!("--include-path={path}")));
        let options: Vec<Vec<u8>> =
            options.into_iter().map(|option| [option.as_bytes(), b"\0"].concat()).collect();
        let options: Vec<*const c_char> =
            options.iter().map(|option| option.as_ptr().cast()).collect();
        let text = [text.as_bytes(), b"\0"].concat();
        let (mut program, none) = (std::ptr::null_mut(), std::ptr::null());
        // SAFETY: the text and the name are terminated by 0; there are no headers.
        let code = unsafe {
            let name = c"kernels.cu".as_ptr();
            (self.create)(&mut program, text.as_ptr().cast(), name, 0, none, none)
        };
        self.check(code)?;
        // SAFETY: the list has this many options, each terminated by 0.
        let code = unsafe { (self.compile)(program, options.len() as i32, options.as_ptr()) };
        let compiled = match code {
            0 if is_exact => self.bytes(program, self.cubin_size, self.cubin),
            0 => self.bytes(program, self.ptx_size, self.ptx),
            _ => Err(match self.bytes(program, self.log_size, self.log) {
                Ok(log) => String::from_utf8_lossy(&log).trim_end_matches('\0').to_string(),
                Err(why) => why,
            }),
        };
        // SAFETY: the program was created above and is not used any more.
        unsafe { (self.destroy)(&mut program) };
        compiled
    }

    fn bytes(
        &self,
        program: Handle,
        size: unsafe extern "C" fn(Handle, *mut usize) -> i32,
        copy: unsafe extern "C" fn(Handle, *mut c_char) -> i32,
    ) -> Result<Vec<u8>, String> {
        let mut count = 0;
        // SAFETY: the pointer is to a local integer.
        self.check(unsafe { size(program, &mut count) })?;
        let mut bytes = vec![0u8; count];
        // SAFETY: the buffer has as many bytes as the driver writes.
        self.check(unsafe { copy(program, bytes.as_mut_ptr().cast()) })?;
        Ok(bytes)
    }

    fn check(&self, code: i32) -> Result<(), String> {
        match code {
            0 => Ok(()),
            // SAFETY: any code is allowed.
            _ => Err(string_at(unsafe { (self.error_string)(code) })),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_library_error_is_one_line() {
        let Err(text) = Driver::open(&["libno_such_cuda.so"]) else {
            panic!("there is no such library")
        };
        assert_eq!(text, "no libno_such_cuda.so was found");
        if let Err(text) = Nvrtc::load() {
            assert!(text.contains("pip install") && !text.contains('\n'), "{text}");
        }
    }

    /// Runs if NVRTC is installed, with or without a GPU.
    #[test]
    fn kernels_compile_and_wrong_ones_are_quoted() {
        let Ok(nvrtc) = Nvrtc::load() else { return };
        let kernel = "extern \"C\" __global__ void E_1(int* data0) { data0[0] = 42; }";
        let code = nvrtc.code(kernel, 80, &[]).unwrap();
        assert!(code.starts_with(b"\x7fELF"), "machine code for sm_80");
        // An architecture that NVRTC does not know: PTX.
        let code = nvrtc.code(kernel, 999, &[]).unwrap();
        assert!(String::from_utf8_lossy(&code).contains(".visible .entry E_1"));
        let error = nvrtc.code("nonsense", 90, &[]).unwrap_err();
        assert!(error.contains("kernels.cu(1)"), "{error}");
        assert!(nvrtc.code(kernel, 1, &[]).is_err());
    }
}
