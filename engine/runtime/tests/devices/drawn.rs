//! Random kernels. If `BoundedLinear::check` proves that a kernel stays within its arrays, `interp`
//! must find no access out of bounds. If it proves that threads are disjoint, an enumeration of
//! their elements here must find them so.

use gradiff_graph::{
    Arg, Axis, AxisKind, BoundedLinear, Constant, DType, Global, Instruction, Linear, Op,
};
use gradiff_runtime::{Error, Memory, device};

/// Random numbers from a seed.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        // splitmix64
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % limit as u64) as usize
    }

    fn choose<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())]
    }
}

/// A kernel that is being drawn.
struct Draw {
    numbers: Numbers,
    uops: Vec<Instruction>,
    /// The i32 values that further uops may use.
    ints: Vec<u32>,
    /// The bool values that further uops may use.
    bools: Vec<u32>,
}

/// The minimum share of the kernels within bounds for which that must be proven.
const PROVEN_PERCENT: i32 = 30;
const SIZES: [i64; 5] = [1, 4, 6, 12, 40];
const CONSTANTS: [i128; 14] =
    [0, 1, 2, 3, 4, 6, 11, 40, -1, -3, 1 << 20, 1 << 30, i32::MAX as i128, i32::MIN as i128];
const BINARY: [Op; 15] = [
    Op::Add,
    Op::Add,
    Op::Sub,
    Op::Mul,
    Op::FloorDiv,
    Op::FloorMod,
    Op::CDiv,
    Op::CMod,
    Op::Max,
    Op::Min,
    Op::Shl,
    Op::Shr,
    Op::And,
    Op::Or,
    Op::Xor,
];

impl Draw {
    fn push(&mut self, op: Op, dtype: DType, src: &[u32], arg: Arg) -> u32 {
        self.uops.push(Instruction::new(op, dtype, src.iter().copied(), arg));
        self.uops.len() as u32 - 1
    }

    fn constant(&mut self, value: i128) -> u32 {
        self.push(Op::Const, DType::I32, &[], Arg::Const(Constant::int(DType::I32, value)))
    }

    /// Draws a constant or an i32 value that exists.
    fn int(&mut self) -> u32 {
        match self.numbers.below(3) {
            0 => {
                let value = self.numbers.choose(&CONSTANTS);
                self.constant(value)
            }
            _ => self.numbers.choose(&self.ints.clone()),
        }
    }

    /// Draws a comparison, or an op over bools that exist.
    fn condition(&mut self) -> u32 {
        let is_new = self.bools.is_empty() || self.numbers.below(3) != 0;
        let condition = match is_new {
            true => {
                let (x, y) = (self.int(), self.int());
                let op = self.numbers.choose(&[Op::CmpLt, Op::CmpLt, Op::CmpLt, Op::CmpNe]);
                self.push(op, DType::Bool, &[x, y], Arg::None)
            }
            false => {
                let [x, y] = [(); 2].map(|()| self.numbers.choose(&self.bools.clone()));
                let true_value = Arg::Const(Constant::bool(true));
                let (op, y) = match self.numbers.below(3) {
                    0 => (Op::CmpNe, self.push(Op::Const, DType::Bool, &[], true_value)),
                    1 => (Op::And, y),
                    _ => (Op::Or, y),
                };
                self.push(op, DType::Bool, &[x, y], Arg::None)
            }
        };
        self.bools.push(condition);
        condition
    }

    /// Draws an op and adds its i32 value.
    fn value(&mut self) {
        let value = match self.numbers.below(8) {
            0 => {
                let (condition, x, y) = (self.condition(), self.int(), self.int());
                self.push(Op::Where, DType::I32, &[condition, x, y], Arg::None)
            }
            1 => {
                let dtype = self.numbers.choose(&[DType::I64, DType::U8, DType::I8, DType::U32]);
                let x = self.int();
                let cast = self.push(Op::Cast, dtype, &[x], Arg::None);
                let y = self.push(Op::Add, dtype, &[cast, cast], Arg::None);
                let x = self.numbers.choose(&[cast, y]);
                self.push(Op::Cast, DType::I32, &[x], Arg::None)
            }
            2 => {
                let (x, y, z) = (self.int(), self.int(), self.int());
                self.push(Op::MulAcc, DType::I32, &[x, y, z], Arg::None)
            }
            _ => {
                let (op, x, y) = (self.numbers.choose(&BINARY), self.int(), self.int());
                self.push(op, DType::I32, &[x, y], Arg::None)
            }
        };
        self.ints.push(value);
    }

    /// Draws a kernel that copies elements of `data1` to `data0` in two loops.
    fn kernel(seed: u64) -> Linear {
        let (uops, ints, bools) = Default::default();
        let mut draw = Draw { numbers: Numbers(seed), uops, ints, bools };
        let sizes = [(); 2].map(|()| draw.numbers.choose(&SIZES));
        let [output, input] = [0, 1].map(|slot| {
            let global = Global { slot, size_elements: sizes[slot] };
            draw.push(Op::DefineGlobal, DType::I32, &[], Arg::Global(global))
        });
        let start = draw.constant(0);
        let accumulator = draw.push(Op::DefineAcc, DType::I32, &[start], Arg::Int(0));
        let mut ranges = Vec::new();
        for number in 0..2 {
            let end = draw.numbers.choose(&[1, 2, 3, 4, 6]);
            let end = draw.constant(end);
            let axis = Arg::Axis(Axis { kind: AxisKind::Loop, number });
            ranges.push(draw.push(Op::Range, DType::I32, &[end], axis));
            draw.ints.push(ranges[number as usize]);
        }
        if draw.numbers.below(4) == 0 {
            draw.ints.push(accumulator);
        }
        let mut value = start;
        for is_store in [false, true] {
            for _ in 0..2 + draw.numbers.below(6) {
                draw.value();
            }
            let array = if is_store { output } else { input };
            let position = draw.numbers.choose(&draw.ints.clone());
            let mut src = vec![array, position];
            for _ in 0..draw.numbers.below(3) {
                let condition = draw.condition();
                match src.get(2) {
                    None => src.push(condition),
                    Some(gate) => {
                        let both = [*gate, condition];
                        src[2] = draw.push(Op::And, DType::Bool, &both, Arg::None);
                    }
                }
            }
            let index = draw.push(Op::Index, DType::I32, &src, Arg::None);
            match is_store {
                true => drop(draw.push(Op::Store, DType::Void, &[index, value], Arg::None)),
                false => {
                    value = draw.push(Op::Load, DType::I32, &[index], Arg::None);
                    draw.ints.push(value);
                    let sum = draw.push(Op::Add, DType::I32, &[accumulator, value], Arg::None);
                    draw.push(Op::Assign, DType::I32, &[accumulator, sum], Arg::None);
                }
            }
        }
        for range in ranges.iter().rev() {
            draw.push(Op::EndRange, DType::Void, &[*range], Arg::None);
        }
        Linear { name: "r_2".to_owned(), uops: draw.uops }
    }
}

/// Runs a kernel on `interp`, with small numbers in its arrays.
fn interpret(kernel: &Linear) -> Result<(), Error> {
    let memories = kernel.globals().into_iter().map(|(global, dtype)| {
        let size = global.size_elements as usize;
        let bytes: Vec<u8> = (0..size as i32 * 4).map(|byte| (byte * 37 % 11) as u8).collect();
        let small = |(at, byte): (usize, &u8)| if at % 4 == 0 { *byte } else { 0 };
        let bytes: Vec<u8> = bytes.iter().enumerate().map(small).collect();
        Memory::from_bytes(dtype, &bytes[..size * dtype.size_bytes()])
    });
    let memories: Vec<Memory> = memories.collect::<Result<_, _>>()?;
    let memories: Vec<&Memory> = memories.iter().collect();
    device("interp")?.compile_checked(&[kernel])?.remove(0).run(&memories)
}

#[test]
fn proven_kernels_stay_within_bounds() {
    let [mut proven, mut inside, mut outside] = [0; 3];
    for seed in 0..30_000 {
        let kernel = Draw::kernel(seed);
        let run = interpret(&kernel);
        let is_outside = matches!(run, Err(Error::OutOfBounds { .. }));
        assert!(is_outside || run.is_ok(), "seed {seed}: {run:?}\n{kernel}");
        let is_proven = BoundedLinear::check(kernel.clone()).is_ok();
        assert!(!(is_proven && is_outside), "seed {seed} is out of bounds\n{kernel}");
        proven += i32::from(is_proven);
        inside += i32::from(!is_outside);
        outside += i32::from(is_outside);
    }
    // Indices that are in bounds by chance, or because the data are small, cannot be proven.
    assert!(
        1000 < outside && PROVEN_PERCENT * inside < proven * 100,
        "{proven} of {inside} proven"
    );
}

/// Draws a kernel that stores zeros to `data0` in three loops, the first of which is a thread
/// range. Returns whether the iterations of this range are proven to access disjoint elements,
/// whether they do, and the text of the kernel.
fn threads_are_disjoint(numbers: &mut Numbers) -> (bool, bool, String) {
    let mut draw = Draw { numbers: Numbers(numbers.0), uops: vec![], ints: vec![], bools: vec![] };
    let global = Global { slot: 0, size_elements: 1 << 20 };
    let data = draw.push(Op::DefineGlobal, DType::I32, &[], Arg::Global(global));
    let zero = draw.constant(0);
    let sizes = [(); 3].map(|()| draw.numbers.choose(&[1, 2, 3, 4, 6]));
    let ranges = [0, 1, 2].map(|number| {
        let end = draw.constant(sizes[number]);
        let kind = if number == 0 { AxisKind::Thread } else { AxisKind::Loop };
        let axis = Axis { kind, number: number as i64 };
        draw.push(Op::Range, DType::I32, &[end], Arg::Axis(axis))
    });
    let mut strides = [(); 3].map(|()| draw.numbers.choose(&[0, 1, 2, 3, 4, 6, 8, 12, 24]));
    strides[1] *= draw.numbers.choose(&[1, -1]);
    let mut terms = [0, 1, 2].map(|number| {
        let stride = draw.constant(strides[number]);
        draw.push(Op::Mul, DType::I32, &[ranges[number], stride], Arg::None)
    });
    for number in 1..3 {
        terms[number] =
            draw.push(Op::Add, DType::I32, &[terms[number - 1], terms[number]], Arg::None);
    }
    let offsets: Vec<i128> = (0..1 + draw.numbers.below(3))
        .map(|_| draw.numbers.choose(&[0, 1, 2, 6, 12, 100]))
        .collect();
    let lanes = draw.numbers.choose(&[1u8, 1, 2, 4]);
    let value = draw.push(Op::Vectorize, DType::I32, &[zero], Arg::None);
    draw.uops[value as usize].lanes = lanes;
    for offset in &offsets {
        // With 4096 added, no index is negative.
        let offset = draw.constant(offset + 4096);
        let position = draw.push(Op::Add, DType::I32, &[terms[2], offset], Arg::None);
        let index = draw.push(Op::Index, DType::I32, &[data, position], Arg::None);
        draw.push(
            Op::Store,
            DType::Void,
            &[index, if lanes == 1 { zero } else { value }],
            Arg::None,
        );
    }
    ranges.iter().rev().for_each(|range| {
        draw.push(Op::EndRange, DType::Void, &[*range], Arg::None);
    });
    numbers.0 = draw.numbers.0;
    let mut thread_of = std::collections::HashMap::new();
    let mut is_disjoint = true;
    for x in 0..sizes[0] {
        for (y, z) in (0..sizes[1]).flat_map(|y| (0..sizes[2]).map(move |z| (y, z))) {
            let position = x * strides[0] + y * strides[1] + z * strides[2];
            for element in
                offsets.iter().flat_map(|offset| (0..i128::from(lanes)).map(move |l| offset + l))
            {
                is_disjoint &= *thread_of.entry(position + element).or_insert(x) == x;
            }
        }
    }
    let linear = Linear { name: "E_3".to_owned(), uops: draw.uops };
    let text = linear.to_string();
    (BoundedLinear::check(linear).is_ok(), is_disjoint, text)
}

#[test]
fn threads_proven_disjoint_are_disjoint() {
    let (mut numbers, mut proven, mut disjoint, mut total) = (Numbers(7), 0, 0, 0);
    for _ in 0..20_000 {
        let (is_proven, is_disjoint, kernel) = threads_are_disjoint(&mut numbers);
        assert!(is_disjoint || !is_proven, "they are not disjoint\n{kernel}");
        proven += i32::from(is_proven);
        disjoint += i32::from(is_disjoint);
        total += 1;
    }
    assert!(
        disjoint * 3 < proven * 10 && proven * 3 < total * 2,
        "{proven} of {disjoint} of {total}"
    );
}
