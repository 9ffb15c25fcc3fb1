//! Draws what models are made of, with random sizes, dtypes and views, and something in between that
//! keeps the value: a buffer, a view there and back, a wider dtype.
//!
//! Each idiom is a function that adds its statements and gives its result; `None` where a size, a
//! dtype or a fact does not allow it, and what was added by then stays.

mod kept;
mod masks;
mod products;
mod rows;
mod steps;
mod widened;
mod windows;
mod words;

pub(crate) use words::number;

use gradiff_corpus::ValueId;

use crate::programs::Builder;
use crate::{Choices, Op};

/// Idioms that are drawn before the program begins like any other.
const TRIES: usize = 4;

/// A building block of models.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Idiom {
    Softmax,
    LogSoftmax,
    CrossEntropy,
    LayerNorm,
    RmsNorm,
    BatchNorm,
    Variance,
    Argmax,
    Matmul,
    Attention,
    Rotary,
    Convolution,
    Convolution2d,
    Pooling,
    CumulativeSum,
    Embedding,
    OneHot,
    RangeSum,
    Triangle,
    Dropout,
    Assignment,
    Optimizer,
    Activation,
    Stack,
    Roll,
    Upsample,
    Squares,
    Diamonds,
    Widened,
    NearlyKept,
}

impl Idiom {
    const ALL: [Idiom; 30] = [
        Idiom::Softmax,
        Idiom::LogSoftmax,
        Idiom::CrossEntropy,
        Idiom::LayerNorm,
        Idiom::RmsNorm,
        Idiom::BatchNorm,
        Idiom::Variance,
        Idiom::Argmax,
        Idiom::Matmul,
        Idiom::Attention,
        Idiom::Rotary,
        Idiom::Convolution,
        Idiom::Convolution2d,
        Idiom::Pooling,
        Idiom::CumulativeSum,
        Idiom::Embedding,
        Idiom::OneHot,
        Idiom::RangeSum,
        Idiom::Triangle,
        Idiom::Dropout,
        Idiom::Assignment,
        Idiom::Optimizer,
        Idiom::Activation,
        Idiom::Stack,
        Idiom::Roll,
        Idiom::Upsample,
        Idiom::Squares,
        Idiom::Diamonds,
        Idiom::Widened,
        Idiom::NearlyKept,
    ];
}

impl<C: Choices> Builder<'_, C> {
    /// One idiom, sometimes another one on its result.
    pub(crate) fn idioms(&mut self) {
        let all_ops = self.config.ops.len() == Op::COUNT;
        let mut found = None;
        for _ in 0..if all_ops { TRIES } else { 0 } {
            let idiom = self.choices.pick(&Idiom::ALL);
            found = self.idiom(idiom);
            if found.is_some() {
                break;
            }
        }
        let Some(found) = found else {
            if self.types.is_empty() {
                self.first_source();
            }
            return;
        };
        if self.choices.one_in(3) {
            let idiom = self.choices.pick(&Idiom::ALL);
            self.input = Some(found);
            self.idiom(idiom);
            self.input = None;
        }
    }

    fn idiom(&mut self, idiom: Idiom) -> Option<ValueId> {
        match idiom {
            Idiom::Softmax => self.softmax_idiom(false),
            Idiom::LogSoftmax => self.softmax_idiom(true),
            Idiom::CrossEntropy => self.cross_entropy(),
            Idiom::LayerNorm => self.norm(true),
            Idiom::RmsNorm => self.norm(false),
            Idiom::BatchNorm => self.batch_norm(),
            Idiom::Variance => self.variance_idiom(),
            Idiom::Argmax => self.argmax(),
            Idiom::Matmul => self.matmul(),
            Idiom::Attention => self.attention(),
            Idiom::Rotary => self.rotary(),
            Idiom::Convolution => self.convolution(),
            Idiom::Convolution2d => self.convolution_2d(),
            Idiom::Pooling => self.pooling(),
            Idiom::CumulativeSum => self.cumulative_sum(),
            Idiom::Embedding => self.embedding(),
            Idiom::OneHot => self.one_hot(),
            Idiom::RangeSum => self.range_sum(),
            Idiom::Triangle => self.triangle(),
            Idiom::Dropout => self.dropout(),
            Idiom::Assignment => self.assignment(),
            Idiom::Optimizer => self.optimizer(),
            Idiom::Activation => self.activation_idiom(),
            Idiom::Stack => self.stack(),
            Idiom::Roll => self.roll(),
            Idiom::Upsample => self.upsample(),
            Idiom::Squares => self.squares(),
            Idiom::Diamonds => self.diamonds(),
            Idiom::Widened => self.widened(),
            Idiom::NearlyKept => self.nearly_kept(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, Lane, SeedChoices};

    #[test]
    fn every_idiom_comes_to_its_end_mostly() {
        let config = Config::default();
        let mut rare = Vec::new();
        for idiom in Idiom::ALL {
            let complete = (0..400).filter(|seed| {
                let mut choices = SeedChoices::new(*seed);
                Builder::new(&mut choices, &config, Lane::Idioms).idiom(idiom).is_some()
            });
            let complete = complete.count();
            println!("{idiom:?} {complete} of 400");
            if complete < 240 {
                rare.push((idiom, complete));
            }
        }
        assert!(rare.is_empty(), "of 400: {rare:?}");
    }
}
