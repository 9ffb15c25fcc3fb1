//! Attention.

use gradiff_graph::DType;

use crate::error::invalid;
use crate::methods::elementwise::wide;
use crate::promotion::promote;
use crate::{Error, Tensor};

impl Tensor {
    /// Attention of the queries `self` [.., l, d] to keys [.., s, d] and values [.., s, e]: the
    /// products [.., l, e] of the shares and the values. The shares are
    /// [`softmax`](Tensor::softmax), along the keys, of the scores: the products of queries and
    /// keys, divided by the square root of d. The mask is broadcast to the scores [.., l, s]: bool,
    /// where a score is -inf if it is false, or floats that are added. With `is_causal`, a score is
    /// also -inf where the number of the key is above that of the query. A query that sees no key
    /// has NaN. The shares pass through [`dropout`](Tensor::dropout) with `dropout_p`, which does
    /// nothing unless [`train`](Tensor::train) says so. Axes before the last two are broadcast.
    /// Floats, promoted without the mask; computed in f64 if one is f64, else in f32.
    /// # Errors
    /// If a dtype is not a float, shapes do not fit, d is 0, the mask does not broadcast to the
    /// scores, or `dropout_p` is not a probability.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let query = Tensor::from_slice(&[2, 1], &[0f32, 0.0])?;
    /// let (key, value) = (&query, Tensor::from_slice(&[2, 1], &[2f32, 4.0])?);
    /// let found = query.scaled_dot_product_attention(key, &value, None, 0.0, false)?;
    /// assert_eq!(found.to_text()?, "[[3.0], [3.0]]");
    /// let found = query.scaled_dot_product_attention(key, &value, None, 0.0, true)?;
    /// assert_eq!(found.to_text()?, "[[2.0], [3.0]]");
    /// let mask = Tensor::from_slice(&[2], &[false, true])?;
    /// let found = query.scaled_dot_product_attention(key, &value, &mask, 0.0, false)?;
    /// assert_eq!(found.to_text()?, "[[4.0], [4.0]]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn scaled_dot_product_attention<'a>(
        &self,
        key: &Tensor,
        value: &Tensor,
        attn_mask: impl Into<Option<&'a Tensor>>,
        dropout_p: f64,
        is_causal: bool,
    ) -> Result<Tensor, Error> {
        const NAME: &str = "scaled_dot_product_attention";
        let mask = attn_mask.into();
        let (x, k, v) = (self.shape(), key.shape(), value.shape());
        let fits = match (x, k, v) {
            ([.., _, depth], [.., keys, width], [.., values, _]) => {
                depth == width && keys == values && *depth != 0
            }
            _ => false,
        };
        if !fits {
            return invalid(format!(
                "{NAME} of {x:?}, {k:?} and {v:?}: they must be [.., l, d], [.., s, d] and \
                 [.., s, e], with d above 0"
            ));
        }
        let dtype = promote(promote(self.dtype(), key.dtype()), value.dtype());
        let is_float = |tensor: &&Tensor| tensor.dtype().is_float();
        let added = mask.filter(|mask| mask.dtype() != DType::Bool);
        if ![self, key, value].iter().all(is_float) || !added.is_none_or(|mask| is_float(&mask)) {
            return invalid(format!(
                "{NAME} of {self:?}, {key:?} and {value:?} with the mask {mask:?}: it takes \
                 floats, and a mask of bool or floats; cast the tensors"
            ));
        }
        let wide = wide(added.map_or(dtype, |mask| promote(dtype, mask.dtype())));
        let scale = 1.0 / (x[x.len() - 1] as f64).sqrt();
        let products = self.cast(wide)?.matmul(&key.cast(wide)?.transpose(-2, -1)?)?;
        let scores = products.mul(scale)?;
        if let Some(mask) = mask.filter(|mask| !broadcasts_to(mask.shape(), scores.shape())) {
            return invalid(format!(
                "{NAME} with a mask {:?}: it does not broadcast to the scores {:?}",
                mask.shape(),
                scores.shape()
            ));
        }
        let hidden = |seen: &Tensor, scores: &Tensor| seen.where_(scores, f64::NEG_INFINITY);
        let scores = match mask {
            Some(mask) if mask.dtype() == DType::Bool => hidden(mask, &scores)?,
            Some(mask) => scores.add(mask)?,
            None => scores,
        };
        let scores = match is_causal {
            true => {
                let [queries, keys] = [2, 1].map(|number| scores.shape()[scores.rank() - number]);
                hidden(&Tensor::tri(DType::Bool, queries, keys, 0)?, &scores)?
            }
            false => scores,
        };
        scores.softmax(-1)?.dropout(dropout_p)?.matmul(&value.cast(wide)?)?.cast(dtype)
    }
}

/// Returns whether a shape broadcasts to another one, which stays as it is.
fn broadcasts_to(from: &[i64], to: &[i64]) -> bool {
    let pairs = from.iter().rev().zip(to.iter().rev());
    from.len() <= to.len() && pairs.into_iter().all(|(size, target)| *size == 1 || size == target)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_show_the_shapes() {
        let x = |shape: &[i64]| Tensor::zeros(DType::F32, shape).unwrap();
        let error = |query: &Tensor, key: &Tensor, value: &Tensor, mask: Option<&Tensor>| {
            let found = query.scaled_dot_product_attention(key, value, mask, 0.0, false);
            found.map(|_| ()).unwrap_err().to_string()
        };
        let text = error(&x(&[2, 3]), &x(&[4, 2]), &x(&[4, 5]), None);
        assert!(text.contains("of [2, 3], [4, 2] and [4, 5]: they must be"), "{text}");
        let text = error(&x(&[2, 0]), &x(&[4, 0]), &x(&[4, 5]), None);
        assert!(text.contains("d above 0"), "{text}");
        let text = error(&x(&[2, 3]), &x(&[4, 3]), &x(&[4, 5]), Some(&x(&[2, 2, 4])));
        assert!(text.contains("a mask [2, 2, 4]: it does not broadcast to the scores [2, 4]"));
        let whole = Tensor::zeros(DType::I32, &[2, 3]).unwrap();
        let text = error(&whole, &x(&[4, 3]), &x(&[4, 5]), None);
        assert!(text.contains("it takes floats"), "{text}");
        let text = error(&x(&[2, 3]), &x(&[4, 3]), &x(&[4, 5]), Some(&whole));
        assert!(text.contains("a mask of bool or floats"), "{text}");
    }

    #[test]
    fn queries_without_keys_have_nan_and_no_keys_give_zeros() {
        let x = Tensor::ones(DType::F16, &[2, 4]).unwrap();
        let mask = Tensor::from_slice(&[2, 1], &[false, true]).unwrap();
        let found = x.scaled_dot_product_attention(&x, &x, &mask, 0.0, false).unwrap();
        let rows = "[[nan, nan, nan, nan], [1.0, 1.0, 1.0, 1.0]]";
        assert_eq!(found.to_text().unwrap().to_lowercase(), rows);
        let nothing = Tensor::ones(DType::F16, &[0, 4]).unwrap();
        let found = x.scaled_dot_product_attention(&nothing, &nothing, None, 0.0, false).unwrap();
        assert_eq!(found.to_text().unwrap(), "[[0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]]");
    }
}
