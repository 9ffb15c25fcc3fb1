//! Products of matrices by the 32 threads of a warp, `mma.sync`, with the layouts of fragments of
//! the manual's sections "Matrix fragments for mma.m16n8k16" and "... m16n8k8".

use super::machine::Thread;
use super::number::{Number, decode};
use super::types::{Class, Type};

/// Number of threads of a warp.
pub(super) const WARP: usize = 32;

const ROWS: usize = 16;
const COLUMNS: usize = 8;

/// A product of a 16 x `depth` matrix by a `depth` x 8 one, accumulated in f32.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    depth: usize,
    /// The type of the elements of A and B.
    element: Type,
}

/// A product and the registers of A, B, C and D in each thread.
pub(super) struct Product {
    pub(super) shape: Shape,
    pub(super) registers: [Vec<u32>; 4],
}

const WORD: Type = Type { name: "b32", class: Class::Bits, bits: 32 };
const FLOAT: Type = Type { name: "f32", class: Class::Float, bits: 32 };

impl Shape {
    /// The product of an opcode without its `mma`.
    pub(super) fn named(form: &str) -> Option<Shape> {
        let (depth, element) = match form {
            "sync.aligned.m16n8k16.row.col.f32.f16.f16.f32" => (16, "f16"),
            "sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32" => (16, "bf16"),
            "sync.aligned.m16n8k8.row.col.f32.f16.f16.f32" => (8, "f16"),
            "sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32" => (8, "bf16"),
            "sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32" => (8, "tf32"),
            _ => return None,
        };
        Some(Shape { depth, element: Type::named(element)? })
    }

    /// Number and type of the registers of a fragment (matrix 0: A, 1: B, 2: C or D).
    pub(super) fn fragment(self, matrix: usize) -> (usize, Type) {
        let elements = [ROWS * self.depth, self.depth * COLUMNS, ROWS * COLUMNS][matrix] / WARP;
        match matrix {
            2 => (elements, FLOAT),
            _ => (elements * self.element.bits as usize / 32, WORD),
        }
    }

    /// Row and column of element `i` of the fragment of A of a lane.
    fn coordinates_a(self, lane: usize, i: usize) -> (usize, usize) {
        let (group, member) = (lane / 4, lane % 4);
        if self.element.bits == 32 {
            let row = if i == 0 || i == 2 { group } else { group + 8 };
            return (row, if i < 2 { member } else { member + 4 });
        }
        let row = if i < 2 || (4..6).contains(&i) { group } else { group + 8 };
        (row, 2 * member + i % 2 + if i < 4 { 0 } else { 8 })
    }

    /// Row and column of element `i` of the fragment of B of a lane.
    fn coordinates_b(self, lane: usize, i: usize) -> (usize, usize) {
        let (group, member) = (lane / 4, lane % 4);
        if self.element.bits == 32 {
            return (if i == 0 { member } else { member + 4 }, group);
        }
        (2 * member + i % 2 + if i < 2 { 0 } else { 8 }, group)
    }

    /// Row and column of element `i` of the fragments of C and D of a lane.
    fn coordinates_c(lane: usize, i: usize) -> (usize, usize) {
        let (group, member) = (lane / 4, lane % 4);
        (if i < 2 { group } else { group + 8 }, 2 * member + i % 2)
    }
}

fn value(bits: u64, kind: Type) -> f64 {
    match decode(bits, kind) {
        Number::Nan => f64::NAN,
        Number::Infinite { is_negative } => {
            if is_negative {
                f64::NEG_INFINITY
            } else {
                f64::INFINITY
            }
        }
        Number::Finite { is_negative, magnitude, exponent } => {
            let size = magnitude as f64 * 2f64.powi(exponent);
            if is_negative { -size } else { size }
        }
    }
}

/// Computes `D = A*B + C` by the threads of a warp, rounded to f32 after each product is added.
///
/// # Errors
/// A register that was never written.
pub(super) fn multiply(product: &Product, warp: &mut [Thread]) -> Result<(), String> {
    let shape = product.shape;
    let mut a = vec![[0f64; 16]; ROWS];
    let mut b = vec![[0f64; COLUMNS]; 16];
    for (lane, thread) in warp.iter().enumerate() {
        let words_of = |matrix: usize| -> Result<Vec<u64>, String> {
            let registers = product.registers[matrix].iter().map(|register| *register as usize);
            let read = |register: usize| thread.written[register].then(|| thread.values[register]);
            let words: Option<Vec<u64>> = registers.map(read).collect();
            words.ok_or_else(|| format!("a fragment of lane {lane} was never written"))
        };
        let count = 32 / shape.element.bits as usize;
        let element = |words: &[u64], i: usize| {
            let bits = words[i / count] >> (shape.element.bits as usize * (i % count));
            value(bits & (u64::MAX >> (64 - shape.element.bits)), shape.element)
        };
        let words = words_of(0)?;
        for i in 0..words.len() * count {
            let (row, column) = shape.coordinates_a(lane, i);
            a[row][column] = element(&words, i);
        }
        let words = words_of(1)?;
        for i in 0..words.len() * count {
            let (row, column) = shape.coordinates_b(lane, i);
            b[row][column] = element(&words, i);
        }
        words_of(2)?;
    }
    for (lane, thread) in warp.iter_mut().enumerate() {
        let starts = product.registers[2].iter().map(|register| thread.values[*register as usize]);
        let starts: Vec<u64> = starts.collect();
        for (i, (to, start)) in product.registers[3].iter().zip(starts).enumerate() {
            let (row, column) = Shape::coordinates_c(lane, i);
            // Products of 11 bits by 11 are exact in f64.
            let sum = (0..shape.depth).fold(f32::from_bits(start as u32), |sum, k| {
                (f64::from(sum) + a[row][k] * b[k][column]) as f32
            });
            thread.values[*to as usize] = sum.to_bits().into();
            thread.written[*to as usize] = true;
        }
    }
    Ok(())
}
