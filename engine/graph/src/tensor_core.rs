//! Tensor cores: which small products of matrices the threads of a warp compute together, and how
//! the elements lie among the threads.
//!
//! `C += A*B` with A of m x k, B of k x n and C of m x n. Each thread holds a fragment of each. All
//! sizes are powers of two, so the place of an element is a list of bits, and a layout says which
//! bit of which place each bit of a thread's number and of an element's number is.

use crate::DType;

/// A bit of a place: along which dimension (m, n, k) and which one, from the lowest on.
pub type Bit = (usize, u32);

const M: usize = 0;
const N: usize = 1;
const K: usize = 2;

/// What the bits of a thread's number in the warp and of an element's number in its fragment are,
/// each from the lowest on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    /// Of the thread.
    pub threads: &'static [Bit],
    /// Of the element.
    pub elements: &'static [Bit],
}

/// A product that a device has. Accumulators are f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TensorCore {
    /// Its word in text.
    pub name: &'static str,
    /// m, n and k.
    pub sizes: [i64; 3],
    /// How many threads hold the matrices.
    pub threads: i64,
    /// The type of the elements of A and B.
    pub from: DType,
    /// Whether they are rounded to 10 bits of fraction first (to nearest, ties away from zero).
    pub is_tf32: bool,
    /// How A, B and C lie.
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
/// Of all products of PTX with f32 accumulators.
const ACCUMULATORS: Layout = layout(&[(N, 1), (N, 2), (M, 0), (M, 1), (M, 2)], &[(N, 0), (M, 3)]);
/// A product small enough for small tensors, which no device but the checked interpreter has.
const M4_N2_K2: [Layout; 3] = [
    layout(&[(K, 0), (M, 0)], &[(M, 1)]),
    layout(&[(K, 0), (N, 0)], &[]),
    layout(&[(N, 0), (M, 0)], &[(M, 1)]),
];

const fn core(
    name: &'static str,
    sizes: [i64; 3],
    threads: i64,
    from: DType,
    layouts: [Layout; 3],
) -> TensorCore {
    TensorCore { name, sizes, threads, from, is_tf32: false, layouts }
}

/// All of them.
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

/// Places along m, n and k; of each matrix two of them count.
pub type Place = [i64; 3];

impl TensorCore {
    /// The product of this name.
    pub fn named(name: &str) -> Option<&'static TensorCore> {
        TENSOR_CORES.iter().find(|core| core.name == name)
    }

    /// How many elements of a matrix (0: A, 1: B, 2: C) each thread holds.
    pub fn elements(&self, matrix: usize) -> usize {
        1 << self.layouts[matrix].elements.len()
    }

    /// Which thread holds the element of a matrix at a place, and as which of its elements.
    pub fn holder(&self, matrix: usize, place: Place) -> (usize, usize) {
        let number = |bits: &[Bit]| {
            let bits = bits.iter().enumerate();
            bits.fold(0, |number, (at, (dim, bit))| number | (place[*dim] >> bit & 1) << at)
                as usize
        };
        let Layout { threads, elements } = self.layouts[matrix];
        (number(threads), number(elements))
    }

    /// Where the element of a thread lies in its matrix.
    pub fn place(&self, matrix: usize, thread: usize, element: usize) -> Place {
        let mut place = [0; 3];
        let Layout { threads, elements } = self.layouts[matrix];
        for (bits, number) in [(threads, thread), (elements, element)] {
            for (at, (dim, bit)) in bits.iter().enumerate() {
                place[*dim] |= (number as i64 >> at & 1) << bit;
            }
        }
        place
    }

    /// What a product adds to an element of C that a thread holds: `held` gives the elements of A
    /// (0) and B (1) of each thread. `None` if one of them is undefined.
    pub fn add(
        &self,
        (thread, element): (usize, usize),
        start: f32,
        held: &dyn Fn(usize, (usize, usize)) -> Option<f32>,
    ) -> Option<f32> {
        let place = self.place(2, thread, element);
        (0..self.sizes[K]).try_fold(start, |sum, step| {
            let at = [place[M], place[N], step];
            let [x, y] = [0, 1].map(|matrix| held(matrix, self.holder(matrix, at)));
            let [x, y] = [x?, y?].map(|value| if self.is_tf32 { to_tf32(value) } else { value });
            Some(x.mul_add(y, sum))
        })
    }
}

/// The value with 10 bits of fraction; ties go away from zero.
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
                    let place = core.place(matrix, thread, element);
                    assert_eq!(core.holder(matrix, place), (thread, element), "{}", core.name);
                    let at = place[dims[0]] as usize * columns + place[dims[1]] as usize;
                    assert!(!std::mem::replace(&mut seen[at], true), "{} {place:?}", core.name);
                }
            }
        }
    }

    /// The tables of the PTX manual, 9.7.14.5.8 (m16n8k16), 9.7.14.5.7 (m16n8k8), as formulas.
    #[test]
    fn elements_lie_as_the_manual_says() {
        for core in TENSOR_CORES.iter().filter(|core| core.threads == 32) {
            let (is_long, is_tf32) = (core.sizes[K] == 16, core.is_tf32);
            for (thread, i) in (0..32).flat_map(|thread| (0..8).map(move |i| (thread, i))) {
                let (group, own) = (thread / 4, thread % 4);
                let lower = if i % 2 == 1 { 1 } else { 0 };
                let a = match (is_long, is_tf32) {
                    (true, _) => {
                        let row = if i % 4 < 2 { group } else { group + 8 };
                        [row, 0, own * 2 + lower + if i < 4 { 0 } else { 8 }]
                    }
                    (false, false) => [if i < 2 { group } else { group + 8 }, 0, own * 2 + lower],
                    (false, true) => [group + 8 * lower, 0, own + if i < 2 { 0 } else { 4 }],
                };
                let b = match (is_long, is_tf32) {
                    (true, _) => [0, group, own * 2 + lower + if i < 2 { 0 } else { 8 }],
                    (false, false) => [0, group, own * 2 + lower],
                    (false, true) => [0, group, own + 4 * lower],
                };
                let c = [if i < 2 { group } else { group + 8 }, own * 2 + lower, 0];
                for (matrix, expected) in [a, b, c].into_iter().enumerate() {
                    if (i as usize) < core.elements(matrix) {
                        let place = core.place(matrix, thread as usize, i as usize);
                        assert_eq!(place, expected, "{} {matrix} {thread} {i}", core.name);
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
