//! Numbers that environment variables say.

use crate::Error;

/// The variables: name, least and most value, what they mean.
const VARIABLES: [(&str, usize, usize, &str); 2] = [
    ("GRADIFF_THREADS", 1, 1024, "how many threads run a kernel of device c"),
    ("GRADIFF_POOL_MIB", 0, 1 << 24, "how many MiB of freed memory are kept for the next"),
];

/// What a variable says; none if it is not set.
///
/// # Errors
/// If it says anything else than a number that it may have.
pub(crate) fn number(name: &str) -> Result<Option<usize>, Error> {
    let Some(text) = std::env::var_os(name) else { return Ok(None) };
    let text = text.to_string_lossy();
    let row = VARIABLES.iter().find(|(known, ..)| *known == name);
    let &(name, least, most, what) = row.unwrap_or(&VARIABLES[0]);
    let number = text.trim().parse().ok().filter(|number| (least..=most).contains(number));
    let failed = || Error::Environment { name, text: text.to_string(), what, least, most };
    number.map(Some).ok_or_else(failed)
}

/// The one of so many devices that a variable names by its number; none if it is not set.
///
/// # Errors
/// What to say if there is no such device.
pub(crate) fn chosen(name: &str, count: usize) -> Result<Option<usize>, String> {
    let Some(text) = std::env::var_os(name).filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    let text = text.to_string_lossy();
    match text.trim().parse().ok().filter(|number| *number < count) {
        Some(number) => Ok(Some(number)),
        None if count == 0 => Err(format!("{name} is `{text}`, and there are no devices")),
        None => Err(format!("{name} is `{text}`, and there are devices 0 to {}", count - 1)),
    }
}

/// Looks at all of them, so that a mistake is told before anything runs.
///
/// # Errors
/// The first one that is no number that it may have.
pub(crate) fn check() -> Result<(), Error> {
    VARIABLES.iter().try_for_each(|(name, ..)| number(name).map(drop))
}
