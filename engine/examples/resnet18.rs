//! Runs ResNet-18 forward and backward on a random batch, and prints the number of kernels and the
//! times. The names of its tensors are those of PyTorch's model.
//!
//! `cargo run --release --example resnet18 -p gradiff -- [--steps N]`

use std::process::ExitCode;
use std::time::Instant;

use gradiff::nn::optim::{Optimizer, SGD};
use gradiff::nn::{BatchNorm2d, Conv2d, ConvOptions, Linear, Module, get_parameters, state};
use gradiff::{DType, Engine, Error, Pool, Reduction, Tensor, default_device};
use indicatif::{ProgressBar, ProgressStyle};

mod common;

/// The images of the batch.
const BATCH: i64 = 2;
/// The rows and columns of an image.
const SIDE: i64 = 64;

/// Two convolutions, whose result is added to the input.
struct Block {
    conv1: Conv2d,
    bn1: BatchNorm2d,
    conv2: Conv2d,
    bn2: BatchNorm2d,
    downsample: Option<(Conv2d, BatchNorm2d)>,
}
state!(Block { conv1, bn1, conv2, bn2, downsample });

/// A convolution without a bias, since a norm follows.
fn conv(channels: i64, out: i64, kernel: i64, stride: i64) -> Result<Conv2d, Error> {
    let options = ConvOptions::default().stride(stride).padding(kernel / 2).bias(false);
    Conv2d::with(channels, out, kernel, options)
}

impl Block {
    fn new(channels: i64, out: i64, stride: i64) -> Result<Block, Error> {
        let downsample = match channels == out && stride == 1 {
            true => None,
            false => Some((conv(channels, out, 1, stride)?, BatchNorm2d::new(out)?)),
        };
        Ok(Block {
            conv1: conv(channels, out, 3, stride)?,
            bn1: BatchNorm2d::new(out)?,
            conv2: conv(out, out, 3, 1)?,
            bn2: BatchNorm2d::new(out)?,
            downsample,
        })
    }
}

impl Module for Block {
    fn forward(&self, x: &Tensor) -> Result<Tensor, Error> {
        let y = self.bn1.forward(&self.conv1.forward(x)?)?.relu()?;
        let y = self.bn2.forward(&self.conv2.forward(&y)?)?;
        let shortcut = match &self.downsample {
            Some(downsample) => downsample.forward(x)?,
            None => x.clone(),
        };
        y.add(shortcut)?.relu()
    }
}

struct ResNet {
    conv1: Conv2d,
    bn1: BatchNorm2d,
    layer1: [Block; 2],
    layer2: [Block; 2],
    layer3: [Block; 2],
    layer4: [Block; 2],
    fc: Linear,
}
state!(ResNet { conv1, bn1, layer1, layer2, layer3, layer4, fc });

impl ResNet {
    fn new(classes: i64) -> Result<ResNet, Error> {
        let layer = |channels: i64, out: i64, stride: i64| {
            Ok::<_, Error>([Block::new(channels, out, stride)?, Block::new(out, out, 1)?])
        };
        Ok(ResNet {
            conv1: conv(3, 64, 7, 2)?,
            bn1: BatchNorm2d::new(64)?,
            layer1: layer(64, 64, 1)?,
            layer2: layer(64, 128, 2)?,
            layer3: layer(128, 256, 2)?,
            layer4: layer(256, 512, 2)?,
            fc: Linear::new(512, classes)?,
        })
    }
}

impl Module for ResNet {
    fn forward(&self, x: &Tensor) -> Result<Tensor, Error> {
        let x = self.bn1.forward(&self.conv1.forward(x)?)?.relu()?;
        let x = x.max_pool2d(&Pool::new(3).stride(2).padding(1))?;
        let x = self.layer2.forward(&self.layer1.forward(&x)?)?;
        let x = self.layer4.forward(&self.layer3.forward(&x)?)?;
        self.fc.forward(&x.mean([2, 3])?)
    }
}

fn main() -> ExitCode {
    common::finish(common::steps(2).and_then(|steps| {
        Tensor::manual_seed(42);
        run(steps).map_err(|error| error.to_string())
    }))
}

fn run(steps: u64) -> Result<(), Error> {
    let model = ResNet::new(10)?;
    let mut optimizer = SGD::new(get_parameters(&model), 0.01)?.momentum(0.9);
    let count: i64 = optimizer.parameters().iter().map(Tensor::size_elements).sum();
    let images = Tensor::randn(DType::F32, &[BATCH, 3, SIDE, SIDE])?;
    let labels = Tensor::randint(DType::I32, &[BATCH], 0, 10)?;
    gradiff::realize(&[&images, &labels])?;
    println!("{count} parameters, images {:?}, device {}", images.shape(), default_device()?);
    let engine = Engine::new(default_device()?)?;
    let _training = Tensor::train(true);
    let style = ProgressStyle::with_template("{wide_bar} {pos}/{len}").expect("a template");
    let progress = ProgressBar::new(steps).with_style(style);
    for step in 0..steps {
        let start = Instant::now();
        let seconds = || start.elapsed().as_secs_f64();
        optimizer.zero_grad();
        let loss = model.forward(&images)?.cross_entropy(&labels, 0.0, Reduction::Mean)?;
        loss.backward()?;
        let mut tensors = optimizer.schedule_step()?;
        tensors.push(loss.clone());
        let graph_s = seconds();
        let mut plan = engine.plan(&tensors.iter().collect::<Vec<_>>())?;
        let plan_s = seconds() - graph_s;
        engine.compile(std::slice::from_mut(&mut plan))?;
        let compile_s = seconds() - graph_s - plan_s;
        engine.run(&plan)?;
        let loss = loss.to_vec::<f32>()?[0];
        let run_s = seconds() - graph_s - plan_s - compile_s;
        let line = format!(
            "step {step}: loss {loss:.4}, {} kernels; graph {graph_s:.2} s, plan {plan_s:.2} s, \
             compile {compile_s:.2} s, run {run_s:.2} s",
            plan.kernel_count()
        );
        progress.suspend(|| println!("{line}"));
        progress.inc(1);
        if !loss.is_finite() {
            return Err(Error::Invalid(format!("step {step}: the loss is {loss}")));
        }
    }
    progress.finish();
    Ok(())
}
