//! Sequences: the programs that a worker has run, in order. Any of them may have caused its death.
//!
//! The text form, a line for each batch, serves to replay a death that no program causes alone:
//!
//! ```text
//! # crash on c: the process ended with signal: 6 (SIGABRT)
//! seed 1
//! backends interp, c:12
//! run 0-63
//! run 128-130, 140
//! ```

use std::fmt::{self, Display};

/// Extension of files that hold sequences.
pub(crate) const EXTENSION: &str = "sequence";

/// Generated programs in the batches in which one worker has run them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sequence {
    /// The seed of the programs.
    pub(crate) seed: u64,
    /// Lanes; none means all.
    pub(crate) lanes: Vec<String>,
    /// Backends.
    pub(crate) backends: Vec<String>,
    /// The numbers of the programs of each batch.
    pub(crate) batches: Vec<Vec<u64>>,
}

impl Sequence {
    /// Returns the number of programs.
    pub(crate) fn count(&self) -> usize {
        self.batches.iter().map(Vec::len).sum()
    }

    /// Returns the sequence with other batches.
    pub(crate) fn with(&self, batches: Vec<Vec<u64>>) -> Sequence {
        Sequence { batches, ..self.clone() }
    }

    /// Returns the sequence with the last `count` batches only.
    pub(crate) fn tail(&self, count: usize) -> Sequence {
        let first = self.batches.len().saturating_sub(count);
        self.with(self.batches[first..].to_vec())
    }

    /// Removes programs as long as a worker still `dies` of the rest.
    pub(crate) fn minimised(&self, dies: &mut dyn FnMut(&Sequence) -> bool) -> Sequence {
        let mut programs: Vec<(usize, u64)> = Vec::new();
        for (at, batch) in self.batches.iter().enumerate() {
            programs.extend(batch.iter().map(|program| (at, *program)));
        }
        let mut size = programs.len().div_ceil(2);
        while 1 <= size && 1 < programs.len() {
            let mut at = 0;
            while at < programs.len() && 1 < programs.len() {
                let end = (at + size).min(programs.len());
                let left = [&programs[..at], &programs[end..]].concat();
                match !left.is_empty() && dies(&self.with(batched(&left))) {
                    true => programs = left,
                    false => at = end,
                }
            }
            size = if size == 1 { 0 } else { size.div_ceil(2) };
        }
        self.with(batched(&programs))
    }

    /// Parses the text form.
    ///
    /// # Errors
    /// A malformed line, with its number; no programs.
    pub(crate) fn parse(text: &str) -> Result<Sequence, String> {
        let mut sequence = Sequence::default();
        for (number, line) in text.lines().enumerate() {
            let failed = |reason: &str| format!("line {}: {reason}", number + 1);
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (key, value) = line.split_once(' ').unwrap_or((line, ""));
            let words = || value.split(',').map(|word| word.trim().to_string()).collect();
            match key {
                "seed" => {
                    let seed = value.trim().parse();
                    sequence.seed = seed.map_err(|_| failed("a seed is a whole number"))?;
                }
                "lanes" => sequence.lanes = words(),
                "backends" => sequence.backends = words(),
                "run" => {
                    let expected = "numbers of programs are expected, as in 0-63, 70";
                    sequence.batches.push(numbers(value).ok_or_else(|| failed(expected))?);
                }
                _ => return Err(failed("expected seed, lanes, backends or run")),
            }
        }
        match sequence.count() {
            0 => Err("expected a line `run` with the numbers of programs".to_string()),
            _ => Ok(sequence),
        }
    }
}

impl Display for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}", self.seed)?;
        if !self.lanes.is_empty() {
            writeln!(f, "lanes {}", self.lanes.join(", "))?;
        }
        writeln!(f, "backends {}", self.backends.join(", "))?;
        self.batches.iter().try_for_each(|batch| writeln!(f, "run {}", ranges(batch)))
    }
}

/// Groups programs by batch.
fn batched(programs: &[(usize, u64)]) -> Vec<Vec<u64>> {
    let batches = programs.chunk_by(|(batch, _), (next, _)| batch == next);
    batches.map(|batch| batch.iter().map(|(_, number)| *number).collect()).collect()
}

/// Prints numbers, consecutive ones as a range: `0-63,70`.
pub(crate) fn ranges(numbers: &[u64]) -> String {
    let runs = numbers.chunk_by(|a, b| a.checked_add(1) == Some(*b));
    let word = |run: &[u64]| match run {
        [first, .., last] => format!("{first}-{last}"),
        _ => run.iter().map(u64::to_string).collect(),
    };
    runs.map(word).collect::<Vec<_>>().join(",")
}

/// Largest number of programs in a batch: a text may ask for any number.
const BATCH_MAX: u64 = 1 << 16;

/// Parses a text of ranges.
pub(crate) fn numbers(text: &str) -> Option<Vec<u64>> {
    let mut numbers = Vec::new();
    for word in text.split(',') {
        let (first, last) = word.trim().split_once('-').unwrap_or((word.trim(), word.trim()));
        let (first, last) = (first.parse::<u64>().ok()?, last.parse::<u64>().ok()?);
        if last < first || BATCH_MAX <= last - first || BATCH_MAX <= numbers.len() as u64 {
            return None;
        }
        numbers.extend(first..=last);
    }
    Some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sequence() -> Sequence {
        Sequence {
            seed: 7,
            lanes: vec!["exact".to_string()],
            backends: vec!["interp".to_string(), "c:12".to_string()],
            batches: vec![(0..64).collect(), vec![128, 129, 140], vec![u64::MAX]],
        }
    }

    #[test]
    fn sequences_survive_printing_and_parsing() {
        let text = sequence().to_string();
        assert!(text.contains("run 0-63\nrun 128-129,140\nrun 18446744073709551615\n"), "{text}");
        assert_eq!(Sequence::parse(&format!("# died\n\n{text}")), Ok(sequence()));
    }

    #[test]
    fn bad_texts_are_refused_with_their_line() {
        for (text, words) in [
            ("", "expected a line `run`"),
            ("seed x", "line 1: a seed"),
            ("seed 1\nrun 5-", "line 2: numbers"),
            ("run 9-3", "line 1: numbers"),
            ("run 0-18446744073709551615", "line 1: numbers"),
            ("walk 3", "line 1: expected seed"),
        ] {
            let error = Sequence::parse(text).expect_err(text);
            assert!(error.contains(words), "{text}: {error}");
        }
    }

    #[test]
    fn minimised_sequences_hold_only_needed_programs_and_keep_their_batches() {
        let mut calls = 0;
        let small = sequence().minimised(&mut |candidate| {
            calls += 1;
            let has = |batch: usize, number| {
                candidate.batches.get(batch).is_some_and(|batch| batch.contains(&number))
            };
            has(0, 5) && has(1, 140)
        });
        assert_eq!(small.batches, [vec![5], vec![140]]);
        assert!(calls < 60, "{calls}");
        let single = sequence().minimised(&mut |candidate| candidate.count() != 0);
        assert_eq!(single.count(), 1);
        assert_eq!(sequence().minimised(&mut |_| false), sequence());
    }
}
