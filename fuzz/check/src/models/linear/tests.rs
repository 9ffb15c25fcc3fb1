//! Each rule broken by a kernel written for it, compared with the same kernel that satisfies it.

use gradiff::graph::text::parse_linears;
use gradiff::graph::{Arg, Constant, DType, Linear, Op};
use gradiff_eval::Elements;
use gradiff_eval::linear::run_checked;

use super::*;

/// Four threads, four elements each, by vectors.
const QUADS: &str = "kernel E_4_4
0 define_global f32 [] data0 20
1 define_global f32 [] data1 20
2 const i32 [] 4
3 const i32 [] 0
4 range i32 [2] 0l
5 mul i32 [4, 2]
6 add i32 [5, 3]
7 index f32 [1, 6]
8 load f32x4 [7]
9 index f32 [0, 5]
10 store void [9, 8]
11 endrange void [4]
";

/// Four threads that store into local memory, synchronise, and load the element of another one.
const SHARED: &str = "kernel E_4
0 define_global f32 [] data0 4
1 define_global f32 [] data1 4
2 define_local f32 [] local0 4
3 const i32 [] 4
4 const i32 [] 3
5 range i32 [3] 0l
6 index f32 [1, 5]
7 load f32 [6]
8 index f32 [2, 5]
9 store void [8, 7]
10 barrier void [9]
11 sub i32 [4, 5]
12 index f32 [2, 11]
13 load f32 [12, 10]
14 index f32 [0, 5]
15 store void [14, 13]
16 endrange void [5]
";

fn parsed(text: &str) -> Linear {
    parse_linears(text).unwrap_or_else(|error| panic!("{error}\n{text}")).remove(0)
}

fn rules(target: &str) -> &'static Rules {
    Rules::of(target).unwrap_or_else(|| panic!("{target} has rules"))
}

/// The parameters: 0, 1, 2, ... if they are only read, else undefined.
fn memories(kernel: &Linear) -> Vec<Elements> {
    let at = |position: u32| &kernel.uops[position as usize];
    let is_stored = |slot: usize| {
        kernel.uops.iter().filter(|uop| uop.op == Op::Store).any(|store| {
            let array = at(at(store.src[0]).src[0]);
            matches!(array.arg, Arg::Global(global) if global.slot == slot)
        })
    };
    let filled = |(global, dtype): (gradiff::graph::Global, DType)| {
        let value = |index| (!is_stored(global.slot)).then(|| Constant::int(dtype, index));
        (0..global.size_elements).map(|index| value(index.into())).collect()
    };
    kernel.globals().into_iter().map(filled).collect()
}

fn checked(target: &str, text: &str) -> Result<Vec<Elements>, String> {
    let kernel = parsed(text);
    limits::check(&kernel, rules(target))?;
    let mut arrays = memories(&kernel);
    run_checked(&kernel, &mut arrays, &rules(target).requirements(&kernel)).map(|()| arrays)
}

/// Checks an edited kernel, and the problem reported for it; `None` if it is right.
fn check(target: &str, text: &str, edits: &[(&str, &str)], problem: Option<&str>) {
    let text = edits.iter().fold(text.to_owned(), |text, (from, to)| {
        assert!(text.contains(from), "{from} is in\n{text}");
        text.replacen(from, to, 1)
    });
    match (checked(target, &text), problem) {
        (Ok(_), None) => {}
        (Err(found), Some(problem)) if found.contains(problem) => {}
        (found, _) => panic!("{target}, expected {problem:?}: {:?}\n{text}", found.err()),
    }
}

/// Removes the elements that `QUADS` does not write.
const WHOLE: (&str, &str) = ("data0 20", "data0 16");

#[test]
fn vector_lies_where_the_language_asks_for_it() {
    let shifted = ("3 const i32 [] 0", "3 const i32 [] 1");
    let loops = ("0l", "0");
    for target in ["cuda", "opencl", "metal", "ptx"] {
        check(target, QUADS, &[WHOLE], None);
        let problem = "uop 8 (load): f32x4 at element 1 of data1 is at byte 4, but";
        check(target, QUADS, &[WHOLE, shifted], Some(problem));
        let eight = ("3 const i32 [] 0", "3 const i32 [] 4");
        check(target, QUADS, &[WHOLE, eight], None);
    }
    check("wgsl", QUADS, &[WHOLE, shifted], None);
    for target in ["cpu", "llvm"] {
        check(target, QUADS, &[WHOLE, shifted, loops], None);
    }
}

#[test]
fn vector_store_lies_where_the_language_asks_for_it() {
    let text = QUADS.replacen("7 index f32 [1, 6]", "7 index f32 [1, 5]", 1);
    let text = text.replacen("9 index f32 [0, 5]", "9 index f32 [0, 6]", 1);
    let shifted = ("3 const i32 [] 0", "3 const i32 [] 2");
    check("metal", &text, &[WHOLE], None);
    let problem = "uop 10 (store): f32x4 at element 2 of data0 is at byte 8, but Metal requires a \
                   multiple of 16";
    check("metal", &text, &[shifted], Some(problem));
}

#[test]
fn vector_of_pieces_lies_at_multiples_of_a_piece() {
    // 8 halves are two pieces of 8 bytes in PTX, one vector of 16 in CUDA.
    let text = QUADS.replace("f32x4", "f16x8").replace("f32", "f16").replace("20", "40");
    let edits = [
        ("2 const i32 [] 4", "2 const i32 [] 8"),
        ("data0 40", "data0 64"),
        ("data1 40", "data1 80"),
        ("3 const i32 [] 0", "3 const i32 [] 4"),
    ];
    check("ptx", &text, &edits, None);
    check("cuda", &text, &edits, Some("is at byte 8, but CUDA requires a multiple of 16"));
    let odd = [edits[0], edits[1], edits[2], ("3 const i32 [] 0", "3 const i32 [] 2")];
    check("ptx", &text, &odd, Some("is at byte 4, but PTX requires a multiple of 8"));
}

#[test]
fn vectors_are_those_that_the_language_has() {
    let wide = QUADS.replace("f32x4", "f32x8");
    check("cuda", &wide, &[], Some("uop 8 (load): f32x8, which CUDA does not have"));
    check("metal", &wide, &[], Some("f32x8, which Metal does not have"));
    let sum = QUADS.replacen(
        "10 store void [9, 8]\n11 endrange void [4]",
        "10 add f32x4 [8, 8]\n11 store void [9, 10]\n12 endrange void [4]",
        1,
    );
    check("opencl", &sum, &[WHOLE], None);
    check("cuda", &sum, &[WHOLE], Some("uop 10 (add): f32x4, which CUDA does not have"));
}

#[test]
fn local_array_begins_where_its_vectors_need_it() {
    let text = "kernel E\n0 define_global f32 [] data0 8\n1 define_local f32 [] local0 8\n\
                2 const i32 [] 0\n3 const f32 [] 1\n4 vectorize f32x8 [3]\n5 index f32 [1, 2]\n\
                6 store void [5, 4]\n7 index f32 [1, 2]\n8 load f32x8 [7, 6]\n9 index f32 [0, 2]\n\
                10 store void [9, 8]\n";
    check("opencl", text, &[], None);
    check("cpu", text, &[], None);
    check("small", text, &[], Some("f32x8, which the small device does not have"));
    let rules = Rules { local_alignment: 16, ..*rules("opencl") };
    let kernel = parsed(text);
    let found = run_checked(&kernel, &mut memories(&kernel), &rules.requirements(&kernel));
    let expected = "uop 6 (store): f32x8 of local0 requires a multiple of 32 bytes, but the array \
                    is aligned to 16";
    assert_eq!(found, Err(expected.to_owned()));
}

#[test]
fn groups_keep_within_the_limits() {
    let group = |sizes: [i64; 3], kind: &str| {
        let mut text = String::from("kernel E\n0 define_global f32 [] data0 1\n1 const f32 [] 1\n");
        for (number, size) in sizes.iter().enumerate() {
            text += &format!("{} const i32 [] {size}\n", number + 2);
        }
        for number in 0..3 {
            text += &format!("{} range i32 [{}] {number}{kind}\n", number + 5, number + 2);
        }
        text + "8 endrange void [7]\n9 endrange void [6]\n10 endrange void [5]\n"
    };
    let problem_of = |target: &str, sizes, kind: &str| {
        limits::check(&parsed(&group(sizes, kind)), rules(target)).err()
    };
    // Sizes are outermost first.
    for (target, kind, right, wrong) in [
        ("cuda", "l", [1, 1, 1024], [1, 1, 2048]),
        ("cuda", "l", [64, 4, 4], [65, 1, 1]),
        ("cuda", "l", [1, 32, 32], [2, 32, 32]),
        ("cuda", "g", [65_535, 65_535, 0x7fff_ffff], [65_536, 1, 1]),
        ("opencl", "l", [1, 1, 256], [1, 1, 512]),
        ("metal", "l", [1, 1, 1024], [1, 2, 1024]),
        ("wgsl", "l", [64, 2, 2], [65, 1, 1]),
        ("wgsl", "l", [1, 1, 256], [1, 1, 257]),
        ("wgsl", "g", [1, 1, 65_535], [1, 1, 65_536]),
        ("small", "l", [2, 4, 4], [1, 5, 2]),
        ("small", "g", [3, 6, 40], [1, 7, 1]),
    ] {
        assert_eq!(problem_of(target, right, kind), None, "{target} {right:?}");
        let found = problem_of(target, wrong, kind).unwrap_or_else(|| panic!("{target} {wrong:?}"));
        let unit = if kind == "g" { "groups" } else { "threads" };
        assert!(found.contains(unit) && found.contains("has"), "{found}");
    }
    let found = problem_of("cpu", [1, 1, 2], "l");
    assert_eq!(found, Some("groups of threads, which C does not have".to_owned()));
    assert_eq!(problem_of("cpu", [1, 1, 2], "t"), None);
    let found = problem_of("cuda", [1, 1, 2], "t");
    assert_eq!(found, Some("threads without groups, on CUDA".to_owned()));
}

#[test]
fn local_memory_keeps_within_the_limits() {
    let problem_of = |target: &str, dtype: &str, size: i64| {
        let text =
            format!("kernel E\n0 define_local {dtype} [] local0 {size}\n1 const {dtype} [] 1\n");
        limits::check(&parsed(&text), rules(target)).err()
    };
    for (target, dtype, limit) in [
        ("cuda", "f32", 25_344),
        ("cuda", "i8", 101_376),
        ("ptx", "f32", 12_288),
        ("opencl", "f64", 4096),
        ("metal", "f32", 8192),
        ("wgsl", "f32", 4096),
        // Elements of less than a word take one.
        ("wgsl", "i8", 4096),
        ("cpu", "f32", 1 << 18),
        ("small", "i8", 64),
    ] {
        assert_eq!(problem_of(target, dtype, limit), None, "{target} {dtype} {limit}");
        let found =
            problem_of(target, dtype, limit + 1).unwrap_or_else(|| panic!("{target} {dtype}"));
        assert!(found.contains("bytes of local memory"), "{found}");
    }
    let found = problem_of("cuda", "f32", 1 << 15).unwrap_or_default();
    assert_eq!(found, "131072 bytes of local memory, but CUDA has 101376");
}

#[test]
fn masked_lanes_are_within_bounds_or_not_touched() {
    let gated = |gate: &str| {
        let text = QUADS.replacen(
            "7 index f32 [1, 6]\n8 load f32x4 [7]",
            &format!(
                "7 const i32 [] {gate}\n8 cmplt bool [4, 7]\n9 index f32 [1, 6, 8]\n\
                      10 load f32x4 [9]"
            ),
            1,
        );
        text.replacen(
            "9 index f32 [0, 5]\n10 store void [9, 8]\n11 endrange",
            "11 index f32 [0, 5]\n12 store void [11, 10]\n13 endrange",
            1,
        )
    };
    let short = ("data1 20", "data1 15");
    check("cuda", &gated("3"), &[WHOLE, short], None);
    let problem = "uop 10 (load): element 15 of data1, which has 15 elements";
    check("cuda", &gated("4"), &[WHOLE, short], Some(problem));
    let before = ("3 const i32 [] 0", "3 const i32 [] -4");
    check("cuda", &gated("3"), &[WHOLE, before], Some("uop 9 (index): element -4 of data1"));
}

#[test]
fn threads_of_a_group_do_not_race() {
    for target in ["cuda", "opencl", "metal", "wgsl", "ptx"] {
        check(target, SHARED, &[], None);
        let at_once = [("10 barrier void [9]", "10 const f32 [] 1"), ("[12, 10]", "[12, 9]")];
        check(
            target,
            SHARED,
            &at_once,
            Some("race: thread 2 of group 0 writes element 2 of local0"),
        );
    }
    let shared = [("8 index f32 [2, 5]", "8 index f32 [2, 4]")];
    check("cuda", SHARED, &shared, Some("race: thread 1 of group 0 writes element 3 of local0"));
    // All threads store the result.
    let result = [("14 index f32 [0, 5]", "14 index f32 [0, 4]")];
    check("cuda", SHARED, &result, Some("race: thread 1 of group 0 writes element 3 of data0"));
}

#[test]
fn accesses_on_both_sides_of_a_barrier_do_not_race() {
    // Each thread reads another thread's element and then writes its own, with no barrier between.
    let text = "kernel E\n0 define_global f32 [] data0 4\n1 define_local f32 [] local0 4\n\
                2 const i32 [] 4\n3 const i32 [] 3\n4 const f32 [] 1\n5 range i32 [2] 0l\n\
                6 index f32 [1, 5]\n7 store void [6, 4]\n8 barrier void [7]\n9 sub i32 [3, 5]\n\
                10 index f32 [1, 9]\n11 load f32 [10, 8]\n12 barrier void []\n\
                13 store void [6, 11]\n14 index f32 [0, 5]\n15 store void [14, 11]\n\
                16 endrange void [5]\n";
    check("cuda", text, &[], None);
    let problem = "race: thread 2 of group 0 reads element 1 of local0, which thread 1 of group 0 \
                   wrote";
    check("cuda", text, &[("12 barrier void []", "12 const f32 [] 2")], Some(problem));
}

#[test]
fn groups_write_addresses_of_their_own() {
    let text = "kernel E\n0 define_global f32 [] data0 4\n1 const i32 [] 4\n2 const f32 [] 1\n\
                3 const i32 [] 0\n4 range i32 [1] 0g\n5 index f32 [0, 4]\n6 store void [5, 2]\n\
                7 endrange void [4]\n";
    check("cuda", text, &[], None);
    let same = [("5 index f32 [0, 4]", "5 index f32 [0, 3]"), ("data0 4", "data0 1")];
    let problem = "race: thread 0 of group 1 writes element 0 of data0, which thread 0 of group 0";
    check("cuda", text, &same, Some(problem));
    // So do the threads of a CPU.
    check("cpu", text, &[("0g", "0t")], None);
    check("cpu", text, &[same[0], same[1], ("0g", "0t")], Some("race: "));
    // One loop writes the same element again and again.
    check("cpu", text, &[same[0], same[1], ("0g", "0")], None);
}

#[test]
fn barrier_is_reached_by_all_threads() {
    let text = "kernel E\n0 define_global f32 [] data0 4\n1 const i32 [] 4\n2 const i32 [] 2\n\
                3 const f32 [] 1\n4 range i32 [1] 0l\n5 range i32 [2] 1\n6 barrier void []\n\
                7 endrange void [5]\n8 index f32 [0, 4]\n9 store void [8, 3]\n\
                10 endrange void [4]\n";
    check("cuda", text, &[], None);
    let divergent = [("5 range i32 [2] 1", "5 range i32 [4] 1")];
    check("cuda", text, &divergent, Some("not all threads wait at the barrier"));
}

#[test]
fn nothing_is_read_before_it_is_written_and_all_is_written() {
    let read = [("7 index f32 [1, 6]", "7 index f32 [0, 6]")];
    let problem = "element 0 of data0 is read before it is written";
    check("cuda", QUADS, &read, Some(problem));
    check("cuda", QUADS, &[], Some("element 16 of data0 is never written"));
}

#[test]
fn products_of_matrices_are_those_of_the_device() {
    let text = "kernel r\n0 define_global f32 [] data0 8\n1 const i32 [] 4\n2 const f32 [] 1\n\
                3 const i32 [] 2\n4 range i32 [1] 0l\n5 vectorize f32x2 [2]\n\
                6 wmma f32x2 [5, 2, 5, 4] m4n2k2_f32\n7 mul i32 [4, 3]\n8 index f32 [0, 7]\n\
                9 store void [8, 6]\n10 endrange void [4]\n";
    let arrays = checked("small", text).expect("the small device has it");
    assert!(
        arrays[0].iter().all(|value| *value == Some(Constant::int(DType::F32, 3))),
        "{arrays:?}"
    );
    check("cuda", text, &[], Some("uop 6 (wmma): m4n2k2_f32, which CUDA does not have"));
}

#[test]
fn integer_that_is_assumed_not_to_overflow_does_not() {
    let text = "kernel E\n0 define_global i32 [] data0 1\n1 define_global i32 [] data1 1\n\
                2 const i32 [] 0\n3 const i32 [] 2147483647\n4 index i32 [1, 2]\n5 load i32 [4]\n\
                6 add i32 [5, 3]\n7 index i32 [0, 2]\n8 store void [7, 6]\n";
    let kernel = parsed(text);
    let found = |value: i128, must_not_overflow: bool| {
        let mut requirements = rules("cuda").requirements(&kernel);
        requirements.must_not_overflow[6] |= must_not_overflow;
        let mut memories = vec![vec![None], vec![Some(Constant::int(DType::I32, value))]];
        run_checked(&kernel, &mut memories, &requirements)
    };
    assert_eq!(found(1, false), Ok(()), "the text wraps it");
    assert_eq!(found(0, true), Ok(()));
    let problem = found(1, true).expect_err("it overflows");
    assert!(problem.contains("is 2147483648, which does not fit in i32"), "{problem}");
}

#[test]
fn kernel_that_its_language_cannot_write_is_refused() {
    let name = ("kernel E_4_4", "kernel 4_4");
    check("cuda", QUADS, &[WHOLE, name], Some("4_4"));
    check("small", QUADS, &[WHOLE, name], None);
}

#[test]
fn unwritten_elements_show_and_freed_memory_is_watched() {
    // Element 1 is never written, which machine code does not notice.
    let text = "kernel E\n0 define_global i32 [] data0 2\n1 const i32 [] 0\n2 const i32 [] 7\n\
                3 index i32 [0, 1]\n4 store void [3, 2]\n";
    gradiff::runtime::set_poison(true);
    let mut arrays = vec![vec![None; 2]];
    crate::backends::engine::run_alone("jit", &parsed(text), &mut arrays).expect("it runs");
    let word = 0xa5a5_a5a5u32 as i32;
    let expected = [7, word.into()].map(|value| Some(Constant::int(DType::I32, value)));
    assert_eq!(arrays[0], expected);
    assert_eq!(gradiff::runtime::check_freed(), Ok(()));
}
