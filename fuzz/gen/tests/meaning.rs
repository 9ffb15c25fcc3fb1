//! How much of what programs give is unspecified: measured with the oracle, lane by lane.

use std::collections::BTreeMap;

use gradiff_gen::{Config, Lane, program_at};
use gradiff_oracle::Element;

const PROGRAMS: u64 = 4_000;

/// Elements of one lane's outputs.
#[derive(Default)]
struct Share {
    elements: usize,
    exact: usize,
    unspecified: usize,
    reasons: BTreeMap<&'static str, usize>,
}

fn measure(lane: Lane) -> Share {
    let config = Config { lanes: vec![lane], ..Config::default() };
    let mut share = Share::default();
    for index in 0..PROGRAMS {
        let program = program_at(9, index, &config).program;
        for output in gradiff_oracle::evaluate(&program).expect("the oracle takes any program") {
            for element in output.elements() {
                share.elements += 1;
                match element {
                    Element::Unspecified(reason) => {
                        share.unspecified += 1;
                        *share.reasons.entry(reason.name()).or_insert(0) += 1;
                    }
                    Element::Ball { .. } => {}
                    _ => share.exact += 1,
                }
            }
        }
    }
    share
}

#[test]
fn few_elements_are_unspecified() {
    let (mut elements, mut unspecified) = (0, 0);
    let mut worst = 0.0_f64;
    for lane in Lane::ALL {
        let share = measure(lane);
        let part = |count: usize| count as f64 / share.elements as f64;
        println!(
            "{:16} {:8} elements, {:.4} exact, {:.5} unspecified {:?}",
            lane.name(),
            share.elements,
            part(share.exact),
            part(share.unspecified),
            share.reasons,
        );
        if lane == Lane::Exact {
            assert!(part(share.exact) > 0.995, "{}", part(share.exact));
        }
        worst = worst.max(part(share.unspecified));
        elements += share.elements;
        unspecified += share.unspecified;
    }
    let share = unspecified as f64 / elements as f64;
    println!("overall {share:.5} of {elements}");
    assert!(share <= 0.01, "{share:.4} of the elements are unspecified");
    assert!(worst <= 0.03, "{worst:.4} of one lane's elements are unspecified");
}
