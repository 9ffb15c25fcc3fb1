//! Scalars in an arena: numbers with bounds, and how each depends on earlier ones. Knows functions
//! by name only; their derivatives are in `functions`.

use gradiff_corpus::{BinaryOp, DType, Method, UnaryOp};

use super::functions;
use crate::arithmetic;
use crate::cell::{Cell, Real, Reason};

/// The dtype that scalars are computed in.
pub(super) const WIDE: DType = DType::F64;
/// Number of sources that a function has at most.
const SOURCES_MAX: usize = 3;
/// The relative error of a constant that f64 does not represent.
const CONSTANT_ERROR: f64 = f64::EPSILON / 2.0;

/// The number of a scalar. The sources of a scalar have lower numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Id(u32);

impl Id {
    pub(super) const ZERO: Id = Id(0);
    pub(super) const ONE: Id = Id(1);
    pub(super) const MINUS_ONE: Id = Id(2);

    pub(super) fn index(self) -> usize {
        self.0 as usize
    }
}

/// A function of scalars.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Function {
    Unary(UnaryOp),
    Binary(BinaryOp),
    /// A method; its arguments that are numbers are sources, too.
    Method(Method),
}

/// Bounds of what another way to compute a scalar may do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Its largest magnitude; of a derivative, the sum of the magnitudes of its terms.
    pub(super) mass: f64,
    /// Error, in units of a rounding, that is not within the cell's radius.
    pub(super) error: f64,
    /// Absolute error, in errors of a rounding near zero.
    pub(super) floors: f64,
    /// Largest magnitude of an intermediate result.
    pub(super) peak: f64,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    /// A number that depends on nothing.
    Leaf,
    /// A sum of products of pairs: a range of `Scalars::pairs`.
    Terms { start: u32, end: u32 },
    /// A function of `count` sources, and the partial derivatives that are known.
    Call { function: Function, count: u8, sources: [Id; SOURCES_MAX], partials: [Id; SOURCES_MAX] },
}

/// Stands for a partial derivative that is not computed yet.
const UNKNOWN: Id = Id(u32::MAX);

#[derive(Clone, Copy, Debug)]
struct Scalar {
    cell: Cell,
    bounds: Bounds,
    kind: Kind,
}

/// The arena.
pub(super) struct Scalars {
    scalars: Vec<Scalar>,
    pairs: Vec<(Id, Id)>,
}

impl Bounds {
    /// The bounds of a number whose cell covers every legal computation.
    fn covered(cell: Cell) -> Bounds {
        let mass = match cell {
            Cell::Real(real) => real.magnitude(),
            Cell::Inf { .. } => f64::INFINITY,
            Cell::Int(_) | Cell::Nan(_) | Cell::Unspecified(_) => f64::NAN,
        };
        Bounds { mass, error: 0.0, floors: 0.0, peak: mass }
    }
}

/// Returns the result of an op as a number that later ops must not reorder.
fn leaf(cell: Cell) -> Cell {
    if let Cell::Real(real) = cell { Cell::Real(real.leaf()) } else { cell }
}

impl Scalars {
    pub(super) fn new() -> Scalars {
        let mut scalars = Scalars { scalars: Vec::new(), pairs: Vec::new() };
        for value in [0.0, 1.0, -1.0] {
            scalars.leaf(Cell::exact(value));
        }
        scalars
    }

    pub(super) fn len(&self) -> usize {
        self.scalars.len()
    }

    /// Returns a state of the arena for [`Scalars::truncate`].
    pub(super) fn mark(&self) -> (usize, usize) {
        (self.scalars.len(), self.pairs.len())
    }

    /// Removes the scalars that were added since `mark`; no scalar before may refer to them.
    pub(super) fn truncate(&mut self, (scalars, pairs): (usize, usize)) {
        self.scalars.truncate(scalars);
        self.pairs.truncate(pairs);
    }

    /// Returns the scalar with this number.
    pub(super) fn id(&self, index: usize) -> Id {
        assert!(index < self.scalars.len(), "there is no scalar {index}");
        Id(index as u32)
    }

    pub(super) fn cell(&self, id: Id) -> Cell {
        self.scalars[id.index()].cell
    }

    pub(super) fn bounds(&self, id: Id) -> Bounds {
        self.scalars[id.index()].bounds
    }

    pub(super) fn bounds_mut(&mut self, id: Id) -> &mut Bounds {
        &mut self.scalars[id.index()].bounds
    }

    fn push(&mut self, cell: Cell, bounds: Bounds, kind: Kind) -> Id {
        let id = Id(u32::try_from(self.scalars.len()).expect("fewer than 2^32 scalars fit"));
        self.scalars.push(Scalar { cell: leaf(cell), bounds, kind });
        id
    }

    /// Adds a number that depends on nothing; its cell covers every legal computation.
    pub(super) fn leaf(&mut self, cell: Cell) -> Id {
        self.push(cell, Bounds::covered(cell), Kind::Leaf)
    }

    /// Adds a number that is unspecified.
    pub(super) fn unspecified(&mut self, reason: Reason) -> Id {
        self.leaf(Cell::Unspecified(reason))
    }

    /// Adds a number that f64 represents.
    pub(super) fn exact(&mut self, value: f64) -> Id {
        match value {
            0.0 => Id::ZERO,
            1.0 => Id::ONE,
            -1.0 => Id::MINUS_ONE,
            _ => self.leaf(Cell::exact(value)),
        }
    }

    /// Adds a number that f64 does not represent, and that an engine rounds. A power of two, such
    /// as the inverse of one, is exact; multiplied by it or divided by its inverse, a number is the
    /// same.
    pub(super) fn constant(&mut self, value: f64) -> Id {
        if value.is_normal() && value.to_bits() & ((1 << 52) - 1) == 0 {
            return self.exact(value);
        }
        let cell = Cell::Real(Real::ball(value, 0.0, value.abs() * CONSTANT_ERROR));
        let bounds = Bounds { error: value.abs(), ..Bounds::covered(cell) };
        self.push(cell, bounds, Kind::Leaf)
    }

    fn terms_kind(&mut self, pairs: &[(Id, Id)]) -> Kind {
        let start = self.pairs.len() as u32;
        self.pairs.extend(pairs);
        Kind::Terms { start, end: self.pairs.len() as u32 }
    }

    /// Adds the sum of the products of pairs, whose cell is known and covers every legal
    /// computation.
    pub(super) fn covered_terms(&mut self, cell: Cell, pairs: &[(Id, Id)]) -> Id {
        let kind = self.terms_kind(pairs);
        self.push(cell, Bounds::covered(cell), kind)
    }

    /// Adds the sum of the products of pairs.
    pub(super) fn terms(&mut self, pairs: &[(Id, Id)]) -> Id {
        let mut cell = Cell::exact(0.0);
        let mut bounds = Bounds { mass: 0.0, error: 0.0, floors: 0.0, peak: 0.0 };
        for (number, (a, b)) in pairs.iter().enumerate() {
            let product = leaf(arithmetic::mul(WIDE, self.cell(*a), self.cell(*b)));
            cell = match number {
                0 => product,
                _ => leaf(arithmetic::add(WIDE, cell, product)),
            };
            let factor = self.product_bounds(*a, *b);
            bounds.mass += factor.mass;
            bounds.error += factor.error;
            bounds.floors += factor.floors;
            bounds.peak = bounds.peak.max(factor.peak);
        }
        bounds.peak = bounds.peak.max(bounds.mass);
        // The last of the additions is relative to the sum, others to a partial sum.
        let sum = Bounds::covered(cell).mass;
        bounds.error += match pairs.len() {
            0 | 1 => 0.0,
            count => sum + (count - 2) as f64 * bounds.mass,
        };
        bounds.mass = sum;
        let kind = self.terms_kind(pairs);
        self.push(cell, bounds, kind)
    }

    fn product_bounds(&self, a: Id, b: Id) -> Bounds {
        let is_sign = |id| id == Id::ONE || id == Id::MINUS_ONE;
        let (x, y) = (self.bounds(a), self.bounds(b));
        if is_sign(a) || is_sign(b) {
            return if is_sign(a) { y } else { x };
        }
        let mass = x.mass * y.mass;
        Bounds {
            mass,
            error: x.error * y.mass + y.error * x.mass + mass,
            floors: x.floors * y.mass + y.floors * x.mass + 1.0 + x.mass + y.mass,
            peak: x.peak.max(y.peak).max(mass),
        }
    }

    pub(super) fn add(&mut self, a: Id, b: Id) -> Id {
        self.terms(&[(a, Id::ONE), (b, Id::ONE)])
    }

    pub(super) fn sub(&mut self, a: Id, b: Id) -> Id {
        self.terms(&[(a, Id::ONE), (b, Id::MINUS_ONE)])
    }

    pub(super) fn mul(&mut self, a: Id, b: Id) -> Id {
        match (a, b) {
            (Id::ONE, _) => b,
            (_, Id::ONE) => a,
            _ => self.terms(&[(a, b)]),
        }
    }

    pub(super) fn neg(&mut self, a: Id) -> Id {
        self.terms(&[(a, Id::MINUS_ONE)])
    }

    pub(super) fn div(&mut self, a: Id, b: Id) -> Id {
        self.call(Function::Binary(BinaryOp::Div), &[a, b])
    }

    pub(super) fn method(&mut self, method: Method, x: Id) -> Id {
        self.call(Function::Method(method), &[x])
    }

    fn call_kind(function: Function, sources: &[Id]) -> Kind {
        let mut list = [Id::ZERO; SOURCES_MAX];
        list[..sources.len()].copy_from_slice(sources);
        let count = sources.len() as u8;
        Kind::Call { function, count, sources: list, partials: [UNKNOWN; SOURCES_MAX] }
    }

    /// Adds a function of scalars, whose cell is known and covers every legal computation.
    pub(super) fn covered_call(&mut self, cell: Cell, function: Function, sources: &[Id]) -> Id {
        self.push(cell, Bounds::covered(cell), Scalars::call_kind(function, sources))
    }

    /// Adds the result of a function as formulas of its derivative use it: rounded to its dtype or
    /// not.
    pub(super) fn rounded_or_not(&mut self, id: Id) -> Id {
        let (cell, bounds) = (self.cell(id), self.bounds(id));
        let mass = Bounds::covered(cell).mass;
        let kind = self.terms_kind(&[(id, Id::ONE)]);
        let (error, floors) = (bounds.error + mass, bounds.floors + 1.0);
        self.push(cell, Bounds { mass, error, floors, ..bounds }, kind)
    }

    /// Adds a function of scalars, one of those that `functions::value` knows.
    pub(super) fn call(&mut self, function: Function, sources: &[Id]) -> Id {
        let cells: Vec<Cell> = sources.iter().map(|id| self.cell(*id)).collect();
        let cell = functions::value(function, &cells);
        let scale = functions::scale(function);
        let slopes = functions::slopes(function, &cells, cell);
        let mut bounds = Bounds { floors: 1.0, ..Bounds::covered(cell) };
        bounds.error = functions::roundings(function, cell) * bounds.mass.max(scale);
        for (id, slope) in sources.iter().zip(slopes) {
            let source = self.bounds(*id);
            if source.error > 0.0 || source.floors > 0.0 {
                bounds.error += slope * source.error;
                bounds.floors += slope * source.floors;
                bounds.peak = bounds.peak.max(source.peak);
            }
        }
        self.push(cell, bounds, Scalars::call_kind(function, sources))
    }

    /// Returns whether a scalar is a sum of a single product, such as a number in another dtype.
    pub(super) fn is_copy(&self, id: Id) -> bool {
        matches!(self.scalars[id.index()].kind, Kind::Terms { start, end } if end - start == 1)
    }

    /// Returns the sources of a scalar that satisfy `is_wanted`, each with the partial derivative
    /// with respect to it. A source may appear twice.
    pub(super) fn partials(&mut self, id: Id, is_wanted: impl Fn(Id) -> bool) -> Vec<(Id, Id)> {
        match self.scalars[id.index()].kind {
            Kind::Leaf => Vec::new(),
            Kind::Terms { start, end } => {
                let pairs = &self.pairs[start as usize..end as usize];
                let both = pairs.iter().flat_map(|(a, b)| [(*a, *b), (*b, *a)]);
                both.filter(|(source, _)| is_wanted(*source)).collect()
            }
            Kind::Call { function, count, sources, .. } => {
                let wanted = (0..count as usize).filter(|number| is_wanted(sources[*number]));
                let sources = &sources[..count as usize];
                wanted
                    .map(|number| (sources[number], self.partial(id, function, sources, number)))
                    .collect()
            }
        }
    }

    fn partial(&mut self, id: Id, function: Function, sources: &[Id], number: usize) -> Id {
        match self.scalars[id.index()].kind {
            Kind::Call { partials, .. } if partials[number] != UNKNOWN => return partials[number],
            _ => {}
        }
        let found = functions::partial(self, function, sources, id, number);
        if let Kind::Call { partials, .. } = &mut self.scalars[id.index()].kind {
            partials[number] = found;
        }
        found
    }

    /// Checks that a partial derivative is a number.
    pub(super) fn check(&self, id: Id) -> Result<(), Reason> {
        let Bounds { mass, error, floors, peak } = self.bounds(id);
        match self.cell(id) {
            Cell::Unspecified(reason) => Err(reason),
            Cell::Real(_) if [mass, error, floors, peak].iter().all(|x| x.is_finite()) => Ok(()),
            _ => Err(Reason::Derivative),
        }
    }
}
