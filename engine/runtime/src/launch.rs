//! What devices have in common: how a kernel is launched, what it costs, and its text.

use gradiff_graph::{Arg, AxisKind, Instruction, Linear, Op};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::Error;
use crate::device::GroupLimits;

/// Steps along each dimension, the innermost range first.
pub(crate) struct Launch {
    pub(crate) groups: [u64; 3],
    pub(crate) group: [u64; 3],
}

impl Launch {
    /// How a kernel is launched, if the device takes that. Elements of local memory take so many
    /// bytes there at least.
    pub(crate) fn new(
        device: &'static str,
        limits: &GroupLimits,
        element_bytes_min: u64,
        kernel: &Linear,
    ) -> Result<Launch, Error> {
        let refuse = |what: String| Error::Launch { device, kernel: kernel.name.clone(), what };
        let sizes = |kind| -> Result<[u64; 3], Error> {
            let ranges = kernel.launched(kind);
            if ranges.len() > 3 {
                return Err(refuse(format!("has 3 dimensions, and the kernel {}", ranges.len())));
            }
            let mut sizes = [1; 3];
            for (size, (_, steps)) in sizes.iter_mut().zip(ranges.iter().rev()) {
                *size = (*steps).max(0) as u64;
            }
            Ok(sizes)
        };
        let (groups, group) = (sizes(AxisKind::Global)?, sizes(AxisKind::Local)?);
        let fits = |sizes: [u64; 3], most: [u64; 3]| {
            sizes.iter().zip(most).all(|(size, most)| *size <= most)
        };
        let threads = group.iter().try_fold(1u64, |count, size| count.checked_mul(*size));
        let is_small = threads.is_some_and(|count| count <= limits.threads_max);
        if !is_small || !fits(group, limits.sizes_max) || !fits(groups, limits.groups_max) {
            return Err(refuse(format!(
                "takes groups of {} threads at most ({:?}) and {:?} groups, not {group:?} and \
                 {groups:?}",
                limits.threads_max, limits.sizes_max, limits.groups_max
            )));
        }
        let bytes = |uop: &Instruction| match uop.arg {
            Arg::Local(local) => {
                let element_bytes = element_bytes_min.max(uop.dtype.size_bytes() as u64);
                local.size_elements.max(0) as u64 * element_bytes
            }
            _ => 0,
        };
        let arrays = kernel.uops.iter().filter(|uop| uop.op == Op::DefineLocal);
        let wanted: u64 = arrays.map(bytes).sum();
        if limits.local_bytes < wanted {
            let most = limits.local_bytes;
            return Err(refuse(format!("has {most} bytes of local memory, not {wanted}")));
        }
        Ok(Launch { groups, group })
    }

    /// Whether there is nothing to do.
    pub(crate) fn is_empty(&self) -> bool {
        self.groups.contains(&0) || self.group.contains(&0)
    }
}

/// How many uops a launch of a kernel executes, which tells whether better code is worth its time.
pub(crate) fn executed(kernel: &Linear) -> i128 {
    let mut turns: Vec<i128> = vec![1];
    let mut executed = 0i128;
    for uop in &kernel.uops {
        let now = turns.last().copied().unwrap_or(1);
        executed = executed.saturating_add(now);
        match uop.op {
            Op::Range => {
                let end = uop.src.first().and_then(|end| kernel.uops.get(*end as usize));
                let count = end.and_then(|end| match end.arg {
                    Arg::Const(value) => value.to_int(),
                    _ => None,
                });
                turns.push(now.saturating_mul(count.unwrap_or(1)));
            }
            Op::EndRange => drop(turns.pop()),
            _ => {}
        }
    }
    executed
}

/// Kernels in a language, each text once and under a name of its own.
pub(crate) struct Texts {
    /// Name and text.
    pub(crate) named: Vec<(String, String)>,
    /// For each kernel the number of its text.
    pub(crate) number_of: Vec<usize>,
    prelude: fn(&str) -> String,
}

impl Texts {
    pub(crate) fn new(
        device: &'static str,
        language: &str,
        kernels: &[&Linear],
    ) -> Result<Texts, Error> {
        let language = gradiff_render::LANGUAGES.iter().find(|known| known.name == language);
        let language = language.ok_or_else(|| Error::Unavailable {
            device,
            why: "kernels cannot be written in its language".into(),
        })?;
        let mut known: FxHashMap<String, usize> = FxHashMap::default();
        let mut names: FxHashSet<String> = FxHashSet::default();
        let mut named: Vec<(String, String)> = Vec::new();
        let mut number_of = Vec::with_capacity(kernels.len());
        for kernel in kernels {
            let mut text = (language.render)(kernel)?;
            if let Some(number) = known.get(&text) {
                number_of.push(*number);
                continue;
            }
            known.insert(text.clone(), named.len());
            let mut name = kernel.name.clone();
            if !names.insert(name.clone()) {
                name = format!("{}_b{}", kernel.name, named.len());
                let uops = kernel.uops.clone();
                text = (language.render)(&Linear { name: name.clone(), uops })?;
                names.insert(name.clone());
            }
            number_of.push(named.len());
            named.push((name, text));
        }
        Ok(Texts { named, number_of, prelude: language.prelude })
    }

    /// A file of some of the kernels, and their names for messages.
    pub(crate) fn file(&self, part: &[(String, String)]) -> (String, String) {
        let bodies: Vec<&str> = part.iter().map(|(_, text)| text.as_str()).collect();
        let bodies = bodies.join("\n");
        let names: Vec<&str> = part.iter().map(|(name, _)| name.as_str()).collect();
        (format!("{}\n{bodies}", (self.prelude)(&bodies)), names.join(", "))
    }
}
