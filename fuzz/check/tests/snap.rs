//! Tests of `snap diff`: the text of a linear kernel is parsed to the same kernel, and planted
//! changes of a snapshot get the right class.

use std::collections::BTreeSet;
use std::path::PathBuf;

use gradiff::graph::text::parse_linears;
use gradiff::graph::verify::verify_kernel;
use gradiff::graph::{Arg, Constant, Instruction, Linear, Op};
use gradiff_check::snap::{Class, Files, Row, diff};
use gradiff_check::{Form, Shown, show};
use gradiff_corpus::Case;
use rayon::prelude::*;

/// All snapshots of the repository.
fn snapshots() -> Files {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../snapshots");
    let (mut files, mut folders) = (Files::new(), vec![folder.clone()]);
    while let Some(subfolder) = folders.pop() {
        for entry in std::fs::read_dir(subfolder).expect("the folder of snapshots") {
            let path = entry.expect("an entry of the folder").path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(&folder).expect("inside").to_string_lossy();
                files.insert(name.into_owned(), std::fs::read(&path).expect("a file"));
            }
        }
    }
    files
}

/// Checks that parsed kernels are printed as the text that they were parsed from, and returns their
/// number.
fn check_round_trip(name: &str, text: &str) -> usize {
    let kernels = parse_linears(text).unwrap_or_else(|error| panic!("{name}: {error}"));
    let print = |(number, kernel)| format!("# kernel {number}\n{kernel}");
    let printed: String = kernels.iter().enumerate().map(print).collect();
    assert_eq!(printed.trim_end(), text.trim_end(), "{name}");
    for kernel in &kernels {
        verify_kernel(kernel).unwrap_or_else(|error| panic!("{name}: {error}\n{kernel}"));
    }
    kernels.len()
}

#[test]
fn every_snapshot_of_uops_reads_back() {
    let files = snapshots();
    let uops: Vec<_> = files.iter().filter(|(name, _)| name.starts_with("uops/")).collect();
    assert!(uops.len() > 50, "{} snapshots", uops.len());
    let mut count = 0;
    for (name, bytes) in uops {
        let text = std::str::from_utf8(bytes).expect("text");
        let (_, body) = text[4..].split_once("\n---\n").expect("a header");
        if !body.trim().is_empty() {
            count += check_round_trip(name, body);
        }
    }
    assert!(count > 90, "{count} kernels");
}

#[test]
fn kernels_of_vectors_and_groups_read_back() {
    let mut seen = [("f32x", false), ("define_local", false), ("barrier", false), ("l\n", false)];
    let opts = ["local 0 2", "group 1 2", "grouptop 1 2"].map(|opt| opt.parse().expect("an opt"));
    let opts: Vec<_> = opts.iter().map(|opt| Some(std::slice::from_ref(opt))).collect();
    for (number, case) in gradiff_check::embedded_cases().iter().enumerate() {
        let grouped = opts.iter().map(|opts| ("groups", *opts));
        for (target, opts) in grouped.chain([("vectors", None), ("cuda", None)]) {
            let shown = Shown { form: Form::Uops, opts, target: Some(target) };
            // Some cases are not programs, some kernels do not allow the opt.
            let Ok(text) = show(case, shown) else { continue };
            if text.trim().is_empty() {
                continue;
            }
            check_round_trip(&format!("case {number} for {target}"), &text);
            seen.iter_mut().for_each(|(word, found)| *found |= text.contains(*word));
        }
    }
    let missing: Vec<_> = seen.iter().filter(|(_, found)| !found).collect();
    assert!(missing.is_empty(), "not among the kernels: {missing:?}");
}

/// A set of snapshots that has only one, with this text.
fn files(name: &str, text: &str) -> Files {
    Files::from([(name.to_owned(), format!("---\nsource: here\n---\n{text}").into_bytes())])
}

/// The row of the report after parts of a kernel's text are replaced.
fn row_of_edits(text: &str, edits: &[(&str, &str)]) -> Row {
    let mut edited = text.to_owned();
    for (from, to) in edits {
        assert!(edited.contains(from), "{from:?} is not in {edited}");
        edited = edited.replace(from, to);
    }
    row_of_change(text, &edited)
}

/// The row of the report after a kernel's text is replaced.
fn row_of_change(before: &str, after: &str) -> Row {
    let report = diff(&files("uops/a.snap", before), &files("uops/a.snap", after));
    assert_eq!((report.rows.len(), report.unchanged), (1, 0), "{before} {after}");
    report.rows[0].clone()
}

const ADD: &str = "# kernel 0
kernel E_4
   0 const          i32   []           4
   1 const          f32   []           7.0
   2 define_global  f32   []           data0 4
   3 define_global  f32   []           data1 4
   4 range          i32   [0]          0
   5 index          f32   [2, 4]
   6 index          f32   [3, 4]
   7 load           f32   [6]
   8 add            f32   [7, 1]
   9 store          void  [5, 8]
  10 endrange       void  [4]
";

/// A kernel that sums each row of a 4 x 8 array, in one of three ways: in order, by halves, or
/// without the last element.
fn sum(order: &str) -> String {
    let mut text = String::from(
        "kernel r_4_8
   0 const i32 [] 4
   1 const i32 [] 8
   2 const f32 [] 0.0
   3 define_global f32 [] data0 4
   4 define_global f32 [] data1 32
   5 range i32 [0] 0
   6 mul i32 [5, 1]
",
    );
    let mut position = 7;
    let mut line = |words: String| {
        text += &format!("{position} {words}\n");
        position += 1;
        position - 1
    };
    let mut values: Vec<usize> = Vec::new();
    for column in 0..8 {
        let offset = line(format!("const i32 [] {column}"));
        let address = line(format!("add i32 [6, {offset}]"));
        let index = line(format!("index f32 [4, {address}]"));
        values.push(line(format!("load f32 [{index}]")));
    }
    let mut sum_of = |values: &[usize]| {
        let mut sum = values[0];
        for value in &values[1..] {
            sum = line(format!("add f32 [{sum}, {value}]"));
        }
        sum
    };
    let sum = match order {
        "in order" => sum_of(&values),
        "by halves" => {
            let halves = [sum_of(&values[..4]), sum_of(&values[4..])];
            sum_of(&halves)
        }
        _ => sum_of(&values[..7]),
    };
    let index = line(String::from("index f32 [3, 5]"));
    line(format!("store void [{index}, {sum}]"));
    line(String::from("endrange void [5]"));
    text
}

#[test]
fn a_changed_constant_is_a_different_meaning() {
    let row = row_of_edits(ADD, &[("7.0", "8.0")]);
    assert_eq!(row.class, Class::DifferentMeaning, "{row:?}");
    assert!(row.detail.contains("of data0 is"), "{row:?}");
    let row =
        row_of_edits(ADD, &[("1 const          f32   []           7.0", "1 const f32 [] 7.001")]);
    assert_eq!(row.class, Class::DifferentMeaning, "{row:?}");
    // Not even a change of the last bit counts as rounding.
    let row = row_of_edits(ADD, &[("7.0", "7.0000005")]);
    assert_eq!(row.class, Class::DifferentMeaning, "{row:?}");
}

#[test]
fn one_load_more_is_dearer_and_one_less_cheaper() {
    let twice = ADD
        .replace("   8 add            f32   [7, 1]\n", "   8 load f32 [6]\n   9 add f32 [8, 1]\n")
        .replace("   9 store          void  [5, 8]", "10 store void [5, 9]")
        .replace("  10 endrange", "11 endrange");
    let row = row_of_change(ADD, &twice);
    assert_eq!(row.class, Class::Dearer, "{row:?}");
    let loads = |row: &Row| [row.before, row.after].map(|cost| cost.expect("a cost").loads);
    assert_eq!(loads(&row), [4, 8]);
    let row = row_of_change(&twice, ADD);
    assert_eq!((row.class, loads(&row)), (Class::Cheaper, [8, 4]));
}

#[test]
fn renumbered_uops_are_the_same_program() {
    let renamed = [("kernel E_4", "kernel E_4n1"), ("[0]          0", "[0] 3")];
    assert_eq!(row_of_edits(ADD, &renamed).class, Class::SameProgram);
    // Two constants are swapped, and two indices.
    let swapped = "kernel E_4
   0 const f32 [] 7.0
   1 const i32 [] 4
   2 define_global f32 [] data1 4
   3 define_global f32 [] data0 4
   4 range i32 [1] 0
   5 index f32 [2, 4]
   6 load f32 [5]
   7 add f32 [6, 0]
   8 index f32 [3, 4]
   9 store void [8, 7]
  10 endrange void [4]
";
    let row = row_of_change(ADD, swapped);
    assert_eq!((row.class, row.before), (Class::SameProgram, row.after));
    // Swapped sources, and a dimension of the grid, are more than renumbering.
    let row = row_of_edits(ADD, &[("[7, 1]", "[1, 7]")]);
    assert_eq!(row.class, Class::EquallyDear, "{row:?}");
    assert_eq!(row_of_edits(ADD, &[("[0]          0", "[0] 0g")]).class, Class::Cheaper);
}

#[test]
fn costs_are_counted_by_the_iterations_of_loops() {
    let files: Files =
        snapshots().into_iter().filter(|(name, _)| name == "uops/matmul-4x4.snap").collect();
    let report = diff(&Files::new(), &files);
    let cost = report.rows[0].after.expect("a cost");
    // These costs were counted by hand. The seven registers hold three counters, a product, the
    // accumulator, the first load, and the second load or its address.
    let expected = [
        ("loads", 128),
        ("stores", 16),
        ("alu", 4 + 16 + 5 * 64),
        ("barriers", 0),
        ("depth", 3),
        ("accumulators", 1),
        ("registers", 7),
        ("work", 4 * 144 + 340 + 2 * (4 + 16 + 64)),
    ];
    assert_eq!(cost.numbers(), expected);
}

#[test]
fn where_a_value_is_computed_matters() {
    let inside = ADD
        .replace("   8 add            f32   [7, 1]\n", "   8 exp2 f32 [1]\n   9 add f32 [7, 8]\n");
    let inside = inside.replace("   9 store          void  [5, 8]", "  10 store void [5, 9]");
    let inside = inside.replace("  10 endrange", "  11 endrange");
    let outside = "kernel E_4
   0 const i32 [] 4
   1 const f32 [] 7.0
   2 define_global f32 [] data0 4
   3 define_global f32 [] data1 4
   4 exp2 f32 [1]
   5 range i32 [0] 0
   6 index f32 [2, 5]
   7 index f32 [3, 5]
   8 load f32 [7]
   9 add f32 [8, 4]
  10 store void [6, 9]
  11 endrange void [5]
";
    let row = row_of_change(&inside, outside);
    assert_eq!(row.class, Class::Cheaper, "{row:?}");
    assert_eq!(row_of_change(outside, &inside).class, Class::Dearer);
    let read = "kernel E_2
   0 const i32 [] 2
   1 const f32 [] 1.0
   2 define_global f32 [] data0 2
   3 range i32 [0] 0
   4 index f32 [2, 3]
   5 load f32 [4]
   6 add f32 [5, 1]
   7 store void [4, 6]
   8 load f32 [4]
   9 store void [4, 5]
  10 endrange void [3]
";
    // The value that is stored last is loaded before the first store, or after it.
    assert_eq!(row_of_edits(read, &[("[4, 5]", "[4, 8]")]).class, Class::DifferentMeaning);
}

#[test]
fn sums_in_another_order_have_other_bits_and_lost_terms_another_meaning() {
    let (order, halves, lost) = (sum("in order"), sum("by halves"), sum("one lost"));
    let row = row_of_change(&order, &halves);
    assert_eq!(row.class, Class::OtherBits, "{row:?}");
    assert!(row.detail.contains("spread data"), "small integers add up exactly: {row:?}");
    assert_eq!(row_of_change(&order, &lost).class, Class::DifferentMeaning);
    assert_eq!(
        row_of_change(&order, &order.replace("f32", "i32").replace("0.0", "0")).class,
        Class::DifferentMeaning,
        "other dtypes of parameters"
    );
}

#[test]
fn integers_have_no_other_bits() {
    let (order, halves) = (sum("in order"), sum("by halves"));
    let integers = |text: &str| text.replace("f32", "i32").replace("0.0", "0");
    let row = row_of_change(&integers(&order), &integers(&halves));
    assert_eq!(row.class, Class::EquallyDear, "{row:?}");
    let row = row_of_change(
        &integers(&order),
        &integers(&halves).replacen("const i32 [] 7", "const i32 [] 6", 1),
    );
    assert_eq!(row.class, Class::DifferentMeaning, "{row:?}");
}

#[test]
fn accesses_out_of_bounds_and_changed_parameters_are_detected() {
    for (edits, word) in [
        (vec![("const          i32   []           4", "const i32 [] 5")], "element 4"),
        (vec![("const          i32   []           4", "const i32 [] 3")], "not written"),
        (vec![("data0 4", "data0 8")], "parameters"),
        (
            vec![
                ("[0]          0", "[0] 0g"),
                ("index          f32   [2, 4]", "index f32 [2, 0]"),
                ("data0 4", "data0 8"),
            ],
            "parameters",
        ),
        (vec![("   5 index          f32   [2, 4]", "   5 index f32 [3, 4]")], "of data0 is"),
    ] {
        let row = row_of_edits(ADD, &edits);
        assert_eq!(row.class, Class::DifferentMeaning, "{row:?}");
        assert!(row.detail.contains(word), "{row:?}");
    }
    let row = row_of_change(ADD, &format!("{ADD}{}", ADD.replace("# kernel 0", "# kernel 1")));
    assert_eq!(row.class, Class::DifferentMeaning);
    assert!(row.detail.contains("2 kernels, before 1"), "{row:?}");
}

/// A group of 4 threads that passes elements on through local memory.
const GROUP: &str = "kernel r_4
   0 const i32 [] 4
   1 const i32 [] 3
   2 define_global f32 [] data0 4
   3 define_global f32 [] data1 4
   4 define_local f32 [] local0 4
   5 range i32 [0] 0l
   6 index f32 [3, 5]
   7 load f32 [6]
   8 index f32 [4, 5]
   9 store void [8, 7]
  10 barrier void [9]
  11 sub i32 [1, 5]
  12 index f32 [4, 11]
  13 load f32 [12, 10]
  14 index f32 [2, 5]
  15 store void [14, 13]
  16 endrange void [5]
";

#[test]
fn groups_are_run_with_their_barriers() {
    let row = row_of_edits(GROUP, &[("r_4", "r_4n1")]);
    assert_eq!(row.class, Class::SameProgram, "{row:?}");
    assert_eq!(row.before.map(|cost| (cost.barriers, cost.loads, cost.depth)), Some((4, 8, 1)));
    // Without its barrier a thread reads what another one has not written yet.
    let without =
        GROUP.replace("  10 barrier void [9]", "  10 const i32 [] 9").replace("[12, 10]", "[12]");
    let row = row_of_change(GROUP, &without);
    assert_eq!(row.class, Class::DifferentMeaning, "{row:?}");
    let row = row_of_edits(GROUP, &[("sub i32 [1, 5]", "sub i32 [1, 1]")]);
    assert_eq!(row.class, Class::DifferentMeaning, "{row:?}");
}

/// A group in which each thread reads the local element of its right neighbour, and then stores
/// another value to its own.
const REUSED: &str = "kernel r_4
   0 const i32 [] 4
   1 const i32 [] 3
   2 const i32 [] 1
   3 define_global f32 [] data0 4
   4 define_global f32 [] data1 4
   5 define_local f32 [] local0 4
   6 range i32 [0] 0l
   7 index f32 [4, 6]
   8 load f32 [7]
   9 index f32 [5, 6]
  10 store void [9, 8]
  11 barrier void [10]
  12 add i32 [6, 2]
  13 min i32 [12, 1]
  14 index f32 [5, 13]
  15 load f32 [14, 11]
  16 barrier void []
  17 add f32 [15, 8]
  18 store void [9, 17]
  19 load f32 [9]
  20 index f32 [3, 6]
  21 store void [20, 19]
  22 endrange void [6]
";

#[test]
fn a_race_is_another_meaning_even_if_sequential_threads_do_not_show_it() {
    let row = row_of_edits(REUSED, &[("16 barrier void []", "16 const i32 [] 9")]);
    assert_eq!(row.class, Class::DifferentMeaning, "{row:?}");
    assert!(row.detail.contains("race") || row.detail.contains("thread"), "{row:?}");
    let row = row_of_edits(REUSED, &[("[15, 8]", "[8, 15]")]);
    assert_eq!(row.class, Class::EquallyDear, "{row:?}");
}

/// Four elements as one vector.
const VECTOR: &str = "kernel E_4
   0 const i32 [] 0
   1 const f32 [] 7.0
   2 define_global f32 [] data0 4
   3 define_global f32 [] data1 4
   4 index f32 [2, 0]
   5 index f32 [3, 0]
   6 load f32x4 [5]
   7 vectorize f32x4 [1]
   8 add f32x4 [6, 7]
   9 store void [4, 8]
";

#[test]
fn vectors_are_run_lane_by_lane_and_count_once() {
    let row = row_of_change(ADD, VECTOR);
    assert_eq!(row.class, Class::Cheaper, "{row:?}");
    assert_eq!(row.after.map(|cost| (cost.loads, cost.alu, cost.depth)), Some((1, 1, 0)));
    let row = row_of_change(ADD, &VECTOR.replace("f32x4", "f32x3"));
    assert_eq!(row.class, Class::DifferentMeaning, "one lane too few: {row:?}");
}

const ENDLESS: &str = "kernel E
   0 const i32 [] 0
   1 const i32 [] 2000000000
   2 define_global f32 [] data0 4
   3 range i32 [0] 0g
   4 range i32 [1] 0l
   5 endrange void [4]
   6 endrange void [3]
";

#[test]
fn broken_snapshots_are_reported_and_nothing_panics() {
    let cases = [
        ("12 add f32 [7, 1]", "line 14: expected uop 8"),
        ("8 add f32 [7, 9]", "line 14: source 9 is not above uop 8"),
        ("8 add f64 [7, 1]", "uop 8 (add)"),
        ("8 add f32 [7, 0]", "uop 8 (add)"),
        ("8 reshape f32 [7] [1]", "uop 8 (reshape)"),
        ("8 add", "line 14"),
        ("8", "line 14"),
        ("\u{fffd} \u{1f600}", "line 14"),
    ];
    for (line, problem) in cases {
        let row = row_of_edits(ADD, &[("8 add            f32   [7, 1]", line)]);
        assert_eq!(row.class, Class::Broken, "{row:?}");
        assert!(row.detail.contains(problem), "{line}: {row:?}");
        // A broken file that did not change is still broken.
        let text = ADD.replace("8 add            f32   [7, 1]", line);
        let same = files("uops/a.snap", &text);
        assert_eq!(diff(&same, &same).count(Class::Broken), 1, "{line}");
    }
    for (from, to, problem) in [
        ("data0 4", "data0 99999999999999", "elements; at most"),
        ("data0", "data7", "where data0 is expected"),
        ("i32   []           4", "i32 [] 2000000000", "uops are run; at most"),
    ] {
        let row = row_of_edits(ADD, &[(from, to)]);
        assert!(row.class == Class::Broken && row.detail.contains(problem), "{row:?}");
    }
    // A loop without iterations around very many threads.
    let row = row_of_change(ADD, ENDLESS);
    assert!(row.class == Class::Broken && row.detail.contains("threads"), "{row:?}");
    for bytes in [b"".as_slice(), b"---", b"\xff\xfe", b"---\nsource: x\n", b"kernel E\n"] {
        let broken = Files::from([(String::from("uops/a.snap"), bytes.to_vec())]);
        let report = diff(&files("uops/a.snap", ADD), &broken);
        assert_eq!(report.count(Class::Broken), 1, "{bytes:?}: {report:?}");
        let report = diff(&broken, &files("uops/a.snap", ADD));
        assert!(report.rows[0].detail.starts_with("before: "), "{report:?}");
    }
}

#[test]
fn every_line_of_a_snapshot_may_be_lost_without_a_panic() {
    for text in [ADD, GROUP, VECTOR] {
        for lost in 0..text.lines().count() {
            let rest = text.lines().enumerate().filter(|(number, _)| *number != lost);
            let rest: Vec<&str> = rest.map(|(_, line)| line).collect();
            let row = row_of_change(text, &rest.join("\n"));
            let is_comment = text.lines().nth(lost).is_some_and(|line| line.starts_with('#'));
            let class = if is_comment { Class::SameProgram } else { Class::Broken };
            // The last line of a kernel may be lost unless it ends a loop.
            let is_last = lost + 1 == text.lines().count() && text == VECTOR;
            let class = if is_last { Class::DifferentMeaning } else { class };
            assert_eq!(row.class, class, "line {lost} of {text}: {row:?}");
        }
    }
}

#[test]
fn other_texts_are_linked_to_their_uops() {
    let both = |uops: &str, source: &str| {
        let mut snapshots = files("uops/a.snap", uops);
        snapshots.extend(files("kernels/c/a.snap", source));
        snapshots
    };
    let text_row = |before: &Files, after: &Files| {
        let report = diff(before, after);
        let row = report.rows.iter().find(|row| row.name.starts_with("kernels")).expect("a row");
        (row.class, row.uops, row.lines.added, row.lines.removed)
    };
    let before = both(ADD, "val0 = 1;\nval1 = val0;\n");
    let after = both(&ADD.replace("7.0", "8.0"), "val0 = 2;\nval1 = val0;\n");
    assert_eq!(text_row(&before, &after), (Class::Text, Some(Some(Class::DifferentMeaning)), 1, 1));
    let after = both(ADD, "val3 = 1;\n  val0 = val3;\n");
    assert_eq!(text_row(&before, &after), (Class::SameText, Some(None), 2, 2));
    let report = diff(&before, &files("uops/a.snap", ADD));
    assert_eq!((report.rows[0].class, report.unchanged), (Class::Removed, 1));
    let report = diff(&files("uops/a.snap", ADD), &before);
    assert_eq!((report.rows[0].class, report.unchanged), (Class::Added, 1));
}

#[test]
fn optimisations_keep_the_meaning() {
    check_optimisations(4);
}

#[test]
#[ignore = "takes minutes; .ci/nightly runs it"]
fn optimisations_of_all_cases_keep_the_meaning() {
    check_optimisations(1);
}

/// Checks of every `of`-th case that no optimisation is classed as another meaning. On CPUs with
/// vectors a graph is divided into other kernels, so these are compared with the same kernels
/// without optimisations.
fn check_optimisations(of: usize) {
    let opts: Vec<_> = ["upcast 0 2", "unroll 0 2", "padto 0 4", "swap 0 1", "group 0 2"]
        .map(|opt| opt.parse().expect("an opt"))
        .into();
    let mut variants: Vec<_> =
        opts.iter().map(|opt| (Some(std::slice::from_ref(opt)), "plain")).collect();
    variants.extend([(Some(&opts[4..]), "groups"), (None, "vectors"), (None, "cuda")]);
    let classes = |(number, case): (usize, &Case)| {
        let uops = |opts, target| {
            let text = show(case, Shown { form: Form::Uops, opts, target: Some(target) });
            text.ok().filter(|text| !text.trim().is_empty())
        };
        let mut found = Vec::new();
        let Some(plain) = uops(Some(&[]), "plain") else { return found };
        for (opts, target) in &variants {
            // What shares a kernel depends on the target.
            let same_kernels = (*target != "plain").then(|| uops(Some(&[]), target));
            let plain = same_kernels.flatten().unwrap_or_else(|| plain.clone());
            // The opt may have no effect on this kernel.
            let optimised = uops(*opts, target).filter(|optimised| *optimised != plain);
            let Some(optimised) = optimised else { continue };
            let row = row_of_change(&plain, &optimised);
            let is_right = !matches!(row.class, Class::DifferentMeaning | Class::Broken);
            assert!(
                is_right,
                "case {number}, {opts:?} for {target}: {row:?}\n{plain}\n{optimised}"
            );
            found.push(row.class);
        }
        found
    };
    let cases = gradiff_check::embedded_cases();
    let cases: Vec<(usize, &Case)> = cases.iter().enumerate().step_by(of).collect();
    let found: BTreeSet<Class> = cases.into_par_iter().flat_map(classes).collect();
    for class in [Class::Cheaper, Class::Dearer, Class::EquallyDear, Class::OtherBits] {
        assert!(found.contains(&class), "none is {}: {found:?}", class.name());
    }
}

/// Constants (snapshot, kernel, uop) that have the same meaning when they are one less, as
/// reviewed: the gate of a load that is then not chosen, a limit that gives the same quotient or
/// lies between the indices that it is compared with, a stride by which rows overlap.
const SAME_MEANING: &[(&str, usize, usize)] = &[
    ("uops/cat-two.snap", 0, 5),
    ("uops/collapse-count-step.snap", 0, 7),
    ("uops/opt-padto-prod.snap", 0, 4),
    ("uops/opt-padto.snap", 0, 1),
    ("uops/opt-padto.snap", 0, 2),
];

/// Changes each constant of each snapshot, one at a time. The result must never be classed as the
/// same program, and must nearly always be classed as another meaning.
#[test]
fn changed_constants_of_all_snapshots_are_detected() {
    let (mut tried, mut detected, mut same) = (0, 0, 0);
    let mut missed = Vec::new();
    for (name, bytes) in snapshots().into_iter().filter(|(name, _)| name.starts_with("uops/")) {
        let text = std::str::from_utf8(&bytes).expect("text");
        let (_, body) = text[4..].split_once("\n---\n").expect("a header");
        let kernels = parse_linears(body).unwrap_or_default();
        for (number, position) in constants(&kernels) {
            let mut changed = kernels.clone();
            let uop = &mut changed[number].uops[position];
            let Arg::Const(value) = uop.arg else { continue };
            uop.arg = Arg::Const(match value.to_float() {
                Some(float) if float.is_finite() => Constant::float(value.dtype(), float + 1.0),
                Some(_) => Constant::zero(value.dtype()),
                None => Constant::int(value.dtype(), value.to_int().unwrap_or(0) - 1),
            });
            let print =
                |kernels: &[Linear]| kernels.iter().map(Linear::to_string).collect::<String>();
            let row = row_of_change(&print(&kernels), &print(&changed));
            assert_ne!(row.class, Class::SameProgram, "{name}: kernel {number} uop {position}");
            if SAME_MEANING.contains(&(name.as_str(), number, position)) {
                assert_eq!(row.class, Class::EquallyDear, "{name}: kernel {number} uop {position}");
                same += 1;
                continue;
            }
            tried += 1;
            match row.class {
                Class::DifferentMeaning | Class::Broken => detected += 1,
                class => missed.push((name.clone(), number, position, class)),
            }
        }
    }
    assert_eq!(same, SAME_MEANING.len(), "a reviewed constant is there no more");
    assert!(
        tried > 200 && detected * 100 >= tried * 99,
        "{detected} of {tried}, but not {missed:?}"
    );
}

/// The number of the kernel, and the position in it, of each constant that a uop uses.
fn constants(kernels: &[Linear]) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    for (number, kernel) in kernels.iter().enumerate() {
        let is_used =
            |position: usize| kernel.uops.iter().any(|uop| uop.src.contains(&(position as u32)));
        let used_constant = |(position, uop): (usize, &Instruction)| {
            (uop.op == Op::Const && is_used(position)).then_some((number, position))
        };
        found.extend(kernel.uops.iter().enumerate().filter_map(used_constant));
    }
    found
}

#[test]
fn all_snapshots_are_well_formed_and_equal_to_themselves() {
    let files = snapshots();
    let report = diff(&files, &files);
    assert_eq!(report.rows, []);
    assert_eq!(report.unchanged, files.len());
}
