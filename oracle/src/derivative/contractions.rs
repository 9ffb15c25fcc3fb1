//! Derivatives of sums of products over labels, of attention, and of interpolation: formulas of the
//! elements that the definitions name.

use gradiff_corpus::{Args, DType, Operand, ValueId};

use super::elements::{Elements, wide_cells};
use super::labels::Labels;
use super::scalars::{Id, Scalars, WIDE};
use super::statistics::{QUOTIENT, powers, sum};
use crate::cast::cast;
use crate::cell::Cell;
use crate::evaluate::get;
use crate::infer::Check;
use crate::methods::Call;
use crate::methods::contraction::{Attention, Key, Query, einsum_by};
use crate::methods::elementwise::wide;
use crate::methods::interpolation::Grid;
use crate::movement::{for_each_index, position};
use crate::value::Value;

impl Elements<'_> {
    /// The elements of a sum of products over labels.
    pub(super) fn contraction(
        &mut self,
        srcs: &[ValueId],
        args: Args<'_>,
        value: &Value,
    ) -> Check<Vec<Id>> {
        let mut labels = Labels::new();
        let mut sources = Vec::with_capacity(srcs.len());
        for src in srcs {
            let shape = &get(self.values, *src)?.shape;
            let ids = self.operand(&Operand::Value(*src), value.dtype)?;
            sources.push(labels.label(shape, &ids));
        }
        let sources: Vec<&Value> = sources.iter().collect();
        let mut cells = wide_cells(value, value.dtype).into_iter();
        let mut found = Vec::with_capacity(cells.len());
        let scalars = &mut self.scalars;
        let call = Call { srcs: &sources, args, sums: self.scheme.sums };
        einsum_by(call, &mut |_, products| {
            let mut pairs = Vec::with_capacity(products.len());
            for factors in products {
                let known = |label| labels.element(label).expect("labels of data are specified");
                let ids: Vec<Id> = factors.into_iter().map(known).collect();
                pairs.push(match ids[..] {
                    [id] => (id, Id::ONE),
                    [first, ref middle @ .., last] => {
                        let product = |part, id: &Id| scalars.terms(&[(part, *id)]);
                        (middle.iter().fold(first, product), last)
                    }
                    [] => panic!("a product has a factor"),
                });
            }
            let cell = cells.next().expect("an element for each of the value");
            found.push(scalars.covered_terms(cell, &pairs));
            Cell::Int(0)
        })?;
        Ok(found)
    }

    /// The elements of an attention.
    pub(super) fn attention(
        &mut self,
        srcs: &[ValueId],
        args: Args<'_>,
        value: &Value,
    ) -> Check<Vec<Id>> {
        let values = srcs.iter().map(|src| get(self.values, *src)).collect::<Check<Vec<_>>>()?;
        let parts = Attention::of(&values, args.flag(0))?;
        let [queries, keys, elements] =
            [self.ids(srcs[0])?, self.ids(srcs[1])?, self.ids(srcs[2])?];
        let mask = values.get(3).copied();
        let added = match mask {
            Some(mask) if mask.dtype != DType::Bool => Some(self.ids(srcs[3])?),
            _ => None,
        };
        let scale = self.scalars.leaf(cast(parts.dtype, WIDE, parts.scale()));
        let mut cells = wide_cells(value, value.dtype).into_iter();
        let mut found = Vec::with_capacity(cells.len());
        for query in &parts.queries {
            let mut scores = Vec::with_capacity(query.keys.len());
            for key in &query.keys {
                let seen = match (mask.filter(|_| added.is_none()), key.mask) {
                    _ if key.is_later => Cell::Int(0),
                    (Some(mask), Some(at)) => mask.cells[at],
                    _ => Cell::Int(1),
                };
                // That of a key which is not seen has derivatives, too, by infinite elements.
                let score = score(
                    &mut self.scalars,
                    &parts,
                    [&queries[..], &keys[..]],
                    (query, key),
                    scale,
                );
                if seen == Cell::Int(0) {
                    scores.push(self.scalars.leaf(Cell::infinity(true)));
                    continue;
                }
                scores.push(match (&added, key.mask, seen) {
                    (_, _, Cell::Unspecified(reason)) => self.unknown_of(seen, reason, &[score]),
                    (Some(added), Some(at), _) => self.scalars.add(score, added[at]),
                    _ => score,
                });
            }
            let (_, powers) = powers(&mut self.scalars, &scores, Id::ONE);
            let total = sum(&mut self.scalars, &powers);
            let shares: Vec<Id> =
                powers.iter().map(|power| self.scalars.call(QUOTIENT, &[*power, total])).collect();
            for element in 0..parts.width {
                let factors = query.keys.iter().map(|key| elements[key.value + element]);
                let pairs: Vec<(Id, Id)> = shares.iter().copied().zip(factors).collect();
                let cell = cells.next().expect("an element for each of the value");
                found.push(self.scalars.covered_terms(cell, &pairs));
            }
        }
        Ok(found)
    }

    /// The elements of a source between others.
    pub(super) fn interpolation(
        &mut self,
        src: ValueId,
        args: Args<'_>,
        value: &Value,
    ) -> Check<Vec<Id>> {
        let x = get(self.values, src)?;
        let ids = self.ids(src)?;
        let call = Call { srcs: &[x], args, sums: self.scheme.sums };
        let grid = Grid::of(x.dtype, &x.shape, call)?;
        let mut cells = wide_cells(value, value.dtype).into_iter();
        let mut found = Vec::with_capacity(cells.len());
        let scalars = &mut self.scalars;
        for_each_index(&grid.shape, |index| {
            let (outer, inner) = index.split_at(grid.outer);
            let element = |source: &[usize]| ids[position(source, &x.shape)];
            let mut between = |before: Id, after: Id, weight: Cell| {
                let weight = scalars.leaf(cast(wide(x.dtype), WIDE, weight));
                let difference = scalars.sub(after, before);
                scalars.terms(&[(before, Id::ONE), (difference, weight)])
            };
            let id = grid.element(&mut outer.to_vec(), inner, &element, &mut between);
            let cell = cells.next().expect("an element for each of the value");
            found.push(scalars.covered_terms(cell, &[(id, Id::ONE)]));
        });
        Ok(found)
    }
}

/// The score of a key, without the mask.
fn score(
    s: &mut Scalars,
    parts: &Attention,
    [queries, keys]: [&[Id]; 2],
    (query, key): (&Query, &Key),
    scale: Id,
) -> Id {
    let factors = |i: usize| (queries[query.first + i], keys[key.first + i]);
    let pairs: Vec<(Id, Id)> = (0..parts.depth).map(factors).collect();
    let product = s.terms(&pairs);
    s.terms(&[(product, scale)])
}
