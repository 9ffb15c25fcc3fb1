//! Draws tensor programs: the state of a program under construction, and the loop that grows it.
//!
//! A statement is only pushed if its types fit, so every program is well typed. Each value has a
//! `Fact`, bounds of its elements, so that results are seldom undefined or undecided.

use gradiff_corpus::{DType, Program, Shape, Statement, TensorType, ValueId, statement_type};

use crate::fact::{Fact, Policy};
use crate::features::Feature;
use crate::shapes::{Palette, USUAL_RANK};
use crate::{Choices, Config, Lane, Op, SeedChoices, case_seed, steer};

/// A program and the lane it was drawn from.
#[derive(Clone, Debug, PartialEq)]
pub struct Generated {
    /// Well typed, with at least one output.
    pub program: Program,
    /// The lane.
    pub lane: Lane,
}

/// Draws a well-typed program within the limits of `config`.
///
/// Reads only `choices`: the same choices give the same program. Zeros give the smallest one.
pub fn program(choices: &mut dyn Choices, config: &Config) -> Generated {
    let lane = draw_lane(choices, config);
    let pair = steer::draw_pair(choices);
    let program = Builder::new(choices, config, lane).run(pair);
    Generated { program, lane }
}

pub(crate) fn draw_lane(choices: &mut dyn Choices, config: &Config) -> Lane {
    match config.lanes.as_slice() {
        [] => Lane::Exact,
        lanes => {
            let shares: Vec<u32> = lanes.iter().map(|lane| lane.share()).collect();
            lanes[choices.weighted(&shares)]
        }
    }
}

/// Generates program `index` of the run with `seed`. Every third program begins with a pair of
/// features that its index determines.
pub fn program_at(seed: u64, index: u64, config: &Config) -> Generated {
    let mut choices = SeedChoices::new(case_seed(seed, index));
    let lane = draw_lane(&mut choices, config);
    let program = Builder::new(&mut choices, config, lane).run(steer::pair_at(seed, index));
    Generated { program, lane }
}

/// Number of ops that are tried for a statement before new data is added instead.
const TRIES: usize = 8;

/// Maximum number of outputs; older values without a use stay dead.
const MAX_OUTPUTS: usize = 8;

/// A program under construction.
pub(crate) struct Builder<'a> {
    pub(crate) choices: &'a mut dyn Choices,
    pub(crate) config: &'a Config,
    pub(crate) lane: Lane,
    pub(crate) policy: Policy,
    pub(crate) palette: Palette,
    /// Maximum number of axes of a value.
    pub(crate) max_rank: usize,
    /// Maximum number of elements of a value.
    pub(crate) limit: usize,
    /// Maximum number of statements.
    max_statements: usize,
    pub(crate) types: Vec<TensorType>,
    pub(crate) facts: Vec<Fact>,
    pub(crate) statements: Vec<Statement>,
    pub(crate) used: Vec<bool>,
    candidates: Vec<u32>,
    swarm: Swarm,
    /// The value that the next `pick` returns, if it is accepted.
    focus: Option<ValueId>,
    /// The value that the next idiom begins with, if it fits.
    pub(crate) input: Option<ValueId>,
    /// The shape of new data that will be combined with an existing value.
    pub(crate) partner_shape: Option<Shape>,
}

/// The ops and dtypes of a program.
struct Swarm {
    dtypes: [DType; 4],
    kinds: u32,
    /// Running sums of the weights of `Op::ALL`.
    sums: [u16; Op::COUNT],
}

impl Swarm {
    /// Draws a subset of the lane's dtypes and ops, and their weights. All of it comes from a
    /// single 16-bit choice, so that most bytes of a fuzzer go into statements; 0 is all ops.
    fn draw(choices: &mut dyn Choices, config: &Config, lane: Lane) -> Swarm {
        let word = choices.below(1 << 16) as u64;
        let mut random = SeedChoices::new(word);
        let mut dtypes = [DType::F32; 4];
        let kinds = 1 + random.below(4);
        let allowed = config.dtypes.iter().filter(|dtype| lane.uses(**dtype)).count();
        for dtype in &mut dtypes {
            *dtype = match (config.dtypes.len(), allowed) {
                (0, _) => DType::F32,
                (count, 0) => config.dtypes[random.below(count as u32) as usize],
                _ => {
                    let nth = random.below(allowed as u32) as usize;
                    let mut fits = config.dtypes.iter().filter(|dtype| lane.uses(**dtype));
                    fits.nth(nth).copied().unwrap_or(DType::F32)
                }
            };
        }
        let any = |test: fn(DType) -> bool| dtypes[..kinds as usize].iter().any(|d| test(*d));
        let (float, int) = (any(DType::is_float), any(DType::is_int));
        let is_subset = config.swarm && word != 0;
        let mut sums = [0; Op::COUNT];
        let mut sum = 0;
        for (op, slot) in Op::ALL.into_iter().zip(&mut sums) {
            let mut weight = lane.weight(op);
            let useless = (op.needs_float() && !float) || (op.needs_int() && !int);
            if useless || (is_subset && random.below(3) == 2) {
                weight = 0;
            } else if is_subset && random.below(8) == 7 {
                weight *= 6;
            }
            if config.ops.len() < Op::COUNT && !config.ops.contains(&op) {
                weight = 0;
            }
            sum += weight;
            *slot = sum;
        }
        Swarm { dtypes, kinds, sums }
    }
}

impl<'a> Builder<'a> {
    pub(crate) fn new(choices: &'a mut dyn Choices, config: &'a Config, lane: Lane) -> Builder<'a> {
        let swarm = Swarm::draw(choices, config, lane);
        let allows_zero = choices.one_in(32);
        let Limits { elements: limit, max_statements, max_rank, is_uneven } =
            draw_limits(choices, config, lane);
        let palette = match limit > config.max_elements || lane == Lane::Idioms {
            true if is_uneven => Palette::draw_uneven(choices, limit),
            true => Palette::draw_edges(choices, limit),
            false => Palette::draw(choices, allows_zero),
        };
        let palette = if USUAL_RANK < max_rank { palette.shortened() } else { palette };
        let policy = draw_policy(choices, lane);
        Builder {
            choices,
            config,
            lane,
            policy,
            palette,
            max_rank,
            limit,
            max_statements,
            types: Vec::with_capacity(max_statements),
            facts: Vec::with_capacity(max_statements),
            statements: Vec::with_capacity(max_statements),
            used: Vec::with_capacity(max_statements),
            candidates: Vec::with_capacity(max_statements),
            swarm,
            focus: None,
            input: None,
            partner_shape: None,
        }
    }

    /// Generates the program. If a pair of features is given, the program begins with adjacent
    /// statements that have them.
    fn run(mut self, pair: Option<(Feature, Feature)>) -> Program {
        let mut outputs = self.body(pair);
        self.tail(&mut outputs);
        Program { statements: self.statements, outputs }
    }

    /// Adds all statements but those of the tail, and returns their outputs.
    pub(crate) fn body(&mut self, pair: Option<(Feature, Feature)>) -> Vec<ValueId> {
        let max_goal = self.max_statements.min(self.config.max_statements).max(1);
        let goal = 1 + self.choices.below(max_goal as u32) as usize;
        self.begin(pair);
        // Most idioms are a program by themselves.
        let goal = match self.lane {
            Lane::Idioms if self.choices.one_in(4) => {
                (self.statements.len() + goal / 2).min(self.max_statements)
            }
            // Longer programs seldom have the elements at which a method is special.
            Lane::Gradients if self.choices.one_in(3) => self.method_of_data(),
            Lane::Methods if self.choices.one_in(5) => self.method_of_data(),
            _ => goal,
        };
        while self.statements.len() < goal && !self.choices.exhausted() {
            self.grow();
        }
        if self.lane == Lane::Gradients && self.has_room(1) {
            self.gradient();
        }
        self.sharpen_conversions();
        self.outputs()
    }

    /// Returns whether programs may have all ops.
    pub(crate) fn is_free(&self) -> bool {
        self.config.ops.len() == Op::COUNT && !self.config.dtypes.is_empty()
    }

    fn begin(&mut self, pair: Option<(Feature, Feature)>) {
        let is_free = self.is_free();
        match (self.lane, pair) {
            (Lane::Edges, _) => self.edges(),
            (Lane::Idioms, _) => self.idioms(),
            (_, Some(pair)) if is_free => {
                for feature in [pair.0, pair.1] {
                    self.policy.special |= steer::is_special(feature);
                    let limit = steer::min_limit(feature).min(self.config.max_large_elements);
                    self.limit = self.limit.max(limit);
                    if limit >= 1 << 10 {
                        self.max_statements = self.max_statements.min(6);
                    }
                }
                self.steer(pair);
            }
            (Lane::Wrap | Lane::NegativeIndex, None) if is_free && self.choices.one_in(6) => {
                self.widened();
            }
            _ => {}
        }
        if self.statements.is_empty() {
            self.add_data();
        }
    }

    /// Adds data of any shape.
    pub(crate) fn add_data(&mut self) {
        let shape = self.palette.shape(self.choices, self.max_rank, self.limit);
        let dtype = self.dtype();
        let (statement, fact) = self.fresh(dtype, shape);
        self.push(statement, fact);
    }

    /// Adds a statement, with the sources that it needs.
    fn grow(&mut self) {
        for _ in 0..TRIES {
            let Some(op) = self.draw_op() else { break };
            if self.apply(op).is_some() {
                return;
            }
        }
        self.add_data();
    }

    fn draw_op(&mut self) -> Option<Op> {
        let total = *self.swarm.sums.last().expect("there are ops");
        if total == 0 {
            return None;
        }
        let ticket = self.choices.below(total as u32) as u16;
        let nth = self.swarm.sums.partition_point(|sum| *sum <= ticket);
        Some(Op::ALL[nth])
    }

    /// Adds a statement of this op, and new sources where it needs some. Returns `None`, and adds
    /// nothing, if no sources fit.
    pub(crate) fn apply(&mut self, op: Op) -> Option<ValueId> {
        match op {
            Op::Unary(op) => self.unary(op),
            Op::Binary(op) => self.binary(op),
            Op::Reduce(op) => self.reduce(op),
            Op::Where => self.select(),
            Op::MulAcc => self.mulacc(),
            Op::Cast => self.cast(),
            Op::Bitcast => self.bitcast(),
            Op::Reshape | Op::Permute | Op::Expand | Op::Pad | Op::Shrink | Op::Flip => {
                self.movement(op)
            }
            Op::Cat => self.cat(),
            Op::Gather => self.gather(),
            Op::Method => self.method(),
            Op::Gradient => self.gradient(),
            Op::Contiguous | Op::Realize | Op::Detach => {
                let src = self.pick(|_, _| true)?;
                let fact = self.fact(src);
                let statement = match op {
                    Op::Contiguous => Statement::Contiguous { src },
                    Op::Realize => Statement::Realize { src },
                    _ => Statement::Detach { src },
                };
                Some(self.push(statement, fact))
            }
        }
    }

    /// Does what [`Builder::apply`] does, on this value if the op accepts it.
    pub(crate) fn apply_to(&mut self, op: Op, value: ValueId) -> Option<ValueId> {
        if !self.has_room(1) {
            return None;
        }
        self.on(value, |builder| builder.apply(op))
    }

    /// Draws with this value as the first source, if it is accepted.
    pub(crate) fn on<T>(&mut self, value: ValueId, draw: impl FnOnce(&mut Self) -> T) -> T {
        self.focus = Some(value);
        let found = draw(self);
        self.focus = None;
        found
    }

    /// Returns whether the next pick has a value that it should take.
    pub(crate) fn has_focus(&self) -> bool {
        self.focus.is_some()
    }

    /// Draws one of the program's dtypes.
    pub(crate) fn dtype(&mut self) -> DType {
        self.swarm.dtypes[self.choices.below(self.swarm.kinds) as usize]
    }

    /// Returns whether `count` more statements are allowed.
    pub(crate) fn has_room(&self, count: usize) -> bool {
        self.statements.len() + count <= self.max_statements
    }

    /// Raises the maximum number of elements of a value to `count`; `None` if no program has as
    /// many.
    pub(crate) fn raise_limit(&mut self, count: usize) -> Option<()> {
        if self.config.max_elements.max(self.config.max_large_elements) < count {
            return None;
        }
        self.limit = self.limit.max(count);
        Some(())
    }

    /// Returns the fact of a value.
    pub(crate) fn fact(&self, value: ValueId) -> Fact {
        self.facts[value.0 as usize]
    }

    /// Returns the type of a value.
    pub(crate) fn type_of(&self, value: ValueId) -> &TensorType {
        &self.types[value.0 as usize]
    }

    /// Adds a statement.
    ///
    /// # Panics
    /// If it is not well formed: a defect of the generator.
    pub(crate) fn push(&mut self, statement: Statement, fact: Fact) -> ValueId {
        let tensor_type = match statement_type(&statement, &self.types) {
            Ok(tensor_type) => tensor_type,
            Err(error) => panic!("the generator drew the ill-typed {statement:?}: {error}"),
        };
        let used = &mut self.used;
        statement.for_each_source(|value| used[value.0 as usize] = true);
        self.statements.push(statement);
        self.types.push(tensor_type);
        self.facts.push(fact);
        self.used.push(false);
        ValueId(self.statements.len() as u32 - 1)
    }

    /// Draws an accepted value: mostly an unused one, so that few statements are dead.
    pub(crate) fn pick(&mut self, accept: impl Fn(&TensorType, &Fact) -> bool) -> Option<ValueId> {
        if let Some(focus) = self.focus.take() {
            let index = focus.0 as usize;
            if accept(&self.types[index], &self.facts[index]) {
                return Some(focus);
            }
        }
        self.candidates.clear();
        // The unused candidates come first.
        let mut unused = 0;
        for index in (0..self.types.len()).rev() {
            let fact = &self.facts[index];
            if fact.poison || !accept(&self.types[index], fact) {
                continue;
            }
            self.candidates.push(index as u32);
            if !self.used[index] {
                let last = self.candidates.len() - 1;
                self.candidates.swap(unused, last);
                unused += 1;
            }
        }
        let total = self.candidates.len();
        if total == 0 {
            return None;
        }
        let count = if unused > 0 && self.choices.below(4) < 3 { unused } else { total };
        Some(ValueId(self.candidates[self.choices.below(count as u32) as usize]))
    }

    /// Draws the outputs: the unused values, sometimes another one; rarely an unused value stays
    /// dead.
    fn outputs(&mut self) -> Vec<ValueId> {
        let ids = (0..self.types.len() as u32).map(ValueId);
        let sinks = ids.filter(|id| !self.used[id.0 as usize] && !self.fact(*id).poison);
        let mut outputs: Vec<ValueId> = sinks.collect();
        let surplus = outputs.len().saturating_sub(MAX_OUTPUTS);
        outputs.drain(..surplus);
        let extra_odds = if self.lane == Lane::State { 2 } else { 8 };
        if self.choices.one_in(extra_odds) {
            let extra = ValueId(self.choices.below(self.types.len() as u32));
            outputs.extend(Some(extra).filter(|extra| !self.fact(*extra).poison));
        }
        if outputs.len() > 1 && self.choices.one_in(64) {
            outputs.remove(0);
        }
        outputs
    }
}

/// Limits of a program.
struct Limits {
    /// Maximum number of elements of a value.
    elements: usize,
    max_statements: usize,
    max_rank: usize,
    /// Axes have sizes that leave a remainder after most tiles.
    is_uneven: bool,
}

/// Draws the limits of a program. Mostly those of the configuration, rarely more elements or more
/// axes than usual; a program of large values has fewer statements.
fn draw_limits(choices: &mut dyn Choices, config: &Config, lane: Lane) -> Limits {
    let sizes = choices.below(1 << 14);
    let drawn = match (lane, sizes) {
        (Lane::Gradients, _) => 0,
        (_, 16_383..) => 1 << 16,
        (_, 16_375..) => 1 << 14,
        (_, 16_315..) => 1 << 12,
        (_, 16_000..) => 1 << 10,
        (Lane::Idioms, 14_800..) | (_, 15_500..) => 512,
        (Lane::Idioms, 11_000..) => 256,
        _ => 0,
    };
    let limit = config.max_elements.max(drawn.min(config.max_large_elements));
    let max_statements = match lane {
        Lane::Idioms => config.max_idiom_statements.max(config.max_statements),
        _ if limit >= 1 << 12 => config.max_statements.min(5),
        _ if limit >= 1 << 10 => config.max_statements.min(8),
        _ => config.max_statements,
    };
    // One program in 30, but for idioms, which have shapes of their own.
    let has_many_axes = lane != Lane::Idioms && (2_400..2_946).contains(&sizes);
    let max_rank = if has_many_axes { config.max_rank } else { config.max_rank.min(USUAL_RANK) };
    // One large program in three.
    let is_uneven = 1 << 10 <= drawn && sizes % 3 == 1;
    Limits { elements: limit, max_statements: max_statements.max(1), max_rank, is_uneven }
}

/// Draws the policy of a program: fixed by the lane in part.
fn draw_policy(choices: &mut dyn Choices, lane: Lane) -> Policy {
    let sometimes = choices.one_in(3);
    let often = choices.below(4) < 3;
    match lane {
        Lane::Exact => Policy { inexact: false, special: false, wrap: sometimes, decide: false },
        Lane::Wrap | Lane::NegativeIndex => {
            Policy { inexact: true, special: false, wrap: true, decide: false }
        }
        Lane::Special | Lane::Edges => {
            Policy { inexact: true, special: true, wrap: true, decide: sometimes }
        }
        Lane::IllConditioned | Lane::Casts | Lane::Idioms | Lane::Gradients => {
            Policy { inexact: true, special: false, wrap: true, decide: sometimes }
        }
        // The oracle judges the order of computed floats by their bounds.
        Lane::Methods => {
            Policy { inexact: often, special: sometimes, wrap: often, decide: sometimes }
        }
        Lane::Movement | Lane::State => {
            Policy { inexact: often, special: false, wrap: often, decide: sometimes }
        }
    }
}
