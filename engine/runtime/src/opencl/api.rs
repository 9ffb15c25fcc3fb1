//! The functions of an OpenCL driver, loaded at run time.

use std::ffi::{CStr, c_char, c_void};

use crate::Error;
use crate::library::functions;

/// A platform, device, context, queue, program, kernel, memory or event of the driver.
pub(super) type Handle = *mut c_void;
/// A callback; always `None`.
type Callback = Option<unsafe extern "C" fn()>;

/// A list of handles.
type List = *const Handle;

functions! {
    /// The functions of a driver.
    Api {
        get_platform_ids: "clGetPlatformIDs"(u32, *mut Handle, *mut u32) -> i32;
        get_platform_info: "clGetPlatformInfo"(Handle, u32, usize, *mut c_void, *mut usize) -> i32;
        get_device_ids: "clGetDeviceIDs"(Handle, u64, u32, *mut Handle, *mut u32) -> i32;
        get_device_info: "clGetDeviceInfo"(Handle, u32, usize, *mut c_void, *mut usize) -> i32;
        create_context: "clCreateContext"(
            *const isize, u32, List, Callback, *mut c_void, *mut i32
        ) -> Handle;
        create_command_queue: "clCreateCommandQueue"(Handle, Handle, u64, *mut i32) -> Handle;
        create_buffer: "clCreateBuffer"(Handle, u64, usize, *mut c_void, *mut i32) -> Handle;
        create_sub_buffer: "clCreateSubBuffer"(
            Handle, u64, u32, *const c_void, *mut i32
        ) -> Handle;
        enqueue_copy_buffer: "clEnqueueCopyBuffer"(
            Handle, Handle, Handle, usize, usize, usize, u32, List, *mut Handle
        ) -> i32;
        enqueue_write_buffer: "clEnqueueWriteBuffer"(
            Handle, Handle, u32, usize, usize, *const c_void, u32, List, *mut Handle
        ) -> i32;
        enqueue_read_buffer: "clEnqueueReadBuffer"(
            Handle, Handle, u32, usize, usize, *mut c_void, u32, List, *mut Handle
        ) -> i32;
        release_mem_object: "clReleaseMemObject"(Handle) -> i32;
        create_program_with_source: "clCreateProgramWithSource"(
            Handle, u32, *const *const c_char, *const usize, *mut i32
        ) -> Handle;
        build_program: "clBuildProgram"(
            Handle, u32, List, *const c_char, Callback, *mut c_void
        ) -> i32;
        get_program_build_info: "clGetProgramBuildInfo"(
            Handle, Handle, u32, usize, *mut c_void, *mut usize
        ) -> i32;
        release_program: "clReleaseProgram"(Handle) -> i32;
        create_kernel: "clCreateKernel"(Handle, *const c_char, *mut i32) -> Handle;
        set_kernel_arg: "clSetKernelArg"(Handle, u32, usize, *const c_void) -> i32;
        enqueue_nd_range_kernel: "clEnqueueNDRangeKernel"(
            Handle, Handle, u32, *const usize, *const usize, *const usize, u32, List, *mut Handle
        ) -> i32;
        get_event_profiling_info: "clGetEventProfilingInfo"(
            Handle, u32, usize, *mut c_void, *mut usize
        ) -> i32;
        release_event: "clReleaseEvent"(Handle) -> i32;
        release_kernel: "clReleaseKernel"(Handle) -> i32;
        finish: "clFinish"(Handle) -> i32;
    }
}

/// The names of the loader library.
const LIBRARIES: [&str; 4] = [
    "libOpenCL.so.1",
    "libOpenCL.so",
    "OpenCL.dll",
    "/System/Library/Frameworks/OpenCL.framework/OpenCL",
];

impl Api {
    /// Loads the library.
    pub(super) fn load() -> Result<Api, String> {
        Api::open(&LIBRARIES).map_err(|why| {
            format!(
                "{why}; install an OpenCL driver with its loader (Debian: ocl-icd-libopencl1, and \
                 pocl-opencl-icd for the CPU)"
            )
        })
    }

    /// Returns the handles of a function that fills a buffer and returns the number of handles.
    pub(super) fn list(
        fill: impl Fn(u32, *mut Handle, *mut u32) -> i32,
    ) -> Result<Vec<Handle>, i32> {
        let mut count = 0;
        match fill(0, std::ptr::null_mut(), &mut count) {
            0 => {}
            code => return Err(code),
        }
        let mut handles = vec![std::ptr::null_mut(); count as usize];
        match fill(count, handles.as_mut_ptr(), std::ptr::null_mut()) {
            0 => Ok(handles),
            code => Err(code),
        }
    }

    /// Returns the text of a function that fills a buffer and returns its size; empty on failure.
    pub(super) fn text(fill: impl Fn(usize, *mut c_void, *mut usize) -> i32) -> String {
        let mut size = 0;
        if fill(0, std::ptr::null_mut(), &mut size) != 0 {
            return String::new();
        }
        let mut bytes = vec![0u8; size + 1];
        if fill(size, bytes.as_mut_ptr().cast(), std::ptr::null_mut()) != 0 {
            return String::new();
        }
        let text = CStr::from_bytes_until_nul(&bytes).map(CStr::to_string_lossy);
        text.map_or(String::new(), |text| text.trim().to_string())
    }

    /// Returns a text property of a device.
    pub(super) fn device_text(&self, device: Handle, name: u32) -> String {
        // SAFETY: the device comes from the driver; `size` is that of `buffer`.
        Api::text(|size, buffer, required| unsafe {
            (self.get_device_info)(device, name, size, buffer, required)
        })
    }

    /// Returns a property of a device with one or more numbers; zeros on failure.
    pub(super) fn device_numbers<const N: usize>(&self, device: Handle, name: u32) -> [u64; N] {
        let mut numbers = [0u64; N];
        let mut size = 0;
        let buffer_bytes = size_of_val(&numbers);
        // SAFETY: as above; the driver writes at most `buffer_bytes` and returns the size.
        let code = unsafe {
            let buffer = numbers.as_mut_ptr().cast();
            (self.get_device_info)(device, name, buffer_bytes, buffer, &mut size)
        };
        if code == 0 && size <= buffer_bytes { numbers } else { [0; N] }
    }
}

/// Converts the result code of a call to an error.
pub(super) fn check(call: &'static str, code: i32) -> Result<(), Error> {
    match code {
        0 => Ok(()),
        // Device not available, out of host memory.
        -2 | -6 => Err(Error::DeviceUnusable { device: "opencl", call, why: name_of(code) }),
        code => Err(Error::Driver { device: "opencl", call, why: name_of(code) }),
    }
}

/// Describes an error code of the standard.
pub(super) fn name_of(code: i32) -> String {
    let name = match code {
        -1 => "no device was found",
        -4 => "a buffer could not be allocated",
        -5 => "out of resources",
        -6 => "out of host memory",
        -7 => "profiling information is not available",
        -11 => "the program does not build",
        -52 => "an argument of the kernel is missing",
        -54 => "the size of the group does not fit",
        -55 => "the size of a dimension of the group does not fit",
        -61 => "the size of a buffer does not fit",
        -1001 => "no driver is installed",
        _ => return format!("error {code}"),
    };
    format!("{name} (error {code})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_library_error_is_one_line() {
        let Err(text) = Api::open(&["libNoSuchOpenCL.so"]) else {
            panic!("there is no such library")
        };
        assert_eq!(text, "no libNoSuchOpenCL.so was found");
        // A library that is not OpenCL does not have the functions.
        if let Err(text) = Api::open(&["libc.so.6"]) {
            assert_eq!(text, "libc.so.6 was found, but has no clGetPlatformIDs");
        }
    }
}
