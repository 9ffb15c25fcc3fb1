//! Vectors in C give what single values give: a program that runs both and compares.

use std::fmt::Write;
use std::path::Path;
use std::process::Command;

use gradiff_graph::{DType, Linear};
use gradiff_render::{c_named, c_prelude, c_type};

use crate::kernels::{choice, elementwise, signatures};

/// What the flags of the device `c` promise.
const FLAGS: [&str; 6] =
    ["-std=c99", "-O2", "-march=native", "-fwrapv", "-ffp-contract=off", "-fno-math-errno"];

/// Fills 64 elements with what is special of the type and with dice, and compares: equal bits, or
/// NaN in both.
const FRAME: &str = r#"
#include <stdio.h>
static uint64_t state = 1;
static uint64_t dice(void) {
  state = state * 6364136223846793005ull + 1442695040888963407ull;
  return state >> 33 ^ state << 31;
}
static const double special[] = {0.0, -0.0, 1.0, -1.0, 0.5, 3.0, -7.25, 127.0, 128.0, 255.5, -129.0,
  65504.0, 65520.0, 1e-7, 6e-8, 1e-40, 2147483648.0, -2147483648.0, 4294967296.0, 0x1p63, -0x1p63,
  0x1p64, 1e300, 1.0009765625, 1.00390625, INFINITY, -INFINITY, NAN};
static void fill(int kind, int size, int number, unsigned char* data) {
  int count = sizeof special / sizeof *special;
  for (int i = 0; i < 64; i++) {
    uint64_t bits = dice();
    if (kind == 'b') bits &= 1;
    if (kind == 'i' && bits % 3 == 0) bits = (uint64_t)((int64_t)(dice() % 9) - 4);
    double value = special[(i * (2 * number + 1) + number * 5) % count];
    float single = f32_from_f64(value);
    if (kind == 'f' && i < 48) memcpy(&bits, &value, 8);
    if (kind == 's' && i < 48) memcpy(&bits, &single, 4);
    if (kind == 'h' && i < 48) bits = f16_from_f64(value);
    if (kind == 'g' && i < 48) bits = bf16_from_f64(value);
    memcpy(data + i * size, &bits, size);
  }
}
static int is_nan(int kind, const unsigned char* data) {
  double d; float s; uint16_t h;
  memcpy(&d, data, kind == 'f' ? 8 : 0); memcpy(&s, data, kind == 's' ? 4 : 0);
  memcpy(&h, data, kind == 'h' || kind == 'g' ? 2 : 0);
  return kind == 'f' ? d != d : kind == 's' ? s != s : kind == 'h' ? (h & 0x7fff) > 0x7c00
    : kind == 'g' ? (h & 0x7fff) > 0x7f80 : 0;
}
static int compare(const char* name, int kind, int size, const unsigned char* a,
                   const unsigned char* b) {
  for (int i = 0; i < 64; i++, a += size, b += size) {
    if (memcmp(a, b, size) == 0 || (is_nan(kind, a) && is_nan(kind, b))) continue;
    uint64_t x = 0, y = 0;
    memcpy(&x, a, size); memcpy(&y, b, size);
    printf("%s lane %d: %#llx alone, %#llx in a vector\n", name, i, (unsigned long long)x,
           (unsigned long long)y);
    return 1;
  }
  return 0;
}
"#;

fn kind(dtype: DType) -> char {
    match dtype {
        DType::Bool => 'b',
        DType::F16 => 'h',
        DType::BF16 => 'g',
        DType::F32 => 's',
        DType::F64 => 'f',
        _ => 'i',
    }
}

/// The function that runs a kernel both ways; gives how often they differ.
fn pair(number: usize, alone: &Linear, vector: &Linear) -> (String, String) {
    let (one, many) = (format!("one{number}"), format!("many{number}"));
    let kernels = [(alone, &one), (vector, &many)]
        .map(|(linear, name)| format!("static {}", c_named(linear, name).expect("C has it")));
    let mut calls = format!("static int check{number}(void) {{\n");
    let globals = vector.globals();
    let (_, result) = globals[0];
    let word = c_type(result);
    let _ = writeln!(calls, "  {word} a[64] = {{0}}, b[64] = {{0}};");
    let mut arguments = String::new();
    for (slot, (_, dtype)) in globals.iter().enumerate().skip(1) {
        let (word, kind, size) = (c_type(*dtype), kind(*dtype), dtype.size_bytes());
        let _ = writeln!(calls, "  {word} x{slot}[64];");
        let _ = writeln!(calls, "  fill('{kind}', {size}, {slot}, (unsigned char*)x{slot});");
        let _ = write!(arguments, ", x{slot}");
    }
    let _ = writeln!(calls, "  {one}(a{arguments}); {many}(b{arguments});");
    let (kind, size) = (kind(result), result.size_bytes());
    let _ = writeln!(
        calls,
        "  return compare(\"{}\", '{kind}', {size}, (unsigned char*)a, (unsigned char*)b);\n}}",
        vector.name
    );
    (kernels.concat(), calls)
}

/// The whole program over all pairs.
fn program(pairs: &[(Linear, Linear)]) -> String {
    let (mut kernels, mut checks, mut main) = (String::new(), String::new(), String::new());
    for (number, (alone, vector)) in pairs.iter().enumerate() {
        let (kernel, check) = pair(number, alone, vector);
        kernels += &kernel;
        checks += &check;
        let _ = writeln!(main, "  wrong += check{number}();");
    }
    let prelude = c_prelude(&(kernels.clone() + FRAME));
    format!(
        "{prelude}\n{kernels}\n{FRAME}\n{checks}\nint main(void) {{\n  int wrong = 0;\n{main}  \
         printf(\"{} pairs, %d differ\\n\", wrong);\n  return wrong != 0;\n}}\n",
        pairs.len()
    )
}

/// What the program prints, and whether all pairs agree.
fn outcome(compiler: &str, text: &str) -> (String, bool) {
    let directory = tempfile::tempdir().expect("a directory for the program");
    let source = directory.path().join("pairs.c");
    let binary = directory.path().join("pairs");
    std::fs::write(&source, text).expect("the program is written");
    let mut command = Command::new(compiler);
    command.args(FLAGS).arg("-w").arg(&source).arg("-o").arg(&binary).arg("-lm");
    let built = command.output().expect("the compiler runs");
    let message = String::from_utf8_lossy(&built.stderr).into_owned();
    assert!(built.status.success(), "{message}");
    run(&binary)
}

fn run(binary: &Path) -> (String, bool) {
    let ran = Command::new(binary).output().expect("the program runs");
    (String::from_utf8_lossy(&ran.stdout).into_owned(), ran.status.success())
}

/// Each op over each type, the count of lanes going round; masks of all widths meet all types.
fn pairs() -> Vec<(Linear, Linear)> {
    let mut pairs = Vec::new();
    for (number, (op, from, to)) in signatures().into_iter().enumerate() {
        let lanes = [4, 16, 8, 2, 32, 64][number % 6];
        pairs.push((elementwise(op, &from, to, 1), elementwise(op, &from, to, lanes)));
    }
    for (number, dtype) in DType::ALL.into_iter().enumerate() {
        for step in [3, 4] {
            let other = |by: usize| DType::ALL[(number + by) % DType::ALL.len()];
            let (left, right) = (other(step), other(2 * step + 1));
            pairs.push((choice(left, right, dtype, 1), choice(left, right, dtype, 8)));
        }
    }
    pairs
}

#[test]
fn vectors_compute_what_single_values_do() {
    for compiler in ["gcc", "clang"] {
        if Command::new(compiler).arg("--version").output().is_err() {
            println!("skipped: no {compiler}");
            continue;
        }
        for part in pairs().chunks(150) {
            let (printed, is_right) = outcome(compiler, &program(part));
            println!("{compiler}: {printed}");
            assert!(is_right, "{compiler}: {printed}");
        }
    }
}

#[test]
fn a_wrong_vector_is_found() {
    let add = |lanes| elementwise(gradiff_graph::Op::Add, &[DType::I8; 2], DType::I8, lanes);
    let text = program(&[(add(1), add(16))]);
    assert!(outcome("gcc", &text).1);
    let wrong = text.replace(", (val0+val1));", ", (val0|val1));");
    assert_ne!(text, wrong);
    assert!(!outcome("gcc", &wrong).1);
}
