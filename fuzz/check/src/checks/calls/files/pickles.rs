//! Pickles that are written byte by byte, after the opcodes in Python's `pickletools`.

use std::collections::BTreeMap;

use crate::checks::calls::Draw;

/// A Python object, as checkpoints have them.
#[derive(Clone, Debug)]
pub(super) enum Object {
    None,
    Bool(bool),
    Int(i64),
    /// An integer of nine bytes.
    Large,
    Float(f64),
    Text(String),
    Bytes(Vec<u8>),
    Tuple(Vec<Object>),
    List(Vec<Object>),
    Dict(Vec<(Object, Object)>),
    /// A name in a module.
    Global(&'static str, &'static str),
    /// The result of a function for a tuple of arguments.
    Call(Box<Object>, Box<Object>),
    /// An object outside of the pickle, by its id.
    Persistent(Box<Object>),
    /// An object with further items.
    Items(Box<Object>, Vec<(Object, Object)>),
    /// An object with attributes.
    State(Box<Object>, Box<Object>),
    /// An object that is used again under this number.
    Kept(usize, Box<Object>),
    Again(usize),
    /// Opcodes.
    Raw(Vec<u8>),
}

impl Object {
    pub(super) fn text(text: &str) -> Object {
        Object::Text(text.to_string())
    }

    /// A call of a function of a module.
    pub(super) fn call(module: &'static str, name: &'static str, args: Vec<Object>) -> Object {
        let function = Box::new(Object::Global(module, name));
        Object::Call(function, Box::new(Object::Tuple(args)))
    }

    /// An ordered dict.
    pub(super) fn ordered(items: Vec<(Object, Object)>) -> Object {
        Object::Items(Box::new(Object::call("collections", "OrderedDict", Vec::new())), items)
    }

    /// A tuple of numbers.
    pub(super) fn numbers(numbers: &[i64]) -> Object {
        Object::Tuple(numbers.iter().map(|number| Object::Int(*number)).collect())
    }
}

/// The bytes of a pickle: of the opcodes that mean the same, some.
pub(super) fn pickle(draw: &mut Draw, root: &Object) -> Vec<u8> {
    let protocol = draw.pick(&[2u8, 2, 3, 4, 5]);
    // Later numbers do not fit into a byte.
    let first = draw.pick(&[0u32, 0, 253, 70_000]);
    let (known, kept) = (BTreeMap::new(), BTreeMap::new());
    let mut writer = Writer { draw, bytes: Vec::new(), first, count: 0, known, kept };
    writer.object(root);
    let body = [&writer.bytes[..], b"."].concat();
    let mut bytes = vec![0x80, protocol];
    if 4 <= protocol {
        bytes.push(0x95);
        bytes.extend((body.len() as u64).to_le_bytes());
    }
    bytes.extend(body);
    bytes
}

struct Writer<'a> {
    draw: &'a mut Draw,
    bytes: Vec<u8>,
    /// The number of the first value in the memo.
    first: u32,
    /// The number of values in the memo.
    count: u32,
    /// Numbers of texts and of names in the memo.
    known: BTreeMap<String, u32>,
    /// Numbers of objects that are used again.
    kept: BTreeMap<usize, u32>,
}

impl Writer<'_> {
    fn object(&mut self, object: &Object) {
        if self.draw.one_in(32) {
            // A value that is dropped.
            self.bytes.extend(b"N0");
        }
        match object {
            Object::None => self.bytes.push(b'N'),
            Object::Bool(value) => self.bytes.push(if *value { 0x88 } else { 0x89 }),
            Object::Int(value) => self.int(*value),
            Object::Large => self.bytes.extend([0x8a, 9, 0, 0, 0, 0, 0, 0, 0, 0, 1]),
            Object::Float(value) => {
                self.bytes.push(b'G');
                self.bytes.extend(value.to_be_bytes());
            }
            Object::Text(text) => {
                self.shared(format!("text {text}"), &mut |writer| writer.text(text));
            }
            Object::Bytes(bytes) => self.sized(bytes, [Some(b'C'), Some(b'B'), None]),
            Object::Tuple(items) => self.tuple(items),
            Object::List(items) => self.list(items),
            Object::Dict(items) => {
                self.bytes.push(b'}');
                self.items(items);
            }
            Object::Global(module, name) => {
                let key = format!("name {module} {name}");
                self.shared(key, &mut |writer| writer.global(module, name));
            }
            Object::Call(function, arguments) => {
                self.object(function);
                self.object(arguments);
                self.bytes.push(b'R');
            }
            Object::Persistent(id) => {
                self.object(id);
                self.bytes.push(b'Q');
            }
            Object::Items(target, items) => {
                self.object(target);
                self.items(items);
            }
            Object::State(target, state) => {
                self.object(target);
                self.object(state);
                self.bytes.push(b'b');
            }
            Object::Kept(number, object) => {
                self.object(object);
                let index = self.put();
                self.kept.insert(*number, index);
            }
            Object::Again(number) => self.get(self.kept[number]),
            Object::Raw(bytes) => self.bytes.extend(bytes),
        }
    }

    /// Writes a value, or takes it from the memo if it is there.
    fn shared(&mut self, key: String, write: &mut dyn FnMut(&mut Self)) {
        let known = self.known.get(&key).copied();
        match known.filter(|_| !self.draw.one_in(3)) {
            Some(index) => self.get(index),
            None => {
                write(self);
                if self.draw.one_in(2) {
                    let index = self.put();
                    self.known.insert(key, index);
                }
            }
        }
    }

    /// Puts the last value into the memo, and returns its number there.
    fn put(&mut self) -> u32 {
        let index = self.first + self.count;
        match (u8::try_from(index), self.draw.below(3)) {
            // The number is that of the values before.
            (_, 0) if self.first == 0 => self.bytes.push(0x94),
            (Ok(index), 1) => self.bytes.extend([b'q', index]),
            _ => {
                self.bytes.push(b'r');
                self.bytes.extend(index.to_le_bytes());
            }
        }
        self.count += 1;
        index
    }

    fn get(&mut self, index: u32) {
        match u8::try_from(index) {
            Ok(index) if self.draw.one_in(2) => self.bytes.extend([b'h', index]),
            _ => {
                self.bytes.push(b'j');
                self.bytes.extend(index.to_le_bytes());
            }
        }
    }

    fn int(&mut self, value: i64) {
        let kind = self.draw.below(3);
        match (kind, u8::try_from(value), u16::try_from(value), i32::try_from(value)) {
            (0, Ok(value), _, _) => self.bytes.extend([b'K', value]),
            (0 | 1, _, Ok(value), _) => {
                self.bytes.push(b'M');
                self.bytes.extend(value.to_le_bytes());
            }
            (0 | 1, _, _, Ok(value)) => {
                self.bytes.push(b'J');
                self.bytes.extend(value.to_le_bytes());
            }
            _ => {
                let mut bytes = value.to_le_bytes().to_vec();
                // A byte is idle if it repeats the sign bit of the byte before it.
                let is_idle = |bytes: &[u8]| match bytes {
                    [.., before, last] => *last == if *before < 0x80 { 0 } else { 0xff },
                    bytes => bytes == [0],
                };
                while is_idle(&bytes) && !self.draw.one_in(4) {
                    bytes.pop();
                }
                self.bytes.extend([0x8a, bytes.len() as u8]);
                self.bytes.extend(bytes);
            }
        }
    }

    fn text(&mut self, text: &str) {
        self.sized(text.as_bytes(), [Some(0x8c), Some(b'X'), Some(0x8d)]);
    }

    /// Writes bytes after their number in 1, 4 or 8 bytes, if there is an opcode for it.
    fn sized(&mut self, bytes: &[u8], opcodes: [Option<u8>; 3]) {
        let size = (bytes.len() as u64).to_le_bytes();
        let known = opcodes.into_iter().zip([1, 4, 8]);
        let known = known.filter_map(|(opcode, count)| Some((opcode?, count)));
        let possible = known.filter(|(_, count)| *count != 1 || bytes.len() < 256);
        let (opcode, count) = self.draw.pick(&possible.collect::<Vec<(u8, usize)>>());
        self.bytes.push(opcode);
        self.bytes.extend(&size[..count]);
        self.bytes.extend(bytes);
    }

    fn global(&mut self, module: &str, name: &str) {
        if self.draw.one_in(2) {
            self.bytes.extend(format!("c{module}\n{name}\n").bytes());
            return;
        }
        self.object(&Object::text(module));
        self.object(&Object::text(name));
        self.bytes.push(0x93);
    }

    fn tuple(&mut self, items: &[Object]) {
        let is_short = items.len() <= 3 && self.draw.one_in(2);
        if !is_short {
            self.bytes.push(b'(');
        }
        items.iter().for_each(|item| self.object(item));
        self.bytes.push(match (is_short, items.len()) {
            (false, _) => b't',
            (true, 0) => b')',
            (true, count) => 0x84 + count as u8,
        });
    }

    /// Writes a list: its first items alone, the rest together.
    fn list(&mut self, items: &[Object]) {
        self.bytes.push(b']');
        let (alone, rest) = items.split_at(self.draw.below(items.len() + 1));
        for item in alone {
            self.object(item);
            self.bytes.push(b'a');
        }
        if !rest.is_empty() || self.draw.one_in(4) {
            self.bytes.push(b'(');
            rest.iter().for_each(|item| self.object(item));
            self.bytes.push(b'e');
        }
    }

    /// Writes the items of a dict: the first alone, the rest together.
    fn items(&mut self, items: &[(Object, Object)]) {
        let (alone, rest) = items.split_at(self.draw.below(items.len() + 1));
        for (key, value) in alone {
            self.object(key);
            self.object(value);
            self.bytes.push(b's');
        }
        if !rest.is_empty() || self.draw.one_in(4) {
            self.bytes.push(b'(');
            for (key, value) in rest {
                self.object(key);
                self.object(value);
            }
            self.bytes.push(b'u');
        }
    }
}
