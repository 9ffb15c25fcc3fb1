#!/usr/bin/env python3
"""How many mutants of the engine does the harness kill?

    fuzz/mutants.py run --seed S [--count N] [--seconds T]   draws, builds, judges, reports
    fuzz/mutants.py tests DIR                                crate tests on what survived a run
    fuzz/mutants.py longer DIR [--seconds T]                 the judge for longer on what is left
    fuzz/mutants.py report DIR                               the report of a run once more
    fuzz/mutants.py crates                                   the population by crate
    fuzz/mutants.py stale                                    reviews whose code has changed

`cargo-gamma` (cargo install --locked cargo-gamma) finds the mutants and builds those of a sample
into one test binary, fuzz/check/tests/judge, which runs one of them as GAMMA_ACTIVE says. The rest
is here: the sample (by a seed, each crate in proportion, none below a floor), the runs (one process
for each mutant, `--jobs` of them side by side, bounded in CPU time and memory, kept one by one, so
that an interrupted run goes on where it was), the score. What a drawn check kills is shown to the
same check without the mutant, which must take it.

A mutant that the judge does not kill has a class in fuzz/mutants.txt, or counts as `value`:
  value        some input gives a wrong value, a crash, a hang, a race or a broken promise
  choice       another legal kernel, schedule or order; every value stays right
  message      what is said to people
  no-device    shows only on a device or processor that is not here
  equivalent   nothing can tell it
The score is killed / (killed + survivors of the class value), with a Wilson interval of 95 %.
"""

import argparse
import hashlib
import json
import math
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / "target" / "mutants"
REVIEWS = ROOT / "fuzz" / "mutants.txt"
CRATES = ["view", "graph", "rewrite", "schedule", "kernel", "render", "runtime", "tensor"]
CLASSES = ["value", "choice", "message", "no-device", "equivalent"]

# Files that are no part of the population, each with its reason.
EXCLUDED = {
    "engine/rewrite/src/rules/": "tables of rules; `gradiff sabotage` judges them",
    "engine/view/src/fault.rs": "planted faults",
    "engine/runtime/src/cuda": "needs a driver",
    "engine/runtime/src/opencl": "needs a driver",
    "engine/runtime/src/wgpu": "needs a driver",
    "engine/runtime/src/remote.rs": "what devices with drivers share",
    "engine/runtime/src/library.rs": "finds drivers",
}
# More is drawn than is asked for: some mutants do not compile, and those that follow take their
# places.
SPARE = 1.4
# What is killed later than that counts as a survivor.
WITHIN_SECONDS = 60
# Lines around a mutant that a review depends on.
CONTEXT_LINES = 3
MEMORY_BYTES = 12 << 30
# The corpus, the last check and the blame, beyond the seconds of the drawn part: they take some 85
# seconds, twice as many where a compiler is slow.
SPARE_SECONDS = 180
# The blame of one program, beyond these.
BLAME_SECONDS = 5
# A process that uses no CPU time for so long is stuck.
IDLE_SECONDS = 90
# What a kill says where the machine may have failed in place of the mutant.
MACHINE = ("environment on ", "o space left", "not available", "cannot be started")


def say(text=""):
    print(text, flush=True)


# --- The population ---------------------------------------------------------------------------


def gamma(*arguments, capture=False):
    tool = shutil.which("cargo-gamma")
    if tool is None:
        sys.exit("cargo-gamma is not installed: cargo install --locked cargo-gamma --version 0.4.0")
    command = [tool, "gamma", *arguments]
    output = subprocess.PIPE if capture else None
    return subprocess.run(command, cwd=ROOT, stdout=output, check=False)


def excluded(mutant):
    if any(mutant["file"].startswith(prefix) for prefix in EXCLUDED):
        return True
    path = mutant["item_path"]
    wording = ("Display" in path or "Debug" in path) and path.endswith("fmt")
    # Planted faults, as long as there are any, and what only they run.
    return wording or any("is_active" in line for line in lines_of(mutant, 4))


_sources = {}


def source(file):
    """The text of a file, and its lines."""
    if file not in _sources:
        text = (ROOT / file).read_text()
        _sources[file] = (text, text.split("\n"))
    return _sources[file]


def lines_of(mutant, around):
    lines = source(mutant["file"])[1]
    return lines[max(0, mutant["line"] - 1 - around) : mutant["end_line"] + around]


def key(mutant):
    """What a review stands under: it changes with the mutant and with the lines around it."""
    parts = [mutant[part] for part in ("file", "item_path", "mutator", "original", "replacement")]
    parts.append(str(mutant["occurrence"]))
    parts += [line.strip() for line in lines_of(mutant, CONTEXT_LINES)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]


def crate_of(mutant):
    return mutant["file"].split("/")[1]


def population():
    """All mutants, by identity; listed once for each state of the sources, which takes minutes."""
    folders = [ROOT / "engine" / name for name in CRATES]
    sources = sorted(path for folder in folders for path in folder.glob("src/**/*.rs"))
    state = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:12]
    listing = WORK / f"population-{state}.json"
    if not listing.exists():
        packages = [part for name in CRATES for part in ("-p", f"gradiff-{name}")]
        # cargo-gamma asks no registry: what the lock file names has to be there.
        subprocess.run(["cargo", "fetch", "--locked"], cwd=ROOT, check=True)
        listed = gamma("list", "mutants", "--json", *packages, capture=True)
        if listed.returncode != 0:
            sys.exit(f"cargo gamma list: exit code {listed.returncode}")
        WORK.mkdir(parents=True, exist_ok=True)
        listing.write_bytes(listed.stdout)
    found = json.loads(listing.read_text())
    return sorted((m for m in found if not excluded(m)), key=lambda mutant: mutant["id"])


def sample(everything, seed, count, floor):
    """For each crate: how many are wanted, and more than that in the order they are drawn in."""
    by_crate = defaultdict(list)
    for mutant in everything:
        by_crate[crate_of(mutant)].append(mutant)
    drawn = {}
    for name in CRATES:
        share = round(count * len(by_crate[name]) / len(everything))
        wanted = min(len(by_crate[name]), max(floor, share))
        spare = min(len(by_crate[name]), math.ceil(wanted * SPARE) + 2)
        dice = random.Random(f"{seed}/{name}")
        drawn[name] = (wanted, dice.sample(by_crate[name], spare))
    return drawn


# --- The build --------------------------------------------------------------------------------


def build(folder, mutants):
    """Builds the judge with these mutants; gives the binary and the mutants by their number."""
    cache = WORK / "gamma"
    arguments = [part for mutant in mutants for part in ("--mutant", mutant["id"])]
    packages = [part for name in CRATES for part in ("-p", f"gradiff-{name}")]
    started = time.time()
    os.environ["GRADIFF_JUDGE"] = "none"
    code = gamma(
        "run", *packages, *arguments, "--profile", "release", "--cache-dir", str(cache),
        "--artifact-dir", str(folder / "reports"), "--test-package", "gradiff-check",
        "--include-test", "judge", "--jobs", "1", "--memory", "off", "--no-relaunch",
        "--incremental", "no", "--progress", "never", "--annotations", "none", "--show-build",
    ).returncode
    del os.environ["GRADIFF_JUDGE"]
    session = cache / "testing-session.json"
    if not session.exists():
        sys.exit(f"cargo gamma run built nothing (exit code {code})")
    say(f"built in {time.time() - started:.0f} s")
    session = json.loads(session.read_text())
    binary = next(b["path"] for b in session["session"]["binaries"] if b["target"] == "judge")
    shutil.copy2(binary, folder / "judge")
    return numbers(session, json.loads((cache / "last-gamma-run.json").read_text()))


def numbers(session, record):
    """The number that each mutant is chosen by, of those that compile."""
    withdrawn = {
        mutant["id"] for file in record["files"] for mutant in file["mutants"]
        if mutant["outcome"] in UNJUDGED
    }
    numbered = {mutant["id"]: mutant["ordinal"] for mutant in session["plan"]["mutants"]}
    return {name: number for name, number in numbered.items() if name not in withdrawn}


# --- The runs ---------------------------------------------------------------------------------


def cpu_seconds(pid):
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return None
    return sum(int(field) for field in fields[11:15]) / os.sysconf("SC_CLK_TCK")


def limit(seconds):
    def inner():
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.setpgid(0, 0)

    return inner


def launch(folder, number, seconds, seed, devices, check=None):
    """Runs the judge, or its blame of one check; gives its exit code, its output and the CPU seconds
    it took."""
    reached = reached_by(folder, number)
    environment = dict(
        os.environ, GAMMA_ACTIVE=str(number), GRADIFF_JUDGE_SEED=str(seed),
        GRADIFF_JUDGE_SECONDS=str(seconds), GRADIFF_JUDGE_DEVICES=devices, INSTA_UPDATE="no",
        GAMMA_REACH=str(reached),
    )
    if check is not None:
        environment.update(GRADIFF_JUDGE="blame", GRADIFF_JUDGE_CHECK=check)
    reached.unlink(missing_ok=True)
    log = folder / f"judge-{number}-{seed}.log"
    with open(log, "w") as output:
        process = subprocess.Popen(
            [folder / "judge", "--nocapture", "nothing_is_wrong"], cwd=ROOT / "fuzz" / "check",
            env=environment, stdout=output, stderr=subprocess.STDOUT,
            preexec_fn=limit(seconds + SPARE_SECONDS),
        )
        used, since, is_stuck = 0.0, time.time(), False
        while True:
            ended, status, usage = os.wait4(process.pid, os.WNOHANG)
            if ended:
                break
            time.sleep(0.05)
            now = cpu_seconds(process.pid)
            if now is not None and now > used + 0.01:
                used, since = now, time.time()
            elif time.time() - since > IDLE_SECONDS:
                is_stuck = True
                os.killpg(process.pid, signal.SIGKILL)
        process.returncode = os.waitstatus_to_exitcode(status)
    output = log.read_text(errors="replace")
    log.unlink()
    spent = usage.ru_utime + usage.ru_stime
    if process.returncode == -signal.SIGKILL and not is_stuck and spent < seconds + SPARE_SECONDS:
        raise InterruptedError("another process ended the judge")
    return process.returncode, output, spent


def reached_by(folder, number):
    """Where a run writes the numbers of the mutants whose code ran."""
    return folder / f"reached-{number}"


def judged(code, output, seconds):
    """What the judge said, as fields of a result."""
    line = next((line for line in output.split("\n") if line.startswith(("KILLED", "PASSED"))), "")
    if line.startswith("PASSED") and code == 0:
        return {"verdict": "survived", "at": round(seconds, 2), "said": line}
    if line.startswith("KILLED"):
        fields = dict(part.partition("=")[::2] for part in line.split("\t")[1:])
        return {"verdict": "killed", **fields, "at": float(fields["at"])}
    tail = [line for line in output.strip().split("\n") if line.strip()][-3:]
    by = "panic" if code > 0 else f"signal {signal.Signals(-code).name}"
    checks = [line.partition("\t")[2] for line in output.split("\n") if line.startswith("CHECK\t")]
    return {"verdict": "killed", "by": by, "at": round(seconds, 2), "detail": " / ".join(tail),
            "check": checks[-1] if checks else ""}


def baseline(folder, options):
    """The judge without a mutant must find nothing, from other seeds."""
    for number in range(options.baselines):
        seed = seed_of(options.seed, number)
        code, output, seconds = launch(folder, 0, options.seconds, seed, options.devices)
        result = judged(code, output, seconds)
        if result["verdict"] != "survived":
            sys.exit(f"the judge fails without a mutant: {result}")
        say(f"without a mutant: {result['said']}")


def is_of_machine(result):
    """Whether what a kill says may be the machine's fault, such as that of a full disk."""
    is_killed = result["verdict"] == "killed"
    return is_killed and any(words in result.get("detail", "") for words in MACHINE)


def is_false_alarm(folder, result, devices):
    """Whether the judge says the same of the engine as it is: then the judge is wrong; or the machine
    is, and nothing is judged."""
    is_drawn = ":" in result.get("by", "") and not result["by"].startswith("corpus")
    if result["verdict"] != "killed" or not is_drawn and not is_of_machine(result):
        return False
    seconds = math.ceil(result["at"]) + 1
    code, output, spent = launch(folder, 0, seconds, result["seed"], devices)
    again = judged(code, output, spent)
    if is_of_machine(result) and is_of_machine(again):
        raise InterruptedError(f"the machine failed: {again['detail']}")
    return (again["verdict"], again.get("by")) == ("killed", result["by"])


def blamed_in_steps(folder, mutant, result, devices):
    """The crate and the stage of a death or a hang, of which the judge could not speak: the stage that
    was being evaluated."""
    if result["verdict"] != "killed" or "crate" in result:
        return {}
    check = result.get("check", result["by"])
    _, output, _ = launch(folder, mutant["ordinal"], BLAME_SECONDS, result["seed"], devices, check)
    began = [line for line in output.split("\n") if line.startswith("BEGAN\t")]
    fields = [part.partition("=") for part in began[-1].split("\t")[1:]] if began else []
    return {name: value for name, _, value in fields}


def seed_of(seed, what):
    """A seed for the judge: never that of another mutant or sample."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{what}".encode()).digest()[:6], "big")


def keep(path, jobs, judge, mutants, total):
    """Judges mutants side by side, the last of `total`; adds each result to a file as it is there."""
    with open(path, "a") as kept, ThreadPoolExecutor(jobs) as pool:
        runs = [pool.submit(judge, mutant) for mutant in mutants]
        for number, run in enumerate(as_completed(runs), total - len(mutants) + 1):
            try:
                mutant, result = run.result()
            except InterruptedError as problem:
                # It is not kept, so that the next run judges it.
                say(f"{number}/{total} not judged: {problem}")
                continue
            kept.write(json.dumps(result) + "\n")
            kept.flush()
            say(f"{number}/{total} {one_line(mutant, result)}")


def run(options):
    folder = WORK / f"seed-{options.seed}"
    folder.mkdir(parents=True, exist_ok=True)
    plan = folder / "plan.json"
    if not plan.exists():
        drawn = sample(population(), options.seed, options.count, options.floor)
        ordinals = build(folder, [mutant for _, some in drawn.values() for mutant in some])
        chosen = []
        for wanted, some in drawn.values():
            viable = [m for m in some if m["id"] in ordinals]
            chosen += [dict(m, ordinal=ordinals[m["id"]], key=key(m)) for m in viable[:wanted]]
        # All crates alike, so that an interrupted run is a sample as well.
        random.Random(options.seed).shuffle(chosen)
        baseline(folder, options)
        # After it, so that a run does not go on with a judge that fails without a mutant.
        plan.write_text(json.dumps({"mutants": chosen, "of": drawn_counts(drawn)}))
    if not (folder / "digest.json").exists():
        (folder / "digest.json").write_text(json.dumps(digest(folder, 0)))
    mutants = json.loads(plan.read_text())["mutants"]
    results = read_results(folder)
    left = [mutant for mutant in mutants if mutant["id"] not in results]

    def one(mutant):
        seed = seed_of(options.seed, mutant["id"])
        judge = (folder, mutant["ordinal"], options.seconds, seed, options.devices)
        code, output, seconds = launch(*judge)
        if code == -signal.SIGKILL:
            # It used no CPU time for long: it is stuck, or it waited for a machine that is busy.
            code, output, seconds = launch(*judge)
        result = {"id": mutant["id"], "seed": seed, **judged(code, output, seconds)}
        if is_false_alarm(folder, result, options.devices):
            result["verdict"] = "false alarm"
        result.update(blamed_in_steps(folder, mutant, result, options.devices))
        if result["verdict"] == "survived":
            result["hint"] = {"reached": is_reached(folder, mutant), **hint(folder, mutant)}
        reached_by(folder, mutant["ordinal"]).unlink(missing_ok=True)
        return mutant, result

    keep(folder / "results.jsonl", options.jobs, one, left, len(mutants))
    report(folder)


def drawn_counts(drawn):
    return {name: wanted for name, (wanted, _) in drawn.items()}


def read_results(folder):
    path = folder / "results.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return {result["id"]: result for result in map(json.loads, lines)}


def is_reached(folder, mutant):
    """Whether the code of the mutant ran at all: then its number is among the words written."""
    path = reached_by(folder, mutant["ordinal"])
    words = path.read_bytes() if path.exists() else b""
    number = mutant["ordinal"].to_bytes(4, "little")
    return any(words[at : at + 4] == number for at in range(0, len(words), 4))


def digest(folder, number):
    """Short sums of the kernels of some programs, by program."""
    environment = dict(os.environ, GAMMA_ACTIVE=str(number), GRADIFF_JUDGE="digest")
    done = subprocess.run(
        [folder / "judge", "--nocapture", "nothing_is_wrong"], env=environment,
        capture_output=True, text=True, preexec_fn=limit(120), check=False,
    )
    lines = [line.split() for line in done.stdout.split("\n") if line.startswith("DIGEST")]
    return {line[1]: line[2:] for line in lines}


def hint(folder, mutant):
    """What the mutant changes of kernels that are only looked at: a help for the review."""
    plain = json.loads((folder / "digest.json").read_text())
    changed = digest(folder, mutant["ordinal"])
    counts = [sum(changed.get(name, [None] * 3)[at] != row[at] for name, row in plain.items())
              for at in range(3)]
    return dict(zip(("schedule", "uops", "text"), counts), programs=len(plain))


# --- The other tools --------------------------------------------------------------------------

UNJUDGED = ("Unviable", "NotBuilt", "CompileError")


def tests(options):
    """Runs the tests of the engine's crates, and of its rules, on the survivors that count, and keeps
    who failed; but not the test of words, which reads the sources that are mutated here."""
    folder = options.folder
    results, known = read_results(folder), reviews()
    left = [mutant for mutant in json.loads((folder / "plan.json").read_text())["mutants"]
            if results.get(mutant["id"], {}).get("verdict") == "survived"
            and mutant["key"] not in known]
    cache = WORK / "gamma-tests"
    packages = [part for name in CRATES for part in ("-p", f"gradiff-{name}")]
    judges = [part for name in [*(f"gradiff-{name}" for name in CRATES), "gradiff-rules", "gradiff"]
              for part in ("--test-package", name)]
    arguments = [part for mutant in left for part in ("--mutant", mutant["id"])]
    gamma(
        "run", *packages, *arguments, *judges, "--exclude-test", "words", "--profile", "dev",
        "--cache-dir", str(cache),
        "--artifact-dir", str(folder / "tests"), "--jobs", str(options.jobs), "--memory", "off",
        "--no-relaunch", "--incremental", "no", "--progress", "never", "--annotations", "none",
        "--minimum-test-timeout", "60",
    )
    record = json.loads((cache / "last-gamma-run.json").read_text())
    outcomes = {mutant["id"]: mutant["outcome"] for file in record["files"]
                for mutant in file["mutants"] if mutant["outcome"] not in UNJUDGED}
    (folder / "tests.json").write_text(json.dumps(outcomes))
    report(folder)


def longer(options):
    """Runs the judge for longer, from other seeds, on the survivors that count and that the tests of
    crates leave."""
    folder = options.folder
    results, known, kept = read_results(folder), reviews(), read_longer(folder)
    plan = json.loads((folder / "plan.json").read_text())["mutants"]
    left = [mutant for mutant in plan
            if results.get(mutant["id"], {}).get("verdict") == "survived"
            and mutant["key"] not in known and mutant["id"] not in kept]
    fallen = fell_to_tests(folder, left) or []
    left = [mutant for mutant in left if mutant not in fallen]

    def one(mutant):
        seed = seed_of(f"{options.seconds} s", mutant["id"])
        code, output, seconds = launch(
            folder, mutant["ordinal"], options.seconds, seed, options.devices)
        result = {"id": mutant["id"], "seed": seed, **judged(code, output, seconds)}
        if is_false_alarm(folder, result, options.devices):
            result["verdict"] = "false alarm"
        reached_by(folder, mutant["ordinal"]).unlink(missing_ok=True)
        return mutant, result

    keep(folder / "longer.jsonl", options.jobs, one, left, len(left))
    report(folder)


def read_longer(folder):
    """The results of longer runs by mutant."""
    path = folder / "longer.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return {result["id"]: result for result in map(json.loads, lines)}


def fell_to_tests(folder, mutants):
    """Of these survivors, those that crate tests do not pass; `None` if they were not run."""
    path = folder / "tests.json"
    if not path.exists():
        return None
    outcomes = json.loads(path.read_text())
    return [m for m in mutants if outcomes.get(m["id"], "Survived") != "Survived"]


# --- The report -------------------------------------------------------------------------------


def reviews():
    """The class and the reason by key; the line that says which mutant it is follows."""
    found = {}
    for number, line in enumerate(REVIEWS.read_text().splitlines() if REVIEWS.exists() else []):
        if not line.strip() or line.startswith(("#", " ")):
            continue
        parts = line.split(None, 2)
        if len(parts) < 3 or parts[0] not in CLASSES or parts[0] == "value":
            sys.exit(f"{REVIEWS.name}:{number + 1}: not CLASS KEY REASON")
        found[parts[1]] = (parts[0], parts[2])
    return found


def wilson(killed, of):
    if of == 0:
        return 0.0, 1.0
    z, p = 1.96, killed / of
    middle = (p + z * z / (2 * of)) / (1 + z * z / of)
    reach = z * math.sqrt(p * (1 - p) / of + z * z / (4 * of * of)) / (1 + z * z / of)
    return max(0.0, middle - reach), min(1.0, middle + reach)


def one_line(mutant, result):
    where = f"{mutant['file']}:{mutant['line']} {mutant['mutator']}"
    if result["verdict"] != "killed":
        return f"{result['verdict']}  {where}  {result.get('hint', result.get('detail'))}"
    detail = result.get("detail", "")[:90]
    return f"killed at {result['at']:.1f} by {result['by']}  {where}  {detail}"


def change(mutant):
    """The mutant as removed and added lines."""
    text = source(mutant["file"])[0].encode()
    span = mutant["span"]
    start, end = (span["start"], span["end"]) if isinstance(span, dict) else span
    first = text.rfind(b"\n", 0, start) + 1
    last = text.find(b"\n", end)
    last = len(text) if last < 0 else last
    before = text[first:last].decode()
    after = (text[first:start] + mutant["replacement"].encode() + text[end:last]).decode()
    cut = lambda lines: lines if len(lines) <= 9 else lines[:7] + ["..."] + lines[-1:]
    rows = [f"    - {line}" for line in cut(before.split("\n"))]
    return "\n".join(rows + [f"    + {line}" for line in cut(after.split("\n"))])


def row(name, counts):
    value = counts["survived value"]
    low, high = wilson(counts["killed"], counts["killed"] + value)
    score = counts["killed"] / max(1, counts["killed"] + value)
    others = " ".join(f"{counts['survived ' + other]:>9}" for other in CLASSES)
    return (f"{name:10}{counts['killed']:>7} {others}   {100 * score:5.1f} %  "
            f"[{100 * low:.0f}, {100 * high:.0f}]")


def report(folder):
    plan = json.loads((folder / "plan.json").read_text())["mutants"]
    results, known = read_results(folder), reviews()
    counts, when, blamed, ways = defaultdict(Counter), [], Counter(), Counter()
    survivors = []
    for mutant in plan:
        result = results.get(mutant["id"])
        if result is None:
            continue
        if result["verdict"] == "false alarm":
            say(f"FALSE ALARM of the judge, seed {result['seed']}: {result['by']}: "
                f"{result['detail'][:120]}")
            continue
        if result["verdict"] == "killed":
            when.append(result["at"])
            outcome = "killed" if result["at"] <= WITHIN_SECONDS else "survived value"
            ways[result["by"].split(":")[0]] += 1
            if "crate" in result:
                blamed["right" if result["crate"] == crate_of(mutant) else "wrong"] += 1
        else:
            of, reason = known.get(mutant["key"], ("value", "not reviewed"))
            outcome = f"survived {of}"
            survivors.append((of, reason, mutant, result))
        for name in (crate_of(mutant), "all"):
            counts[name][outcome] += 1
    for of, reason, mutant, result in sorted(survivors, key=lambda item: CLASSES.index(item[0])):
        say(f"\n{of}: {mutant['file']}:{mutant['line']} {mutant['item_path']}")
        say(f"  {of} {mutant['key']} {reason}")
        say(f"    {mutant['mutator']}  changed of {result.get('hint')}")
        say(change(mutant))
    say(f"\n{'crate':10}{'killed':>7} {' '.join(f'{name:>9}' for name in CLASSES)}   score    95 %")
    for name in [*CRATES, "all"]:
        say(row(name, counts[name]))
    when.sort()
    if when:
        within = ", ".join(f"{most} s: {sum(at <= most for at in when)}" for most in (5, 20, 60))
        say(f"killed within {within} of {len(when)}")
    say("by " + ", ".join(f"{way} {count}" for way, count in ways.most_common()))
    say(f"blamed on the right crate: {blamed['right']} of {sum(blamed.values())}")
    value = [mutant for of, _, mutant, _ in survivors if of == "value"]
    fallen = fell_to_tests(folder, value)
    if fallen is not None:
        killed = counts["all"]["killed"] + len(fallen)
        of = counts["all"]["killed"] + counts["all"]["survived value"]
        low, high = wilson(killed, of)
        say(f"with the crates' tests: {killed} of {of}, {100 * killed / max(1, of):.1f} % "
            f"[{100 * low:.0f}, {100 * high:.0f}]; not "
            + ", ".join(m["key"] for m in value if m not in fallen))
    longer = read_longer(folder)
    if longer:
        late = [m for m in value if longer.get(m["id"], {}).get("verdict") == "killed"]
        found = {m["id"] for m in [*late, *(fallen or [])]}
        # The judge took longer than its bound for some, but found them.
        killed, of = len(when) + len(found), len(when) + len(value)
        low, high = wilson(killed, of)
        say(f"with all tools: {killed} of {of}, {100 * killed / max(1, of):.1f} % "
            f"[{100 * low:.0f}, {100 * high:.0f}]; not "
            + ", ".join(m["key"] for m in value if m["id"] not in found))


def stale(_):
    """Reviews whose mutant is no more as it was."""
    there = {key(mutant) for mutant in population()}
    gone = [(key, *rest) for key, rest in reviews().items() if key not in there]
    for review in gone:
        say("stale: " + " ".join(review))
    sys.exit(2 if gone else 0)


def crates(_):
    everything = population()
    for name, count in Counter(map(crate_of, everything)).most_common():
        say(f"{name:10}{count:>7}")
    say(f"{'all':10}{len(everything):>7}")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("run")
    command.add_argument("--seed", required=True, help="of the sample; used once, then it is seen")
    command.add_argument("--count", type=int, default=150, help="mutants (150)")
    command.add_argument("--floor", type=int, default=8, help="mutants of a crate at least (8)")
    command.add_argument("--seconds", type=int, default=60, help="CPU time for each (60)")
    command.add_argument("--jobs", type=int, default=os.cpu_count(),
                         help="mutants side by side (one for each core)")
    command.add_argument("--devices", default="interp,jit,uops,c,text",
                         help="of the judge (interp,jit,uops,c,text)")
    command.add_argument("--baselines", type=int, default=1, help="runs without a mutant first (1)")
    command.set_defaults(run=run)
    command = commands.add_parser("tests")
    command.add_argument("folder", type=Path)
    command.add_argument("--jobs", type=int, default=os.cpu_count(),
                         help="mutants side by side (one for each core)")
    command.set_defaults(run=tests)
    command = commands.add_parser("longer")
    command.add_argument("folder", type=Path)
    command.add_argument("--seconds", type=int, default=600, help="CPU time for each (600)")
    command.add_argument("--jobs", type=int, default=os.cpu_count(),
                         help="mutants side by side (one for each core)")
    command.add_argument("--devices", default="interp,jit,uops,c,text",
                         help="of the judge (interp,jit,uops,c,text)")
    command.set_defaults(run=longer)
    command = commands.add_parser("report")
    command.add_argument("folder", type=Path)
    command.set_defaults(run=lambda options: report(options.folder))
    commands.add_parser("crates").set_defaults(run=crates)
    commands.add_parser("stale").set_defaults(run=stale)
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()
