#!/usr/bin/env python3
"""Checks the oracle's derivatives against PyTorch: `python3 oracle/check_torch.py --programs FILE`.

Reads programs in the corpus's text form as check_numpy.py does (`gradiff gen --lanes gradients
--count 4000 --seed 1` prints such), and compares the elements of every output that depends on a
`gradient` statement. Floats are computed in f64 and not rounded but by casts, so that a result is
what the oracle's balls must contain; PyTorch's autograd differentiates them, twice and more where
gradients depend on gradients. Integers, bools and the positions that movements select are NumPy's
(check_numpy.py). torch_methods.py has the methods, and where PyTorch's derivatives are others.
Skips what PyTorch cannot say and counts it with the reason.
Exit codes: 0 all agree, 1 usage or fewer than --minimum programs compared, 2 a difference.
"""

import argparse
import collections
import json
import pathlib
import sys
import warnings

import numpy as np
import torch

import check_numpy
from check_numpy import FLOATS, NAMES, Skip, summary
from torch_methods import (
    DIFFERENCES, FLOWS, PASSIVE, POSITIONS, REDUCTIONS, TWICE, UNPROMOTED, Real, changed,
    is_movement, rounded,
)

UNARY = {
    "neg": torch.neg, "exp2": torch.exp2, "log2": torch.log2, "sin": torch.sin,
    "sqrt": torch.sqrt, "recip": torch.reciprocal,
}
BINARY = {
    "add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div, "pow": torch.pow,
    "max": torch.maximum, "min": torch.minimum,
    "where": lambda x, y, condition: torch.where(condition, x, y),
    "mulacc": lambda x, y, z: x * y + z,
}
MOVEMENTS = {"reshape", "permute", "expand", "pad", "shrink", "flip", "cat", "gather"}
SOURCES = ("src", "index", "of", "wrt")


class Arrays:
    """The values as NumPy arrays, floats rounded to their dtype."""

    def __init__(self, values):
        self.values = values

    def __getitem__(self, number):
        value = self.values[number]
        return value.array() if isinstance(value, Real) else value


def sources(statement):
    """The numbers of the values that a statement reads."""
    found = [statement[key] for key in SOURCES if key in statement]
    for src in statement.get("srcs", []):
        if not isinstance(src, dict):
            found.append(src)
        elif "value" in src:
            found.append(src["value"])
    return found


def name_of(value):
    return value.name if isinstance(value, Real) else NAMES[value.dtype]


def promoted(values):
    name = name_of(values[0])
    for value in values[1:]:
        name = check_numpy.promote(name, name_of(value))
    return name


def real(value, name):
    """The floats of a value in a dtype that holds them."""
    if isinstance(value, Real):
        return value.tensor
    return Real.of(check_numpy.cast(value, name), name).tensor


class Rounding(torch.autograd.Function):
    """A cast between floats, whose derivative is that of its source."""

    @staticmethod
    def forward(ctx, x, source, target):
        exact = rounded(rounded(x.detach().numpy(), source).astype(np.float64), target)
        return torch.from_numpy(exact.astype(np.float64))

    @staticmethod
    def backward(ctx, adjoint):
        return adjoint, None, None


def gradient(of, wrt):
    found, = torch.autograd.grad(of.tensor.sum(), wrt.tensor, create_graph=True, allow_unused=True)
    return Real(torch.zeros_like(wrt.tensor) if found is None else found, wrt.name)


def moved_sources(statement):
    """The sources whose elements a movement moves."""
    srcs = [statement["src"]] if "src" in statement else statement["srcs"]
    if statement.get("name") == "meshgrid":
        return [srcs[dict(statement["args"])["part"]]]
    return srcs[:1] if statement.get("name") in ("index_select", "get") else srcs


def moved(statement, values):
    """Has NumPy move the numbers of the elements, from 1 on, and selects those; 0 is filled."""
    srcs = moved_sources(statement)
    name = name_of(values[srcs[0]])
    fill = real(check_numpy.literal(statement["value"], name), name).item() \
        if "value" in statement else 0.0
    parts, numbers, count = [torch.full((1,), fill, dtype=torch.float64)], {}, 1
    for src in sources(statement):
        if src not in srcs:
            numbers[src] = Arrays(values)[src]
    for src in dict.fromkeys(srcs):
        tensor = values[src].tensor
        size = tensor.numel()
        numbers[src] = np.arange(count, count + size).reshape(tuple(tensor.shape))
        parts.append(tensor.reshape(-1))
        count += size
    selected = check_numpy.step(dict(statement, value={"int": "0"}), numbers)
    table = torch.cat(parts)
    return Real(table[torch.from_numpy(np.array(selected, dtype=np.int64))], name)


def elementwise(statement, values):
    srcs = statement.get("srcs") or [{"value": statement["src"]}]
    passive = []
    if statement["op"] == "where":
        condition, *srcs = srcs
        chosen = values[condition["value"]] if "value" in condition \
            else check_numpy.literal(condition["literal"], "bool")
        passive = [torch.from_numpy(np.array(chosen))]
    name = promoted([values[src["value"]] for src in srcs if "value" in src])
    tensors = [
        real(values[src["value"]] if "value" in src
             else check_numpy.literal(src["literal"], name), name)
        for src in srcs
    ]
    return Real((UNARY | BINARY)[statement["op"]](*tensors, *passive), name)


def method(statement, values, counts, twice):
    name, srcs = statement["name"], [values[i] for i in statement["srcs"]]
    arguments = check_numpy.arguments_of(statement, Arrays(values))
    for key, value in arguments.items():
        if isinstance(value, (np.generic, np.ndarray)):
            arguments[key] = float(value)
    unpromoted = UNPROMOTED.get(name, ())
    dtype = promoted([src for number, src in enumerate(srcs) if number not in unpromoted])
    positions = POSITIONS.get(name, ())
    tensors = [
        torch.from_numpy(np.array(src)) if number in positions and not isinstance(src, Real)
        else real(src, dtype)
        for number, src in enumerate(srcs)
    ]
    function = (FLOWS | TWICE if twice else FLOWS)[name]
    return Real(function(*tensors, **arguments, counts=counts), dtype)


def step(statement, values, counts, twice):
    op = statement["op"]
    floats = [src for src in sources(statement) if isinstance(values[src], Real)]
    if op == "gradient":
        return gradient(values[statement["of"]], values[statement["wrt"]])
    if op in ("same", "detach") and floats:
        x = values[floats[0]]
        return Real(x.tensor.detach() if op == "detach" else x.tensor, x.name)
    if op == "cast" and floats and statement["dtype"] in FLOATS:
        x, target = values[floats[0]], statement["dtype"]
        return Real(Rounding.apply(x.tensor, x.name, target), target)
    if floats and (op in UNARY or op in BINARY):
        if op != "where" or any(isinstance(values[src["value"]], Real)
                                for src in statement["srcs"][1:] if "value" in src):
            return elementwise(statement, values)
    if floats and op.startswith("reduce_"):
        x = values[floats[0]]
        return Real(REDUCTIONS[op](x.tensor, statement["axes"], counts, twice), x.name)
    if op in MOVEMENTS and isinstance(values[sources(statement)[0]], Real):
        return moved(statement, values)
    if op == "method" and floats and statement["name"] not in PASSIVE:
        if is_movement(statement):
            if isinstance(values[moved_sources(statement)[0]], Real):
                return moved(statement, values)
        elif statement["name"] in FLOWS:
            return method(statement, values, counts, twice)
        else:
            raise Skip(f"no {statement['name']} here")
    found = np.asarray(check_numpy.step(statement, Arrays(values)))
    return Real.of(found, NAMES[found.dtype]) if NAMES[found.dtype] in FLOATS else found


def evaluated(statements, counts):
    """The values of a program, and which of them depend on a gradient."""
    values, depends = [], []
    twice = sum(statement["op"] == "gradient" for statement in statements) > 1
    for statement in statements:
        try:
            value = step(statement, values, counts, twice)
        except (RuntimeError, ValueError, IndexError) as error:
            name = statement.get("name", statement["op"])
            raise Skip(f"PyTorch refuses {name}: {str(error).splitlines()[0]}") from error
        values.append(value.fresh() if isinstance(value, Real) else value)
        depends.append(
            statement["op"] == "gradient" or any(depends[src] for src in sources(statement)))
    return values, depends


def compare(output, value, counts):
    array = value.array() if isinstance(value, Real) else np.ascontiguousarray(value)
    shape = list(array.shape)
    if NAMES[array.dtype] != output["dtype"] or shape != output["shape"]:
        return f"oracle {output['dtype']}{output['shape']}, found {array.dtype}{shape}"
    array = array.reshape(-1)
    patterns = array.view(check_numpy.UNSIGNED[array.dtype.itemsize])
    unrounded = value.tensor.detach().reshape(-1).numpy() if isinstance(value, Real) else array
    for index, element in enumerate(output["elements"]):
        if element[0] == "unspecified":
            counts["unspecified: " + element[1]] += 1
            continue
        counts["elements"] += 1
        counts["elements " + element[0]] += 1
        found = unrounded[index] if element[0] == "ball" else array[index]
        wrong = check_numpy.differs(element, found, int(patterns[index]))
        if wrong:
            return f"value {output['value']}, element {index}: {wrong}"
    return None


def check(line, counts):
    case = json.loads(line)
    if "error" in case:
        counts["refused: " + case["error"].split(":")[0]] += 1
        return f"refused: {case['error']}"
    if not any(statement["op"] == "gradient" for statement in case["statements"]):
        counts["skipped: no gradient"] += 1
        return None
    try:
        values, depends = evaluated(case["statements"], counts)
    except Skip as skip:
        counts[f"skipped: {skip}"] += 1
        return None
    outputs = [output for output in case["outputs"] if depends[output["value"]]]
    if not outputs:
        counts["skipped: no output depends on a gradient"] += 1
        return None
    before, wrong = counts["elements"], None
    for output in outputs:
        wrong = wrong or compare(output, values[output["value"]], counts)
    if counts["elements"] == before and not wrong:
        counts["programs without a specified element"] += 1
        return None
    counts["programs"] += 1
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", help="file of programs separated by ---; default stdin")
    parser.add_argument("--minimum", type=int, default=2000, help="programs to compare at least")
    parser.add_argument("--show", type=int, default=5, help="how many differences to print")
    options = parser.parse_args()
    text = pathlib.Path(options.programs).read_text() if options.programs else sys.stdin.read()
    np.seterr(all="ignore")
    warnings.filterwarnings("ignore", message=".*degrees of freedom is <= 0")
    torch.set_num_threads(1)
    counts, differences = collections.Counter(), 0
    for line in check_numpy.oracle(text):
        wrong = check(line, counts)
        if wrong:
            differences += 1
            if differences <= options.show:
                print(f"DIFFERENCE {wrong}\n{json.loads(line)['text']}\n---")
    for row in DIFFERENCES:
        name = f"differs: {row.method}"
        counts[f"{name} {row.where}: PyTorch {row.theirs}, stated {row.ours}"] = counts.pop(name, 0)
    notes = (
        f"other than in the table of differences, {row} (PyTorch {torch.__version__})"
        for row in changed()
    )
    return summary(counts, differences, options.minimum, notes)


if __name__ == "__main__":
    sys.exit(main())
