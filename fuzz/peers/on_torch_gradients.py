"""PyTorch's autograd as a peer, for programs with gradients.

Floats are computed in f64 and not rounded but by casts, so that a result is what the oracle's balls
must contain; autograd differentiates them, twice and more where gradients depend on gradients.
Integers, bools, the positions that movements select, and values that depend on no gradient are those
of numpy_definitions.py. torch_methods.py has the methods, and where PyTorch's derivatives are
others than stated. It writes no scripts.
"""

import collections
import traceback
import warnings

import numpy as np
import numpy_definitions
import torch
from numpy_definitions import NAMES
from torch_methods import (
    FLOWS, PASSIVE, POSITIONS, REDUCTIONS, TWICE, UNPROMOTED, Real, changed, is_movement, rounded,
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


class Arrays:
    """The values as NumPy arrays, floats rounded to their dtype."""

    def __init__(self, values):
        self.values = values

    def __getitem__(self, number):
        value = self.values[number]
        return value.array() if isinstance(value, Real) else value


def sources(statement):
    """The numbers of the values that a statement reads."""
    return [source for source in statement.get("src", []) if not isinstance(source, dict)]


def name_of(value):
    return value.name if isinstance(value, Real) else NAMES[value.dtype]


def promoted(values):
    name = name_of(values[0])
    for value in values[1:]:
        name = numpy_definitions.promote(name, name_of(value))
    return name


def real(value, name):
    """The floats of a value in a dtype that holds them."""
    if isinstance(value, Real):
        return value.tensor
    return Real.of(numpy_definitions.cast(value, name), name).tensor


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


SELECTIONS = ("gather", "index_select", "get", "masked_select_sized", "max_unpool2d")


def moved_sources(statement):
    """The sources whose elements a movement moves."""
    srcs, op = sources(statement), statement["op"]
    if op == "meshgrid":
        return [srcs[statement["args"]["part"]]]
    # The other sources are positions or a mask.
    return srcs[:1] if op in SELECTIONS else srcs


def moved(statement, values):
    """Has NumPy move the numbers of the elements, from 1 on, and selects those; 0 is filled."""
    srcs = moved_sources(statement)
    name = name_of(values[srcs[0]])
    fill = real(numpy_definitions.array(name, (), statement["bytes"]), name).item() \
        if statement["op"] == "pad" else 0.0
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
    of_numbers = dict(statement, dtype="i64", bytes="00" * 8)
    selected = numpy_definitions.step(of_numbers, numbers)
    table = torch.cat(parts)
    return Real(table[torch.from_numpy(np.array(selected, dtype=np.int64))], name)


def operand(source, values):
    """A source, or a literal as an array."""
    if isinstance(source, dict):
        return numpy_definitions.array(source["dtype"], (), source["bytes"])
    return values[source]


def elementwise(statement, values):
    srcs = [operand(source, values) for source in statement["src"]]
    passive = []
    if statement["op"] == "where":
        chosen, *srcs = srcs
        passive = [torch.from_numpy(np.array(chosen))]
    name = statement.get("operands") or statement["dtype"]
    tensors = [real(src, name) for src in srcs]
    return Real((UNARY | BINARY)[statement["op"]](*tensors, *passive), name)


def method(statement, values, counts, twice):
    name, srcs = statement["op"], [values[i] for i in statement["src"]]
    arrays = [Arrays(values)[i] for i in statement["src"]]
    arguments = numpy_definitions.arguments_of(statement, arrays)
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
        of, wrt = statement["src"]
        return gradient(values[of], values[wrt])
    if op in ("contiguous", "realize", "detach") and floats:
        x = values[floats[0]]
        return Real(x.tensor.detach() if op == "detach" else x.tensor, x.name)
    if op == "cast" and floats and statement["dtype"] in FLOATS:
        x, target = values[floats[0]], statement["dtype"]
        return Real(Rounding.apply(x.tensor, x.name, target), target)
    if floats and (op in UNARY or op in BINARY):
        chosen = sources(dict(src=statement["src"][1:])) if op == "where" else floats
        if any(isinstance(values[src], Real) for src in chosen):
            return elementwise(statement, values)
    if floats and op.startswith("reduce_"):
        x = values[floats[0]]
        return Real(REDUCTIONS[op](x.tensor, statement["axes"], counts, twice), x.name)
    if op in MOVEMENTS and isinstance(values[sources(statement)[0]], Real):
        return moved(statement, values)
    if "args" in statement and floats and op not in PASSIVE:
        if is_movement(statement):
            if isinstance(values[moved_sources(statement)[0]], Real):
                return moved(statement, values)
        elif op in FLOWS:
            return method(statement, values, counts, twice)
        else:
            raise Skip(f"it has no {op}")
    found = np.asarray(numpy_definitions.step(statement, Arrays(values)))
    return Real.of(found, NAMES[found.dtype]) if NAMES[found.dtype] in FLOATS else found


def is_of_definitions(error):
    """Returns whether an error arose in the definitions in NumPy, which have all operations."""
    frames = traceback.walk_tb(error.__traceback__)
    files = {frame.f_code.co_filename for frame, _ in frames}
    return not files.isdisjoint(("numpy_definitions.py", "numpy_methods.py"))


class Gradients(Adapter):
    NAME = f"gradients of torch {torch.__version__}"
    DTYPES = {name: name for name in numpy_definitions.DTYPES}

    def run(self, program):
        statements = program["statements"]
        count = sum(statement["op"] == "gradient" for statement in statements)
        if count == 0:
            raise Skip("it has no gradient to compare")
        values, depends, counts = [], [], collections.Counter()
        for statement in statements:
            try:
                value = step(statement, values, counts, 1 < count)
            except (RuntimeError, ValueError, IndexError) as error:
                if is_of_definitions(error):
                    raise
                first = (str(error).splitlines() or [""])[0]
                raise Skip(f"PyTorch refuses {statement['op']}: {first}") from error
            values.append(value.fresh() if isinstance(value, Real) else value)
            depends.append(
                statement["op"] == "gradient" or any(depends[src] for src in sources(statement)))
        # Where no gradient is involved, only casts are rounded here.
        plain = []
        for statement, is_found in zip(statements, depends):
            value = None if is_found else numpy_definitions.step(statement, plain)
            plain.append(None if is_found else np.asarray(value))
        return [self.read(values[output] if depends[output] else plain[output])
                for output in program["outputs"]]

    def read(self, value):
        array = np.asarray(value.array() if isinstance(value, Real) else value)
        return NAMES[array.dtype], array.shape, np.ascontiguousarray(array).tobytes()

    def script(self, program, expected):
        raise Skip("it writes no scripts")


np.seterr(all="ignore")
warnings.simplefilter("ignore")
torch.set_num_threads(1)
for row in changed():
    print(f"derivatives other than in the table of differences: {row}", file=sys.stderr)
ADAPTER = Gradients()
