//! Speed of real work on one core: kernels with the shapes, types and layouts that they have in
//! models (`suite.txt`), beside the limits of the machine and, in turns, beside PyTorch (eager,
//! `suite.py`). Prints a line for each row as it is measured, then the worst rows and the geometric
//! means. A row takes its inputs from buffers; planning and compiling are not counted.
//!
//! `GRADIFF_THREADS=1 cargo bench -p gradiff --bench suite`, with `-- TEXT` the rows that contain a
//! text. With a Python in `GRADIFF_PYTHON` that has PyTorch, ratios to it are printed and results
//! are compared.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Instant;

use gradiff::{Conv, DType, Engine, Error, Pool, Reduction, Tensor};

#[path = "common/limits.rs"]
mod limits;

use limits::{Meter, Unit, quantile};

/// The seconds of a turn, about.
const TURN_SECONDS: f64 = 0.05;
/// Turns of each library.
const TURNS: usize = 3;
/// Number of the slowest rows that are repeated in the end.
const WORST: usize = 20;
/// Largest difference of the sums of results, in terms of the sum of their sizes.
const TOLERANCE: f64 = 2e-2;

/// A row of `suite.txt`.
struct Row<'a> {
    text: &'a str,
    name: &'a str,
    numbers: Vec<(&'a str, i64)>,
    inputs: Vec<Input>,
}

/// A tensor that a row reads.
struct Input {
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
    fn tensor(&self) -> Result<Tensor, Error> {
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

    fn bytes(&self) -> i64 {
        self.shape.iter().product::<i64>() * self.dtype.size_bytes() as i64
    }
}

impl<'a> Row<'a> {
    /// Parses `MODEL | OP NAME=NUMBER ... | INPUT INPUT ...`.
    fn parse(text: &'a str) -> Result<Row<'a>, String> {
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

    fn number(&self, key: &str, default: i64) -> i64 {
        self.numbers.iter().find(|(known, _)| *known == key).map_or(default, |(_, value)| *value)
    }

    /// The result, of these inputs.
    fn make(&self, inputs: &[Tensor]) -> Result<Tensor, Error> {
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

    /// The number of multiply-adds.
    fn products(&self, output: &[i64]) -> i64 {
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

    /// The bytes that must be moved: inputs and the result. Of a table the rows that are read.
    fn bytes(&self, output: &Tensor) -> i64 {
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

/// The running `suite.py`.
struct Python {
    program: Child,
    answers: BufReader<ChildStdout>,
}

impl Python {
    fn new() -> Option<Python> {
        let python = std::env::var("GRADIFF_PYTHON").ok()?;
        let has_torch = Command::new(&python).args(["-c", "import torch"]).output().ok()?;
        if !has_torch.status.success() {
            println!("{python} has no PyTorch");
            return None;
        }
        let mut command = Command::new(python);
        command.args(["-c", include_str!("suite.py")]);
        let mut program = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().ok()?;
        let answers = BufReader::new(program.stdout.take()?);
        Some(Python { program, answers })
    }

    /// Sends a line; returns the numbers of the answer.
    ///
    /// # Errors
    /// The text that it answers instead.
    fn ask(&mut self, line: &str) -> Result<Vec<f64>, String> {
        let input = self.program.stdin.as_mut().ok_or("no pipe")?;
        writeln!(input, "{line}").map_err(|error| error.to_string())?;
        let mut answer = String::new();
        self.answers.read_line(&mut answer).map_err(|error| error.to_string())?;
        let numbers = answer.split_whitespace().map(str::parse).collect::<Result<Vec<f64>, _>>();
        numbers.ok().filter(|numbers| !numbers.is_empty()).ok_or(answer.trim().to_owned())
    }
}

/// The measurements of a row.
struct Measured {
    text: String,
    seconds: f64,
    /// The part of the time that the limit of the machine needs.
    share: f64,
    /// PyTorch's time in terms of gradiff's.
    ratio: Option<f64>,
    note: String,
}

fn measure(
    row: &Row<'_>,
    engine: &Engine,
    python: Option<&mut Python>,
    limits: [f64; 2],
) -> Result<Measured, Box<dyn std::error::Error>> {
    let inputs: Vec<Tensor> = row.inputs.iter().map(Input::tensor).collect::<Result<_, _>>()?;
    engine.realize(&inputs.iter().collect::<Vec<_>>())?;
    let result = row.make(&inputs)?;
    let mut plan = [engine.plan(&[&result])?];
    engine.compile(&mut plan)?;
    let run = |count: usize| -> Result<f64, Error> {
        let start = Instant::now();
        (0..count).try_for_each(|_| engine.run(&plan[0]))?;
        Ok(start.elapsed().as_secs_f64() / count as f64)
    };
    let count = |seconds: f64| (TURN_SECONDS / seconds).ceil() as usize;
    let mut note = String::new();
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    let our_count = count(run(1)?.min(run(1)?));
    let mut python = match python {
        Some(python) => match python.ask(&format!("make {}", row.text)) {
            Ok(sums) => {
                let values: Vec<f64> = result.cast(DType::F64)?.to_vec::<f64>()?;
                let [sum, sizes] =
                    [values.iter().sum::<f64>(), values.iter().map(|x| x.abs()).sum()];
                let is_near = (sum - sums[0]).abs() <= TOLERANCE * (sizes + 1e-3);
                if !is_near || sums[1] as i64 != values.len() as i64 {
                    note = format!(
                        "  WRONG: {} elements of sum {sum}, {sums:?} in PyTorch",
                        values.len()
                    );
                }
                let first = python.ask("run 1")?[0].min(python.ask("run 1")?[0]);
                Some((python, count(first)))
            }
            Err(why) => {
                note = format!("  {why}");
                None
            }
        },
        None => None,
    };
    for _ in 0..TURNS {
        ours.push(run(our_count)?);
        if let Some((python, count)) = &mut python {
            theirs.push(python.ask(&format!("run {count}"))?[0]);
        }
    }
    let seconds = quantile(ours.into_iter(), 0.5);
    let products = row.products(result.shape()) as f64 * limits[0];
    let share = products.max(row.bytes(&result) as f64 * limits[1]) / seconds;
    let ratio = (!theirs.is_empty()).then(|| quantile(theirs.into_iter(), 0.5) / seconds);
    Ok(Measured { text: row.text.to_owned(), seconds, share, ratio, note })
}

impl Measured {
    fn line(&self) -> String {
        let ratio = self.ratio.map_or(String::new(), |ratio| format!("{ratio:8.2}"));
        let (time, share) = (1e3 * self.seconds, 100.0 * self.share);
        format!("{time:10.4} {share:6.0}% {ratio}  {}{}", self.text, self.note)
    }
}

fn geometric_mean(values: impl Iterator<Item = f64>) -> f64 {
    let logs: Vec<f64> = values.map(f64::ln).collect();
    (logs.iter().sum::<f64>() / logs.len() as f64).exp()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let filter = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    let lines = include_str!("suite.txt").lines();
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    let rows: Vec<Row<'_>> = lines.map(Row::parse).collect::<Result<_, _>>()?;
    let is_chosen =
        |row: &&Row<'_>| filter.as_ref().is_none_or(|text| row.text.contains(text.as_str()));
    let engine = Engine::new("c")?;
    let mut meter = Meter::new()?;
    let mut python = Python::new();
    for unit in [Unit::MultiplyAdd, Unit::ByteRead, Unit::ByteMoved] {
        println!("{}", unit.rate(meter.measure(unit)?));
    }
    println!("{:>10} {:>7} {:>8}", "ms", "limit", "PyTorch");
    let mut measured = Vec::new();
    for row in rows.iter().filter(is_chosen) {
        let limits = [meter.measure(Unit::MultiplyAdd)?, meter.measure(Unit::ByteMoved)?];
        match measure(row, &engine, python.as_mut(), limits) {
            Ok(row) => {
                println!("{}", row.line());
                measured.push(row);
            }
            Err(why) => println!("{:>28} {}  {why}", "", row.text),
        }
    }
    measured.sort_by(|x, y| {
        let key = |row: &Measured| row.ratio.unwrap_or(row.share);
        key(x).total_cmp(&key(y))
    });
    println!("\nthe slowest");
    measured.iter().take(WORST).for_each(|row| println!("{}", row.line()));
    let share = geometric_mean(measured.iter().map(|row| row.share.min(1.0)));
    let below = measured.iter().filter(|row| row.share < 0.5).count();
    println!(
        "\n{} rows, {:.0}% of the limit in the geometric mean, {below} below 50%",
        measured.len(),
        100.0 * share
    );
    let ratios: Vec<f64> = measured.iter().filter_map(|row| row.ratio).collect();
    if !ratios.is_empty() {
        let slower = ratios.iter().filter(|ratio| **ratio < 1.0 / 1.1).count();
        let mean = geometric_mean(ratios.iter().copied());
        println!(
            "PyTorch takes {mean:.2} times as long in the geometric mean; in {slower} rows it is \
             faster by more than a tenth"
        );
    }
    Ok(())
}
