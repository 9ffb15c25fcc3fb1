//! Turns of the backends that evaluate kernels for targets which need not be present.

use gradiff_check::{BACKENDS, backends};

#[test]
fn each_program_of_a_hunt_is_run_for_one_target() {
    let rows = BACKENDS.iter().filter(|row| row.name.starts_with("uops/"));
    let words: Vec<String> = rows.filter_map(|row| row.default_word()).collect();
    assert!(12 <= words.len(), "{words:?}");
    let share = format!(":{}", words.len());
    assert!(words.iter().all(|word| word.ends_with(&share)), "{words:?}");
    let backends = backends(&words).expect("these need nothing");
    for program in 0..400 {
        let count = backends.iter().filter(|backend| backend.takes(program)).count();
        assert_eq!(count, 1, "backends for program {program}");
    }
}
