//! The blocks of GGUF's quantised tensors, as llama.cpp defines them, and their values in f32.
//!
//! A block holds the quants of 32 or 256 elements and their scales. Its value is computed in f32,
//! in the order of llama.cpp's `dequantize_row_*`, so that results are the same bits.

use half::f16;

/// A block format.
pub(crate) struct Format {
    /// The number of GGUF for the type.
    pub(crate) id: u32,
    pub(crate) name: &'static str,
    /// The number of elements of a block.
    pub(crate) block_elements: u64,
    pub(crate) block_bytes: u64,
    /// Computes the elements of a block.
    pub(crate) decode: fn(&[u8], &mut [f32]),
}

/// The block formats that can be read.
pub(crate) const FORMATS: [Format; 8] = [
    format(2, "Q4_0", 32, 18, q4_0),
    format(3, "Q4_1", 32, 20, q4_1),
    format(6, "Q5_0", 32, 22, q5_0),
    format(7, "Q5_1", 32, 24, q5_1),
    format(8, "Q8_0", 32, 34, q8_0),
    format(12, "Q4_K", 256, 144, q4_k),
    format(13, "Q5_K", 256, 176, q5_k),
    format(14, "Q6_K", 256, 210, q6_k),
];

const fn format(
    id: u32,
    name: &'static str,
    block_elements: u64,
    block_bytes: u64,
    decode: fn(&[u8], &mut [f32]),
) -> Format {
    Format { id, name, block_elements, block_bytes, decode }
}

/// The elements of a row of blocks, as little-endian f32.
pub(crate) fn decode(format: &Format, blocks: &[u8], bytes: &mut Vec<u8>) {
    let mut elements = vec![0.0; format.block_elements as usize];
    for block in blocks.chunks_exact(format.block_bytes as usize) {
        (format.decode)(block, &mut elements);
        elements.iter().for_each(|element| bytes.extend_from_slice(&element.to_le_bytes()));
    }
}

fn half_at(block: &[u8], offset: usize) -> f32 {
    f16::from_le_bytes([block[offset], block[offset + 1]]).to_f32()
}

/// The low quants are the first half of the elements, the high quants the second half.
fn q4_0(block: &[u8], elements: &mut [f32]) {
    let scale = half_at(block, 0);
    for (index, pair) in block[2..].iter().enumerate() {
        elements[index] = (i32::from(pair & 15) - 8) as f32 * scale;
        elements[index + 16] = (i32::from(pair >> 4) - 8) as f32 * scale;
    }
}

fn q4_1(block: &[u8], elements: &mut [f32]) {
    let (scale, minimum) = (half_at(block, 0), half_at(block, 2));
    for (index, pair) in block[4..].iter().enumerate() {
        elements[index] = f32::from(pair & 15) * scale + minimum;
        elements[index + 16] = f32::from(pair >> 4) * scale + minimum;
    }
}

/// The quants of 5 bits of a pair of elements: the fifth bits are in a word of their own.
fn five_bits(pair: u8, high: u32, index: usize) -> [u8; 2] {
    let bit = |index: usize| ((high >> index & 1) << 4) as u8;
    [pair & 15 | bit(index), pair >> 4 | bit(index + 16)]
}

fn word_at(block: &[u8], offset: usize) -> u32 {
    u32::from_le_bytes(block[offset..offset + 4].try_into().expect("4 bytes"))
}

fn q5_0(block: &[u8], elements: &mut [f32]) {
    let (scale, high) = (half_at(block, 0), word_at(block, 2));
    for (index, pair) in block[6..].iter().enumerate() {
        let [low, second] = five_bits(*pair, high, index);
        elements[index] = (i32::from(low) - 16) as f32 * scale;
        elements[index + 16] = (i32::from(second) - 16) as f32 * scale;
    }
}

fn q5_1(block: &[u8], elements: &mut [f32]) {
    let (scale, minimum, high) = (half_at(block, 0), half_at(block, 2), word_at(block, 4));
    for (index, pair) in block[8..].iter().enumerate() {
        let [low, second] = five_bits(*pair, high, index);
        elements[index] = f32::from(low) * scale + minimum;
        elements[index + 16] = f32::from(second) * scale + minimum;
    }
}

fn q8_0(block: &[u8], elements: &mut [f32]) {
    let scale = half_at(block, 0);
    for (element, quant) in elements.iter_mut().zip(&block[2..]) {
        *element = f32::from(*quant as i8) * scale;
    }
}

/// The scale and the minimum, of 6 bits each, of the group of 32 elements at `group`.
fn scale_and_minimum(packed: &[u8], group: usize) -> (f32, f32) {
    let (scale, minimum) = if group < 4 {
        (packed[group] & 63, packed[group + 4] & 63)
    } else {
        let low = packed[group + 4];
        ((low & 15) | packed[group - 4] >> 6 << 4, (low >> 4) | packed[group] >> 6 << 4)
    };
    (f32::from(scale), f32::from(minimum))
}

/// Decodes 8 groups of 32 elements; bit `group` of the bytes in `high` is the fifth bit of quants.
fn k_groups(block: &[u8], high: Option<&[u8]>, quants: &[u8], elements: &mut [f32]) {
    let (scale, minimum) = (half_at(block, 0), half_at(block, 2));
    for (group, part) in elements.chunks_exact_mut(32).enumerate() {
        let (group_scale, group_minimum) = scale_and_minimum(&block[4..16], group);
        let (factor, offset) = (scale * group_scale, minimum * group_minimum);
        let bytes = &quants[group / 2 * 32..][..32];
        for (index, element) in part.iter_mut().enumerate() {
            let quant = bytes[index] >> (group % 2 * 4) & 15;
            let bit = high.map_or(0, |high| (high[index] >> group & 1) << 4);
            *element = factor * f32::from(quant | bit) - offset;
        }
    }
}

fn q4_k(block: &[u8], elements: &mut [f32]) {
    k_groups(block, None, &block[16..], elements);
}

fn q5_k(block: &[u8], elements: &mut [f32]) {
    k_groups(block, Some(&block[16..48]), &block[48..], elements);
}

/// Two halves of 128 elements, each of 4 rows of 32: a quant has 4 low and 2 high bits.
fn q6_k(block: &[u8], elements: &mut [f32]) {
    let scale = half_at(block, 208);
    for (half, part) in elements.chunks_exact_mut(128).enumerate() {
        let low = &block[half * 64..][..64];
        let high = &block[128 + half * 32..][..32];
        let scales = &block[192 + half * 8..][..8];
        for (index, element) in part.iter_mut().enumerate() {
            let (row, column) = (index / 32, index % 32);
            let nibble = low[row % 2 * 32 + column] >> (row / 2 * 4) & 15;
            let bits = high[column] >> (row * 2) & 3;
            let quant = i32::from(nibble | bits << 4) - 32;
            let group_scale = scales[row * 2 + column / 16] as i8;
            *element = scale * f32::from(group_scale) * quant as f32;
        }
    }
}
