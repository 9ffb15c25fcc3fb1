//! Draws tensor programs: the state of a program under construction, and the loop that grows it.
//!
//! Statements are only ever pushed with types that fit, so every program types. What the values
//! are like is tracked by `Fact`s, so that results seldom are undefined or undecided.

use gradiff_corpus::{DType, Program, Shape, Statement, TensorType, ValueId, statement_type};

use crate::fact::{Fact, Policy};
use crate::features::Feature;
use crate::shapes::Palette;
use crate::{Choices, Config, Lane, Op, SeedChoices, case_seed, steer};

/// A program and the lane it was drawn from.
#[derive(Clone, Debug, PartialEq)]
pub struct Generated {
    /// Well typed, with at least one output.
    pub program: Program,
    /// What it is about.
    pub lane: Lane,
}

/// A well-typed program within the limits of `config`.
///
/// Reads only `choices`: the same choices give the same program. Zeros give the smallest one.
pub fn program<C: Choices>(choices: &mut C, config: &Config) -> Generated {
    let lane = draw_lane(choices, config);
    let pair = steer::draw_pair(choices);
    let program = Builder::new(choices, config, lane).run(pair);
    Generated { program, lane }
}

fn draw_lane<C: Choices>(choices: &mut C, config: &Config) -> Lane {
    match config.lanes.as_slice() {
        [] => Lane::Exact,
        lanes => lanes[choices.below(lanes.len() as u32) as usize],
    }
}

/// Program number `index` of the run with `seed`, made alone. Every third one begins with a pair of
/// features that follows from its number.
pub fn program_at(seed: u64, index: u64, config: &Config) -> Generated {
    let mut choices = SeedChoices::new(case_seed(seed, index));
    let lane = draw_lane(&mut choices, config);
    let program = Builder::new(&mut choices, config, lane).run(steer::pair_at(seed, index));
    Generated { program, lane }
}

/// Draws of one op before another kind of statement is tried instead.
const TRIES: usize = 8;

/// Values given out, at most; older values without a use stay dead.
const MAX_OUTPUTS: usize = 8;

/// A program under construction.
pub(crate) struct Builder<'a, C> {
    pub(crate) choices: &'a mut C,
    pub(crate) config: &'a Config,
    pub(crate) lane: Lane,
    pub(crate) policy: Policy,
    pub(crate) palette: Palette,
    /// Elements of a value, at most.
    pub(crate) limit: usize,
    /// Statements, at most.
    room: usize,
    pub(crate) types: Vec<TensorType>,
    pub(crate) facts: Vec<Fact>,
    pub(crate) statements: Vec<Statement>,
    pub(crate) used: Vec<bool>,
    candidates: Vec<u32>,
    swarm: Swarm,
    /// The value that the next pick takes, if it is accepted.
    focus: Option<ValueId>,
    /// A value that the next idiom begins with, if it fits.
    pub(crate) input: Option<ValueId>,
    /// The shape of data that are to meet others.
    pub(crate) beside: Option<Shape>,
}

/// The ops and dtypes of one program.
struct Swarm {
    dtypes: [DType; 4],
    kinds: u32,
    /// Running sums of the weights of `Op::ALL`.
    sums: [u16; Op::COUNT],
}

impl Swarm {
    /// A subset of the lane's dtypes and ops with weights of their own, from 16 bits, so that the
    /// bytes of a fuzzer go into statements; 0 is all ops.
    fn draw<C: Choices>(choices: &mut C, config: &Config, lane: Lane) -> Swarm {
        let word = choices.below(1 << 16) as u64;
        let mut own = SeedChoices::new(word);
        let mut dtypes = [DType::F32; 4];
        let kinds = 1 + own.below(4);
        let allowed = config.dtypes.iter().filter(|dtype| lane.uses(**dtype)).count();
        for dtype in &mut dtypes {
            *dtype = match (config.dtypes.len(), allowed) {
                (0, _) => DType::F32,
                (all, 0) => config.dtypes[own.below(all as u32) as usize],
                _ => {
                    let nth = own.below(allowed as u32) as usize;
                    let mut fits = config.dtypes.iter().filter(|dtype| lane.uses(**dtype));
                    fits.nth(nth).copied().unwrap_or(DType::F32)
                }
            };
        }
        let any = |test: fn(DType) -> bool| dtypes[..kinds as usize].iter().any(|d| test(*d));
        let (float, int) = (any(DType::is_float), any(DType::is_int));
        let subset = config.swarm && word != 0;
        let mut sums = [0; Op::COUNT];
        let mut sum = 0;
        for (op, slot) in Op::ALL.into_iter().zip(&mut sums) {
            let mut weight = lane.weight(op);
            let useless = (op.needs_float() && !float) || (op.needs_int() && !int);
            if useless || (subset && own.below(3) == 2) {
                weight = 0;
            } else if subset && own.below(8) == 7 {
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

impl<'a, C: Choices> Builder<'a, C> {
    pub(crate) fn new(choices: &'a mut C, config: &'a Config, lane: Lane) -> Builder<'a, C> {
        let swarm = Swarm::draw(choices, config, lane);
        let zero = choices.one_in(32);
        let (limit, room) = draw_limits(choices, config, lane);
        let palette = if limit > config.max_elements || lane == Lane::Idioms {
            Palette::draw_edges(choices, limit)
        } else {
            Palette::draw(choices, zero)
        };
        let policy = draw_policy(choices, lane);
        Builder {
            choices,
            config,
            lane,
            policy,
            palette,
            limit,
            room,
            types: Vec::with_capacity(room),
            facts: Vec::with_capacity(room),
            statements: Vec::with_capacity(room),
            used: Vec::with_capacity(room),
            candidates: Vec::with_capacity(room),
            swarm,
            focus: None,
            input: None,
            beside: None,
        }
    }

    /// The program; one that begins with these features close together, if they are given.
    fn run(mut self, pair: Option<(Feature, Feature)>) -> Program {
        let most = self.room.min(self.config.max_statements).max(1);
        let goal = 1 + self.choices.below(most as u32) as usize;
        self.begin(pair);
        // An idiom is an end in itself, mostly.
        let goal = match self.lane {
            Lane::Idioms if self.choices.one_in(4) => {
                (self.statements.len() + goal / 2).min(self.room)
            }
            _ => goal,
        };
        while self.statements.len() < goal && !self.choices.exhausted() {
            self.grow();
        }
        self.sharpen_conversions();
        let outputs = self.outputs();
        Program { statements: self.statements, outputs }
    }

    fn begin(&mut self, pair: Option<(Feature, Feature)>) {
        let is_free = self.config.ops.len() == Op::COUNT && !self.config.dtypes.is_empty();
        match (self.lane, pair) {
            (Lane::Edges, _) => self.edges(),
            (Lane::Idioms, _) => self.idioms(),
            (_, Some(pair)) if is_free => {
                for feature in [pair.0, pair.1] {
                    self.policy.special |= steer::is_special(feature);
                    let limit = steer::least_limit(feature).min(self.config.max_large_elements);
                    self.limit = self.limit.max(limit);
                    if limit >= 1 << 10 {
                        self.room = self.room.min(6);
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
            self.first_source();
        }
    }

    pub(crate) fn first_source(&mut self) {
        let shape = self.palette.shape(self.choices, self.config.max_rank, self.limit);
        let dtype = self.dtype();
        let (statement, fact) = self.fresh(dtype, shape);
        self.push(statement, fact);
    }

    /// Adds a statement or a few that belong together.
    fn grow(&mut self) {
        for _ in 0..TRIES {
            let Some(op) = self.draw_op() else { break };
            if self.apply(op).is_some() {
                return;
            }
        }
        self.first_source();
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

    /// Adds a statement of this op, with sources where it needs new ones. `None` if none fits;
    /// then nothing was added.
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

    /// As [`Builder::apply`], on this value if it will do.
    pub(crate) fn apply_to(&mut self, op: Op, value: ValueId) -> Option<ValueId> {
        if !self.has_room(1) {
            return None;
        }
        self.focus = Some(value);
        let found = self.apply(op);
        self.focus = None;
        found
    }

    /// One of the program's element types.
    pub(crate) fn dtype(&mut self) -> DType {
        self.swarm.dtypes[self.choices.below(self.swarm.kinds) as usize]
    }

    /// Whether `count` more statements are allowed.
    pub(crate) fn has_room(&self, count: usize) -> bool {
        self.statements.len() + count <= self.room
    }

    /// What is known of a value.
    pub(crate) fn fact(&self, value: ValueId) -> Fact {
        self.facts[value.0 as usize]
    }

    /// The type of a value.
    pub(crate) fn type_of(&self, value: ValueId) -> &TensorType {
        &self.types[value.0 as usize]
    }

    /// Adds a statement.
    ///
    /// # Panics
    /// If it is not well formed: a defect of the generator.
    pub(crate) fn push(&mut self, statement: Statement, fact: Fact) -> ValueId {
        let of = match statement_type(&statement, &self.types) {
            Ok(of) => of,
            Err(error) => panic!("the generator drew {statement:?}: {error}"),
        };
        let used = &mut self.used;
        statement.for_each_source(|value| used[value.0 as usize] = true);
        self.statements.push(statement);
        self.types.push(of);
        self.facts.push(fact);
        self.used.push(false);
        ValueId(self.statements.len() as u32 - 1)
    }

    /// An accepted value: mostly a new one that is not used yet, so that few statements die.
    pub(crate) fn pick(&mut self, accept: impl Fn(&TensorType, &Fact) -> bool) -> Option<ValueId> {
        if let Some(focus) = self.focus.take() {
            let number = focus.0 as usize;
            if accept(&self.types[number], &self.facts[number]) {
                return Some(focus);
            }
        }
        self.candidates.clear();
        let mut fresh = 0;
        for number in (0..self.types.len()).rev() {
            let fact = &self.facts[number];
            if fact.poison || !accept(&self.types[number], fact) {
                continue;
            }
            self.candidates.push(number as u32);
            if !self.used[number] {
                let last = self.candidates.len() - 1;
                self.candidates.swap(fresh, last);
                fresh += 1;
            }
        }
        let all = self.candidates.len();
        if all == 0 {
            return None;
        }
        let among = if fresh > 0 && self.choices.below(4) < 3 { fresh } else { all };
        Some(ValueId(self.candidates[self.choices.below(among as u32) as usize]))
    }

    /// The values without a use, sometimes one more; rarely one is left dead.
    fn outputs(&mut self) -> Vec<ValueId> {
        let ids = (0..self.types.len() as u32).map(ValueId);
        let sinks = ids.filter(|id| !self.used[id.0 as usize] && !self.fact(*id).poison);
        let mut outputs: Vec<ValueId> = sinks.collect();
        let surplus = outputs.len().saturating_sub(MAX_OUTPUTS);
        outputs.drain(..surplus);
        let more = if self.lane == Lane::State { 2 } else { 8 };
        if self.choices.one_in(more) {
            let any = ValueId(self.choices.below(self.types.len() as u32));
            outputs.extend(Some(any).filter(|any| !self.fact(*any).poison));
        }
        if outputs.len() > 1 && self.choices.one_in(64) {
            outputs.remove(0);
        }
        outputs
    }
}

/// How many elements a value of the program may have, and how many statements it: mostly as many as
/// the configuration says, rarely more elements. What has many elements has few statements.
fn draw_limits<C: Choices>(choices: &mut C, config: &Config, lane: Lane) -> (usize, usize) {
    let sizes = choices.below(1 << 14);
    let drawn = match (lane, sizes) {
        (_, 16_383..) => 1 << 16,
        (_, 16_375..) => 1 << 14,
        (_, 16_330..) => 1 << 12,
        (_, 16_000..) => 1 << 10,
        (Lane::Idioms, 14_800..) | (_, 15_500..) => 512,
        (Lane::Idioms, 11_000..) => 256,
        _ => 0,
    };
    let limit = config.max_elements.max(drawn.min(config.max_large_elements));
    let room = match lane {
        Lane::Idioms => config.max_idiom_statements.max(config.max_statements),
        _ if limit >= 1 << 12 => config.max_statements.min(5),
        _ if limit >= 1 << 10 => config.max_statements.min(8),
        _ => config.max_statements,
    };
    (limit, room.max(1))
}

/// What the lane puts up with, partly drawn for each program.
fn draw_policy<C: Choices>(choices: &mut C, lane: Lane) -> Policy {
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
        Lane::IllConditioned | Lane::Casts => {
            Policy { inexact: true, special: false, wrap: true, decide: sometimes }
        }
        Lane::Idioms => Policy { inexact: true, special: false, wrap: true, decide: false },
        Lane::Movement | Lane::State => {
            Policy { inexact: often, special: false, wrap: often, decide: sometimes }
        }
    }
}
