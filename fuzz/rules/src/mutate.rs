//! Rows made wrong on purpose, to measure whether the harness notices.
//!
//! In: a row. Out: its mutants. Each differs from the row by one small edit of its text (a
//! condition dropped, a constant off by one or of the other sign, operands swapped, a floor
//! division made a C division, a range widened, an op replaced, a factor dropped) or by a stronger
//! claim or more dtypes. Nothing is run here. Mutants that do not load, repeat one another, equal
//! another row of the tables, or cannot apply to more nodes are left out.

use std::collections::HashSet;
use std::ops::Range;

use gradiff_rewrite::syntax::is_constant_name;
use gradiff_rewrite::{Claim, Rule, RuleSet, Types};

/// A row with one thing changed.
#[derive(Clone, Copy, Debug)]
pub struct Mutant {
    /// The changed row; it has the name of the row it comes from.
    pub rule: Rule,
    /// The kind of change, one of [`KINDS`].
    pub kind: &'static str,
    /// The changed field: `lhs`, `rhs`, `when`, `given`, `types` or `claim`.
    pub field: &'static str,
}

/// The kinds of changes, each with its meaning.
pub const KINDS: [(&str, &str); 10] = [
    ("condition", "one condition dropped"),
    ("constant", "a constant off by one"),
    ("sign", "a constant, or a computed value, with the other sign"),
    ("swap", "the operands of an op that does not commute, swapped"),
    ("division", "floor for C, or C for floor"),
    ("range", "a range made wider"),
    ("op", "another op"),
    ("factor", "a factor, a term or a negation dropped"),
    ("types", "more dtypes than the row is for"),
    ("claim", "a stronger claim than the row makes"),
];

impl Mutant {
    /// The text of the changed field.
    pub fn text(&self) -> String {
        match self.field {
            "lhs" => self.rule.lhs.to_owned(),
            "rhs" => self.rule.rhs.to_owned(),
            "when" => self.rule.when.to_owned(),
            "given" => self.rule.given.to_owned(),
            "types" => format!("{:?}", self.rule.types),
            _ => format!("{:?}", self.rule.claim),
        }
    }
}

impl std::fmt::Display for Mutant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = self.text();
        let text = if text.is_empty() { "(none)" } else { &text };
        write!(f, "{} {} {}: {text}", self.rule.name, self.kind, self.field)
    }
}

/// All mutants of `rule` that are worth a try; `table` holds the rows that they must differ from.
/// Their texts live as long as the process.
pub fn mutants(rule: &Rule, table: &[Rule]) -> Vec<Mutant> {
    let mut found: Vec<Mutant> = Vec::new();
    let mut known: HashSet<String> = table.iter().chain([rule]).map(key).collect();
    for mutant in texts(rule).into_iter().chain(wider(rule)) {
        if known.insert(key(&mutant.rule))
            && !divides_by_zero(mutant.rule.lhs)
            && RuleSet::load(&[&[mutant.rule]]).is_ok()
        {
            found.push(mutant);
        }
    }
    found
}

/// Returns whether the left side divides by 0, so that any result is right.
fn divides_by_zero(lhs: &str) -> bool {
    fn divides(term: &Term, lhs: &str) -> bool {
        let divisor = term.sources.get(1).map_or("", |source| &lhs[source.range.clone()]);
        matches!(term.op_name(lhs), "floordiv" | "floormod" | "cdiv" | "cmod") && divisor == "0"
            || term.sources.iter().any(|source| divides(source, lhs))
    }
    Term::read(lhs, &pattern_tokens(lhs), &mut 0).is_some_and(|term| divides(&term, lhs))
}

/// The text of a row without its name and comments.
fn key(rule: &Rule) -> String {
    let squeezed = |text: &str| text.split_whitespace().collect::<String>();
    let sides = [rule.lhs, rule.rhs, rule.when, rule.given].map(|text| {
        // Words of a pattern are told apart by the spaces between them.
        if text.starts_with('(') { text.to_owned() } else { squeezed(text) }
    });
    format!("{sides:?} {:?} {:?}", rule.types, rule.claim)
}

/// One change of a text: the range is replaced.
struct Edit {
    kind: &'static str,
    range: Range<usize>,
    text: String,
}

fn texts(rule: &Rule) -> Vec<Mutant> {
    let mut found = Vec::new();
    let mut push = |field, text: &str, edits: Vec<Edit>| {
        for Edit { kind, range, text: new } in edits {
            let changed: &'static str =
                format!("{}{new}{}", &text[..range.start], &text[range.end..]).leak();
            let rule = match field {
                "lhs" => Rule { lhs: changed, ..*rule },
                "rhs" => Rule { rhs: changed, ..*rule },
                "given" => Rule { given: changed, ..*rule },
                _ => Rule { when: changed.trim(), ..*rule },
            };
            found.push(Mutant { rule, kind, field });
        }
    };
    push("when", rule.when, condition(rule.when));
    push("given", rule.given, equations(rule.given));
    let mut left = literals(rule.lhs, &pattern_tokens(rule.lhs));
    left.extend(divisions(rule.lhs));
    push("lhs", rule.lhs, left);
    if !rule.rhs.starts_with('@') {
        push("rhs", rule.rhs, right(rule));
    }
    found
}

/// Words, numbers and operators of a text, as ranges.
pub(crate) fn tokens(text: &str) -> Vec<Range<usize>> {
    const LONG: [&str; 7] = ["&&", "||", "==", "!=", "<=", ">=", "//"];
    let is_word = |letter: char| letter.is_ascii_alphanumeric() || "_.".contains(letter);
    let (mut found, mut at) = (Vec::new(), 0);
    while let Some(letter) = text[at..].chars().next() {
        let rest = &text[at..];
        let length = if is_word(letter) {
            rest.find(|letter| !is_word(letter)).unwrap_or(rest.len())
        } else if LONG.iter().any(|long| rest.starts_with(long)) {
            2
        } else {
            letter.len_utf8()
        };
        if !letter.is_whitespace() {
            found.push(at..at + length);
        }
        at += length;
    }
    found
}

/// Does what [`tokens`] does, but a sign is part of its number: patterns have no minus operator.
pub(crate) fn pattern_tokens(text: &str) -> Vec<Range<usize>> {
    let mut found: Vec<Range<usize>> = Vec::new();
    let mut depth = 0;
    for token in tokens(text) {
        match &text[token.clone()] {
            "{" => depth += 1,
            "}" => depth -= 1,
            _ => {}
        }
        match found.last_mut() {
            Some(sign) if depth == 0 && &text[sign.clone()] == "-" => sign.end = token.end,
            _ => found.push(token),
        }
    }
    found
}

/// Each number and truth value, off by one and of the other sign.
fn literals(text: &str, tokens: &[Range<usize>]) -> Vec<Edit> {
    let mut found = Vec::new();
    for range in tokens {
        let word = &text[range.clone()];
        let mut push = |kind, text| found.push(Edit { kind, range: range.clone(), text });
        match (word, word.parse::<i64>(), word.parse::<f64>()) {
            ("true", ..) => push("constant", String::from("false")),
            ("false", ..) => push("constant", String::from("true")),
            ("inf", ..) => push("sign", String::from("-inf")),
            ("-inf", ..) => push("sign", String::from("inf")),
            (_, Ok(value), _) => {
                push("constant", (value + 1).to_string());
                push("constant", (value - 1).to_string());
                if value != 0 {
                    push("sign", (-value).to_string());
                }
            }
            (_, _, Ok(value)) if word.contains('.') => {
                push("constant", format!("{:?}", value + 1.0));
                push("constant", format!("{:?}", value - 1.0));
                push("sign", format!("{:?}", -value));
            }
            _ => {}
        }
    }
    found
}

/// The changes of a condition.
fn condition(text: &str) -> Vec<Edit> {
    let tokens = tokens(text);
    let mut found = conjuncts(text, &tokens);
    found.extend(literals(text, &tokens).into_iter().filter(|edit| !is_range(text, edit)));
    for range in &tokens {
        let wider = match &text[range.clone()] {
            "<" => "<=",
            ">" => ">=",
            "min" => "max",
            "max" => "min",
            _ => continue,
        };
        found.push(Edit { kind: "range", range: range.clone(), text: wider.to_owned() });
    }
    found
}

/// The changes of equations: signs and numbers. A sum that no finder proposes makes the row idle.
fn equations(text: &str) -> Vec<Edit> {
    let tokens = tokens(text);
    let mut found = literals(text, &tokens);
    found.extend(replaced(text, &tokens, "sign", &[("+", "-"), ("-", "+")]));
    found
}

/// Returns whether the edit is the same as a range made wider: `> -1` for `> 0` is `>= 0`.
fn is_range(text: &str, edit: &Edit) -> bool {
    let old = text[edit.range.clone()].parse::<i64>();
    let (Ok(old), Ok(new)) = (old, edit.text.parse::<i64>()) else { return false };
    let before = text[..edit.range.start].trim_end();
    let rest = text[edit.range.end..].trim_start();
    let is_last = rest.is_empty() || rest.starts_with("&&") || rest.starts_with("||");
    is_last && (before.ends_with('>') && new == old - 1 || before.ends_with('<') && new == old + 1)
}

/// Each part between `&&` outside of parentheses, dropped.
fn conjuncts(text: &str, tokens: &[Range<usize>]) -> Vec<Edit> {
    let mut depth = 0;
    let mut cuts: Vec<Range<usize>> = Vec::new();
    for range in tokens {
        match &text[range.clone()] {
            "(" => depth += 1,
            ")" => depth -= 1,
            "&&" if depth == 0 => cuts.push(range.clone()),
            // Splitting here would change what the rest means.
            "||" if depth == 0 => return Vec::new(),
            _ => {}
        }
    }
    let drop = |range| Edit { kind: "condition", range, text: String::new() };
    let Some(last) = cuts.last() else { return vec![drop(0..text.len())] };
    let mut found: Vec<Edit> = Vec::new();
    let mut start = 0;
    for cut in &cuts {
        found.push(drop(start..cut.end));
        start = cut.end;
    }
    found.push(drop(last.start..text.len()));
    found
}

/// Each division replaced by the other kind.
fn divisions(text: &str) -> Vec<Edit> {
    const PAIRS: [(&str, &str); 4] =
        [("floordiv", "cdiv"), ("cdiv", "floordiv"), ("floormod", "cmod"), ("cmod", "floormod")];
    replaced(text, &tokens(text), "division", &PAIRS)
}

fn replaced(
    text: &str,
    tokens: &[Range<usize>],
    kind: &'static str,
    pairs: &[(&str, &str)],
) -> Vec<Edit> {
    let mut found = Vec::new();
    for range in tokens {
        if let Some((_, new)) = pairs.iter().find(|(old, _)| *old == &text[range.clone()]) {
            found.push(Edit { kind, range: range.clone(), text: (*new).to_owned() });
        }
    }
    found
}

/// The changes of a right side that is a pattern.
fn right(rule: &Rule) -> Vec<Edit> {
    const OPS: [(&str, &str); 8] = [
        ("add", "sub"),
        ("sub", "add"),
        ("max", "min"),
        ("min", "max"),
        ("and", "or"),
        ("or", "and"),
        ("cmplt", "cmpne"),
        ("shl", "shr"),
    ];
    let text = rule.rhs;
    let tokens = pattern_tokens(text);
    let mut found = literals(text, &tokens);
    found.extend(divisions(text));
    let mut at = 0;
    if let Some(term) = Term::read(text, &tokens, &mut at) {
        term.edit(text, rule.types, &mut found);
    }
    for range in &tokens {
        // Braces contain expressions; `min` and `max` there are about ranges.
        if text[..range.start].ends_with('(') && !is_in_braces(text, range) {
            found.extend(replaced(text, std::slice::from_ref(range), "op", &OPS));
        }
    }
    found
}

fn is_in_braces(text: &str, range: &Range<usize>) -> bool {
    let before = &text[..range.start];
    before.matches('{').count() > before.matches('}').count()
}

/// One operand of a side, as ranges of its text.
pub(crate) struct Term {
    pub(crate) range: Range<usize>,
    /// The name in front of `@`.
    pub(crate) name: Option<Range<usize>>,
    /// The op; none of a name, a number or a value in braces.
    pub(crate) op: Option<Range<usize>>,
    pub(crate) sources: Vec<Term>,
}

impl Term {
    /// The word of the op; empty if there is none.
    pub(crate) fn op_name<'t>(&self, text: &'t str) -> &'t str {
        self.op.clone().map_or("", |op| &text[op])
    }

    /// The term at the token `at`, which moves behind it.
    pub(crate) fn read(text: &str, tokens: &[Range<usize>], at: &mut usize) -> Option<Term> {
        let first = tokens.get(*at)?.clone();
        *at += 1;
        if tokens.get(*at).is_some_and(|token| &text[token.clone()] == "@") {
            *at += 1;
            let mut term = Term::read(text, tokens, at)?;
            term.name = Some(first);
            return Some(term);
        }
        let mut term = Term { range: first.clone(), name: None, op: None, sources: Vec::new() };
        match &text[first.clone()] {
            "(" => {
                term.op = Some(tokens.get(*at)?.clone());
                *at += 1;
                while &text[tokens.get(*at)?.clone()] != ")" {
                    term.sources.push(Term::read(text, tokens, at)?);
                }
            }
            "{" => {
                while &text[tokens.get(*at)?.clone()] != "}" {
                    *at += 1;
                }
            }
            _ => return Some(term),
        }
        term.range.end = tokens.get(*at)?.end;
        *at += 1;
        Some(term)
    }

    /// Adds the edits of the term and of the terms within it.
    fn edit(&self, text: &str, types: Types, found: &mut Vec<Edit>) {
        for (kind, text) in self.changes(text, types) {
            found.push(Edit { kind, range: self.range.clone(), text });
        }
        if text[self.range.clone()].starts_with('{') {
            found.extend(value_edits(text, &self.range));
        }
        for source in &self.sources {
            source.edit(text, types, found);
        }
    }

    /// Terms that may replace the whole term, each with the kind of change.
    fn changes(&self, text: &str, types: Types) -> Vec<(&'static str, String)> {
        const ORDERED: [&str; 10] =
            ["sub", "fdiv", "floordiv", "floormod", "cdiv", "cmod", "cmplt", "shl", "shr", "pow"];
        let whole = &text[self.range.clone()];
        let value = whole.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
        let is_number = is_constant_name(whole) && matches!(types, Types::Ints | Types::Bits);
        if value.is_some() || is_number {
            let value = value.map_or(whole.to_owned(), |value| format!("({value})"));
            return vec![
                ("constant", format!("{{{value} + 1}}")),
                ("constant", format!("{{{value} - 1}}")),
                ("sign", format!("{{-{value}}}")),
            ];
        }
        let op = self.op_name(text);
        let of = |source: usize| text[self.sources[source].range.clone()].to_owned();
        match (op, self.sources.len()) {
            ("add" | "mul" | "and" | "or" | "max" | "min", 2) => {
                vec![("factor", of(0)), ("factor", of(1))]
            }
            ("not" | "neg", 1) => vec![("factor", of(0))],
            (op, 2) if ORDERED.contains(&op) => {
                vec![("swap", format!("({op} {} {})", of(1), of(0)))]
            }
            ("where", 3) => vec![("swap", format!("(where {} {} {})", of(0), of(2), of(1)))],
            _ => Vec::new(),
        }
    }
}

/// The changes inside a computed value: `+` for `-`, a factor or a term dropped.
fn value_edits(text: &str, range: &Range<usize>) -> Vec<Edit> {
    const OPS: [(&str, &str); 4] = [("+", "-"), ("min", "max"), ("max", "min"), ("//", "*")];
    let inside: Vec<Range<usize>> = tokens(&text[range.clone()])
        .into_iter()
        .map(|token| token.start + range.start..token.end + range.start)
        .collect();
    let mut found = replaced(text, &inside, "op", &OPS);
    let word = |at: usize| inside.get(at).map_or("", |token| &text[token.clone()]);
    for at in 1..inside.len() {
        let is_binary = !["{", "(", ",", "-", "+", "*", "//", "%"].contains(&word(at - 1));
        if word(at) == "-" && is_binary {
            let range = inside[at].clone();
            found.push(Edit { kind: "op", range, text: String::from("+") });
        }
        if !matches!(word(at), "*" | "+") {
            continue;
        }
        let (before, after) = (operand(&word, at, false), operand(&word, at, true));
        if let (Some(before), Some(after)) = (before, after) {
            let mut drop = |from: usize, to: usize| {
                let range = inside[from].start..inside[to].end;
                found.push(Edit { kind: "factor", range, text: String::new() });
            };
            drop(before, at);
            drop(at, after);
        }
    }
    found
}

/// The far end of the word or group in parentheses next to the operator at `at`.
fn operand<'t>(word: &dyn Fn(usize) -> &'t str, at: usize, is_after: bool) -> Option<usize> {
    let (open, close) = if is_after { ("(", ")") } else { (")", "(") };
    let next = |at: usize| if is_after { Some(at + 1) } else { at.checked_sub(1) };
    let (mut end, mut depth) = (next(at)?, 0);
    loop {
        match word(end) {
            "" => return None,
            token if token == open => depth += 1,
            token if token == close => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            break;
        }
        end = next(end)?;
    }
    // `gcd(...)`: the name belongs to the group; after an operator it precedes the group.
    let is_name = |at: usize| word(at).starts_with(|letter: char| letter.is_ascii_alphabetic());
    match (is_after, word(end)) {
        (false, "(") if end > 0 && is_name(end - 1) => Some(end - 1),
        (true, name) if is_name(end) && word(end + 1) == "(" && !name.is_empty() => {
            operand(word, end, true)
        }
        _ => Some(end),
    }
}

/// Mutants with more dtypes or a stronger claim, if that lets the row apply to more nodes.
fn wider(rule: &Rule) -> Vec<Mutant> {
    let mut found = Vec::new();
    if let Some(types) = more_types(rule) {
        let rule = Rule { types, ..*rule };
        found.push(Mutant { rule, kind: "types", field: "types" });
    }
    let claim = match rule.claim {
        Claim::Value | Claim::Ulp(_) => Some(Claim::Bits),
        Claim::Finite => Some(Claim::Value),
        Claim::Bits | Claim::Refines => None,
    };
    if let Some(claim) = claim {
        let rule = Rule { claim, ..*rule };
        found.push(Mutant { rule, kind: "claim", field: "claim" });
    }
    found
}

/// The next wider set of dtypes for which the row's pattern and condition can hold.
fn more_types(rule: &Rule) -> Option<Types> {
    // Ops that have no meaning for floats, and those that have none for bool either.
    const BITWISE: [&str; 3] = ["(and", "(or", "(xor"];
    const DIVISIONS: [&str; 6] = ["(floordiv", "(floormod", "(cdiv", "(cmod", "(shl", "(shr"];
    let has = |ops: &[&str]| ops.iter().any(|op| rule.lhs.contains(op));
    let words: Vec<&str> =
        pattern_tokens(rule.lhs).into_iter().map(|token| &rule.lhs[token]).collect();
    // After the op itself: operands that are compared, and results of these ops, are truth values.
    let is_truth = |word: &&str| matches!(*word, "true" | "false" | "not" | "cmplt" | "cmpne");
    let is_truth = words.iter().skip(2).any(is_truth);
    let is_float = words.iter().any(|word| word.contains('.') || word.ends_with("inf"));
    // These cannot be computed for floats, and a condition that cannot be computed is false.
    let asks_integers = tokens(rule.when).into_iter().any(|token| {
        let word = &rule.when[token];
        matches!(word, "min" | "max" | "nowrap" | "fits" | "gcd") || is_constant_name(word)
    });
    match rule.types {
        Types::Any => None,
        Types::LongFloats => Some(Types::Floats),
        Types::Floats if is_float || asks_integers => None,
        Types::Floats => Some(Types::Any),
        Types::Bool if is_truth => None,
        Types::Bool if has(&BITWISE) || asks_integers => Some(Types::Bits),
        Types::Ints if has(&DIVISIONS) => None,
        Types::Ints if has(&BITWISE) || asks_integers => Some(Types::Bits),
        Types::Bits if has(&BITWISE) || asks_integers => None,
        Types::Bool | Types::Ints | Types::Bits => Some(Types::Any),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proof::parse_row;

    fn texts_of(row: &str) -> Vec<String> {
        let found = mutants(&parse_row(row).expect("a row"), &[]);
        found.iter().map(|mutant| format!("{} {}", mutant.kind, mutant.text())).collect()
    }

    #[test]
    fn mutants_of_a_condition_drop_widen_and_move_it() {
        let row = "t/in-range: (floormod x y) => x when min(x) >= 0 && max(x) < min(y)";
        let expected = [
            "condition max(x) < min(y)",
            "condition min(x) >= 0",
            "constant min(x) >= 1 && max(x) < min(y)",
            "constant min(x) >= -1 && max(x) < min(y)",
            "range max(x) >= 0 && max(x) < min(y)",
            "range min(x) >= 0 && min(x) < min(y)",
            "range min(x) >= 0 && max(x) <= min(y)",
            "range min(x) >= 0 && max(x) < max(y)",
            "division (cmod x y)",
        ];
        assert_eq!(texts_of(row), expected);
    }

    #[test]
    fn mutants_of_a_value_change_its_parts_and_itself() {
        let row = "t/limit: (cmplt (floordiv x c0) c1) => (cmplt x {c1 * c0}) when c0 > 0";
        let expected = [
            "condition ",
            "constant c0 > 1",
            "range c0 >= 0",
            "division (cmplt (cdiv x c0) c1)",
            "swap (cmplt {c1 * c0} x)",
            "constant (cmplt x {(c1 * c0) + 1})",
            "constant (cmplt x {(c1 * c0) - 1})",
            "sign (cmplt x {-(c1 * c0)})",
            "factor (cmplt x { c0})",
            "factor (cmplt x {c1 })",
            "op (cmpne x {c1 * c0})",
        ];
        assert_eq!(texts_of(row), expected);
    }

    #[test]
    fn mutants_of_floats_keep_signs_of_zero_apart() {
        let row = "t/zero floats Ulp(1): (add x -0.0) => x";
        let expected =
            ["constant (add x 1.0)", "constant (add x -1.0)", "sign (add x 0.0)", "claim Bits"];
        assert_eq!(texts_of(row), expected);
        let rule = Rule { rhs: "(sub x y)", ..parse_row(row).expect("a row") };
        assert!(mutants(&rule, &[]).is_empty(), "y is not bound, so no mutant loads");
    }

    #[test]
    fn mutants_never_repeat_a_row_and_always_load() {
        let table: Vec<Rule> = gradiff_rewrite::rules::rows();
        let mut count = 0;
        for rule in &table {
            for mutant in mutants(rule, &table) {
                count += 1;
                assert!(KINDS.iter().any(|(kind, _)| *kind == mutant.kind));
                assert_ne!(mutant.rule.to_string(), rule.to_string(), "{mutant}");
                assert!(table.iter().all(|row| key(row) != key(&mutant.rule)), "{mutant}");
            }
        }
        assert!(count > 3 * table.len(), "{count} mutants of {} rows", table.len());
    }

    #[test]
    fn negations_are_dropped_and_groups_kept_whole() {
        let found = texts_of("t/not: (cmplt c0 x) => (not (cmplt x {gcd(c0, 2) * (c0 + 1)}))");
        for expected in [
            "factor (cmplt x {gcd(c0, 2) * (c0 + 1)})",
            "factor (not (cmplt x { (c0 + 1)}))",
            "factor (not (cmplt x {gcd(c0, 2) }))",
            "op (not (cmplt x {gcd(c0, 2) * (c0 - 1)}))",
        ] {
            assert!(found.iter().any(|text| text == expected), "{expected} in {found:#?}");
        }
    }
}
