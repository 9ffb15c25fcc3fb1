//! Sums of writes and transposed convolutions, so large that they are computed in other ways than
//! small ones: they are compared with loops over single writes and products. All numbers are small
//! integers, whose sums are exact in any order.

use gradiff::{Conv, Error, Tensor};

/// Numbers from -7 to 7 that repeat late.
fn numbers(count: usize, step: usize) -> Vec<f32> {
    (0..count).map(|index| (index * step % 15) as f32 - 7.0).collect()
}

/// Indices below `size`; some of them repeat, and some are outside.
fn indices(count: usize, size: i64) -> Vec<i64> {
    let outside = [-1, size, i64::MIN, i64::MAX, size - 1, 0, size - 1, 0];
    let inside = |index: usize| (index as i64 * index as i64 * 31 + 7) % (size / 2);
    (0..count).map(|at| if at % 9 == 4 { outside[at / 9 % 8] } else { inside(at) }).collect()
}

fn assert_same(found: &Tensor, expected: &[f32]) -> Result<(), Error> {
    let found = found.to_vec::<f32>()?;
    assert_eq!(found.len(), expected.len());
    let is_same = |x: f32, y: f32| x == y || x.is_nan() && y.is_nan();
    let wrong = found.iter().zip(expected).position(|(x, y)| !is_same(*x, *y));
    assert_eq!(wrong.map(|at| (at, found[at], expected[at])), None);
    Ok(())
}

#[test]
fn writes_to_many_positions_are_sorted() -> Result<(), Error> {
    let (rows, count, size) = (4, 130, 4200);
    let index: Vec<i64> = (0..rows).flat_map(|_| indices(count, size as i64)).collect();
    let mut source = numbers(rows * count, 11);
    source[3] = f32::INFINITY;
    source[count + 4] = f32::NAN;
    let start = numbers(rows * size, 7);
    let mut expected = start.clone();
    for (at, position) in index.iter().enumerate() {
        if (0..size as i64).contains(position) {
            expected[at / count * size + *position as usize] += source[at];
        }
    }
    let shape = |columns: usize| [rows as i64, columns as i64];
    let x = Tensor::from_slice(&shape(size), &start)?;
    let index = Tensor::from_slice(&shape(count), &index)?;
    let source = Tensor::from_slice(&shape(count), &source)?;
    assert_same(&x.scatter_add(&index, &source, 1)?, &expected)
}

#[test]
fn sums_of_narrow_integers_wrap_where_they_are_sorted() -> Result<(), Error> {
    let (count, size, columns) = (130, 2060, 8);
    let index = indices(count, size as i64);
    let source: Vec<i8> = (0..count * columns).map(|at| (at * 37 % 251) as u8 as i8).collect();
    let mut expected = vec![1i8; size * columns];
    for (at, value) in source.iter().enumerate() {
        if let Ok(position @ 0..2060) = usize::try_from(index[at / columns]) {
            let element = &mut expected[position * columns + at % columns];
            *element = element.wrapping_add(*value);
        }
    }
    let x = Tensor::from_slice(&[size as i64, columns as i64], &vec![1i8; size * columns])?;
    let index = Tensor::from_slice(&[count as i64, 1], &index)?;
    let index = index.expand(&[count as i64, columns as i64])?;
    let source = Tensor::from_slice(&[count as i64, columns as i64], &source)?;
    assert_eq!(x.scatter_add(&index, &source, 0)?.to_vec::<i8>()?, expected);
    Ok(())
}

#[test]
fn gradients_of_selected_rows_are_added_up() -> Result<(), Error> {
    let (count, size, columns) = (96, 1110, 20);
    let index = indices(count, size as i64);
    let weights = numbers(count * columns, 13);
    let mut expected = vec![0f32; size * columns];
    for (at, weight) in weights.iter().enumerate() {
        if let Ok(position @ 0..1110) = usize::try_from(index[at / columns]) {
            expected[position * columns + at % columns] += weight;
        }
    }
    let table = numbers(size * columns, 7);
    let table = Tensor::from_slice(&[size as i64, columns as i64], &table)?;
    let index = Tensor::from_slice(&[count as i64], &index)?;
    let weights = Tensor::from_slice(&[count as i64, columns as i64], &weights)?;
    let gradient = table.index_select(&index, 0)?.gradient_by(&weights, &[&table])?;
    assert_same(&gradient[0], &expected)
}

/// The transposed convolution of one image [c, h, w] with weights [c, k, 3, 5], stride 2, padding
/// 1 above, 1 on the left and on the right.
fn transposed(image: &[f32], weights: &[f32], outputs: usize) -> Vec<f32> {
    let (channels, height, width) = (8, 8, 10);
    let (rows, columns) = (2 * (height - 1) + 3 - 1 + 1, 2 * (width - 1) + 5 - 2);
    let mut sums = vec![0f32; outputs * rows * columns];
    for channel in 0..channels {
        for (y, x) in (0..height).flat_map(|y| (0..width).map(move |x| (y, x))) {
            let value = image[(channel * height + y) * width + x];
            for (output, i, j) in
                (0..outputs).flat_map(|o| (0..15).map(move |at| (o, at / 5, at % 5)))
            {
                let place = ((2 * y + i).checked_sub(1), (2 * x + j).checked_sub(1));
                let (Some(row @ 0..17), Some(column @ 0..21)) = place else { continue };
                let weight = weights[((channel * outputs + output) * 3 + i) * 5 + j];
                sums[(output * rows + row) * columns + column] += value * weight;
            }
        }
    }
    sums
}

#[test]
fn phases_of_two_lengths_are_transposed_convolutions() -> Result<(), Error> {
    let outputs = 16;
    let (mut image, weights) = (numbers(8 * 8 * 10, 7), numbers(8 * outputs * 15, 11));
    image[3] = f32::INFINITY;
    let expected = transposed(&image, &weights, outputs);
    let x = Tensor::from_slice(&[1, 8, 8, 10], &image)?;
    let w = Tensor::from_slice(&[8, outputs as i64, 3, 5], &weights)?;
    let options = Conv::default().stride(2).padding([1, 0, 1, 1]).output_padding([1, 0]);
    let found = x.conv_transpose2d(&w, &options)?;
    assert_eq!(found.shape(), [1, outputs as i64, 17, 21]);
    assert_same(&found, &expected)
}

#[test]
fn gradients_of_images_reach_the_rest_behind_the_last_window() -> Result<(), Error> {
    let (channels, outputs, height, width) = (10, 32, 12, 14);
    let (rows, columns) = ((height - 3) / 2 + 1, (width - 3) / 2 + 1);
    let weights = numbers(outputs * channels * 9, 11);
    let given = numbers(outputs * rows * columns, 13);
    let mut expected = vec![0f32; channels * height * width];
    for (output, channel) in (0..outputs).flat_map(|o| (0..channels).map(move |c| (o, c))) {
        for (y, x) in (0..rows).flat_map(|y| (0..columns).map(move |x| (y, x))) {
            for (i, j) in (0..9).map(|at| (at / 3, at % 3)) {
                let at = (channel * height + 2 * y + i) * width + 2 * x + j;
                expected[at] += given[(output * rows + y) * columns + x]
                    * weights[((output * channels + channel) * 3 + i) * 3 + j];
            }
        }
    }
    let image = numbers(channels * height * width, 7);
    let x = Tensor::from_slice(&[1, channels as i64, height as i64, width as i64], &image)?;
    let w = Tensor::from_slice(&[outputs as i64, channels as i64, 3, 3], &weights)?;
    let given = Tensor::from_slice(&[1, outputs as i64, rows as i64, columns as i64], &given)?;
    let found = x.conv2d(&w, &Conv::default().stride(2))?.gradient_by(&given, &[&x])?;
    assert_same(&found[0], &expected)
}
