//! The quality of merging: tinygrad's known failures, and the share of random chains that become
//! one view, if one view has the same elements.

mod dice;
mod model;

use dice::Random;
use gradiff_view::{ShapeTracker, View};
use model::{Model, compare, each_index};

fn indices(shape: &[i64]) -> Vec<Vec<i64>> {
    let mut indices = vec![];
    each_index(shape, |index| indices.push(index.to_vec()));
    indices
}

/// A random chain without merging: its elements, the number of its views, and the simplified
/// tracker.
struct Chain {
    model: Model,
    views: usize,
    simple: ShapeTracker,
}

fn chain(seed: u64) -> Chain {
    let mut random = Random::new(seed);
    let from = random.shape();
    let mut model = Model::new(&from);
    let mut plain = ShapeTracker::from_shape(&from).expect("a small shape");
    for _ in 0..1 + random.below(8) {
        let movement = random.movement(&model.shape);
        model = model.apply(&movement);
        plain = plain.apply(&movement, false).expect("the movement fits");
    }
    let simple = plain.simplify();
    Chain { model, views: plain.views().len(), simple }
}

/// Finds the view with these elements; `None` if there is none.
fn single_view(model: &Model) -> Option<View> {
    let shape = &model.shape;
    let real: Vec<_> = indices(shape).into_iter().zip(&model.elements).collect();
    let real: Vec<_> = real.into_iter().filter_map(|(i, at)| Some((i, (*at)? as i64))).collect();
    let Some((first, at)) = real.first() else {
        let hidden = vec![(0, 0); shape.len()];
        return (model.elements.is_empty() || !shape.is_empty())
            .then(|| View::create(shape, None, 0, Some(&hidden)).expect("all padding"));
    };
    let last = &real.last().expect("not empty").0;
    let mask: Vec<_> = first.iter().zip(last).map(|(&begin, &end)| (begin, end + 1)).collect();
    if real.len() as i64 != mask.iter().map(|(begin, end)| end - begin).product::<i64>() {
        return None;
    }
    let stride = |axis: usize| {
        let mut next = first.clone();
        next[axis] += 1;
        real.iter().find(|(index, _)| *index == next).map_or(0, |(_, there)| there - at)
    };
    let strides: Vec<_> = (0..shape.len()).map(stride).collect();
    let offset = at - first.iter().zip(&strides).map(|(i, stride)| i * stride).sum::<i64>();
    let view = View::create(shape, Some(&strides), offset, Some(&mask)).ok()?;
    let tracker = ShapeTracker::from_views(&[view]).expect("one view");
    compare(&tracker, model).ok().map(|()| tracker.views()[0].clone())
}

#[test]
fn simplify_merges_999_of_1000_chains_that_one_view_can_express() {
    const CHAINS: u64 = 50_000;
    let (mut unmerged, mut merged, mut possible, mut found) = (0, 0, 0, 0);
    for seed in 1..=CHAINS {
        let chain = chain(seed);
        let left = chain.simple.views();
        unmerged += chain.views;
        merged += left.len();
        if let Some(view) = single_view(&chain.model) {
            possible += 1;
            found += usize::from(left.len() == 1);
            // The canonical form is unique, so any view that is found is this one.
            assert!(left.len() > 1 || left[0] == view, "{} is {view}", chain.simple);
        } else {
            assert!(left.len() > 1, "{} cannot be one view", chain.simple);
        }
    }
    println!("{unmerged} views of {CHAINS} chains become {merged};");
    println!("one view can express {possible} of the chains, and is found for {found}");
    assert!(possible > 40_000, "{possible} chains of {CHAINS} fit one view");
    assert!(found * 1000 >= possible * 999, "{found} of {possible} chains become one view");
    assert!(merged * 100 < unmerged * 51, "{unmerged} views become {merged}");
}

/// Shape, strides, offset and mask of a view.
type Parts = (&'static [i64], &'static [i64], i64, Option<&'static [(i64, i64)]>);

/// tinygrad's `test_view.test_merges_from_fuzzer1` to 5, all expected failures there: base, top and
/// the merged view.
const FUZZER: [[Parts; 3]; 5] = [
    [
        (&[2, 4], &[2, 1], -2, Some(&[(0, 2), (2, 4)])),
        (&[2, 4, 2, 2], &[4, 0, -2, -1], 3, None),
        (&[2, 4, 2, 2], &[2, 0, 0, -1], 1, Some(&[(0, 2), (0, 4), (0, 1), (0, 2)])),
    ],
    [
        (&[5, 10, 12], &[100, 1, 10], -20, Some(&[(0, 5), (0, 10), (2, 12)])),
        (&[10, 6, 5, 2, 2], &[12, 2, 120, 1, 0], 0, None),
        (
            &[10, 6, 5, 2, 2],
            &[1, 20, 100, 10, 0],
            -20,
            Some(&[(0, 10), (1, 6), (0, 5), (0, 2), (0, 2)]),
        ),
    ],
    [
        (&[8, 7, 3], &[1, 12, -4], 6, Some(&[(2, 6), (0, 7), (0, 3)])),
        (&[4, 2, 6, 2, 1], &[42, 21, 3, 1, 0], 4, None),
        (&[4, 2, 6, 2, 1], &[2, 1, 12, -4, 0], 14, Some(&[(1, 3), (0, 2), (0, 6), (0, 2), (0, 1)])),
    ],
    [
        (&[7, 21, 3], &[54, 3, 1], -9, Some(&[(0, 6), (3, 21), (0, 3)])),
        (&[5, 3, 3, 7], &[63, 1, 3, 9], 63, None),
        (&[5, 3, 3, 7], &[54, 1, 3, 9], 45, Some(&[(0, 5), (0, 3), (0, 3), (1, 7)])),
    ],
    [
        (&[5, 1, 24], &[20, 0, 1], -2, Some(&[(0, 5), (0, 1), (2, 22)])),
        (&[12, 2, 5, 2, 1], &[2, 1, 24, 0, 0], 0, None),
        (
            &[12, 2, 5, 2, 1],
            &[2, 1, 20, 0, 0],
            -2,
            Some(&[(1, 11), (0, 2), (0, 5), (0, 2), (0, 1)]),
        ),
    ],
];

#[test]
fn merges_that_tinygrad_expects_to_fail_succeed() {
    for parts in FUZZER {
        let [base, top, merged] = parts.map(|(shape, strides, offset, mask)| {
            View::create(shape, Some(strides), offset, mask).unwrap()
        });
        assert_eq!(top.merge(&base).as_ref(), Some(&merged), "{top} on {base}");
        let stacked = ShapeTracker::from_views(&[base, top]).unwrap();
        for index in indices(stacked.shape()) {
            let simple = ShapeTracker::from_views(std::slice::from_ref(&merged)).unwrap();
            assert_eq!(simple.locate(&index), stacked.locate(&index), "{index:?} of {stacked}");
        }
    }
}

#[test]
fn merges_with_padding_or_no_elements() {
    let create = |shape: &[i64], strides: &[i64], offset, mask: Option<&[(i64, i64)]>| {
        View::create(shape, Some(strides), offset, mask).unwrap()
    };
    // tinygrad's test_view_padded_area3: the row read is the padded one.
    let base = create(&[2, 4], &[0, 1], 4, Some(&[(0, 1), (0, 4)]));
    let hidden = create(&[1, 4], &[0, 1], 4, None).merge(&base).unwrap();
    assert_eq!(hidden.mask(), Some(&[(0, 0), (0, 0)][..]));
    // test_empty_shape_view2: rank 0 has no mask to hide its element.
    let base = create(&[2], &[0], 0, Some(&[(1, 2)]));
    assert_eq!(create(&[], &[], 0, None).merge(&base), None);
    // test_view_padded_area2: nothing is read, so the base does not matter.
    let empty = create(&[0, 0], &[0, 0], 0, None);
    assert_eq!(empty.merge(&base), Some(empty.clone()));
    // A permute under a flat view cannot be one view.
    let columns = create(&[2, 3], &[1, 2], 0, None);
    assert_eq!(create(&[6], &[1], 0, None).merge(&columns), None);
}
