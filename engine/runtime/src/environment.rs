//! Numbers in environment variables.

use crate::Error;

/// An environment variable whose value is a number.
#[derive(Clone, Copy, Debug)]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// The smallest number allowed.
    pub min: usize,
    /// The largest number allowed.
    pub max: usize,
    /// The meaning of the number, for messages.
    pub meaning: &'static str,
}

/// Threads of a kernel of device `c`.
pub(crate) const THREADS: Variable = Variable {
    name: "GRADIFF_THREADS",
    min: 1,
    max: 1024,
    meaning: "the number of threads that run a kernel of device c",
};
/// Size of the pool of freed memory.
pub(crate) const POOL_MIB: Variable = Variable {
    name: "GRADIFF_POOL_MIB",
    min: 0,
    max: 1 << 24,
    meaning: "the MiB of freed memory that are kept for reuse",
};

impl Variable {
    /// Returns the number; `None` if the variable is not set.
    ///
    /// # Errors
    /// [`Error::Environment`] if the value is not a number in the allowed range.
    pub fn number(&self) -> Result<Option<usize>, Error> {
        std::env::var_os(self.name).map(|text| self.parse(&text.to_string_lossy())).transpose()
    }

    fn parse(&self, text: &str) -> Result<usize, Error> {
        let Variable { name, min, max, meaning } = *self;
        let number = text.trim().parse().ok().filter(|number| (min..=max).contains(number));
        let failed = || Error::Environment { name, text: text.to_string(), meaning, min, max };
        number.ok_or_else(failed)
    }
}

/// Returns the index of the device that a variable selects among `count` devices; `None` if it is
/// not set.
///
/// # Errors
/// A message, if there is no such device.
pub(crate) fn selected_device(name: &str, count: usize) -> Result<Option<usize>, String> {
    let Some(text) = std::env::var_os(name).filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    let text = text.to_string_lossy();
    match text.trim().parse().ok().filter(|number| *number < count) {
        Some(number) => Ok(Some(number)),
        None if count == 0 => Err(format!("{name} is `{text}`, but there are no devices")),
        None => Err(format!("{name} is `{text}`, but the devices are 0 to {}", count - 1)),
    }
}

/// Checks the variables that are read when a kernel runs or memory is freed, so that a mistake is
/// reported before. Those of a device are read when it is opened.
///
/// # Errors
/// The first variable that is not a number in its range.
pub(crate) fn check() -> Result<(), Error> {
    [THREADS, POOL_MIB].iter().try_for_each(|variable| variable.number().map(drop))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_outside_the_range_are_errors_with_the_meaning() {
        let parse = |text: &str| THREADS.parse(text).map_err(|error| error.to_string());
        assert_eq!((parse("1"), parse(" 1024 ")), (Ok(1), Ok(1024)));
        for text in ["0", "1025", "-1", "", "yes", "1.5", "18446744073709551616"] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(&format!("GRADIFF_THREADS={text}: it must be the number")));
            assert!(error.ends_with("from 1 to 1024"), "{error}");
        }
    }
}
