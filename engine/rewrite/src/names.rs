//! The names of a rule, and the nodes and sums that they stand for.

use gradiff_graph::{DType, UOp};

use crate::sum::Sum;

/// Maximum number of the names that a rule may bind, `root` included.
pub const MAX_NAMES: usize = 12;

/// The values of a rule's names, by slot: nodes that the left side matched, and sums that an
/// equation bound.
#[derive(Clone, Copy, Default)]
pub(crate) struct Bindings<'a> {
    nodes: [Option<&'a UOp>; MAX_NAMES],
    /// The first slot that an equation binds, and the sums of this slot and of those after it.
    parts: (usize, &'a [Sum]),
}

impl<'a> Bindings<'a> {
    /// Returns these bindings with the sums that an equation bound to slot `first` and those after
    /// it.
    pub(crate) fn with_parts<'b>(&self, first: usize, parts: &'b [Sum]) -> Bindings<'b>
    where
        'a: 'b,
    {
        Bindings { nodes: self.nodes, parts: (first, parts) }
    }

    /// The node that a name stands for, if the left side binds it.
    pub(crate) fn node(&self, slot: usize) -> Option<&'a UOp> {
        self.nodes[slot]
    }

    /// The sum that a name stands for, if an equation binds it.
    pub(crate) fn part(&self, slot: usize) -> Option<&'a Sum> {
        let (first, parts) = self.parts;
        slot.checked_sub(first).and_then(|number| parts.get(number))
    }

    /// The node of a name, built if the name stands for a sum.
    pub(crate) fn build(&self, slot: usize) -> Option<UOp> {
        self.nodes[slot].cloned().or_else(|| self.part(slot).map(Sum::build))
    }

    /// The dtype of the node or the sum that a name stands for.
    pub(crate) fn dtype(&self, slot: usize) -> Option<DType> {
        self.nodes[slot].map(UOp::dtype).or_else(|| self.part(slot).map(|sum| sum.dtype))
    }

    /// Binds a name to a node; returns false if it is already bound to another node.
    pub(crate) fn bind(&mut self, slot: usize, uop: &'a UOp) -> bool {
        *self.nodes[slot].get_or_insert(uop) == uop
    }
}

/// The names of a rule. A slot is the index of a name; `root` has slot 0.
pub(crate) struct Slots {
    names: Vec<String>,
    /// True while an equation is parsed, where a name that is not bound yet is bound by its use.
    pub(crate) is_open: bool,
}

impl Slots {
    pub(crate) fn new() -> Slots {
        Slots { names: vec![String::from("root")], is_open: false }
    }

    /// Number of names.
    pub(crate) fn count(&self) -> usize {
        self.names.len()
    }

    /// The name of a slot; empty if there is none.
    pub(crate) fn name(&self, slot: usize) -> &str {
        self.names.get(slot).map_or("", String::as_str)
    }

    /// Returns the slot of a name; a new name gets the next slot.
    pub(crate) fn bind(&mut self, name: &str) -> Result<usize, String> {
        if let Some(slot) = self.names.iter().position(|known| known == name) {
            return Ok(slot);
        }
        if self.names.len() == MAX_NAMES {
            return Err(format!("the rule has more than {} names", MAX_NAMES - 1));
        }
        self.names.push(name.to_owned());
        Ok(self.names.len() - 1)
    }

    /// Returns the slot of a name that the left side or an equation has bound, or binds it if
    /// [`Slots::is_open`].
    pub(crate) fn bound(&mut self, name: &str) -> Result<usize, String> {
        if self.is_open {
            return self.bind(name);
        }
        let slot = self.names.iter().position(|known| known == name);
        slot.ok_or_else(|| format!("{name} is not bound by the left side"))
    }
}

/// Returns whether a name matches constants only: `c0`, `c1`, ...
pub fn is_constant_name(name: &str) -> bool {
    let rest = name.strip_prefix('c').unwrap_or_default();
    !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit())
}
