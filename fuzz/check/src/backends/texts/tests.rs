//! Faults of a text are reported, and end no process but its own.

use gradiff_skip::or_skip;

use super::host::{Argument, Host, Launch, Problem, compiler};
use super::languages::language;

const CUDA: &str = "#include \"cuda_host.h\"\n";

/// Runs a kernel `k0(int* x, int* y)` in CUDA in two groups of two threads, and returns the error
/// or the elements of `x`. Its four elements are 0 before; those of `y` are 1 to 4.
fn run(host: &mut Option<Host>, text: &str, has_barriers: bool) -> Result<Vec<i32>, String> {
    let call = "extern \"C\" void call_k0(void** d) { k0((int*)d[0], (int*)d[1]); }\n";
    let row = language("cuda").ok_or("no row")?;
    let host = match host {
        Some(host) => host,
        None => host.insert(Host::new(row, [CUDA, text, call].concat()).map_err(message)?),
    };
    let bytes = |values: [i32; 4]| values.iter().flat_map(|value| value.to_ne_bytes()).collect();
    let mut arguments = [
        Argument { bytes: bytes([0; 4]), is_stored: true },
        Argument { bytes: bytes([1, 2, 3, 4]), is_stored: false },
    ];
    let launch = Launch { kernel: 0, groups: [2, 1, 1], threads: [2, 1, 1], has_barriers };
    host.launch(&launch, &mut arguments).map_err(message)?;
    let words = arguments[0].bytes.chunks_exact(4);
    Ok(words.map(|word| i32::from_ne_bytes(word.try_into().unwrap_or_default())).collect())
}

fn message(problem: Problem) -> String {
    problem.message().to_string()
}

/// Each thread stores the element that the other thread of its group has stored in local memory.
const NEIGHBOURS: &str = "__global__ void k0(int* x, int* y) {\n\
    __shared__ int z[2];\n\
    z[threadIdx.x] = y[blockIdx.x * 2 + threadIdx.x];\n\
    __syncthreads();\n\
    x[blockIdx.x * 2 + threadIdx.x] = z[1 - threadIdx.x];\n}\n";

#[test]
fn threads_of_a_group_synchronise() {
    if or_skip("clang", compiler()).is_none() {
        return;
    }
    assert_eq!(run(&mut None, NEIGHBOURS, true), Ok(vec![2, 1, 4, 3]));
    let without = NEIGHBOURS.replace("__syncthreads();", "");
    assert_ne!(run(&mut None, &without, true), Ok(vec![2, 1, 4, 3]));
    let divergent = NEIGHBOURS.replace("__syncthreads();", "if (threadIdx.x) __syncthreads();");
    let problem = run(&mut None, &divergent, true);
    assert_eq!(
        problem,
        Err("a thread ends while others of its group wait at a barrier".to_string())
    );
}

/// The kernel [`NEIGHBOURS`] for the engine to render, with an array before the exchanged one that
/// is too large to be declared.
const LARGE: &str = "kernel k0
0 define_global i32 [] data0 4
1 define_global i32 [] data1 4
2 define_local i32 [] local0 12288
3 define_local i32 [] local1 2
4 const i32 [] 2
5 const i32 [] 1
6 const i32 [] 12287
7 range i32 [4] 0g
8 range i32 [4] 1l
9 mul i32 [7, 4]
10 add i32 [9, 8]
11 index i32 [1, 10]
12 load i32 [11]
13 sub i32 [6, 8]
14 index i32 [2, 13]
15 store void [14, 8]
16 index i32 [3, 8]
17 store void [16, 12]
18 barrier void []
19 sub i32 [5, 8]
20 index i32 [3, 19]
21 load i32 [20]
22 index i32 [0, 10]
23 store void [22, 21]
24 endrange void [8]
25 endrange void [7]
";

#[test]
fn large_local_arrays_are_apart() {
    if or_skip("clang", compiler()).is_none() {
        return;
    }
    let kernel = gradiff::graph::text::parse_linears(LARGE).expect("a kernel").remove(0);
    let languages = gradiff::render::LANGUAGES;
    let cuda = languages.iter().find(|language| language.name == "cuda").expect("CUDA");
    let code = (cuda.render)(&kernel).expect("a text");
    let text = (cuda.prelude)(&code.helpers) + &code.text;
    assert!(text.contains("extern __shared__"), "{text}");
    assert_eq!(run(&mut None, &text, true), Ok(vec![2, 1, 4, 3]));
    // The second array at the end of the first one.
    let overlapping = text.replace("local_memory+49152", "local_memory+49144");
    assert_ne!(run(&mut None, &overlapping, true), Ok(vec![2, 1, 4, 3]), "{text}");
}

#[test]
fn a_text_that_crashes_or_overflows_ends_its_own_process() {
    if or_skip("clang", compiler()).is_none() {
        return;
    }
    for (store, signal) in [
        // Beyond the end of mapped memory, and before its first page.
        ("x[32] = 1", "SIGSEGV"),
        ("x[-1024] = 1", "SIGSEGV"),
        ("x[0] = 0x7fffffff + y[0]", "SIGILL"),
        ("x[0] = y[0] << 32 * y[0]", "SIGILL"),
        ("x[0] = -y[0] << 1", "SIGILL"),
        ("x[0] = y[0] / x[1]", "SIGILL"),
        ("x[0] = (int)(y[0] * 3e9f)", "SIGILL"),
        ("__shared__ int z[2]; z[1 + y[0]] = 1", "SIGILL"),
    ] {
        let text = format!("__global__ void k0(int* x, int* y) {{ {store}; }}\n");
        let problem = run(&mut None, &text, false).expect_err(store);
        assert!(problem.contains(signal), "{store}: {problem}");
    }
}

#[test]
fn a_host_starts_again_after_its_process_has_ended() {
    if or_skip("clang", compiler()).is_none() {
        return;
    }
    let text = "__global__ void k0(int* x, int* y) {\n\
        static int count = 0;\n  x[0] = ++count;\n  if (count == 6) *(int*)0 = 1;\n}\n";
    let mut host = None;
    assert_eq!(run(&mut host, text, false), Ok(vec![4, 0, 0, 0]));
    run(&mut host, text, false).expect_err("the sixth thread crashes");
    assert_eq!(run(&mut host, text, false), Ok(vec![4, 0, 0, 0]));
}

#[test]
fn an_object_that_the_cache_has_evicted_is_made_again() {
    let Some(compiler) = or_skip("clang", compiler()) else { return };
    let text = "__global__ void k0(int* x, int* y) {\n  x[0] += 5 * y[0];\n}\n";
    let call = "extern \"C\" void call_k0(void** d) { k0((int*)d[0], (int*)d[1]); }\n";
    let row = language("cuda").expect("a row");
    let file = [CUDA, text, call].concat();
    let mut host = Some(Host::new(row, file.clone()).expect("it compiles"));
    let object = compiler.object(row, &file).expect("it compiles");
    std::fs::remove_file(object).expect("it is there");
    assert_eq!(run(&mut host, text, false), Ok(vec![20, 0, 0, 0]));
}

#[test]
fn a_text_that_does_not_compile_has_a_reason() {
    if or_skip("clang", compiler()).is_none() {
        return;
    }
    let text = "__global__ void k0(int* x, int* y) { x[0] = none; }\n";
    let problem = run(&mut None, text, false).expect_err("an unknown name");
    assert!(problem.contains("none"), "{problem}");
    // An undefined function is found when the object is loaded.
    let text = "int none(int);\n__global__ void k0(int* x, int* y) { x[0] = none(1); }\n";
    let problem = run(&mut None, text, false).expect_err("an undefined function");
    assert!(problem.contains("undefined symbol"), "{problem}");
}
