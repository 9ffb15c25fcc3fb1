//! Random chains of movements, compared with the model; all methods of a tracker are checked.

mod dice;
mod model;

use dice::Random;
use gradiff_view::ShapeTracker;
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
