//! Rendered texts compute the meanings of their ops; texts with a fault are refused or give other
//! results.

use std::fmt::Write;

use gradiff::graph::op::OPS;
use gradiff::graph::tensor_core::{TENSOR_CORES, TensorCore};
use gradiff::graph::text::parse_linears;
use gradiff::graph::verify::verify_linear;
use gradiff::graph::{AxisKind, Constant, DType, Linear, Op};
use gradiff::render::LANGUAGES;
use gradiff_eval::scalar;

use super::decode::decode;
use super::machine::{Argument, Launch, launch};
use super::memory::POISON;
use crate::checks::calls::Draw;
use crate::checks::kernels::products;

const COUNT: usize = 64;

fn parsed(text: &str) -> Linear {
    let kernel = parse_linears(text).unwrap_or_else(|error| panic!("{error}\n{text}")).remove(0);
    verify_linear(&kernel).unwrap_or_else(|error| panic!("{error}\n{text}"));
    kernel
}

fn rendered(kernel: &Linear) -> String {
    let mut languages = LANGUAGES.iter();
    let ptx = languages.find(|language| language.name == "ptx").expect("a language");
    let code = (ptx.render)(kernel).unwrap_or_else(|error| panic!("{error}\n{kernel}"));
    (ptx.prelude)(&code.helpers) + &code.text
}

fn bytes(values: &[Constant]) -> Vec<u8> {
    let bytes =
        |value: &Constant| value.bits().to_le_bytes()[..value.dtype().size_bytes()].to_vec();
    values.iter().flat_map(bytes).collect()
}

/// Runs a text with the launch of the kernel, and returns the elements of its first parameter.
fn run(kernel: &Linear, text: &str, inputs: &[Vec<Constant>]) -> Result<Vec<Constant>, String> {
    let sizes = |kind| {
        let mut sizes = [1u32; 3];
        for (size, (_, count)) in sizes.iter_mut().zip(kernel.launched(kind).into_iter().rev()) {
            *size = count as u32;
        }
        sizes
    };
    let (global, dtype) = kernel.globals()[0];
    let size = dtype.size_bytes();
    let output = vec![POISON; global.size_elements as usize * size];
    let argument = |bytes: Vec<u8>, element_bytes, is_stored| Argument {
        bytes,
        element_bytes,
        is_stored,
        is_fresh: is_stored,
    };
    let mut arguments = vec![argument(output, size, true)];
    for input in inputs {
        arguments.push(argument(bytes(input), input[0].dtype().size_bytes(), false));
    }
    let [grid, group] = [AxisKind::Global, AxisKind::Local].map(sizes);
    let program = decode(text)?;
    launch(&program, &mut arguments, &Launch { grid, group, instructions_max: 1 << 20 })?;
    let element = |bytes: &[u8]| {
        let mut word = [0; 8];
        word[..size].copy_from_slice(bytes);
        Constant::from_bits(dtype, u64::from_le_bytes(word))
    };
    Ok(arguments[0].bytes.chunks_exact(size).map(element).collect())
}

/// Edge cases of conversions and comparisons, then random numbers.
fn data(dtype: DType, seed: u64) -> Vec<Constant> {
    const FLOATS: [f64; 23] = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        -7.25,
        127.0,
        255.5,
        -129.0,
        65504.0,
        65520.0,
        1e-7,
        6e-8,
        1e-40,
        2147483648.0,
        -2147483648.0,
        9e18,
        1e300,
        1.0009765625,
        1.00390625,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
    ];
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut dice = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut value = |at: usize| {
        let bits = dice();
        let number = match dtype {
            // Coprime strides, so that each pair of special values occurs.
            _ if dtype.is_float() && at < 46 => FLOATS[at * seed as usize % FLOATS.len()],
            _ if dtype.is_float() => f64::from(bits as i16) / 64.0,
            _ if bits % 3 == 0 => return scalar::int(dtype, i128::from(bits >> 8 & 7) - 3),
            _ => return scalar::int(dtype, i128::from(bits as i64)),
        };
        scalar::float(dtype, number)
    };
    (0..COUNT).map(|at| value(at).expect("the type has numbers")).collect()
}

fn lanes_of(dtype: DType, lanes: usize) -> String {
    if lanes == 1 { dtype.to_string() } else { format!("{dtype}x{lanes}") }
}

/// `data0[i] = op(data1[i], data2[i], ...)`, `lanes` elements by each thread.
fn elementwise(op: Op, from: &[DType], to: DType, lanes: usize) -> Linear {
    let mut text = format!("kernel E\n0 define_global {to} [] data0 {COUNT}\n");
    for (slot, dtype) in (1..).zip(from) {
        let _ = writeln!(text, "{slot} define_global {dtype} [] data{slot} {COUNT}");
    }
    let at = from.len() + 1;
    let _ = writeln!(text, "{at} const i32 [] {}", COUNT / lanes);
    let _ = writeln!(text, "{} const i32 [] {lanes}", at + 1);
    let _ = writeln!(text, "{} range i32 [{at}] 0l", at + 2);
    let _ = writeln!(text, "{} mul i32 [{}, {}]", at + 3, at + 2, at + 1);
    let (index, mut next, mut loads) = (at + 3, at + 4, Vec::new());
    for (slot, dtype) in (1..).zip(from) {
        let _ = writeln!(text, "{next} index {dtype} [{slot}, {index}]");
        let _ = writeln!(text, "{} load {} [{next}]", next + 1, lanes_of(*dtype, lanes));
        loads.push((next + 1).to_string());
        next += 2;
    }
    let _ = writeln!(text, "{next} {op} {} [{}]", lanes_of(to, lanes), loads.join(", "));
    let _ = writeln!(text, "{} index {to} [0, {index}]", next + 1);
    let _ = writeln!(text, "{} store void [{}, {next}]", next + 2, next + 1);
    let _ = writeln!(text, "{} endrange void [{}]", next + 3, at + 2);
    parsed(&text)
}

/// Each elementwise op over each type that it takes and that PTX computes.
fn signatures() -> Vec<(Op, Vec<DType>, DType)> {
    let mut list = Vec::new();
    let ops = OPS.iter().map(|row| row.op).filter(|op| op.is_elementwise());
    for (op, dtype) in ops.flat_map(|op| DType::ALL.map(|dtype| (op, dtype))) {
        let not_bool = |to: &DType| ![dtype, *to].contains(&DType::Bool);
        let fits = |to: &DType| to.size_bytes() == dtype.size_bytes() && not_bool(to);
        match op {
            Op::Threefry | Op::Log2 | Op::Sin | Op::Pow => {}
            Op::Cast => list.extend(DType::ALL.map(|to| (op, vec![dtype], to))),
            Op::Bitcast => {
                let targets = DType::ALL.into_iter().filter(fits);
                list.extend(targets.map(|to| (op, vec![dtype], to)));
            }
            Op::Where => list.push((op, vec![DType::Bool, dtype, dtype], dtype)),
            Op::CmpLt | Op::CmpNe => list.push((op, vec![dtype; 2], DType::Bool)),
            Op::Exp2 if dtype == DType::F64 => {}
            _ if !op.row().operands.contains(dtype) => {}
            _ => list.push((op, vec![dtype; op.row().arity.0], dtype)),
        }
    }
    list
}

/// Returns whether a result is allowed where another one is expected: the same bits, any NaN for a
/// NaN, for exp2 any float within 2 ulp.
fn is_right(op: Op, found: Constant, expected: Constant) -> bool {
    let is_nan = |value| scalar::to_float(value).is_some_and(f64::is_nan);
    let is_near = found.bits().abs_diff(expected.bits()) <= 2;
    found == expected || is_nan(found) && is_nan(expected) || op == Op::Exp2 && is_near
}

/// The sum with a product that is not rounded, a legal result of `MulAcc` of floats.
fn fused(op: Op, src: &[Constant]) -> Option<Constant> {
    let (Op::MulAcc, [x, y, z]) = (op, src) else { return None };
    let dtype = x.dtype();
    let (x, y, z) = (scalar::to_float(*x)?, scalar::to_float(*y)?, scalar::to_float(*z)?);
    let sum = match dtype {
        DType::F64 => x.mul_add(y, z),
        _ => (x as f32).mul_add(y as f32, z as f32).into(),
    };
    scalar::float(dtype, sum)
}

/// Descriptions of the wrong elements of an op, and the number of those that are defined.
fn wrong(op: Op, inputs: &[Vec<Constant>], output: &[Constant]) -> (Vec<String>, usize) {
    let (mut wrong, mut count) = (Vec::new(), 0);
    for (at, found) in output.iter().enumerate() {
        let src: Vec<Constant> = inputs.iter().map(|input| input[at]).collect();
        let Some(expected) = scalar::evaluate(op, found.dtype(), &src) else { continue };
        count += 1;
        let is_fused = fused(op, &src).is_some_and(|expected| is_right(op, *found, expected));
        if !is_fused && !is_right(op, *found, expected) {
            wrong.push(format!("{op} of {src:?} is {found:?}, expected {expected:?}"));
        }
    }
    (wrong, count)
}

#[test]
fn rendered_ops_agree_with_their_meanings() {
    let (mut kernels, mut elements) = (0, 0);
    for (op, from, to) in signatures() {
        let inputs: Vec<_> = (1..).zip(&from).map(|(seed, dtype)| data(*dtype, seed)).collect();
        for lanes in [1, 2, 4, 8] {
            let kernel = elementwise(op, &from, to, lanes);
            let text = rendered(&kernel);
            let output = run(&kernel, &text, &inputs).unwrap_or_else(|e| panic!("{e}\n{text}"));
            let (wrong, count) = wrong(op, &inputs, &output);
            assert!(wrong.is_empty(), "{} wrong, {}\n{text}", wrong.len(), wrong[0]);
            kernels += 1;
            elements += count;
        }
    }
    assert!(kernels > 1_600, "{kernels}");
    assert!(elements > 80_000, "{elements}");
}

/// Four groups of sixteen threads that each sum sixteen elements through shared memory.
const SUMS: &str = "kernel r_4_16
0 define_global f32 [] data0 4
1 define_global f32 [] data1 64
2 define_local f32 [] local0 16
3 const f32 [] 0.0
4 const i32 [] 4
5 range i32 [4] 0g
6 const i32 [] 16
7 range i32 [6] 1l
8 mul i32 [5, 6]
9 add i32 [8, 7]
10 index f32 [1, 9]
11 load f32 [10]
12 index f32 [2, 7]
13 store void [12, 11]
14 barrier void [13]
15 define_acc f32 [3] 0
16 range i32 [6] 2
17 index f32 [2, 16]
18 load f32 [17, 14]
19 add f32 [15, 18]
20 assign f32 [15, 19]
21 endrange void [16]
22 const i32 [] 1
23 cmplt bool [7, 22]
24 index f32 [0, 5, 23]
25 store void [24, 15]
26 endrange void [7]
27 endrange void [5]
";

/// A copy of vectors under gates.
const GATED: &str = "kernel E_16
0 define_global f32 [] data0 64
1 define_global f32 [] data1 64
2 const i32 [] 16
3 range i32 [2] 0l
4 const i32 [] 4
5 mul i32 [3, 4]
6 const i32 [] 32
7 cmplt bool [5, 6]
8 index f32 [1, 5, 7]
9 load f32x4 [8]
10 index f32 [0, 5]
11 store void [10, 9]
12 endrange void [3]
";

fn ordinal(count: usize) -> Vec<Constant> {
    let value = |number: usize| scalar::float(DType::F32, 1.0 + number as f64);
    (0..count).map(|number| value(number).expect("a float")).collect()
}

/// The results of a kernel with this edit of its text.
fn edited(kernel: &Linear, from: &str, to: &str) -> Result<Vec<f64>, String> {
    let text = rendered(kernel);
    assert!(text.contains(from), "{from:?} is in\n{text}");
    let found = run(kernel, &text.replacen(from, to, 1), &[ordinal(COUNT)])?;
    Ok(found.into_iter().map(|value| scalar::to_float(value).expect("a float")).collect())
}

#[test]
fn groups_and_gates_agree_with_their_meanings() {
    let sums = edited(&parsed(SUMS), "ret", "ret").expect("a right text");
    assert_eq!(sums, [136.0, 392.0, 648.0, 904.0]);
    let gated = edited(&parsed(GATED), "ret", "ret").expect("a right text");
    let expected = |at: usize| if at < 32 { 1.0 + at as f64 } else { 0.0 };
    assert_eq!(gated, (0..COUNT).map(expected).collect::<Vec<_>>());
}

#[test]
fn texts_with_a_fault_are_refused() {
    let faults = [
        (SUMS, "bar.sync 0;", "", "was never written"),
        (SUMS, "bar.sync 0;", "@%p0 bar.sync 0;", "%p0 is read before it is written"),
        (SUMS, "bar.sync 0;", "setp.eq.s32 %p0, %r3, 9;\n@%p0 ret;\nbar.sync 0;", "diverge"),
        (SUMS, "bar.sync 0;", "setp.eq.s32 %p0, %r3, 0;\n@%p0 bar.sync 0;", "a race at byte 0"),
        (SUMS, "bar.sync 0;", "bar.sync 16;", "below 16"),
        (SUMS, "st.shared.f32", "st.shared.f64", "is a register of f32"),
        (SUMS, "st.shared.f32", "st.global.f32", "is in no array"),
        (SUMS, ".b8 local0[64]", ".b8 local0[60]", "4 bytes at 60 of local0"),
        (SUMS, "ld.shared.f32", "ld.shared.u32", "is a register of f32, but u32"),
        (SUMS, ".maxntid 16, 1, 1", ".maxntid 8, 1, 1", "16 threads of a group"),
        (SUMS, "st.shared.f32", "st.local.f32", "no space .local"),
        (SUMS, "add.rn.f32", "add.f32", "not an instruction of the subset"),
        (SUMS, "@%p1 st.global", "st.global", "a race at byte 0 of parameter 0"),
        (SUMS, "\tret;", "", "runs beyond the end"),
        (SUMS, "\tret;", "ret 0;", "this form"),
        (SUMS, "bra $loop", "bra $lop", "there is no label"),
        (SUMS, "add.s32 %r", "sub.s32 %r", "4 bytes at -4 of parameter 1, which has 256"),
        (SUMS, "%ctaid.x", "%ctaid.w", "there is no register"),
        (SUMS, ".target sm_80", ".target sm_70", "the subset is of sm_80"),
        (SUMS, ".visible .entry", ".entry", "\".visible\" is expected"),
        (GATED, "ld.global.v4.f32", "ld.global.v2.f32", "2 registers are expected"),
        (GATED, "+0], {", "+4], {", "which is not a multiple"),
        (GATED, "mul.wide.s32 %rd4, %r3, 4", "mul.wide.s32 %rd4, %r3, 2", "not a multiple"),
        (GATED, "mov.f32 %f0, 0f00000000;", "", "%f0 is read before it is written"),
        (GATED, "mov.f32 %f0, 0f00000000;", "mov.f32 %f0, 0;", "not a constant of type f32"),
        (GATED, "st.global.v4.f32 [%rd7", "st.global.v4.f32 [%rd5", "is only read"),
        (GATED, "_data1]", "_data2]", "there is no parameter"),
    ];
    let problem = |(kernel, from, to, words): (&str, &str, &str, &str)| {
        let found = edited(&parsed(kernel), from, to);
        let is_refused = found.as_ref().is_err_and(|error| error.contains(words));
        (!is_refused).then(|| format!("{from:?} as {to:?}: {found:?}, without {words:?}"))
    };
    let problems: Vec<String> = faults.into_iter().filter_map(problem).collect();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn texts_with_a_fault_give_other_results() {
    let faults = [
        (SUMS, "add.rn.f32", "sub.rn.f32"),
        (SUMS, "@%p1 st.global", "@!%p1 st.global"),
        (SUMS, "mov.f32 %f2, %f0;", "mov.f32 %f2, 0f3F800000;"),
        (GATED, "setp.lt.s32", "setp.ge.s32"),
        (GATED, "{%f0, %f1, %f2, %f3}, [", "{%f0, %f2, %f1, %f3}, ["),
    ];
    for (kernel, from, to) in faults {
        let kernel = parsed(kernel);
        let right = edited(&kernel, "ret", "ret").expect("a right text");
        // Without `!` the other threads of a group race, which is refused.
        let found = edited(&kernel, from, to);
        assert!(found != Ok(right), "{from:?} as {to:?}\n{}", rendered(&kernel));
    }
}

#[test]
fn barriers_are_reached_by_all_threads_in_every_iteration() {
    // Without the second barrier thread 0 overwrites an element before the others read it.
    let text = "mov.u32 %r0, %tid.x; mul.wide.u32 %rd2, %r0, 4; mov.u64 %rd3, s; \
                add.s64 %rd4, %rd3, %rd2; mov.u32 %r1, 0; mov.u32 %r3, 0;\n$loop:\n\
                add.u32 %r2, %r0, %r1; st.shared.u32 [%rd4], %r2; bar.sync 0; \
                ld.shared.u32 %r4, [%rd3]; add.u32 %r3, %r3, %r4; SECOND \
                add.u32 %r1, %r1, 1; setp.lt.u32 %p0, %r1, 4; @%p0 bra $loop; \
                add.s64 %rd5, %rd1, %rd2; st.global.u32 [%rd5], %r3;";
    let with = |second| body(&text.replace("SECOND", second), 4);
    assert_eq!(with("bar.sync 0;"), Ok(vec![6; 4]));
    assert!(with("").is_err_and(|error| error.contains("a race at byte 0 of s")));
    // One thread leaves early.
    let left = with("bar.sync 0; setp.eq.u32 %p1, %r0, 3; @%p1 ret;");
    assert!(left.is_err_and(|error| error.contains("diverge")));
}

/// Runs a body in `threads` threads; returns the words of its only parameter, whose address is
/// `%rd1`.
fn body(text: &str, threads: u32) -> Result<Vec<u32>, String> {
    let text = format!(
        ".version 7.8\n.target sm_80\n.address_size 64\n.visible .entry E(\n.param .u64 E_data0\n)\
         \n.maxntid {threads}, 1, 1\n{{\n.reg .pred %p<4>;\n.reg .b16 %h<4>;\n.reg .b32 %r<8>;\n\
         .reg .b64 %rd<8>;\n.reg .f32 %f<4>;\n.reg .f64 %fd<4>;\n.shared .align 16 .b8 s[16];\n\
         ld.param.u64 %rd0, [E_data0];\ncvta.to.global.u64 %rd1, %rd0;\n{text}\nret;\n}}\n"
    );
    let bytes = vec![POISON; 4 * threads as usize];
    let mut arguments = [Argument { bytes, element_bytes: 4, is_stored: true, is_fresh: true }];
    let sizes = Launch { grid: [1; 3], group: [threads, 1, 1], instructions_max: 1 << 16 };
    launch(&decode(&text)?, &mut arguments, &sizes)?;
    let word = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().expect("four bytes"));
    Ok(arguments[0].bytes.chunks_exact(4).map(word).collect())
}

#[test]
fn instructions_follow_the_manual() {
    let table: [(&str, u32); 28] = [
        ("mov.b32 %r0, 1; mov.b32 %r1, 32; shl.b32 %r2, %r0, %r1;", 0),
        ("mov.b32 %r0, 1; shl.b32 %r2, %r0, 31;", 1 << 31),
        ("mov.s32 %r0, -8; mov.b32 %r1, 77; shr.s32 %r2, %r0, %r1;", u32::MAX),
        ("mov.s32 %r0, -8; mov.b32 %r1, 77; shr.u32 %r2, %r0, %r1;", 0),
        ("mov.s32 %r0, -7; mov.s32 %r1, 2; div.s32 %r2, %r0, %r1;", -3i32 as u32),
        ("mov.s32 %r0, -7; mov.s32 %r1, 2; rem.s32 %r2, %r0, %r1;", -1i32 as u32),
        ("mov.u32 %r0, 4294967289; mov.u32 %r1, 2; div.u32 %r2, %r0, %r1;", 2_147_483_644),
        ("mov.s32 %r0, -7; mov.s32 %r1, 2; min.u32 %r2, %r0, %r1;", 2),
        ("mov.s32 %r0, -7; mov.s32 %r1, 2; min.s32 %r2, %r0, %r1;", -7i32 as u32),
        ("mov.s32 %r0, 300; cvt.s32.s8 %r2, %r0;", 44),
        ("mov.s32 %r0, 200; cvt.s32.s8 %r2, %r0;", -56i32 as u32),
        ("mov.f32 %f0, 0f4F800000; cvt.rzi.s32.f32 %r2, %f0;", i32::MAX as u32),
        ("mov.f32 %f0, 0fBFC00000; cvt.rzi.s32.f32 %r2, %f0;", -1i32 as u32),
        ("mov.f32 %f0, 0fBFC00000; cvt.rzi.u32.f32 %r2, %f0;", 0),
        ("mov.f32 %f0, 0f7FC00000; cvt.rzi.s32.f32 %r2, %f0;", 0),
        ("mov.b16 %h0, 0x1234; mov.b16 %h1, 0x5678; mov.b32 %r2, {%h0, %h1};", 0x5678_1234),
        ("mov.f32 %f0, 0f3F801000; cvt.rna.tf32.f32 %r2, %f0;", 0x3f80_2000),
        ("mov.f32 %f0, 0f3F801000; cvt.rn.f16.f32 %h0, %f0; cvt.u32.u16 %r2, %h0;", 0x3c00),
        ("mov.f32 %f0, 0f3F803000; cvt.rn.f16.f32 %h0, %f0; cvt.u32.u16 %r2, %h0;", 0x3c02),
        ("mov.f32 %f0, 0f33000001; cvt.rn.f16.f32 %h0, %f0; cvt.u32.u16 %r2, %h0;", 1),
        ("mov.f32 %f0, 0f477FF000; cvt.rn.f16.f32 %h0, %f0; cvt.u32.u16 %r2, %h0;", 0x7c00),
        ("mov.f32 %f0, 0f477FF000; cvt.rz.f16.f32 %h0, %f0; cvt.u32.u16 %r2, %h0;", 0x7bff),
        ("mov.f32 %f0, 0f3F808000; cvt.rn.bf16.f32 %h0, %f0; cvt.u32.u16 %r2, %h0;", 0x3f80),
        ("mov.u32 %r0, 4294967295; cvt.rz.f32.u32 %f0, %r0; mov.b32 %r2, %f0;", 0x4f7f_ffff),
        ("mov.u32 %r0, 4294967295; cvt.rn.f32.u32 %f0, %r0; mov.b32 %r2, %f0;", 0x4f80_0000),
        ("mov.f32 %f0, 0f7FC00000; setp.ne.f32 %p0, %f0, %f0; selp.u32 %r2, 1, 0, %p0;", 0),
        ("mov.f32 %f0, 0f7FC00000; setp.neu.f32 %p0, %f0, %f0; selp.u32 %r2, 1, 0, %p0;", 1),
        ("mov.s32 %r0, -1; mul.wide.s32 %rd2, %r0, 4; cvt.u32.u64 %r2, %rd2;", -4i32 as u32),
    ];
    for (text, expected) in table {
        let found = body(&format!("{text} st.global.u32 [%rd1+0], %r2;"), 1);
        assert_eq!(found, Ok(vec![expected]), "{text}");
    }
}

#[test]
fn instructions_that_the_manual_does_not_allow_are_refused() {
    let table = [
        "cvt.f16.f32 %h0, %f0;",
        "cvt.rn.f32.f16 %f0, %h0;",
        "cvt.s32.f32 %r0, %f0;",
        "cvt.rzi.f32.s32 %f0, %r0;",
        "cvt.rn.bf16.f64 %h0, %fd0;",
        "cvt.rn.tf32.f32 %r0, %f0;",
        "mov.b32 %r0, %h0;",
        "mov.b32 %r0, 4294967296;",
        "mov.f32 %f0, 1;",
        "mov.f32 %f0, 0f3F80000;",
        "mov.u64 %rd2, %tid.x;",
        "mov.u32 %r0, s;",
        "mov.u32 %tid.x, %r0;",
        "add.s32 %r0, %r1;",
        "add.s32 %r0, %r1, %tid.x;",
        "add.b32 %r0, %r1, %r2;",
        "and.s32 %r0, %r1, %r2;",
        "neg.u32 %r0, %r1;",
        "selp.pred %p0, %p1, %p2, %p3;",
        "setp.lt.pred %p0, %p1, %p2;",
        "setp.neu.s32 %p0, %r0, %r1;",
        "ex2.approx.f64 %fd0, %fd0;",
        "shl.b32 %r0, %r1, %rd2;",
        "st.global.v4.f64 [%rd1], {%fd0, %fd1, %fd2, %fd3};",
        "ld.global.f16 %h0, [%rd1];",
        "ld.global.u32 %r0, [%r1];",
        "ld.global.u32 %h0, [%rd1];",
        "bra $nowhere;",
        "mov.b32 %r8, 0;",
        "mov.b32 %r0, 010;",
        ".reg .b32 %r<2>;",
        "@%r0 ret;",
    ];
    for text in table {
        assert!(body(text, 1).is_err_and(|error| error.contains("line")), "{text}");
    }
}

#[test]
fn texts_cut_or_altered_anywhere_do_not_panic() {
    let text = rendered(&parsed(SUMS));
    assert!(decode(&text).is_ok());
    for end in 0..text.trim_end().len() {
        assert!(decode(&text[..end]).is_err(), "{}", &text[..end]);
    }
    let words: Vec<&str> = text.split_whitespace().collect();
    let kernel = parsed(SUMS);
    for (at, _) in words.iter().enumerate() {
        for word in ["", "7;", "%r0,", "{", "[%rd1+0],", "-1", "99999999999999999999;", "mov.b32"] {
            let mut words = words.clone();
            words[at] = word;
            // Errors are fine, and so is a text that is still valid.
            let _ = run(&kernel, &words.join(" "), &[ordinal(COUNT)]);
        }
    }
}

/// Number of wrong elements of a product.
fn wrong_sums(core: &TensorCore, text: &str) -> Result<usize, String> {
    let fragments = products::fragments(core, &mut Draw::new(1));
    let expected = products::expected(core, &fragments);
    let inputs: Vec<Vec<Constant>> =
        fragments.iter().map(|fragment| fragment.iter().flatten().copied().collect()).collect();
    let found = run(&products::kernel(core), text, &inputs)?;
    let pairs = found.iter().zip(&expected);
    Ok(pairs.filter(|(found, expected)| scalar::to_float(**found) != Some(**expected)).count())
}

#[test]
fn products_of_warps_follow_the_manual() {
    let cores: Vec<_> = TENSOR_CORES.iter().filter(|core| core.threads == 32).collect();
    assert_eq!(cores.len(), 4);
    for core in cores {
        let text = rendered(&products::kernel(core));
        assert_eq!(wrong_sums(core, &text), Ok(0), "{}\n{text}", core.name);
        // The registers of A in another order hold other elements.
        let mma = text.lines().find(|line| line.contains("mma.sync")).expect("the instruction");
        let a = mma.split('{').nth(2).and_then(|rest| rest.split_once('}')).expect("A").0;
        let reversed: Vec<&str> = a.split(", ").collect::<Vec<_>>().into_iter().rev().collect();
        let reversed_text =
            text.replace(&format!("{{{a}}}"), &format!("{{{}}}", reversed.join(", ")));
        assert!(wrong_sums(core, &reversed_text).is_ok_and(|count| count > 0), "{}", core.name);
        // Half a warp cannot multiply.
        let early = "mov.u32 %r0, %tid.x; setp.lt.u32 %p0, %r0, 16; @%p0 ret; mma.sync";
        let guarded = text.replace("mma.sync", early);
        let guarded = guarded.replace("\t.reg .b32", "\t.reg .pred %p<1>;\n\t.reg .b32");
        let error = wrong_sums(core, &guarded).expect_err("a product by half a warp");
        assert!(error.contains("a thread of a warp"), "{error}");
    }
}
