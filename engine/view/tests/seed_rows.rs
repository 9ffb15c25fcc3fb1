//! Statements about views in the documents on which gradiff is based: one test per row, each
//! quoting its row.
//!
//! Index texts appear here without simplification. The corpus has the simplified ones.

use gradiff_view::{IndexAlgebra, Movement, ShapeTracker, View};

/// An algebra whose expressions are Python source.
struct Text;

impl Text {
    fn join(left: &str, sign: &str, right: &str) -> String {
        format!("({left}{sign}{right})")
    }
}

impl IndexAlgebra for Text {
    type Expr = String;
    fn constant(&mut self, value: i64) -> String {
        value.to_string()
    }
    fn add(&mut self, left: String, right: String) -> String {
        Text::join(&left, "+", &right)
    }
    fn mul(&mut self, left: String, right: String) -> String {
        Text::join(&left, "*", &right)
    }
    fn floordiv(&mut self, left: String, right: String) -> String {
        Text::join(&left, "//", &right)
    }
    fn floormod(&mut self, left: String, right: String) -> String {
        Text::join(&left, "%", &right)
    }
    fn lt(&mut self, left: String, right: String) -> String {
        Text::join(&left, "<", &right)
    }
    fn ge(&mut self, left: String, right: String) -> String {
        Text::join(&Text::join(&left, "<", &right), "!=", "True")
    }
    fn and(&mut self, left: String, right: String) -> String {
        Text::join(&left, "&", &right)
    }
}

fn tracker(shape: &[i64]) -> ShapeTracker {
    ShapeTracker::from_shape(shape).expect("a movement that fits")
}

fn view(shape: &[i64]) -> View {
    View::create(shape, None, 0, None).expect("a movement that fits")
}

/// Index and validity text with the indices `<name>0`, `<name>1`, ...
fn texts(tracker: &ShapeTracker, name: &str) -> (String, Option<String>) {
    let names = (0..tracker.shape().len()).map(|axis| format!("{name}{axis}"));
    tracker.index(&mut Text, &names.collect::<Vec<_>>())
}

/// Returns the buffer indices of the elements of a view, in row-major order.
fn shown(view: &View) -> Vec<i64> {
    let flat = ShapeTracker::from_views(std::slice::from_ref(view)).expect("a movement that fits");
    let flat = flat.reshape(&[view.size()]).expect("a movement that fits");
    (0..view.size()).map(|at| flat.locate(&[at]).expect("all real")).collect()
}

/// The tracker of rows S1 to S7 after its first movements.
fn permuted() -> ShapeTracker {
    tracker(&[10, 10]).permute(&[1, 0]).expect("a movement that fits")
}

fn flattened() -> ShapeTracker {
    permuted()
        .reshape(&[5, 2, 5, 2])
        .expect("a movement that fits")
        .reshape(&[100])
        .expect("a movement that fits")
}

/// The tracker of rows S10 to S12: `st.reshape((2,3)).flip((True, False)).pad(((1,1),(1,1)))`.
fn reshaped_flipped_padded() -> ShapeTracker {
    let turned = tracker(&[3, 2])
        .reshape(&[2, 3])
        .expect("a movement that fits")
        .flip(&[true, false])
        .expect("a movement that fits");
    turned.pad(&[(1, 1), (1, 1)]).expect("a movement that fits")
}

#[test]
fn s01_from_shape_has_one_row_major_view() {
    // S1 "create a virtual (10, 10) Tensor ... you'll see it has one view. the (10, 1 are the
    // strides)"
    assert_eq!(
        tracker(&[10, 10]).to_string(),
        "ShapeTracker(views=(View(shape=(10, 10), strides=(10, 1), offset=0, mask=None, \
         contiguous=True),))"
    );
}

#[test]
fn s02_permute_changes_the_strides() {
    // S2 "we can permute it, and the strides change"
    assert_eq!(
        permuted().to_string(),
        "ShapeTracker(views=(View(shape=(10, 10), strides=(1, 10), offset=0, mask=None, \
         contiguous=False),))"
    );
}

#[test]
fn s03_reshape_keeps_the_permute_in_one_view() {
    // S3 "we can then reshape it, and the strides change again. note how the permute stays applied"
    assert_eq!(
        permuted().reshape(&[5, 2, 5, 2]).unwrap().to_string(),
        "ShapeTracker(views=(View(shape=(5, 2, 5, 2), strides=(2, 1, 20, 10), offset=0, \
         mask=None, contiguous=False),))"
    );
}

#[test]
fn s04_flat_reshape_of_a_permute_takes_a_second_view() {
    // S4 "if we were to reshape it to a (100,) shape tensor, we have to create a second view"
    assert_eq!(
        flattened().to_string(),
        "ShapeTracker(views=(View(shape=(5, 2, 5, 2), strides=(2, 1, 20, 10), offset=0, \
         mask=None, contiguous=False), View(shape=(100,), strides=(1,), offset=0, mask=None, \
         contiguous=True)))"
    );
}

#[test]
fn s05_index_through_two_views() {
    // S5 "we can render a Python expression for the index at any time":
    // (((idx0%10)*10)+(idx0//10)). The axes (5, 2, 5, 2) act as two of 10; simplification only
    // changes the order of the sum.
    let expected = "((idx0//10)+((idx0%10)*10))";
    assert_eq!(texts(&flattened(), "idx"), (expected.to_owned(), None));
    let expected = "((ridx0//10)+((ridx0%10)*10))";
    assert_eq!(texts(&flattened(), "ridx"), (expected.to_owned(), None));
}

#[test]
fn s06_reshape_back_gives_a_simple_index() {
    // S6 "if we reshape it back, the indexes get simple again": ((idx1*10)+idx0), by simplification
    // of ...
    let back = flattened().reshape(&[10, 10]).unwrap();
    let expected = "((((idx0*10)+idx1)//10)+((((idx0*10)+idx1)%10)*10))";
    assert_eq!(texts(&back, "idx"), (expected.to_owned(), None));
    // ... or of the views.
    assert_eq!(texts(&back.simplify(), "idx"), ("(idx0+(idx1*10))".to_owned(), None));
}

#[test]
fn s07_two_views_until_simplify_then_contiguous() {
    // S7 "the ShapeTracker still has two views though... until we simplify it!"
    let back = flattened().reshape(&[10, 10]).unwrap();
    assert_eq!(
        back.to_string(),
        "ShapeTracker(views=(View(shape=(5, 2, 5, 2), strides=(2, 1, 20, 10), offset=0, \
         mask=None, contiguous=False), View(shape=(10, 10), strides=(10, 1), offset=0, \
         mask=None, contiguous=True)))"
    );
    assert_eq!(
        back.simplify().to_string(),
        "ShapeTracker(views=(View(shape=(10, 10), strides=(1, 10), offset=0, mask=None, \
         contiguous=False),))"
    );
    // "and now we permute it back ... and it's even contiguous"
    let whole = back.simplify().permute(&[1, 0]).unwrap();
    assert_eq!(
        whole.to_string(),
        "ShapeTracker(views=(View(shape=(10, 10), strides=(10, 1), offset=0, mask=None, \
         contiguous=True),))"
    );
    assert!(whole.is_contiguous());
}

#[test]
fn s08_reshape_flip_and_pad_of_one_view() {
    // S8 "1-d array of 32 elements"; "Flip the last dimension"; "just mark the padded elements"
    let v = view(&[4, 8]);
    assert_eq!(
        v.to_string(),
        "View(shape=(4, 8), strides=(8, 1), offset=0, mask=None, contiguous=True)"
    );
    assert_eq!(
        v.reshape(&[32]).unwrap().unwrap().to_string(),
        "View(shape=(32,), strides=(1,), offset=0, mask=None, contiguous=True)"
    );
    let turned = v.flip(&[false, true]).unwrap();
    assert_eq!(
        turned.to_string(),
        "View(shape=(4, 8), strides=(8, -1), offset=7, mask=None, contiguous=False)"
    );
    // "This should have looked like this": each row backwards.
    assert_eq!(shown(&turned)[..9], [7, 6, 5, 4, 3, 2, 1, 0, 15]);
    assert_eq!(
        v.pad(&[(2, 2), (2, 2)]).unwrap().to_string(),
        "View(shape=(8, 12), strides=(8, 1), offset=-18, mask=((2, 6), (2, 10)), \
         contiguous=False)"
    );
}

#[test]
fn s09_flat_reshape_of_a_mask_is_none() {
    // S9 "Oops, we get a None ... we can't specify the valid mask of the linearized result"
    let padded = view(&[3, 2]).pad(&[(1, 1), (1, 1)]).unwrap();
    assert_eq!(
        padded.to_string(),
        "View(shape=(5, 4), strides=(2, 1), offset=-3, mask=((1, 4), (1, 3)), contiguous=False)"
    );
    assert_eq!(padded.reshape(&[20]), Ok(None));
}

#[test]
fn s10_reshape_flip_pad_is_one_view_and_its_flat_form_two() {
    // S10 "This can be represented with a single View"
    let tracker = reshaped_flipped_padded();
    assert_eq!(
        tracker.to_string(),
        "ShapeTracker(views=(View(shape=(4, 5), strides=(-3, 1), offset=5, \
         mask=((1, 3), (1, 4)), contiguous=False),))"
    );
    // S10 "If the transformation can not be represented with a single View, [it] will keep them
    // separate"
    assert_eq!(
        tracker.reshape(&[20]).unwrap().to_string(),
        "ShapeTracker(views=(View(shape=(4, 5), strides=(-3, 1), offset=5, \
         mask=((1, 3), (1, 4)), contiguous=False), View(shape=(20,), strides=(1,), offset=0, \
         mask=None, contiguous=True)))"
    );
}

#[test]
fn s11_s12_index_and_validity_texts() {
    // S11 "expressions for indexing and validating memory access": ADD(ADD(MUL(RANGE0, -3),
    // RANGE1), 5), and CMPNE(CMPLT(x, 1), True) & CMPLT(x, 3) ...; S12 their text, which needs no
    // simplification.
    let (index, valid) = texts(&reshaped_flipped_padded(), "ridx");
    assert_eq!(index, "(((ridx0*-3)+ridx1)+5)");
    let expected = "(((((ridx0<1)!=True)&(ridx0<3))&((ridx1<1)!=True))&(ridx1<4))";
    assert_eq!(valid.as_deref(), Some(expected));
}

#[test]
fn s13_empty_shape_has_stride_0() {
    // S13 "arg=ShapeTracker(views=(View(shape=(0,), strides=(0,), offset=0, mask=None,
    // contiguous=True),))"
    assert_eq!(
        tracker(&[0]).to_string(),
        "ShapeTracker(views=(View(shape=(0,), strides=(0,), offset=0, mask=None, \
         contiguous=True),))"
    );
}

#[test]
fn s14_unmerged_every_reshape_appends_a_view() {
    // S14 "MERGE_VIEW=0: every reshape appends a view (verified: 3 views for 2 reshapes)"
    let reshapes = [Movement::Reshape(vec![5, 20]), Movement::Reshape(vec![100])];
    let (mut merged, mut plain) = (tracker(&[10, 10]), tracker(&[10, 10]));
    for movement in &reshapes {
        merged = merged.apply(movement, true).unwrap();
        plain = plain.apply(movement, false).unwrap();
    }
    assert_eq!(merged.views().len(), 1);
    assert_eq!(plain.views(), [view(&[10, 10]), view(&[5, 20]), view(&[100])]);
    assert_eq!(plain.simplify(), merged);
}

#[test]
fn s15_strides_and_offset_pick_elements() {
    // S15 "as_strided": "skip every other element in the rows ... shape 4x4, and stride (8, 2)"
    let strided = |shape: &[i64], strides: &[i64], offset| {
        shown(&View::create(shape, Some(strides), offset, None).unwrap())
    };
    let even = [0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30];
    assert_eq!(strided(&[4, 4], &[8, 2], 0), even);
    // "an offset ... will give us the odd elements in each row"
    assert_eq!(strided(&[4, 4], &[8, 2], 1), even.map(|element| element + 1));
    // "the diagonal elements of a (0, 9, 18, 27)"
    assert_eq!(strided(&[4], &[9], 0), [0, 9, 18, 27]);
    // "set one of more of the strides to 0, to duplicate (broadcast) dimensions"
    let rows = [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3];
    assert_eq!(strided(&[4, 4], &[1, 0], 0), rows);
    // "it creates 1 single element, and makes all elements in the Tensor refer to it"
    assert_eq!(strided(&[4, 4], &[0, 0], 0), [0; 16]);
    // "torch actually does not support negative strides"; here they read backwards.
    assert_eq!(strided(&[4], &[-2], 7), [7, 5, 3, 1]);
    // The same broadcasts by movements.
    let column = view(&[4]).reshape(&[4, 1]).unwrap().unwrap().expand(&[4, 4]).unwrap();
    assert_eq!(column.strides(), [1, 0]);
    assert_eq!(view(&[1, 1]).expand(&[4, 4]).unwrap().strides(), [0, 0]);
}

#[test]
fn s16_pad_is_a_mask_expand_is_stride_0_and_contiguous_is_a_formula() {
    // S16 "pad=mask+negative offset, expand=stride 0, contiguous flag definition = offset==0 & mask
    // None & strides==strides_for_shape"
    let padded = view(&[3]).pad(&[(2, 0)]).unwrap();
    assert_eq!((padded.offset(), padded.mask()), (-2, Some(&[(2, 5)][..])));
    assert_eq!(view(&[1]).expand(&[5]).unwrap().strides(), [0]);
    let contiguous = |strides: Option<&[i64]>, offset, mask: Option<&[(i64, i64)]>| {
        View::create(&[4, 8], strides, offset, mask).unwrap().is_contiguous()
    };
    assert!(contiguous(None, 0, None));
    assert!(contiguous(Some(&[8, 1]), 0, Some(&[(0, 4), (0, 8)])));
    assert!(!contiguous(None, 1, None));
    assert!(!contiguous(None, 0, Some(&[(0, 4), (0, 7)])));
    assert!(!contiguous(Some(&[1, 4]), 0, None));
}

#[test]
fn measured_pad_of_one_axis() {
    // "pad(1,1) of (4,6): strides (6,1) offset -1 mask ((0,4),(1,7)); real_strides (6,None),
    // ignore_valid (6,1); axis_is_masked(1) True/(0) False; real_size 24 vs size 32;
    // unit_stride_axes [] vs [1]"
    let padded = tracker(&[4, 6]).pad(&[(0, 0), (1, 1)]).unwrap();
    assert_eq!(
        padded.views()[0].to_string(),
        "View(shape=(4, 8), strides=(6, 1), offset=-1, mask=((0, 4), (1, 7)), contiguous=False)"
    );
    assert_eq!(padded.real_strides(false), [Some(6), None]);
    assert_eq!(padded.real_strides(true), [Some(6), Some(1)]);
    assert!(padded.axis_is_masked(1));
    assert!(!padded.axis_is_masked(0));
    assert_eq!((padded.real_size(), padded.size()), (24, 32));
    assert!(padded.unit_stride_axes(false).is_empty());
    assert_eq!(padded.unit_stride_axes(true), [1]);
}

#[test]
fn measured_invert() {
    // "invert: permute ok, flip ok, pad ok (becomes shrink offset 4), shrink->None, expand->None"
    let start = tracker(&[2, 3]);
    let turned = start.permute(&[1, 0]).unwrap().invert(&[2, 3]).unwrap();
    assert_eq!(turned.views()[0].strides(), [1, 2]);
    let flipped = start.flip(&[true, false]).unwrap();
    assert_eq!(flipped.invert(&[2, 3]), Some(flipped.clone()));
    let padded = start.pad(&[(1, 0), (1, 0)]).unwrap().invert(&[2, 3]).unwrap();
    assert_eq!(
        padded.views()[0].to_string(),
        "View(shape=(2, 3), strides=(4, 1), offset=5, mask=None, contiguous=False)"
    );
    let padded = start.pad(&[(1, 1), (0, 1)]).unwrap().invert(&[2, 3]).unwrap();
    assert_eq!(padded.views()[0].offset(), 4);
    assert_eq!(start.shrink(&[(0, 1), (0, 3)]).unwrap().invert(&[2, 3]), None);
    let column = tracker(&[2, 1]);
    assert_eq!(column.expand(&[2, 3]).unwrap().invert(&[2, 1]), None);
}

#[test]
fn measured_minify_and_reshape() {
    // "minify((2,3) stride 0)->(6,). reshape(()) with empty mask->None."
    let repeated = View::create(&[2, 3], Some(&[0, 0]), 0, None).unwrap();
    assert_eq!(repeated.minify().shape(), [6]);
    let hidden = View::create(&[1], None, 0, Some(&[(0, 0)])).unwrap();
    assert_eq!(hidden.reshape(&[]), Ok(None));
    // "(4,)pad(2,0)->reshape(2,3) 2 views; (6,)pad(2,0)->reshape(4,2) 1 view mask ((1,4),(0,2))"
    let padded = |size: i64| tracker(&[size]).pad(&[(2, 0)]).unwrap();
    assert_eq!(padded(4).reshape(&[2, 3]).unwrap().views().len(), 2);
    let whole_rows = padded(6).reshape(&[4, 2]).unwrap();
    assert_eq!(whole_rows.views().len(), 1);
    assert_eq!(whole_rows.views()[0].mask(), Some(&[(1, 4), (0, 2)][..]));
}

#[test]
fn measured_canonical_forms() {
    // "create (canon: size-1 stride->0; 0 in shape -> all-zero strides, contiguous=True; no-op mask
    // dropped; dim with one unmasked index -> stride 0 & offset moved; empty mask -> strides 0,
    // mask ((0,0),..))"
    let text = |shape: &[i64], strides: &[i64], offset, mask: Option<&[(i64, i64)]>| {
        View::create(shape, Some(strides), offset, mask).unwrap().to_string()
    };
    assert_eq!(
        text(&[1, 3], &[7, 1], 0, None),
        "View(shape=(1, 3), strides=(0, 1), offset=0, mask=None, contiguous=True)"
    );
    assert_eq!(
        text(&[2, 0], &[5, 3], 4, None),
        "View(shape=(2, 0), strides=(0, 0), offset=0, mask=None, contiguous=True)"
    );
    assert_eq!(
        text(&[2, 3], &[3, 1], 0, Some(&[(0, 2), (0, 3)])),
        "View(shape=(2, 3), strides=(3, 1), offset=0, mask=None, contiguous=True)"
    );
    assert_eq!(
        text(&[2, 3], &[3, 1], 0, Some(&[(0, 2), (2, 3)])),
        "View(shape=(2, 3), strides=(3, 0), offset=2, mask=((0, 2), (2, 3)), contiguous=False)"
    );
    assert_eq!(
        text(&[2, 3], &[3, 1], 5, Some(&[(1, 1), (0, 3)])),
        "View(shape=(2, 3), strides=(0, 0), offset=0, mask=((0, 0), (0, 0)), contiguous=False)"
    );
}
