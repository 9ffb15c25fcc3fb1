//! What goes wrong in a text is seen, and ends no process but its own.

use super::host::{Argument, Host, Launch, Problem, compiler};
use super::languages::language;

const CUDA: &str = "#include \"cuda_host.h\"\n";

/// What is refused of a kernel `k0(int* x, int* y)` in CUDA, or what it has made of `x`, whose four
/// elements are 0; those of `y` are 1 to 4. There are two groups of two threads.
fn run(host: &mut Option<Host>, text: &str, meets: bool) -> Result<Vec<i32>, String> {
    let call = "extern \"C\" void call_k0(void** d) { k0((int*)d[0], (int*)d[1]); }\n";
    let row = language("cuda").ok_or("no row")?;
    let host = match host {
        Some(host) => host,
        None => {
            let object = compiler()?.object(row, &[CUDA, text, call].concat()).map_err(said)?;
            host.insert(Host::new(&object))
        }
    };
    let bytes = |values: [i32; 4]| values.iter().flat_map(|value| value.to_ne_bytes()).collect();
    let mut arguments = [
        Argument { bytes: bytes([0; 4]), is_stored: true },
        Argument { bytes: bytes([1, 2, 3, 4]), is_stored: false },
    ];
    let launch = Launch { kernel: 0, groups: [2, 1, 1], threads: [2, 1, 1], meets };
    host.launch(&launch, &mut arguments).map_err(said)?;
    let words = arguments[0].bytes.chunks_exact(4);
    Ok(words.map(|word| i32::from_ne_bytes(word.try_into().unwrap_or_default())).collect())
}

fn said(problem: Problem) -> String {
    problem.message().to_string()
}

/// Each thread stores what its neighbour of the group has put into local memory.
const NEIGHBOURS: &str = "__global__ void k0(int* x, int* y) {\n\
    __shared__ int z[2];\n\
    z[threadIdx.x] = y[blockIdx.x * 2 + threadIdx.x];\n\
    __syncthreads();\n\
    x[blockIdx.x * 2 + threadIdx.x] = z[1 - threadIdx.x];\n}\n";

#[test]
fn threads_of_a_group_meet() {
    if let Err(why) = compiler() {
        return println!("skipped: {why}");
    }
    assert_eq!(run(&mut None, NEIGHBOURS, true), Ok(vec![2, 1, 4, 3]));
    let without = NEIGHBOURS.replace("__syncthreads();", "");
    assert_ne!(run(&mut None, &without, true), Ok(vec![2, 1, 4, 3]));
    let parting = NEIGHBOURS.replace("__syncthreads();", "if (threadIdx.x) __syncthreads();");
    let said = run(&mut None, &parting, true);
    assert_eq!(said, Err("a thread ends while others of its group wait at a barrier".to_string()));
}

#[test]
fn a_text_that_strays_or_overflows_ends_its_own_process() {
    if let Err(why) = compiler() {
        return println!("skipped: {why}");
    }
    for (store, signal) in [
        // Past the end of what is mapped, and before its first page.
        ("x[32] = 1", "SIGSEGV"),
        ("x[-1024] = 1", "SIGSEGV"),
        ("x[0] = 0x7fffffff + y[0]", "SIGILL"),
        ("x[0] = y[0] << 32 * y[0]", "SIGILL"),
        ("x[0] = -y[0] << 1", "SIGILL"),
        ("x[0] = y[0] / x[1]", "SIGILL"),
        ("x[0] = (int)(y[0] * 3e9f)", "SIGILL"),
    ] {
        let text = format!("__global__ void k0(int* x, int* y) {{ {store}; }}\n");
        let said = run(&mut None, &text, false).expect_err(store);
        assert!(said.contains(signal), "{store}: {said}");
    }
}

#[test]
fn a_host_starts_again_after_its_process_has_ended() {
    if let Err(why) = compiler() {
        return println!("skipped: {why}");
    }
    let text = "__global__ void k0(int* x, int* y) {\n\
        static int count = 0;\n  x[0] = ++count;\n  if (count == 6) *(int*)0 = 1;\n}\n";
    let mut host = None;
    assert_eq!(run(&mut host, text, false), Ok(vec![4, 0, 0, 0]));
    run(&mut host, text, false).expect_err("the sixth thread strays");
    assert_eq!(run(&mut host, text, false), Ok(vec![4, 0, 0, 0]));
}

#[test]
fn a_text_that_does_not_compile_says_why() {
    if let Err(why) = compiler() {
        return println!("skipped: {why}");
    }
    let text = "__global__ void k0(int* x, int* y) { x[0] = none; }\n";
    let said = run(&mut None, text, false).expect_err("a name that is none");
    assert!(said.contains("none"), "{said}");
    // A function that nobody defines is found when the object is loaded.
    let text = "int none(int);\n__global__ void k0(int* x, int* y) { x[0] = none(1); }\n";
    let said = run(&mut None, text, false).expect_err("a function that is none");
    assert!(said.contains("undefined symbol"), "{said}");
}
