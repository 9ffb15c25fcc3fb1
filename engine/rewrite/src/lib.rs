//! Rules as rows of data, the matcher, the driver and bounds.
//!
//! In: a node below the tensor level (index arithmetic, loads and stores, elementwise values;
//! constants have no shape there). Out: a node of the same meaning, as far as the rules' claims
//! go. The room knows nothing of views, kernels or devices.

mod bounds;
mod computed;
mod condition;
mod driver;
mod finders;
mod given;
mod order;
mod pattern;
mod reduce;
mod rule;
pub mod rules;
mod ruleset;
mod sum;
pub mod syntax;
mod threefry;
mod validity;

use std::cell::RefCell;
use std::sync::{Arc, OnceLock};

use gradiff_graph::UOp;

pub use bounds::{Bounds, Interval, bounds};
pub use driver::{Cycle, Options, Step, Trace, rewrite};
pub use reduce::{substitute, varying};
pub use rule::{Claim, Mode, Rule, Types};
pub use ruleset::{Error, RuleSet};
pub use threefry::decompose as decompose_threefry;

/// The tables of one pass each, loaded.
#[derive(Clone)]
struct Loaded {
    symbolic: Arc<RuleSet>,
    reduce: Arc<RuleSet>,
    collapse: Arc<RuleSet>,
    late: Arc<RuleSet>,
}

impl Loaded {
    fn new(changed: &[Rule]) -> Result<Loaded, Error> {
        let load = |tables: &[&[Rule]]| {
            let tables = rules::changed(tables, changed);
            let tables: Vec<&[Rule]> = tables.iter().map(Vec::as_slice).collect();
            // Rows that are wrong on purpose may also loop.
            let is_own = changed.is_empty();
            let load = if is_own { RuleSet::load } else { RuleSet::load_unordered };
            load(&tables).map(Arc::new)
        };
        let all: Vec<&[Rule]> = [rules::REDUCE].into_iter().chain(rules::SYMBOLIC).collect();
        Ok(Loaded {
            symbolic: load(&rules::SYMBOLIC)?,
            reduce: load(&[rules::REDUCE])?,
            collapse: load(&all)?,
            late: load(&[rules::LATE])?,
        })
    }
}

thread_local! {
    /// The tables of [`with_rows`].
    static CHANGED: RefCell<Option<Loaded>> = const { RefCell::new(None) };
}

fn loaded() -> Loaded {
    static ROWS: OnceLock<Loaded> = OnceLock::new();
    let changed = CHANGED.with_borrow(Option::clone);
    changed.unwrap_or_else(|| {
        ROWS.get_or_init(|| Loaded::new(&[]).expect("a test loads the tables")).clone()
    })
}

/// All that index arithmetic, gates and elementwise values need: folding, algebra, comparisons,
/// boolean algebra, div/mod, casts, validity, memory. Loaded once.
pub fn symbolic() -> Arc<RuleSet> {
    loaded().symbolic
}

/// The root without the folds over ranges that have a closed form; the same root if there are none.
/// What is left is as simple as [`symbolic`] makes it.
pub fn collapse(root: &UOp, options: &Options, trace: &mut Trace) -> UOp {
    let Loaded { reduce, collapse, .. } = loaded();
    let folded = rewrite(root, &reduce, options, trace);
    if folded == *root { folded } else { rewrite(&folded, &collapse, options, trace) }
}

/// What is done last, before rendering, and undone by [`symbolic`]: `x+y*-1` becomes `x-y`, and a
/// floor division whose operands are not negative a C division, which devices have.
pub fn late() -> Arc<RuleSet> {
    loaded().late
}

/// Runs `work` with other tables on this thread: each row that has the name of one of `rows` is
/// replaced by it, a row of a new name is added at the end of the table that its name begins with.
/// Kernels that are lowered by then may leave their arrays: devices that do not check each access
/// compile those alone that are proven not to.
///
/// # Errors
/// What loading the tables says.
pub fn with_rows<T>(rows: &[Rule], work: impl FnOnce() -> T) -> Result<T, Error> {
    /// Puts the tables back, also if the work panics.
    struct Restore(Option<Loaded>);
    impl Drop for Restore {
        fn drop(&mut self) {
            CHANGED.set(self.0.take());
        }
    }
    let _restore = Restore(CHANGED.replace(Some(Loaded::new(rows)?)));
    Ok(work())
}

/// Returns whether this thread is in [`with_rows`].
pub fn is_changed() -> bool {
    CHANGED.with_borrow(Option::is_some)
}

/// All rows of all tables, in order.
pub fn rows() -> Vec<Rule> {
    let tables: Vec<&[Rule]> =
        rules::SYMBOLIC.into_iter().chain([rules::REDUCE, rules::LATE]).collect();
    rules::changed(&tables, &[]).concat()
}

/// The row of this name as it is in use, changed by [`with_rows`] or not.
pub fn row(name: &str) -> Option<Rule> {
    let Loaded { symbolic, reduce, late, .. } = loaded();
    let in_set = |set: &Arc<RuleSet>| set.rules().find(|rule| rule.name == name).copied();
    [symbolic, reduce, late].iter().find_map(in_set)
}

/// The node rewritten with [`symbolic`] and the default options.
pub fn simplify(uop: &UOp) -> UOp {
    rewrite(uop, &symbolic(), &Options::default(), &mut Trace::default())
}
