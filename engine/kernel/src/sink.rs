//! Pass `sink`: values that are used only after a loop are computed after it, before their first
//! use.
//!
//! `linearize` puts a value where its sources are known: the elements of a bias that is added to
//! the sums of a tile are then loaded before the loop that sums, and occupy registers in it that
//! the sums need. Where groups hide the latency of loads, they stay ahead of the loop.

use gradiff_graph::{Instruction, Linear, Op, Target};

/// Moves the values of a kernel.
pub(crate) fn sink(linear: Linear, target: &Target) -> Linear {
    if target.groups.is_some() {
        return linear;
    }
    let places = places(&linear.uops);
    let is_moved = |position: &u32| places[*position as usize] != *position;
    let mut order: Vec<u32> = (0..linear.uops.len() as u32).collect();
    if !order.iter().any(is_moved) {
        return linear;
    }
    // What is moved comes before the uop at its place.
    order.sort_by_key(|position| (places[*position as usize], !is_moved(position)));
    let mut new = vec![0; order.len()];
    order.iter().enumerate().for_each(|(to, from)| new[*from as usize] = to as u32);
    let at = |position: &u32| {
        let mut uop = linear.uops[*position as usize].clone();
        uop.src.iter_mut().for_each(|source| *source = new[*source as usize]);
        uop
    };
    Linear { uops: order.iter().map(at).collect(), name: linear.name }
}

/// Returns for each uop the position before which it is computed; its own if it stays.
fn places(uops: &[Instruction]) -> Vec<u32> {
    let loops = enclosing_loops(uops);
    let opened = counts(uops, |uop| uop.op == Op::Range);
    let written = counts(uops, |uop| matches!(uop.op, Op::Store | Op::Barrier));
    let is_between = |counts: &[u32], from: usize, to: u32| counts[from + 1] < counts[to as usize];
    let mut places: Vec<u32> = (0..uops.len() as u32).collect();
    let mut first_uses: Vec<Option<u32>> = vec![None; uops.len()];
    for (position, uop) in uops.iter().enumerate().rev() {
        if let Some(place) = first_uses[position]
            && may_move(uop, uops)
            && is_between(&opened, position, place)
            && (uop.op != Op::Load || !is_between(&written, position, place))
        {
            places[position] = place;
        }
        for source in &uop.src {
            // A loop in which the source is used is one use.
            let mut place = places[position];
            while loops[place as usize] != loops[*source as usize]
                && let Some(outer) = loops[place as usize]
                && *source < outer
            {
                place = outer;
            }
            let first = &mut first_uses[*source as usize];
            *first = Some(first.map_or(place, |known| known.min(place)));
        }
    }
    places
}

/// Returns whether a uop computes the same wherever its sources are known, as long as no array
/// changes.
fn may_move(uop: &Instruction, uops: &[Instruction]) -> bool {
    let is_value = uop.op.is_elementwise()
        || matches!(uop.op, Op::Load | Op::Index | Op::Vectorize | Op::Lane);
    is_value && uop.src.iter().all(|source| uops[*source as usize].op != Op::DefineAcc)
}

/// Returns for each uop the innermost loop around it, by the position of its range.
fn enclosing_loops(uops: &[Instruction]) -> Vec<Option<u32>> {
    let mut open = Vec::new();
    let enclosing = uops.iter().enumerate().map(|(position, uop)| {
        let inner = open.last().copied();
        match uop.op {
            Op::Range => open.push(position as u32),
            Op::EndRange => drop(open.pop()),
            _ => {}
        }
        inner
    });
    enclosing.collect()
}

/// Returns for each position the number of such uops before it.
fn counts(uops: &[Instruction], is_counted: impl Fn(&Instruction) -> bool) -> Vec<u32> {
    let mut count = 0;
    let mut counts = vec![0];
    for uop in uops {
        count += u32::from(is_counted(uop));
        counts.push(count);
    }
    counts
}

#[cfg(test)]
mod tests {
    use gradiff_graph::text::parse_linears;
    use gradiff_graph::verify::verify_kernel;

    use super::*;

    /// Sums of rows; the loop also stores the array that one of the terms is from.
    const ROWS: &str = "\
kernel r_4_8
   0 const          i32   []           4
   1 const          i32   []           8
   2 const          f32   []           0.0
   3 define_global  f32   []           data0 4
   4 define_global  f32   []           data1 8
   5 define_global  f32   []           data2 4
   6 define_local   f32   []           local0 8
   7 range          i32   [0]          0
   8 index          f32   [5, 7]
   9 load           f32   [8]
  10 neg            f32   [9]
  11 index          f32   [6, 7]
  12 load           f32   [11]
  13 define_acc     f32   [2, 7]       0
  14 add            f32   [13, 9]
  15 range          i32   [1]          1
  16 index          f32   [4, 15]
  17 load           f32   [16]
  18 add            f32   [13, 17]
  19 assign         f32   [13, 18]
  20 index          f32   [6, 15]
  21 store          void  [20, 17]
  22 endrange       void  [15]
  23 add            f32   [13, 10]
  24 add            f32   [23, 12]
  25 add            f32   [24, 14]
  26 index          f32   [3, 7]
  27 store          void  [26, 25]
  28 endrange       void  [7]
";

    /// Returns the ops of the loops after the pass, which keeps the kernel valid.
    fn moved(text: &str) -> String {
        let kernel = parse_linears(text).expect("it parses").remove(0);
        verify_kernel(&kernel).expect("it is valid");
        assert_eq!(sink(kernel.clone(), &Target::of("cuda")), kernel);
        let moved = sink(kernel, &Target::default());
        verify_kernel(&moved).expect("it stays valid");
        let ops = moved.uops[7..].iter().map(|uop| uop.op.to_string());
        ops.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn what_a_loop_does_not_use_is_computed_after_it() {
        // The negation moves; its load has a use before the loop, the other one is of an array that
        // the loop stores, and the first sum is of an accumulator that the loop changes.
        assert_eq!(
            moved(ROWS),
            "range index load index load define_acc add \
             range index load add assign index store endrange \
             neg add add add index store endrange"
        );
    }

    #[test]
    fn values_move_with_their_sources() {
        // Without the use before the loop and the store in it, both loads move, in their order.
        let text = ROWS.replace("[13, 9]", "[13, 2]");
        let text = text.replace("store          void  [20, 17]", "load           f32   [20]");
        assert_eq!(
            moved(&text),
            "range define_acc add range index load add assign index load endrange \
             index load neg add index load add add index store endrange"
        );
    }
}
