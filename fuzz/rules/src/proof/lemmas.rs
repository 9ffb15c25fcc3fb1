//! Hints for the solver: products of numbers that it would not find by itself.
//!
//! Each lemma is true of all integers, whatever the rule says, so none can make a false rule pass;
//! they only name the products that a proof by hand would name. To find them, the numerators of
//! divisions are written as polynomials and expanded by the equations of the query: the part that
//! is a multiple of the divisor then suggests the quotient.

use std::collections::{BTreeMap, BTreeSet};

use super::number::{Division, Number, Script};

/// Names with their powers, sorted.
type Monomial = Vec<String>;

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Polynomial(BTreeMap<Monomial, i128>);

/// Limit of the expansions of one numerator, and of their depth.
const EXPANSIONS: usize = 40;
const DEPTH: usize = 4;
/// Limit of the lemmas of one query.
const LEMMAS: usize = 200;

/// The templates: y is a divisor or a positive factor, a and b are any numbers.
const GAP: &str = "(and (=> (and (< 0 Y) (< B A)) (<= (+ (* Y B) Y) (* Y A))) \
                   (=> (and (< 0 Y) (< A B)) (<= (+ (* Y A) Y) (* Y B))) \
                   (=> (and (< Y 0) (< B A)) (<= (* Y A) (+ (* Y B) Y))) \
                   (=> (and (< Y 0) (< A B)) (<= (* Y B) (+ (* Y A) Y))))";
const SIGN: &str = "(and (=> (and (< 0 Y) (<= 0 A)) (<= 0 (* Y A))) \
                    (=> (and (< 0 Y) (<= A 0)) (<= (* Y A) 0)) \
                    (=> (and (< Y 0) (<= 0 A)) (<= (* Y A) 0)) \
                    (=> (and (< Y 0) (<= A 0)) (<= 0 (* Y A))))";
const CONGRUENCE: &str = "(=> (= A B) (= (* A Y) (* B Y)))";
/// If B is the quotient of a number by `Y * D` and A its quotient by Y, with rests S and R, then B
/// is the quotient of A by D.
const COARSER: &str = "(=> (and (< 0 D) (distinct Y 0) (= (+ (* Y A) R) (+ (* Y D B) S)) \
                       (=> (< 0 Y) (and (<= 0 R) (< R Y) (<= 0 S) (< S (* Y D)))) \
                       (=> (< Y 0) (and (< Y R) (<= R 0) (< (* Y D) S) (<= S 0)))) \
                       (and (<= (* D B) A) (< A (+ (* D B) D))))";

/// All templates, for the test that proves them.
pub const TEMPLATES: [&str; 4] = [GAP, SIGN, CONGRUENCE, COARSER];

fn lemma(template: &str, y: &str, a: &str, b: &str) -> String {
    with_names(template, &[('Y', y), ('A', a), ('B', b)])
}

fn with_names(template: &str, names: &[(char, &str)]) -> String {
    let word = |letter: char| {
        let name = names.iter().find(|(known, _)| *known == letter);
        name.map_or_else(|| letter.to_string(), |(_, name)| (*name).to_owned())
    };
    template.chars().map(word).collect()
}

/// Lemmas about common factors: two sums that are equal without a factor are equal with it; one may
/// have it once more. A choice times the factor is one of two products.
pub(super) fn cofactors(script: &Script, sides: [&Number; 2]) -> Vec<String> {
    let reader = Reader::new(script);
    let [left, right] = sides.map(|side| reader.read(&side.text));
    let mut found = Vec::new();
    for name in right.names() {
        let cofactor =
            |side: &Polynomial| side.divided(&Polynomial::name(&name)).unwrap_or_default();
        let more = cofactor(&left).plus(&Polynomial::number(1)).show();
        let (left, right) = (cofactor(&left).show(), cofactor(&right).show());
        let mut pairs = vec![(left, right.clone()), (more, right.clone())];
        if let [word, _, x, y] = split(&right).as_slice()
            && word == "ite"
        {
            found.push(lemma(GAP, &name, x, y));
            pairs.extend([(x, y), (x, &right), (y, &right)].map(|(x, y)| (x.clone(), y.clone())));
        }
        found.extend(pairs.iter().map(|(x, y)| lemma(CONGRUENCE, &name, x, y)));
    }
    found
}

/// Finder of lemmas about the divisions of a script.
#[derive(Clone)]
pub(super) struct Finder {
    reader: Reader,
    found: BTreeSet<String>,
    order: Vec<String>,
    /// Names, and polynomials that may replace them.
    rules: Vec<(String, Polynomial)>,
    /// Polynomials that are 0 by the equations.
    zeros: Vec<Polynomial>,
}

impl Finder {
    /// Finds lemmas about each division; `equations` hold in the script.
    pub(super) fn new(script: &Script, equations: &[String]) -> Finder {
        let mut finder = Finder {
            reader: Reader::new(script),
            found: BTreeSet::new(),
            order: Vec::new(),
            rules: Vec::new(),
            zeros: Vec::new(),
        };
        finder.read_rules(script, equations);
        for division in &script.divisions {
            finder.about(division, &script.divisions);
        }
        finder.about_nested(&script.divisions);
        finder
    }

    /// Lemmas that help to compare the terms of a goal.
    pub(super) fn lemmas(&self, goals: &[String]) -> Vec<String> {
        let mut finder = self.clone();
        for goal in goals {
            let goal = finder.reader.read(goal);
            finder.factors(&goal);
            finder.expand(&goal);
        }
        finder.order.truncate(LEMMAS);
        finder.order
    }

    fn add(&mut self, lemma: String) {
        if self.found.insert(lemma.clone()) {
            self.order.push(lemma);
        }
    }

    fn read_rules(&mut self, script: &Script, equations: &[String]) {
        let mut zeros = Vec::new();
        for equation in equations {
            for (left, right) in equalities(equation) {
                let (left, right) = (self.reader.read(&left), self.reader.read(&right));
                zeros.push(left.minus(&right));
            }
        }
        self.zeros.clone_from(&zeros);
        for division in &script.divisions {
            let (y, q) =
                (self.reader.read(&division.divisor), self.reader.read(&division.quotient));
            let (x, r) = (self.reader.read(&division.numerator), self.reader.read(&division.rest));
            zeros.push(x.minus(&y.times(&q)).minus(&r));
            // The rest lies between 0 and the divisor; parts of it tell halves and thirds apart.
            if let [(names, whole @ 2..=4)] = y.0.iter().collect::<Vec<_>>().as_slice() {
                let part = |factor| Polynomial(BTreeMap::from([((*names).clone(), factor)]));
                self.rules.extend((1..**whole).map(|factor| (division.rest.clone(), part(factor))));
            }
            self.rules.push((division.rest.clone(), y));
        }
        for zero in zeros {
            for (monomial, coefficient) in &zero.0 {
                let [name] = monomial.as_slice() else { continue };
                if coefficient.abs() == 1 {
                    let rest = Polynomial(BTreeMap::from([(monomial.clone(), *coefficient)]));
                    let solved = zero.minus(&rest).scaled(-coefficient);
                    if !solved.names().contains(name) {
                        self.rules.push((name.clone(), solved));
                    }
                }
            }
        }
        // A value lies between its bounds; if there are two values, it is one of the bounds.
        let declared = script.declarations.join("\n");
        for name in declared.split_whitespace().filter_map(|word| word.strip_prefix("min_")) {
            let [value, min, max] = ["v", "min", "max"].map(|part| format!("{part}_{name}"));
            let [low, high] = [min, max].map(|end| Polynomial::name(&end));
            self.rules.push((value.clone(), low.plus(&Polynomial::number(1))));
            self.rules.push((value.clone(), low));
            self.rules.push((value, high));
        }
    }

    fn about(&mut self, division: &Division, divisions: &[Division]) {
        let Division { numerator, divisor, quotient, .. } = division;
        self.add(lemma(SIGN, divisor, quotient, ""));
        self.add(lemma(GAP, divisor, quotient, "0"));
        self.add(lemma(GAP, divisor, quotient, "1"));
        self.add(lemma(GAP, divisor, quotient, "(- 1)"));
        for known in divisions.iter().filter(|known| known.divisor == *divisor) {
            if known.quotient < *quotient {
                self.add(lemma(GAP, divisor, quotient, &known.quotient));
            }
        }
        let y = self.reader.read(divisor);
        let x = self.reader.read(numerator);
        let zeros = self.zeros.iter().map(|zero| zero.scaled(-1));
        let expansions: Vec<Polynomial> = zeros.chain(self.zeros.iter().cloned()).collect();
        for expansion in self.expand(&x).into_iter().chain(expansions) {
            let candidate = expansion.divided(&y);
            if let Some(candidate) = candidate.filter(|candidate| !candidate.0.is_empty()) {
                let text = candidate.show();
                if text != *quotient {
                    self.add(lemma(GAP, divisor, quotient, &text));
                }
            }
        }
    }

    /// Adds lemmas that the quotient of a quotient is the quotient by the product.
    fn about_nested(&mut self, divisions: &[Division]) {
        let floors = || divisions.iter().filter(|known| known.quotient.starts_with("floor"));
        for (fine, coarse) in floors().flat_map(|fine| floors().map(move |coarse| (fine, coarse))) {
            let read = |text: &str| self.reader.read(text);
            let factor = read(&coarse.divisor).divided(&read(&fine.divisor)).unwrap_or_default();
            let is_number = factor.names().is_empty();
            if is_number || factor.times(&read(&fine.divisor)) != read(&coarse.divisor) {
                continue;
            }
            let factor = factor.show();
            let names = [
                ('Y', fine.divisor.as_str()),
                ('D', &factor),
                ('A', &fine.quotient),
                ('R', &fine.rest),
                ('B', &coarse.quotient),
                ('S', &coarse.rest),
            ];
            self.add(with_names(COARSER, &names));
            for by_factor in floors().filter(|known| known.divisor == factor) {
                self.add(lemma(GAP, &factor, &by_factor.quotient, &coarse.quotient));
            }
        }
    }

    /// Adds lemmas that the cofactors of a name in the goal and in an equation may be equal.
    fn factors(&mut self, goal: &Polynomial) {
        for name in goal.names() {
            let factor = Polynomial::name(&name);
            let Some(in_goal) = goal.divided(&factor) else { continue };
            for zero in self.zeros.clone() {
                let in_zero = zero.divided(&factor).filter(|cofactor| !cofactor.0.is_empty());
                let Some(in_zero) = in_zero else { continue };
                self.add(lemma(CONGRUENCE, &name, &in_goal.show(), &in_zero.scaled(-1).show()));
                self.add(lemma(CONGRUENCE, &name, &in_goal.show(), &in_zero.show()));
            }
        }
    }

    /// Polynomials that result from replacing names; adds lemmas that the products stay equal.
    fn expand(&mut self, start: &Polynomial) -> Vec<Polynomial> {
        let mut expansions = vec![start.clone()];
        let mut layer = vec![start.clone()];
        for _ in 0..DEPTH {
            let mut next = Vec::new();
            for polynomial in &layer {
                for (name, value) in self.rules.clone() {
                    if !polynomial.names().contains(&name) {
                        continue;
                    }
                    self.justify(polynomial, &name, &value);
                    let replaced = polynomial.replaced(&name, &value);
                    let is_small = replaced.0.len() <= 8 && replaced.0.keys().all(|m| m.len() <= 4);
                    let is_new = !expansions.contains(&replaced);
                    if is_small && is_new && expansions.len() < EXPANSIONS {
                        expansions.push(replaced.clone());
                        next.push(replaced);
                    }
                }
            }
            layer = next;
        }
        expansions
    }

    /// Adds lemmas that products of the name stay equal, or within bounds, when it is replaced.
    fn justify(&mut self, polynomial: &Polynomial, name: &String, value: &Polynomial) {
        for monomial in
            polynomial.0.keys().filter(|monomial| monomial.len() > 1 && monomial.contains(name))
        {
            let mut cofactor = monomial.clone();
            let position = cofactor.iter().position(|factor| factor == name);
            position.map(|position| cofactor.remove(position));
            let factor = Polynomial(BTreeMap::from([(cofactor, 1)])).show();
            self.add(lemma(CONGRUENCE, &factor, name, &value.show()));
            if name.starts_with("rest") {
                self.add(lemma(GAP, &factor, name, &value.show()));
                self.add(lemma(GAP, &factor, &format!("(- {name})"), &value.show()));
                self.add(lemma(SIGN, &factor, name, ""));
            }
        }
    }
}

/// The equations that a fact states: itself, or parts of a conjunction.
fn equalities(fact: &str) -> Vec<(String, String)> {
    let parts = split(fact);
    match parts.first().map(String::as_str) {
        Some("=") if parts.len() == 3 => vec![(parts[1].clone(), parts[2].clone())],
        Some("and") => parts[1..].iter().flat_map(|part| equalities(part)).collect(),
        _ => Vec::new(),
    }
}

/// The parts of a list in parentheses; a word has none.
fn split(text: &str) -> Vec<String> {
    let Some(inner) = text.strip_prefix('(').and_then(|text| text.strip_suffix(')')) else {
        return Vec::new();
    };
    let (mut parts, mut depth) = (vec![String::new()], 0);
    for letter in inner.chars() {
        match letter {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        match parts.last_mut() {
            Some(part) if letter != ' ' || depth > 0 => part.push(letter),
            _ => parts.push(String::new()),
        }
    }
    parts.retain(|part| !part.is_empty());
    parts
}

/// Reads terms and replaces names that `define-fun` defines.
#[derive(Clone)]
struct Reader {
    definitions: BTreeMap<String, String>,
}

impl Reader {
    fn new(script: &Script) -> Reader {
        let definition = |line: &String| {
            let parts = split(line);
            let is_definition = parts.first().is_some_and(|word| word == "define-fun");
            is_definition.then(|| (parts[1].clone(), parts[4].clone()))
        };
        Reader { definitions: script.declarations.iter().filter_map(definition).collect() }
    }

    fn read(&self, text: &str) -> Polynomial {
        if let Ok(number) = text.parse::<i128>() {
            return Polynomial::number(number);
        }
        if let Some(definition) = self.definitions.get(text) {
            return self.read(definition);
        }
        let parts = split(text);
        let operands: Vec<Polynomial> = match parts.first().map(String::as_str) {
            Some("+" | "-" | "*") => parts[1..].iter().map(|part| self.read(part)).collect(),
            _ => return Polynomial::name(text),
        };
        match (parts[0].as_str(), operands.as_slice()) {
            ("-", [only]) => only.scaled(-1),
            ("-", [first, rest @ ..]) => {
                rest.iter().fold(first.clone(), |sum, part| sum.minus(part))
            }
            ("*", parts) => {
                parts.iter().fold(Polynomial::number(1), |product, part| product.times(part))
            }
            (_, parts) => parts.iter().fold(Polynomial::default(), |sum, part| sum.plus(part)),
        }
    }
}

impl Polynomial {
    fn number(value: i128) -> Polynomial {
        Polynomial(if value == 0 { BTreeMap::new() } else { BTreeMap::from([(Vec::new(), value)]) })
    }

    fn name(name: &str) -> Polynomial {
        Polynomial(BTreeMap::from([(vec![name.to_owned()], 1)]))
    }

    fn plus(&self, other: &Polynomial) -> Polynomial {
        let mut sum = self.clone();
        for (monomial, coefficient) in &other.0 {
            let entry = sum.0.entry(monomial.clone()).or_default();
            *entry = entry.saturating_add(*coefficient);
        }
        sum.0.retain(|_, coefficient| *coefficient != 0);
        sum
    }

    fn minus(&self, other: &Polynomial) -> Polynomial {
        self.plus(&other.scaled(-1))
    }

    fn scaled(&self, factor: i128) -> Polynomial {
        let scale = |(monomial, value): (&Monomial, &i128)| {
            (monomial.clone(), value.saturating_mul(factor))
        };
        Polynomial(self.0.iter().map(scale).collect())
    }

    fn times(&self, other: &Polynomial) -> Polynomial {
        let mut product = Polynomial::default();
        for (left, first) in &self.0 {
            for (right, second) in &other.0 {
                let mut monomial = [left.as_slice(), right.as_slice()].concat();
                monomial.sort();
                let value = first.saturating_mul(*second);
                product = product.plus(&Polynomial(BTreeMap::from([(monomial, value)])));
            }
        }
        product
    }

    fn names(&self) -> BTreeSet<String> {
        self.0.keys().flatten().cloned().collect()
    }

    fn replaced(&self, name: &str, value: &Polynomial) -> Polynomial {
        let mut result = Polynomial::default();
        for (monomial, coefficient) in &self.0 {
            let mut part = Polynomial::number(*coefficient);
            for factor in monomial {
                let factor = if factor == name { value.clone() } else { Polynomial::name(factor) };
                part = part.times(&factor);
            }
            result = result.plus(&part);
        }
        result
    }

    /// The terms that a divisor of one term divides, divided by it.
    fn divided(&self, divisor: &Polynomial) -> Option<Polynomial> {
        let [(names, factor)] = divisor.0.iter().collect::<Vec<_>>().try_into().ok()?;
        let mut result = Polynomial::default();
        for (monomial, coefficient) in &self.0 {
            let mut left = monomial.clone();
            let mut is_divided = coefficient % factor == 0;
            for name in names {
                match left.iter().position(|factor| factor == name) {
                    Some(position) => drop(left.remove(position)),
                    None => is_divided = false,
                }
            }
            if is_divided {
                result.0.insert(left, coefficient / factor);
            }
        }
        Some(result)
    }

    fn show(&self) -> String {
        let number = |value: i128| {
            if value < 0 { format!("(- {})", value.unsigned_abs()) } else { value.to_string() }
        };
        let term = |(monomial, coefficient): (&Monomial, &i128)| {
            let mut factors = monomial.clone();
            if *coefficient != 1 || factors.is_empty() {
                factors.insert(0, number(*coefficient));
            }
            if factors.len() == 1 {
                factors.remove(0)
            } else {
                format!("(* {})", factors.join(" "))
            }
        };
        let mut terms: Vec<String> = self.0.iter().map(term).collect();
        match terms.len() {
            0 => String::from("0"),
            1 => terms.remove(0),
            _ => format!("(+ {})", terms.join(" ")),
        }
    }
}
