"""Sets gradiff's simplification of real kernels' indices beside tinygrad 0.10.2's.

    python3 oracle/upstream/quality.py [--venv FOLDER] [--repeats N] [--out FILE] [--pairs FILE]

Runs `cargo bench -p gradiff-check --bench pairs` and `simplify.py`, one after the other, on the same
pairs; evaluates what both made at every point (up to 2^16 of them, else at random) against the
expression that was given; writes a table and prints its summary. The environment with tinygrad is
made where it is missing (needs PyPI). Exit code 1: gradiff is wrong, or larger where tinygrad is
right, or less than 50 times as fast.

An answer is right if the gate is what it was everywhere, and the index where the gate is open.
gradiff's divisions round down; tinygrad's are cut toward zero when its kernels run, so that is how
they are evaluated.
"""

import argparse
import os
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
POINTS = 1 << 16
SPEEDUP = 50


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--venv", type=Path, default=ROOT / "target" / "tinygrad-0.10.2")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--pairs", type=Path, default=ROOT / "corpus" / "index" / "kernels.txt")
    parser.add_argument("--out", type=Path, default=ROOT / "snapshots" / "rules" / "quality.txt")
    return parser.parse_args()


def ensure_environment(folder):
    """Runs this script again inside the environment, unless it is there already."""
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
    if subprocess.run([python, "-c", "import tinygrad, numpy"], capture_output=True).returncode:
        subprocess.run([python, "-m", "pip", "install", "-q", "tinygrad==0.10.2", "numpy"], check=True)
    if Path(sys.prefix).resolve() != folder.resolve():
        os.execv(python, [str(python), *sys.argv])


def rows_of(command):
    """{pair: (nodes, index, gate)} and the seconds of one side."""
    result = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if result.returncode:
        sys.exit(f"failed: {' '.join(map(str, command))}")
    *lines, seconds = result.stdout.splitlines()
    rows = {}
    for line in lines:
        name, nodes, index, gate = line.split("\t")
        rows[name] = int(nodes), index, gate
    return rows, float(seconds)


class Cut:
    """Integers whose divisions are cut toward zero."""

    def __init__(self, values):
        self.values = values

    @staticmethod
    def _of(other):
        return other.values if isinstance(other, Cut) else other

    def __add__(self, other): return Cut(self.values + Cut._of(other))
    def __mul__(self, other): return Cut(self.values * Cut._of(other))
    def __lt__(self, other): return self.values < Cut._of(other)
    def __ne__(self, other): return self.values != Cut._of(other)
    __radd__, __rmul__ = __add__, __mul__

    def __floordiv__(self, other):
        import numpy
        other = Cut._of(other)
        return Cut(numpy.sign(self.values) * numpy.sign(other) * (abs(self.values) // abs(other)))

    def __mod__(self, other):
        other = Cut._of(other)
        return Cut(self.values - (self // other).values * other)


def points_of(variables):
    """{variable: its value at each point}."""
    import numpy
    spans = [last + 1 for last in variables.values()]
    total = 1
    for span in spans:
        total *= span
    if total <= POINTS:
        axes = numpy.indices(spans, dtype=numpy.int64).reshape(len(spans), -1)
    else:
        generator = numpy.random.default_rng(1)
        axes = [generator.integers(0, span, POINTS) for span in spans]
    return dict(zip(variables, axes))


def evaluated(index, gate, scope):
    """Index and gate as arrays (or numbers)."""
    index, gate = eval(index, {}, scope), eval(gate, {}, scope)
    return (index.values if isinstance(index, Cut) else index), (gate.values if isinstance(gate, Cut) else gate)


def is_right(pair, row, kind):
    import numpy
    _, variables, index, valid = pair
    points = points_of(variables)
    shape = next(iter(points.values())).shape if points else (1,)
    whole = lambda value, dtype: numpy.broadcast_to(numpy.asarray(value, dtype=dtype), shape)
    scope = {**points, "true": True, "false": False, "NOT": numpy.logical_not}
    written = evaluated(index, valid.replace("!", "NOT"), scope)
    # The names that each side has for its variables.
    names = {name: f"ridx{number}" for number, name in enumerate(variables)} if kind is None else {n: n for n in variables}
    scope = {names[name]: (kind(values) if kind else values) for name, values in points.items()}
    found = evaluated(row[1], row[2], scope)
    gates = [whole(value[1], bool) for value in (written, found)]
    if (gates[0] != gates[1]).any():
        return False
    return not (whole(written[0], numpy.int64) != whole(found[0], numpy.int64))[gates[0]].any()


def main():
    options = arguments()
    ensure_environment(options.venv.resolve())
    sys.path.insert(0, str(Path(__file__).parent))
    from simplify import read
    pairs = read(options.pairs)
    file, repeats = str(options.pairs.resolve()), str(options.repeats)
    # More often, as it is shorter: so both take the least of a similar stretch of time.
    often = str(options.repeats * SPEEDUP)
    ours, our_seconds = rows_of(["cargo", "bench", "-q", "-p", "gradiff-check", "--bench", "pairs", "--", file, often])
    theirs, their_seconds = rows_of([sys.executable, str(Path(__file__).parent / "simplify.py"), file, repeats])
    lines, wrong, larger, smaller, their_wrong = [], [], [], 0, 0
    sums = [0, 0]
    for pair in pairs:
        name = pair[0]
        mine, other = ours[name], theirs[name]
        right = is_right(pair, other, Cut)
        if not is_right(pair, mine, None):
            wrong.append(name)
        if right and other[0] < mine[0]:
            larger.append((mine[0] - other[0], name, mine, other))
        smaller += mine[0] < other[0]
        their_wrong += not right
        sums = [sums[0] + mine[0], sums[1] + other[0]]
        lines.append(f"{name:28} {mine[0]:4} {other[0]:4} {'right' if right else 'wrong'}")
    head = [
        f"# Nodes of {len(pairs)} index/valid pairs of real kernels after simplification: gradiff's, tinygrad 0.10.2's, and",
        "# whether tinygrad's answer is right. Made by oracle/upstream/quality.py; the pairs: corpus/index/kernels.txt.",
        f"# Together {sums[0]} against {sums[1]}; gradiff smaller in {smaller}, larger in {len(larger)}, wrong in {len(wrong)};"
        f" tinygrad wrong in {their_wrong}.",
    ]
    options.out.write_text("\n".join(head + lines) + "\n")
    print("\n".join(head))
    ratio = their_seconds / our_seconds
    print(f"# {our_seconds * 1e3:.1f} ms against {their_seconds * 1e3:.0f} ms: {ratio:.0f} times as fast")
    for more, name, mine, other in sorted(larger, reverse=True):
        print(f"larger by {more}: {name}\n  gradiff  {mine[1]} if {mine[2]}\n  tinygrad {other[1]} if {other[2]}")
    for name in wrong:
        print(f"WRONG: {name}: {ours[name]}")
    sys.exit(bool(wrong or larger or ratio < SPEEDUP))


if __name__ == "__main__":
    main()
