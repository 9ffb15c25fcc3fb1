//! Trains a small convolutional net on images of digits that it draws itself: glyphs, shifted,
//! scaled, sheared, of changing brightness, with noise. Ends with exit code 1 if the accuracy on
//! images that it has not seen is below 97 %.
//!
//! `cargo run --release --example digits -p gradiff -- [--steps N]`

use std::process::ExitCode;

use gradiff::nn::optim::{Adam, CosineAnnealingLR, LRScheduler, Optimizer};
use gradiff::nn::{BatchNorm2d, Conv2d, ConvOptions, Linear, Module, get_parameters, state};
use gradiff::{DType, Error, Pool, Reduction, Tensor};
use indicatif::{ProgressBar, ProgressStyle};

mod common;

/// Rows and columns of an image.
const SIDE: usize = 16;
/// Images of a step.
const BATCH: usize = 64;
/// Images for the accuracy.
const HELD_OUT: usize = 1024;
/// The accuracy that is required.
const REQUIRED: f64 = 0.97;

/// The digits from 0 to 9, in rows of five dots.
const GLYPHS: [[u8; 7]; 10] = [
    [0b01110, 0b10001, 0b10011, 0b10101, 0b11001, 0b10001, 0b01110],
    [0b00100, 0b01100, 0b00100, 0b00100, 0b00100, 0b00100, 0b01110],
    [0b01110, 0b10001, 0b00001, 0b00010, 0b00100, 0b01000, 0b11111],
    [0b11111, 0b00010, 0b00100, 0b00010, 0b00001, 0b10001, 0b01110],
    [0b00010, 0b00110, 0b01010, 0b10010, 0b11111, 0b00010, 0b00010],
    [0b11111, 0b10000, 0b11110, 0b00001, 0b00001, 0b10001, 0b01110],
    [0b00110, 0b01000, 0b10000, 0b11110, 0b10001, 0b10001, 0b01110],
    [0b11111, 0b00001, 0b00010, 0b00100, 0b01000, 0b01000, 0b01000],
    [0b01110, 0b10001, 0b10001, 0b01110, 0b10001, 0b10001, 0b01110],
    [0b01110, 0b10001, 0b10001, 0b01111, 0b00001, 0b00010, 0b01100],
];

struct Net {
    conv1: Conv2d,
    norm1: BatchNorm2d,
    conv2: Conv2d,
    norm2: BatchNorm2d,
    linear: Linear,
}
state!(Net { conv1, norm1, conv2, norm2, linear });

impl Net {
    fn new() -> Result<Net, Error> {
        // The norm that follows has a bias.
        let options = || ConvOptions::default().padding(1).bias(false);
        Ok(Net {
            conv1: Conv2d::with(1, 8, 3, options())?,
            norm1: BatchNorm2d::new(8)?,
            conv2: Conv2d::with(8, 16, 3, options())?,
            norm2: BatchNorm2d::new(16)?,
            linear: Linear::new(16 * 4 * 4, 10)?,
        })
    }
}

impl Module for Net {
    fn forward(&self, x: &Tensor) -> Result<Tensor, Error> {
        let pool = Pool::new(2);
        let x = self.norm1.forward(&self.conv1.forward(x)?)?.relu()?.max_pool2d(&pool)?;
        let x = self.norm2.forward(&self.conv2.forward(&x)?)?.relu()?.max_pool2d(&pool)?;
        self.linear.forward(&x.flatten(1, -1)?)
    }
}

/// Random numbers of [0, 1): SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((bits ^ (bits >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    fn within(&mut self, low: f64, high: f64) -> f64 {
        low + self.next() * (high - low)
    }
}

/// Draws so many images, [count, 1, side, side] in f32, and their digits, in i32.
fn draw(random: &mut Random, count: usize) -> Result<(Tensor, Tensor), Error> {
    let (mut pixels, mut labels) = (Vec::with_capacity(count * SIDE * SIDE), Vec::new());
    for _ in 0..count {
        let digit = (random.next() * 10.0) as usize;
        labels.push(digit as i32);
        let (width, height) = (random.within(1.4, 2.4), random.within(1.4, 2.1));
        let (x0, y0) = (random.within(-1.2, 1.2), random.within(-0.7, 0.7));
        let (shear, ink) = (random.within(-0.25, 0.25), random.within(0.6, 1.0));
        let centre = SIDE as f64 / 2.0;
        for row in 0..SIDE {
            for column in 0..SIDE {
                let y = (row as f64 + 0.5 - centre - y0) / height;
                let x = (column as f64 + 0.5 - centre - x0) / width + shear * y;
                let (x, y) = ((x + 2.5).floor(), (y + 3.5).floor());
                let is_inside = (0.0..5.0).contains(&x) && (0.0..7.0).contains(&y);
                let is_ink = is_inside && GLYPHS[digit][y as usize] >> (4 - x as usize) & 1 == 1;
                let value = if is_ink { ink } else { 0.0 };
                pixels.push((value + random.within(-0.25, 0.25)) as f32);
            }
        }
    }
    let side = SIDE as i64;
    let images = Tensor::from_slice(&[count as i64, 1, side, side], &pixels)?;
    Ok((images, Tensor::from_slice(&[count as i64], &labels)?))
}

fn main() -> ExitCode {
    common::finish(run())
}

fn run() -> Result<(), String> {
    let steps = common::steps(200)?;
    Tensor::manual_seed(42);
    let accuracy = train(steps).map_err(|error| error.to_string())?;
    println!("accuracy on {HELD_OUT} images held out: {:.2} %", accuracy * 100.0);
    match accuracy < REQUIRED {
        true => Err(format!("an accuracy of {:.0} % is required", REQUIRED * 100.0)),
        false => Ok(()),
    }
}

/// Trains a net, and returns its accuracy on images that it has not seen.
fn train(steps: u64) -> Result<f64, Error> {
    let net = Net::new()?;
    let mut optimizer = Adam::new(get_parameters(&net), 0.01)?;
    let mut schedule = CosineAnnealingLR::new(&optimizer, steps, 0.0)?;
    let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} {msg}").expect("a template");
    let progress = ProgressBar::new(steps).with_style(style);
    let mut random = Random(1);
    {
        let _training = Tensor::train(true);
        for _ in 0..steps {
            let (images, labels) = draw(&mut random, BATCH)?;
            optimizer.zero_grad();
            let loss = net.forward(&images)?.cross_entropy(&labels, 0.0, Reduction::Mean)?;
            loss.backward()?;
            optimizer.step_with(&[&loss])?;
            schedule.step(&mut optimizer)?;
            progress.set_message(format!("loss {:.4}", loss.item::<f32>()?));
            progress.inc(1);
        }
    }
    progress.finish();
    let (images, labels) = draw(&mut random, HELD_OUT)?;
    let found = net.forward(&images)?.argmax(1)?;
    let hits = found.cmpeq(&labels)?.cast(DType::F32)?.mean(..)?;
    Ok(f64::from(hits.to_vec::<f32>()?[0]))
}
