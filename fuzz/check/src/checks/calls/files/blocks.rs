//! Blocks of GGUF's quantised tensors, packed from drawn quants and scales as the structures of
//! llama.cpp (`ggml-common.h`) have them.
//!
//! The elements are those of the formulas in real numbers, rounded to f32: up to a last sum, all
//! that is computed in f32 is exact.

use gradiff::DType;

use super::gguf::{Described, Gguf};
use super::{Array, Written, shuffled};
use crate::checks::calls::Draw;

/// A kind of block: its number in GGUF, the elements of a block, and the function that draws
/// one, appends its bytes and returns its elements.
#[derive(Clone, Copy)]
pub(super) struct Block {
    pub(super) kind: u32,
    pub(super) elements: usize,
    draw: fn(&mut Draw, &mut Vec<u8>) -> Vec<f32>,
}

pub(super) const BLOCKS: [Block; 8] = [
    // Q4_0 and Q4_1, Q5_0 and Q5_1, Q8_0.
    Block { kind: 2, elements: 32, draw: |draw, stored| small(draw, stored, 4, false) },
    Block { kind: 3, elements: 32, draw: |draw, stored| small(draw, stored, 4, true) },
    Block { kind: 6, elements: 32, draw: |draw, stored| small(draw, stored, 5, false) },
    Block { kind: 7, elements: 32, draw: |draw, stored| small(draw, stored, 5, true) },
    Block { kind: 8, elements: 32, draw: q8_0 },
    // Q4_K, Q5_K, Q6_K.
    Block { kind: 12, elements: 256, draw: |draw, stored| groups(draw, stored, 4) },
    Block { kind: 13, elements: 256, draw: |draw, stored| groups(draw, stored, 5) },
    Block { kind: 14, elements: 256, draw: q6_k },
];

/// Draws a file that has a tensor of each kind of block.
pub(super) fn file(draw: &mut Draw) -> Written {
    let (mut file, mut written) = (Gguf::default(), Written::default());
    for block in shuffled(draw, BLOCKS.to_vec()) {
        let (stored, array) = tensor(draw, block);
        let name = format!("blk.{}.weight", block.kind);
        file.tensors.push(Described::of(&name, &array, block.kind, stored));
        written.tensors.insert(name, array);
    }
    file.arrange(draw);
    written.bytes = file.bytes();
    written
}

/// Draws a tensor of one or two blocks, or of none: its bytes in the file, and its elements.
pub(super) fn tensor(draw: &mut Draw, block: Block) -> (Vec<u8>, Array) {
    let row = block.elements as i64;
    let shape = match draw.below(8) {
        0 => vec![row],
        1 => vec![2 * row],
        2 => vec![2, row],
        3 => vec![1, 2 * row],
        4 => vec![1, 2, row],
        5 => vec![2, 1, 1, row],
        6 => vec![0, row],
        _ => vec![1, row],
    };
    let blocks = shape.iter().product::<i64>() / row;
    let (mut stored, mut elements): (Vec<u8>, Vec<f32>) = Default::default();
    for _ in 0..blocks {
        elements.extend((block.draw)(draw, &mut stored));
    }
    let bytes = elements.iter().flat_map(|element| element.to_le_bytes()).collect();
    (stored, Array { dtype: DType::F32, shape, bytes })
}

/// Draws a finite half, appends its bytes, and returns its value.
fn half(draw: &mut Draw, stored: &mut Vec<u8>) -> f64 {
    let (sign, fraction) = (draw.below(2) as u16, draw.below(1024) as u16);
    // Subnormal, the smallest and the largest normal numbers, and those near 1.
    let exponent = draw.pick(&[0u16, 1, 12, 15, 17, 30]);
    stored.extend((sign << 15 | exponent << 10 | fraction).to_le_bytes());
    let magnitude = match exponent {
        0 => f64::from(fraction) * 2f64.powi(-24),
        _ => f64::from(1024 + fraction) * 2f64.powi(i32::from(exponent) - 25),
    };
    if sign == 1 { -magnitude } else { magnitude }
}

/// Draws numbers of so many bits.
fn numbers(draw: &mut Draw, count: usize, bits: u32) -> Vec<usize> {
    (0..count).map(|_| draw.below(1 << bits)).collect()
}

/// The low four bits of two numbers.
fn nibbles(low: usize, high: usize) -> u8 {
    ((low & 15) | (high & 15) << 4) as u8
}

/// A block of 32 elements of 4 or 5 bits: a scale, a minimum or none, the fifth bits in a word, the
/// low bits. Without a minimum, the quants are signed.
fn small(draw: &mut Draw, stored: &mut Vec<u8>, bits: u32, has_minimum: bool) -> Vec<f32> {
    let scale = half(draw, stored);
    let minimum = if has_minimum { Some(half(draw, stored)) } else { None };
    let quants = numbers(draw, 32, bits);
    if bits == 5 {
        let fifth = |word: u32, (at, quant): (usize, &usize)| word | ((quant >> 4) as u32) << at;
        stored.extend(quants.iter().enumerate().fold(0u32, fifth).to_le_bytes());
    }
    let (first, second) = quants.split_at(16);
    stored.extend(first.iter().zip(second).map(|(low, high)| nibbles(*low, *high)));
    let middle = f64::from(1u32 << (bits - 1));
    let element = |quant: &usize| match minimum {
        Some(minimum) => *quant as f64 * scale + minimum,
        None => (*quant as f64 - middle) * scale,
    };
    quants.iter().map(|quant| element(quant) as f32).collect()
}

fn q8_0(draw: &mut Draw, stored: &mut Vec<u8>) -> Vec<f32> {
    let scale = half(draw, stored);
    let quants: Vec<u8> = numbers(draw, 32, 8).into_iter().map(|quant| quant as u8).collect();
    stored.extend(&quants);
    quants.iter().map(|quant| (f64::from(quant.cast_signed()) * scale) as f32).collect()
}

/// A block of 8 groups of 32 elements of 4 or 5 bits: the scale of the scales and that of the
/// minima, 8 scales and 8 minima of 6 bits, the fifth bits, the low bits.
fn groups(draw: &mut Draw, stored: &mut Vec<u8>, bits: u32) -> Vec<f32> {
    let (scale, minimum) = (half(draw, stored), half(draw, stored));
    let (scales, minima) = (numbers(draw, 8, 6), numbers(draw, 8, 6));
    // The last four of each have their high two bits above the first four, and their low bits
    // together.
    for list in [&scales, &minima] {
        stored.extend((0..4).map(|at| (list[at] | (list[at + 4] >> 4) << 6) as u8));
    }
    stored.extend((4..8).map(|at| nibbles(scales[at], minima[at])));
    let quants = numbers(draw, 256, bits);
    if bits == 5 {
        let bit = |at: usize, group: usize| (quants[group * 32 + at] >> 4) << group;
        let byte = |at: usize| (0..8).map(|group| bit(at, group)).sum::<usize>() as u8;
        stored.extend((0..32).map(byte));
    }
    for pair in quants.chunks_exact(64) {
        stored.extend((0..32).map(|at| nibbles(pair[at], pair[at + 32])));
    }
    let element = |(at, quant): (usize, &usize)| {
        let (group_scale, group_minimum) = (scales[at / 32] as f64, minima[at / 32] as f64);
        (scale * group_scale * *quant as f64 - minimum * group_minimum) as f32
    };
    quants.iter().enumerate().map(element).collect()
}

/// A block of 16 groups of 16 elements of 6 bits: of each half the low 4 bits, of each half the
/// high 2 bits, the scales in 8 bits, the scale of them.
fn q6_k(draw: &mut Draw, stored: &mut Vec<u8>) -> Vec<f32> {
    let quants = numbers(draw, 256, 6);
    for part in quants.chunks_exact(128) {
        stored.extend((0..64).map(|at| nibbles(part[at], part[at + 64])));
    }
    for part in quants.chunks_exact(128) {
        let bits = |at: usize, row: usize| (part[row * 32 + at] >> 4) << (2 * row);
        let byte = |at: usize| (0..4).map(|row| bits(at, row)).sum::<usize>() as u8;
        stored.extend((0..32).map(byte));
    }
    let scales: Vec<u8> = numbers(draw, 16, 8).into_iter().map(|scale| scale as u8).collect();
    stored.extend(&scales);
    let scale = half(draw, stored);
    let element = |(at, quant): (usize, &usize)| {
        let group_scale = f64::from(scales[at / 16].cast_signed());
        (scale * group_scale * (*quant as f64 - 32.0)) as f32
    };
    quants.iter().enumerate().map(element).collect()
}
