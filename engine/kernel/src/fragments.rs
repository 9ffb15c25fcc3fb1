//! Joins the elements of a matrix product into one `wmma` of vectors.
//!
//! After expansion there is a `wmma` for each element of the result that a thread holds. Those with
//! the same operands become one, which gives all elements at once. If each element is added to an
//! accumulator and has no other user, the accumulators become the third operand of the `wmma`.

use gradiff_graph::tensor_core::TensorCore;
use gradiff_graph::{Arg, Constant, DType, Instruction, Linear, Op};
use smallvec::SmallVec;

use crate::Error;
use crate::edit::Editor;
use crate::error::malformed;

/// Joins the products of a kernel; all other uops stay as they are.
pub(crate) fn join(linear: Linear) -> Result<Linear, Error> {
    if linear.uops.iter().all(|uop| uop.op != Op::Wmma) {
        return Ok(linear);
    }
    let products = products(&linear)?;
    let mut joined = Joined::new(linear.uops.len());
    let sums: Vec<Option<Sums>> = products.iter().map(|product| product.sums(&linear)).collect();
    // For each sum, the product and the element that it adds.
    let mut sum_of = vec![None; linear.uops.len()];
    for (number, sums) in sums.iter().enumerate() {
        for (element, (_, sum)) in sums.iter().flatten().enumerate() {
            sum_of[*sum as usize] = Some((number, element));
        }
    }
    // For each product, the new positions of its elements.
    let mut results: Vec<Vec<u32>> = vec![Vec::new(); products.len()];
    for (position, uop) in linear.uops.iter().enumerate() {
        let starting = products.iter().position(|product| product.first() == position as u32);
        if let Some(number) = starting {
            results[number] = joined.product(&products[number], sums[number].as_deref());
        }
        let element_of = products.iter().enumerate().find_map(|(number, product)| {
            Some((number, product.elements.iter().position(|at| *at == position as u32)?))
        });
        let element = match element_of {
            Some((number, at)) => Some((number, products[number].numbers[at])),
            None => sum_of[position],
        };
        let new_position = match element {
            Some((number, element)) => results[number][element],
            None => joined.editor.copy(uop),
        };
        joined.editor.set(position, new_position);
    }
    Ok(joined.editor.finish(linear.name))
}

/// For each element of a product its accumulator, and the uop that adds the element to it.
type Sums = Vec<(u32, u32)>;

/// The elements of a matrix product.
struct Product {
    core: &'static TensorCore,
    /// Elements of A, then of B.
    operands: SmallVec<[u32; 16]>,
    range: u32,
    /// The positions of the uops of the elements.
    elements: Vec<u32>,
    /// The number of each of these elements in the fragment.
    numbers: Vec<usize>,
}

impl Product {
    fn first(&self) -> u32 {
        self.elements[0]
    }

    /// Returns what the elements are added to, if they have no other users and the accumulators do
    /// not change between the product and the sums.
    fn sums(&self, linear: &Linear) -> Option<Sums> {
        let uops = &linear.uops;
        let mut sums = Vec::new();
        for element in 0..self.core.elements(2) {
            let at = self.elements[self.numbers.iter().position(|number| *number == element)?];
            let mut users = (0..uops.len())
                .filter(|user| uops[*user].src.contains(&at))
                .map(|user| user as u32);
            let (sum, None) = (users.next()?, users.next()) else { return None };
            let [x, y] = *uops[sum as usize].src.as_slice() else { return None };
            let accumulator = if y == at { x } else { y };
            let next = uops.get(sum as usize + 1)?;
            let is_assigned = next.op == Op::Assign && next.src.as_slice() == [accumulator, sum];
            let has_one_user = uops.iter().filter(|uop| uop.src.contains(&sum)).count() == 1;
            let is_sum = uops[sum as usize].op == Op::Add && x != y;
            let is_accumulator = uops[accumulator as usize].op == Op::DefineAcc;
            let is_earlier = accumulator < self.first();
            let between = &uops[self.first() as usize..sum as usize];
            let is_unchanged = between.iter().all(|uop| match uop.op {
                Op::Range | Op::EndRange | Op::Barrier => false,
                Op::Assign => uop.src[0] != accumulator,
                _ => true,
            });
            let is_accumulation = is_sum && is_assigned && has_one_user;
            if !(is_accumulation && is_accumulator && is_unchanged && is_earlier) {
                return None;
            }
            sums.push((accumulator, sum));
        }
        Some(sums)
    }
}

/// Collects the products of a kernel. No operand changes between the elements of a product.
fn products(linear: &Linear) -> Result<Vec<Product>, Error> {
    let mut found: Vec<Product> = Vec::new();
    // Products before this number take no more elements.
    let mut open = 0;
    for (position, uop) in linear.uops.iter().enumerate() {
        match (uop.op, &uop.arg) {
            (Op::Assign | Op::Range | Op::EndRange | Op::Barrier, _) => open = found.len(),
            (Op::Wmma, Arg::TensorCore(core)) => {
                let ([operands @ .., element, range], 1) = (uop.src.as_slice(), uop.lanes) else {
                    return Err(malformed("a wmma without operands"));
                };
                let number = match linear.uops[*element as usize].arg {
                    Arg::Const(number) => number.to_int().and_then(|n| usize::try_from(n).ok()),
                    _ => None,
                };
                let number = number.filter(|number| *number < core.elements(2));
                let number = number.ok_or_else(|| malformed("a wmma of an unknown element"))?;
                // Two equal elements are in two products, since each has its own sum.
                let is_same = |product: &&mut Product| {
                    product.core == *core
                        && product.range == *range
                        && product.operands.as_slice() == operands
                        && !product.numbers.contains(&number)
                };
                if let Some(product) = found[open..].iter_mut().find(is_same) {
                    product.elements.push(position as u32);
                    product.numbers.push(number);
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

/// The new kernel so far.
struct Joined {
    editor: Editor,
    /// The position of the constant zero.
    zero: u32,
}

impl Joined {
    fn new(count: usize) -> Joined {
        let mut editor = Editor::new(count);
        let zero = Arg::Const(Constant::zero(DType::F32));
        let zero = editor.push(Instruction::new(Op::Const, DType::F32, [], zero));
        Joined { editor, zero }
    }

    /// Makes a vector of the values: a broadcast of a single one.
    fn vector(&mut self, dtype: DType, lanes: usize, values: &[u32]) -> u32 {
        if lanes == 1 {
            return values[0];
        }
        let uop = Instruction::new(Op::Vectorize, dtype, values.iter().copied(), Arg::None);
        self.editor.push(Instruction { lanes: lanes as u8, ..uop })
    }

    /// Adds a product; returns the positions of its elements.
    fn product(&mut self, product: &Product, sums: Option<&[(u32, u32)]>) -> Vec<u32> {
        let [a, b, c] = [0, 1, 2].map(|matrix| product.core.elements(matrix));
        let operands: Vec<u32> =
            product.operands.iter().map(|operand| self.editor.position(*operand)).collect();
        let left = self.vector(product.core.operand_dtype, a, &operands[..a]);
        let right = self.vector(product.core.operand_dtype, b, &operands[a..]);
        let starts: Vec<u32> = match sums {
            Some(sums) => {
                sums.iter().map(|(accumulator, _)| self.editor.position(*accumulator)).collect()
            }
            None => vec![self.zero],
        };
        let start = self.vector(DType::F32, c, &starts);
        let range = self.editor.position(product.range);
        let arg = Arg::TensorCore(product.core);
        let uop = Instruction::new(Op::Wmma, DType::F32, [left, right, start, range], arg);
        let vector = self.editor.push(Instruction { lanes: c as u8, ..uop });
        if c == 1 {
            return vec![vector];
        }
        let lane = |lane: usize| {
            let arg = Arg::Int(lane as i64);
            self.editor.push(Instruction::new(Op::Lane, DType::F32, [vector], arg))
        };
        (0..c).map(lane).collect()
    }
}
