//! Debug output to stderr, by the level that `DEBUG` gives ([`Engine::new`](crate::Engine::new)).

use std::time::Duration;

use gradiff_graph::UOp;
use gradiff_kernel::Opt;
use gradiff_render::LANGUAGES;
use gradiff_runtime::Device;

use crate::Error;
use crate::plan::PlannedKernel;

/// The lowest level at which kernels are timed.
pub(crate) const TIMED: u8 = 2;
/// The lowest level at which kernels are printed when they are compiled.
pub(crate) const PRINTED: u8 = 3;

/// Prints a kernel that is compiled: parameters and opts; from level 4 on its source in the
/// language of the device, or in C if that has none; from 5 on its tree and its uops; from 6 on its
/// machine code if the device shows it.
pub(crate) fn print_kernel(
    level: u8,
    device: &dyn Device,
    kernel: &PlannedKernel,
    opts: &[Opt],
) -> Result<(), Error> {
    let name = &kernel.linear.name;
    let parameters = kernel.buffers.iter().enumerate();
    let parameters: Vec<String> = parameters
        .map(|(slot, buffer)| format!("data{slot}: {}[{}]", buffer.dtype(), buffer.size_elements()))
        .collect();
    let opts: Vec<String> = opts.iter().map(Opt::to_string).collect();
    eprintln!("{name}({})  opts: {}", parameters.join(", "), opts.join(", "));
    if 5 <= level {
        eprintln!("{}{}", tree(&kernel.ast), kernel.linear);
    }
    if 4 <= level {
        // The devices of WebGPU are named after it, its language is not.
        let name = device.name().replace("wgpu", "wgsl");
        let language = LANGUAGES.iter().find(|language| language.name == name);
        let render = language.map_or(gradiff_render::c as _, |language| language.render);
        eprintln!("{}", render(&kernel.linear)?.text);
    }
    if 6 <= level {
        let assembly = device.assembly(&kernel.linear)?;
        let nothing = || format!("device {} does not show machine code", device.name());
        eprintln!("{}", assembly.unwrap_or_else(nothing));
    }
    Ok(())
}

/// Prints a kernel run: the size of its buffers, its time by the device's clock, its ops in a
/// second, and the bytes in a second of its buffers and of all its accesses.
pub(crate) fn print_run(device: &str, number: usize, kernel: &PlannedKernel, time: Duration) {
    let size_bytes: u64 = kernel
        .buffers
        .iter()
        .map(|buffer| buffer.size_elements() as u64 * buffer.dtype().size_bytes() as u64)
        .sum();
    let estimates = kernel.linear.estimates();
    let rate = |count: u64| count as f64 / time.as_secs_f64().max(1e-9) / 1e9;
    eprintln!(
        "*** {device} {number:4} {:24} arg {:2} mem {:9.3} MB tm {:9.2} us {:8.2} GFLOP/s \
         {:7.1}|{:<7.1} GB/s",
        kernel.linear.name,
        kernel.buffers.len(),
        size_bytes as f64 / 1e6,
        time.as_secs_f64() * 1e6,
        rate(estimates.ops),
        rate(size_bytes),
        rate(estimates.access_bytes),
    );
}

/// Prints a kernel tree, a line per node: its number, the node, the numbers of its sources.
fn tree(ast: &UOp) -> String {
    let order = ast.toposort();
    let number = |node: &UOp| order.iter().position(|known| known == node).unwrap_or(0);
    let mut text = String::new();
    for (index, node) in order.iter().enumerate() {
        let sources: Vec<String> = node.src().iter().map(|src| number(src).to_string()).collect();
        text.push_str(&format!("{index:4} {node:?} [{}]\n", sources.join(", ")));
    }
    text
}
