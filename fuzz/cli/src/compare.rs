//! `gradiff compare`: the kernels of the engine beside those of a peer.

use gradiff_check::KernelSummary;
use gradiff_corpus::Case;

use crate::args::Compare;
use crate::out::outln;
use crate::{Failure, Status};

/// Sums over the kernels of a program.
#[derive(Clone, Copy, Default)]
struct Sums {
    kernels: u64,
    loads: u64,
    stores: u64,
    alu: u64,
}

impl Sums {
    fn of(kernels: &[KernelSummary]) -> Sums {
        let sum = |count: fn(&KernelSummary) -> u64| kernels.iter().map(count).sum();
        Sums {
            kernels: kernels.len() as u64,
            loads: sum(|kernel| kernel.loads),
            stores: sum(|kernel| kernel.stores),
            alu: sum(|kernel| kernel.alu),
        }
    }

    fn columns(self) -> [u64; 4] {
        [self.kernels, self.loads, self.stores, self.alu]
    }
}

const COLUMNS: [&str; 4] = ["kernels", "loads", "stores", "alu"];

/// Prints a line for each program: kernels, elements loaded and stored, and results of elementwise
/// operations, here and there. For a single file, the kernels as well. A program for which the peer
/// fails is a row, and makes the command fail at its end.
///
/// # Errors
/// A peer that is not available or shows no kernels; files that cannot be read; no program that
/// could be compared.
pub(crate) fn compare(options: &Compare) -> Result<Status, Failure> {
    crate::interrupt::install();
    let files = crate::case::cases(&options.files, false)?;
    let peer = options.with.as_str();
    gradiff_check::check_kernels_there(peer)
        .map_err(|reason| Failure::Environment(format!("{peer}: {reason}")))?;
    let (mut compared, mut skipped, mut failed) = (0, 0, 0);
    // Programs with less, as much, or more here than there, for each column.
    let mut counts = [[0u64; 3]; COLUMNS.len()];
    row("here / there", COLUMNS.map(str::to_string));
    for path in &files {
        if crate::interrupt::is_requested() {
            break;
        }
        let Case::Program(program) = crate::case::read(path)?.case else { continue };
        let name = path.file_stem().map_or_else(String::new, |name| name.to_string_lossy().into());
        let here = gradiff_check::kernels_here(&program)
            .map_err(|reason| Failure::Usage(format!("{}: {reason}", path.display())))?;
        let there = match gradiff_check::kernels_there(peer, &program) {
            Ok(Ok(there)) => there,
            Ok(Err(reason)) => {
                outln!("{name:40}skipped: {reason}");
                skipped += 1;
                continue;
            }
            // It may be the failure of a peer which the request to end has ended.
            Err(_) if crate::interrupt::is_requested() => break,
            Err(reason) => {
                outln!("{name:40}failed: {reason}");
                failed += 1;
                continue;
            }
        };
        compared += 1;
        let sums = (Sums::of(&here).columns(), Sums::of(&there).columns());
        row(&name, std::array::from_fn(|at| format!("{} / {}", sums.0[at], sums.1[at])));
        for (count, (here, there)) in counts.iter_mut().zip(sums.0.iter().zip(&sums.1)) {
            count[usize::from(here >= there) + usize::from(here > there)] += 1;
        }
        if let [_] = files[..] {
            print("here", &here, options.source);
            print(peer, &there, options.source);
        }
    }
    outln!("{compared} programs compared, {skipped} skipped, {failed} failed");
    for (name, [fewer, equal, more]) in COLUMNS.iter().zip(counts) {
        outln!("{name:10}fewer here in {fewer}, as many in {equal}, more in {more}");
    }
    match (failed, compared) {
        (1.., _) => Ok(Status::Findings),
        _ if crate::interrupt::is_requested() => Err(Failure::Interrupted),
        (_, 0) => Err(Failure::Usage(match skipped {
            0 => "none of the files has a program to compare".to_string(),
            count => format!("the peer skips each of the {count} programs"),
        })),
        _ => Ok(Status::Clean),
    }
}

fn row(name: &str, cells: [String; COLUMNS.len()]) {
    let cells = cells.map(|cell| format!("{cell:>24}"));
    outln!("{name:40}{}", cells.concat());
}

fn print(title: &str, kernels: &[KernelSummary], has_source: bool) {
    outln!("\n{title}");
    for KernelSummary { name, opts, loads, stores, alu, source } in kernels {
        outln!("  {name}  [{opts}]  {loads} loads, {stores} stores, {alu} alu");
        if has_source {
            outln!("{}", source.trim_end());
        }
    }
}
