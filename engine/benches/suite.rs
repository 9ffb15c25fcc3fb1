//! Speed of real work: kernels with the shapes, types and layouts that they have in models, beside
//! the limits of the machine and, in turns, beside PyTorch (eager, `suite.py`). Prints a line for
//! each row as it is measured, then the worst rows and the geometric means. A row takes its inputs
//! from buffers; planning and compiling are not counted.
//!
//! `GRADIFF_THREADS=1 cargo bench -p gradiff --bench suite` measures the rows of `suite.txt` on
//! device `c`, one core; with `-- --device cuda` those of `gpu.txt` on a GPU, with
//! `-- --seed NUMBER [--count NUMBER]` rows that are drawn. With `--backward` a row is run with the
//! gradients of its inputs, if it has them. A further word chooses the rows that contain it. With a
//! Python in `GRADIFF_PYTHON` that has PyTorch, ratios to it are printed and results are compared;
//! on a GPU the limit is the bandwidth of PyTorch's copies, and unknown without it.

use std::time::Instant;

use gradiff::graph::Target;
use gradiff::runtime::Device;
use gradiff::{DType, Engine, Error, Tensor};

#[path = "common/draw.rs"]
mod draw;
#[path = "common/limits.rs"]
mod limits;
#[path = "common/peer.rs"]
mod peer;
#[path = "common/rows.rs"]
mod rows;

use limits::{Meter, Unit, quantile};
use peer::Python;
use rows::{Input, Row};

/// The seconds of a turn, about.
const TURN_SECONDS: f64 = 0.05;
/// Turns of each library.
const TURNS: usize = 3;
/// Number of the slowest rows that are repeated in the end.
const WORST: usize = 20;
/// Largest difference of the sums of results, in terms of the sum of their sizes.
const TOLERANCE: f64 = 2e-2;

/// The measurements of a row.
struct Measured {
    text: String,
    seconds: f64,
    /// The part of the time that the limit of the machine needs.
    share: f64,
    /// PyTorch's time in terms of gradiff's.
    ratio: Option<f64>,
    note: String,
}

fn measure(
    row: &Row<'_>,
    (engine, device): (&mut Engine, &dyn Device),
    python: Option<&mut Python>,
    limits: [f64; 2],
) -> Result<Measured, Box<dyn std::error::Error>> {
    let inputs: Vec<Tensor> = row.inputs.iter().map(Input::tensor).collect::<Result<_, _>>()?;
    engine.set_target(target(device, row));
    engine.realize(&inputs.iter().collect::<Vec<_>>())?;
    let result = row.make(&inputs)?;
    let mut results = vec![result.clone()];
    if row.is_backward() {
        let weights = Input::like(&result).tensor()?;
        engine.realize(&[&weights])?;
        results.extend(row.gradients(&result, &weights, &inputs)?);
    }
    let mut plan = [engine.plan(&results.iter().collect::<Vec<_>>())?];
    engine.compile(&mut plan)?;
    let run = |count: usize| -> Result<f64, Error> {
        let start = Instant::now();
        (0..count).try_for_each(|_| engine.run(&plan[0]))?;
        device.wait()?;
        Ok(start.elapsed().as_secs_f64() / count as f64)
    };
    let count = |seconds: f64| (TURN_SECONDS / seconds).ceil() as usize;
    let mut note = String::new();
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    let our_count = count(run(1)?.min(run(1)?));
    let mut python = match python {
        Some(python) => match python.ask(&format!("make {}", row.text)) {
            Ok(sums) => {
                for (number, result) in results.iter().enumerate() {
                    note.push_str(&difference(result, sums.get(2 * number..2 * number + 2))?);
                }
                let first = python.ask("run 1")?[0].min(python.ask("run 1")?[0]);
                Some((python, count(first)))
            }
            Err(why) => {
                note = format!("  {why}");
                None
            }
        },
        None => None,
    };
    for _ in 0..TURNS {
        ours.push(run(our_count)?);
        if let Some((python, count)) = &mut python {
            theirs.push(python.ask(&format!("run {count}"))?[0]);
        }
    }
    let seconds = quantile(ours.into_iter(), 0.5);
    let products = row.products(result.shape()) as f64 * limits[0];
    let share = products.max(row.bytes(&result) as f64 * limits[1]) / seconds;
    let ratio = (!theirs.is_empty()).then(|| quantile(theirs.into_iter(), 0.5) / seconds);
    Ok(Measured { text: row.text.to_owned(), seconds, share, ratio, note })
}

/// Compares a result with the sum and the number of PyTorch's elements; returns a note if they
/// differ.
fn difference(result: &Tensor, theirs: Option<&[f64]>) -> Result<String, Error> {
    let values: Vec<f64> = result.cast(DType::F64)?.to_vec::<f64>()?;
    let [sum, sizes] = [values.iter().sum::<f64>(), values.iter().map(|x| x.abs()).sum()];
    let count = values.len();
    Ok(match theirs {
        Some([their_sum, their_count])
            if (sum - their_sum).abs() <= TOLERANCE * (sizes + 1e-3)
                && *their_count as usize == count =>
        {
            String::new()
        }
        _ => format!("  WRONG: {count} elements of sum {sum}, {theirs:?} in PyTorch"),
    })
}

impl Measured {
    fn line(&self) -> String {
        let ratio = self.ratio.map_or(String::new(), |ratio| format!("{ratio:8.2}"));
        let (time, share) = (1e3 * self.seconds, 100.0 * self.share);
        format!("{time:10.4} {share:6.0}% {ratio}  {}{}", self.text, self.note)
    }
}

fn geometric_mean(values: impl Iterator<Item = f64>) -> f64 {
    let logs: Vec<f64> = values.map(f64::ln).collect();
    (logs.iter().sum::<f64>() / logs.len() as f64).exp()
}

/// Returns the target for a row: that of the device, with products in tf32 if the row says so.
fn target(device: &dyn Device, row: &Row<'_>) -> Target {
    match row.number("tf32", 0) {
        0 => device.target(),
        _ => Target { tensor_cores: Target::of("cuda-tf32").tensor_cores, ..device.target() },
    }
}

/// Returns the line of a row that is run with its gradients.
fn backward(line: &str) -> String {
    match line.rsplit_once(" | ") {
        Some((call, inputs)) => format!("{call} backward=1 | {inputs}"),
        None => line.to_owned(),
    }
}

/// The limits of a device.
enum Limits {
    Cpu(Meter),
    /// The seconds to move a byte.
    Gpu(f64),
}

impl Limits {
    fn of(device: &str, python: Option<&mut Python>) -> Result<Limits, Box<dyn std::error::Error>> {
        if device == "c" {
            let mut meter = Meter::new()?;
            for unit in [Unit::MultiplyAdd, Unit::ByteRead, Unit::ByteMoved] {
                println!("{}", unit.rate(meter.measure(unit)?));
            }
            return Ok(Limits::Cpu(meter));
        }
        let seconds = match python {
            Some(python) => python.ask("byte 1")?[0],
            None => 0.0,
        };
        println!("{}", Unit::ByteMoved.rate(seconds));
        Ok(Limits::Gpu(seconds))
    }

    /// Returns the seconds for a multiply-add and for a byte that is moved.
    fn measure(&mut self) -> Result<[f64; 2], Box<dyn std::error::Error>> {
        Ok(match self {
            Limits::Cpu(meter) => {
                [meter.measure(Unit::MultiplyAdd)?, meter.measure(Unit::ByteMoved)?]
            }
            Limits::Gpu(seconds) => [0.0, *seconds],
        })
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1).filter(|word| word != "--bench");
    let mut name = "c".to_owned();
    let (mut filter, mut seed, mut drawn, mut is_backward) = (None, None, 100, false);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--device" => name = words.next().ok_or("--device needs a name")?,
            "--seed" => seed = Some(words.next().ok_or("--seed needs a number")?.parse()?),
            "--count" => drawn = words.next().ok_or("--count needs a number")?.parse()?,
            "--backward" => is_backward = true,
            word if word.starts_with('-') => return Err(format!("no option {word}").into()),
            _ => filter = Some(word),
        }
    }
    let text = match seed {
        Some(seed) => draw::rows(seed, drawn).join("\n"),
        None if name == "c" => include_str!("suite.txt").to_owned(),
        None => include_str!("gpu.txt").to_owned(),
    };
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let lines: Vec<String> = match is_backward {
        true => lines.map(backward).collect(),
        false => lines.map(str::to_owned).collect(),
    };
    let rows: Vec<Row<'_>> = lines.iter().map(|line| Row::parse(line)).collect::<Result<_, _>>()?;
    let is_chosen = |row: &&Row<'_>| {
        let is_named = filter.as_ref().is_none_or(|text| row.text.contains(text.as_str()));
        is_named && (row.is_differentiable() || !row.is_backward())
    };
    let (mut engine, device) = (Engine::new(&name)?, gradiff::runtime::device(&name)?);
    let mut python = Python::new(if name == "c" { "cpu" } else { "cuda" });
    let mut limits = Limits::of(&name, python.as_mut())?;
    println!("{:>10} {:>7} {:>8}", "ms", "limit", "PyTorch");
    let mut measured = Vec::new();
    for row in rows.iter().filter(is_chosen) {
        let limits = limits.measure()?;
        match measure(row, (&mut engine, &*device), python.as_mut(), limits) {
            Ok(row) => {
                println!("{}", row.line());
                measured.push(row);
            }
            Err(why) => println!("{:>28} {}  {why}", "", row.text),
        }
    }
    measured.sort_by(|x, y| {
        let key = |row: &Measured| row.ratio.unwrap_or(row.share);
        key(x).total_cmp(&key(y))
    });
    println!("\nthe slowest");
    measured.iter().take(WORST).for_each(|row| println!("{}", row.line()));
    let share = geometric_mean(measured.iter().map(|row| row.share.min(1.0)));
    let below = measured.iter().filter(|row| row.share < 0.5).count();
    println!(
        "\n{} rows, {:.0}% of the limit in the geometric mean, {below} below 50%",
        measured.len(),
        100.0 * share
    );
    let ratios: Vec<f64> = measured.iter().filter_map(|row| row.ratio).collect();
    if !ratios.is_empty() {
        let slower = ratios.iter().filter(|ratio| **ratio < 1.0 / 1.1).count();
        let mean = geometric_mean(ratios.iter().copied());
        println!(
            "PyTorch takes {mean:.2} times as long in the geometric mean; in {slower} rows it is \
             faster by more than a tenth"
        );
    }
    Ok(())
}
