//! Local arrays on the stack of a thread: their initial content, and arrays that do not fit.

use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use gradiff_graph::{Arg, Constant, DType, Linear, Op};
use gradiff_runtime::{Memory, device};

use crate::common::{Builder, memory_of};

const DEVICES: [&str; 2] = ["jit", "c"];

/// `data0[i] = local0[i]` for i below `size_elements`, `lanes` at a time.
fn unwritten(size_elements: i64, lanes: u8) -> Linear {
    let mut b = Builder::default();
    let output = b.global(0, DType::Bool, size_elements);
    let array = b.local(0, DType::Bool, size_elements);
    let factor = b.int(lanes.into());
    let range = b.range(size_elements / i64::from(lanes));
    let index = b.binary(Op::Mul, DType::I32, range, factor);
    let value = b.load_lanes(array, index, None, lanes);
    b.store(output, index, None, value);
    b.end(range);
    b.verified("E_unwritten")
}

/// `local0[i] = data1[i]` for i below `size_elements`, then `data0[0] = local0[data1[0]]`.
fn filled(size_elements: i64) -> Linear {
    let mut b = Builder::default();
    let output = b.global(0, DType::U8, 1);
    let input = b.global(1, DType::U8, size_elements);
    let array = b.local(0, DType::U8, size_elements);
    let range = b.range(size_elements);
    let value = b.load(input, range, None);
    b.store(array, range, None, value);
    b.end(range);
    let zero = b.int(0);
    let first = b.load(input, zero, None);
    let index = b.push(Op::Cast, DType::I32, &[first], Arg::None);
    let value = b.load(array, index, None);
    b.store(output, zero, None, value);
    b.verified("r_filled")
}

/// Compiled code, of kernels and of the host, assumes that each bool is 0 or 1.
#[test]
fn unwritten_bools_are_0_or_1() {
    const SIZE: i64 = 256;
    let dirt = Memory::from_bytes(DType::U8, &[0x37; 16 * SIZE as usize]).unwrap();
    for name in DEVICES {
        let device = device(name).unwrap();
        let kernels = [filled(16 * SIZE), unwritten(SIZE, 1), unwritten(SIZE, 16)];
        let kernels = device.compile_checked(&kernels.each_ref()).unwrap();
        for kernel in &kernels[1..] {
            kernels[0].run(&[&Memory::new(DType::U8, 1).unwrap(), &dirt]).unwrap();
            let output = Memory::new(DType::Bool, SIZE as usize).unwrap();
            kernel.run(&[&output]).unwrap();
            let bytes = output.read().unwrap();
            assert!(bytes.iter().all(|byte| *byte <= 1), "{name}: {bytes:?}");
        }
    }
}

/// `local0[data1[i]] = i`, then `data0[i] = local0[data1[i]]`, for i below 4.
fn scattered() -> Linear {
    let mut b = Builder::default();
    let (output, input) = (b.global(0, DType::I32, 4), b.global(1, DType::U16, 4));
    let array = b.local(0, DType::I32, 1 << 16);
    for is_store in [true, false] {
        let range = b.range(4);
        let index = b.load(input, range, None);
        let index = b.push(Op::Cast, DType::I32, &[index], Arg::None);
        if is_store {
            b.store(array, index, None, range);
        } else {
            let value = b.load(array, index, None);
            b.store(output, range, None, value);
        }
        b.end(range);
    }
    b.verified("r_4_4")
}

const VARIABLE: &str = "GRADIFF_TEST_STACK_OF";

/// A stack of 64 KiB above a guard page, and below that other memory, which the array of the kernel
/// would reach.
#[test]
fn array_beyond_the_stack_hits_the_guard_page() {
    if let Ok(name) = std::env::var(VARIABLE) {
        return overflow(&name);
    }
    for name in DEVICES {
        let test = "stack::array_beyond_the_stack_hits_the_guard_page";
        let mut command = Command::new(std::env::current_exe().unwrap());
        let child = command.args([test, "--exact"]).env(VARIABLE, name).output().unwrap();
        let signal = child.status.signal();
        let is_overflow = matches!(signal, Some(libc::SIGSEGV | libc::SIGBUS | libc::SIGABRT));
        assert!(is_overflow, "{name}: {child:?}");
    }
}

fn overflow(name: &str) {
    const STACK: usize = 64 << 10;
    const BELOW: usize = 1 << 20;
    const PAGE: usize = 4096;
    let kernel = device(name).expect("a device").compile_checked(&[&scattered()]);
    let kernel = kernel.expect("it compiles").remove(0);
    let numbers = [0, 1, 2, 3].map(|value| Constant::int(DType::U16, value));
    let input = memory_of(&numbers);
    let output = Memory::new(DType::I32, 4).expect("a few bytes");
    let work: Box<dyn FnOnce()> = Box::new(|| kernel.run(&[&output, &input]).expect("it runs"));
    let mut work = Box::new(work);
    extern "C" fn run(work: *mut libc::c_void) -> *mut libc::c_void {
        // SAFETY: the pointer is to the box below, which has no other user.
        let work = unsafe { &mut *work.cast::<Box<dyn FnOnce()>>() };
        std::mem::replace(work, Box::new(|| ()))();
        std::ptr::null_mut()
    }
    let (access, kind) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: the upper part of a private mapping is the stack; the thread is joined.
    unsafe {
        let no_core = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        libc::setrlimit(libc::RLIMIT_CORE, &no_core);
        let size = BELOW + PAGE + STACK;
        let start = libc::mmap(std::ptr::null_mut(), size, access, kind, -1, 0);
        assert_ne!(start, libc::MAP_FAILED);
        assert_eq!(libc::mprotect(start.byte_add(BELOW), PAGE, libc::PROT_NONE), 0);
        let mut attributes = std::mem::zeroed();
        assert_eq!(libc::pthread_attr_init(&mut attributes), 0);
        let stack = start.byte_add(BELOW + PAGE);
        assert_eq!(libc::pthread_attr_setstack(&mut attributes, stack, STACK), 0);
        let mut thread = std::mem::zeroed();
        let argument = (&raw mut *work).cast();
        assert_eq!(libc::pthread_create(&mut thread, &attributes, run, argument), 0);
        assert_eq!(libc::pthread_join(thread, std::ptr::null_mut()), 0);
    }
}
