//! The languages that the compiler for the host accepts, with the adaptations they need.

use gradiff::graph::{Arg, AxisKind, DType, Instruction, Linear};

use super::assembly;

/// The rules by which the texts of a language become functions for the host.
pub(super) struct Language {
    /// The name among the engine's languages.
    pub(super) name: &'static str,
    /// The name of the file of kernels.
    pub(super) file: &'static str,
    /// The compiler's flags besides those of all languages.
    pub(super) flags: &'static [&'static str],
    /// The text before the kernels, besides the engine's own prelude.
    pub(super) head: &'static str,
    /// Rewrites text that the compiler for the host does not accept.
    pub(super) adapt: fn(&str) -> String,
    /// The text of a function `entry` that takes the addresses of arrays of these dtypes and calls
    /// a kernel.
    pub(super) call: fn(entry: &str, kernel: &str, dtypes: &[DType]) -> String,
    /// The reason why a kernel cannot run in this language, or on this machine.
    pub(super) unsupported: fn(&Linear) -> Option<&'static str>,
    /// The reason why the language's own compiler, or a launch, refuses the text of a kernel.
    pub(super) refused: fn(&Linear, &str) -> Option<String>,
}

/// Flags by which overflow of a signed integer ends the process: it is undefined in CUDA and Metal.
const TRAPS: [&str; 3] = [
    "-fno-wrapv",
    "-fsanitize=signed-integer-overflow,shift,integer-divide-by-zero,float-cast-overflow",
    "-fsanitize-undefined-trap-on-error",
];

const CPP: [&str; 7] = [
    "-xc++",
    "-std=c++17",
    "-Xclang",
    "-ffloat16-excess-precision=none",
    TRAPS[0],
    TRAPS[1],
    TRAPS[2],
];

const LANGUAGES: &[Language] = &[
    Language {
        name: "c",
        file: "kernels.c",
        flags: &["-xc", "-march=native"],
        head: "",
        adapt: str::to_owned,
        call: |entry, kernel, dtypes| {
            let arguments: Vec<String> =
                (0..dtypes.len()).map(|slot| format!("d[{slot}]")).collect();
            format!("void {entry}(void** d) {{ {kernel}({}); }}\n", arguments.join(", "))
        },
        unsupported: |kernel| {
            let is_divided = !kernel.launched(AxisKind::Thread).is_empty();
            is_divided.then_some("the kernel is divided among threads")
        },
        refused: |_, _| None,
    },
    Language {
        name: "cuda",
        file: "kernels.cu",
        flags: &CPP,
        head: "#include \"cuda_host.h\"\n#include \"cuda_asm.h\"\n",
        adapt: assembly::as_calls,
        call: |entry, kernel, dtypes| {
            let arguments = pointers(dtypes, cuda_type, "");
            format!("extern \"C\" void {entry}(void** d) {{ {kernel}({arguments}); }}\n")
        },
        unsupported: |_| None,
        refused: shared_arrays_refused,
    },
    Language {
        name: "metal",
        file: "kernels.metal",
        flags: &CPP,
        head: "",
        // Local memory is shared by all threads of a group. An attribute comes first.
        adapt: |text| text.replace("alignas(16) threadgroup ", "alignas(16) static "),
        call: |entry, kernel, dtypes| {
            let arguments = pointers(dtypes, metal_type, "");
            let vector = |word: &str| {
                let lanes: Vec<String> =
                    (0..3).map(|lane| format!("r[{lane}] = {word}({lane});")).collect();
                format!("[] {{ uint3 r; {} return r; }}()", lanes.join(" "))
            };
            let (group, thread) = (vector("gradiff_group"), vector("gradiff_thread"));
            format!(
                "extern \"C\" void {entry}(void** d) {{ \
                 {kernel}({arguments}, {group}, {thread}); }}\n"
            )
        },
        unsupported: |kernel| {
            let has_double = kernel.uops.iter().any(|uop| uop.dtype == DType::F64);
            has_double.then_some("Metal has no f64")
        },
        refused: |_, _| None,
    },
    Language {
        name: "opencl",
        file: "kernels.cl",
        flags: &["-xcl", "-cl-std=CL1.2"],
        head: "#include \"opencl_host.h\"\n",
        adapt: str::to_owned,
        call: |entry, kernel, dtypes| {
            let arguments = pointers(dtypes, opencl_type, "__global ");
            format!("void {entry}(ulong* d) {{ {kernel}({arguments}); }}\n")
        },
        unsupported: |_| None,
        refused: |_, _| None,
    },
    Language {
        name: "llvm",
        file: "kernels.ll",
        flags: &["-xir"],
        head: "",
        adapt: str::to_owned,
        call: |entry, kernel, dtypes| {
            let mut text = format!("define void @{entry}(ptr %d) {{\n");
            for slot in 0..dtypes.len() {
                text += &format!(
                    "  %p{slot} = getelementptr ptr, ptr %d, i64 {slot}\n  \
                     %a{slot} = load ptr, ptr %p{slot}\n"
                );
            }
            let arguments: Vec<String> =
                (0..dtypes.len()).map(|slot| format!("ptr %a{slot}")).collect();
            text + &format!("  call void @{kernel}({})\n  ret void\n}}\n", arguments.join(", "))
        },
        unsupported: |_| None,
        refused: |_, _| None,
    },
];

/// The names of these languages.
pub(crate) const COMPILED: [&str; LANGUAGES.len()] = {
    let mut names = [""; LANGUAGES.len()];
    let mut next = 0;
    while next < names.len() {
        names[next] = LANGUAGES[next].name;
        next += 1;
    }
    names
};

/// The row of a language.
pub(super) fn language(name: &str) -> Option<&'static Language> {
    LANGUAGES.iter().find(|language| language.name == name)
}

/// The addresses `d[0]`, `d[1]`, ... as pointers to the types of their elements.
fn pointers(dtypes: &[DType], name: fn(DType) -> &'static str, space: &str) -> String {
    let pointer = |(slot, dtype): (usize, &DType)| format!("({space}{}*)d[{slot}]", name(*dtype));
    dtypes.iter().enumerate().map(pointer).collect::<Vec<_>>().join(", ")
}

/// CUDA C++ programming guide, built-in types; the headers of half-precision types.
fn cuda_type(dtype: DType) -> &'static str {
    match dtype {
        DType::Void => "void",
        DType::Bool => "bool",
        DType::I8 => "signed char",
        DType::U8 => "unsigned char",
        DType::I16 => "short",
        DType::U16 => "unsigned short",
        DType::I32 => "int",
        DType::U32 => "unsigned int",
        DType::I64 => "long long",
        DType::U64 => "unsigned long long",
        DType::F16 => "half",
        DType::BF16 => "nv_bfloat16",
        DType::F32 => "float",
        DType::F64 => "double",
    }
}

/// Bytes of the shared arrays that a kernel may declare: CUDA C++ programming guide, table of
/// technical specifications; a kernel gets more only if its launch asks for them.
const SHARED_BYTES_DECLARED: usize = 48 << 10;

/// The reason why the assembler of CUDA refuses the shared arrays of a text, or a launch has fewer
/// bytes than the kernel's local arrays.
fn shared_arrays_refused(kernel: &Linear, text: &str) -> Option<String> {
    let (mut is_device, mut declared, mut asks) = (true, 0, false);
    for line in text.lines().map(str::trim) {
        match line {
            "#else" => is_device = false,
            "#ifdef __CUDA_ARCH__" | "#endif" => is_device = true,
            _ if !is_device => {}
            _ if line.starts_with("extern __shared__") => asks = true,
            _ if line.contains("__shared__") => match declared_bytes(line) {
                Some(bytes) => declared += bytes,
                None => return Some(format!("no shared array of a known form: {line}")),
            },
            _ => {}
        }
    }
    if SHARED_BYTES_DECLARED < declared {
        return Some(format!("{declared} bytes of shared arrays are declared"));
    }
    let array = |uop: &Instruction| match uop.arg {
        Arg::Local(local) => local.size_elements as usize * uop.dtype.size_bytes(),
        _ => 0,
    };
    let needed: usize = kernel.uops.iter().map(array).sum();
    let asked = gradiff::render::cuda_dynamic_bytes(kernel) as usize;
    let is_short = asks && asked < needed;
    is_short.then(|| format!("{asked} bytes are asked for {needed} bytes of shared arrays"))
}

/// The bytes of a line `__shared__ __align__(16) float local0[12];`, if it has this form.
fn declared_bytes(line: &str) -> Option<usize> {
    let (kind, rest) = line.strip_prefix("__shared__ __align__(16) ")?.split_once(" local")?;
    let count: usize = rest.split_once('[')?.1.strip_suffix("];")?.parse().ok()?;
    let dtype = DType::ALL.into_iter().find(|dtype| cuda_type(*dtype) == kind)?;
    Some(count * dtype.size_bytes())
}

/// The Metal shading language, 2.1; bf16 is represented by its bits.
fn metal_type(dtype: DType) -> &'static str {
    match dtype {
        DType::Void | DType::F64 => "void",
        DType::Bool => "bool",
        DType::I8 => "char",
        DType::U8 => "uchar",
        DType::I16 => "short",
        DType::U16 | DType::BF16 => "ushort",
        DType::I32 => "int",
        DType::U32 => "uint",
        DType::I64 => "long",
        DType::U64 => "ulong",
        DType::F16 => "half",
        DType::F32 => "float",
    }
}

/// OpenCL C 1.2, 6.1.1; 16-bit floats are represented by their bits and bools by bytes.
fn opencl_type(dtype: DType) -> &'static str {
    match dtype {
        DType::Void => "void",
        DType::Bool | DType::U8 => "uchar",
        DType::I8 => "char",
        DType::I16 => "short",
        DType::U16 | DType::F16 | DType::BF16 => "ushort",
        DType::I32 => "int",
        DType::U32 => "uint",
        DType::I64 => "long",
        DType::U64 => "ulong",
        DType::F32 => "float",
        DType::F64 => "double",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_arrays_are_counted_or_refused() {
        let kernel = Linear { name: "k".to_owned(), uops: Vec::new() };
        let refused = |line: &str| shared_arrays_refused(&kernel, &format!("    {line}\n"));
        let array = |kind, count| format!("__shared__ __align__(16) {kind} local0[{count}];");
        assert_eq!(refused(&array("float", 12 << 10)), None);
        let problem = refused(&array("float", (12 << 10) + 1)).expect("too many bytes");
        assert_eq!(problem, "49156 bytes of shared arrays are declared");
        for unknown in [array("floats", 1), "__shared__ float local0[1];".to_owned()] {
            let problem = refused(&unknown).expect("an unknown form");
            assert!(problem.contains("known form"), "{problem}");
        }
    }
}
