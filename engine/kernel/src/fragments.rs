//! Elements of one product of matrices become one `wmma` of vectors.
//!
//! Written out, a `wmma` stands there once for each element of the result that a thread holds. Of
//! those with the same operands one is made that gives all elements at once. Where each of them is
//! added to a variable of a fold and to nothing else, the product starts from these variables.

use gradiff_graph::{Arg, Constant, DType, Instruction, Linear, Op, TensorCore};
use smallvec::SmallVec;

use crate::Error;
use crate::error::malformed;

/// The kernel with products of vectors. Those that tensor cores do not compute stay as they are.
pub(crate) fn join(linear: Linear) -> Result<Linear, Error> {
    if linear.uops.iter().all(|uop| uop.op != Op::Wmma) {
        return Ok(linear);
    }
    let products = products(&linear)?;
    let zero = Instruction::new(Op::Const, DType::F32, [], Arg::Const(Constant::zero(DType::F32)));
    let mut joined = Joined { uops: vec![zero], places: Vec::with_capacity(linear.uops.len()) };
    let sums: Vec<Option<Sums>> = products.iter().map(|one| one.sums(&linear)).collect();
    // The result of which product and element each sum is.
    let mut sum_of = vec![None; linear.uops.len()];
    for (number, sums) in sums.iter().enumerate() {
        for (element, (_, sum)) in sums.iter().flatten().enumerate() {
            sum_of[*sum as usize] = Some((number, element));
        }
    }
    // Where the elements of each product are.
    let mut made: Vec<Vec<u32>> = vec![Vec::new(); products.len()];
    for (position, uop) in linear.uops.iter().enumerate() {
        let starts = products.iter().position(|one| one.first() == position as u32);
        if let Some(number) = starts {
            made[number] = joined.product(&products[number], sums[number].as_deref());
        }
        let own = products.iter().enumerate().find_map(|(number, one)| {
            Some((number, one.elements.iter().position(|at| *at == position as u32)?))
        });
        let element = match own {
            Some((number, at)) => Some((number, products[number].numbers[at])),
            None => sum_of[position],
        };
        let place = match element {
            Some((number, element)) => made[number][element],
            None => joined.copy(uop),
        };
        joined.places.push(place);
    }
    Ok(Linear { name: linear.name, uops: joined.uops })
}

/// The variable of each element of a product, and the uop that adds the element to it.
type Sums = Vec<(u32, u32)>;

/// Elements of one product of matrices.
struct Product {
    core: &'static TensorCore,
    /// Elements of A, then of B.
    operands: SmallVec<[u32; 16]>,
    range: u32,
    /// The uops.
    elements: Vec<u32>,
    /// Which elements they are.
    numbers: Vec<usize>,
}

impl Product {
    fn first(&self) -> u32 {
        self.elements[0]
    }

    /// What the elements are added to, if used for nothing else and if that may be done at once.
    fn sums(&self, linear: &Linear) -> Option<Sums> {
        let uops = &linear.uops;
        let mut sums = Vec::new();
        for element in 0..self.core.elements(2) {
            let own = self.elements[self.numbers.iter().position(|number| *number == element)?];
            let mut users =
                (0..uops.len()).filter(|at| uops[*at].src.contains(&own)).map(|at| at as u32);
            let (sum, None) = (users.next()?, users.next()) else { return None };
            let [x, y] = *uops[sum as usize].src.as_slice() else { return None };
            let variable = if y == own { x } else { y };
            let next = uops.get(sum as usize + 1)?;
            let is_fold = next.op == Op::Assign && next.src.as_slice() == [variable, sum];
            let is_alone = uops.iter().filter(|uop| uop.src.contains(&sum)).count() == 1;
            let is_sum = uops[sum as usize].op == Op::Add && x != y;
            let is_variable = uops[variable as usize].op == Op::DefineAcc;
            let between = &uops[self.first() as usize..sum as usize];
            let stays = between.iter().all(|uop| match uop.op {
                Op::Range | Op::EndRange | Op::Barrier => false,
                Op::Assign => uop.src[0] != variable,
                _ => true,
            });
            if !(is_fold && is_alone && is_sum && is_variable && stays && variable < self.first()) {
                return None;
            }
            sums.push((variable, sum));
        }
        Some(sums)
    }
}

/// The products of a kernel. What happens between the elements of one does not change its operands.
fn products(linear: &Linear) -> Result<Vec<Product>, Error> {
    let mut found: Vec<Product> = Vec::new();
    // Before this one nothing is joined any more.
    let mut open = 0;
    for (position, uop) in linear.uops.iter().enumerate() {
        match (uop.op, &uop.arg) {
            (Op::Assign | Op::Range | Op::EndRange | Op::Barrier, _) => open = found.len(),
            (Op::Wmma, Arg::TensorCore(core)) => {
                let ([operands @ .., element, range], 1) = (uop.src.as_slice(), uop.lanes) else {
                    return Err(malformed("a product without operands"));
                };
                let number = match linear.uops[*element as usize].arg {
                    Arg::Const(number) => number.to_int().and_then(|n| usize::try_from(n).ok()),
                    _ => None,
                };
                let number = number.filter(|number| *number < core.elements(2));
                let number = number.ok_or_else(|| malformed("a product of no known element"))?;
                // Of two that are the same in all each has its own sum.
                let is_same = |one: &&mut Product| {
                    one.core == *core
                        && one.range == *range
                        && one.operands.as_slice() == operands
                        && !one.numbers.contains(&number)
                };
                if let Some(one) = found[open..].iter_mut().find(is_same) {
                    one.elements.push(position as u32);
                    one.numbers.push(number);
                    continue;
                }
                found.push(Product {
                    core,
                    operands: SmallVec::from_slice(operands),
                    range: *range,
                    elements: vec![position as u32],
                    numbers: vec![number],
                });
            }
            _ => {}
        }
    }
    Ok(found)
}

/// The kernel as far as it is made; uop 0 is the constant zero.
struct Joined {
    uops: Vec<Instruction>,
    /// Where the uops of the kernel before are.
    places: Vec<u32>,
}

impl Joined {
    fn push(&mut self, uop: Instruction) -> u32 {
        self.uops.push(uop);
        self.uops.len() as u32 - 1
    }

    fn copy(&mut self, uop: &Instruction) -> u32 {
        let src = uop.src.iter().map(|source| self.places[*source as usize]).collect();
        self.push(Instruction { src, ..uop.clone() })
    }

    /// The values side by side; one for all, if there is but one.
    fn vector(&mut self, dtype: DType, lanes: usize, values: &[u32]) -> u32 {
        if lanes == 1 {
            return values[0];
        }
        let uop = Instruction::new(Op::Vectorize, dtype, values.iter().copied(), Arg::None);
        self.push(Instruction { lanes: lanes as u8, ..uop })
    }

    /// The elements of a product.
    fn product(&mut self, one: &Product, sums: Option<&[(u32, u32)]>) -> Vec<u32> {
        let [a, b, c] = [0, 1, 2].map(|matrix| one.core.elements(matrix));
        let operands: Vec<u32> =
            one.operands.iter().map(|operand| self.places[*operand as usize]).collect();
        let left = self.vector(one.core.from, a, &operands[..a]);
        let right = self.vector(one.core.from, b, &operands[a..]);
        let starts: Vec<u32> = match sums {
            Some(sums) => {
                sums.iter().map(|(variable, _)| self.places[*variable as usize]).collect()
            }
            None => vec![0],
        };
        let start = self.vector(DType::F32, c, &starts);
        let range = self.places[one.range as usize];
        let arg = Arg::TensorCore(one.core);
        let uop = Instruction::new(Op::Wmma, DType::F32, [left, right, start, range], arg);
        let product = self.push(Instruction { lanes: c as u8, ..uop });
        if c == 1 {
            return vec![product];
        }
        let lane = |lane: usize| {
            let arg = Arg::Int(lane as i64);
            self.push(Instruction::new(Op::Lane, DType::F32, [product], arg))
        };
        (0..c).map(lane).collect()
    }
}
