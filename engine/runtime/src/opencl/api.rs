//! The functions of an OpenCL driver, loaded at run time. Their types are those of `opencl-sys`.

use std::ffi::{CStr, c_void};

use libloading::Library;
use opencl_sys::*;

use crate::Error;

/// A platform, device, context, queue, program, kernel, memory or event of the driver.
pub(super) type Handle = *mut c_void;

/// The function that an optional pointer of `opencl-sys` is to.
pub(super) trait Pointer {
    type Function;
}

impl<F> Pointer for Option<F> {
    type Function = F;
}

/// Defines a struct of the functions of a driver: name in Rust, type. A type is named as the
/// function, with `_t` at the end.
macro_rules! functions {
    ($($name:ident: $type:ident;)+) => {
        /// The functions of a driver, which stays loaded as long as this lives.
        pub(super) struct Api {
            $(pub(super) $name: <cl_function_types::$type as Pointer>::Function,)+
            _library: Library,
        }

        impl Api {
            /// Loads the first available library. The error names the libraries, or the function
            /// that is missing.
            fn open(names: &[&str]) -> Result<Api, String> {
                // SAFETY: the initialisers of OpenCL libraries have no preconditions.
                let open = |name: &&str| unsafe { Library::new(*name) }.ok();
                let library = names
                    .iter()
                    .find_map(open)
                    .ok_or_else(|| format!("no {} was found", names.join(" or ")))?;
                $(
                    let symbol = stringify!($type).trim_end_matches("_t");
                    // SAFETY: `opencl-sys` declares the types of the standard's headers.
                    let $name = unsafe { library.get::<cl_function_types::$type>(symbol) }
                        .ok()
                        .and_then(|function| *function)
                        .ok_or_else(|| format!("{} was found, but has no {symbol}", names[0]))?;
                )+
                Ok(Api { $($name,)+ _library: library })
            }
        }
    };
}

functions! {
    get_platform_ids: clGetPlatformIDs_t;
    get_platform_info: clGetPlatformInfo_t;
    get_device_ids: clGetDeviceIDs_t;
    get_device_info: clGetDeviceInfo_t;
    create_context: clCreateContext_t;
    create_command_queue: clCreateCommandQueue_t;
    create_buffer: clCreateBuffer_t;
    create_sub_buffer: clCreateSubBuffer_t;
    enqueue_copy_buffer: clEnqueueCopyBuffer_t;
    enqueue_write_buffer: clEnqueueWriteBuffer_t;
    enqueue_read_buffer: clEnqueueReadBuffer_t;
    release_mem_object: clReleaseMemObject_t;
    create_program_with_source: clCreateProgramWithSource_t;
    build_program: clBuildProgram_t;
    get_program_build_info: clGetProgramBuildInfo_t;
    release_program: clReleaseProgram_t;
    create_kernel: clCreateKernel_t;
    set_kernel_arg: clSetKernelArg_t;
    enqueue_nd_range_kernel: clEnqueueNDRangeKernel_t;
    get_event_profiling_info: clGetEventProfilingInfo_t;
    release_event: clReleaseEvent_t;
    release_kernel: clReleaseKernel_t;
    finish: clFinish_t;
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
            CL_SUCCESS => {}
            code => return Err(code),
        }
        let mut handles = vec![std::ptr::null_mut(); count as usize];
        match fill(count, handles.as_mut_ptr(), std::ptr::null_mut()) {
            CL_SUCCESS => Ok(handles),
            code => Err(code),
        }
    }

    /// Returns the text of a function that fills a buffer and returns its size; empty on failure.
    pub(super) fn text(fill: impl Fn(usize, *mut c_void, *mut usize) -> i32) -> String {
        let mut size = 0;
        if fill(0, std::ptr::null_mut(), &mut size) != CL_SUCCESS {
            return String::new();
        }
        let mut bytes = vec![0u8; size + 1];
        if fill(size, bytes.as_mut_ptr().cast(), std::ptr::null_mut()) != CL_SUCCESS {
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
        if code == CL_SUCCESS && size <= buffer_bytes { numbers } else { [0; N] }
    }
}

/// Converts the result code of a call to an error.
pub(super) fn check(call: &'static str, code: i32) -> Result<(), Error> {
    match code {
        CL_SUCCESS => Ok(()),
        CL_DEVICE_NOT_AVAILABLE | CL_MEM_OBJECT_ALLOCATION_FAILURE | CL_OUT_OF_HOST_MEMORY => {
            Err(Error::DeviceUnusable { device: "opencl", call, why: name_of(code) })
        }
        code => Err(Error::Driver { device: "opencl", call, why: name_of(code) }),
    }
}

/// Describes an error code of the standard.
pub(super) fn name_of(code: i32) -> String {
    let name = match code {
        CL_DEVICE_NOT_FOUND => "no device was found",
        CL_MEM_OBJECT_ALLOCATION_FAILURE => "a buffer could not be allocated",
        CL_OUT_OF_RESOURCES => "out of resources",
        CL_OUT_OF_HOST_MEMORY => "out of host memory",
        CL_PROFILING_INFO_NOT_AVAILABLE => "profiling information is not available",
        CL_BUILD_PROGRAM_FAILURE => "the program does not build",
        CL_INVALID_KERNEL_ARGS => "an argument of the kernel is missing",
        CL_INVALID_WORK_GROUP_SIZE => "the size of the group does not fit",
        CL_INVALID_WORK_ITEM_SIZE => "the size of a dimension of the group does not fit",
        CL_INVALID_BUFFER_SIZE => "the size of a buffer does not fit",
        CL_PLATFORM_NOT_FOUND_KHR => "no driver is installed",
        _ => return format!("error {code}"),
    };
    format!("{name} (error {code})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lack_of_memory_is_an_environment_error() {
        for (code, expected) in [
            (CL_MEM_OBJECT_ALLOCATION_FAILURE, true),
            (CL_OUT_OF_HOST_MEMORY, true),
            (CL_DEVICE_NOT_AVAILABLE, true),
            (CL_INVALID_BUFFER_SIZE, false),
            // NVIDIA's driver reports this for wrong accesses as well.
            (CL_OUT_OF_RESOURCES, false),
        ] {
            let error = check("clCreateBuffer", code).unwrap_err();
            assert_eq!(error.is_environment(), expected, "{error}");
        }
    }

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
