//! The interpreter against texts with known results.

use gradiff::graph::{Constant, DType};

use super::machine::{Array, Program};

/// Runs a text as two groups of two threads; returns the elements of `x`. Its four elements are 0
/// before; those of `y` are 1 to 4.
fn run(text: &str) -> Result<Vec<Option<u64>>, String> {
    let module = naga::front::wgsl::parse_str(text).map_err(|why| why.emit_to_string(text))?;
    let program = Program::new(module)?;
    let array = |name: &str, values: [u64; 4], is_stored| Array {
        name: name.to_string(),
        elements: values.map(|value| Some(Constant::from_bits(DType::I32, value))).to_vec(),
        is_stored,
    };
    let arrays = vec![array("x", [0; 4], true), array("y", [1, 2, 3, 4], false)];
    let after = program.launch([2, 1, 1], arrays, 1000)?;
    Ok(after[0].elements.iter().map(|element| element.map(Constant::bits)).collect())
}

const HEAD: &str = "@group(0) @binding(0) var<storage, read_write> x: array<i32>;\n\
    @group(0) @binding(1) var<storage, read> y: array<i32>;\n\
    var<workgroup> z: array<i32, 2>;\n\
    fn twice(v: i32) -> i32 { if (v < 0) { return 0; } return v * 2; }\n\
    @compute @workgroup_size(2, 1, 1)\n\
    fn k(@builtin(workgroup_id) gid: vec3<u32>, @builtin(local_invocation_id) lid: vec3<u32>) {\n\
    let i = i32(gid.x) * 2 + i32(lid.x);\n";

fn run_body(body: &str) -> Result<Vec<Option<u64>>, String> {
    run(&format!("{HEAD}{body}\n}}\n"))
}

#[test]
fn statements_give_known_results() {
    let values = |values: [u64; 4]| Ok(values.map(Some).to_vec());
    assert_eq!(run_body("x[i] = twice(y[i]);"), values([2, 4, 6, 8]));
    assert_eq!(
        run_body("if (i > 1) { x[i] = 7; } else { x[i] = select(1, 2, i == 0); }"),
        values([2, 1, 7, 7])
    );
    assert_eq!(
        run_body("var s: i32 = 0; for (var j: i32 = 0; j < 3; j++) { s = s + y[j]; } x[i] = s;"),
        values([6; 4])
    );
    assert_eq!(
        run_body("let v = vec2<i32>(y[i], 5) + vec2<i32>(1); x[i] = v.y * 10 + v.x;"),
        values([62, 63, 64, 65])
    );
    assert_eq!(
        run_body("z[lid.x] = y[i]; workgroupBarrier(); x[i] = z[1u - lid.x];"),
        values([2, 1, 4, 3])
    );
    assert_eq!(
        run_body("x[i] = y[i]; storageBarrier(); let v = x[i ^ 1]; storageBarrier(); x[i] = v;"),
        values([2, 1, 4, 3])
    );
}

#[test]
fn forbidden_behaviour_is_refused() {
    for (body, problem) in [
        ("x[i + 1] = 1;", "element 4 of x"),
        ("x[i] = y[i - 1];", "element -1 of y"),
        ("z[lid.x] = y[i]; x[i] = z[1u - lid.x];", "has no value"),
        ("if (i == 0) { workgroupBarrier(); }", "not all threads"),
        ("if (lid.x == 0) { z[0] = y[0]; } x[i] = z[0];", "a race at element 0 of z"),
        ("z[lid.x] = y[i]; storageBarrier(); x[i] = z[1u - lid.x];", "a race at element 1 of z"),
        ("x[i] = 1; workgroupBarrier(); x[i ^ 1] = 2;", "a race at element 1 of x"),
        ("x[lid.x] = 1;", "a race at element 0 of x"),
        ("loop { x[i] = 1; if (x[i] == 0) { break; } }", "without an end"),
        ("x[i] = i32(u64(y[i]));", "in two ways"),
    ] {
        let error = run_body(body).expect_err(body);
        assert!(error.contains(problem), "{body}: {error}");
    }
}
