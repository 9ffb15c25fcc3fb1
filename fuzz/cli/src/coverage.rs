//! `gradiff coverage`: counts how often cases fire each rule, for which ops and dtypes, and how
//! often each device ran each op for each dtype; lists the combinations that never occurred.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use gradiff_check::{At, Coverage, DEVICES};
use gradiff_corpus::{Case, DType, Method};
use gradiff_gen::{Calls, Feature, Features, Lane, Pairs};
use serde_json::{Value, json};

use crate::args::Coverage as Options;
use crate::out::outln;
use crate::{Failure, Status};

/// Counts and prints the report. A rule that never fired is a finding.
///
/// # Errors
/// A file that cannot be read or is not a case.
pub(crate) fn measure(options: &Options) -> Result<Status, Failure> {
    if let Some(programs) = options.pairs {
        crate::case::check_count(programs, "programs", options.allow_empty)?;
        return Ok(measure_pairs(options, programs));
    }
    if let Some(programs) = options.methods {
        crate::case::check_count(programs, "programs", options.allow_empty)?;
        return Ok(measure_methods(options, programs));
    }
    let cases: Vec<Case> = if options.files.is_empty() {
        gradiff_check::embedded_cases()
    } else {
        let files = crate::case::cases(&options.files, options.allow_empty)?;
        let case = |path: &std::path::PathBuf| Ok(crate::case::read(path)?.case);
        files.iter().map(case).collect::<Result<_, Failure>>()?
    };
    std::panic::set_hook(Box::new(|_| {}));
    let coverage = gradiff_check::coverage(&cases);
    let never_fired = coverage.never_fired();
    if options.json {
        outln!("{}", to_json(&coverage, cases.len()));
    } else {
        print_rules(&coverage);
        print_devices(&coverage);
        if options.holes {
            print_holes(&coverage);
        }
        outln!("{} rules over {} cases", coverage.rules.len(), cases.len());
        outln!("never fired: {}", never_fired.len());
        never_fired.iter().for_each(|rule| outln!("  {rule}"));
    }
    Ok(if never_fired.is_empty() { Status::Clean } else { Status::Findings })
}

/// Counts the features of generated programs, and the pairs of features that are in a statement and
/// its sources. A pair that never occurred is not a finding, since the programs are random.
fn measure_pairs(options: &Options, programs: u64) -> Status {
    let config = gradiff_gen::Config::default();
    let mut pairs = Pairs::default();
    let mut counts: BTreeMap<Feature, u64> = Feature::all().map(|feature| (feature, 0)).collect();
    for index in 0..programs {
        let program = gradiff_gen::program_at(options.seed, index, &config).program;
        pairs.add(&program);
        let features = gradiff_gen::features(&program).into_iter();
        for feature in features.reduce(Features::union).unwrap_or_default().iter() {
            *counts.entry(feature).or_default() += 1;
        }
    }
    let unseen = pairs.unseen();
    let share = |count: u64| 100.0 * count as f64 / programs.max(1) as f64;
    if options.json {
        let counts =
            counts.iter().map(|(feature, count)| (feature.name().to_string(), json!(count)));
        let names: Vec<[&str; 2]> = unseen.iter().map(|(a, b)| [a.name(), b.name()]).collect();
        outln!(
            "{}",
            json!({"programs": programs, "seed": options.seed, "seen": pairs.seen(),
            "possible": Pairs::POSSIBLE, "features": Value::Object(counts.collect()),
            "unseen": names})
        );
        return Status::Clean;
    }
    for (feature, count) in &counts {
        outln!("{:28}{count:8}{:8.2} %", feature.name(), share(*count));
    }
    outln!("feature pairs: {} of {} in {programs} programs", pairs.seen(), Pairs::POSSIBLE);
    unseen.iter().for_each(|(a, b)| outln!("  {} with {}", a.name(), b.name()));
    Status::Clean
}

/// Counts the methods that generated programs of their lane call, by dtype. A dtype that a method
/// takes but that never occurred is not a finding, since the programs are random.
fn measure_methods(options: &Options, programs: u64) -> Status {
    let config = gradiff_gen::Config { lanes: vec![Lane::Methods], ..Default::default() };
    let mut calls = Calls::default();
    for index in 0..programs {
        calls.add(&gradiff_gen::program_at(options.seed, index, &config).program);
    }
    let holes = calls.holes().into_iter().map(|(method, dtype)| {
        format!("{} {}", method.row().name, dtype.map_or("at all", DType::name))
    });
    let holes: Vec<String> = holes.collect();
    if options.json {
        let row = |method: Method| {
            let counts = DType::ALL.map(|dtype| {
                let count = calls.is_possible(method, dtype).then(|| calls.count(method, dtype));
                (dtype.name().to_string(), json!(count))
            });
            (method.row().name.to_string(), Value::Object(counts.into_iter().collect()))
        };
        let counts = Value::Object(Method::ALL.into_iter().map(row).collect());
        let seed = options.seed;
        outln!("{}", json!({"programs": programs, "seed": seed, "calls": counts, "never": holes}));
        return Status::Clean;
    }
    outln!("calls by dtype of the first source; - if the method takes it, but it never occurred");
    outln!("{:18}{}", "", DType::ALL.map(|dtype| format!("{:>7}", dtype.name())).concat());
    for method in Method::ALL {
        let cell = |dtype| match (calls.is_possible(method, dtype), calls.count(method, dtype)) {
            (false, _) => format!("{:>7}", ""),
            (true, 0) => format!("{:>7}", "-"),
            (true, count) => format!("{count:7}"),
        };
        outln!("{:18}{}", method.row().name, DType::ALL.map(cell).concat().trim_end());
    }
    outln!("never occurred in {programs} programs: {}", holes.len());
    holes.iter().for_each(|hole| outln!("  {hole}"));
    Status::Clean
}

/// The items with spaces between them.
fn words(items: impl IntoIterator<Item = impl Display>) -> String {
    items.into_iter().map(|item| item.to_string()).collect::<Vec<_>>().join(" ")
}

fn print_rules(coverage: &Coverage) {
    outln!("{:36} {:>6}  {:26} dtypes of operands", "rule", "fired", "ops");
    for (rule, counts) in &coverage.rules {
        let ops: BTreeSet<_> = counts.keys().map(|((op, _), _)| op.name()).collect();
        let dtypes: BTreeSet<_> = counts.keys().map(|((_, dtype), _)| *dtype).collect();
        let (ops, fired) = (words(ops), coverage.fired(rule));
        let ops = if ops.len() <= 26 { ops } else { format!("{:.23}...", ops) };
        outln!("{rule:36} {fired:6}  {ops:26} {}", words(dtypes));
    }
}

/// Prints a table with a row for each op and a column for each dtype. A cell has the first letters
/// of the devices that ran the op for the dtype, or `-` if the op is allowed but never ran.
fn print_devices(coverage: &Coverage) {
    for (device, reason) in &coverage.missing {
        outln!("device {device} is not available: {reason}");
    }
    let has_run = |device: &&str| coverage.devices.contains_key(device);
    let ran: Vec<&str> = DEVICES.into_iter().filter(has_run).collect();
    let letters = words(ran.iter().map(|device| format!("{device:.1}={device}")));
    outln!("\nuops by dtype of operands; {letters}");
    let holes: BTreeSet<At> = ran.iter().flat_map(|device| coverage.device_holes(device)).collect();
    let seen = coverage.devices.values().flat_map(|counts| counts.keys().copied());
    let rows: BTreeSet<At> = seen.chain(holes.iter().copied()).collect();
    let ops: BTreeSet<_> = rows.iter().map(|(op, _)| *op).collect();
    outln!("{:14}{}", "", DType::ALL.map(|dtype| format!("{:>5}", dtype.name())).concat());
    for op in ops {
        let cell = |dtype: DType| {
            let is_at = |at: &&At| at.0 == op && at.1.name() == dtype.name();
            let Some(at) = rows.iter().find(is_at) else { return format!("{:>5}", "") };
            let has_run_op = |device: &&&str| coverage.devices[**device].contains_key(at);
            let letters: String =
                ran.iter().filter(has_run_op).map(|device| &device[..1]).collect();
            format!("{:>5}", if letters.is_empty() { "-" } else { &letters })
        };
        outln!("{:14}{}", op.name(), DType::ALL.map(cell).concat().trim_end());
    }
    outln!();
}

fn print_holes(coverage: &Coverage) {
    outln!("rules by dtype: dtypes that a rule allows but no case has");
    for (rule, dtypes) in coverage.rule_holes() {
        outln!("  {rule:34} {}", words(dtypes));
    }
    for device in coverage.devices.keys() {
        let holes = coverage.device_holes(device);
        outln!("{device}: {} pairs of op and dtype that never ran", holes.len());
        for (op, dtype) in holes {
            outln!("  {op} {dtype}");
        }
    }
    outln!();
}

fn to_json(coverage: &Coverage, cases: usize) -> Value {
    let rules = coverage.rules.iter().map(|(rule, counts)| {
        let at = counts.iter().map(|(((op, dtype), device), count)| {
            json!({"op": op.name(), "dtype": dtype.name(), "device": device, "count": count})
        });
        (rule.to_string(), Value::Array(at.collect()))
    });
    let devices = coverage.devices.iter().map(|(device, counts)| {
        let at = |(op, dtype): &At| json!({"op": op.name(), "dtype": dtype.name()});
        let ran = counts.iter().map(
            |((op, dtype), count)| json!({"op": op.name(), "dtype": dtype.name(), "count": count}),
        );
        let holes = coverage.device_holes(device);
        let value = json!({"ran": ran.collect::<Vec<_>>(),
                           "holes": holes.iter().map(at).collect::<Vec<_>>()});
        (device.to_string(), value)
    });
    let holes = coverage.rule_holes().into_iter().map(|(rule, dtypes)| {
        (rule.to_string(), json!(dtypes.iter().map(|dtype| dtype.name()).collect::<Vec<_>>()))
    });
    json!({"cases": cases, "rules": Value::Object(rules.collect()),
           "devices": Value::Object(devices.collect()), "missing": coverage.missing,
           "rule_holes": Value::Object(holes.collect()), "never_fired": coverage.never_fired()})
}
