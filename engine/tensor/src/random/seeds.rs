//! The seed of the process and the streams of its devices: which counters of Threefry a call gets.
//!
//! As in tinygrad 0.10.2: a device's key is the seed, and a hash of the number of devices that drew
//! before it since the seed was set. A call advances the counter of its device by the 32-bit words
//! that it needs, but for the first call, which begins at 0.

use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// The last four bytes of the SHA-256 hashes of the numbers 0, 1, ... in four bytes, all big endian
/// (`oracle/upstream/random_numbers.py` prints them). More than there are devices.
const DEVICE_KEYS: [u32; 16] = [
    0x14b8_1119,
    0x764f_528d,
    0xdb12_cf1a,
    0x0f79_f7d3,
    0x900b_0937,
    0x3eaa_7569,
    0x7c01_72cb,
    0x28a3_a23b,
    0x1503_6943,
    0xdfa2_85d3,
    0xeae3_1389,
    0xf888_ebe4,
    0x9a1c_7059,
    0x4273_a435,
    0x5a33_36e3,
    0x0f41_de35,
];

/// The key and the first counter of the numbers of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Draw {
    /// Word 0 is the device's, word 1 the seed.
    pub(super) key: u64,
    pub(super) counter: u32,
}

/// A device that drew since the seed was set.
struct Stream {
    device: &'static str,
    counter: u32,
}

struct Generator {
    seed: u32,
    /// In the order of their first draws.
    streams: Vec<Stream>,
}

static GENERATOR: Mutex<Option<Generator>> = Mutex::new(None);

/// Sets the seed, of which the low 32 bits count, and forgets all streams.
pub(super) fn set_seed(seed: u64) {
    let mut generator = GENERATOR.lock().unwrap_or_else(PoisonError::into_inner);
    *generator = Some(Generator::new(seed));
}

/// Returns the key and the counter for so many words on a device. Without a seed, the time in
/// seconds is the seed.
pub(super) fn draw(device: &'static str, words: u32) -> Draw {
    let seconds = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let mut generator = GENERATOR.lock().unwrap_or_else(PoisonError::into_inner);
    generator.get_or_insert_with(|| Generator::new(seconds())).draw(device, words)
}

impl Generator {
    fn new(seed: u64) -> Generator {
        Generator { seed: seed as u32, streams: Vec::new() }
    }

    fn draw(&mut self, device: &'static str, words: u32) -> Draw {
        let known = self.streams.iter().position(|stream| stream.device == device);
        let position = match known {
            Some(position) => {
                let stream = &mut self.streams[position];
                stream.counter = stream.counter.wrapping_add(words);
                position
            }
            None => {
                self.streams.push(Stream { device, counter: 0 });
                self.streams.len() - 1
            }
        };
        let device_key = DEVICE_KEYS[position];
        Draw {
            key: u64::from(self.seed) << 32 | u64::from(device_key),
            counter: self.streams[position].counter,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_device_has_a_key() {
        assert!(gradiff_runtime::device_names().len() <= DEVICE_KEYS.len());
        let text = include_str!("../../../tests/random_numbers.txt");
        let rows = text.lines().filter_map(|line| line.strip_prefix("key ")?.split_once(" = "));
        let found: Vec<(String, String)> =
            rows.map(|(number, key)| (number.to_string(), key.to_string())).collect();
        let keys = DEVICE_KEYS.iter().enumerate();
        let expected: Vec<(String, String)> =
            keys.map(|(number, key)| (number.to_string(), format!("{key:x}"))).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn a_draw_advances_the_counter_by_its_words_unless_it_is_the_first() {
        let mut generator = Generator::new(7 + (5 << 32));
        let key = |number: usize| 7 << 32 | u64::from(DEVICE_KEYS[number]);
        for (device, words, expected) in [
            ("jit", 10, (key(0), 0)),
            ("jit", 3, (key(0), 3)),
            ("interp", 4, (key(1), 0)),
            ("jit", 5, (key(0), 8)),
            ("interp", u32::MAX, (key(1), u32::MAX)),
            ("interp", 2, (key(1), 1)),
        ] {
            let Draw { key, counter } = generator.draw(device, words);
            assert_eq!((key, counter), expected, "{device} {words}");
        }
    }
}
