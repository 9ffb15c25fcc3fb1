//! Random chains of movements, compared with the model; all methods of a tracker are checked.

mod dice;
mod model;

use dice::Random;
use gradiff_view::{Movement, ShapeTracker};
use model::{Model, compare, each_index};

fn indices(shape: &[i64]) -> Vec<Vec<i64>> {
    let mut indices = vec![];
    each_index(shape, |index| indices.push(index.to_vec()));
    indices
}

fn check(tracker: &ShapeTracker, model: &Model, from: &[i64]) {
    compare(tracker, model).expect("the tracker agrees");
    let simple = tracker.simplify();
    compare(&simple, model).expect("the tracker agrees");
    assert!(simple.views().len() <= tracker.views().len());
    let flat = tracker.minify();
    let minified = Model { shape: flat.shape().to_vec(), elements: model.elements.clone() };
    compare(&flat, &minified).expect("the tracker agrees");
    assert_eq!(ShapeTracker::from_views(tracker.views()).as_ref(), Ok(tracker));
    let indices = indices(tracker.shape());
    let highest = model.elements.iter().flatten().max().map_or(0, |&at| at as i64 + 1);
    assert!(highest <= tracker.real_size(), "real_size of {tracker}");
    assert!(tracker.real_size() <= from.iter().product(), "real_size of {tracker}");
    if let [view] = tracker.views() {
        assert!(view.size() == 0 || highest == tracker.real_size(), "{tracker}");
    }
    check_axes(tracker, model, &indices);
    check_invert(tracker, model, from);
}

fn check_axes(tracker: &ShapeTracker, model: &Model, indices: &[Vec<i64>]) {
    let strides = [tracker.real_strides(false), tracker.real_strides(true)];
    for axis in 0..tracker.shape().len() {
        let inner_size: usize = tracker.shape()[axis + 1..].iter().product::<i64>() as usize;
        let (mut masked, mut differences) = (false, vec![]);
        for (flat, index) in indices.iter().enumerate() {
            if index[axis] + 1 == tracker.shape()[axis] {
                continue;
            }
            match (model.elements[flat], model.elements[flat + inner_size]) {
                (Some(here), Some(next)) => differences.push(next as i64 - here as i64),
                (None, None) => {}
                _ => masked = true,
            }
        }
        let even = |stride: i64| differences.iter().all(|&inner_size| inner_size == stride);
        assert!(!masked || tracker.axis_is_masked(axis), "axis {axis} of {tracker}");
        assert!(!masked || strides[0][axis].is_none(), "axis {axis} of {tracker}");
        for stride in strides.iter().filter_map(|strides| strides[axis]) {
            assert!(
                even(stride),
                "axis {axis} of {tracker}: {strides:?}, differences {differences:?}"
            );
        }
        if tracker.views().len() == 1 {
            assert_eq!(tracker.axis_is_masked(axis), masked, "axis {axis} of {tracker}");
            assert!(strides[1][axis].is_some(), "axis {axis} of {tracker}");
        }
    }
}

fn check_invert(tracker: &ShapeTracker, model: &Model, from: &[i64]) {
    let Some(inverse) = tracker.invert(from) else { return };
    assert_eq!(inverse.shape(), from);
    for (element, index) in indices(from).iter().enumerate() {
        let at = inverse.locate(index).expect("an inverse has no padding") as usize;
        assert_eq!(model.elements[at], Some(element), "invert of {tracker} gives {inverse}");
    }
}

#[test]
fn random_chains_match_the_model() {
    let (mut merged, mut inverted) = (0, 0);
    for seed in 1..=20_000 {
        let mut random = Random::new(seed);
        let from = random.shape();
        let mut model = Model::new(&from);
        let mut tracker = ShapeTracker::from_shape(&from).unwrap();
        let mut plain = tracker.clone();
        for _ in 0..1 + random.below(8) {
            let movement = random.movement(&model.shape);
            model = model.apply(&movement);
            tracker = tracker.apply(&movement, true).unwrap();
            plain = plain.apply(&movement, false).unwrap();
        }
        check(&tracker, &model, &from);
        check(&plain, &model, &from);
        merged += usize::from(plain.simplify().views().len() < plain.views().len());
        inverted += usize::from(tracker.invert(&from).is_some());
    }
    assert!(merged > 2_000, "{merged} chains merged");
    assert!(inverted > 2_000, "{inverted} chains inverted");
}

#[test]
fn random_compositions_read_the_top_through_the_base() {
    for seed in 1..=10_000 {
        let mut random = Random::new(1_000_000 + seed);
        let from = random.shape();
        let (mut model, mut base) = (Model::new(&from), ShapeTracker::from_shape(&from).unwrap());
        let mut top = base.clone();
        for half in 0..2 {
            for _ in 0..random.below(5) {
                let movement = random.movement(&model.shape);
                model = model.apply(&movement);
                let side = if half == 0 { &mut base } else { &mut top };
                *side = side.apply(&movement, true).unwrap();
            }
            if half == 0 {
                top = ShapeTracker::from_shape(&model.shape).unwrap();
            }
        }
        let composed = base.compose(&top).unwrap();
        compare(&composed, &model).unwrap();
    }
}

/// An index of an axis: near an end, the middle or a power of two.
fn position(random: &mut Random, size: i64) -> i64 {
    let near = [0, size / 2, size - 1, 1 << random.below(62)][random.below(4) as usize];
    near.saturating_add(random.below(5) - 2).clamp(0, size - 1)
}

/// Draws a movement of a shape of any size.
fn huge_movement(random: &mut Random, shape: &[i64]) -> Movement {
    let axis = random.below(shape.len() as i64) as usize;
    match random.below(7) {
        0 => Movement::Reshape(vec![shape.iter().product()]),
        1 | 2 => {
            let twos = i64::from(shape[axis].trailing_zeros());
            let inner = 1 << random.below(twos + 1);
            let mut split = shape.to_vec();
            split.splice(axis..=axis, [shape[axis] / inner, inner]);
            Movement::Reshape(split)
        }
        3 => {
            let mut order: Vec<usize> = (0..shape.len()).collect();
            order.rotate_left(axis);
            Movement::Permute(order)
        }
        4 => {
            let mut pads = vec![(0, 0); shape.len()];
            pads[axis] = (position(random, i64::MAX / 2), position(random, 1 << 40));
            Movement::Pad(pads)
        }
        5 => {
            let range = |size: &i64| {
                let (x, y) = (position(random, *size), position(random, *size));
                (x.min(y), x.max(y) + 1)
            };
            Movement::Shrink(shape.iter().map(range).collect())
        }
        _ => Movement::Flip(shape.iter().map(|_| random.below(2) == 0).collect()),
    }
}

/// Nothing overflows where sizes are close to 2^63: what cannot be merged is left.
#[test]
fn random_chains_of_huge_sizes_read_the_same() {
    let (mut simplified, mut refused) = (0, 0);
    for seed in 1..=20_000 {
        let mut random = Random::new(2_000_000 + seed);
        let bits = [62, 31, 20][random.below(3) as usize];
        let from: Vec<i64> = (0..62 / bits).map(|_| 1 << (bits - random.below(4))).collect();
        let mut tracker = ShapeTracker::from_shape(&from).expect("less than 2^63 elements");
        let mut plain = tracker.clone();
        for _ in 0..1 + random.below(10) {
            let movement = huge_movement(&mut random, plain.shape());
            match (tracker.apply(&movement, true), plain.apply(&movement, false)) {
                (Ok(moved), Ok(moved_plain)) => (tracker, plain) = (moved, moved_plain),
                // A view is refused whose indices would not fit, though another one's would.
                _ => refused += 1,
            }
        }
        let simple = plain.simplify();
        simplified += usize::from(simple.views().len() < plain.views().len());
        for _ in 0..16 {
            let shape = plain.shape().iter();
            let index: Vec<i64> = shape.map(|size| position(&mut random, *size)).collect();
            let element = plain.locate(&index);
            assert_eq!(tracker.locate(&index), element, "{index:?} of {tracker}, once {plain}");
            assert_eq!(simple.locate(&index), element, "{index:?} of {simple}, once {plain}");
        }
    }
    assert!(simplified > 2_000 && refused > 100, "{simplified} simplified, {refused} refused");
}
