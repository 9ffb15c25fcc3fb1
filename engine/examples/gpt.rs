//! Trains a small GPT on the characters of a text of this repository, and writes some text. Ends
//! with exit code 1 if the loss does not fall.
//!
//! `cargo run --release --example gpt -p gradiff -- [--steps N]`

use std::path::Path;
use std::process::ExitCode;

use gradiff::nn::optim::{AdamW, Optimizer};
use gradiff::nn::{
    Embedding, LayerNorm, Linear, Module, MultiHeadAttention, get_parameters, state,
};
use gradiff::{DType, Error, Reduction, Tensor};
use indicatif::{ProgressBar, ProgressStyle};

mod common;

/// The characters that a prediction sees.
const CONTEXT: usize = 32;
/// Texts of a step.
const BATCH: usize = 16;
const EMBED: i64 = 64;
const HEADS: i64 = 4;
const LAYERS: usize = 2;
/// The characters that are written at the end.
const WRITTEN: usize = 120;

/// A layer of attention and a layer for each character.
struct Block {
    ln_1: LayerNorm,
    attn: MultiHeadAttention,
    ln_2: LayerNorm,
    c_fc: Linear,
    c_proj: Linear,
}
state!(Block { ln_1, attn, ln_2, c_fc, c_proj });

impl Block {
    fn new() -> Result<Block, Error> {
        Ok(Block {
            ln_1: LayerNorm::new(EMBED)?,
            attn: MultiHeadAttention::new(EMBED, HEADS)?.causal(true),
            ln_2: LayerNorm::new(EMBED)?,
            c_fc: Linear::new(EMBED, 4 * EMBED)?,
            c_proj: Linear::new(4 * EMBED, EMBED)?,
        })
    }
}

impl Module for Block {
    fn forward(&self, x: &Tensor) -> Result<Tensor, Error> {
        let x = x.add(self.attn.forward(&self.ln_1.forward(x)?)?)?;
        let inner = self.c_fc.forward(&self.ln_2.forward(&x)?)?.gelu()?;
        x.add(self.c_proj.forward(&inner)?)
    }
}

struct Gpt {
    wte: Embedding,
    wpe: Embedding,
    h: Vec<Block>,
    ln_f: LayerNorm,
    lm_head: Linear,
}
state!(Gpt { wte, wpe, h, ln_f, lm_head });

impl Gpt {
    fn new(characters: i64) -> Result<Gpt, Error> {
        Ok(Gpt {
            wte: Embedding::new(characters, EMBED)?,
            wpe: Embedding::new(CONTEXT as i64, EMBED)?,
            h: (0..LAYERS).map(|_| Block::new()).collect::<Result<_, _>>()?,
            ln_f: LayerNorm::new(EMBED)?,
            lm_head: Linear::without_bias(EMBED, characters)?,
        })
    }
}

impl Module for Gpt {
    /// The scores [n, length, characters] of what follows each character of texts [n, length].
    fn forward(&self, texts: &Tensor) -> Result<Tensor, Error> {
        let positions = Tensor::arange(DType::I32, 0, 1, texts.shape()[1])?;
        let x = self.wte.forward(texts)?.add(self.wpe.forward(&positions)?)?;
        self.lm_head.forward(&self.ln_f.forward(&self.h.forward(&x)?)?)
    }
}

/// A text as numbers of its characters.
struct Text {
    characters: Vec<char>,
    numbers: Vec<i32>,
}

impl Text {
    fn new(text: &str) -> Text {
        let mut characters: Vec<char> = text.chars().collect();
        characters.sort_unstable();
        characters.dedup();
        let number = |c: char| characters.binary_search(&c).expect("each character is there");
        let numbers = text.chars().map(|c| number(c) as i32).collect();
        Text { characters, numbers }
    }

    /// Texts [n, length] from random positions, and the characters [n * length] that follow each
    /// of theirs.
    fn batch(&self) -> Result<(Tensor, Tensor), Error> {
        let last = (self.numbers.len() - CONTEXT - 1) as i64;
        let starts = Tensor::randint(DType::I32, &[BATCH as i64], 0, last)?.to_vec::<i32>()?;
        let part = |offset: usize| -> Vec<i32> {
            let range = |start: &i32| *start as usize + offset..*start as usize + offset + CONTEXT;
            starts.iter().flat_map(|start| self.numbers[range(start)].to_vec()).collect()
        };
        let (count, length) = (BATCH as i64, CONTEXT as i64);
        let texts = Tensor::from_slice(&[count, length], &part(0))?;
        Ok((texts, Tensor::from_slice(&[count * length], &part(1))?))
    }
}

fn main() -> ExitCode {
    common::finish(run())
}

fn run() -> Result<(), String> {
    let steps = common::steps(200)?;
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
    let text = std::fs::read_to_string(&path);
    let text = Text::new(&text.map_err(|error| format!("{}: {error}", path.display()))?);
    Tensor::manual_seed(42);
    let (first, last) = train(&text, steps).map_err(|error| error.to_string())?;
    println!("loss of the first steps {first:.3}, of the last steps {last:.3}");
    // Of steps that are not the first alone.
    match last < first || steps == 1 {
        true => Ok(()),
        false => Err("the loss does not fall".to_string()),
    }
}

/// Trains a model, and writes text. Returns the mean losses of the first and the last steps.
fn train(text: &Text, steps: u64) -> Result<(f64, f64), Error> {
    let characters = text.characters.len() as i64;
    let model = Gpt::new(characters)?;
    let mut optimizer = AdamW::new(get_parameters(&model), 3e-3)?;
    let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} {msg}").expect("a template");
    let progress = ProgressBar::new(steps).with_style(style);
    let mut losses = Vec::new();
    {
        let _training = Tensor::train(true);
        for _ in 0..steps {
            let (texts, labels) = text.batch()?;
            optimizer.zero_grad();
            let scores = model.forward(&texts)?.flatten(0, 1)?;
            let loss = scores.cross_entropy(&labels, 0.0, Reduction::Mean)?;
            loss.backward()?;
            optimizer.step_with(&[&loss])?;
            let loss = f64::from(loss.item::<f32>()?);
            losses.push(loss);
            progress.set_message(format!("loss {loss:.4}"));
            progress.inc(1);
        }
    }
    progress.finish();
    println!("{}", write(&model, text)?);
    let count = losses.len().min(10);
    let mean = |losses: &[f64]| losses.iter().sum::<f64>() / losses.len() as f64;
    Ok((mean(&losses[..count]), mean(&losses[losses.len() - count..])))
}

/// Goes on with the beginning of the text, a character after the other, by their probabilities.
fn write(model: &Gpt, text: &Text) -> Result<String, Error> {
    let mut numbers = text.numbers[..CONTEXT].to_vec();
    for _ in 0..WRITTEN {
        let seen = &numbers[numbers.len() - CONTEXT..];
        let scores = model.forward(&Tensor::from_slice(&[1, CONTEXT as i64], seen)?)?;
        let last = scores.slice(&[(0, 1, 1), (-1, i64::MAX, 1)])?.flatten(0, -1)?;
        numbers.push(last.softmax(0)?.multinomial(1, true)?.cast(DType::I32)?.to_vec::<i32>()?[0]);
    }
    Ok(numbers.iter().map(|number| text.characters[*number as usize]).collect())
}
