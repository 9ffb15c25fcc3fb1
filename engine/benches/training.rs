//! Speed of training steps on one core: forward, backward and update, of three models, beside
//! PyTorch (eager) and tinygrad (TinyJit) in the same run (`training.py`). Libraries take turns,
//! so that what else the machine does meets all of them; the results are medians.
//!
//! `GRADIFF_THREADS=1 cargo bench -p gradiff --bench training`, with a Python that has the
//! libraries in `GRADIFF_PYTHON`, and `clang` for tinygrad. What is not there is left out.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Instant;

use gradiff::nn::optim::{Adam, AdamW, Optimizer};
use gradiff::nn::{
    BatchNorm2d, Conv2d, ConvOptions, Embedding, LayerNorm, Linear, Module, MultiHeadAttention,
    State, get_parameters, state,
};
use gradiff::{DType, Error, Pool, Reduction, Tensor, realize};

/// Rounds, in each of which all libraries take a turn.
const ROUNDS: usize = 7;
/// The seconds of a turn, about.
const TURN_SECONDS: f64 = 0.5;

/// The net of the example `digits`.
struct Digits {
    conv1: Conv2d,
    norm1: BatchNorm2d,
    conv2: Conv2d,
    norm2: BatchNorm2d,
    linear: Linear,
}
state!(Digits { conv1, norm1, conv2, norm2, linear });

impl Digits {
    fn new() -> Result<Digits, Error> {
        let options = || ConvOptions::default().padding(1).bias(false);
        Ok(Digits {
            conv1: Conv2d::with(1, 8, 3, options())?,
            norm1: BatchNorm2d::new(8)?,
            conv2: Conv2d::with(8, 16, 3, options())?,
            norm2: BatchNorm2d::new(16)?,
            linear: Linear::new(256, 10)?,
        })
    }
}

impl Module for Digits {
    fn forward(&self, x: &Tensor) -> Result<Tensor, Error> {
        let pool = Pool::new(2);
        let x = self.norm1.forward(&self.conv1.forward(x)?)?.relu()?.max_pool2d(&pool)?;
        let x = self.norm2.forward(&self.conv2.forward(&x)?)?.relu()?.max_pool2d(&pool)?;
        self.linear.forward(&x.flatten(1, -1)?)
    }
}

/// The net of tinygrad's example for MNIST.
struct Mnist {
    convs: [Conv2d; 4],
    norms: [BatchNorm2d; 2],
    linear: Linear,
}
state!(Mnist { convs, norms, linear });

impl Mnist {
    fn new() -> Result<Mnist, Error> {
        Ok(Mnist {
            convs: [
                Conv2d::new(1, 32, 5)?,
                Conv2d::new(32, 32, 5)?,
                Conv2d::new(32, 64, 3)?,
                Conv2d::new(64, 64, 3)?,
            ],
            norms: [BatchNorm2d::new(32)?, BatchNorm2d::new(64)?],
            linear: Linear::new(576, 10)?,
        })
    }
}

impl Module for Mnist {
    fn forward(&self, x: &Tensor) -> Result<Tensor, Error> {
        let mut x = x.clone();
        for (pair, norm) in self.convs.chunks(2).zip(&self.norms) {
            x = pair[0].forward(&x)?.relu()?;
            x = pair[1].forward(&x)?.relu()?;
            x = norm.forward(&x)?.max_pool2d(&Pool::new(2))?;
        }
        self.linear.forward(&x.flatten(1, -1)?)
    }
}

/// A layer of attention and a layer for each character.
struct Block {
    ln_1: LayerNorm,
    attn: MultiHeadAttention,
    ln_2: LayerNorm,
    fc: Linear,
    proj: Linear,
}
state!(Block { ln_1, attn, ln_2, fc, proj });

impl Block {
    fn new(embed: i64) -> Result<Block, Error> {
        Ok(Block {
            ln_1: LayerNorm::new(embed)?,
            attn: MultiHeadAttention::new(embed, 4)?.causal(true),
            ln_2: LayerNorm::new(embed)?,
            fc: Linear::new(embed, 4 * embed)?,
            proj: Linear::new(4 * embed, embed)?,
        })
    }
}

impl Module for Block {
    fn forward(&self, x: &Tensor) -> Result<Tensor, Error> {
        let x = x.add(self.attn.forward(&self.ln_1.forward(x)?)?)?;
        x.add(self.proj.forward(&self.fc.forward(&self.ln_2.forward(&x)?)?.gelu()?)?)
    }
}

/// The model of the example `gpt`, for 90 characters.
struct Gpt {
    wte: Embedding,
    wpe: Embedding,
    blocks: [Block; 2],
    ln: LayerNorm,
    head: Linear,
}
state!(Gpt { wte, wpe, blocks, ln, head });

impl Gpt {
    fn new() -> Result<Gpt, Error> {
        Ok(Gpt {
            wte: Embedding::new(90, 64)?,
            wpe: Embedding::new(32, 64)?,
            blocks: [Block::new(64)?, Block::new(64)?],
            ln: LayerNorm::new(64)?,
            head: Linear::without_bias(64, 90)?,
        })
    }
}

impl Module for Gpt {
    fn forward(&self, texts: &Tensor) -> Result<Tensor, Error> {
        let positions = Tensor::arange(DType::I32, 0, 1, texts.shape()[1])?;
        let mut x = self.wte.forward(texts)?.add(self.wpe.forward(&positions)?)?;
        for block in &self.blocks {
            x = block.forward(&x)?;
        }
        self.head.forward(&self.ln.forward(&x)?)?.flatten(0, 1)
    }
}

/// Returns a function that runs a training step.
fn step<M: Module + State + 'static, O: Optimizer + 'static>(
    model: M,
    optimizer: impl FnOnce(Vec<Tensor>) -> Result<O, Error>,
    inputs: Tensor,
    labels: Tensor,
) -> Result<Step, Error> {
    let mut optimizer = optimizer(get_parameters(&model))?;
    realize(&[&inputs, &labels])?;
    Ok(Box::new(move || {
        optimizer.zero_grad();
        let loss = model.forward(&inputs)?.cross_entropy(&labels, 0.0, Reduction::Mean)?;
        loss.backward()?;
        optimizer.step_with(&[&loss])?;
        loss.item::<f32>()
    }))
}

type Step = Box<dyn FnMut() -> Result<f32, Error>>;
/// Makes a step.
type Make = fn() -> Result<Step, Error>;

/// The models: name, and a function that makes the step.
const MODELS: [(&str, Make); 3] = [
    ("digits", || {
        let images = Tensor::randn(DType::F32, &[128, 1, 16, 16])?;
        let labels = Tensor::randint(DType::I32, &[128], 0, 10)?;
        step(Digits::new()?, |parameters| Adam::new(parameters, 0.01), images, labels)
    }),
    ("mnist", || {
        let images = Tensor::randn(DType::F32, &[128, 1, 28, 28])?;
        let labels = Tensor::randint(DType::I32, &[128], 0, 10)?;
        step(Mnist::new()?, |parameters| Adam::new(parameters, 0.001), images, labels)
    }),
    ("gpt", || {
        let texts = Tensor::randint(DType::I32, &[16, 32], 0, 90)?;
        let labels = Tensor::randint(DType::I32, &[512], 0, 90)?;
        step(Gpt::new()?, |parameters| AdamW::new(parameters, 3e-3), texts, labels)
    }),
];

/// The running `training.py`.
struct Python {
    program: Child,
    answers: BufReader<ChildStdout>,
}

impl Python {
    fn new() -> std::io::Result<Python> {
        let python = std::env::var("GRADIFF_PYTHON").unwrap_or("python3".to_string());
        let mut command = Command::new(python);
        command.args(["-c", include_str!("training.py")]);
        let mut program = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let answers = BufReader::new(program.stdout.take().expect("a pipe"));
        Ok(Python { program, answers })
    }

    /// Measures the seconds of so many steps.
    ///
    /// # Errors
    /// Why there are none.
    fn measure(&mut self, library: &str, model: &str, count: usize) -> Result<f64, String> {
        let input = self.program.stdin.as_mut().expect("a pipe");
        writeln!(input, "{library} {model} {count}").map_err(|error| error.to_string())?;
        let mut answer = String::new();
        self.answers.read_line(&mut answer).map_err(|error| error.to_string())?;
        answer.trim().parse().map_err(|_| answer.trim().to_string())
    }
}

/// A library in the comparison: the seconds of so many steps of the current model.
type Library<'a> = Box<dyn FnMut(usize) -> Result<f64, String> + 'a>;

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let filter = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    let _training = Tensor::train(true);
    let device = gradiff::default_device()?;
    println!("milliseconds of a step, device {device}; ratios to gradiff");
    for (name, make) in MODELS {
        if filter.as_ref().is_some_and(|filter| !name.contains(filter.as_str())) {
            continue;
        }
        Tensor::manual_seed(42);
        let mut step = make()?;
        // Kernels are compiled, and states have their buffers.
        let losses: Vec<f32> = (0..3).map(|_| step()).collect::<Result<_, _>>()?;
        let python = std::cell::RefCell::new(Python::new()?);
        let in_python = |library: &'static str| -> Library<'_> {
            Box::new(|count| python.borrow_mut().measure(library, name, count))
        };
        let ours: Library<'_> = Box::new(|count| {
            let start = Instant::now();
            for _ in 0..count {
                step().map_err(|error| error.to_string())?;
            }
            Ok(start.elapsed().as_secs_f64())
        });
        let mut libraries =
            [("gradiff", ours), ("torch", in_python("torch")), ("tinygrad", in_python("tinygrad"))];
        let mut line = format!("{name:8} loss {:.3} to {:.3}", losses[0], losses[2]);
        let mut counts = Vec::new();
        for (_, library) in &mut libraries {
            let count = library(1).map(|seconds| (TURN_SECONDS / seconds).ceil() as usize);
            counts.push(count);
        }
        let mut times = vec![Vec::new(); libraries.len()];
        for _ in 0..ROUNDS {
            for ((library, times), count) in libraries.iter_mut().zip(&mut times).zip(&counts) {
                if let Ok(count) = count {
                    times.push(1e3 * library.1(*count)? / *count as f64);
                }
            }
        }
        let first = median(times[0].clone());
        for (((library, _), times), count) in libraries.iter().zip(times).zip(counts) {
            line += &match count {
                Ok(_) => {
                    let time = median(times);
                    format!(", {library} {time:.2} ({:.2})", time / first)
                }
                Err(why) => format!(", {library}: {why}"),
            };
        }
        println!("{line}");
    }
    Ok(())
}
