//! Products of matrices by the threads of a warp: PTX, whose threads are run side by side up to
//! each `mma.sync`, and then multiply what their registers hold, as the manual lays it out.
//!
//! CUDA says the same instruction with the same operands; the compiler of NVIDIA reads it, but it
//! is no C++, so that it is not run here.

use std::collections::HashMap;

use gradiff_graph::{Constant, DType, TENSOR_CORES, TensorCore};

use crate::kernels::product;
use crate::ptx_run::Machine;

/// Those that cards have.
pub(crate) fn cores() -> impl Iterator<Item = &'static TensorCore> {
    TENSOR_CORES.iter().filter(|core| core.threads == 32)
}

/// What the threads hold of A, B and C, one fragment after the other: telling floats and dice.
fn fragments(core: &TensorCore) -> [Vec<Constant>; 3] {
    let mut state = 7u64;
    let mut value = |dtype: DType| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let bits = state >> 33;
        let value = match bits % 97 {
            0 => 6e-8,
            1 => -0.0,
            2 => 1.0 + 2f64.powi(-10),
            _ => (bits >> 8 & 63) as f64 / 8.0 - 4.0,
        };
        Constant::float(dtype, value)
    };
    [0, 1, 2].map(|matrix| {
        let dtype = if matrix == 2 { DType::F32 } else { core.from };
        (0..32 * core.elements(matrix)).map(|_| value(dtype)).collect()
    })
}

fn bytes(values: &[Constant]) -> Vec<u8> {
    let of = |value: &Constant| value.bits().to_le_bytes()[..value.dtype().size_bytes()].to_vec();
    values.iter().flat_map(of).collect()
}

/// The elements of the result, thread after thread, and how far each may be off.
fn expected(core: &TensorCore, fragments: &[Vec<Constant>; 3]) -> Vec<(f64, f64)> {
    let float = |value: Constant| value.to_float().expect("a float");
    let cut = |value: f64| match core.is_tf32 {
        true => f64::from(f32::from_bits(((value as f32).to_bits() + 0x1000) & !0x1fff)),
        false => value,
    };
    // Of the manual's tables, by search: which thread has the element at a place.
    let held = |matrix: usize, place: [i64; 3]| {
        let count = core.elements(matrix);
        let at = (0..32 * count).find(|at| core.place(matrix, at / count, at % count) == place);
        float(fragments[matrix][at.expect("a holder")])
    };
    let count = core.elements(2);
    let element = |at: usize| {
        let [row, column, _] = core.place(2, at / count, at % count);
        let products = (0..core.sizes[2])
            .map(|step| cut(held(0, [row, 0, step])) * cut(held(1, [0, column, step])));
        let start = float(fragments[2][at]);
        let (sum, size) =
            products.fold((start, start.abs()), |(sum, size), x| (sum + x, size + x.abs()));
        (sum, size * 17.0 * 2f64.powi(-23))
    };
    (0..32 * count).map(element).collect()
}

/// Runs the text of a kernel of one warp.
fn run(text: &str, core: &TensorCore, fragments: &[Vec<Constant>; 3]) -> Vec<f64> {
    let count = core.elements(2);
    let mut arrays = vec![vec![255; 32 * count * 4]];
    arrays.extend(fragments.iter().map(|fragment| bytes(fragment)));
    let mut machine = Machine::new(text, arrays);
    let mut threads: Vec<HashMap<String, u64>> = vec![HashMap::new(); 32];
    let mut from = 0;
    loop {
        let mut stops = Vec::new();
        for (number, registers) in threads.iter_mut().enumerate() {
            std::mem::swap(registers, &mut machine.registers);
            machine.place = (0, number as u64);
            stops.push(machine.go(from));
            std::mem::swap(registers, &mut machine.registers);
        }
        assert!(stops.iter().all(|stop| *stop == stops[0]), "threads that are apart");
        let Some(at) = stops[0] else { break };
        multiply(machine.line(at), core, &mut threads);
        from = at + 1;
    }
    let words = machine.arrays[0].chunks(4);
    let float = |word: &[u8]| f32::from_le_bytes(word.try_into().expect("four bytes"));
    words.map(|word| f64::from(float(word))).collect()
}

/// `mma.sync.... {to}, {a}, {b}, {c};` by all threads.
fn multiply(line: &str, core: &TensorCore, threads: &mut [HashMap<String, u64>]) {
    let (word, rest) = line.split_once(' ').expect("operands");
    let [m, n, k] = core.sizes;
    assert!(word.contains(&format!(".m{m}n{n}k{k}.row.col.f32.")), "{word}");
    let lists: Vec<Vec<&str>> = rest
        .split('}')
        .filter_map(|list| list.split_once('{'))
        .map(|(_, names)| names.split(", ").collect())
        .collect();
    let of = |registers: &HashMap<String, u64>, matrix: usize, element: usize| {
        let halves = if matrix < 2 { 4 / core.from.size_bytes() } else { 1 };
        let bits = registers[lists[matrix + 1][element / halves]] >> (16 * (element % halves));
        let dtype = if matrix < 2 { core.from } else { DType::F32 };
        let mask = (1u64 << dtype.bits()) - 1;
        Constant::from_bits(dtype, bits & mask).to_float().map(|value| value as f32)
    };
    let held = |matrix: usize, (thread, element)| of(&threads[thread], matrix, element);
    let count = core.elements(2);
    let sum = |at: usize| {
        let own = (at / count, at % count);
        core.add(own, held(2, own)?, &held)
    };
    let sums: Vec<Option<f32>> = (0..32 * count).map(sum).collect();
    for (at, sum) in sums.into_iter().enumerate() {
        let bits = u64::from(sum.expect("floats").to_bits());
        threads[at / count].insert(lists[0][at % count].to_string(), bits);
    }
}

#[test]
fn ptx_multiplies_as_its_manual_says() {
    for core in cores() {
        let text = gradiff_render::ptx(&product(core)).expect("PTX has it");
        let fragments = fragments(core);
        let wrong = |text: &str| {
            let found = run(text, core, &fragments);
            let pairs = found.iter().zip(expected(core, &fragments));
            pairs.filter(|(found, (sum, bound))| (*found - sum).abs() > *bound).count()
        };
        assert_eq!(wrong(&text), 0, "{}\n{text}", core.name);
        // The registers of A in another order compute something else.
        let mma = text.lines().find(|line| line.contains("mma.sync")).expect("the instruction");
        let a = mma.split('{').nth(2).and_then(|rest| rest.split_once('}')).expect("A").0;
        let turned: Vec<&str> = a.split(", ").collect::<Vec<_>>().into_iter().rev().collect();
        assert!(
            wrong(&text.replace(&format!("{{{a}}}"), &format!("{{{}}}", turned.join(", ")))) > 0
        );
    }
    println!("CUDA as C++: {} products skipped, mma.sync is no C++", cores().count());
}

#[test]
fn what_only_the_interpreter_has_is_refused() {
    for core in TENSOR_CORES.iter().filter(|core| core.threads != 32) {
        for language in gradiff_render::LANGUAGES {
            let error = (language.render)(&product(core)).expect_err(language.name).to_string();
            assert!(error.contains("wmma"), "{error}");
        }
    }
}
