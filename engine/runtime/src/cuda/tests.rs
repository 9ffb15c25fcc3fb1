//! Tests of the device with a fake of NVIDIA's driver (`stand_in.c`), for machines without a GPU.

use std::process::Command;

use gradiff_graph::parse_linears;

use super::*;

/// A loaded copy of the fake driver, whose variables can be read and set.
struct StandIn {
    library: libloading::Library,
    device: Cuda,
    kernel: Arc<dyn Executable>,
    _directory: tempfile::TempDir,
}

impl StandIn {
    /// Compiles and loads a copy of the fake driver.
    fn new() -> StandIn {
        let directory = tempfile::tempdir().unwrap();
        let [source, object] =
            ["stand_in.c", "stand_in.so"].map(|name| directory.path().join(name));
        std::fs::write(&source, include_str!("stand_in.c")).unwrap();
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-O1", "-o"]);
        assert!(compiler.arg(&object).arg(&source).status().unwrap().success());
        let name = object.to_str().unwrap();
        let opened = Opened::new(Driver::open(&[name]).unwrap(), 0).unwrap();
        let device = Cuda::new(opened, Nvrtc::open(&[name]).unwrap(), 0);
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
        // SAFETY: the library has no initialisers.
        let library = unsafe { libloading::Library::new(&object) }.unwrap();
        StandIn { library, device, kernel, _directory: directory }
    }

    /// The address of a variable.
    fn variable<T: std::marker::Copy>(&self, name: &str) -> *mut T {
        // SAFETY: the variables have the types that callers ask for.
        *unsafe { self.library.get::<*mut T>(name.as_bytes()) }.unwrap()
    }

    fn events_alive(&self) -> i32 {
        // SAFETY: the library is loaded, and no function of it is running.
        unsafe { self.variable::<i32>("events_alive").read() }
    }
}

fn ints(memory: &Memory) -> Vec<i32> {
    let bytes = memory.read().unwrap();
    bytes.chunks(4).map(|word| i32::from_le_bytes(word.try_into().unwrap())).collect()
}

#[test]
fn kernel_is_timed_by_the_device_clock() {
    let stand_in = StandIn::new();
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
        assert_eq!((time, stand_in.events_alive()), (Duration::from_millis(5), 0));
    }
    assert_eq!(ints(&output), [2; 4]);
    // A timed launch computes the same.
    stand_in.kernel.run(&[&input, &output]).unwrap();
    device.wait().unwrap();
    assert_eq!((ints(&input), stand_in.events_alive()), (vec![3; 4], 0));
}

#[test]
fn failed_events_are_reported_and_freed() {
    let stand_in = StandIn::new();
    let [input, output] = [1u8, 2].map(|byte| Memory::from_bytes(DType::I32, &[byte; 16]).unwrap());
    let before = output.read().unwrap();
    let refused = || {
        let time = stand_in.device.time(&*stand_in.kernel, &[&output, &input]);
        assert_eq!(stand_in.events_alive(), 0);
        time.unwrap_err().to_string()
    };
    // SAFETY: the library is loaded, and no function of it is running.
    unsafe { stand_in.variable::<i32>("events_fail").write(1) };
    let expected = "device cuda: cuEventCreate failed: out of memory (CUDA_ERROR_OUT_OF_MEMORY)";
    assert_eq!(refused(), expected);
    assert_eq!(output.read().unwrap(), before, "the kernel did not run");
    // SAFETY: as above.
    unsafe { stand_in.variable::<i32>("events_fail").write(0) };
    for invalid in [-1.0, f32::NAN, f32::INFINITY] {
        // SAFETY: as above.
        unsafe { stand_in.variable::<f32>("event_scale").write(invalid) };
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
    let stand_in = StandIn::new();
    // SAFETY: the library is loaded, and no function of it is running.
    let count = |name| unsafe { stand_in.variable::<i32>(name).read() };
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
    let other = part.part_in_place(0, 4).unwrap().unwrap();
    stand_in.kernel.run(&[&part, &output]).unwrap();
    assert_eq!((count("device_copies"), count("blocks_alive")), (1, 3));
    assert_eq!(ints(&part), [18, 19, 20, 21, 20, 21, 22, 23]);
    assert_eq!(ints(&other), [16, 17, 18, 19]);
    drop(other);
    assert_eq!(count("blocks_alive"), 2);
    drop((part, output));
    assert_eq!(count("blocks_alive"), 0);
}
