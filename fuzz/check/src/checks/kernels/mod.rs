//! Drawn kernels on devices: each device must give the results of the evaluator.
//!
//! In: a seed, and a device or a language whose texts run here. Out: the first kernel that is
//! refused though it is well formed, or gives other bits; all NaN are equal. Lowering is not used,
//! so that lists of uops that it makes seldom, or for devices that are not here, are as frequent as
//! others.

mod compiled;
mod constants;
mod damage;
mod draw;
mod form;
mod indices;
mod locals;
mod passes;
pub(crate) mod products;
mod races;
mod table;
mod unsupported;
mod walk;
mod wrapping;

use std::sync::Arc;
use std::time::Duration;

use gradiff::graph::tensor_core::{TENSOR_CORES, TensorCore};
use gradiff::graph::{AxisKind, BoundedLinear, Constant, DType, Linear};
use gradiff::render::LANGUAGES;
use gradiff::runtime::{Device, Error, Executable};
use gradiff_eval::Elements;

use crate::backends::texts;
use crate::blame::Crate;
use crate::checks::calls::Draw;
pub(crate) use draw::Style;
use draw::{DIMENSIONS, draw_kernel, element};
pub(crate) use form::{Typing, elementwise};
pub use table::{check_cases, check_texts, count_of_cases};

/// The words that reports of this check begin with.
pub(crate) const SAID: &str = "drawn kernel";

/// Devices in process that run drawn kernels.
pub const DIRECT: [&str; 5] = ["interp", "jit", "ptx", "wgsl", "wgsl-core"];
/// Devices and languages that need a compiler.
pub const COMPILED: [&str; texts::COMPILED.len()] = texts::COMPILED;

/// Limit of the time that a compiler may take for the kernels of a call, and for each alone.
const COMPILER_SECONDS: u64 = 15;

/// Limit of the kernels of indices in a call of [`check_kernels`].
const INDEX_KERNEL_LIMIT: u64 = 6;

/// Number of kernels of local arrays in a call of [`check_kernels`].
const WRITTEN_KERNELS: u64 = 1;

/// A kernel with its arrays before and after it.
pub(crate) struct Drawn {
    pub(crate) kernel: BoundedLinear,
    pub(crate) memories: Vec<Elements>,
    /// The first array after it, by the evaluator.
    expected: Elements,
    /// True if a NaN must keep its payload.
    has_bits: bool,
}

/// Draws `count` kernels that follow from the seed, runs them on a device of the runtime or as the
/// texts of a language, and compares each with the evaluator. A kernel that is launched in more
/// dimensions than the device has must be refused. Returns the number of kernels that did not run
/// since the compiler takes more than 15 seconds: GCC 12 does not end for some of them.
///
/// # Errors
/// The first kernel whose result is wrong, as text; a device that is not available.
pub fn check_kernels(device: &str, seed: u64, count: u64) -> Result<u64, String> {
    let target = open(device)?;
    for number in 0..count.min(INDEX_KERNEL_LIMIT) {
        check_bounds(seed.wrapping_add(number))?;
    }
    for number in 0..count {
        crate::checks::points::check(seed.wrapping_add(number))?;
    }
    if matches!(device, "jit" | "c") {
        locals::check_unwritten(&*target)
            .map_err(|problem| format!("{SAID} on {device}: {problem}"))?;
    }
    let style = Style::of(device);
    let drawn = |number| drawn(seed.wrapping_add(number), &style);
    let constants = style.dtypes.iter().map(|dtype| constants::constants(seed, &style, *dtype));
    let compiled = compiled::compiled(seed, &style);
    let written = (0..WRITTEN_KERNELS).map(|number| locals::written(seed ^ number, &style));
    let drawn = (0..count).map(drawn).chain(constants).chain(compiled).chain(written);
    let drawn = drawn.collect::<Result<Vec<Drawn>, String>>()?;
    let report =
        |kernel: &Linear, problem: &str| format!("{SAID} on {device}: {problem}\n{kernel}");
    let is_refused = |drawn: &&Drawn| device != "interp" && is_too_deep(&drawn.kernel);
    let (refused, run): (Vec<&Drawn>, Vec<&Drawn>) = drawn.iter().partition(is_refused);
    // The device itself would refuse it as well, whatever the text is.
    let language = LANGUAGES.iter().find(|language| language.name == device);
    for (drawn, language) in refused.into_iter().zip(language.iter().cycle()) {
        if (language.render)(&drawn.kernel).is_ok() {
            return Err(report(&drawn.kernel, "a launch in more than three dimensions has a text"));
        }
    }
    let kernels: Vec<&BoundedLinear> = run.iter().map(|drawn| &drawn.kernel).collect();
    let limit = Duration::from_secs(COMPILER_SECONDS);
    let compiled = target.compile_within(&kernels, limit).ok();
    let mut skipped = 0;
    for (number, drawn) in run.into_iter().enumerate() {
        let executable = match &compiled {
            Some(compiled) => Ok(compiled[number].clone()),
            // One of the kernels cannot be compiled.
            None => {
                let alone = target.compile_within(&[&drawn.kernel], limit);
                alone.map(|mut list| list.remove(0))
            }
        };
        if matches!(executable, Err(Error::CompilerTooSlow { .. })) {
            skipped += 1;
            continue;
        }
        let executable = executable.map_err(|error| report(&drawn.kernel, &error.to_string()))?;
        compare(&*executable, drawn).map_err(|problem| {
            let crate_name = if device == "c" { crate_of_text(drawn) } else { "" };
            report(&drawn.kernel, &format!("{problem}{crate_name}"))
        })?;
    }
    Ok(skipped)
}

/// The words that a report ends with if the text of a kernel in C is right where it is compiled
/// without optimisations: then the device compiles it in another way than the text relies on.
const RIGHT_AS_TEXT: &str = ", but not by the unoptimised text";

fn crate_of_text(drawn: &Drawn) -> &'static str {
    let compared = || {
        let compiled = texts::open("c").ok()?.compile(&[&drawn.kernel]).ok()?;
        compare(&*compiled[0], drawn).ok()
    };
    crate::catch(compared).ok().flatten().map_or("", |()| RIGHT_AS_TEXT)
}

/// Draws a kernel of indices that follows from the seed, and kernels with a change, and checks how
/// the engine judges them before anything is compiled.
fn check_bounds(seed: u64) -> Result<(), String> {
    indices::check(&mut Draw::new(seed))
        .map_err(|problem| format!("{SAID}, of indices, of seed {seed}: {problem}"))?;
    races::check(&mut Draw::new(seed))
        .map_err(|problem| format!("{SAID} on interp: of seed {seed}, a race: {problem}"))?;
    locals::check(&mut Draw::new(seed))
        .map_err(|problem| format!("{SAID}, of seed {seed}: {problem}"))?;
    wrapping::check(&mut Draw::new(seed))
        .map_err(|problem| format!("{SAID}, of seed {seed}, {problem}"))?;
    passes::check(&mut Draw::new(seed))
        .map_err(|problem| format!("{SAID}, of seed {seed}, {problem}"))?;
    let mut draw = Draw::new(seed);
    let kernel = if draw.one_in(4) {
        let kernel = products::kernel(&TENSOR_CORES[draw.below(TENSOR_CORES.len())]);
        if draw.one_in(3) { products::with_inner_threads(&kernel) } else { kernel }
    } else {
        let style = Style::of(draw.pick(&DIRECT));
        draw_kernel(&mut draw, &style)
    };
    crate::models::linear::check_estimates(&kernel)
        .and_then(|()| damage::check(&kernel, &mut draw))
        .and_then(|()| unsupported::check(&kernel, &mut draw))
        .map_err(|problem| format!("{SAID}, of seed {seed}: {problem}"))
}

/// The crate to blame for a report of [`check_kernels`]: that of the checker if it refuses a kernel
/// for any device, that of the device if it runs uops, or else that of the texts.
pub fn crate_of_kernels(problem: &str) -> Crate {
    let is_on = |device: &&str| problem.contains(&format!("{SAID} on {device}:"));
    match DIRECT.iter().chain(&COMPILED).find(|device| is_on(device)) {
        None if problem.contains(passes::PREFIX) => Crate::Kernel,
        None if problem.contains(wrapping::PREFIX) => Crate::Render,
        None if problem.contains(crate::models::linear::WRONG) => Crate::Graph,
        None if problem.contains(damage::HAS_TEXT) => Crate::Render,
        None if problem.contains(crate::checks::points::SAID) => Crate::Rewrite,
        None => Crate::Graph,
        Some(_) if problem.contains(RIGHT_AS_TEXT) => Crate::Runtime,
        Some(device) => crate::blame::last_stage(device).1,
    }
}

/// The first of many kernels that is refused though it is right, whatever the device.
pub(crate) fn refused() -> Option<String> {
    const KERNELS: u64 = 400;
    let style = Style::of("interp");
    let product = |core: &TensorCore| BoundedLinear::check(products::kernel(core)).err();
    if let Some(error) = TENSOR_CORES.iter().find_map(product) {
        return Some(format!("a product of a tensor core is refused: {error}"));
    }
    (0..KERNELS).find_map(|seed| match crate::catch(|| drawn(seed, &style)) {
        Ok(drawn) => drawn.err(),
        Err(panic) => Some(panic),
    })
}

/// Returns whether a kernel is launched in more dimensions than devices with groups have.
fn is_too_deep(kernel: &Linear) -> bool {
    let count = |kind| kernel.launched(kind).len();
    [AxisKind::Global, AxisKind::Local].into_iter().any(|kind| DIMENSIONS < count(kind))
}

pub(crate) fn open(device: &str) -> Result<Arc<dyn Device>, String> {
    match device {
        "interp" | "jit" | "c" => {
            gradiff::runtime::device(device).map_err(|error| error.to_string())
        }
        language => crate::backends::texts::open(language),
    }
}

/// The kernel of a seed, which [`BoundedLinear::check`] must accept, with its arrays.
///
/// # Errors
/// It is refused, by the check or by the evaluator.
pub(crate) fn drawn(seed: u64, style: &Style) -> Result<Drawn, String> {
    let mut draw = Draw::new(seed);
    let kernel = draw_kernel(&mut draw, style);
    let memories: Vec<Elements> = kernel
        .globals()
        .iter()
        .map(|(global, dtype)| match global.slot {
            0 => vec![None; global.size_elements as usize],
            _ => (0..global.size_elements).map(|_| Some(element(&mut draw, *dtype))).collect(),
        })
        .collect();
    let mut after = memories.clone();
    let report = |problem: String| format!("{SAID}, of seed {seed}: {problem}\n{kernel}");
    gradiff_eval::linear::run(&kernel, &mut after).map_err(report)?;
    let bounded = BoundedLinear::check(kernel.clone());
    let bounded = bounded.map_err(|error| report(format!("it is refused: {error}")))?;
    Ok(Drawn { kernel: bounded, memories, expected: after.swap_remove(0), has_bits: false })
}

/// Runs the kernel and compares the written array with that of the evaluator.
fn compare(executable: &dyn Executable, drawn: &Drawn) -> Result<(), String> {
    let mut memories = drawn.memories.clone();
    crate::backends::engine::run_compiled(executable, &drawn.kernel, &mut memories)?;
    for (at, (found, expected)) in memories[0].iter().zip(&drawn.expected).enumerate() {
        let (Some(found), Some(expected)) = (found, expected) else { continue };
        let is_wrong = match drawn.has_bits {
            true => found != expected,
            false => !is_same(*found, *expected),
        };
        if is_wrong {
            return Err(format!("element {at} is {found:?}, expected {expected:?}"));
        }
    }
    Ok(())
}

/// Returns whether two values have the same bits, or are both NaN.
fn is_same(x: Constant, y: Constant) -> bool {
    let is_nan = |value: Constant| gradiff_eval::scalar::to_float(value).is_some_and(f64::is_nan);
    let dtypes: [DType; 2] = [x.dtype(), y.dtype()];
    dtypes[0] == dtypes[1] && (x.bits() == y.bits() || is_nan(x) && is_nan(y))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drawn_kernels_run_on_devices_in_process() {
        for device in DIRECT {
            check_kernels(device, 0, 400).unwrap_or_else(|problem| panic!("{problem}"));
        }
    }

    #[test]
    fn drawn_and_changed_kernels_are_judged_as_they_must_be() {
        (0..200).for_each(|seed| check_bounds(seed).unwrap_or_else(|problem| panic!("{problem}")));
    }

    /// Checks the devices and languages whose compiler is installed.
    #[test]
    fn drawn_kernels_run_where_a_compiler_is_needed() {
        for device in COMPILED.into_iter().filter(|device| open(device).is_ok()) {
            check_kernels(device, 0, 48).unwrap_or_else(|problem| panic!("{problem}"));
        }
    }

    #[test]
    fn every_op_means_the_same_on_devices_in_process() {
        for device in DIRECT {
            let numbers: Vec<u64> = (0..count_of_cases(device)).collect();
            check_cases(device, 0, &numbers).unwrap_or_else(|problem| panic!("{problem}"));
        }
    }

    /// Checks the devices and languages whose compiler is installed.
    #[test]
    fn every_op_means_the_same_where_a_compiler_is_needed() {
        for device in COMPILED.into_iter().filter(|device| open(device).is_ok()) {
            let numbers: Vec<u64> = (0..count_of_cases(device)).collect();
            check_cases(device, 0, &numbers).unwrap_or_else(|problem| panic!("{problem}"));
        }
    }

    #[test]
    fn products_of_tensor_cores_are_the_sums() {
        let devices = ["interp", "ptx", "cuda"].into_iter().filter(|device| open(device).is_ok());
        for (device, seed) in devices.flat_map(|device| (0..12).map(move |seed| (device, seed))) {
            check_cases(device, seed, &[]).unwrap_or_else(|problem| panic!("{problem}"));
        }
    }

    #[test]
    fn every_language_has_a_text_or_an_error_for_every_op() {
        for language in LANGUAGES {
            for dtype in DType::ALL {
                check_texts(language.name, dtype).unwrap_or_else(|problem| panic!("{problem}"));
            }
        }
    }

    #[test]
    fn drawn_kernels_are_of_every_kind() {
        use gradiff::graph::Op;
        for device in DIRECT.into_iter().chain(COMPILED) {
            let style = Style::of(device);
            let kernels = (0..600).map(|seed| draw_kernel(&mut Draw::new(seed), &style));
            let kernels: Vec<Linear> = kernels.collect();
            let has = |test: &dyn Fn(&Linear) -> bool| kernels.iter().any(test);
            let uop = |op: Op| has(&|kernel| kernel.uops.iter().any(|uop| uop.op == op));
            for op in [Op::Where, Op::Bitcast, Op::FloorMod, Op::Assign, Op::Shr, Op::Vectorize] {
                assert!(uop(op), "{device} draws no {op}");
            }
            let is_launched = has(&|kernel| !kernel.launched(AxisKind::Local).is_empty());
            assert_eq!(is_launched, uop(Op::Barrier), "{device}");
            assert!(has(&|kernel| {
                5 <= kernel.uops.iter().filter(|uop| uop.op == Op::Range).count()
            }));
        }
    }

    #[test]
    fn problems_are_blamed_on_the_crate_between_uops_and_results() {
        for (device, crate_name) in
            [("interp", Crate::Runtime), ("jit", Crate::Runtime), ("ptx", Crate::Render)]
        {
            let problem = format!("{SAID} on {device}: element 0 is 1, expected 2");
            assert_eq!(crate_of_kernels(&problem), crate_name);
        }
        assert_eq!(crate_of_kernels(&format!("{SAID}, of seed 3: it is refused")), Crate::Graph);
    }

    #[test]
    fn other_bits_are_reported() {
        let number = |value: f64| Constant::float(DType::F32, value);
        assert!(is_same(number(f64::NAN), Constant::from_bits(DType::F32, 0x7f80_0001)));
        assert!(!is_same(number(0.0), number(-0.0)));
        assert!(!is_same(number(1.0), Constant::float(DType::F64, 1.0)));
        let drawn = drawn(1, &Style::of("interp")).expect("it is well formed");
        let mut wrong = Drawn { expected: drawn.expected.clone(), ..drawn };
        let first = wrong.expected[0].expect("it is written");
        wrong.expected[0] = Some(Constant::from_bits(first.dtype(), first.bits() ^ 1));
        let interp = open("interp").expect("it needs nothing");
        let executable = interp.compile(&[&wrong.kernel]).expect("it compiles").remove(0);
        assert!(compare(&*executable, &wrong).is_err());
    }
}
