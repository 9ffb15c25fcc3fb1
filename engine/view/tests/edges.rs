//! Refused views and movements, with the exact messages, and the largest sizes that are accepted.

use gradiff_view::{Error, ShapeTracker, View};

fn view(shape: &[i64]) -> View {
    View::create(shape, None, 0, None).expect("a shape that fits")
}

fn tracker(shape: &[i64]) -> ShapeTracker {
    ShapeTracker::from_shape(shape).expect("a shape that fits")
}

fn check<T: std::fmt::Debug>(refused: Result<T, Error>, message: &str) {
    assert_eq!(refused.expect_err("must be refused").to_string(), message);
}

const BIG: i64 = 1 << 40;

#[test]
fn negative_size_is_refused() {
    let message = "shape [3, -1]: sizes must be 0 or more";
    check(ShapeTracker::from_shape(&[3, -1]), message);
    check(View::create(&[3, -1], None, 0, None), message);
    check(View::create(&[3, -1], Some(&[1, 1]), 0, None), message);
    check(tracker(&[3]).reshape(&[3, -1]), message);
    check(tracker(&[3, 1]).expand(&[3, -1]), message);
    // Another size of 0 does not hide it.
    check(
        ShapeTracker::from_shape(&[0, i64::MIN]),
        "shape [0, -9223372036854775808]: sizes must be 0 or more",
    );
}

#[test]
fn element_count_beyond_an_i64_is_refused() {
    let message = "shape [1099511627776, 1099511627776]: the product of its nonzero sizes, or its \
                   indices, exceed 2^63 - 1";
    check(ShapeTracker::from_shape(&[BIG, BIG]), message);
    check(View::create(&[BIG, BIG], Some(&[0, 0]), 0, None), message);
    check(tracker(&[1, 1]).expand(&[BIG, BIG]), message);
    check(tracker(&[BIG, 1]).expand(&[BIG, BIG]), message);
    check(tracker(&[1]).reshape(&[BIG, BIG]), message);
    let message = "shape [1099511627776, 1099511627777]: the product of its nonzero sizes, or its \
                   indices, exceed 2^63 - 1";
    check(tracker(&[BIG, 1]).pad(&[(0, 0), (0, BIG)]), message);
    let message = "shape [5]: the product of its nonzero sizes, or its indices, exceed 2^63 - 1";
    check(tracker(&[5]).pad(&[(i64::MAX, 0)]), message);
    check(tracker(&[5]).pad(&[(i64::MAX, i64::MAX)]), message);
}

#[test]
fn stride_or_offset_beyond_an_i64_is_refused() {
    let message = "shape [3]: the product of its nonzero sizes, or its indices, exceed 2^63 - 1";
    check(View::create(&[3], Some(&[i64::MAX]), 0, None), message);
    check(View::create(&[3], Some(&[i64::MIN]), 0, None), message);
    check(View::create(&[3], Some(&[1]), i64::MAX, None), message);
    check(View::create(&[3], Some(&[-1]), i64::MIN, None), message);
    check(View::create(&[3], Some(&[i64::MAX]), 0, Some(&[(2, 3)])), message);
    let distant = View::create(&[2, 1], Some(&[BIG, 0]), 0, None).expect("2^40 apart");
    let message =
        "shape [8388609, 1]: the product of its nonzero sizes, or its indices, exceed 2^63 - 1";
    check(distant.pad(&[((1 << 23) - 1, 0), (0, 0)]), message);
}

#[test]
fn shapes_up_to_the_limit_work() {
    let largest = tracker(&[i64::MAX]).flip(&[true]).expect("fits");
    assert_eq!(largest.locate(&[0]), Some(i64::MAX - 1));
    assert_eq!(largest.size(), i64::MAX);
    let row = tracker(&[1, BIG]).expand(&[1 << 22, BIG]).expect("2^62 elements");
    assert_eq!(row.locate(&[5, 7]), Some(7));
    let flat = row.permute(&[1, 0]).and_then(|row| row.reshape(&[1 << 62])).expect("2^62");
    assert_eq!(flat.locate(&[(7 << 22) + 5]), Some(7));
    assert_eq!(flat.simplify().locate(&[(1 << 62) - 1]), Some(BIG - 1));
    assert_eq!(flat.real_size(), BIG);
    let empty = tracker(&[0, BIG, 1 << 22]);
    assert_eq!(empty.size(), 0);
    assert_eq!(empty.reshape(&[1 << 62, 0]).expect("no elements").size(), 0);
    check(
        empty.reshape(&[1]),
        "reshape [0, 1099511627776, 4194304] to [1]: 0 elements cannot become 1",
    );
}

#[test]
fn empty_parts_at_the_end_of_a_large_shape_have_no_index() {
    // The first element of the part, if it had one, would be beyond 2^63 - 1.
    let size = (1 << 62) - 1;
    let part = tracker(&[2, size]).shrink(&[(2, 2), (size / 2, size)]).expect("no elements");
    assert_eq!((part.shape(), part.size()), (&[0, size - size / 2][..], 0));
    assert_eq!(part.simplify().locate(&[0, 0]), None);
}

#[test]
fn nonzero_sizes_must_fit_beside_a_zero() {
    let message = "shape [9223372036854775807, 9223372036854775807, 0]: the product of its \
                   nonzero sizes, or its indices, exceed 2^63 - 1";
    let sizes = [i64::MAX, i64::MAX, 0];
    check(ShapeTracker::from_shape(&sizes), message);
    check(View::create(&sizes, None, 0, None), message);
    check(View::create(&sizes, Some(&[0, 0, 0]), 0, None), message);
    check(tracker(&[0]).reshape(&sizes), message);
    check(tracker(&[1, 1, 0]).expand(&sizes), message);
    check(tracker(&[1, 1, 0]).pad(&[(i64::MAX - 1, 0), (i64::MAX - 1, 0), (0, 0)]), message);
    // Sizes that fit together with a 0 still fit when the 0 becomes 1.
    let empty = tracker(&[i64::MAX, 0]);
    assert_eq!(empty.pad(&[(0, 0), (0, 1)]).expect("all padding").size(), i64::MAX);
}

#[test]
fn reshape_to_another_count_is_refused() {
    check(
        tracker(&[2, 3]).reshape(&[4, 2]),
        "reshape [2, 3] to [4, 2]: 6 elements cannot become 8",
    );
    check(tracker(&[]).reshape(&[0]), "reshape [] to [0]: 1 elements cannot become 0");
    let message = "reshape [2, 3] to [5]: 6 elements cannot become 5";
    let plain = gradiff_view::Movement::Reshape(vec![5]);
    check(tracker(&[2, 3]).apply(&plain, false), message);
    check(tracker(&[2, 3]).apply(&plain, true), message);
}

#[test]
fn permute_must_name_each_axis_once() {
    for axes in [&[0][..], &[0, 0], &[0, 2], &[0, 1, 2]] {
        let message = format!(
            "permute [2, 3] by {axes:?}: each axis from 0 up to the rank 2 must appear once"
        );
        check(tracker(&[2, 3]).permute(axes), &message);
    }
    assert_eq!(tracker(&[]).permute(&[]), Ok(tracker(&[])));
}

#[test]
fn expand_grows_only_axes_of_size_1_of_the_same_rank() {
    for to in [&[2][..], &[2, 3, 1], &[4, 3], &[2, 0]] {
        let message =
            format!("expand [2, 3] to {to:?}: ranks must agree and only axes of size 1 can grow");
        check(tracker(&[2, 3]).expand(to), &message);
    }
    let message = "expand [0] to [1]: ranks must agree and only axes of size 1 can grow";
    check(tracker(&[0]).expand(&[1]), message);
    assert_eq!(tracker(&[1, 3]).expand(&[0, 3]).expect("an empty repetition").size(), 0);
}

#[test]
fn pad_takes_a_pair_of_amounts_per_axis() {
    for amounts in [&[(1, 1)][..], &[(0, 0), (-1, 0)], &[(0, 0), (0, -1)], &[(0, 0); 3]] {
        let message =
            format!("pad [2, 3] by {amounts:?}: one (before, after) pair per axis, each 0 or more");
        check(tracker(&[2, 3]).pad(amounts), &message);
    }
    assert_eq!(tracker(&[2, 3]).pad(&[(0, 0); 2]), Ok(tracker(&[2, 3])));
    let padded = tracker(&[0, 2]).pad(&[(1, 1), (0, 0)]).expect("all padding");
    assert_eq!((padded.shape(), padded.locate(&[0, 0])), (&[2, 2][..], None));
}

#[test]
fn shrink_stays_inside_the_shape() {
    for bounds in [&[(0, 2)][..], &[(0, 3), (0, 3)], &[(-1, 2), (0, 3)], &[(2, 1), (0, 3)]] {
        let message = format!(
            "shrink [2, 3] to {bounds:?}: one (begin, end) per axis, 0 <= begin <= end <= size"
        );
        check(tracker(&[2, 3]).shrink(bounds), &message);
    }
    assert_eq!(tracker(&[2, 3]).shrink(&[(2, 2), (0, 3)]).expect("nothing left").size(), 0);
}

#[test]
fn flip_takes_a_flag_per_axis() {
    check(tracker(&[2, 3]).flip(&[true]), "flip [2, 3] by [true]: one flag per axis");
    check(tracker(&[]).flip(&[false]), "flip [] by [false]: one flag per axis");
}

#[test]
fn view_of_other_rank_or_mask_outside_is_refused() {
    let message =
        "view of [2, 3]: one stride and one mask pair per axis, 0 <= begin and end <= size";
    check(View::create(&[2, 3], Some(&[1]), 0, None), message);
    check(View::create(&[2, 3], None, 0, Some(&[(0, 2)])), message);
    check(View::create(&[2, 3], None, 0, Some(&[(0, 2), (0, 4)])), message);
    check(View::create(&[2, 3], None, 0, Some(&[(-1, 2), (0, 3)])), message);
}

#[test]
fn view_beyond_its_base_is_refused() {
    check(<ShapeTracker>::from_views(&[]), "a shape tracker needs at least one view");
    let message = "views do not stack: one reads elements 0 to 6, the one below has 6";
    check(ShapeTracker::from_views(&[view(&[2, 3]), view(&[7])]), message);
    check(tracker(&[2, 3]).compose(&tracker(&[7])), message);
    let message = "views do not stack: one reads elements -1 to 4, the one below has 6";
    let early = View::create(&[6], Some(&[1]), -1, None).expect("a view");
    check(ShapeTracker::from_views(&[view(&[6]), early]), message);
    // Padding may be outside, since it is not read.
    let padded = view(&[6]).pad(&[(1, 1)]).expect("fits");
    assert!(ShapeTracker::from_views(&[view(&[2, 3]), padded]).is_ok());
}

#[test]
fn locate_outside_the_shape_is_none() {
    let tracker = tracker(&[2, 3]);
    for index in [&[0][..], &[2, 0], &[0, 3], &[-1, 0], &[0, 0, 0]] {
        assert_eq!(tracker.locate(index), None);
    }
}

#[test]
fn huge_sizes_beside_a_zero_never_overflow() {
    for shape in [[BIG, 1 << 22, 0], [0, BIG, 1 << 22], [BIG, 0, 1 << 22]] {
        let empty = tracker(&shape);
        assert_eq!((empty.size(), empty.real_size()), (0, 0));
        assert_eq!(empty.minify().shape(), [0]);
        assert_eq!(empty.real_strides(false), [Some(0); 3]);
        assert_eq!(empty.invert(&[0]).expect("nothing to put back").shape(), [0]);
        let moved = empty.flip(&[true; 3]).and_then(|empty| empty.permute(&[2, 0, 1]));
        let moved = moved.and_then(|empty| empty.reshape(&[0, 5])).expect("no elements");
        assert_eq!(moved.simplify().shape(), [0, 5]);
        assert_eq!(empty.compose(&tracker(&[0])).expect("empty on empty").size(), 0);
        let kept = empty.shrink(&shape.map(|size| (size / 2, size))).expect("inside");
        assert_eq!(kept.size(), 0);
        let padded = empty.pad(&[(1, 1); 3]);
        assert!(padded.is_err(), "more than 2^63 elements of padding");
    }
}

#[test]
fn highest_index_leaves_room_for_its_size() {
    check(
        View::create(&[1], None, i64::MAX, None),
        "shape [1]: the product of its nonzero sizes, or its indices, exceed 2^63 - 1",
    );
    let last = View::create(&[1], None, i64::MAX - 1, None).expect("the last index");
    let last = ShapeTracker::from_views(&[last]).expect("one view");
    assert_eq!(last.real_size(), i64::MAX);
}

/// A small block off the diagonal of a padded matrix, read by overlapping windows of the diagonal:
/// all elements are padding, but each narrowing of the windows shows only a few of them.
#[test]
fn merges_that_narrow_slowly_end_early() {
    const SIZE: i64 = 1 << 20;
    let windows = |count: i64| -> Result<ShapeTracker, Error> {
        let first = count - 1;
        let block = tracker(&[2, 2])
            .pad(&[(first, SIZE - first - 2), (first - 2, SIZE - first)])?
            .reshape(&[SIZE * SIZE])?;
        let diagonal = block
            .shrink(&[(0, SIZE * SIZE - 1)])?
            .reshape(&[SIZE - 1, SIZE + 1])?
            .shrink(&[(0, SIZE - 1), (0, 1)])?
            .reshape(&[1, SIZE - 1])?;
        diagonal
            .expand(&[count + 1, SIZE - 1])?
            .reshape(&[(count + 1) * (SIZE - 1)])?
            .shrink(&[(0, count * SIZE)])?
            .reshape(&[count, SIZE])?
            .shrink(&[(0, count), (0, count)])
    };
    let check = move || {
        let count = SIZE / 2 - 1;
        let windows = windows(count).expect("the movements are legal");
        let simple = windows.simplify();
        assert_eq!(simple.shape(), [count, count]);
        for index in [[0, 0], [0, count - 1], [count - 1, 0], [count / 2, count / 2]] {
            assert_eq!(simple.locate(&index), windows.locate(&index), "{index:?}");
        }
    };
    let thread = std::thread::Builder::new().stack_size(256 << 10).spawn(check);
    thread.expect("a thread starts").join().expect("the check passes");
}
