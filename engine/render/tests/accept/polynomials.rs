//! exp2 and log2 of vectors in C against the system's functions of f64, on every 1009th float.
//! `GRADIFF_STEP=1` tries all; that takes minutes.

use std::process::Command;

use crate::compilers::first;

/// Prints the largest error in ulp; fails if what is special differs.
const MAIN: &str = r#"
#include <stdio.h>
#include <stdlib.h>
static double error_ulp(float y, double exact) {
  float nearest = (float)exact;
  if (y != y || nearest != nearest) return (y != y) == (nearest != nearest) ? 0.0 : INFINITY;
  if (isinf(y) || isinf(nearest)) return y == nearest ? 0.0 : INFINITY;
  return fabs(y - exact) / ldexp(1.0, ilogb(fmax(fabs(exact), 0x1p-126)) - 23);
}
int main(int count, char** words) {
  uint64_t step = strtoull(words[1], 0, 10);
  double worst_exp2 = 0, worst_log2 = 0;
  for (uint64_t first = 0; first < (uint64_t)1 << 32; first += 16 * step) {
    float x[16];
    for (int i = 0; i < 16; i++) x[i] = f32_from_bits((uint32_t)(first + i * step));
    f32x16 power = exp2_f32x16(load_f32x16(x)), log = log2_f32x16(load_f32x16(x));
    for (int i = 0; i < 16; i++) {
      worst_exp2 = fmax(worst_exp2, error_ulp(power[i], exp2(x[i])));
      worst_log2 = fmax(worst_log2, error_ulp(log[i], log2(x[i])));
    }
  }
  printf("%.4f %.4f\n", worst_exp2, worst_log2);
  return 0;
}
"#;

/// The largest errors of exp2 and log2, in ulp.
fn errors(text: &str, flags: &[&str]) -> Vec<f64> {
    let directory = tempfile::tempdir().expect("a directory");
    let [source, binary] = ["p.c", "p"].map(|name| directory.path().join(name));
    std::fs::write(&source, text).expect("written");
    let mut compiler = Command::new("gcc");
    compiler.args(["-std=c99", "-D_GNU_SOURCE", "-O2", "-fwrapv", "-ffp-contract=off", "-w"]);
    let built = compiler.args(flags).arg(&source).arg("-o").arg(&binary).arg("-lm").output();
    let built = built.expect("gcc runs");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let step = std::env::var("GRADIFF_STEP").unwrap_or("1009".into());
    let ran = Command::new(&binary).arg(step).output().expect("the program runs");
    let printed = String::from_utf8_lossy(&ran.stdout).into_owned();
    printed.split_whitespace().map(|word| word.parse().expect("a number")).collect()
}

#[test]
fn polynomials_are_as_close_as_they_say() {
    if let Err(why) = first(&["gcc"]) {
        println!("skipped: {why}");
        return;
    }
    let text = gradiff_render::c_prelude(MAIN) + MAIN;
    // With fused sums and without.
    for flags in [&["-march=native"][..], &[]] {
        let found = errors(&text, flags);
        println!("{flags:?}: exp2 {} ulp, log2 {} ulp", found[0], found[1]);
        assert!(found[0] < 1.3 && found[1] < 1.8, "{flags:?}: {found:?}");
    }
    let planted = text.replace("0.48089852f", "0.48089952f");
    assert_ne!(text, planted);
    assert!(errors(&planted, &["-march=native"])[1] > 1.8);
}
