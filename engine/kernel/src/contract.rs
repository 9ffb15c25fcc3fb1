//! Contracts multiplications and additions of floats: `x*y + z` becomes `mulacc(x, y, z)`.
//!
//! Only if the target has a fast fused multiply-add and the mode allows that the product is not
//! rounded. The product must have no other user and be computed in the loop of the addition.

use gradiff_graph::{Linear, Op, Target};
use gradiff_rewrite::Mode;

/// Contracts products into sums, if that is allowed.
pub(crate) fn contract(mut linear: Linear, target: &Target, mode: Mode) -> Linear {
    if !target.fma || mode == Mode::Strict {
        return linear;
    }
    let mut use_counts = vec![0u32; linear.uops.len()];
    linear.uops.iter().flat_map(|uop| &uop.src).for_each(|at| use_counts[*at as usize] += 1);
    let mut is_removed = vec![false; linear.uops.len()];
    let mut scopes = Vec::with_capacity(linear.uops.len());
    let (mut open, mut loop_count) = (vec![0u32], 0);
    for position in 0..linear.uops.len() {
        let uop = &linear.uops[position];
        match uop.op {
            Op::Range => {
                loop_count += 1;
                open.push(loop_count);
            }
            Op::EndRange => drop(open.pop()),
            _ => {}
        }
        let scope = open.last().copied().unwrap_or(0);
        scopes.push(scope);
        if uop.op != Op::Add || !uop.dtype.is_float() {
            continue;
        }
        let is_product = |at: &&u32| {
            let (at, product) = (**at as usize, &linear.uops[**at as usize]);
            product.op == Op::Mul && use_counts[at] == 1 && scopes[at] == scope
        };
        let Some(number) = uop.src.iter().rposition(|at| is_product(&at)) else { continue };
        let (product, addend) = (uop.src[number] as usize, uop.src[1 - number]);
        // No accumulator that the product reads may be assigned in between.
        let factors = linear.uops[product].src.clone();
        let between = &linear.uops[product..position];
        if between.iter().any(|uop| uop.op == Op::Assign && factors.contains(&uop.src[0])) {
            continue;
        }
        let uop = &mut linear.uops[position];
        uop.op = Op::MulAcc;
        uop.src = factors.iter().copied().chain([addend]).collect();
        is_removed[product] = true;
    }
    without(linear, &is_removed)
}

/// Removes these uops, which have no users.
fn without(mut linear: Linear, is_removed: &[bool]) -> Linear {
    let mut position = Vec::with_capacity(is_removed.len());
    let mut count = 0;
    for is_removed in is_removed {
        position.push(count);
        count += u32::from(!is_removed);
    }
    let mut number = 0;
    linear.uops.retain(|_| {
        number += 1;
        !is_removed[number - 1]
    });
    for uop in &mut linear.uops {
        uop.src.iter_mut().for_each(|source| *source = position[*source as usize]);
    }
    linear
}
