//! The results of the texts: each op over each type, scalar and vector, is run on this machine and
//! compared with the meaning in the op table. C as it is; LLVM IR by clang; CUDA and Metal as C++
//! with host versions of their headers; OpenCL C by the first OpenCL device (PoCL).

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use gradiff_graph::{AxisKind, Constant, DType, Linear, Op, evaluate};
use gradiff_render::{Code, LANGUAGES, Language};
use gradiff_skip::or_skip;
use rayon::prelude::*;

use crate::compilers::{STAND_INS, find_clang, first};
use crate::kernels::{
    choice, compare_select, constant_values, constants, copy, elementwise, group, signatures,
};

const COUNT: usize = 64;

/// A kernel, its inputs and its expected outputs.
struct Case {
    kernel: Linear,
    inputs: Vec<Vec<Constant>>,
    meaning: Meaning,
}

/// The expected output of a kernel.
enum Meaning {
    /// An elementwise op with this result type.
    Op(Op, DType),
    /// `(x < y or z != w) ? v : u`.
    Choice,
    /// `x < y ? x : y`, or `y < x ? x : y` for `Max`.
    CompareSelect(Op),
    /// These values, one for each element; `None` where any value is right.
    Values(Vec<Option<Constant>>),
}

impl Meaning {
    /// The expected value of an element; `None` if it is undefined.
    fn expected(&self, index: usize, src: &[Constant]) -> Option<Constant> {
        match self {
            Meaning::Values(values) => values.get(index).copied().flatten(),
            Meaning::Op(op, to) => evaluate(*op, *to, src),
            Meaning::CompareSelect(op) => {
                let (x, y) = (src[0], src[1]);
                let compared = if *op == Op::Min { [x, y] } else { [y, x] };
                let is_x = evaluate(Op::CmpLt, DType::Bool, &compared)?.is_true();
                Some(if is_x { x } else { y })
            }
            Meaning::Choice => {
                let less = evaluate(Op::CmpLt, DType::Bool, &src[..2])?;
                let unequal = evaluate(Op::CmpNe, DType::Bool, &src[2..4])?;
                Some(if less.is_true() || unequal.is_true() { src[4] } else { src[5] })
            }
        }
    }

    /// The value of a fused `MulAcc`, whose product is not rounded.
    fn fused(&self, src: &[Constant]) -> Option<Constant> {
        let Meaning::Op(Op::MulAcc, dtype) = self else { return None };
        let [x, y, z] = [0, 1, 2].map(|number| src[number].to_float());
        let (x, y, z) = (x?, y?, z?);
        let value = match dtype {
            DType::F64 => x.mul_add(y, z),
            _ => f64::from((x as f32).mul_add(y as f32, z as f32)),
        };
        Some(Constant::float(*dtype, value))
    }

    /// The error of library functions that is permitted, in ulps.
    fn ulp(&self) -> i128 {
        match self {
            Meaning::Op(Op::Exp2 | Op::Log2 | Op::Sin | Op::Pow, _) => 4,
            _ => 0,
        }
    }
}

/// Returns whether a value agrees with the expected one: the same bits, or any NaN for NaN.
fn is_right(value: Constant, expected: Constant, ulp: i128) -> bool {
    let (Some(x), Some(y)) = (value.to_float(), expected.to_float()) else {
        return value == expected;
    };
    if x.is_nan() || y.is_nan() {
        return x.is_nan() && y.is_nan();
    }
    let ordinal = |value: Constant| {
        let sign = 1u64 << (value.dtype().bits() - 1);
        let magnitude = i128::from(value.bits() & (sign - 1));
        if value.bits() & sign != 0 { -magnitude } else { magnitude }
    };
    value == expected || (ordinal(value) - ordinal(expected)).abs() <= ulp && ulp != 0
}

/// Input data: special values of a type; for floats then pairs, such that the first two sources
/// have each combination of zeros of both signs, of NaN and a number, of both infinities; then
/// random values.
fn data(dtype: DType, seed: u64) -> Vec<Constant> {
    const SPECIAL: [f64; 27] = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        3.0,
        -7.25,
        127.0,
        128.0,
        255.5,
        -129.0,
        65504.0,
        65520.0,
        1e-7,
        6e-8,
        1e-40,
        2147483648.0,
        -2147483648.0,
        4294967296.0,
        9e18,
        -9.5e18,
        1e300,
        1.0009765625,
        1.00390625,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
    ];
    const PAIRS: [[f64; 2]; 3] = [[0.0, -0.0], [f64::NAN, 1.0], [f64::INFINITY, f64::NEG_INFINITY]];
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut dice = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let value = |index: usize| {
        let bits = dice();
        match dtype {
            _ if dtype.is_float() && index < 44 => {
                // Not a multiple of 3, so that each seed has all special values.
                let stride = 3 * seed as usize + 1;
                Constant::float(dtype, SPECIAL[(index * stride + seed as usize) % SPECIAL.len()])
            }
            _ if dtype.is_float() && index < 44 + 4 * PAIRS.len() => {
                let pair = PAIRS[(index - 44) / 4];
                Constant::float(dtype, pair[index >> (seed - 1) & 1])
            }
            _ if dtype.is_float() => Constant::float(dtype, bits as i16 as f64 / 64.0),
            _ if bits % 3 == 0 => Constant::int(dtype, i128::from(bits >> 8 & 7) - 3),
            _ => Constant::from_bits(dtype, bits),
        }
    };
    (0..COUNT).map(value).collect()
}

/// Each op over each type, scalar and, if the language computes vectors, vector; masks of all
/// widths with values of all types.
fn cases(language: &Language) -> Vec<Case> {
    let has = |types: &[DType], lanes: u8| {
        types
            .iter()
            .all(|dtype| (language.has_vector_alu)(*dtype) && lanes <= (language.lanes_max)(*dtype))
    };
    let mut cases = Vec::new();
    let mut add = |kernel: Linear, types: &[DType], meaning: Meaning| {
        let inputs = (1..).zip(types).map(|(seed, dtype)| data(*dtype, seed)).collect();
        cases.push(Case { kernel, inputs, meaning });
    };
    for (number, (op, from, to)) in signatures().into_iter().enumerate() {
        add(elementwise(op, &from, to, 1), &from, Meaning::Op(op, to));
        let types = [&from[..], &[to]].concat();
        let counts = [4, 16, 8, 2, 32, 64];
        let lanes =
            (0..6).map(|offset| counts[(number + offset) % 6]).find(|lanes| has(&types, *lanes));
        if let Some(lanes) = lanes {
            add(elementwise(op, &from, to, lanes), &from, Meaning::Op(op, to));
        }
    }
    for (number, dtype) in DType::ALL.into_iter().enumerate() {
        for step in [3, 4] {
            let dtype_after = |by: usize| DType::ALL[(number + by) % DType::ALL.len()];
            let (left, right) = (dtype_after(step), dtype_after(2 * step + 1));
            let types = [left, left, right, right, dtype, dtype];
            let lanes = if has(&types, 4) { 4 } else { 1 };
            add(choice(left, right, dtype, lanes), &types, Meaning::Choice);
        }
        let values = constant_values(dtype).into_iter().map(Some).collect();
        add(constants(dtype), &[], Meaning::Values(values));
        for lanes in [1, 2, 4, 8, 16, 32, 64] {
            // The gate is of the first element.
            let is_open = |i: usize| i / usize::from(lanes) * usize::from(lanes) < COUNT / 2;
            let zero = Constant::zero(dtype);
            let copied = data(dtype, 1).into_iter().enumerate();
            let copied = copied.map(|(i, value)| Some(if is_open(i) { value } else { zero }));
            if has(&[dtype], lanes) && dtype.is_float() {
                for op in [Op::Min, Op::Max] {
                    add(
                        elementwise(op, &[dtype; 2], dtype, lanes),
                        &[dtype; 2],
                        Meaning::Op(op, dtype),
                    );
                    add(compare_select(op, dtype, lanes), &[dtype; 2], Meaning::CompareSelect(op));
                }
            }
            if lanes <= (language.lanes_max)(dtype) {
                add(copy(dtype, lanes), &[dtype], Meaning::Values(copied.collect()));
            }
        }
    }
    let input: Vec<f64> = data(DType::F32, 1).iter().filter_map(|value| value.to_float()).collect();
    let sums = input.chunks(16).map(|row| row.iter().fold(0f32, |sum, x| sum + *x as f32));
    let sums = sums.map(|sum| Some(Constant::float(DType::F32, sum.into()))).collect();
    add(group(), &[DType::F32], Meaning::Values(sums));
    cases
}

type Wrap = fn(&Linear, &str, &[&str]) -> String;

/// A way to run the kernels of a language here.
struct Runner {
    name: &'static str,
    language: &'static str,
    find: fn() -> Option<String>,
    /// The command that compiles the file of kernels to an object file: compiler, source, object.
    compile: fn(&str, &Path, &Path) -> Command,
    /// Writes a function that takes a list of addresses and runs a kernel: kernel, name of the
    /// function, types. `None` if the kernel itself can be called.
    wrap: Option<Wrap>,
}

const FLAGS: [&str; 6] =
    ["-O2", "-march=native", "-fwrapv", "-ffp-contract=off", "-fno-math-errno", "-w"];

fn with(program: &str, arguments: &[&str], source: &Path, object: &Path) -> Command {
    let mut command = Command::new(program);
    command.args(FLAGS).args(arguments).arg("-c").arg(source).arg("-o").arg(object);
    command
}

fn c_object(program: &str, source: &Path, object: &Path) -> Command {
    with(program, &["-std=c99"], source, object)
}

/// The sanitizers for behaviour that texts must not rely on.
const SANITIZE: &str =
    "-fsanitize=signed-integer-overflow,shift,integer-divide-by-zero,float-cast-overflow";

/// C++ with host versions of the headers, without excess precision of f16, and with traps on signed
/// overflow.
fn cpp_object(program: &str, source: &Path, object: &Path) -> Command {
    let strict = ["-Xclang", "-ffloat16-excess-precision=none", "-fno-wrapv", SANITIZE];
    let trap = "-fsanitize-undefined-trap-on-error";
    let flags = ["-x", "c++", "-std=c++17", trap, STAND_INS];
    with(program, &[&strict[..], &flags[..]].concat(), source, object)
}

/// gcc, if this is an x86-64 machine with the features that `has` tests.
fn gcc_for(feature: &str, has: fn() -> bool) -> Option<String> {
    let is_there = cfg!(target_arch = "x86_64") && has();
    or_skip(feature, is_there.then_some(()).ok_or("another machine"))?;
    first("gcc", &["gcc"])
}

#[cfg(target_arch = "x86_64")]
fn has_256_bits() -> bool {
    is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma")
}

#[cfg(not(target_arch = "x86_64"))]
fn has_256_bits() -> bool {
    false
}

const RUNNERS: &[Runner] = &[
    Runner {
        name: "C by gcc",
        language: "c",
        find: || first("gcc", &["gcc"]),
        compile: c_object,
        wrap: None,
    },
    Runner {
        name: "C by gcc for any x86-64",
        language: "c",
        find: || gcc_for("x86-64", || true),
        compile: |program, source, object| {
            with(program, &["-std=c99", "-march=x86-64"], source, object)
        },
        wrap: None,
    },
    Runner {
        name: "C by gcc for 256-bit vectors",
        language: "c",
        find: || gcc_for("avx2", has_256_bits),
        compile: |program, source, object| {
            with(program, &["-std=c99", "-march=haswell"], source, object)
        },
        wrap: None,
    },
    Runner { name: "C by clang", language: "c", find: find_clang, compile: c_object, wrap: None },
    Runner {
        name: "LLVM IR by clang",
        language: "llvm",
        find: find_clang,
        compile: |program, source, object| with(program, &["-x", "ir"], source, object),
        wrap: None,
    },
    Runner {
        name: "Metal as C++",
        language: "metal",
        find: find_clang,
        compile: cpp_object,
        wrap: Some(|kernel, function, types| {
            let [global, local] =
                [AxisKind::Global, AxisKind::Local].map(|kind| grid(kernel, kind));
            let arguments = typed_arguments(types) + ", uint3(g), uint3(l)";
            format!(
                "extern \"C\" void {function}(void** d) {{\n  for (uint g = 0; g < {global}; g++) \
                 for (uint l = 0; l < {local}; l++) {}({arguments});\n}}\n",
                kernel.name
            )
        }),
    },
    Runner {
        name: "OpenCL C by the first device",
        language: "opencl",
        find: find_opencl,
        compile: |program, source, object| with(program, &["-x", "c"], source, object),
        wrap: Some(|kernel, function, types| {
            let sizes = types.iter().map(|kind| format!("sizeof({kind})")).collect::<Vec<_>>();
            let [global, local] =
                [AxisKind::Global, AxisKind::Local].map(|kind| grid(kernel, kind));
            format!(
                "void {function}(void** d) {{ launch(TEXT, \"{}\", {global}, {local}, {}, \
                 (size_t[]){{{}}}, d); }}\n",
                kernel.name,
                types.len(),
                sizes.join(", ")
            )
        }),
    },
    Runner {
        name: "CUDA as C++",
        language: "cuda",
        find: find_clang,
        compile: |program, source, object| {
            let mut command = cpp_object(program, source, object);
            command.args(["-include", "cuda_host.h", "-include", "cuda_asm.h"]);
            command
        },
        wrap: Some(|kernel, function, types| {
            let [global, local] =
                [AxisKind::Global, AxisKind::Local].map(|kind| grid(kernel, kind));
            let arguments = typed_arguments(types);
            format!(
                "extern \"C\" void {function}(void** d) {{\n  \
                 for (group_at = 0; group_at < {global}; group_at++) \
                 for (thread_at = 0; thread_at < {local}; thread_at++) \
                 {}({arguments});\n}}\n",
                kernel.name
            )
        }),
    },
];

/// The number of groups of a kernel, or of threads in a group.
fn grid(kernel: &Linear, kind: AxisKind) -> i64 {
    kernel.launched(kind).iter().map(|(_, size)| size).product()
}

/// The elements of the list of addresses, cast to their types.
fn typed_arguments(types: &[&str]) -> String {
    let arguments = types.iter().enumerate().map(|(slot, kind)| format!("({kind}*)d[{slot}]"));
    arguments.collect::<Vec<_>>().join(", ")
}

/// The program that reads inputs, runs kernels and writes outputs.
fn host(cases: &[Case], takes_list: bool) -> String {
    let (mut declared, mut body) = (String::new(), String::new());
    for (number, case) in cases.iter().enumerate() {
        let globals = case.kernel.globals();
        let parameters =
            if takes_list { "void**".to_string() } else { vec!["void*"; globals.len()].join(", ") };
        let _ = writeln!(declared, "void run{number}({parameters});");
        let sizes: Vec<usize> = globals.iter().map(|(_, dtype)| dtype.size_bytes()).collect();
        for (slot, size) in sizes.iter().enumerate().skip(1) {
            let _ = writeln!(body, "  if (fread(d[{slot}], {size}, 64, in) != 64) return 2;");
        }
        let _ = writeln!(body, "  memset(d[0], 255, 512);");
        let list: Vec<String> = (0..sizes.len()).map(|slot| format!("d[{slot}]")).collect();
        let arguments = if takes_list { "(void**)d".to_string() } else { list.join(", ") };
        let _ = writeln!(body, "  name = \"{}\";\n  run{number}({arguments});", case.kernel.name);
        let _ = writeln!(body, "  fwrite(d[0], {}, 64, out);", sizes[0]);
    }
    format!(
        "#include <signal.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n\
         static const char* name;\n\
         static void trapped(int number) {{ \
         fprintf(stderr, \"%s: signal %d\\n\", name, number); _Exit(1); }}\n{declared}\n\
         static unsigned char memory[8][512] __attribute__((aligned(128)));\n\
         int main(int count, char** names) {{\n  void* d[8];\n  \
         signal(SIGILL, trapped); signal(SIGSEGV, trapped); signal(SIGFPE, trapped);\n  \
         for (int i = 0; i < 8; i++) d[i] = memory[i];\n  \
         FILE *in = fopen(names[1], \"rb\"), *out = fopen(names[2], \"wb\");\n{body}  \
         return fclose(out) != 0;\n}}\n"
    )
}

/// The file of kernels, each behind a function `run0`, `run1`, ...
fn kernels(runner: &Runner, language: &Language, cases: &[Case]) -> String {
    let (mut code, mut wrappers) = (Code::default(), String::new());
    for (number, case) in cases.iter().enumerate() {
        let (mut kernel, function) = (case.kernel.clone(), format!("run{number}"));
        kernel.name = match runner.wrap {
            Some(_) => format!("{}_{number}", kernel.name),
            None => function.clone(),
        };
        code.push(&(language.render)(&kernel).expect("checked before"));
        if let Some(wrap) = runner.wrap {
            let globals = kernel.globals();
            let types: Vec<&str> =
                globals.iter().map(|(_, dtype)| cpp_type(runner.language, *dtype)).collect();
            wrappers += &wrap(&kernel, &function, &types);
        }
    }
    let text = (language.prelude)(&code.helpers) + &code.text;
    match language.name {
        // The indices of group and thread, which the wrappers count; no kernel here has a barrier.
        "cuda" => {
            let index = |name: &str, count: &str| {
                format!("extern \"C\" int gradiff_{name}(int d) {{ return d ? 0 : {count}; }}\n")
            };
            let indices = index("group", "group_at") + &index("thread", "thread_at");
            let barrier = "extern \"C\" void gradiff_barrier(void) { __builtin_trap(); }\n";
            let text = crate::assembly::as_calls(&text);
            format!("static int group_at, thread_at;\n{indices}{barrier}{text}{wrappers}")
        }
        "opencl" => {
            let quoted: Vec<String> =
                text.lines().map(|line| format!("{line:?} \"\\n\"")).collect();
            let quoted = quoted.join("\n");
            format!(
                "{}static const char TEXT[] = {quoted};\n{wrappers}",
                include_str!("opencl_host.c")
            )
        }
        _ => text + &wrappers,
    }
}

/// A compiler for the host program, if there is an OpenCL driver.
fn find_opencl() -> Option<String> {
    let drivers = std::fs::read_dir("/etc/OpenCL/vendors").map_or(0, Iterator::count);
    let found = (0 < drivers).then_some(()).ok_or("no OpenCL driver in /etc/OpenCL/vendors");
    or_skip("opencl", found)?;
    first("c", &["gcc", "clang"])
}

fn cpp_type(language: &str, dtype: DType) -> &'static str {
    match (language, dtype) {
        ("metal", DType::I8) => "char",
        ("metal", DType::I64) => "long",
        ("opencl", DType::F16) => "unsigned short",
        ("opencl", DType::Bool) => "char",
        ("cuda", DType::I64) => "long long",
        ("cuda", DType::U64) => "unsigned long long",
        ("cuda", DType::BF16) => "nv_bfloat16",
        (_, DType::Bool) => "bool",
        (_, DType::I8) => "signed char",
        (_, DType::U8) => "unsigned char",
        (_, DType::I16) => "short",
        (_, DType::U16 | DType::BF16) => "unsigned short",
        (_, DType::I32) => "int",
        (_, DType::U32) => "unsigned int",
        (_, DType::U64) => "unsigned long",
        (_, DType::F16) => "half",
        (_, DType::F32) => "float",
        (_, DType::F64) => "double",
        (_, DType::I64 | DType::Void) => "long",
    }
}

fn succeed(mut command: Command) {
    let output = command.output().expect("the compiler runs");
    let message = String::from_utf8_lossy(&output.stderr);
    let shown: String = message.chars().take(3000).collect();
    assert!(output.status.success(), "{command:?}: {shown}");
}

/// Compiles and runs `text`, and returns the output of each case.
fn outputs(runner: &Runner, program: &str, cases: &[Case], text: &str) -> Vec<Vec<Constant>> {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| -> PathBuf { directory.path().join(name) };
    let write = |name: &str, bytes: &[u8]| std::fs::write(path(name), bytes).expect("written");
    let language = language_of(runner);
    let source = format!("kernels.{}", language.extension);
    write(&source, text.as_bytes());
    succeed((runner.compile)(program, &path(&source), &path("kernels.o")));
    write("host.c", host(cases, runner.wrap.is_some()).as_bytes());
    let mut link = Command::new(program);
    let objects = [path("host.c"), path("kernels.o")];
    link.args(["-w", "-O1"]).args(objects).arg("-o").arg(path("host")).arg("-lm");
    if runner.language == "opencl" {
        link.arg("-l:libOpenCL.so.1");
    }
    succeed(link);
    let mut input = Vec::new();
    for value in cases.iter().flat_map(|case| case.inputs.iter().flatten()) {
        input.extend(&value.bits().to_le_bytes()[..value.dtype().size_bytes()]);
    }
    write("in", &input);
    let mut run = Command::new(path("host"));
    run.arg(path("in")).arg(path("out"));
    succeed(run);
    let bytes = std::fs::read(path("out")).expect("the outputs are there");
    let mut rest = &bytes[..];
    let mut take = |dtype: DType| {
        let (value, remaining) = rest.split_at(dtype.size_bytes());
        rest = remaining;
        let bits = value.iter().rev().fold(0u64, |bits, byte| bits << 8 | u64::from(*byte));
        // A bool that is neither 0 nor 1 is kept as u8, to be reported.
        let is_invalid = dtype == DType::Bool && bits > 1;
        Constant::from_bits(if is_invalid { DType::U8 } else { dtype }, bits)
    };
    let result = |case: &Case| case.kernel.globals()[0].1;
    cases.iter().map(|case| (0..COUNT).map(|_| take(result(case))).collect()).collect()
}

fn language_of(runner: &Runner) -> &'static Language {
    let language = LANGUAGES.iter().find(|language| language.name == runner.language);
    language.expect("the language is in the table")
}

/// Describes the wrong elements, and counts those that are defined.
fn judge(cases: &[Case], outputs: &[Vec<Constant>]) -> (Vec<String>, usize) {
    let (mut wrong, mut count) = (Vec::new(), 0);
    for (case, output) in cases.iter().zip(outputs) {
        for (index, value) in output.iter().enumerate() {
            let src: Vec<Constant> = case.inputs.iter().map(|input| input[index]).collect();
            let Some(expected) = case.meaning.expected(index, &src) else { continue };
            count += 1;
            let ulp = case.meaning.ulp();
            let fused = case.meaning.fused(&src).is_some_and(|fused| is_right(*value, fused, ulp));
            if !fused && !is_right(*value, expected, ulp) {
                let name = &case.kernel.name;
                wrong.push(format!("{name} of {src:?} is {value:?}, not {expected:?}"));
            }
        }
    }
    (wrong, count)
}

/// The cases that can be run: those that the language supports, and with barriers only on OpenCL.
fn supported_cases(runner: &Runner) -> Vec<Case> {
    let language = language_of(runner);
    let has_barrier = |case: &Case| case.kernel.uops.iter().any(|uop| uop.op == Op::Barrier);
    let is_supported = |case: &Case| {
        (language.render)(&case.kernel).is_ok() && (language.name == "opencl" || !has_barrier(case))
    };
    cases(language).into_iter().filter(is_supported).collect()
}

#[test]
fn texts_compute_the_meaning_of_the_op_table() {
    RUNNERS.par_iter().with_max_len(1).for_each(|runner| {
        let Some(program) = (runner.find)() else { return };
        let language = language_of(runner);
        let cases = supported_cases(runner);
        let mut count = 0;
        for part in cases.chunks(200) {
            let text = kernels(runner, language, part);
            let (wrong, elements) = judge(part, &outputs(runner, &program, part, &text));
            let shown = wrong.iter().take(20).cloned().collect::<Vec<_>>().join("\n");
            assert!(wrong.is_empty(), "{}: {} wrong\n{shown}", runner.name, wrong.len());
            count += elements;
        }
        println!("{}: {} kernels, {count} elements, none wrong", runner.name, cases.len());
    });
}

#[test]
fn wrong_operator_is_detected() {
    let runner = &RUNNERS[0];
    let Some(program) = (runner.find)() else { return };
    let language = language_of(runner);
    let types = [DType::I8, DType::I8];
    let kernel = elementwise(Op::Add, &types, DType::I8, 16);
    let inputs = vec![data(DType::I8, 1), data(DType::I8, 2)];
    let cases = [Case { kernel, inputs, meaning: Meaning::Op(Op::Add, DType::I8) }];
    let text = kernels(runner, language, &cases);
    let wrong = |text: &str| judge(&cases, &outputs(runner, &program, &cases, text)).0.len();
    assert_eq!(wrong(&text), 0);
    let planted = text.replace("(val0+val1)", "(val0|val1)");
    assert_ne!(text, planted);
    assert!(wrong(&planted) > 0);
}

#[test]
fn missing_barrier_is_detected() {
    let runner = RUNNERS.iter().find(|runner| runner.language == "opencl").expect("a row");
    let Some(program) = (runner.find)() else { return };
    let cases = supported_cases(runner).into_iter().filter(|case| case.kernel.name == group().name);
    let cases: Vec<Case> = cases.collect();
    let text = kernels(runner, language_of(runner), &cases);
    let wrong = |text: &str| judge(&cases, &outputs(runner, &program, &cases, text)).0.len();
    assert_eq!(wrong(&text), 0);
    let planted = text.replace("barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);", "");
    assert_ne!(text, planted);
    assert!(wrong(&planted) > 0);
}
