//! Refusals: why a program was not run, and whether the machine is at fault.

use gradiff::runtime;

use crate::Outcome;

/// The reason why a backend does not run a program. Its class is that of the engine's error; no
/// code searches for words in a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    text: String,
    is_environment: bool,
}

impl Refusal {
    /// The refusal with the part of the program that it concerns as a prefix.
    pub(crate) fn at(self, part: &str) -> Refusal {
        Refusal { text: format!("{part}: {}", self.text), ..self }
    }

    /// The refusal that names the error's variant, by which blame recognises an error of the
    /// runtime.
    pub(crate) fn of_call(error: gradiff::Error) -> Refusal {
        Refusal { text: format!("{error:?}"), is_environment: error.is_environment() }
    }

    /// The outcome of the refused program.
    pub(crate) fn outcome(self) -> Outcome {
        match self.is_environment {
            true => Outcome::Environment(self.text),
            false => Outcome::Refused(self.text),
        }
    }
}

impl From<String> for Refusal {
    fn from(text: String) -> Refusal {
        Refusal { text, is_environment: false }
    }
}

impl From<gradiff::Error> for Refusal {
    fn from(error: gradiff::Error) -> Refusal {
        Refusal { text: error.to_string(), is_environment: error.is_environment() }
    }
}

impl From<runtime::Error> for Refusal {
    fn from(error: runtime::Error) -> Refusal {
        Refusal { text: error.to_string(), is_environment: error.is_environment() }
    }
}

impl From<Refusal> for String {
    fn from(refusal: Refusal) -> String {
        refusal.text
    }
}
