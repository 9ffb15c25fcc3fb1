//! Hash functions of the Keccak family, as FIPS 202 defines them. A round of the permutation is
//! four kernels, the same ones in each round: its number is in a buffer.

use gradiff_graph::DType;

use crate::error::invalid;
use crate::{Error, Tensor};

/// Rounds of the permutation.
const ROUNDS: i64 = 24;
/// Lanes of the state, of 64 bits each: lane `5 y + x` is A[x, y] of the standard.
const LANES: i64 = 25;
/// The constants of the rounds, for the first lane.
const ROUND_CONSTANTS: [u64; ROUNDS as usize] = [
    0x0000_0000_0000_0001,
    0x0000_0000_0000_8082,
    0x8000_0000_0000_808a,
    0x8000_0000_8000_8000,
    0x0000_0000_0000_808b,
    0x0000_0000_8000_0001,
    0x8000_0000_8000_8081,
    0x8000_0000_0000_8009,
    0x0000_0000_0000_008a,
    0x0000_0000_0000_0088,
    0x0000_0000_8000_8009,
    0x0000_0000_8000_000a,
    0x0000_0000_8000_808b,
    0x8000_0000_0000_008b,
    0x8000_0000_0000_8089,
    0x8000_0000_0000_8003,
    0x8000_0000_0000_8002,
    0x8000_0000_0000_0080,
    0x0000_0000_0000_800a,
    0x8000_0000_8000_000a,
    0x8000_0000_8000_8081,
    0x8000_0000_0000_8080,
    0x0000_0000_8000_0001,
    0x8000_0000_8000_8008,
];
/// Maximum number of bytes of a message, each block of which is some hundred kernels.
const MAX_MESSAGE: i64 = 1 << 16;
/// Bytes of a message that [`Tensor::hash`] splits its bytes into, and of the parts of one.
const MESSAGE: i64 = 1 << 20;
const PART: i64 = 1 << 12;

/// A hash function of the Keccak family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keccak {
    /// SHA3-224: digests of 28 bytes.
    Sha3_224,
    /// SHA3-256: digests of 32 bytes.
    #[default]
    Sha3_256,
    /// SHAKE128, with digests of 16 bytes.
    Shake128,
}

impl Keccak {
    /// Bytes that are absorbed at a time.
    fn rate(self) -> i64 {
        match self {
            Keccak::Sha3_224 => 144,
            Keccak::Sha3_256 => 136,
            Keccak::Shake128 => 168,
        }
    }

    fn digest_bytes(self) -> i64 {
        (200 - self.rate()) / 2
    }

    /// The bytes after a message of `length`.
    fn padding(self, length: i64) -> Vec<u8> {
        let mut bytes = vec![0; (self.rate() - length % self.rate()) as usize];
        bytes[0] = if self == Keccak::Shake128 { 0x1f } else { 0x06 };
        *bytes.last_mut().expect("there is a first one") |= 0x80;
        bytes
    }
}

/// The tables of the step that rotates and permutes lanes: which lane each one takes, and by how
/// many bits it is rotated to the left.
fn lanes() -> ([i32; LANES as usize], [u64; LANES as usize]) {
    let mut offsets = [0; LANES as usize];
    let (mut x, mut y) = (1, 0);
    for t in 0..LANES as usize - 1 {
        offsets[5 * y + x] = ((t + 1) * (t + 2) / 2 % 64) as u64;
        (x, y) = (y, (2 * x + 3 * y) % 5);
    }
    let source = |lane: usize| 5 * (lane % 5) + (lane % 5 + 3 * (lane / 5)) % 5;
    let sources = std::array::from_fn(|lane| source(lane) as i32);
    (sources, std::array::from_fn(|lane| offsets[source(lane)]))
}

/// Rotates words of 64 bits to the left, by less than 64.
fn rotated(words: &Tensor, bits: &Tensor) -> Result<Tensor, Error> {
    let rest = bits.xor(63)?;
    words.shl(bits)?.or(&words.shr(1)?.shr(&rest)?)
}

/// The permutation of states [n, 25].
fn permuted(state: &Tensor) -> Result<Tensor, Error> {
    let count = state.shape()[0];
    let (sources, offsets) = lanes();
    let sources = Tensor::from_slice(&[1, LANES], &sources)?.beside(state)?;
    let sources = sources.expand(&[count, LANES])?;
    let offsets = Tensor::from_slice(&[LANES], &offsets)?.beside(state)?;
    let constants = Tensor::from_slice(&[ROUNDS], &ROUND_CONSTANTS)?.beside(state)?;
    let single_bit = Tensor::ones(DType::U64, &[])?;
    let mut round = Tensor::from_slice(&[1], &[0])?.beside(state)?;
    let mut state = state.clone();
    for _ in 0..ROUNDS {
        let columns = state.reshape(&[count, 5, 5])?;
        let mut parity = columns.range(1, 0, 1)?;
        for row in 1..5 {
            parity = parity.xor(&columns.range(1, row, row + 1)?)?;
        }
        let next = rotated(&parity.roll(&[-1], &[2])?, &single_bit)?;
        let parity = parity.roll(&[1], &[2])?.xor(&next)?.contiguous();
        let mixed = columns.xor(&parity)?.reshape(&[count, LANES])?;
        let moved = rotated(&mixed.gather(1, &sources)?, &offsets)?.contiguous();
        let rows = moved.reshape(&[count, 5, 5])?;
        let [second, third] = [rows.roll(&[-1], &[2])?, rows.roll(&[-2], &[2])?];
        let rows = rows.xor(&second.not()?.and(&third)?)?.reshape(&[count, LANES])?;
        let constant = constants.gather(0, &round)?.pad_to(&[LANES])?;
        state = rows.xor(&constant)?.contiguous();
        round = round.add(1)?.contiguous();
    }
    Ok(state)
}

impl Tensor {
    /// The digests (u8) of the bytes of the elements along the last axis, little endian, in its
    /// place. All dtypes; a bool is a byte that is 0 or 1. The digest of constants is on the
    /// default device, as data is. For a long message, whose parts depend on those before them, see
    /// [`hash`](Tensor::hash).
    /// # Errors
    /// If the tensor is a scalar, or there are more than 65,536 bytes along the last axis.
    ///
    /// ```
    /// # use gradiff_tensor::{Keccak, Tensor};
    /// let x = Tensor::from_slice(&[3], b"abc")?;
    /// let digest = x.keccak(Keccak::Sha3_256)?.to_vec::<u8>()?;
    /// assert_eq!(digest[..4], [0x3a, 0x98, 0x5d, 0xa7]);
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn keccak(&self, function: Keccak) -> Result<Tensor, Error> {
        let Some((_, outer)) = self.shape().split_last() else {
            return invalid("keccak of a scalar: it takes an axis of bytes".to_string());
        };
        let bytes = self.shape()[outer.len()] * self.dtype().size_bytes() as i64;
        if MAX_MESSAGE < bytes {
            return invalid(format!(
                "keccak of {:?}: {bytes} bytes along the last axis, at most {MAX_MESSAGE}",
                self.shape()
            ));
        }
        let count = outer.iter().product();
        let target = [outer, &[function.digest_bytes()]].concat();
        if count == 0 {
            return Tensor::zeros(DType::U8, &target);
        }
        let message = self.bytes()?;
        let length = message.shape()[message.rank() - 1];
        let message = message.reshape(&[count, length])?;
        let padding = function.padding(length);
        let padding = Tensor::from_slice(&[1, padding.len() as i64], &padding)?.beside(self)?;
        let padding = padding.expand(&[count, padding.shape()[1]])?;
        let padded = Tensor::cat(&[&message, &padding], 1)?;
        let (blocks, words) = (padded.shape()[1] / function.rate(), function.rate() / 8);
        let words_of_bytes = padded.reshape(&[count, blocks, words, 8])?.cast(DType::U64)?;
        let shifts = Tensor::arange(DType::U64, 0, 8, 8)?;
        let blocks_of_words = words_of_bytes.shl(&shifts)?.sum(-1)?;
        let lanes = blocks_of_words.pad_to(&[count, blocks, LANES])?.contiguous();
        let mut state = Tensor::zeros(DType::U64, &[count, LANES])?;
        for block in 0..blocks {
            let block = lanes.range(1, block, block + 1)?.reshape(&[count, LANES])?;
            state = permuted(&state.xor(&block)?.contiguous())?;
        }
        state.bytes()?.range(1, 0, function.digest_bytes())?.reshape(&target)
    }

    /// The digest (u8, 16 bytes) of all bytes of the elements, in row-major order: those of
    /// messages of 1 MiB, zeros added, each of which is the SHAKE128 of the digests of its parts of
    /// 4 KiB; again of what several messages give, until there is one. tinygrad's, so that the
    /// parts are computed side by side. All dtypes.
    /// # Errors
    /// If there are more than [`MAX_ELEMENTS`](crate::MAX_ELEMENTS) bytes.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[3], b"abc")?;
    /// assert_eq!(x.hash()?.shape(), [16]);
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn hash(&self) -> Result<Tensor, Error> {
        let mut bytes = self.reshape(&[self.size_elements()])?.bytes()?;
        loop {
            let count = ((bytes.size_elements() + MESSAGE - 1) / MESSAGE).max(1);
            let padded = bytes.pad_to(&[count * MESSAGE])?;
            let parts = padded.reshape(&[count * (MESSAGE / PART), PART])?;
            let digests = parts.keccak(Keccak::Shake128)?;
            let digests = digests.reshape(&[count, digests.size_elements() / count])?;
            let digests = digests.keccak(Keccak::Shake128)?;
            bytes = digests.reshape(&[digests.size_elements()])?;
            if count == 1 {
                return Ok(bytes);
            }
        }
    }

    /// The bytes (u8) of the elements, little endian, along the last axis.
    fn bytes(&self) -> Result<Tensor, Error> {
        let word = match self.dtype().size_bytes() {
            1 if self.dtype() == DType::Bool => return self.cast(DType::U8),
            1 => return self.bitcast(DType::U8),
            2 => DType::U16,
            4 => DType::U32,
            _ => DType::U64,
        };
        let size = word.size_bytes() as i64;
        let mut shape = self.shape().to_vec();
        shape.push(1);
        let shifts = Tensor::arange(word, 0, 8, size)?;
        let bytes = self.bitcast(word)?.reshape(&shape)?.shr(&shifts)?.cast(DType::U8)?;
        shape.pop();
        *shape.last_mut().expect("it is not a scalar") *= size;
        bytes.reshape(&shape)
    }
}
