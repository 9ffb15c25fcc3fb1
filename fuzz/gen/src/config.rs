//! Configuration of the program generator: operations, lanes, limits. Plain data; draws nothing.

use gradiff_corpus::{BinaryOp, DType, ReduceOp, Statement, UnaryOp};

/// The operation of a statement with sources (`input`, `const` and `arange` have none and are
/// always allowed).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Op {
    /// An elementwise function of one source.
    Unary(UnaryOp),
    /// An elementwise function of two sources.
    Binary(BinaryOp),
    /// A reduction.
    Reduce(ReduceOp),
    /// Selection between two sources by a condition.
    Where,
    /// Multiplication and addition.
    MulAcc,
    /// Conversion to another dtype.
    Cast,
    /// Reinterpretation of the bits.
    Bitcast,
    /// The same elements under other sizes.
    Reshape,
    /// Permutation of the axes.
    Permute,
    /// Repetition of axes of size 1.
    Expand,
    /// Elements added before and after each axis.
    Pad,
    /// A range of each axis.
    Shrink,
    /// Reversal of axes.
    Flip,
    /// Concatenation along an axis.
    Cat,
    /// Indexing by a tensor.
    Gather,
    /// A request for a contiguous buffer.
    Contiguous,
    /// A request for immediate computation.
    Realize,
    /// A cut of the gradient.
    Detach,
    /// A method that is composed of other operations.
    Method,
    /// Derivatives of a value with respect to another.
    Gradient,
}

/// The operations other than elementwise functions of one dtype and reductions.
const OTHER_OPS: [Op; 17] = [
    Op::Where,
    Op::MulAcc,
    Op::Cast,
    Op::Bitcast,
    Op::Reshape,
    Op::Permute,
    Op::Expand,
    Op::Pad,
    Op::Shrink,
    Op::Flip,
    Op::Cat,
    Op::Gather,
    Op::Contiguous,
    Op::Realize,
    Op::Detach,
    Op::Method,
    Op::Gradient,
];

impl Op {
    /// Number of ops.
    pub const COUNT: usize =
        UnaryOp::ALL.len() + BinaryOp::ALL.len() + ReduceOp::ALL.len() + OTHER_OPS.len();

    /// All ops.
    pub const ALL: [Op; Op::COUNT] = {
        let mut ops = [Op::Where; Op::COUNT];
        let mut next = 0;
        let mut i = 0;
        while i < UnaryOp::ALL.len() {
            ops[next] = Op::Unary(UnaryOp::ALL[i]);
            next += 1;
            i += 1;
        }
        i = 0;
        while i < BinaryOp::ALL.len() {
            ops[next] = Op::Binary(BinaryOp::ALL[i]);
            next += 1;
            i += 1;
        }
        i = 0;
        while i < ReduceOp::ALL.len() {
            ops[next] = Op::Reduce(ReduceOp::ALL[i]);
            next += 1;
            i += 1;
        }
        i = 0;
        while i < OTHER_OPS.len() {
            ops[next] = OTHER_OPS[i];
            next += 1;
            i += 1;
        }
        ops
    };

    /// Returns the op of a statement; `None` if the statement has no sources.
    pub fn of(statement: &Statement) -> Option<Op> {
        Some(match statement {
            Statement::Input { .. } | Statement::Const { .. } | Statement::Arange { .. } => {
                return None;
            }
            Statement::Unary { op, .. } => Op::Unary(*op),
            Statement::Binary { op, .. } => Op::Binary(*op),
            Statement::Where { .. } => Op::Where,
            Statement::MulAcc { .. } => Op::MulAcc,
            Statement::Cast { .. } => Op::Cast,
            Statement::Bitcast { .. } => Op::Bitcast,
            Statement::Reduce { op, .. } => Op::Reduce(*op),
            Statement::Reshape { .. } => Op::Reshape,
            Statement::Permute { .. } => Op::Permute,
            Statement::Expand { .. } => Op::Expand,
            Statement::Pad { .. } => Op::Pad,
            Statement::Shrink { .. } => Op::Shrink,
            Statement::Flip { .. } => Op::Flip,
            Statement::Cat { .. } => Op::Cat,
            Statement::Gather { .. } => Op::Gather,
            Statement::Contiguous { .. } => Op::Contiguous,
            Statement::Realize { .. } => Op::Realize,
            Statement::Detach { .. } => Op::Detach,
            Statement::Method { .. } => Op::Method,
            Statement::Gradient { .. } => Op::Gradient,
        })
    }

    /// Returns the keyword of the text form, except `reduce-max` for the reduction.
    pub fn name(self) -> &'static str {
        match self {
            Op::Unary(op) => op.name(),
            Op::Binary(op) => op.name(),
            Op::Reduce(ReduceOp::Max) => "reduce-max",
            Op::Reduce(op) => op.name(),
            Op::Where => "where",
            Op::MulAcc => "mulacc",
            Op::Cast => "cast",
            Op::Bitcast => "bitcast",
            Op::Reshape => "reshape",
            Op::Permute => "permute",
            Op::Expand => "expand",
            Op::Pad => "pad",
            Op::Shrink => "shrink",
            Op::Flip => "flip",
            Op::Cat => "cat",
            Op::Gather => "gather",
            Op::Contiguous => "contiguous",
            Op::Realize => "realize",
            Op::Detach => "detach",
            Op::Method => "method",
            Op::Gradient => "gradient",
        }
    }

    /// Returns the op of this name, if there is one.
    pub fn from_name(name: &str) -> Option<Op> {
        Op::ALL.into_iter().find(|op| op.name() == name)
    }

    /// Returns whether the op only moves elements.
    pub fn is_movement(self) -> bool {
        matches!(
            self,
            Op::Reshape
                | Op::Permute
                | Op::Expand
                | Op::Pad
                | Op::Shrink
                | Op::Flip
                | Op::Cat
                | Op::Gather
        )
    }

    /// Returns whether the op takes floats only.
    pub(crate) fn needs_float(self) -> bool {
        match self {
            Op::Unary(op) => !matches!(op, UnaryOp::Neg | UnaryOp::Not),
            Op::Binary(op) => matches!(op, BinaryOp::Div | BinaryOp::Pow),
            _ => false,
        }
    }

    /// Returns whether the op takes integers only.
    pub(crate) fn needs_int(self) -> bool {
        use BinaryOp::*;
        matches!(self, Op::Binary(CDiv | CMod | FloorDiv | FloorMod | Shl | Shr | Threefry))
    }
}

/// A region of the space of programs. Each is restricted so that the oracle can pin down nearly all
/// results tightly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lane {
    /// Small integers and dyadic floats: every result is exact.
    Exact,
    /// Integers of every width over their whole range.
    Wrap,
    /// Negative and large indices: divisions, remainders, shifts, gathers.
    NegativeIndex,
    /// Floats with cancellation, wide magnitudes, transcendental functions.
    IllConditioned,
    /// NaN, infinities, negative zero, subnormals, extreme values.
    Special,
    /// Chains of conversions and reinterpretations.
    Casts,
    /// Mostly movement operations.
    Movement,
    /// Intermediate buffers: contiguous, realize, detach and several outputs.
    State,
    /// Boundary values of the conversions that follow: ties, ends of ranges, NaN payloads.
    Edges,
    /// Building blocks of models: softmax, attention, windows, one-hot, products, optimiser
    /// updates.
    Idioms,
    /// Mostly methods.
    Methods,
    /// Derivatives of small computations with floats.
    Gradients,
}

impl Lane {
    /// All lanes.
    pub const ALL: [Lane; 12] = [
        Lane::Exact,
        Lane::Wrap,
        Lane::NegativeIndex,
        Lane::IllConditioned,
        Lane::Special,
        Lane::Casts,
        Lane::Movement,
        Lane::State,
        Lane::Edges,
        Lane::Idioms,
        Lane::Methods,
        Lane::Gradients,
    ];

    /// Returns the name in reports and options.
    pub fn name(self) -> &'static str {
        match self {
            Lane::Exact => "exact",
            Lane::Wrap => "wrap",
            Lane::NegativeIndex => "negative-index",
            Lane::IllConditioned => "ill-conditioned",
            Lane::Special => "special",
            Lane::Casts => "casts",
            Lane::Movement => "movement",
            Lane::State => "state",
            Lane::Edges => "edges",
            Lane::Idioms => "idioms",
            Lane::Methods => "methods",
            Lane::Gradients => "gradients",
        }
    }

    /// Returns the lane of this name, if there is one.
    pub fn from_name(name: &str) -> Option<Lane> {
        Lane::ALL.into_iter().find(|lane| lane.name() == name)
    }

    /// Returns the share of programs that are drawn from the lane, relative to the others. Those of
    /// methods and gradients are larger, since they have a hundred methods to draw.
    pub(crate) fn share(self) -> u32 {
        match self {
            Lane::Methods | Lane::Idioms => 5,
            Lane::Gradients => 3,
            _ => 2,
        }
    }

    /// Returns the weight of an op in the lane, before swarm; 0 excludes the op.
    pub(crate) fn weight(self, op: Op) -> u16 {
        use BinaryOp::*;
        let base = match op {
            Op::Binary(Add | Sub | Mul | Max) => 6,
            Op::Binary(Min | Div | Pow) | Op::MulAcc | Op::Where | Op::Reduce(_) => 4,
            Op::Contiguous | Op::Realize | Op::Bitcast | Op::Gather => 2,
            // One op stands for all methods.
            Op::Method => 8,
            Op::Detach | Op::Gradient => 1,
            Op::Cast | Op::Cat | Op::Unary(_) | Op::Binary(_) => 3,
            Op::Reshape | Op::Permute | Op::Expand | Op::Pad | Op::Shrink | Op::Flip => 4,
        };
        let rough = op.needs_float() || op == Op::Bitcast;
        let factor = match self {
            Lane::Gradients if op == Op::Bitcast => 0,
            Lane::Gradients if op == Op::Method => 10,
            Lane::Gradients if op == Op::Gradient => 6,
            Lane::Gradients => 1,
            // The other lanes have values whose derivatives are seldom defined.
            _ if op == Op::Gradient => 0,
            Lane::Exact => u16::from(!rough),
            Lane::Wrap => 1,
            Lane::NegativeIndex if op.needs_int() || op == Op::Gather => 4,
            Lane::NegativeIndex => 1,
            Lane::IllConditioned if rough => 3,
            Lane::IllConditioned => 1,
            Lane::Special if matches!(op, Op::Unary(_)) => 3,
            Lane::Special => 1,
            Lane::Casts if matches!(op, Op::Cast | Op::Bitcast) => 12,
            Lane::Casts => 1,
            Lane::Movement if op.is_movement() => 5,
            Lane::Movement => 1,
            Lane::State if matches!(op, Op::Contiguous | Op::Realize | Op::Detach) => 8,
            Lane::State => 1,
            Lane::Edges if matches!(op, Op::Cast | Op::Bitcast) => 4,
            Lane::Edges if op.is_movement() || op == Op::Where => 2,
            Lane::Methods if op == Op::Method => 12,
            Lane::Edges | Lane::Idioms | Lane::Methods => 1,
        };
        base * factor
    }

    /// Returns whether the lane draws data of this dtype.
    pub(crate) fn uses(self, dtype: DType) -> bool {
        match self {
            Lane::Wrap => !dtype.is_float(),
            Lane::NegativeIndex => dtype.is_int(),
            Lane::IllConditioned | Lane::Gradients => dtype.is_float(),
            _ => true,
        }
    }
}

/// Limits and preferences of the program generator.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Lanes to draw from, each with its share.
    pub lanes: Vec<Lane>,
    /// Element types of inputs and casts; results may have others by promotion and reduction.
    pub dtypes: Vec<DType>,
    /// Ops to draw from.
    pub ops: Vec<Op>,
    /// Maximum number of statements in a program; at least 1.
    pub max_statements: usize,
    /// Maximum number of statements in a program of the idioms lane; a smaller number than
    /// `max_statements` has no effect.
    pub max_idiom_statements: usize,
    /// Maximum number of elements of a value in nearly all programs; at least 1.
    pub max_elements: usize,
    /// Maximum number of elements of a value in the rare large programs; a smaller number than
    /// `max_elements` has no effect.
    pub max_large_elements: usize,
    /// Maximum number of axes of a value; above 5, only rare programs have as many.
    pub max_rank: usize,
    /// Swarm testing: each program draws its own subset of ops and dtypes, with its own weights.
    pub swarm: bool,
}

impl Default for Config {
    /// All ops and dtypes, 12 statements (32 of an idiom), 128 elements (rarely up to 65,536),
    /// rank 5 (rarely up to 8), swarm.
    fn default() -> Config {
        Config {
            lanes: Lane::ALL.to_vec(),
            dtypes: DType::ALL.to_vec(),
            ops: Op::ALL.to_vec(),
            max_statements: 12,
            max_idiom_statements: 32,
            max_elements: 128,
            max_large_elements: 1 << 16,
            max_rank: 8,
            swarm: true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique() {
        for op in Op::ALL {
            assert_eq!(Op::from_name(op.name()), Some(op));
        }
        for lane in Lane::ALL {
            assert_eq!(Lane::from_name(lane.name()), Some(lane));
        }
    }
}
