//! Numbers in environment variables.

use crate::Error;

/// The variables: name, minimum, maximum, meaning.
const VARIABLES: [(&str, usize, usize, &str); 2] = [
    ("GRADIFF_THREADS", 1, 1024, "the number of threads that run a kernel of device c"),
    ("GRADIFF_POOL_MIB", 0, 1 << 24, "the MiB of freed memory that are kept for reuse"),
];

/// Returns the number in a variable; `None` if it is not set.
///
/// # Errors
/// If the value is not a number in the allowed range.
pub(crate) fn number(name: &str) -> Result<Option<usize>, Error> {
    let Some(text) = std::env::var_os(name) else { return Ok(None) };
    let text = text.to_string_lossy();
    let row = VARIABLES.iter().find(|(known, ..)| *known == name);
    let &(name, min, max, meaning) = row.unwrap_or(&VARIABLES[0]);
    let number = text.trim().parse().ok().filter(|number| (min..=max).contains(number));
    let failed = || Error::Environment { name, text: text.to_string(), meaning, min, max };
    number.map(Some).ok_or_else(failed)
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

/// Checks all variables, so that a mistake is reported before anything runs.
///
/// # Errors
/// The first variable that is not a number in its range.
pub(crate) fn check() -> Result<(), Error> {
    VARIABLES.iter().try_for_each(|(name, ..)| number(name).map(drop))
}
