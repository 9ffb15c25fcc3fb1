//! Reads of tensors, engines on devices, and plans that are run.

use gradiff::{Element, Engine, Error, Tensor};
use gradiff_corpus::{DType, TensorType};

use super::movements::shapes_count;
use super::sizes;
use crate::backends::translate;
use crate::checks::calls::Draw;

/// An engine that is always available.
fn interp() -> Engine {
    Engine::new("interp").expect("the interpreter is always there")
}

/// Checks that `found` is `wanted`, or, where `wanted` is none, a refusal as invalid.
fn check_answer<T: PartialEq + std::fmt::Debug>(
    label: &str,
    wanted: Option<&T>,
    found: Result<T, Error>,
) -> Result<(), String> {
    match (wanted, found) {
        (None, Err(Error::Invalid(message))) if !message.is_empty() => Ok(()),
        (Some(wanted), Ok(found)) if *wanted == found => Ok(()),
        (_, found) => {
            Err(format!("{label}: {found:?}, expected {wanted:?} (None means a refusal)"))
        }
    }
}

pub(super) fn item(draw: &mut Draw) -> Result<(), String> {
    let shape = match draw.below(3) {
        0 => draw.shape(),
        1 => vec![1; draw.below(4)],
        _ => vec![2],
    };
    let count = shapes_count(&shape) as usize;
    let (is_wrong_type, value) = (draw.one_in(4), draw.bits() as i32);
    let x = Tensor::from_slice(&sizes(&shape), &vec![value; count]).map_err(|e| e.to_string())?;
    let is_negated = draw.one_in(4);
    let x = if is_negated { x.neg().map_err(|e| e.to_string())? } else { x };
    let wanted = (count == 1).then_some(if is_negated { value.wrapping_neg() } else { value });
    let label = format!("item of i32{shape:?}");
    if is_wrong_type {
        return check_answer(&format!("{label} as f32"), None, x.item::<f32>());
    }
    check_answer(&label, wanted.as_ref(), x.item::<i32>())
}

pub(super) fn to_vec(draw: &mut Draw) -> Result<(), String> {
    let (dtype, shape) = (draw.dtype(), draw.shape());
    let source = TensorType { dtype, shape };
    let x = draw.zeros(&source);
    fn read<T: Element + PartialEq + std::fmt::Debug + Default>(
        x: &Tensor,
        source: &TensorType,
    ) -> Result<(), String> {
        let label = format!("to_vec of {source:?} as {}", T::DTYPE);
        let is_legal = translate::dtype(source.dtype) == T::DTYPE;
        let wanted = is_legal.then(|| vec![T::default(); source.count()]);
        check_answer(&label, wanted.as_ref(), x.to_vec::<T>())?;
        let array = x.to_ndarray::<T>();
        let array = array.map(|array| (array.shape().to_vec(), array.iter().copied().collect()));
        let wanted = wanted.map(|elements| (source.shape.clone(), elements));
        check_answer(&label, wanted.as_ref(), array)
    }
    type Reader = fn(&Tensor, &TensorType) -> Result<(), String>;
    let readers: [Reader; 6] =
        [read::<bool>, read::<i32>, read::<u8>, read::<f32>, read::<i64>, read::<u32>];
    let dtypes = [DType::Bool, DType::I32, DType::U8, DType::F32, DType::I64, DType::U32];
    let reader = match dtypes.iter().position(|known| *known == dtype) {
        Some(at) if !draw.one_in(3) => readers[at],
        _ => draw.pick(&readers),
    };
    reader(&x, &source)
}

/// A constant of too large a shape cannot be read.
pub(super) fn read(draw: &mut Draw) -> Result<(), String> {
    let size = draw.pick(&[(1_i64 << 32) + 1, 1 << 33, 1 << 40]);
    let large = Tensor::zeros(gradiff::DType::U8, &[size]).map_err(|e| e.to_string())?;
    check_answer(&format!("read of u8[{size}]"), None, large.to_bytes())
}

/// Opens a device that does not exist, or one that may be missing here.
pub(super) fn engine_new(draw: &mut Draw) -> Result<(), String> {
    if draw.one_in(4) {
        return match Engine::new("cuda") {
            Ok(_) | Err(Error::Runtime(gradiff::runtime::Error::Unavailable { .. })) => Ok(()),
            Err(error) => Err(format!("Engine::new of \"cuda\" fails with: {error}")),
        };
    }
    let name = draw.pick(&["", "none", "interp ", "interpreter", "jit/opts", "cuda:0x", "\0"]);
    match Engine::new(name) {
        Err(Error::Runtime(error)) if error.to_string().contains(name) => Ok(()),
        Err(error) => Err(format!("Engine::new of {name:?} fails with: {error}")),
        Ok(_) => Err(format!("Engine::new of {name:?} opens a device")),
    }
}

/// Checks that a plan that was not compiled does not run.
pub(super) fn run(draw: &mut Draw) -> Result<(), String> {
    let count = 1 + draw.below(4);
    let x = Tensor::from_slice(&[count as i64], &vec![7u16; count]).map_err(|e| e.to_string())?;
    let x = x.add(&x).map_err(|e| e.to_string())?;
    let engine = interp();
    let plan = engine.plan(&[&x]).map_err(|error| error.to_string())?;
    check_answer("run of a plan that was not compiled", None, engine.run(&plan))?;
    match x.to_bytes() {
        Err(_) => Ok(()),
        Ok(bytes) => Err(format!("read of a tensor that was only planned gives {bytes:?}")),
    }
}
