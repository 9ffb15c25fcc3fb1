//! The expected outputs, and the judgement of those of a backend.

use gradiff_corpus::{Array, DType, Shape, format_element};

use crate::cell::{Cell, Real, Reason};
use crate::format::{decode, encode, is_nan_bits};

/// The set of results that legal computations of an output may have.
#[derive(Clone, Debug, PartialEq)]
pub struct Expected {
    /// Element type.
    pub dtype: DType,
    /// Sizes of the axes, outermost first.
    pub shape: Shape,
    cells: Vec<Cell>,
}

/// The set of results that an element of an output may have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Element {
    /// Exactly this bit pattern.
    Exact(u64),
    /// Zero of either sign.
    Zero,
    /// Any NaN.
    Nan,
    /// A finite number no farther from `center + low` than `radius`; `low` is not 0 for f64 only.
    Ball {
        /// The result of real arithmetic, rounded to f64.
        center: f64,
        /// The error of that rounding.
        low: f64,
        /// Bound of the error of a legal computation.
        radius: f64,
        /// The sign of the number if it is a zero: true for a minus; `None` if it may be either.
        zero_sign: Option<bool>,
    },
    /// Anything.
    Unspecified(Reason),
}

/// The result of comparing an array with the expected output.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Verdict {
    /// Elements that were compared.
    pub checked: usize,
    /// Elements that may have any value.
    pub unspecified: usize,
    /// Elements among those compared whose bound is no less than the magnitude of the center, so
    /// that zero was right for a number that may be any within the bound.
    pub vacuous: usize,
    /// Elements that are wrong.
    pub mismatch_count: usize,
    /// The first wrong element, or a wrong dtype or shape.
    pub mismatch: Option<Mismatch>,
}

/// A wrong element. For a wrong dtype or shape, the index and the bits are 0, and `expected`
/// describes both outputs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// Row-major position.
    pub index: usize,
    /// The bit pattern found there.
    pub got_bits: u64,
    /// Description of the legal results.
    pub expected: String,
}

impl Verdict {
    /// Returns whether no element is wrong.
    pub fn is_ok(&self) -> bool {
        self.mismatch_count == 0
    }
}

impl Expected {
    pub(crate) fn new(dtype: DType, shape: Shape, cells: Vec<Cell>) -> Expected {
        Expected { dtype, shape, cells }
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.cells.len()
    }

    /// Returns whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }

    /// Returns the element at a row-major position.
    ///
    /// # Panics
    /// If there is none.
    pub fn element(&self, index: usize) -> Element {
        match self.cells[index] {
            Cell::Unspecified(reason) => Element::Unspecified(reason),
            Cell::Nan(None) => Element::Nan,
            Cell::Real(Real { hi, lo, radius, zero_sign, .. }) if radius > 0.0 => {
                Element::Ball { center: hi, low: lo, radius, zero_sign }
            }
            Cell::Real(real) if real.is_sign_free() => Element::Zero,
            cell => {
                let bits = cell.bits(self.dtype);
                Element::Exact(bits.expect("all other elements are exact"))
            }
        }
    }

    /// Returns all elements, row-major.
    pub fn elements(&self) -> impl ExactSizeIterator<Item = Element> + '_ {
        (0..self.cells.len()).map(|index| self.element(index))
    }

    /// Returns the reason of each unspecified element.
    pub fn reasons(&self) -> impl Iterator<Item = Reason> + '_ {
        self.cells.iter().filter_map(|cell| match cell {
            Cell::Unspecified(reason) => Some(*reason),
            _ => None,
        })
    }

    /// Compares an array element by element. A wrong dtype, shape or length is a single mismatch.
    pub fn judge(&self, got: &Array) -> Verdict {
        if got.dtype != self.dtype || got.shape != self.shape || got.len() != self.len() {
            let (dtype, shape) = (self.dtype.name(), &self.shape);
            let (got_dtype, len) = (got.dtype.name(), got.len());
            let expected =
                format!("{dtype}{shape:?}, got {got_dtype}{:?} with {len} elements", got.shape);
            let mismatch = Some(Mismatch { index: 0, got_bits: 0, expected });
            return Verdict { mismatch_count: 1, mismatch, ..Verdict::default() };
        }
        let mut verdict = Verdict::default();
        for (index, &got_bits) in got.bits.iter().enumerate() {
            match self.element(index) {
                Element::Unspecified(_) => verdict.unspecified += 1,
                element => {
                    verdict.checked += 1;
                    verdict.vacuous += usize::from(element.is_vacuous());
                    if !element.admits(self.dtype, got_bits) {
                        verdict.mismatch_count += 1;
                        verdict.mismatch.get_or_insert_with(|| {
                            let expected = element.describe(self.dtype);
                            Mismatch { index, got_bits, expected }
                        });
                    }
                }
            }
        }
        verdict
    }
}

impl Element {
    /// Returns whether a bit pattern of `dtype` is legal.
    pub fn admits(&self, dtype: DType, bits: u64) -> bool {
        match *self {
            Element::Unspecified(_) => true,
            Element::Exact(expected) => bits == expected,
            Element::Nan => is_nan_bits(dtype, bits),
            Element::Zero => decode(dtype, bits) == 0.0,
            Element::Ball { center, low, radius, zero_sign } => {
                let value = decode(dtype, bits);
                let has_sign =
                    |negative: bool| value != 0.0 || value.is_sign_negative() == negative;
                // The difference of close numbers is exact; NaN and infinities compare as false.
                zero_sign.is_none_or(has_sign) && ((value - center) - low).abs() <= radius
            }
        }
    }

    /// Returns whether the bound is no less than the magnitude of the center.
    fn is_vacuous(&self) -> bool {
        matches!(*self, Element::Ball { center, radius, .. } if center.abs() <= radius)
    }

    /// Describes the legal results, with enough digits to check by hand.
    pub fn describe(&self, dtype: DType) -> String {
        let exact = |bits| format!("{} (bits {bits:#x})", format_element(dtype, bits));
        match *self {
            Element::Exact(bits) => exact(bits),
            Element::Zero => "zero of either sign".into(),
            Element::Nan => "nan".into(),
            Element::Ball { center, radius, zero_sign, .. } => {
                let nearest = encode(dtype, center);
                let zero = match zero_sign.filter(|_| center.abs() <= radius) {
                    Some(true) => ", -0.0 if it is a zero",
                    Some(false) => ", 0.0 if it is a zero",
                    None => "",
                };
                format!("{} within {radius:e}{zero}", exact(nearest))
            }
            Element::Unspecified(reason) => format!("anything ({})", reason.name()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(dtype: DType, cell: Cell, bits: u64) -> bool {
        let expected = Expected::new(dtype, vec![], vec![cell]);
        expected.judge(&Array { dtype, shape: vec![], bits: vec![bits] }).is_ok()
    }

    #[test]
    fn exact_floats_compare_by_bits() {
        let bits = u64::from(1f32.to_bits());
        assert!(judge(DType::F32, Cell::exact(1.0), bits));
        assert!(!judge(DType::F32, Cell::exact(1.0), bits + 1));
        assert!(!judge(DType::F32, Cell::exact(1.0), bits - 1));
        let minus_zero = u64::from((-0f32).to_bits());
        assert!(!judge(DType::F32, Cell::exact(0.0), minus_zero));
        assert!(judge(DType::F32, Cell::zero(None), minus_zero));
        assert!(judge(DType::F32, Cell::zero(None), 0));
        assert!(!judge(DType::F32, Cell::zero(None), 1));
    }

    #[test]
    fn nans_match_each_other_unless_they_are_data() {
        assert!(judge(DType::F16, Cell::nan(), 0x7e01));
        assert!(!judge(DType::F16, Cell::nan(), 0x7c00));
        assert!(judge(DType::F16, Cell::Nan(Some(0x7e01)), 0x7e01));
        assert!(!judge(DType::F16, Cell::Nan(Some(0x7e01)), 0x7e00));
    }

    #[test]
    fn balls_admit_only_numbers_within_the_bound() {
        let ball = Cell::Real(Real::ball(1.0, 0.0, 2f64.powi(-24)));
        let bits = u64::from(1f32.to_bits());
        assert!(judge(DType::F32, ball, bits) && judge(DType::F32, ball, bits - 1));
        assert!(!judge(DType::F32, ball, bits + 1) && !judge(DType::F32, ball, bits - 2));
        for value in [f32::NAN, f32::INFINITY, -1.0, 0.0] {
            assert!(!judge(DType::F32, ball, value.to_bits().into()));
        }
    }

    #[test]
    fn bounds_beyond_the_magnitude_are_counted() {
        let ball = |center, radius| Cell::Real(Real::ball(center, 0.0, radius));
        let cells = vec![ball(1.0, 0.5), ball(1.0, 1.0), ball(1e-9, 1e-8), Cell::exact(0.0)];
        let expected = Expected::new(DType::F32, vec![4], cells);
        let got = Array { dtype: DType::F32, shape: vec![4], bits: vec![0; 4] };
        let verdict = expected.judge(&got);
        assert_eq!((verdict.checked, verdict.vacuous, verdict.mismatch_count), (4, 2, 1));
        // Any number from 0 to 1e-9, of which 0 may be the right one, is as good as unknown.
        let up_to = Cell::Real(Real::up_to(1e-9));
        let expected = Expected::new(DType::F32, vec![1], vec![up_to]);
        let got = Array { dtype: DType::F32, shape: vec![1], bits: vec![0] };
        assert_eq!(expected.judge(&got).vacuous, 1);
    }

    #[test]
    fn the_sign_of_a_zero_within_the_bound_is_judged_where_it_is_known() {
        let tiny = Cell::Real(Real::ball(-1e-60, 0.0, 2e-45));
        let minus_zero = u64::from((-0f32).to_bits());
        assert!(judge(DType::F32, tiny, 0) && judge(DType::F32, tiny, minus_zero));
        let negative = crate::arithmetic::with_sign(Some(true), tiny);
        assert!(!judge(DType::F32, negative, 0) && judge(DType::F32, negative, minus_zero));
        assert!(judge(DType::F32, negative, minus_zero + 1) && !judge(DType::F32, negative, 1));
    }

    #[test]
    fn verdict_counts_mismatches_and_keeps_the_first() {
        let cells =
            vec![Cell::Int(1), Cell::Unspecified(Reason::Straddle), Cell::Int(3), Cell::Int(4)];
        let expected = Expected::new(DType::I8, vec![4], cells);
        let got = Array { dtype: DType::I8, shape: vec![4], bits: vec![1, 9, 9, 9] };
        let verdict = expected.judge(&got);
        assert_eq!((verdict.checked, verdict.unspecified, verdict.mismatch_count), (3, 1, 2));
        let mismatch = verdict.mismatch.expect("two are wrong");
        assert_eq!((mismatch.index, mismatch.got_bits), (2, 9));
        assert_eq!(mismatch.expected, "3 (bits 0x3)");
        assert_eq!(expected.reasons().collect::<Vec<_>>(), [Reason::Straddle]);
    }

    #[test]
    fn wrong_shape_or_dtype_is_a_mismatch() {
        let expected = Expected::new(DType::I8, vec![1], vec![Cell::Int(1)]);
        for (dtype, shape) in [(DType::U8, vec![1]), (DType::I8, vec![])] {
            let verdict = expected.judge(&Array { dtype, shape, bits: vec![1] });
            assert_eq!((verdict.mismatch_count, verdict.checked), (1, 0));
        }
    }
}
