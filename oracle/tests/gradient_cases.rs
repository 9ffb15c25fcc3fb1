//! The corpus' gradients have the values that their files expect.

use gradiff_corpus::{Array, Case, DType, Expect, Program, Statement, ValueId, embedded, parse};
use gradiff_oracle::evaluate;

#[test]
fn gradients_of_the_corpus_are_as_expected() {
    let mut count = 0;
    for (stem, text) in embedded().iter().filter(|(stem, _)| stem.starts_with("gradient-")) {
        let file = parse(text).unwrap_or_else(|error| panic!("{stem}: {error}"));
        let Case::Program(program) = &file.case else { panic!("{stem} is no program") };
        let outputs = evaluate(program).unwrap_or_else(|error| panic!("{stem}: {error}"));
        for expect in &file.expects {
            let Expect::Values { output, array } = expect else { continue };
            let verdict = outputs[*output].judge(array);
            assert!(verdict.is_ok(), "{stem}, output {output}: {:?}", verdict.mismatch);
            assert_eq!(verdict.unspecified, 0, "{stem}, output {output}");
            // A value that is off by 1/64 is wrong; of f16, by 1/8.
            for index in 0..array.len() {
                let mut bits = array.bits.clone();
                bits[index] = moved(array.dtype, bits[index]);
                let verdict = outputs[*output].judge(&Array { bits, ..array.clone() });
                assert_eq!(verdict.mismatch_count, 1, "{stem}, output {output}, {index}");
                count += 1;
            }
        }
        assert!(!file.expects.is_empty(), "{stem} expects nothing");
    }
    assert!(count >= 100, "{count} elements");
}

/// Returns the bits of a number that is off.
fn moved(dtype: DType, bits: u64) -> u64 {
    match dtype {
        DType::F64 => (f64::from_bits(bits) + 0.015625).to_bits(),
        DType::F32 => (f32::from_bits(bits as u32) + 0.015625).to_bits().into(),
        DType::F16 => {
            half::f16::from_f32(half::f16::from_bits(bits as u16).to_f32() + 0.125).to_bits().into()
        }
        _ => panic!("{} is not in these cases", dtype.name()),
    }
}

/// Returns the numbers of the inputs of floats.
fn float_inputs(program: &Program) -> Vec<ValueId> {
    let is_float = |statement: &Statement| match statement {
        Statement::Input { dtype, .. } => dtype.is_float(),
        _ => false,
    };
    let numbers = (0..program.statements.len() as u32).map(ValueId);
    numbers.filter(|id| is_float(&program.statements[id.0 as usize])).collect()
}

/// Every program of the corpus has gradients: of each output by each input, and of those again.
#[test]
fn every_case_has_gradients() {
    let mut count = 0;
    for (stem, text) in embedded() {
        let Ok(file) = parse(text) else { panic!("{stem} is ill-formed") };
        let Case::Program(program) = &file.case else { continue };
        let outputs = evaluate(program).unwrap_or_else(|error| panic!("{stem}: {error}"));
        // Of a step of a model the loss: the other outputs are derivatives, and take minutes.
        let differentiated = if stem.starts_with("model-") { 1 } else { outputs.len() };
        for (of, expected) in program.outputs.iter().zip(&outputs).take(differentiated) {
            for wrt in float_inputs(program) {
                if !expected.dtype.is_float() || 4096 < expected.len() {
                    continue;
                }
                let mut program = program.clone();
                let first = ValueId(program.statements.len() as u32);
                program.statements.push(Statement::Gradient { of: *of, wrt });
                program.statements.push(Statement::Gradient { of: first, wrt });
                program.outputs = vec![first, ValueId(first.0 + 1)];
                let start = std::time::Instant::now();
                let found = evaluate(&program).unwrap_or_else(|error| panic!("{stem}: {error}"));
                assert_eq!(found[0].shape, found[1].shape, "{stem}");
                let time = start.elapsed();
                if time.as_millis() > 100 {
                    println!("{stem}: {time:?}, {} elements", found[0].len());
                }
                count += 1;
            }
        }
    }
    assert!(count > 300, "{count} gradients");
}
