//! Random numbers. Seeds of hunts, tests and snapshots depend on these sequences, so they never
//! change.

use gradiff_corpus::splitmix64;

/// The sequence [`splitmix64`] of a seed.
pub(crate) struct Random {
    seed: u64,
    drawn: u64,
}

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random { seed, drawn: 0 }
    }

    /// 64 bits.
    pub(crate) fn bits(&mut self) -> u64 {
        self.drawn += 1;
        splitmix64(self.seed, self.drawn - 1)
    }

    pub(crate) fn below(&mut self, count: u64) -> u64 {
        self.bits() % count
    }
}

/// The next state of a sequence (xorshift64), which is its next number as well.
pub(crate) fn xorshift(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_never_change() {
        let mut random = Random::new(1);
        let bits = [random.bits(), random.bits()];
        assert_eq!(bits, [0x910a_2dec_8902_5cc1, 0xbeeb_8da1_658e_ec67]);
        let mut state = 1;
        let numbers = [xorshift(&mut state), xorshift(&mut state)];
        assert_eq!(numbers, [0x4082_2041, 0x1000_4106_0c01_1441]);
    }
}
