//! Tensor cores: the small matrix products that the threads of a warp compute together, and the
//! distribution of the elements over the threads.
//!
//! A product is `C += A*B`, with A of m x k, B of k x n and C of m x n. Each thread holds a
//! fragment of each matrix: some of its elements, which are numbered from 0. All sizes are powers
//! of two, so coordinates and numbers are strings of bits. A layout maps each bit of a thread's
//! number, and of an element's number in the fragment, to a bit of a coordinate.

use crate::DType;

/// A bit of a coordinate: the index of the dimension in (m, n, k), and the number of the bit, 0
/// being the lowest.
pub type Bit = (usize, u32);

const M: usize = 0;
const N: usize = 1;
const K: usize = 2;

/// The distribution of a matrix over the threads of a warp: the bits of the coordinates that the
/// bits of the two numbers stand for. The lowest bit of a number comes first. For example, with
/// `threads: &[(K, 1), (M, 0)]` and `elements: &[(K, 0)]`, element 1 of thread 2 is the one at
/// m = 1 and k = 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    /// The bits of a thread's number in the warp.
    pub threads: &'static [Bit],
    /// The bits of an element's number in the thread's fragment.
    pub elements: &'static [Bit],
}

/// A matrix product that a device supports. Accumulators are f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TensorCore {
    /// The name in the text forms.
    pub name: &'static str,
    /// m, n and k.
    pub sizes: [i64; 3],
    /// Number of threads that hold the matrices.
    pub threads: i64,
    /// The type of the elements of A and B.
    pub operand_dtype: DType,
    /// True if the elements of A and B are rounded to tf32 before they are multiplied: to 10 bits
    /// of fraction, to nearest, ties away from zero.
    pub is_tf32: bool,
    /// The layouts of A, B and C.
    pub layouts: [Layout; 3],
}

const fn layout(threads: &'static [Bit], elements: &'static [Bit]) -> Layout {
    Layout { threads, elements }
}

/// m16n8k16 of PTX, for 16-bit elements.
const M16_N8_K16: [Layout; 3] = [
    layout(&[(K, 1), (K, 2), (M, 0), (M, 1), (M, 2)], &[(K, 0), (M, 3), (K, 3)]),
    layout(&[(K, 1), (K, 2), (N, 0), (N, 1), (N, 2)], &[(K, 0), (K, 3)]),
    ACCUMULATORS,
];
/// m16n8k8 of PTX, for 16-bit elements.
const M16_N8_K8: [Layout; 3] = [
    layout(&[(K, 1), (K, 2), (M, 0), (M, 1), (M, 2)], &[(K, 0), (M, 3)]),
    layout(&[(K, 1), (K, 2), (N, 0), (N, 1), (N, 2)], &[(K, 0)]),
    ACCUMULATORS,
];
/// m16n8k8 of PTX, for tf32.
const M16_N8_K8_TF32: [Layout; 3] = [
    layout(&[(K, 0), (K, 1), (M, 0), (M, 1), (M, 2)], &[(M, 3), (K, 2)]),
    layout(&[(K, 0), (K, 1), (N, 0), (N, 1), (N, 2)], &[(K, 2)]),
    ACCUMULATORS,
];
/// The layout of C in all products of PTX with f32 accumulators.
const ACCUMULATORS: Layout = layout(&[(N, 1), (N, 2), (M, 0), (M, 1), (M, 2)], &[(N, 0), (M, 3)]);
/// A product small enough for small tensors, which only the checked interpreter supports.
const M4_N2_K2: [Layout; 3] = [
    layout(&[(K, 0), (M, 0)], &[(M, 1)]),
    layout(&[(K, 0), (N, 0)], &[]),
    layout(&[(N, 0), (M, 0)], &[(M, 1)]),
];

const fn core(
    name: &'static str,
    sizes: [i64; 3],
    threads: i64,
    operand_dtype: DType,
    layouts: [Layout; 3],
) -> TensorCore {
    TensorCore { name, sizes, threads, operand_dtype, is_tf32: false, layouts }
}

/// All tensor cores.
pub const TENSOR_CORES: &[TensorCore] = &[
    core("m16n8k16_f16", [16, 8, 16], 32, DType::F16, M16_N8_K16),
    core("m16n8k16_bf16", [16, 8, 16], 32, DType::BF16, M16_N8_K16),
    core("m16n8k8_f16", [16, 8, 8], 32, DType::F16, M16_N8_K8),
    TensorCore {
        is_tf32: true,
        ..core("m16n8k8_tf32", [16, 8, 8], 32, DType::F32, M16_N8_K8_TF32)
    },
    core("m4n2k2_f32", [4, 2, 2], 4, DType::F32, M4_N2_K2),
    core("m4n2k2_f16", [4, 2, 2], 4, DType::F16, M4_N2_K2),
    core("m4n2k2_bf16", [4, 2, 2], 4, DType::BF16, M4_N2_K2),
];

/// Coordinates along m, n and k; each matrix uses two of them.
pub type Coordinates = [i64; 3];

impl TensorCore {
    /// Returns the tensor core with this name, if there is one.
    pub fn named(name: &str) -> Option<&'static TensorCore> {
        TENSOR_CORES.iter().find(|core| core.name == name)
    }

    /// Returns the number of elements of a matrix (0: A, 1: B, 2: C) that each thread holds.
    pub fn elements(&self, matrix: usize) -> usize {
        1 << self.layouts[matrix].elements.len()
    }

    /// Returns the thread that holds an element of a matrix (0: A, 1: B, 2: C), and the number of
    /// the element in the thread's fragment.
    pub fn holder(&self, matrix: usize, coordinates: Coordinates) -> (usize, usize) {
        let number = |bits: &[Bit]| {
            let mut number = 0;
            for (at, (dim, bit)) in bits.iter().enumerate() {
                number |= (coordinates[*dim] as usize >> bit & 1) << at;
            }
            number
        };
        let Layout { threads, elements } = self.layouts[matrix];
        (number(threads), number(elements))
    }

    /// Returns the coordinates of an element of a thread's fragment of a matrix (0: A, 1: B, 2: C).
    /// The coordinate that the matrix does not use is 0.
    pub fn coordinates(&self, matrix: usize, thread: usize, element: usize) -> Coordinates {
        let mut coordinates = [0; 3];
        let Layout { threads, elements } = self.layouts[matrix];
        for (bits, number) in [(threads, thread), (elements, element)] {
            for (at, (dim, bit)) in bits.iter().enumerate() {
                coordinates[*dim] |= (number as i64 >> at & 1) << bit;
            }
        }
        coordinates
    }

    /// Computes the new value of an element of C, which is given by the thread that holds it and by
    /// its number in the fragment. The new value is the old one, `start`, plus a row of A times a
    /// column of B, fused and in order of k. `held(matrix, (thread, element))` returns an element
    /// of A (0) or B (1). `None` if one of these is undefined.
    pub fn add(
        &self,
        (thread, element): (usize, usize),
        start: f32,
        held: &dyn Fn(usize, (usize, usize)) -> Option<f32>,
    ) -> Option<f32> {
        let [m, n, _] = self.coordinates(2, thread, element);
        (0..self.sizes[K]).try_fold(start, |sum, k| {
            let at = [m, n, k];
            let [x, y] = [0, 1].map(|matrix| held(matrix, self.holder(matrix, at)));
            let [x, y] = [x?, y?].map(|value| if self.is_tf32 { to_tf32(value) } else { value });
            Some(x.mul_add(y, sum))
        })
    }
}

/// Rounds to 10 bits of fraction; ties go away from zero.
fn to_tf32(value: f32) -> f32 {
    if !value.is_finite() {
        return value;
    }
    f32::from_bits((value.to_bits() + (1 << 12)) & !((1 << 13) - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_element_has_one_holder() {
        for core in TENSOR_CORES {
            for (matrix, dims) in [[M, K], [K, N], [M, N]].into_iter().enumerate() {
                let count = core.threads as usize * core.elements(matrix);
                let [rows, columns] = dims.map(|dim| core.sizes[dim] as usize);
                assert_eq!(count, rows * columns, "{}", core.name);
                let mut seen = vec![false; count];
                for (thread, element) in (0..core.threads as usize)
                    .flat_map(|thread| (0..core.elements(matrix)).map(move |e| (thread, e)))
                {
                    let coordinates = core.coordinates(matrix, thread, element);
                    assert_eq!(
                        core.holder(matrix, coordinates),
                        (thread, element),
                        "{}",
                        core.name
                    );
                    let at =
                        coordinates[dims[0]] as usize * columns + coordinates[dims[1]] as usize;
                    assert!(
                        !std::mem::replace(&mut seen[at], true),
                        "{} {coordinates:?}",
                        core.name
                    );
                }
            }
        }
    }

    /// The tables of the PTX manual, 9.7.14.5.8 (m16n8k16), 9.7.14.5.7 (m16n8k8), as formulas.
    #[test]
    fn layouts_match_the_manual() {
        for core in TENSOR_CORES.iter().filter(|core| core.threads == 32) {
            let (is_long, is_tf32) = (core.sizes[K] == 16, core.is_tf32);
            for (thread, i) in (0..32).flat_map(|thread| (0..8).map(move |i| (thread, i))) {
                let (group, lane) = (thread / 4, thread % 4);
                let lower = if i % 2 == 1 { 1 } else { 0 };
                let a = match (is_long, is_tf32) {
                    (true, _) => {
                        let row = if i % 4 < 2 { group } else { group + 8 };
                        [row, 0, lane * 2 + lower + if i < 4 { 0 } else { 8 }]
                    }
                    (false, false) => [if i < 2 { group } else { group + 8 }, 0, lane * 2 + lower],
                    (false, true) => [group + 8 * lower, 0, lane + if i < 2 { 0 } else { 4 }],
                };
                let b = match (is_long, is_tf32) {
                    (true, _) => [0, group, lane * 2 + lower + if i < 2 { 0 } else { 8 }],
                    (false, false) => [0, group, lane * 2 + lower],
                    (false, true) => [0, group, lane + 4 * lower],
                };
                let c = [if i < 2 { group } else { group + 8 }, lane * 2 + lower, 0];
                for (matrix, expected) in [a, b, c].into_iter().enumerate() {
                    if (i as usize) < core.elements(matrix) {
                        let coordinates = core.coordinates(matrix, thread as usize, i as usize);
                        assert_eq!(coordinates, expected, "{} {matrix} {thread} {i}", core.name);
                    }
                }
            }
        }
    }

    #[test]
    fn tf32_rounds_ties_away_from_zero() {
        let ulp = 2f32.powi(-10);
        for (value, expected) in [
            (1.0 + ulp / 2.0, 1.0 + ulp),
            (-1.0 - ulp / 2.0, -1.0 - ulp),
            (1.0 + ulp / 2.0 - 2f32.powi(-23), 1.0),
            (f32::MAX, f32::INFINITY),
            (f32::NEG_INFINITY, f32::NEG_INFINITY),
        ] {
            assert_eq!(to_tf32(value), expected, "{value}");
        }
        assert!(to_tf32(f32::NAN).is_nan());
    }
}
