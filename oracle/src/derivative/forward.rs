//! Forward mode: the derivatives of a sum of scalars with respect to scalars, one direction after
//! the other, with bounds for an engine that computes them in another order, in narrow dtypes.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::scalars::{Bounds, Id, Scalars};
use crate::arithmetic::reduction_depth;
use crate::cell::{Cell, Reason};
use crate::format::{lowest_bit, pow2};
use crate::reduce::SumDepth;

/// Number of additions of a sum that may be rounded to f16 and bf16: those of uses of a value in
/// different statements, and of the parts of a reduction.
const NARROW_ADDITIONS: f64 = 32.0;
/// Number of tangents that a gradient computes at most.
const TANGENTS_MAX: usize = 1 << 21;
/// Number of tangents of a gradient that may have derivatives.
const KEPT_MAX: usize = 1 << 18;
/// Relative error of a rounding to f32.
const F32_UNIT: f64 = pow2(-24);

/// The roundings and the orders of sums that an engine may choose.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scheme {
    pub(super) sums: SumDepth,
    /// Largest relative error of a rounding to a dtype on the way.
    pub(super) unit: f64,
    /// Smallest magnitude that overflows a dtype on the way.
    pub(super) overflow: f64,
    /// The numbers that all dtypes on the way have.
    pub(super) shared: Shared,
    /// True if a gradient is on the way. Its derivatives are those of another computation in an
    /// engine, which differs from that of the oracle in more than its order.
    pub(super) is_nested: bool,
}

/// The numbers that several dtypes have: multiples of `2^grid_min` of so many significant bits,
/// below 2 to the power of `exponent_end`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shared {
    pub(super) precision: i32,
    pub(super) grid_min: i32,
    pub(super) exponent_end: i32,
}

impl Shared {
    /// Returns whether every partial sum of numbers is such a number, if they are multiples of
    /// `2^grid` and their magnitudes add up to `mass`.
    fn holds_sums(self, mass: f64, grid: i32) -> bool {
        let limit = grid.saturating_add(self.precision).min(self.exponent_end);
        // A mass above the limit may be rounded to the limit in f64, but never below it.
        self.grid_min <= grid && limit <= 1023 && mass < pow2(limit)
    }
}

impl Scheme {
    /// Returns the number of roundings that a term of a sum passes through.
    fn depth(&self, count: u32) -> f64 {
        let additions: f64 = match self.sums {
            SumDepth::Cascaded => reduction_depth(count).into(),
            SumDepth::Sequential => count.saturating_sub(1).into(),
        };
        // In f16 and bf16, long sums are reductions, which are accumulated in f32.
        additions.min(NARROW_ADDITIONS + additions * F32_UNIT / self.unit.min(1.0))
    }

    /// Returns whether a number of this magnitude may overflow.
    fn may_overflow(&self, magnitude: f64) -> bool {
        magnitude.is_nan() || 2.0 * magnitude >= self.overflow
    }
}

/// The derivative in a direction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Direction {
    /// The derivative; `None` if nothing depends on the direction, or if it is not kept.
    pub(super) total: Option<Id>,
    /// The number of the derivative; `None` if nothing depends on the direction.
    pub(super) cell: Option<Cell>,
    /// Sum of the magnitudes of the terms of the derivative.
    pub(super) mass: f64,
    /// Error of the partial derivatives in units of a rounding.
    pub(super) error: f64,
    /// Absolute error, in errors of a rounding near zero.
    pub(super) floors: f64,
    /// Number of roundings of products and sums, each relative to the mass.
    pub(super) roundings: f64,
    /// True if no legal computation rounds anything.
    pub(super) is_exact: bool,
}

/// The derivatives in all directions.
pub(super) struct Gradient {
    pub(super) directions: Vec<Result<Direction, Reason>>,
    /// Number of roundings of products and sums in any direction.
    pub(super) roundings: f64,
}

/// A node of the tape: a scalar that depends on some of the inputs.
struct Step {
    id: Id,
    links: Vec<Link>,
}

/// An edge of the tape: the dependence of a scalar on a source.
#[derive(Clone, Copy)]
struct Link {
    source: usize,
    partial: Id,
    is_zero: bool,
    /// Roundings of the product with the partial derivative, and of its formula beyond those that
    /// `error` counts.
    cost: f64,
    /// The exponent of a grid of the partial derivative if it is exact; a large one for 0.
    grid: Option<i32>,
    /// Bounds of the partial derivative; the reason if it is no number.
    mass: f64,
    error: f64,
    floors: f64,
    check: Result<(), Reason>,
}

/// Returns the derivatives of the sum of `of` with respect to each of `wrt`. If `is_kept`, they
/// stay in the arena, so that they have derivatives. Beyond a limit of work they are unspecified.
pub(super) fn gradient(
    scalars: &mut Scalars,
    of: &[Id],
    wrt: &[Id],
    scheme: Scheme,
    is_kept: bool,
) -> Gradient {
    let limit = scalars.len();
    let mut steps = steps(scalars, wrt, limit);
    let mut uses = vec![0u32; limit];
    steps.iter().flat_map(|step| &step.links).for_each(|link| uses[link.source] += 1);
    let costs = costs(&steps, &uses, limit, scheme);
    let adjoints = adjoint_masses(&steps, of, limit);
    let grids = adjoint_grids(&steps, of, &adjoints, scheme);
    for step in &mut steps {
        for link in &mut step.links {
            let adjoint = adjoints[step.id.index()];
            let peak = adjoint.max(1.0) * scalars.bounds(link.partial).peak.max(1.0);
            if link.check.is_ok() && scheme.may_overflow(peak) {
                link.check = Err(Reason::Overflow);
            }
            link.floors = (adjoint + 1.0) * (link.floors + 1.0);
        }
    }
    let roundings =
        of.iter().map(|id| costs[id.index()]).fold(0.0, f64::max) + scheme.depth(of.len() as u32);
    let mut pass = Pass {
        steps: &steps,
        uses: &uses,
        costs: &costs,
        roundings,
        adjoints: &adjoints,
        grids: &grids,
        scheme,
        consumers: consumers(&steps, limit),
        tangents: vec![None; limit],
        reached: Vec::new(),
        counts: vec![0; limit],
        budget: if is_kept { KEPT_MAX } else { TANGENTS_MAX },
    };
    of.iter().for_each(|id| pass.counts[id.index()] += 1);
    let mark = scalars.mark();
    let mut directions = Vec::with_capacity(wrt.len());
    for id in wrt {
        let mut direction = pass.run(scalars, *id);
        if !is_kept {
            scalars.truncate(mark);
            if let Ok(direction) = &mut direction {
                direction.total = None;
            }
        }
        directions.push(direction);
    }
    Gradient { directions, roundings }
}

/// Returns the scalars below `limit` that depend on `wrt`, in order.
fn steps(scalars: &mut Scalars, wrt: &[Id], limit: usize) -> Vec<Step> {
    let mut is_reached = vec![false; limit];
    let mut is_seed = vec![false; limit];
    for id in wrt {
        (is_reached[id.index()], is_seed[id.index()]) = (true, true);
    }
    let mut steps = Vec::new();
    for index in 0..limit {
        if is_seed[index] {
            continue;
        }
        let id = scalars.id(index);
        let partials = scalars.partials(id, |source| is_reached[source.index()]);
        if partials.is_empty() {
            continue;
        }
        is_reached[index] = true;
        let is_copy = scalars.is_copy(id);
        let link = |(source, partial): (Id, Id)| {
            let bounds = scalars.bounds(partial);
            // A factor of 1 rounds nothing; a copy may be rounded to another dtype.
            let is_unit = !is_copy && (partial == Id::ONE || partial == Id::MINUS_ONE);
            Link {
                source: source.index(),
                partial,
                // A number that happens to be 0 may have derivatives that are not.
                is_zero: partial == Id::ZERO,
                cost: if is_unit { 0.0 } else { 2.0 },
                grid: exact_grid(scalars.cell(partial), bounds),
                mass: bounds.mass,
                error: bounds.error,
                floors: bounds.floors,
                check: scalars.check(partial),
            }
        };
        steps.push(Step { id, links: partials.into_iter().map(link).collect() });
    }
    steps
}

/// Returns the exponent of a grid of a partial derivative that every legal computation gives
/// exactly.
fn exact_grid(cell: Cell, bounds: Bounds) -> Option<i32> {
    match cell {
        Cell::Real(real) if real.is_exact() && bounds.error == 0.0 && bounds.floors == 0.0 => {
            Some(lowest_bit(real.hi).unwrap_or(NOTHING))
        }
        _ => None,
    }
}

/// Returns for each scalar the exponent of a grid of its adjoint, which is the derivative with
/// respect to it, if reverse mode computes it exactly; `NOTHING` if it has no terms.
fn adjoint_grids(steps: &[Step], of: &[Id], adjoints: &[f64], scheme: Scheme) -> Vec<Option<i32>> {
    let mut grids = vec![Some(NOTHING); adjoints.len()];
    of.iter().for_each(|id| grids[id.index()] = Some(0));
    for step in steps.iter().rev() {
        let index = step.id.index();
        let grid = held(grids[index], adjoints[index], scheme);
        for link in &step.links {
            grids[link.source] = smaller(grids[link.source], scaled(grid, link.grid));
        }
    }
    grids
}

/// The exponent of the grid of 0, a multiple of every number.
const NOTHING: i32 = i32::MAX;

/// Returns the exponent of a grid of a sum if its partial sums are exact.
fn held(grid: Option<i32>, mass: f64, scheme: Scheme) -> Option<i32> {
    grid.filter(|grid| *grid == NOTHING || scheme.shared.holds_sums(mass, *grid))
}

/// Returns the exponent of a grid of a product, of which a factor of 0 makes 0.
fn scaled(x: Option<i32>, y: Option<i32>) -> Option<i32> {
    match (x, y) {
        (Some(NOTHING), _) | (_, Some(NOTHING)) => Some(NOTHING),
        (x, y) => Some(x?.saturating_add(y?)),
    }
}

/// Returns the exponent of a grid of a sum of two numbers.
fn smaller(x: Option<i32>, y: Option<i32>) -> Option<i32> {
    Some(x?.min(y?))
}

/// Returns for each scalar the number of roundings on the way to it: those of the products, and of
/// the sums in forward and in reverse direction.
fn costs(steps: &[Step], uses: &[u32], limit: usize, scheme: Scheme) -> Vec<f64> {
    let mut costs = vec![0.0f64; limit];
    for step in steps {
        let on_link = |link: &Link| {
            let source = costs[link.source] + scheme.depth(uses[link.source]);
            source + 1.0
        };
        let largest = step.links.iter().map(on_link).fold(0.0, f64::max);
        costs[step.id.index()] = largest + scheme.depth(step.links.len() as u32);
    }
    costs
}

/// Returns for each scalar the sum of the magnitudes of the terms of the derivative with respect to
/// it, which an engine computes in reverse mode.
fn adjoint_masses(steps: &[Step], of: &[Id], limit: usize) -> Vec<f64> {
    let mut adjoints = vec![0.0; limit];
    of.iter().for_each(|id| adjoints[id.index()] += 1.0);
    for step in steps.iter().rev() {
        let adjoint = adjoints[step.id.index()];
        for link in step.links.iter().filter(|link| link.check.is_ok()) {
            adjoints[link.source] += link.mass * adjoint;
        }
    }
    adjoints
}

/// The number of a step, and of a link of it.
type Use = (u32, u32);

/// Returns for each scalar its uses, ascending.
fn consumers(steps: &[Step], limit: usize) -> Vec<Vec<Use>> {
    let mut consumers = vec![Vec::new(); limit];
    for (number, step) in steps.iter().enumerate() {
        for (at, link) in step.links.iter().enumerate() {
            consumers[link.source].push((number as u32, at as u32));
        }
    }
    consumers
}

/// The tangents of all scalars in a direction.
struct Pass<'a> {
    steps: &'a [Step],
    uses: &'a [u32],
    costs: &'a [f64],
    /// Number of roundings in any direction.
    roundings: f64,
    /// The masses and the grids of the derivatives in reverse mode.
    adjoints: &'a [f64],
    grids: &'a [Option<i32>],
    scheme: Scheme,
    /// The uses of a scalar.
    consumers: Vec<Vec<Use>>,
    tangents: Vec<Option<Tangent>>,
    /// The scalars that have tangents.
    reached: Vec<usize>,
    /// The number of times that a scalar is an element of `of`.
    counts: Vec<u32>,
    /// Number of tangents that may still be computed.
    budget: usize,
}

/// A tangent, and the bounds of how an engine computes it.
#[derive(Clone, Copy)]
struct Tangent {
    id: Id,
    mass: f64,
    error: f64,
    /// Number of roundings on the way to the scalar in forward mode, and in reverse mode.
    forward: f64,
    reverse: f64,
    /// The exponent of a grid of the tangent, if it is exact in forward mode.
    grid: Option<i32>,
}

impl Pass<'_> {
    fn run(&mut self, scalars: &mut Scalars, direction: Id) -> Result<Direction, Reason> {
        for index in self.reached.drain(..) {
            self.tangents[index] = None;
        }
        let mut queue = BinaryHeap::new();
        let mut floors = 0.0;
        let (forward, reverse, grid) = (0.0, 0.0, Some(0));
        let seed = Tangent { id: Id::ONE, mass: 1.0, error: 0.0, forward, reverse, grid };
        self.reach(direction.index(), seed, &mut queue, &mut floors);
        // The links of a step whose sources have tangents follow each other in the queue.
        let mut links = Vec::new();
        while let Some(Reverse((number, at))) = queue.pop() {
            links.push(at);
            if queue.peek().is_some_and(|Reverse((next, _))| *next == number) {
                continue;
            }
            self.budget = self.budget.checked_sub(1).ok_or(Reason::Unbounded)?;
            let steps = self.steps;
            let step = &steps[number as usize];
            let tangent = self.tangent(scalars, step, &links, &mut floors)?;
            links.clear();
            self.reach(step.id.index(), tangent, &mut queue, &mut floors);
        }
        self.total(scalars, direction, floors)
    }

    /// Sets the tangent of a scalar, and adds the steps that use it to the queue.
    fn reach(
        &mut self,
        index: usize,
        tangent: Tangent,
        queue: &mut BinaryHeap<Reverse<Use>>,
        floors: &mut f64,
    ) {
        *floors += tangent.mass * (1.0 + f64::from(self.uses[index]));
        self.tangents[index] = Some(tangent);
        self.reached.push(index);
        queue.extend(self.consumers[index].iter().copied().map(Reverse));
    }

    /// Returns the tangent of a scalar some of whose links, of these numbers, have tangents.
    fn tangent(
        &self,
        scalars: &mut Scalars,
        step: &Step,
        links: &[u32],
        floors: &mut f64,
    ) -> Result<Tangent, Reason> {
        let mut terms: Vec<(Id, Id)> = Vec::new();
        let (mut mass, mut error) = (0.0, 0.0);
        let (mut forward, mut reverse, mut grid) = (0.0f64, 0.0f64, Some(NOTHING));
        for at in links {
            let link = &step.links[*at as usize];
            let Some(source) = self.tangents[link.source] else { continue };
            link.check?;
            forward = forward.max(source.forward + link.cost);
            let uses = self.uses[link.source] + self.counts[link.source];
            reverse = reverse.max(source.reverse + self.scheme.depth(uses) + link.cost);
            grid = smaller(grid, scaled(source.grid, link.grid));
            mass += link.mass * source.mass;
            error += link.mass * source.error + link.error * source.mass;
            *floors += link.floors * source.mass;
            if !link.is_zero && source.id != Id::ZERO {
                terms.push((link.partial, source.id));
            }
        }
        if self.scheme.may_overflow(mass) {
            return Err(Reason::Overflow);
        }
        let id = match terms[..] {
            [] => Id::ZERO,
            [(partial, Id::ONE)] => partial,
            [(Id::ONE, tangent)] => tangent,
            _ => {
                let found = scalars.terms(&terms);
                let bounds = scalars.bounds_mut(found);
                (bounds.mass, bounds.error) = (mass, error + self.costs[step.id.index()] * mass);
                found
            }
        };
        // Tangents that are 0 are added without rounding.
        forward += self.scheme.depth(links.len() as u32);
        let grid = held(grid, mass, self.scheme);
        Ok(Tangent { id, mass, error, forward, reverse, grid })
    }

    /// Returns the sum of the tangents of the elements whose derivative is taken.
    fn total(
        &self,
        scalars: &mut Scalars,
        direction: Id,
        floors: f64,
    ) -> Result<Direction, Reason> {
        let mut found = Direction {
            total: None,
            cell: None,
            mass: 0.0,
            error: 0.0,
            floors,
            roundings: self.roundings,
            is_exact: false,
        };
        let mut terms: Vec<(Id, Id)> = Vec::new();
        let (mut forward, mut reverse, mut grid) = (0.0f64, 0.0f64, Some(NOTHING));
        let mut additions = 0;
        for index in self.reached.iter().copied().filter(|index| self.counts[*index] != 0) {
            let Some(tangent) = self.tangents[index] else { continue };
            forward = forward.max(tangent.forward);
            reverse = reverse.max(tangent.reverse);
            grid = smaller(grid, tangent.grid);
            additions += self.counts[index];
            let count = f64::from(self.counts[index]);
            found.total = Some(Id::ZERO);
            found.mass += count * tangent.mass;
            found.error += count * tangent.error;
            if tangent.id != Id::ZERO {
                let weight = scalars.exact(count);
                terms.push((tangent.id, weight));
            }
        }
        match terms[..] {
            [] => {}
            [(tangent, Id::ONE)] => found.total = Some(tangent),
            _ => {
                let total = scalars.terms(&terms);
                scalars.bounds_mut(total).mass = found.mass;
                found.total = Some(total);
            }
        }
        if let Some(total) = found.total {
            scalars.check(total)?;
            found.cell = Some(scalars.cell(total));
        }
        if !self.scheme.is_nested {
            let roundings = reverse.max(forward + self.scheme.depth(additions));
            found.roundings = found.roundings.min(roundings);
            let adjoint = direction.index();
            found.is_exact = held(grid, found.mass, self.scheme).is_some()
                && held(self.grids[adjoint], self.adjoints[adjoint], self.scheme).is_some();
        }
        Ok(found)
    }
}
