//! Draws building blocks of models with random sizes, dtypes and views. Detours that keep the value
//! are inserted at random: a buffer, a view and its inverse, a wider dtype and back.
//!
//! Each idiom is a function that adds its statements and returns the result. It returns `None` if a
//! size, a dtype or a fact does not allow it; the statements that it has added by then stay.

mod elementwise;
mod known;
mod masks;
mod near_match;
mod products;
mod rows;
mod statements;
mod widened;
mod windows;

pub(crate) use statements::scalar_literal;

use gradiff_corpus::ValueId;

use crate::Op;
use crate::programs::Builder;

/// Number of idioms that are tried before the program begins with plain data instead.
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
    NearMatch,
    Known,
    MovedSum,
    Labelled,
    PaddedFunction,
    Bounded,
}

impl Idiom {
    const ALL: [Idiom; 35] = [
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
        Idiom::NearMatch,
        Idiom::Known,
        Idiom::MovedSum,
        Idiom::Labelled,
        Idiom::PaddedFunction,
        Idiom::Bounded,
    ];
}

impl Builder<'_> {
    /// Adds an idiom, sometimes a second one on its result.
    pub(crate) fn idioms(&mut self) {
        let has_all_ops = self.config.ops.len() == Op::COUNT;
        let mut found = None;
        for _ in 0..if has_all_ops { TRIES } else { 0 } {
            let idiom = self.choices.pick(&Idiom::ALL);
            found = self.idiom(idiom);
            if found.is_some() {
                break;
            }
        }
        let Some(found) = found else {
            if self.types.is_empty() {
                self.add_data();
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
            Idiom::NearMatch => self.near_match(),
            Idiom::Known => self.known(),
            Idiom::MovedSum => self.moved_sum(),
            Idiom::Labelled => self.labelled(),
            Idiom::PaddedFunction => self.padded_function(),
            Idiom::Bounded => self.bounded(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, Lane, SeedChoices};

    #[test]
    fn every_idiom_is_mostly_completed() {
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
