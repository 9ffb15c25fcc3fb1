//! Draws assignments in place.

use gradiff_corpus::{Arg, Method, Statement, TensorType, ValueId, statement_type};

use crate::programs::Builder;
use crate::shapes;

impl Builder<'_> {
    /// Adds an assignment of a value, new data unless one fits, to all or a slice of another.
    pub(super) fn draw_assign(&mut self, method: Method) -> Option<ValueId> {
        let target = self.pick(|_, _| true)?;
        let TensorType { dtype, shape } = self.type_of(target).clone();
        let mut sources = Vec::new();
        let (args, part) = match method {
            Method::Assign => (Vec::new(), shape.clone()),
            Method::Set => {
                let selection = self.selection(target)?;
                sources = selection.sources;
                (selection.args, selection.shape)
            }
            _ => {
                let args = self.slice_args(&shape);
                let srcs = vec![ValueId(0)];
                let slice = Statement::Method { method: Method::Slice, srcs, args: args.clone() };
                let source = TensorType { dtype, shape: shape.clone() };
                (args, statement_type(&slice, &[source]).ok()?.shape)
            }
        };
        let limit = self.limit;
        let found = self.pick(|tensor, _| {
            tensor.dtype == dtype && shapes::broadcast(&tensor.shape, &part, limit)
        });
        let value = match found.filter(|value| fits(&self.type_of(*value).shape, &part)) {
            Some(value) => value,
            None if self.has_room(2) => {
                // Some axes are broadcast.
                let axes: Vec<usize> = part
                    .iter()
                    .map(|size| if self.choices.one_in(4) { 1 } else { *size })
                    .collect();
                let (statement, fact) = self.fresh(dtype, axes);
                self.push(statement, fact)
            }
            None => return None,
        };
        let fact = match method {
            Method::Assign => self.fact(value),
            _ => self.fact(target).join(&self.fact(value)),
        };
        if self.has_room(2) && !shape.is_empty() && self.choices.one_in(4) {
            // The same elements in another tensor, which must not change with the target.
            let args = vec![Arg::Ints(vec![0]), Arg::Ints(vec![0])];
            self.push_method(Method::Roll, vec![target], args, self.fact(target));
        }
        Some(self.push_method(method, [vec![target, value], sources].concat(), args, fact))
    }

    /// Draws starts, stops and steps of a slice.
    pub(super) fn slice_args(&mut self, shape: &[usize]) -> Vec<Arg> {
        let rank = shape.len();
        let count = rank - self.choices.below(rank as u32 + 1) as usize;
        let mut lists = [(); 3].map(|()| Vec::new());
        for size in &shape[..count] {
            let (start, stop, step) = self.python_range(*size);
            lists[0].push(start);
            lists[1].push(stop);
            lists[2].push(step);
        }
        lists.map(Arg::Ints).to_vec()
    }

    /// Draws start, stop and step of a slice of an axis of this size.
    pub(super) fn python_range(&mut self, size: usize) -> (i64, i64, i64) {
        let step = self.choices.pick(&[1, 2, -1, 3, -2, 1, 7, -3, i64::MIN]);
        // Of two bounds that are drawn, the second is often before the first.
        match self.choices.one_in(2) {
            true if 0 < step => (self.choices.below(3) as i64, size as i64, step),
            true => (-1 - self.choices.below(3) as i64, i64::MIN, step),
            false => (self.bound(size), self.bound(size), step),
        }
    }
}

/// Returns whether a shape broadcasts to another, which stays.
fn fits(from: &[usize], to: &[usize]) -> bool {
    let Some(missing) = to.len().checked_sub(from.len()) else { return false };
    from.iter().zip(&to[missing..]).all(|(from, to)| from == to || *from == 1)
}
