//! Zip archives that are written byte by byte, with entries that are compressed or not.

use crate::checks::calls::Draw;

/// Methods of compression: none, and that of RFC 1951.
const STORED: u16 = 0;
const DEFLATED: u16 = 8;

/// The sizes and the checksum of an entry before its data.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Sizes {
    Here,
    /// In a descriptor after the data, as PyTorch writes them.
    After,
    /// Sizes of 64 bits in an extra field, as NumPy writes them.
    Wide,
}

/// An entry, as it is in an archive.
#[derive(Clone)]
pub(super) struct Entry {
    pub(super) name: String,
    /// The number of the method of compression.
    pub(super) method: u16,
    /// The bytes in the archive.
    pub(super) stored: Vec<u8>,
    /// Size and checksum of the bytes before compression.
    pub(super) size: usize,
    pub(super) crc: u32,
    pub(super) sizes: Sizes,
    /// An extra field between the name and the data, which aligns the data.
    pub(super) extra: Vec<u8>,
    /// The entry whose data the directory has for this one, if it is another.
    pub(super) data_of: Option<usize>,
}

impl Entry {
    /// An entry without compression.
    pub(super) fn stored(name: &str, data: Vec<u8>) -> Entry {
        let (size, crc) = (data.len(), crc(&data));
        let (name, sizes, extra) = (name.to_string(), Sizes::Here, Vec::new());
        Entry { name, method: STORED, stored: data, size, crc, sizes, extra, data_of: None }
    }

    /// An entry with compression.
    pub(super) fn deflated(name: &str, data: Vec<u8>) -> Entry {
        let stored = deflate(&data);
        Entry { method: DEFLATED, stored, ..Entry::stored(name, data) }
    }

    /// An entry that is compressed or not, and aligned or not, with sizes as any writer has them.
    pub(super) fn drawn(draw: &mut Draw, name: &str, data: Vec<u8>) -> Entry {
        let mut entry = match draw.below(3) {
            0 => Entry::deflated(name, data),
            1 if data.len() < 1 << 16 => Entry { method: DEFLATED, ..in_a_block(name, data) },
            _ => Entry::stored(name, data),
        };
        entry.sizes = draw.pick(&[Sizes::Here, Sizes::After, Sizes::Wide]);
        if draw.one_in(2) {
            // As PyTorch does: a field of its own, whose data is all the same.
            let size = draw.below(64);
            entry.extra = [b"FB".as_slice(), &(size as u16).to_le_bytes()].concat();
            entry.extra.resize(4 + size, b'Z');
        }
        entry
    }

    /// The checksum, and the sizes in the archive and before compression.
    fn known(&self) -> [u32; 3] {
        [self.crc, self.stored.len() as u32, self.size as u32]
    }
}

/// An entry whose data is in a single block that has it as it is.
fn in_a_block(name: &str, data: Vec<u8>) -> Entry {
    let size = data.len() as u16;
    let lengths = [size, !size].map(u16::to_le_bytes).concat();
    let stored = [[1].as_slice(), &lengths, &data].concat();
    Entry { stored, ..Entry::stored(name, data) }
}

/// The checksum of zip.
pub(super) fn crc(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
    !bytes.iter().fold(u32::MAX, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), step))
}

/// Bits, of which the first is the lowest of the first byte.
#[derive(Default)]
struct Bits {
    bytes: Vec<u8>,
    count: usize,
}

impl Bits {
    fn push(&mut self, bit: u32) {
        if self.count.is_multiple_of(8) {
            self.bytes.push(0);
        }
        self.bytes[self.count / 8] |= (bit as u8 & 1) << (self.count % 8);
        self.count += 1;
    }

    /// Appends a code of `size` bits, whose highest bit is first.
    fn code(&mut self, code: u32, size: u32) {
        (0..size).rev().for_each(|bit| self.push(code >> bit));
    }
}

/// Compresses bytes to a single block of RFC 1951 with the fixed codes, in which bytes that repeat
/// are copies of the byte before them.
fn deflate(data: &[u8]) -> Vec<u8> {
    let mut bits = Bits::default();
    // The last block, of type 1 in two bits, the lower bit first.
    for bit in [1, 1, 0] {
        bits.push(bit);
    }
    let mut at = 0;
    while at < data.len() {
        let same = |byte: &&u8| 0 < at && **byte == data[at - 1];
        let run = data[at..].iter().take(258).take_while(same).count();
        // The lengths from 3 to 10 and of 258 have no further bits. The distance of 1 has five 0.
        let length = if run < 258 { run.min(10) } else { run };
        match length {
            258 => bits.code(0xc5, 8),
            3..=10 => bits.code(length as u32 - 2, 7),
            _ => match u32::from(data[at]) {
                byte @ 0..=143 => bits.code(0x30 + byte, 8),
                byte => bits.code(0x190 + byte - 144, 9),
            },
        }
        if 3 <= length {
            bits.code(0, 5);
        }
        at += if 3 <= length { length } else { 1 };
    }
    bits.code(0, 7);
    bits.bytes
}

/// A zip archive.
pub(super) fn archive(entries: &[Entry]) -> Vec<u8> {
    let mut bytes: Vec<u8> = Vec::new();
    let mut offsets = Vec::new();
    for entry in entries {
        offsets.push(bytes.len() as u32);
        let (mut known, mut extra, mut after) = (entry.known(), entry.extra.clone(), Vec::new());
        match entry.sizes {
            Sizes::Here => {}
            Sizes::After => {
                after = [b"PK\x07\x08".as_slice(), &known.map(u32::to_le_bytes).concat()].concat();
                known = [0; 3];
            }
            Sizes::Wide => {
                let sizes = [known[2], known[1]].map(|size| u64::from(size).to_le_bytes());
                extra = [b"\x01\0\x10\0".as_slice(), &sizes.concat(), &extra].concat();
                known = [entry.crc, u32::MAX, u32::MAX];
            }
        }
        bytes.extend(b"PK\x03\x04");
        bytes.extend(common_fields(entry, known, extra.len()));
        bytes.extend([entry.name.as_bytes(), &extra, &entry.stored, &after].concat());
    }
    let start = bytes.len();
    for (at, entry) in entries.iter().enumerate() {
        bytes.extend(b"PK\x01\x02\x14\x00");
        bytes.extend(common_fields(entry, entry.known(), 0));
        // No comment, on the first disk, without attributes.
        bytes.extend([0u8; 10]);
        bytes.extend(offsets[entry.data_of.unwrap_or(at)].to_le_bytes());
        bytes.extend(entry.name.bytes());
    }
    let (size, count) = (bytes.len() - start, entries.len());
    if entries.iter().any(|entry| entry.sizes == Sizes::After) {
        // As PyTorch does: the end in 64 bits, and its offset.
        let offset = bytes.len() as u64;
        bytes.extend(b"PK\x06\x06\x2c\0\0\0\0\0\0\0\x1e\x03\x2d\0\0\0\0\0\0\0\0\0");
        bytes.extend([count, count, size, start].map(|word| (word as u64).to_le_bytes()).concat());
        bytes.extend(b"PK\x06\x07\0\0\0\0");
        bytes.extend(offset.to_le_bytes());
        bytes.extend(1u32.to_le_bytes());
    }
    bytes.extend(b"PK\x05\x06\x00\x00\x00\x00");
    bytes.extend([count, count].map(|count| (count as u16).to_le_bytes()).concat());
    bytes.extend([size, start].map(|word| (word as u32).to_le_bytes()).concat());
    bytes.extend([0u8; 2]);
    bytes
}

/// The fields that an entry has before its data and in the directory: from the version that is
/// needed to the length of extra fields.
fn common_fields(entry: &Entry, known: [u32; 3], extra_size: usize) -> Vec<u8> {
    // The flags say that the name is UTF-8, and that the sizes are after the data.
    let is_after = entry.sizes == Sizes::After;
    let flags = u16::from(!entry.name.is_ascii()) << 11 | u16::from(is_after) << 3;
    let mut fields = [20u16, flags, entry.method, 0, 0x21].map(u16::to_le_bytes).concat();
    fields.extend(known.map(u32::to_le_bytes).concat());
    let lengths = [entry.name.len(), extra_size].map(|length| length as u16);
    fields.extend(lengths.map(u16::to_le_bytes).concat());
    fields
}
