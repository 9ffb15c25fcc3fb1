#!/usr/bin/env python3
"""Hunts under everything that a machine does to them.

    fuzz/soak.py [--minutes M] [--seed S] [--binary FILE]     (60 minutes, target/release/gradiff)
    fuzz/soak.py --self-test                                  checks that each check can fail

One hunt after the other runs on all backends that are there, each in a folder of its own, with a
compiler that works, fails at times, or computes something else (then there are findings to lose).
Meanwhile workers, compilers and the hunt itself are killed, stopped and continued, and the disk is
full for a while. After each hunt:

* its exit code is one that the documents say;
* each finding that it announced is there and reads back, and so does each other case that it wrote;
* nothing that it started lives 2 s after it has ended;
* a case that it calls a finding fails again with the compiler of that hunt, or counts as false;
* memory: the most that a hunt and that a worker had, by minutes.

Linux alone: processes are found in /proc, by a variable of their environment. The full disk is a
small tmpfs, which takes the right to mount; without it that part is left out, and counted. Ctrl-C
ends it with the summary. Exit code 0 if nothing was wrong, else 1.
"""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MARK = "GRADIFF_SOAK"
TMPFS_BYTES = 48 << 20

# What is done for questions to the compiler rather than for kernels.
QUESTIONS = 'case "$*" in *--version*|*-dM*|*probe.c*) exec cc "$@" ;; esac\n'
COMPILERS = {
    "works": 'exec cc "$@"\n',
    # One of four compiles goes wrong, each time in another way.
    "fails": 'r=$(od -An -N2 -tu2 /dev/urandom)\ncase $((r % 16)) in\n'
             '0) printf "\\033[31mno\\033[0m\\n" >&2; exit 1 ;;\n'
             '1) kill -SEGV $$ ;;\n2) kill -KILL $$ ;;\n3) sleep 3 ;;\nesac\nexec cc "$@"\n',
    # exp2 of floats is the identity: a wrong answer of every program that has it.
    "computes something else": 'exec cc -D"exp2f(x)=(x)" -D"exp2(x)=(x)" "$@"\n',
}


def marked(mark):
    """The processes of a hunt that run, by number: their names and resident bytes."""
    found = {}
    wanted = f"{MARK}={mark}".encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            if wanted not in (entry / "environ").read_bytes().split(b"\0"):
                continue
            # The name stands in parentheses and may hold blanks.
            name, rest = (entry / "stat").read_text().rsplit(")", 1)
            fields = rest.split()
            if fields[0] not in "ZX":
                name = name.split("(", 1)[1]
                found[int(entry.name)] = (name, int(fields[1]), int(fields[21]) * 4096)
        except (OSError, ValueError, IndexError):
            continue
    return found


def send(pid, number):
    try:
        os.kill(pid, number)
        return True
    except ProcessLookupError:
        return False


class Soak:
    def __init__(self, options):
        self.options = options
        self.random = random.Random(options.seed)
        self.counts = Counter()
        self.wrong = []
        self.memory = []
        self.start = time.monotonic()
        self.is_over = False

    def tell(self, problem):
        self.wrong.append(problem)
        print(f"WRONG {problem}", flush=True)

    def folder(self):
        """A folder for a hunt; on a small tmpfs if it can be mounted."""
        folder = Path(tempfile.mkdtemp(prefix="soak-"))
        size = f"size={TMPFS_BYTES}"
        command = ["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(folder)]
        is_small = subprocess.run(command, capture_output=True).returncode == 0
        if not is_small:
            self.counts["hunts without a full disk: it cannot be mounted"] += 1
        return folder, is_small

    def command(self, folder, compiler, seconds):
        script = folder / "cc"
        script.write_text("#!/bin/sh\n" + QUESTIONS + COMPILERS[compiler])
        script.chmod(0o755)
        for name in ("cache", "tmp"):
            (folder / name).mkdir(mode=0o700)
        seed = self.random.randrange(1 << 32)
        words = [str(self.options.binary), "hunt", "--seed", str(seed), "--seconds", str(seconds)]
        words += ["--findings", "findings", "--json"]
        if compiler == "computes something else":
            words += ["--backends", "interp,jit,c,c/heuristic", "--max-findings", "3"]
        environment = dict(os.environ, CC=str(script), TMPDIR=str(folder / "tmp"),
                           GRADIFF_CACHE_DIR=str(folder / "cache"), **{MARK: folder.name})
        return words, environment

    def hunt(self):
        """One hunt, disturbed; then what is left of it is looked at."""
        folder, is_small = self.folder()
        try:
            compiler = self.random.choice(list(COMPILERS))
            seconds = self.random.choice([10, 20, 40])
            words, environment = self.command(folder, compiler, seconds)
            with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
                # In a session of its own: of a group that loses the last parent outside of it the
                # system hangs up what is stopped.
                hunt = subprocess.Popen(words, cwd=folder, env=environment, stdout=out, stderr=err,
                                        start_new_session=True)
                signals, was_full = self.disturb(hunt, folder, is_small, seconds)
                # Not on the small disk: what cannot be written there is told here.
                said = []
                for file in (out, err):
                    file.seek(0)
                    said.append(file.read().decode(errors="replace"))
            label = f"{folder.name} ({compiler}, {' '.join(words[2:6])})"
            self.counts[f"hunts, compiler {compiler}"] += 1
            self.look(label, folder, hunt.returncode, said, signals, was_full, compiler,
                      environment)
        finally:
            for pid in marked(folder.name):
                send(pid, signal.SIGKILL)
            if is_small:
                subprocess.run(["umount", "-l", str(folder)], capture_output=True)
            shutil.rmtree(folder, ignore_errors=True)

    def disturb(self, hunt, folder, is_small, seconds):
        """Disturbs until it has ended: what was sent to it, whether the disk was full."""
        signals, was_full, stopped = set(), False, []
        # So long may a hunt take that is stopped at times and whose last programs end by time.
        end = time.monotonic() + 6 * seconds + 240
        filler = folder / "filler"
        while hunt.poll() is None:
            time.sleep(self.random.uniform(0.3, 2.5))
            running = marked(folder.name)
            workers = [pid for pid, (_, parent, _) in running.items() if parent == hunt.pid]
            others = [pid for pid in running if pid != hunt.pid and pid not in workers]
            minute = (time.monotonic() - self.start) / 60
            for pid, (_, _, resident) in running.items():
                kind = "hunt" if pid == hunt.pid else "worker" if pid in workers else "compiler"
                self.memory.append((minute, kind, resident))
            while stopped:
                send(stopped.pop(), signal.SIGCONT)
            if time.monotonic() > end or self.is_over:
                is_late = time.monotonic() > end
                if is_late:
                    self.tell(f"{folder.name}: it did not end within {6 * seconds + 240} s")
                send(hunt.pid, signal.SIGKILL if is_late else signal.SIGTERM)
                signals.add(signal.SIGKILL if is_late else signal.SIGTERM)
                hunt.wait()
                break
            draw = self.random.randrange(100)
            pool, number = None, None
            if draw < 8:
                pool, number = workers, signal.SIGKILL
            elif draw < 12:
                pool, number = workers, signal.SIGTERM
            elif draw < 30:
                pool, number = others, self.random.choice([signal.SIGKILL, signal.SIGTERM])
            elif draw < 45:
                pool, number = list(running), signal.SIGSTOP
            elif draw < 47:
                pool, number = [hunt.pid], self.random.choice([signal.SIGKILL, signal.SIGTERM])
            elif draw < 55 and is_small and not was_full:
                was_full = True
                self.fill(filler)
                self.counts["disk full"] += 1
            elif draw < 70:
                filler.unlink(missing_ok=True)
            if pool:
                pid = self.random.choice(pool)
                if send(pid, number):
                    self.counts[f"{number.name}"] += 1
                    if number == signal.SIGSTOP:
                        stopped.append(pid)
                    elif pid == hunt.pid:
                        signals.add(number)
        filler.unlink(missing_ok=True)
        return signals, was_full

    @staticmethod
    def fill(path):
        try:
            with open(path, "wb") as file:
                while True:
                    file.write(bytes(1 << 16))
                    file.flush()
        except OSError:
            pass

    def look(self, label, folder, code, said, signals, was_full, compiler, environment):
        """All checks after a hunt, which said this on both streams."""
        out, said = said
        allowed = {0, 2, 3}
        if signal.SIGKILL in signals:
            allowed |= {-signal.SIGKILL}
        if signal.SIGTERM in signals:
            allowed |= {143, -signal.SIGTERM}
        if was_full:
            # What cannot be written is an error of the machine, told as such.
            allowed |= {1, 70}
        self.counts[f"exit code {code}"] += 1
        if code not in allowed:
            self.tell(f"{label}: exit code {code}, {said[-400:]!r}")
        if "panicked at" in said and "findings" not in said:
            self.tell(f"{label}: it panicked: {said[-400:]!r}")
        self.orphans(label, folder.name)
        announced = []
        if code in (0, 2, 3, 143):
            try:
                announced = json.loads(out)["findings"] if out else []
            except (ValueError, KeyError) as error:
                if signal.SIGKILL not in signals:
                    self.tell(f"{label}: its summary is no summary: {error}: {out[-200:]!r}")
        self.cases(label, folder, announced, code, said, compiler, environment)
        left = [path for path in (folder / "tmp").iterdir()]
        if left:
            self.counts["hunts that left temporary files"] += 1
            if -signal.SIGKILL != code and not was_full:
                self.counts["hunts that left temporary files, not killed"] += 1

    def orphans(self, label, mark):
        end = time.monotonic() + 2
        while (left := marked(mark)) and time.monotonic() < end:
            time.sleep(0.05)
        if left:
            names = [f"{name} ({pid})" for pid, (name, *_) in left.items()]
            self.tell(f"{label}: running after 2 s: {', '.join(names)}")

    def cases(self, label, folder, announced, code, said, compiler, environment):
        findings = folder / "findings"
        files = sorted(path for path in findings.rglob("*") if path.is_file())
        for name in announced:
            path = folder / name if not Path(name).is_absolute() else Path(name)
            self.counts["findings announced"] += 1
            if "cannot be written" in said and not path.exists():
                self.counts["findings printed for want of space"] += 1
                continue
            if not path.is_file() or not path.stat().st_size:
                self.tell(f"{label}: the finding {name} was announced and is not there")
        if code == 0 and announced:
            self.tell(f"{label}: exit code 0 with {len(announced)} findings")
        for path in files:
            if path.suffix == ".case":
                self.counts["cases read back"] += 1
                self.read_back(label, path)
        kept = [path for path in files if path.suffix == ".case" and path.parent == findings]
        for path in kept:
            words = [str(self.options.binary), "replay", str(path)]
            # Where it failed is said in its head; alone and undisturbed it must fail again there.
            again = subprocess.run(words, cwd=folder, env=environment, capture_output=True,
                                   text=True, timeout=600)
            self.counts["findings replayed"] += 1
            if again.returncode == 0 and compiler != "fails":
                self.tell(f"{label}: {path.name} does not fail again:\n{path.read_text()}")
            elif again.returncode == 0:
                self.tell(f"{label}: a compiler that fails became the finding {path.name}:\n"
                          f"{path.read_text()}")

    def read_back(self, label, path):
        words = [str(self.options.binary), "show", str(path), "--stage", "program"]
        shown = subprocess.run(words, capture_output=True, text=True, timeout=120)
        if shown.returncode != 0:
            self.tell(f"{label}: {path.name} does not read back: {shown.stderr[-300:]!r}")

    def run(self):
        end = self.start + 60 * self.options.minutes
        timer = threading.Timer(60 * self.options.minutes, self.finish)
        timer.daemon = True
        timer.start()
        told = self.start
        while time.monotonic() < end and not self.is_over:
            self.hunt()
            if time.monotonic() - told > 60:
                told = time.monotonic()
                print(f"{(told - self.start) / 60:.0f} min: {self.summary()}", flush=True)
        self.report()
        return 1 if self.wrong else 0

    def finish(self, *_):
        self.is_over = True

    def summary(self):
        return ", ".join(f"{count} {name}" for name, count in sorted(self.counts.items()))

    def report(self):
        minutes = (time.monotonic() - self.start) / 60
        print(f"\nseed {self.options.seed}, {minutes:.1f} minutes")
        for name, count in sorted(self.counts.items()):
            print(f"{count:8} {name}")
        half = minutes / 2
        for kind in ("hunt", "worker", "compiler"):
            halves = [[size for at, of, size in self.memory if of == kind and (at < half) == first]
                      for first in (True, False)]
            most = [max(sizes, default=0) >> 20 for sizes in halves]
            print(f"{kind:8} at most {most[0]} MiB in the first half, {most[1]} in the second")
        print(f"{len(self.wrong)} wrong")


FAKES = {
    "a finding that is announced and not there":
        'echo \'{"findings": ["findings/a.case"]}\'; exit 2',
    "an exit code that no document says": "exit 9",
    "a process that lives on": 'sleep 60 & echo \'{"findings": []}\'; exit 0',
    "a case that is half written":
        'mkdir findings; echo "a = inp" > findings/a.case; '
        'echo \'{"findings": ["findings/a.case"]}\'; exit 2',
    "a finding that does not fail":
        'mkdir findings; printf "a = input i32[4] iota\\nb = neg a\\noutput b\\n" > '
        'findings/a.case; echo \'{"findings": ["findings/a.case"]}\'; exit 2',
    "a summary that is none": "echo '{\"find'; exit 0",
}


def self_test(options):
    """Whether each check fails on a hunt that does what it looks for."""
    missed = []
    for name, script in FAKES.items():
        with tempfile.TemporaryDirectory() as folder:
            fake = Path(folder) / "gradiff"
            fake.write_text('#!/bin/sh\ntest "$1" = hunt || exec '
                            f'{options.binary} "$@"\n{script}\n')
            fake.chmod(0o755)
            soak = Soak(argparse.Namespace(seed=1, minutes=1, binary=fake))
            soak.hunt()
            if not soak.wrong:
                missed.append(name)
    for name in missed:
        print(f"not seen: {name}")
    print(f"{len(FAKES) - len(missed)} of {len(FAKES)} seen")
    return 1 if missed else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--binary", type=Path, default=ROOT / "target/release/gradiff")
    parser.add_argument("--self-test", action="store_true")
    options = parser.parse_args()
    options.binary = options.binary.resolve()
    if not sys.platform.startswith("linux"):
        parser.error("it looks for processes in /proc: Linux alone")
    if not options.binary.is_file():
        parser.error(f"{options.binary} is not there: cargo build --release")
    if options.self_test:
        return self_test(options)
    soak = Soak(options)
    signal.signal(signal.SIGINT, soak.finish)
    signal.signal(signal.SIGTERM, soak.finish)
    return soak.run()


if __name__ == "__main__":
    sys.exit(main())
