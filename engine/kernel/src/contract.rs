//! Products that are added at once, as one uop: `x*y + z` becomes `mulacc(x, y, z)`.
//!
//! Of floats only, where the target has it fast and the mode allows that the product is not
//! rounded. The product must be used once and be made in the loop in which it is added.

use gradiff_graph::{Linear, Op};
use gradiff_rewrite::Mode;

use crate::Target;

/// The kernel with products contracted into sums, if that is allowed.
pub(crate) fn contract(mut linear: Linear, target: &Target, mode: Mode) -> Linear {
    if !target.fma || mode == Mode::Strict {
        return linear;
    }
    let mut use_counts = vec![0u32; linear.uops.len()];
    linear.uops.iter().flat_map(|uop| &uop.src).for_each(|at| use_counts[*at as usize] += 1);
    let mut is_gone = vec![false; linear.uops.len()];
    let mut scopes = Vec::with_capacity(linear.uops.len());
    let (mut open, mut last) = (vec![0u32], 0);
    for position in 0..linear.uops.len() {
        let uop = &linear.uops[position];
        match uop.op {
            Op::Range => {
                last += 1;
                open.push(last);
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
        let (product, other) = (uop.src[number] as usize, uop.src[1 - number]);
        // What the product reads must not have changed since.
        let factors = linear.uops[product].src.clone();
        let between = &linear.uops[product..position];
        if between.iter().any(|uop| uop.op == Op::Assign && factors.contains(&uop.src[0])) {
            continue;
        }
        let uop = &mut linear.uops[position];
        uop.op = Op::MulAcc;
        uop.src = factors.iter().copied().chain([other]).collect();
        is_gone[product] = true;
    }
    without(linear, &is_gone)
}

/// The kernel without these uops, which nothing uses.
fn without(mut linear: Linear, is_gone: &[bool]) -> Linear {
    let mut position = Vec::with_capacity(is_gone.len());
    let mut kept = 0;
    for is_gone in is_gone {
        position.push(kept);
        kept += u32::from(!is_gone);
    }
    let mut number = 0;
    linear.uops.retain(|_| {
        number += 1;
        !is_gone[number - 1]
    });
    for uop in &mut linear.uops {
        uop.src.iter_mut().for_each(|source| *source = position[*source as usize]);
    }
    linear
}
