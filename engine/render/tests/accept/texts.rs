//! Reviewed snapshots of a few kernels in every language. `INSTA_UPDATE=always cargo test -p
//! gradiff-render` updates them; read the difference before you commit it.

use std::collections::{BTreeMap, BTreeSet};

use gradiff_graph::tensor_core::TensorCore;
use gradiff_graph::{Arg, AxisKind, Constant, DType, Linear, Op, Target};
use gradiff_render::{Error, LANGUAGES, Language};

use crate::compilers::COMPILERS;
use crate::kernels::{
    Builder, choice, constants, copy, elementwise, group, lanes, product, reduction,
};

/// The prelude and the text of a kernel, or the error.
fn text(language: &Language, kernel: &Linear) -> String {
    match (language.render)(kernel) {
        Ok(code) => (language.prelude)(&code.helpers) + &code.text,
        Err(error) => format!("{error}\n"),
    }
}

fn extended_wgsl(kernel: &Linear) -> String {
    let language = LANGUAGES.iter().find(|language| language.name == "wgsl");
    text(language.expect("it is in the table"), kernel)
}

fn kernels() -> Vec<Linear> {
    vec![
        lanes(DType::F32, 4),
        choice(DType::F32, DType::I32, DType::F32, 4),
        constants(DType::F32),
        copy(DType::F32, 4),
        elementwise(Op::Cast, &[DType::F32], DType::F16, 1),
        elementwise(Op::FloorDiv, &[DType::I32; 2], DType::I32, 1),
        elementwise(Op::Mul, &[DType::I8; 2], DType::I8, 1),
        reduction(DType::F32, 1),
        group(),
        product(TensorCore::named("m16n8k16_f16").expect("it is in the table")),
    ]
}

#[test]
fn texts_are_as_reviewed() {
    let mut names = BTreeSet::new();
    for language in LANGUAGES {
        for kernel in kernels() {
            let name = format!("{}-{}", kernel.name, language.name);
            let mut settings = insta::Settings::clone_current();
            settings.set_prepend_module_to_snapshot(false);
            settings.set_omit_expression(true);
            let text = text(language, &kernel);
            // The dialects differ only in f16 and types of 64 bits.
            if language.name == "wgsl-core" && text == extended_wgsl(&kernel) {
                continue;
            }
            settings.bind(|| insta::assert_snapshot!(name.clone(), text));
            names.insert(format!("{name}.snap"));
        }
    }
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/accept/snapshots");
    let entries = std::fs::read_dir(folder).expect("the folder of snapshots");
    let found = entries.map(|entry| entry.expect("an entry").file_name());
    let found: BTreeSet<String> = found.map(|name| name.to_string_lossy().into_owned()).collect();
    assert_eq!(found, names, "snapshots without a kernel, or not reviewed");
}

#[test]
fn error_names_the_unsupported_type() {
    let kernel = elementwise(Op::Add, &[DType::I64; 2], DType::I64, 1);
    let core = LANGUAGES.iter().find(|language| language.name == "wgsl-core").unwrap();
    let error = (core.render)(&kernel).unwrap_err();
    assert!(matches!(error, Error::Type { dtype: DType::I64, .. }));
    let expected = "kernel E_add_i64_i64_i64_1: WGSL has no arrays or values of i64; cast to a \
                    type that it has, or choose another device";
    assert_eq!(error.to_string(), expected);
}

/// Bits are taken for a value of the same number of bits, and never for a bool or from one.
#[test]
fn bitcasts_to_other_widths_are_refused() {
    let dtypes = || DType::ALL.into_iter().filter(|dtype| *dtype != DType::Void);
    for (from, to) in dtypes().flat_map(|from| dtypes().map(move |to| (from, to))) {
        let mut kernel = elementwise(Op::Cast, &[from], to, 1);
        let cast = kernel.uops.iter_mut().find(|uop| uop.op == Op::Cast).expect("a cast");
        cast.op = Op::Bitcast;
        let is_legal = from.bits() == to.bits() && ![from, to].contains(&DType::Bool);
        for language in LANGUAGES.iter().filter(|_| from != to && !is_legal) {
            let text = (language.render)(&kernel);
            assert!(text.is_err(), "{}, {from} to {to}: {text:?}", language.name);
        }
    }
}

/// The kernels that a target promises have a text: in its types, in its longest vectors. C has no
/// fixed target.
#[test]
fn targets_are_within_their_languages() {
    for language in LANGUAGES.iter().filter(|language| language.name != "c") {
        let target = Target::of(language.name);
        for dtype in DType::ALL {
            let is_refused = target.unsupported_types.contains(&dtype);
            let lanes = target.vectors.lanes_of(dtype).max(1) as u8;
            match (language.render)(&copy(dtype, if is_refused { 1 } else { lanes })) {
                Err(Error::Type { .. }) => assert!(is_refused, "{} {dtype}", language.name),
                Err(error) => panic!("{} {dtype}x{lanes}: {error}", language.name),
                Ok(_) => assert!(!is_refused, "{} {dtype}", language.name),
            }
        }
    }
}

#[test]
fn grids_of_four_dimensions_are_refused() {
    for kind in [AxisKind::Global, AxisKind::Local] {
        let mut b = Builder::new(1);
        let out = b.global(0, DType::I32, 16);
        let ranges: Vec<u32> = (0..4).map(|_| b.range(kind, 2)).collect();
        b.store(out, ranges[3], ranges[0], None);
        for range in ranges.into_iter().rev() {
            b.end(range);
        }
        let kernel = b.finish("E_2_2_2_2");
        for language in LANGUAGES {
            let is_refused = (language.render)(&kernel).is_err();
            let target = Target::named(language.name);
            let has_groups = target.is_some_and(|target| target.groups.is_some());
            assert_eq!(is_refused, has_groups, "{}", language.name);
        }
    }
}

/// Compilers refuse groups without threads, which are never launched.
#[test]
fn groups_have_at_least_one_thread() {
    let kernel = |threads| {
        let mut b = Builder::new(1);
        let out = b.global(0, DType::I32, 1);
        let range = b.range(AxisKind::Local, threads);
        b.store(out, range, range, None);
        b.end(range);
        b.finish("E")
    };
    for (name, head) in [
        ("cuda", "__launch_bounds__(1)"),
        ("opencl", "reqd_work_group_size(1, 1, 1)"),
        ("wgsl", "@workgroup_size(1, 1, 1)"),
        ("ptx", ".maxntid 1, 1, 1"),
    ] {
        let language = LANGUAGES.iter().find(|language| language.name == name).unwrap();
        for threads in [0, 1] {
            let text = text(language, &kernel(threads));
            assert!(text.contains(head), "{name}, {threads} threads:\n{text}");
        }
    }
}

/// A cast that changes no bits gave the register of the variable, and so its later values.
#[test]
fn cast_has_the_value_of_its_time_in_ptx() {
    let ptx = LANGUAGES.iter().find(|language| language.name == "ptx").unwrap();
    for (op, from, to) in [
        (Op::Cast, DType::I32, DType::I32),
        (Op::Cast, DType::I32, DType::U32),
        (Op::Cast, DType::U8, DType::I32),
        (Op::Cast, DType::I64, DType::U64),
        (Op::Cast, DType::F64, DType::F64),
        (Op::Bitcast, DType::F32, DType::F32),
        (Op::Bitcast, DType::F16, DType::BF16),
    ] {
        // `acc = 0; value = cast(acc); acc = 1; data0[0] = value`.
        let mut b = Builder::new(1);
        let (out, index) = (b.global(0, to, 1), b.int(0));
        let [first, second] = [Constant::zero(from), Constant::one(from)].map(|c| b.constant(c));
        let acc = b.acc(first);
        let value = b.alu(op, to, &[acc]);
        b.push(Op::Assign, from, &[acc, second], Arg::None);
        b.store(out, index, value, None);
        let text = (ptx.render)(&b.finish("E_cast")).unwrap().text;
        // A zero, such as `0x0000`.
        let is_zero = stored_literal(&text).trim_start_matches(['0', 'd', 'f', 'x']).is_empty();
        assert!(is_zero, "{op} of {from} to {to}:\n{text}");
    }
}

/// The literal that a text in PTX stores if it only moves values.
fn stored_literal(text: &str) -> &str {
    let mut values: BTreeMap<&str, &str> = BTreeMap::new();
    for line in text.lines().map(|line| line.trim().trim_end_matches(';')) {
        let Some((op, operands)) = line.split_once(' ') else { continue };
        let Some((to, from)) = operands.split_once(", ") else { continue };
        let value = values.get(from).copied().unwrap_or(from);
        match op.split('.').next() {
            Some("mov") => {
                values.insert(to, value);
            }
            Some("st") => return value,
            _ => {}
        }
    }
    panic!("nothing is stored:\n{text}");
}

/// A constant index outside of its array is an error in WGSL, even behind a gate that is never
/// true.
#[test]
fn constant_indices_are_inside_of_their_arrays_in_wgsl() {
    let mut b = Builder::new(4);
    let [out, input] = [0, 1].map(|slot| b.global(slot, DType::F32, 64));
    let local = b.local(DType::F32, 4);
    let range = b.range(AxisKind::Loop, 16);
    let [zero, two, four, five, below] = [0, 2, 4, 5, -5].map(|value| b.int(value));
    let index = b.push(Op::Mul, DType::I32, &[range, four], Arg::None);
    // Used twice, so that it has a name.
    let computed = b.push(Op::Sub, DType::I32, &[zero, five], Arg::None);
    let never = b.push(Op::CmpLt, DType::Bool, &[range, zero], Arg::None);
    let mut sum = b.load(input, index, None);
    for (array, index) in [(input, below), (input, computed), (local, two)] {
        let value = b.load(array, index, Some(never));
        sum = b.alu(Op::Add, DType::F32, &[sum, value]);
    }
    b.store(out, index, sum, None);
    b.store(out, computed, sum, Some(never));
    b.store(local, two, sum, Some(never));
    b.end(range);
    let kernel = b.finish("E_never");
    for compiler in COMPILERS.iter().filter(|compiler| compiler.language.starts_with("wgsl")) {
        let language = crate::language_of(compiler);
        let text = text(language, &kernel);
        assert!(text.contains("local0[2], local0[2+1], local0[0], local0[0]"), "{text}");
        assert_eq!(text.matches("data1[0], data1[0], data1[0], data1[0]").count(), 2, "{text}");
        assert_eq!(compiler.check("naga", &text, language.extension), Ok(()));
    }
}
