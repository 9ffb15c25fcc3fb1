//! Real compilers accept the text of telling kernels, and refuse what is wrong.

mod kernels;
mod values;

use std::process::Command;

/// What gcc makes of a kernel for a machine with 512-bit vectors; `None` where it is not there.
fn assembly(kernel: &gradiff_graph::Linear) -> Option<String> {
    let text = gradiff_render::c(kernel).expect("C has it");
    let directory = tempfile::tempdir().expect("a directory");
    let source = directory.path().join("kernel.c");
    std::fs::write(&source, gradiff_render::c_prelude(&text) + &text).expect("written");
    let flags = ["-std=c99", "-O2", "-mavx512f", "-mfma", "-fwrapv", "-ffp-contract=off"];
    let output = Command::new("gcc").args(flags).args(["-S", "-o", "-"]).arg(&source).output();
    let output = output.ok()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn tile_keeps_its_sums_in_registers() {
    if !cfg!(target_arch = "x86_64") {
        println!("skipped: no x86-64");
        return;
    }
    let Some(text) = assembly(&kernels::tile()) else {
        println!("skipped: no gcc");
        return;
    };
    assert_eq!(text.matches("vfmadd231ps").count(), 16, "{text}");
    assert_eq!(text.matches("vfmadd").count(), 16, "{text}");
    assert!(!text.contains("(%rsp)") && !text.contains("(%rbp)"), "{text}");
}

#[test]
fn c_has_no_barriers() {
    let error = gradiff_render::c(&kernels::group()).unwrap_err();
    assert_eq!(error.to_string(), "kernel r_8_16, uop 15: C has no barrier");
}
