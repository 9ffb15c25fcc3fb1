//! Blame of rules: wrong rows are planted in every table, and blame must name exactly the row.

use std::collections::{BTreeMap, BTreeSet};

use gradiff::rewrite::Rule;
use gradiff::rewrite::rules::{rows, with_rows};
use gradiff_check::{Blame, Culprit, agree, backends, blame, blame_expr, blame_views, check_expr};
use gradiff_corpus::{Case, ExprCase, Program, embedded, parse};
use gradiff_gen::{ExprConfig, SeedChoices, case_seed};

/// The row of this name with another right side and condition.
fn changed(name: &str, rhs: &'static str, when: &'static str) -> Rule {
    let row = rows().into_iter().find(|row| row.name == name);
    Rule { rhs, when, ..row.unwrap_or_else(|| panic!("no rule is named {name}")) }
}

/// Blames a case while the rows are in the tables.
fn blamed(rows: &[Rule], text: &str) -> Option<Blame> {
    let case = parse(text).unwrap_or_else(|error| panic!("{text}: {error}")).case;
    let work = || match &case {
        Case::Expr(expr) => blame_expr(expr),
        Case::Program(program) => blame(program, "interp"),
        Case::Views(views) => blame_views(views),
    };
    with_rows(rows, work).expect("the rows load")
}

/// The rule that is blamed for a case while the rows are in the tables.
fn culprit(rows: &[Rule], text: &str) -> Culprit {
    let blame = blamed(rows, text).unwrap_or_else(|| panic!("nothing is wrong with {text}"));
    assert_eq!(blame.crate_name, gradiff_check::Crate::Rewrite, "{blame}");
    blame.rule.clone().unwrap_or_else(|| panic!("no rule is named: {blame}"))
}

/// Checks that the planted row is named in its pass, with a point at which it is false.
fn check(name: &str, rhs: &'static str, when: &'static str, text: &str, pass: &str) {
    assert!(blamed(&[], text).is_none(), "{text} is wrong without a fault");
    let culprit = culprit(&[changed(name, rhs, when)], text);
    assert_eq!(
        (culprit.rule.as_str(), culprit.pass.as_str()),
        (name, pass),
        "{}",
        culprit.report()
    );
    assert!(culprit.witness.starts_with("false for "), "{}", culprit.report());
    let table = name.split('/').next().expect("a table");
    let line = format!("rule {name} (engine/rewrite/src/rules/{table}.rs): false for ");
    let report = culprit.report();
    assert!(report.lines().last().is_some_and(|last| last.starts_with(&line)), "{report}");
}

#[test]
fn a_wrong_row_is_named_in_an_expression() {
    for (name, rhs, when, text) in [
        // Wrong constants.
        (
            "divmod/floordiv-nested",
            "(floordiv x {c0 + c1})",
            "c0 > 0 && c1 > 0",
            "var a 0..100\nexpr (a // 3) // 4\n",
        ),
        (
            "divmod/floordiv-of-mod",
            "(floormod (floordiv x c1) {c0 // c1 + 1})",
            "c0 > 0 && c1 > 0 && c0 % c1 == 0",
            "var a 0..100\nexpr (a % 12) // 4\n",
        ),
        (
            "compare/less-floordiv",
            "(cmplt x {c1 * c0 + 1})",
            "c0 > 0",
            "var a -50..50\nexpr a // 3 < 4\n",
        ),
        ("boolean/and-and-const", "(and x (or c0 c1))", "", "var a 0..100\nexpr (a & 12) & 6\n"),
        // Dropped conditions.
        (
            "divmod/floormod-nested",
            "(floormod x c1)",
            "c0 > 0 && c1 > 0",
            "var a 0..100\nexpr (a % 6) % 4\n",
        ),
        (
            "divmod/floordiv-congruent",
            "(add w {min(r) // c0})",
            "linear(x)",
            "var a 0..9\nvar b 0..7\nexpr (a * 4 + b) // 4\n",
        ),
        ("algebra/by-range", "{min(x)}", "isint(x)", "var a 0..9\nexpr a + 1\n"),
        // Floor for C.
        (
            "divmod/cdiv-nested",
            "(floordiv x {c0 * c1})",
            "c0 > 0 && c1 > 0",
            "var a -50..50\nexpr cdiv(cdiv(a, 3), 2)\n",
        ),
        (
            "compare/less-cdiv",
            "(cmplt x {c1 * c0})",
            "c0 > 0 && c1 <= 0",
            "var a -50..50\nexpr cdiv(a, 3) < -1\n",
        ),
        // Swapped operands.
        (
            "compare/less-opposite",
            "(cmplt w {-c0})",
            "linear(x) && linear(w) && fits(-c0, x)",
            "var a -9..9\nexpr 0 - a < 3\n",
        ),
        ("algebra/where-not", "(where c x y)", "", "var a 0..9\nexpr where(!(a < 5), a, 77)\n"),
        (
            "algebra/min-min-const",
            "(min x (max c0 c1))",
            "",
            "var a -9..99\nexpr min(min(a, 30), 20)\n",
        ),
        // Hidden: a later step undoes or hides what is wrong elsewhere.
        (
            "algebra/max-left",
            "x",
            "min(x) >= min(y)",
            "var a 0..9\nvar b 0..20\nexpr max(a, b) + max(b, 30)\n",
        ),
    ] {
        check(name, rhs, when, text, "symbolic");
    }
}

#[test]
fn a_wrong_row_is_named_in_a_program() {
    let ints = "a = input i32[6] [-7, 7, -5, 300, 1, 3]\n";
    for (name, rhs, when, text, pass) in [
        (
            "late/floordiv-to-c",
            "(cdiv x y)",
            "",
            format!("{ints}b = floordiv a 3\noutput b\n"),
            "late",
        ),
        (
            "late/sub-first",
            "(sub x y)",
            "",
            format!("{ints}b = neg a\nc = add b 4\noutput c\n"),
            "late",
        ),
        (
            "cast/exact-between",
            "(cast x)",
            "",
            format!("{ints}b = cast a i8\nc = cast b i32\noutput c\n"),
            "symbolic",
        ),
        (
            "memory/load-never",
            "1",
            "",
            "a = input f32[2] iota\nb = pad a [(1,1)] 0.0\nc = shrink b [(0,1)]\noutput c\n"
                .to_string(),
            "symbolic",
        ),
        (
            "algebra/add-zero-float",
            "0.0",
            "",
            "a = input f32[3] iota\nb = add a 0.0\noutput b\n".to_string(),
            "symbolic",
        ),
    ] {
        check(name, rhs, when, &text, pass);
    }
}

#[test]
fn a_wrong_row_is_named_in_views() {
    let text = "view [2,3]\nflip axes=[1]\nreshape [3,2]\nflip axes=[0]\n";
    check("divmod/floormod-multiples", "r", "linear(x)", text, "symbolic");
}

#[test]
fn rows_that_loop_are_printed_as_a_cycle() {
    let text = "var a 0..9\nvar b 0..9\nexpr max(max(a, 3), b)\n";
    let looping = changed("algebra/max-chain-order", "(max (max x z) y)", "");
    let culprit = culprit(&[looping], text);
    assert_eq!(culprit.rule, "algebra/max-chain-order", "{}", culprit.report());
    assert!(culprit.cycle.len() >= 2, "{}", culprit.report());
    assert!(culprit.report().contains("cycle   algebra/max-chain-order: "), "{}", culprit.report());
}

#[test]
fn a_program_whose_rewriting_loops_is_a_finding_with_its_cycle() {
    let text = "a = input i32[2] [1, 2]\nb = input i32[2] [3, 0]\n\
                c = max a 3\nd = max c b\noutput d\n";
    let Case::Program(program) = parse(text).expect("a case").case else { panic!("no program") };
    let failures = || agree(&[&program], &backends(&[String::from("interp")]).expect("interp")).1;
    assert_eq!(failures(), [], "nothing is wrong without the fault");
    let looping = changed("algebra/max-chain-order", "(max (max x z) y)", "");
    let failures = with_rows(&[looping], failures).expect("the row loads");
    let [(0, failure)] = failures.as_slice() else { panic!("{failures:?}") };
    assert!(failure.detail.contains("does not end"), "{failure:?}");
    let culprit = culprit(&[looping], text);
    assert_eq!(culprit.rule, "algebra/max-chain-order", "{}", culprit.report());
    assert!(culprit.cycle.len() >= 2, "{}", culprit.report());
}

/// Rows similar to this one that are most likely wrong: a condition dropped, operands swapped,
/// another op, a number off by one.
fn mutants(row: &Rule) -> Vec<Rule> {
    let leak = |text: String| -> &'static str { Box::leak(text.into_boxed_str()) };
    let mut mutants = Vec::new();
    let clauses: Vec<&str> = row.when.split(" && ").collect();
    for dropped in (0..clauses.len()).filter(|_| !row.when.is_empty()) {
        let rest = clauses.iter().enumerate().filter(|(position, _)| *position != dropped);
        let rest: Vec<&str> = rest.map(|(_, clause)| *clause).collect();
        mutants.push(Rule { when: leak(rest.join(" && ")), ..*row });
    }
    let swaps = [
        ("(floordiv ", "(cdiv "),
        ("(cdiv ", "(floordiv "),
        ("(floormod ", "(cmod "),
        ("(cmod ", "(floormod "),
        ("(max ", "(min "),
        ("(min ", "(max "),
        ("(and ", "(or "),
        ("(or ", "(and "),
        ("(add ", "(sub "),
        ("(sub ", "(add "),
        (" + ", " - "),
        (" - ", " + "),
        (" * ", " + "),
        (" // ", " * "),
        ("(not ", "(neg (neg "),
        (" x y)", " y x)"),
        ("true", "false"),
        ("false", "true"),
        (" 1)", " 2)"),
        ("{-", "{"),
        ("x", "y"),
    ];
    for (from, to) in swaps.iter().filter(|(from, _)| row.rhs.contains(from)) {
        if !row.rhs.starts_with('@') {
            mutants.push(Rule { rhs: leak(row.rhs.replacen(from, to, 1)), ..*row });
        }
    }
    let numbers = [("0", "1"), ("1", "0"), ("1", "2"), ("-1", "1")];
    mutants.extend(
        numbers
            .iter()
            .filter(|(from, _)| row.rhs == *from)
            .map(|(_, to)| Rule { rhs: leak(to.to_string()), ..*row }),
    );
    mutants
}

/// The first case that goes wrong, its blame, and the seconds that blaming took.
fn killed(expressions: &[ExprCase], programs: &[Program]) -> Option<(String, Option<Blame>, f64)> {
    let is_wrong = |case: &&ExprCase| {
        gradiff_check::catch(|| check_expr(case)).and_then(|checked| checked).is_err()
    };
    if let Some(case) = expressions.iter().find(is_wrong) {
        let start = std::time::Instant::now();
        let blame = blame_expr(case);
        return Some((case.to_string(), blame, start.elapsed().as_secs_f64()));
    }
    let backends = backends(&["interp".to_string()]).expect("it needs nothing");
    let program = programs.iter().find(|program| !agree(&[program], &backends).1.is_empty())?;
    let start = std::time::Instant::now();
    let blame = blame(program, "interp");
    Some((program.to_string(), blame, start.elapsed().as_secs_f64()))
}

#[test]
fn the_mutated_row_is_named() {
    check_mutants(4);
}

#[test]
#[ignore = "takes minutes; .ci/nightly runs it"]
fn each_mutated_row_is_named() {
    check_mutants(1);
}

/// Blames every `of`-th mutant of a rule for what it makes wrong: nearly always the row is named.
fn check_mutants(of: usize) {
    std::panic::set_hook(Box::new(|_| {}));
    let cases: Vec<Case> =
        embedded().iter().map(|(_, text)| parse(text).expect("a case").case).collect();
    let random = (0..400).map(|number| {
        gradiff_gen::expr(&mut SeedChoices::new(case_seed(1, number)), &ExprConfig::default())
    });
    let written = cases.iter().filter_map(|case| match case {
        Case::Expr(expr) => Some(expr.clone()),
        _ => None,
    });
    let expressions: Vec<ExprCase> = written.chain(random).collect();
    let table = |name: &str| name.split('/').next().unwrap_or_default().to_string();
    let mut programs: BTreeMap<String, Vec<Program>> = BTreeMap::new();
    for case in &cases {
        let Case::Program(program) = case else { continue };
        let fired = gradiff_check::fired(std::slice::from_ref(case)).into_iter();
        let tables: BTreeSet<String> =
            fired.filter(|(_, count)| *count > 0).map(|(name, _)| table(name)).collect();
        for table in tables {
            programs.entry(table).or_default().push(program.clone());
        }
    }
    let found = |mutant: Rule| {
        // Programs take longer: only those that use the table, for rules that no expression fires.
        let tables = ["late/", "reduce/", "memory/", "validity/"];
        let is_far = tables.iter().any(|table| mutant.name.starts_with(table));
        let is_float = mutant.types.are_floats();
        let programs = programs.get(&table(mutant.name)).filter(|_| is_far || is_float);
        let programs = programs.map_or(&[][..], Vec::as_slice);
        with_rows(&[mutant], || killed(&expressions, programs)).ok().map(|kill| (mutant, kill))
    };
    let changed: Vec<Rule> = rows().iter().flat_map(mutants).step_by(of).collect();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let found: Vec<_> = std::thread::scope(|scope| {
        let (changed, found) = (&changed, &found);
        let share = |first: usize| changed.iter().skip(first).step_by(threads).copied();
        let workers: Vec<_> = (0..threads)
            .map(|first| scope.spawn(move || share(first).filter_map(found).collect::<Vec<_>>()))
            .collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("no panic")).collect()
    });
    let (mut count, mut kills, mut wrongly, mut seconds) = (0, 0, Vec::new(), Vec::new());
    for (mutant, kill) in found {
        count += 1;
        let Some((text, blame, taken)) = kill else { continue };
        kills += 1;
        seconds.push(taken);
        let named = blame.as_ref().and_then(|blame| blame.rule.as_ref());
        if named.is_none_or(|culprit| culprit.rule != mutant.name) {
            let blame = blame.map_or("nobody".to_string(), |blame| blame.to_string());
            wrongly.push(format!("{mutant}\n  {text}  {blame}"));
        }
    }
    let share = 100.0 * (1.0 - wrongly.len() as f64 / kills as f64);
    println!("{count} mutants, {kills} killed, of them {share:.1} % blamed on their row");
    seconds.sort_by(f64::total_cmp);
    let ms = |share: usize| 1e3 * seconds[seconds.len() * share / 100];
    println!(
        "blame takes {:.2} ms (median), {:.2} ms (p95), {:.2} ms (p99)",
        ms(50),
        ms(95),
        ms(99)
    );
    println!("{}", wrongly.join("\n"));
    assert!(kills > 100, "{kills} of {count} killed");
    assert!(share >= 95.0, "{share:.1} % of {kills}");
}
