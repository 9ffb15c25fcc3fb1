"""Simplifies index/valid pairs with tinygrad 0.10.2, as its lowering does.

    python simplify.py FILE [REPEATS]              (in an environment with tinygrad 0.10.2 and numpy)

A pair becomes a load in a kernel and goes through the same three rewrites as every kernel does
before it is rendered: symbolic, symbolic with the expander, symbolic with the rules for loads and
stores (`simplify_valid`, `uop_given_valid`). Each pair is a line: name, nodes, index, gate, apart by
tabs; the last line is the seconds that all pairs take, the least of all repeats. Nodes are counted
as on the other side: different nodes that compute index and gate, constants and variables included,
what bounds a variable not. Building the graph from text is not in the time.
"""

import re
import sys
import time

from tinygrad.codegen.devectorizer import devectorize, load_store_indexing
from tinygrad.codegen.expander import expander, migrate_indexing
from tinygrad.codegen.symbolic import mulacc_unrolled, sym
from tinygrad.dtype import dtypes
from tinygrad.ops import Ops, UOp, graph_rewrite

sys.setrecursionlimit(10000)


def read(path):
    """(name, {variable: last}, index, valid) of each pair; the expressions are text."""
    pairs = []
    for block in open(path).read().split("\n\n"):
        if not block.startswith("pair "):
            continue
        lines = block.split("\n")
        variables = {}
        for line in lines:
            if line.startswith("var "):
                _, name, bounds = line.split()
                variables[name] = int(bounds.split("..")[1])
        index, valid = [next(line[6:] for line in lines if line.startswith(word)) for word in ("index ", "valid ")]
        pairs.append((lines[0][5:], variables, index, valid))
    return pairs


class Node:
    """Stands for a UOp while Python evaluates the text, so that `!`, written `~`, binds as it should."""

    def __init__(self, uop):
        self.uop = uop

    def _binary(self, other, op):
        other = other.uop if isinstance(other, Node) else constant(other)
        return Node(UOp(op, dtypes.bool if op is Ops.CMPLT else self.uop.dtype, (self.uop, other)))

    def __add__(self, other): return self._binary(other, Ops.ADD)
    def __mul__(self, other): return self._binary(other, Ops.MUL)
    def __floordiv__(self, other): return self._binary(other, Ops.IDIV)
    def __mod__(self, other): return self._binary(other, Ops.MOD)
    def __lt__(self, other): return self._binary(other, Ops.CMPLT)
    # Gates are products of truths when they are made.
    def __and__(self, other): return self._binary(other, Ops.MUL)
    def __invert__(self): return Node(UOp(Ops.CMPNE, dtypes.bool, (self.uop, UOp.const(dtypes.bool, True))))


def constant(value):
    return UOp.const(dtypes.bool if isinstance(value, bool) else dtypes.int, value)


def variable(name, last):
    """A range or an index of the grid, as in the kernel that the pair is from."""
    if name.startswith("r"):
        return UOp(Ops.RANGE, dtypes.int, (constant(0), constant(last + 1)), int(name[1:]))
    return UOp(Ops.SPECIAL, dtypes.int, (), (name, last + 1))


def build(pair):
    name, variables, index, valid = pair
    scope = {name: Node(variable(name, last)) for name, last in variables.items()}
    scope |= {"true": Node(constant(True)), "false": Node(constant(False)), "N": lambda x: Node(constant(x))}
    # Numbers are nodes as well: constants among themselves must not be folded by Python.
    parse = lambda text: eval(re.sub(r"(?<![\w.])(-?\d+)\b", r"N(\1)", text.replace("!", "~")), {}, scope).uop
    index, valid = parse(index), parse(valid)
    buffer = UOp(Ops.DEFINE_GLOBAL, dtypes.float.ptr(1 << 30), (), 0)
    load = UOp(Ops.LOAD, dtypes.float, (buffer.index(index, valid),))
    out = UOp(Ops.DEFINE_GLOBAL, dtypes.float.ptr(1), (), 1)
    return UOp.sink(UOp.store(out.index(constant(0)), load))


def simplify(sink):
    """As `expand_rewrite` and the first step of `full_graph_rewrite`."""
    sink = graph_rewrite(sink, sym + migrate_indexing)
    sink = graph_rewrite(sink, sym + expander)
    return graph_rewrite(sink, LATE)


# Put together once, as tinygrad's own are not timed either; matchers compile when they are made.
LATE = sym + devectorize + load_store_indexing + mulacc_unrolled


def access(sink):
    """Index and gate (or None) of the load; None if it is gone."""
    loads = [node for node in sink.toposort if node.op is Ops.LOAD]
    if not loads:
        return None
    index = loads[0].src[0]
    return index.src[1], index.src[2] if len(index.src) == 3 else None


def node_count(index, gate):
    found, pending = set(), [index] + ([gate] if gate is not None else [])
    while pending:
        node = pending.pop()
        if node in found:
            continue
        found.add(node)
        if node.op is not Ops.RANGE:
            pending.extend(node.src)
    return len(found)


SYMBOL = {Ops.ADD: "+", Ops.MUL: "*", Ops.IDIV: "//", Ops.MOD: "%", Ops.CMPLT: "<", Ops.CMPNE: "!=", Ops.AND: "&",
          Ops.OR: "|", Ops.XOR: "^"}


def text(uop):
    if uop.op is Ops.RANGE:
        return f"r{uop.arg}"
    if uop.op is Ops.SPECIAL:
        return uop.arg[0]
    if uop.op is Ops.CONST:
        return str(uop.arg)
    if uop.op is Ops.CAST:
        return f"{uop.dtype.name}({text(uop.src[0])})"
    return "(" + SYMBOL[uop.op].join(map(text, uop.src)) + ")"


def main():
    pairs = read(sys.argv[1])
    repeats = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    for pair in pairs:
        found = access(simplify(build(pair)))
        if found is None:
            print(f"{pair[0]}\t0\t0\tFalse")
            continue
        index, gate = found
        print(f"{pair[0]}\t{node_count(index, gate)}\t{text(index)}\t{'True' if gate is None else text(gate)}")
    best = float("inf")
    for _ in range(repeats):
        # Nodes are new each time: what a node remembers of its bounds does not carry over.
        total = 0.0
        for pair in pairs:
            sink = build(pair)
            start = time.perf_counter()
            simplify(sink)
            total += time.perf_counter() - start
            del sink
        best = min(best, total)
    print(f"{best:.9f}")


if __name__ == "__main__":
    main()
