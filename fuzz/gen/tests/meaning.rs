//! Measures with the oracle, lane by lane, how many elements of generated programs are unspecified.

use std::collections::BTreeMap;

use gradiff_gen::{Config, Lane, program_at};
use gradiff_oracle::Element;

const PROGRAMS: u64 = 4_000;

/// Counts of the elements of a lane's outputs.
#[derive(Default)]
struct Counts {
    elements: usize,
    exact: usize,
    unspecified: usize,
    reasons: BTreeMap<&'static str, usize>,
}

fn measure(lane: Lane) -> Counts {
    let config = Config { lanes: vec![lane], ..Config::default() };
    let mut counts = Counts::default();
    for index in 0..PROGRAMS {
        let program = program_at(9, index, &config).program;
        for output in gradiff_oracle::evaluate(&program).expect("the program is well formed") {
            for element in output.elements() {
                counts.elements += 1;
                match element {
                    Element::Unspecified(reason) => {
                        counts.unspecified += 1;
                        *counts.reasons.entry(reason.name()).or_insert(0) += 1;
                    }
                    Element::Ball { .. } => {}
                    _ => counts.exact += 1,
                }
            }
        }
    }
    counts
}

#[test]
fn few_elements_are_unspecified() {
    let (mut elements, mut unspecified) = (0, 0);
    let mut worst = 0.0_f64;
    for lane in Lane::ALL {
        let counts = measure(lane);
        let share = |count: usize| count as f64 / counts.elements as f64;
        println!(
            "{:16} {:8} elements, {:.4} exact, {:.5} unspecified {:?}",
            lane.name(),
            counts.elements,
            share(counts.exact),
            share(counts.unspecified),
            counts.reasons,
        );
        if lane == Lane::Exact {
            assert!(share(counts.exact) > 0.995, "{}", share(counts.exact));
        }
        worst = worst.max(share(counts.unspecified));
        elements += counts.elements;
        unspecified += counts.unspecified;
    }
    let share = unspecified as f64 / elements as f64;
    println!("overall {share:.5} of {elements}");
    assert!(share <= 0.01, "{share:.4} of the elements are unspecified");
    assert!(worst <= 0.03, "{worst:.4} of one lane's elements are unspecified");
}
