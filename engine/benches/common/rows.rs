//! Rows of benches: an op with its numbers, and the inputs that it has in a model.

use gradiff::{Conv, DType, Error, Pool, Reduction, Tensor};

/// A row of `suite.txt` or `gpu.txt`.
pub(crate) struct Row<'a> {
    pub(crate) text: &'a str,
    name: &'a str,
    numbers: Vec<(&'a str, i64)>,
    pub(crate) inputs: Vec<Input>,
}

/// A tensor that a row reads.
pub(crate) struct Input {
    dtype: DType,
    shape: Vec<i64>,
    /// Integers are from 0 to below this.
    below: Option<i64>,
}

impl Input {
    /// Parses `DTYPE[SIZES]` or `DTYPE[SIZES]<BELOW`.
    fn parse(text: &str) -> Result<Input, String> {
        let why = || format!("{text:?} is not DTYPE[SIZES]");
        let (dtype, rest) = text.split_once('[').ok_or_else(why)?;
        let (sizes, below) = rest.split_once(']').ok_or_else(why)?;
        let size = |size: &str| size.parse::<i64>().map_err(|_| why());
        Ok(Input {
            dtype: DType::from_name(dtype).ok_or_else(why)?,
            shape: sizes
                .split(',')
                .filter(|size| !size.is_empty())
                .map(size)
                .collect::<Result<_, _>>()?,
            below: below.strip_prefix('<').map(size).transpose()?,
        })
    }

    /// The same numbers as in `suite.py`.
    pub(crate) fn tensor(&self) -> Result<Tensor, Error> {
        let count: i64 = self.shape.iter().product();
        let number = |index: i64| index * 7919 % 1000;
        let x = match self.below {
            Some(below) => {
                let numbers: Vec<i64> =
                    (0..count).map(|index| number(index) * 31 % below).collect();
                Tensor::from_slice(&self.shape, &numbers)?
            }
            None => {
                let real = |index| number(index) as f32 / 1000.0 - 0.5;
                let numbers: Vec<f32> = (0..count).map(real).collect();
                Tensor::from_slice(&self.shape, &numbers)?
            }
        };
        x.cast(self.dtype)
    }

    /// Returns an input with the dtype and the shape of a tensor.
    pub(crate) fn like(tensor: &Tensor) -> Input {
        Input { dtype: tensor.dtype(), shape: tensor.shape().to_vec(), below: None }
    }

    fn bytes(&self) -> i64 {
        self.shape.iter().product::<i64>() * self.dtype.size_bytes() as i64
    }
}

impl<'a> Row<'a> {
    /// Parses `MODEL | OP NAME=NUMBER ... | INPUT INPUT ...`.
    pub(crate) fn parse(text: &'a str) -> Result<Row<'a>, String> {
        let mut parts = text.split('|').skip(1);
        let (call, inputs) = (parts.next().unwrap_or(""), parts.next().unwrap_or(""));
        let mut words = call.split_whitespace();
        let name = words.next().ok_or_else(|| format!("{text:?} has no op"))?;
        let number = |word: &'a str| {
            let (key, value) = word.split_once('=')?;
            Some((key, value.parse().ok()?))
        };
        let numbers = words.map(|word| number(word).ok_or_else(|| format!("{word:?} of {text:?}")));
        Ok(Row {
            text,
            name,
            numbers: numbers.collect::<Result<_, _>>()?,
            inputs: inputs.split_whitespace().map(Input::parse).collect::<Result<_, _>>()?,
        })
    }

    pub(crate) fn number(&self, key: &str, default: i64) -> i64 {
        self.numbers.iter().find(|(known, _)| *known == key).map_or(default, |(_, value)| *value)
    }

    /// Returns whether it is run with its gradients.
    pub(crate) fn is_backward(&self) -> bool {
        self.number("backward", 0) == 1
    }

    /// Returns whether its result has gradients of inputs of floats.
    pub(crate) fn is_differentiable(&self) -> bool {
        let name = self.name;
        !matches!(name, "argmax" | "one_hot" | "bincount" | "sgd" | "adam" | "image")
            && !name.starts_with("to_")
            && self.inputs.iter().any(|input| input.dtype.is_float())
    }

    /// Returns the gradients of the inputs of floats, given the result and weights of its elements.
    pub(crate) fn gradients(
        &self,
        result: &Tensor,
        weights: &Tensor,
        inputs: &[Tensor],
    ) -> Result<Vec<Tensor>, Error> {
        let floats: Vec<&Tensor> = inputs.iter().filter(|x| x.dtype().is_float()).collect();
        result.gradient_by(weights, &floats)
    }

    /// The result, of these inputs.
    pub(crate) fn make(&self, inputs: &[Tensor]) -> Result<Tensor, Error> {
        let [x, rest @ ..] = inputs else { return Err(Error::Invalid("no input".to_owned())) };
        let number = |key, default| self.number(key, default);
        let axis = number("axis", -1);
        let conv = || {
            Conv::default()
                .stride(number("stride", 1))
                .padding(number("padding", 0))
                .dilation(number("dilation", 1))
                .groups(number("groups", 1))
        };
        let pool = || {
            let kernel = number("kernel", 2);
            Pool::new(kernel).stride(number("stride", kernel)).padding(number("padding", 0))
        };
        let to = |x: &Tensor| x.cast(DType::F32);
        match (self.name, rest) {
            ("add", [y]) => x.add(y),
            ("mul", [y]) => x.mul(y),
            ("add_relu", [y]) => x.add(y)?.relu(),
            ("relu", []) => x.relu(),
            ("gelu", []) => x.gelu(),
            ("silu", []) => x.silu(),
            ("exp", []) => x.exp(),
            ("sigmoid", []) => x.sigmoid(),
            ("silu_mul", [y]) => x.silu()?.mul(y),
            ("to_f32", []) => to(x),
            ("to_f16", []) => x.cast(DType::F16),
            ("to_bf16", []) => x.cast(DType::BF16),
            ("image", []) => to(x)?.mul(1.0 / 255.0)?.sub(0.45)?.mul(4.0),
            ("matmul", [y]) => x.matmul(y),
            ("matmul_t", [y]) => x.matmul(&y.transpose(-1, -2)?),
            ("t_matmul", [y]) => x.transpose(-1, -2)?.matmul(y),
            // Weights as PyTorch keeps them.
            ("linear", [w, b]) => x.linear(&w.transpose(-1, -2)?, b),
            ("linear_gelu", [w, b]) => x.linear(&w.transpose(-1, -2)?, b)?.gelu(),
            ("conv", [w]) => x.conv2d(w, &conv()),
            ("conv_relu", [w, b]) => {
                let sizes = [1, b.shape()[0], 1, 1];
                x.conv2d(w, &conv())?.add(&b.reshape(&sizes)?)?.relu()
            }
            ("conv_transpose", [w]) => x.conv_transpose2d(w, &conv()),
            ("max_pool", []) => x.max_pool2d(&pool()),
            ("avg_pool", []) => x.avg_pool2d(&pool()),
            ("softmax", []) => x.softmax(axis),
            ("log_softmax", []) => x.log_softmax(axis),
            ("layer_norm", []) => x.layernorm(axis, 1e-5),
            ("rms_norm", [w]) => {
                let mean = x.mul(x)?.mean(gradiff::keepdim(-1))?;
                x.mul(&mean.add(1e-5)?.rsqrt()?)?.mul(w)
            }
            ("attention", [k, v]) => {
                x.scaled_dot_product_attention(k, v, None, 0.0, number("causal", 0) == 1)
            }
            ("cross_entropy", [y]) => x.cross_entropy(y, 0.0, Reduction::Mean),
            ("sum", []) => x.sum(axis),
            ("mean", []) => x.mean(axis),
            ("max", []) => x.max(axis),
            ("argmax", []) => x.argmax(axis)?.cast(DType::I64),
            ("var", []) => x.var(axis, 1),
            ("sum_all", []) => x.sum(..),
            ("cumsum", []) => x.cumsum(axis),
            ("transpose", []) => Ok(x.transpose(-1, -2)?.contiguous()),
            ("add_transpose", []) => x.add(&x.transpose(-1, -2)?),
            ("permute_0213", []) => Ok(x.permute(&[0, 2, 1, 3])?.contiguous()),
            ("permute_0231", []) => Ok(x.permute(&[0, 2, 3, 1])?.contiguous()),
            ("permute_0312", []) => Ok(x.permute(&[0, 3, 1, 2])?.contiguous()),
            ("permute_210", []) => Ok(x.permute(&[2, 1, 0])?.contiguous()),
            ("permute_102", []) => Ok(x.permute(&[1, 0, 2])?.contiguous()),
            ("flip", []) => Ok(x.flip(&[axis])?.contiguous()),
            ("cat", [y]) => Tensor::cat(&[x, y], axis),
            ("cat", [y, z]) => Tensor::cat(&[x, y, z], axis),
            ("pad", []) => {
                let mut pads = vec![(0, 0); x.rank()];
                pads[x.rank() - 2..].fill((number("by", 1), number("by", 1)));
                x.pad(&pads, 0.0)
            }
            ("slice", []) => {
                let size = x.shape()[x.rank() - 1];
                let mut ranges: Vec<(i64, i64)> = x.shape().iter().map(|size| (0, *size)).collect();
                ranges[x.rank() - 1] = (number("from", 0), number("to", size));
                Ok(x.shrink(&ranges)?.contiguous())
            }
            ("embedding", [table]) => table.index_select(&x.flatten(0, -1)?, 0),
            ("gather", [index]) => x.gather(axis, index),
            ("scatter", [index, y]) => x.scatter(index, y, axis),
            // Rows are added to those that the index names.
            ("index_add", [index, y]) => {
                x.scatter_add(&index.unsqueeze(-1)?.expand(y.shape())?, y, 0)
            }
            ("bincount", []) => {
                let counts = Tensor::zeros(DType::I64, &[number("classes", 10)])?;
                counts.scatter_add(x, &Tensor::ones(DType::I64, x.shape())?, 0)
            }
            ("sort", []) => x.sort(axis, false),
            ("topk", []) => Ok(x.topk(number("k", 1), axis, true)?.0),
            ("one_hot", []) => x.one_hot(number("classes", 10))?.cast(DType::I64),
            ("causal_mask", []) => x.tril(0),
            ("rope", [cos, sin]) => {
                let half = x.shape()[x.rank() - 1] / 2;
                let parts = x.split(&[half, half], -1)?;
                let turned = Tensor::cat(&[&parts[1].neg()?, &parts[0]], -1)?;
                x.mul(cos)?.add(&turned.mul(sin)?)
            }
            ("interpolate", []) => {
                let sizes = x.shape()[2..].iter().map(|size| 2 * size).collect::<Vec<_>>();
                x.repeat_interleave(2, 2)?
                    .repeat_interleave(2, 3)?
                    .reshape(&[&x.shape()[..2], &sizes].concat())
            }
            ("sgd", [g]) => x.sub(&g.mul(0.01)?),
            ("adam", [g, m, v]) => {
                let m = m.mul(0.9)?.add(&g.mul(0.1)?)?;
                let v = v.mul(0.999)?.add(&g.mul(g)?.mul(0.001)?)?;
                x.sub(&m.mul(0.01)?.div(&v.add(1.0)?.sqrt()?.add(1e-8)?)?)
            }
            (name, _) => Err(Error::Invalid(format!("no op {name} of {} inputs", inputs.len()))),
        }
    }

    /// The number of multiply-adds: with gradients, those of the result and two more for each of
    /// them.
    pub(crate) fn products(&self, output: &[i64]) -> i64 {
        let result = self.products_of_result(output);
        if self.is_backward() { 3 * result } else { result }
    }

    fn products_of_result(&self, output: &[i64]) -> i64 {
        let elements: i64 = output.iter().product();
        let shape = |input: usize| &self.inputs[input].shape[..];
        let size = |input: usize, from_end: usize| shape(input)[shape(input).len() - from_end];
        match self.name {
            "matmul" | "matmul_t" | "linear" | "linear_gelu" => elements * size(0, 1),
            "t_matmul" => elements * size(0, 2),
            "conv" | "conv_relu" => elements * shape(1)[1..].iter().product::<i64>(),
            "conv_transpose" => {
                shape(0).iter().product::<i64>() * shape(1)[1..].iter().product::<i64>()
            }
            "attention" => {
                let pairs = shape(0)[..shape(0).len() - 1].iter().product::<i64>() * size(1, 2);
                let both = pairs * (size(0, 1) + size(2, 1));
                if self.number("causal", 0) == 1 { both / 2 } else { both }
            }
            _ => 0,
        }
    }

    /// The bytes that must be moved: inputs and the result. Of a table the rows that are read. With
    /// gradients, these and the weights of the result as well.
    pub(crate) fn bytes(&self, output: &Tensor) -> i64 {
        let floats = self.inputs.iter().filter(|input| input.dtype.is_float());
        let gradients = floats.map(Input::bytes).sum::<i64>() + Input::like(output).bytes();
        self.bytes_of_result(output) + if self.is_backward() { gradients } else { 0 }
    }

    fn bytes_of_result(&self, output: &Tensor) -> i64 {
        let elements: i64 = output.shape().iter().product();
        let result = elements * output.dtype().size_bytes() as i64;
        let inputs = self.inputs.iter().map(Input::bytes);
        match self.name {
            "embedding" => 2 * result + self.inputs[0].bytes(),
            "gather" => 2 * result + self.inputs[1].bytes(),
            "slice" => 2 * result,
            _ => result + inputs.sum::<i64>(),
        }
    }
}
