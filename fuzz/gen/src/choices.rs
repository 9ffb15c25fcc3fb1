//! The stream of bounded choices from which every generator takes its decisions.
//!
//! Implementations: a fast random sequence, the bytes of a fuzzer, a recorded sequence and an
//! odometer over all sequences. The convention that makes shrinking work: **0 is always the
//! smallest choice**, and an exhausted source returns 0 for ever.

use arbitrary::Unstructured;
use gradiff_corpus::splitmix64;

/// A source of decisions. Generators read nothing else, so the choices determine the case.
pub trait Choices {
    /// Draws a number in `0..bound`; 0 is the smallest choice.
    ///
    /// # Panics
    /// May panic if `bound` is 0.
    fn below(&mut self, bound: u32) -> u32;

    /// Draws 64 bits, for seeds and bit patterns.
    fn bits(&mut self) -> u64 {
        let high = self.below(1 << 16) as u64;
        (high << 48)
            | ((self.below(1 << 16) as u64) << 32)
            | ((self.below(1 << 16) as u64) << 16)
            | self.below(1 << 16) as u64
    }

    /// Returns whether every further choice is 0; generators then stop adding statements.
    fn exhausted(&self) -> bool {
        false
    }

    /// Draws true with probability `1 / count`; false is the smaller choice. An enumeration takes
    /// each once.
    fn one_in(&mut self, count: u32) -> bool {
        self.below(count) == count - 1
    }

    /// Draws an index of `weights` with a probability proportional to its weight; 0 is the smallest
    /// choice. An enumeration takes each once.
    ///
    /// # Panics
    /// May panic if the weights add up to 0.
    fn weighted(&mut self, weights: &[u32]) -> usize {
        let mut ticket = self.below(weights.iter().sum());
        for (index, weight) in weights.iter().enumerate() {
            if ticket < *weight {
                return index;
            }
            ticket -= weight;
        }
        0
    }
}

impl dyn Choices + '_ {
    /// Draws one of the items; the first is the smallest choice.
    ///
    /// # Panics
    /// If there are no items.
    pub fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len() as u32) as usize]
    }
}

impl<C: Choices + ?Sized> Choices for &mut C {
    fn below(&mut self, bound: u32) -> u32 {
        (**self).below(bound)
    }

    fn bits(&mut self) -> u64 {
        (**self).bits()
    }

    fn exhausted(&self) -> bool {
        (**self).exhausted()
    }

    fn one_in(&mut self, count: u32) -> bool {
        (**self).one_in(count)
    }

    fn weighted(&mut self, weights: &[u32]) -> usize {
        (**self).weighted(weights)
    }
}

/// Returns the seed of case `index` of the run with `seed`, so that a case can be generated alone.
pub fn case_seed(seed: u64, index: u64) -> u64 {
    let golden = 0x9e37_79b9_7f4a_7c15_u64;
    let state = splitmix64(seed, 0) ^ index.wrapping_add(1).wrapping_mul(golden);
    splitmix64(state.wrapping_sub(golden), 0)
}

/// A fast endless random sequence (splitmix64): the same seed gives the same choices for ever.
#[derive(Clone, Debug)]
pub struct SeedChoices {
    seed: u64,
    drawn: u64,
}

impl SeedChoices {
    /// Creates the sequence of this seed.
    pub fn new(seed: u64) -> SeedChoices {
        SeedChoices { seed, drawn: 0 }
    }
}

impl Choices for SeedChoices {
    fn below(&mut self, bound: u32) -> u32 {
        assert!(bound > 0, "a choice needs at least one alternative");
        (((self.bits() >> 32) * bound as u64) >> 32) as u32
    }

    fn bits(&mut self) -> u64 {
        self.drawn += 1;
        splitmix64(self.seed, self.drawn - 1)
    }
}

/// Choices from the bytes of a fuzzer: one byte for bounds up to 256, two up to 65,536, else four.
/// After the last byte every choice is 0.
#[derive(Clone, Debug)]
pub struct ByteChoices<'a> {
    bytes: &'a [u8],
}

impl<'a> ByteChoices<'a> {
    /// Reads the bytes from the front.
    pub fn new(bytes: &'a [u8]) -> ByteChoices<'a> {
        ByteChoices { bytes }
    }
}

impl Choices for ByteChoices<'_> {
    fn below(&mut self, bound: u32) -> u32 {
        assert!(bound > 0, "a choice needs at least one alternative");
        let size_bytes = match bound {
            1 => return 0,
            2..=256 => 1,
            257..=65_536 => 2,
            _ => 4,
        };
        let (head, tail) = self.bytes.split_at(size_bytes.min(self.bytes.len()));
        self.bytes = tail;
        head.iter().fold(0_u32, |word, &byte| (word << 8) | byte as u32) % bound
    }

    fn exhausted(&self) -> bool {
        self.bytes.is_empty()
    }
}

/// Replays a recorded sequence, then 0. A number that is too large for its bound is reduced modulo
/// the bound, so edited recordings are valid, too.
#[derive(Clone, Debug)]
pub struct Replay<'a> {
    choices: &'a [u64],
}

impl<'a> Replay<'a> {
    /// Replays these choices in order.
    pub fn new(choices: &'a [u64]) -> Replay<'a> {
        Replay { choices }
    }

    fn next(&mut self) -> u64 {
        match self.choices.split_first() {
            Some((&first, rest)) => {
                self.choices = rest;
                first
            }
            None => 0,
        }
    }
}

impl Choices for Replay<'_> {
    fn below(&mut self, bound: u32) -> u32 {
        assert!(bound > 0, "a choice needs at least one alternative");
        (self.next() % bound as u64) as u32
    }

    fn bits(&mut self) -> u64 {
        self.next()
    }

    fn exhausted(&self) -> bool {
        self.choices.is_empty()
    }
}

/// Forwards choices and records them for `Replay`.
#[derive(Clone, Debug)]
pub struct Recorder<C> {
    inner: C,
    choices: Vec<u64>,
}

impl<C: Choices> Recorder<C> {
    /// Records the choices of `inner`.
    pub fn new(inner: C) -> Recorder<C> {
        Recorder { inner, choices: Vec::new() }
    }

    /// Returns the recording, one number per call of `below` or `bits`.
    pub fn into_record(self) -> Vec<u64> {
        self.choices
    }
}

impl<C: Choices> Choices for Recorder<C> {
    fn below(&mut self, bound: u32) -> u32 {
        let choice = self.inner.below(bound);
        self.choices.push(choice as u64);
        choice
    }

    fn bits(&mut self) -> u64 {
        let choice = self.inner.bits();
        self.choices.push(choice);
        choice
    }

    fn exhausted(&self) -> bool {
        self.inner.exhausted()
    }
}

/// Enumerates all choice sequences of a generator, as an odometer does: run the generator, call
/// `advance`, run it again, until `advance` returns false. `bits` is a choice of 0 or 1, and
/// weights are ignored.
///
/// ```
/// use gradiff_gen::{Choices, Exhaustive};
/// let mut choices = Exhaustive::new();
/// let mut seen = Vec::new();
/// loop {
///     let first = choices.below(2);
///     let second = if first == 1 { choices.below(3) } else { 9 };
///     seen.push((first, second));
///     if !choices.advance() {
///         break;
///     }
/// }
/// assert_eq!(seen, [(0, 9), (1, 0), (1, 1), (1, 2)]);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Exhaustive {
    wheels: Vec<(u32, u32)>,
    position: usize,
}

impl Exhaustive {
    /// Starts with the sequence of zeros.
    pub fn new() -> Exhaustive {
        Exhaustive::default()
    }

    /// Moves to the next sequence; returns false if there is none.
    pub fn advance(&mut self) -> bool {
        self.wheels.truncate(self.position);
        self.position = 0;
        while let Some((value, bound)) = self.wheels.last_mut() {
            *value += 1;
            if value < bound {
                return true;
            }
            self.wheels.pop();
        }
        false
    }
}

impl Choices for Exhaustive {
    fn below(&mut self, bound: u32) -> u32 {
        assert!(bound > 0, "a choice needs at least one alternative");
        if self.position == self.wheels.len() {
            self.wheels.push((0, bound));
        }
        let (value, recorded) = self.wheels[self.position];
        assert_eq!(recorded, bound, "a generator must depend on its choices only");
        self.position += 1;
        value
    }

    fn bits(&mut self) -> u64 {
        self.below(2) as u64
    }

    fn one_in(&mut self, count: u32) -> bool {
        self.below(count.min(2)) == count.min(2) - 1
    }

    fn weighted(&mut self, weights: &[u32]) -> usize {
        self.below(weights.len() as u32) as usize
    }
}

/// Choices from the unstructured bytes of `arbitrary`; reads no more bytes than it needs.
pub(crate) struct ArbitraryChoices<'a, 'b>(pub(crate) &'a mut Unstructured<'b>);

impl Choices for ArbitraryChoices<'_, '_> {
    fn below(&mut self, bound: u32) -> u32 {
        assert!(bound > 0, "a choice needs at least one alternative");
        // Drawing from an integer range never fails: an empty source gives the start of the range.
        self.0.int_in_range(0..=bound - 1).unwrap_or(0)
    }

    fn exhausted(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exhausted_bytes_give_zero() {
        let mut choices = ByteChoices::new(&[7, 1, 2]);
        assert_eq!(choices.below(5), 2);
        assert_eq!(choices.below(60_000), 258);
        assert!(choices.exhausted());
        assert_eq!(choices.below(1000), 0);
    }

    #[test]
    fn case_seeds_differ() {
        let mut seeds: Vec<u64> =
            (0..100).flat_map(|seed| (0..100).map(move |i| case_seed(seed, i))).collect();
        seeds.sort_unstable();
        seeds.dedup();
        assert_eq!(seeds.len(), 10_000);
    }

    #[test]
    fn sequences_of_seeds_never_change() {
        assert_eq!(case_seed(1, 0), 0xddc1_ed05_282d_1d64);
        assert_eq!(case_seed(7, 3), 0x7b8b_8a0a_2343_ccd7);
        let mut choices = SeedChoices::new(1);
        let bits = [choices.bits(), choices.bits()];
        assert_eq!(bits, [0x910a_2dec_8902_5cc1, 0xbeeb_8da1_658e_ec67]);
    }

    #[test]
    fn seed_choices_are_spread_evenly() {
        let mut choices = SeedChoices::new(3);
        let mut counts = [0; 7];
        for _ in 0..70_000 {
            counts[choices.below(7) as usize] += 1;
        }
        assert!(counts.iter().all(|count| (9_500..10_500).contains(count)), "{counts:?}");
    }
}
