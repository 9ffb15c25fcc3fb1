//! Shared code of the devices: launch sizes, the cost of a kernel, and texts without duplicates.

use gradiff_graph::{Arg, AxisKind, Instruction, Linear, Op, Target};
use gradiff_render::{Code, Helpers};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::Error;

/// The sizes of the grid and of a group in each dimension, innermost range first.
pub(crate) struct Launch {
    pub(crate) groups: [u64; 3],
    pub(crate) group: [u64; 3],
}

impl Launch {
    /// Returns the launch sizes of a kernel after checking that the target has what it uses.
    pub(crate) fn new(
        device: &'static str,
        target: &Target,
        kernel: &Linear,
    ) -> Result<Launch, Error> {
        let refuse =
            |problem: String| Error::Launch { device, kernel: kernel.name.clone(), problem };
        if let Some(problem) = target.find_unsupported(kernel) {
            return Err(refuse(problem));
        }
        let Some(limits) = target.groups else {
            return Err(refuse("has no groups of threads".to_string()));
        };
        let sizes = |kind| -> Result<[i64; 3], Error> {
            let ranges = kernel.launched(kind);
            if ranges.len() > 3 {
                let count = ranges.len();
                return Err(refuse(format!("has 3 dimensions, but the kernel has {count}")));
            }
            let mut sizes = [1; 3];
            for (size, (_, range_size)) in sizes.iter_mut().zip(ranges.iter().rev()) {
                *size = (*range_size).max(0);
            }
            Ok(sizes)
        };
        let (groups, group) = (sizes(AxisKind::Global)?, sizes(AxisKind::Local)?);
        let fits = |sizes: [i64; 3], limits: [i64; 3]| {
            sizes.iter().zip(limits).all(|(size, limit)| *size <= limit)
        };
        let threads = group.iter().try_fold(1i64, |count, size| count.checked_mul(*size));
        let is_small = threads.is_some_and(|count| count <= limits.threads);
        if !is_small || !fits(group, limits.sizes) || !fits(groups, limits.counts) {
            return Err(refuse(format!(
                "takes groups of {} threads at most ({:?}) and {:?} groups, not {group:?} and \
                 {groups:?}",
                limits.threads, limits.sizes, limits.counts
            )));
        }
        let bytes = |uop: &Instruction| match uop.arg {
            Arg::Local(local) => {
                let element_bytes = limits.element_bytes.max(uop.dtype.size_bytes() as i64);
                // Texts declare at least an element of each array.
                local.size_elements.max(1).saturating_mul(element_bytes)
            }
            _ => 0,
        };
        let arrays = kernel.uops.iter().filter(|uop| uop.op == Op::DefineLocal);
        let required = arrays.map(bytes).fold(0, i64::saturating_add);
        if limits.local_bytes < required {
            let available = limits.local_bytes;
            return Err(refuse(format!("has {available} bytes of local memory, not {required}")));
        }
        let unsigned = |sizes: [i64; 3]| sizes.map(|size| size as u64);
        Ok(Launch { groups: unsigned(groups), group: unsigned(group) })
    }

    /// Returns whether the launch has no threads.
    pub(crate) fn is_empty(&self) -> bool {
        self.groups.contains(&0) || self.group.contains(&0)
    }
}

/// The number of uops that a launch of a kernel executes, which decides whether better code is
/// worth its compile time.
pub(crate) fn executed_uops(kernel: &Linear) -> i128 {
    // For each open loop, the number of its iterations in all.
    let mut iterations: Vec<i128> = vec![1];
    let mut executed = 0i128;
    for uop in &kernel.uops {
        let current = iterations.last().copied().unwrap_or(1);
        executed = executed.saturating_add(current);
        match uop.op {
            Op::Range => {
                let end = uop.src.first().and_then(|end| kernel.uops.get(*end as usize));
                let count = end.and_then(|end| match end.arg {
                    Arg::Const(value) => value.to_int(),
                    _ => None,
                });
                iterations.push(current.saturating_mul(count.unwrap_or(1)));
            }
            Op::EndRange => drop(iterations.pop()),
            _ => {}
        }
    }
    executed
}

/// The texts of kernels in a language, without duplicates and with unique names.
pub(crate) struct Texts {
    /// Name and text.
    pub(crate) named: Vec<(String, Code)>,
    /// For each kernel, the number of its text.
    pub(crate) number_of: Vec<usize>,
    prelude: fn(&Helpers) -> String,
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
            why: "there is no renderer for its language".into(),
        })?;
        let mut known: FxHashMap<String, usize> = FxHashMap::default();
        let mut names: FxHashSet<String> = FxHashSet::default();
        let mut named: Vec<(String, Code)> = Vec::new();
        let mut number_of = Vec::with_capacity(kernels.len());
        for kernel in kernels {
            let mut code = (language.render)(kernel)?;
            if let Some(number) = known.get(&code.text) {
                number_of.push(*number);
                continue;
            }
            known.insert(code.text.clone(), named.len());
            let mut name = kernel.name.clone();
            while !names.insert(name.clone()) {
                name = format!("{name}_b{}", named.len());
            }
            if name != kernel.name {
                let uops = kernel.uops.clone();
                code = (language.render)(&Linear { name: name.clone(), uops })?;
            }
            number_of.push(named.len());
            named.push((name, code));
        }
        Ok(Texts { named, number_of, prelude: language.prelude })
    }

    /// A file of some of the texts, and the names of their kernels for messages.
    pub(crate) fn file(&self, part: &[(String, Code)]) -> (String, String) {
        let (mut bodies, mut helpers) = (Vec::new(), Helpers::default());
        for (_, code) in part {
            bodies.push(code.text.as_str());
            helpers.extend(&code.helpers);
        }
        let names: Vec<&str> = part.iter().map(|(name, _)| name.as_str()).collect();
        (format!("{}\n{}", (self.prelude)(&helpers), bodies.join("\n")), names.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use gradiff_graph::target::Groups;
    use gradiff_graph::text::parse_linears;

    use super::*;

    #[test]
    fn empty_local_array_takes_an_element() {
        let kernel = parse_linears("kernel E\n0 define_local f32 [] local0 0\n").unwrap().remove(0);
        let opencl = Target::of("opencl");
        let groups = opencl.groups.map(|groups| Groups { local_bytes: 3, ..groups });
        let launch = Launch::new("opencl", &Target { groups, ..opencl }, &kernel);
        let error = launch.err().unwrap().to_string();
        assert!(error.ends_with("has 3 bytes of local memory, not 4"), "{error}");
        assert!(Launch::new("opencl", &opencl, &kernel).is_ok());
    }

    #[test]
    fn names_of_kernels_are_unique() {
        // The third one cannot be called `E_1_b2`, as the first name that is free would be.
        let kernels = [("E_1", 42), ("E_1_b2", 43), ("E_1", 44)].map(|(name, value)| {
            let text = format!(
                "kernel {name}
                 0 define_global i32 [] data0 1
                 1 const i32 [] 0
                 2 const i32 [] {value}
                 3 index i32 [0, 1]
                 4 store void [3, 2]"
            );
            parse_linears(&text).unwrap().remove(0)
        });
        let texts = Texts::new("opencl", "opencl", &kernels.iter().collect::<Vec<_>>()).unwrap();
        assert_eq!(texts.number_of, [0, 1, 2]);
        let names: FxHashSet<&str> = texts.named.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names.len(), 3, "{names:?}");
        for (name, code) in &texts.named {
            assert!(code.text.contains(&format!(" {name}(")), "{}", code.text);
        }
    }
}
