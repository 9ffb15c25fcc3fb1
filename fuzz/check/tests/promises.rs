//! Turns of the backends that evaluate kernels for targets which need not be present.

use gradiff_check::{BACKENDS, backends};

#[test]
fn every_fourth_program_of_a_hunt_is_run_for_one_target() {
    let rows = BACKENDS.iter().filter(|row| row.name.starts_with("uops/"));
    let words: Vec<String> = rows.filter_map(|row| row.default_word()).collect();
    assert!(12 <= words.len(), "{words:?}");
    let share = format!(":{}", 4 * words.len());
    assert!(words.iter().all(|word| word.ends_with(&share)), "{words:?}");
    let backends = backends(&words).expect("these need nothing");
    let count = |program| backends.iter().filter(|backend| backend.takes(program)).count();
    let counts: Vec<usize> = (0..8 * 4 * words.len() as u64).map(count).collect();
    assert!(counts.iter().all(|count| *count <= 1), "{counts:?}");
    assert_eq!(counts.iter().sum::<usize>(), 8 * words.len());
}
