//! Tests of the device with a fake of NVIDIA's driver and of NVRTC (`stand_in.c`), for machines
//! without a GPU.

use std::process::Command;

use cudarc::driver::sys;
use gradiff_graph::text::parse_linears;

use super::*;
use crate::child::is_child;

/// Returns whether the fake is the driver of this process. If not, runs the calling test, which has
/// this name, in a process in which it is: cudarc loads the libraries once for each process.
fn has_stand_in(test: &str) -> bool {
    let directory = tempfile::tempdir().unwrap();
    is_child(&format!("cuda::tests::{test}"), |child| {
        let source = directory.path().join("stand_in.c");
        std::fs::write(&source, include_str!("stand_in.c")).unwrap();
        // The first names that cudarc looks for.
        for library in ["libcuda.so", "libnvrtc.so"] {
            let mut compiler = Command::new("cc");
            compiler.args(["-shared", "-fPIC", "-O1", "-o"]).arg(directory.path().join(library));
            assert!(compiler.arg(&source).status().unwrap().success());
        }
        let folders = std::env::var("LD_LIBRARY_PATH").unwrap_or_default();
        let folders = format!("{}:{folders}", directory.path().display());
        child.env("LD_LIBRARY_PATH", folders).env_remove("GRADIFF_CUDA_DEVICE");
    })
}

/// The address of a variable of the fake driver.
fn variable<T: std::marker::Copy>(name: &str) -> *mut T {
    // SAFETY: the variables have the types that callers ask for.
    *unsafe { sys::culib().get::<*mut T>(name) }.unwrap()
}

/// The value of a count of the fake driver.
fn count(name: &str) -> i32 {
    // SAFETY: the library is loaded, and no function of it is running.
    unsafe { variable::<i32>(name).read() }
}

/// The device of the fake driver, and a kernel.
struct StandIn {
    device: Cuda,
    kernel: Arc<dyn Executable>,
}

impl StandIn {
    /// Opens the device in the process of the test; see `has_stand_in`.
    fn new(test: &str) -> Option<StandIn> {
        if !has_stand_in(test) {
            return None;
        }
        let device = Cuda::open().unwrap();
        let kernel = parse_linears(
            "kernel E_4
             0 define_global i32 [] data0 4
             1 define_global i32 [] data1 4
             2 const i32 [] 4
             3 const i32 [] 1
             4 range i32 [2] 0g
             5 index i32 [0, 4]
             6 index i32 [1, 4]
             7 load i32 [6]
             8 add i32 [7, 3]
             9 store void [5, 8]
             10 endrange void [4]",
        );
        let kernel = device.compile_checked(&[&kernel.unwrap()[0]]).unwrap().remove(0);
        Some(StandIn { device, kernel })
    }
}

fn ints(memory: &Memory) -> Vec<i32> {
    let bytes = memory.read().unwrap();
    bytes.chunks(4).map(|word| i32::from_le_bytes(word.try_into().unwrap())).collect()
}

#[test]
fn kernel_is_timed_by_the_device_clock() {
    let Some(stand_in) = StandIn::new("kernel_is_timed_by_the_device_clock") else { return };
    let device = &stand_in.device;
    assert!(
        device.describe().starts_with("Stand-in, compute capability 9.0, driver for CUDA 12.4")
    );
    let input = Memory::from_bytes(DType::I32, &[1, 0, 0, 0].repeat(4)).unwrap();
    let output = Memory::new(DType::I32, 4).unwrap();
    // By the fake clock, allocations and copies take much longer than the kernel; the host's times
    // differ.
    for _ in 0..2 {
        let time = device.time(&*stand_in.kernel, &[&output, &input]).unwrap();
        assert_eq!((time, count("events_alive")), (Duration::from_millis(5), 0));
    }
    assert_eq!(ints(&output), [2; 4]);
    // A timed launch computes the same.
    stand_in.kernel.run(&[&input, &output]).unwrap();
    device.wait().unwrap();
    assert_eq!((ints(&input), count("events_alive")), (vec![3; 4], 0));
}

#[test]
fn large_local_arrays_are_asked_for() {
    let Some(stand_in) = StandIn::new("large_local_arrays_are_asked_for") else { return };
    // A kernel with local arrays of a byte and of so many elements of 4 bytes.
    let kernel = |name: &str, elements: i64| {
        let text = format!(
            "kernel {name}
             0 define_global i32 [] data0 4
             1 define_global i32 [] data1 4
             2 define_local i8 [] local0 1
             3 define_local i32 [] local1 {elements}
             4 const i32 [] 4
             5 const i8 [] 1
             6 const i32 [] 0
             7 range i32 [4] 0l
             8 index i8 [2, 6]
             9 store void [8, 5]
             10 index i32 [3, 7]
             11 index i32 [1, 7]
             12 load i32 [11]
             13 store void [10, 12]
             14 barrier void []
             15 load i32 [10]
             16 index i32 [0, 7]
             17 store void [16, 15]
             18 endrange void [7]"
        );
        let kernel = parse_linears(&text).unwrap().remove(0);
        stand_in.device.compile_checked(&[&kernel]).map(|mut kernels| kernels.remove(0))
    };
    let [input, output] = [1u8, 2].map(|byte| Memory::from_bytes(DType::I32, &[byte; 16]).unwrap());
    // Up to 48 KiB are declared. The array after the byte is aligned to 16 bytes.
    for (elements, bytes) in [(4, 0), (12_284, 0), (12_285, 49_168), (25_000, 100_016)] {
        kernel(&format!("E_{elements}"), elements).unwrap().run(&[&output, &input]).unwrap();
        assert_eq!(count("shared_bytes"), bytes, "{elements} elements");
    }
    let refused = kernel("E_more", 25_088).err().unwrap().to_string();
    assert!(refused.contains("100352 bytes of local memory, not 100353"), "{refused}");
}

#[test]
fn failed_events_are_reported_and_freed() {
    let Some(stand_in) = StandIn::new("failed_events_are_reported_and_freed") else { return };
    let [input, output] = [1u8, 2].map(|byte| Memory::from_bytes(DType::I32, &[byte; 16]).unwrap());
    let before = output.read().unwrap();
    let refused = || {
        let time = stand_in.device.time(&*stand_in.kernel, &[&output, &input]);
        assert_eq!(count("events_alive"), 0);
        time.unwrap_err().to_string()
    };
    // SAFETY: the library is loaded, and no function of it is running.
    unsafe { variable::<i32>("events_fail").write(1) };
    let expected = "device cuda: cuEventCreate failed: out of memory (CUDA_ERROR_OUT_OF_MEMORY)";
    assert_eq!(refused(), expected);
    assert_eq!(output.read().unwrap(), before, "the kernel did not run");
    // SAFETY: as above.
    unsafe { variable::<i32>("events_fail").write(0) };
    for invalid in [-1.0, f32::NAN, f32::INFINITY] {
        // SAFETY: as above.
        unsafe { variable::<f32>("event_scale").write(invalid) };
        let text = refused();
        assert!(
            text.contains("cuEventElapsedTime failed: it reports that a kernel took"),
            "{text}"
        );
    }
    assert_eq!(ints(&output), [0x0101_0102; 4], "the launched kernel ran");
}

#[test]
fn parts_share_bytes_on_the_gpu() {
    let Some(stand_in) = StandIn::new("parts_share_bytes_on_the_gpu") else { return };
    let numbers: Vec<u8> = (0..32).flat_map(|number: i32| number.to_le_bytes()).collect();
    let whole = Memory::from_bytes(DType::I32, &numbers).unwrap();
    let output = Memory::new(DType::I32, 4).unwrap();
    stand_in.kernel.run(&[&output, &whole]).unwrap();
    let part = whole.part_in_place(16, 8).unwrap().unwrap();
    stand_in.kernel.run(&[&output, &part]).unwrap();
    assert_eq!(ints(&output), [17, 18, 19, 20]);
    assert_eq!((count("downloads"), count("device_copies"), count("blocks_alive")), (1, 0, 2));
    assert!(whole.part_in_place(15, 8).unwrap().is_some(), "the host has current bytes as well");
    // The whole is dropped; the part is unshared when it is written.
    drop(whole);
    assert_eq!(count("blocks_alive"), 2);
    let subpart = part.part_in_place(0, 4).unwrap().unwrap();
    stand_in.kernel.run(&[&part, &output]).unwrap();
    assert_eq!((count("device_copies"), count("blocks_alive")), (1, 3));
    assert_eq!(ints(&part), [18, 19, 20, 21, 20, 21, 22, 23]);
    assert_eq!(ints(&subpart), [16, 17, 18, 19]);
    drop(subpart);
    assert_eq!(count("blocks_alive"), 2);
    drop((part, output));
    assert_eq!(count("blocks_alive"), 0);
}

#[test]
fn old_driver_is_refused() {
    if !has_stand_in("old_driver_is_refused") {
        return;
    }
    // SAFETY: the library is loaded, and no function of it is running.
    unsafe { variable::<i32>("driver_version").write(11010) };
    assert_eq!(
        Cuda::open().err().unwrap().to_string(),
        "device cuda is not available: the driver is for CUDA 11.1, but one for CUDA 11.2 or later \
         is needed; update NVIDIA's driver"
    );
}
