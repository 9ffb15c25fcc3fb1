#!/usr/bin/env python3
"""An engine of one's own as a peer of gradiff, complete and without any package:

    gradiff hunt --backends "exec:python3 fuzz/peers/example.py"
    gradiff hunt --backends "exec:python3 fuzz/peers/example.py --wrong" --max-findings 1

It computes with lists of numbers in row-major order. The second command judges it with a mistake:
`flip` forgets all axes but the first.
"""

import itertools
import json
import math
import struct
import sys

CODES = {"bool": "?", "i32": "i", "f32": "f"}
IS_WRONG = "--wrong" in sys.argv


def unpacked(dtype, data):
    raw = bytes.fromhex(data)
    return list(struct.unpack(f"<{len(raw) // struct.calcsize(CODES[dtype])}{CODES[dtype]}", raw))


def rounded(x):
    """The f32 nearest to a number."""
    try:
        return struct.unpack("<f", struct.pack("<f", x))[0]
    except OverflowError:
        return math.copysign(math.inf, x)


def wrapped(x):
    return (int(x) + 2**31) % 2**32 - 2**31


def positions(shape):
    return itertools.product(*map(range, shape))


def offset(position, shape):
    """The number of the element at a position, in row-major order; axes of size 1 are broadcast."""
    number = 0
    for index, size in zip(position[len(position) - len(shape):], shape):
        number = number * size + (0 if size == 1 else index)
    return number


def maximum(x, y):
    return x if x != x or y < x else y


ELEMENTWISE = {
    "neg": lambda x: -x, "add": lambda x, y: x + y, "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y, "max": maximum, "cmplt": lambda x, y: x < y,
    "cmpne": lambda x, y: x != y, "where": lambda c, x, y: x if c else y, "cast": lambda x: x,
    "contiguous": lambda x: x, "realize": lambda x: x, "detach": lambda x: x,
    "expand": lambda x: x,
}
SMALLEST = {"f32": -math.inf, "i32": -2**31, "bool": False}
REDUCE = {"reduce_sum": (lambda x, y: x + y, lambda dtype: 0),
          "reduce_max": (maximum, SMALLEST.get)}
# From the position in the result to the position in the source; None where there is no element.
MOVE = {
    "permute": lambda at, s, shape: tuple(at[s["axes"].index(axis)] for axis in range(len(at))),
    "flip": lambda at, s, shape: tuple(
        size - 1 - i if axis in (s["axes"][:1] if IS_WRONG else s["axes"]) else i
        for axis, (i, size) in enumerate(zip(at, shape))),
    "shrink": lambda at, s, shape: tuple(i + start for i, (start, _) in zip(at, s["ranges"])),
    "pad": lambda at, s, shape: None if any(
        not before <= i < before + size for i, (before, _), size in zip(at, s["pads"], shape)
    ) else tuple(i - before for i, (before, _) in zip(at, s["pads"])),
}


def stored(value, dtype):
    """A number as an element of this dtype."""
    if dtype == "bool":
        return bool(value)
    return rounded(float(value)) if dtype == "f32" else wrapped(value)


def statement(s, values):
    """Returns shape, dtype and elements of what a statement computes."""
    op, shape, dtype = s["op"], s["shape"], s["dtype"]
    count = math.prod(shape)
    done = lambda elements: (shape, dtype, [stored(x, dtype) for x in elements])
    if op == "input":
        return done(unpacked(dtype, s["bytes"]))
    if op == "const":
        return done(unpacked(dtype, s["bytes"]) * count)
    if op == "arange":
        return done(s["start"] + i * s["step"] for i in range(count))
    sources = [([], x["dtype"], unpacked(x["dtype"], x["bytes"])) if isinstance(x, dict)
               else values[x] for x in s["src"]]
    if op in ELEMENTWISE:
        # Operands are first converted to their common dtype, but for the condition of `where`.
        for number, (size, kind, elements) in enumerate(sources):
            if "operands" in s and not (op == "where" and number == 0):
                elements = [stored(x, s["operands"]) for x in elements]
            sources[number] = (size, kind, elements)
        return done(ELEMENTWISE[op](*(x[offset(at, size)] for size, _, x in sources))
                    for at in positions(shape))
    size, _, elements = sources[0]
    if op == "reshape":
        return done(elements)
    if op in MOVE:
        padding = unpacked(dtype, s["bytes"])[0] if op == "pad" else None
        places = (MOVE[op](at, s, size) for at in positions(shape))
        return done(padding if at is None else elements[offset(at, size)] for at in places)
    function, start = REDUCE[op]
    result = [start(dtype)] * count
    for at in positions(size):
        number = offset(at, shape)
        result[number] = stored(function(result[number], elements[offset(at, size)]), dtype)
    return done(result)


def run(program):
    values = []
    for s in program["statements"]:
        values.append(statement(s, values))
    return [{"dtype": dtype, "shape": shape,
             "bytes": struct.pack(f"<{len(x)}{CODES[dtype]}", *x).hex()}
            for shape, dtype, x in (values[output] for output in program["outputs"])]


ops = ["input", "const", "arange", "reshape", *ELEMENTWISE, *REDUCE, *MOVE]
for line in sys.stdin:
    request = json.loads(line)
    if "gradiff" in request:
        answer = {"gradiff": 1, "name": "example", "ops": ops, "dtypes": list(CODES)}
    elif "run" in request:
        answer = {"values": run(request["run"])}
    else:
        answer = {"refused": "an unknown request"}
    answer["id"] = request["id"]
    print(json.dumps(answer), flush=True)
