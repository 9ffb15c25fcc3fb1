#!/usr/bin/env python3
"""Checks the oracle against NumPy: `python3 oracle/check_numpy.py --programs FILE`.

Reads programs in the corpus's text form, separated by lines `---` (from FILE or stdin; `gradiff
gen --count 2000 --seed 1` prints such), has `cargo run --example eval` say what the oracle
expects, computes every program in NumPy, op by op in its dtype, and compares every element.
Skips what NumPy cannot say (bf16 without ml_dtypes) and counts it with the reason.
Exit codes: 0 all agree, 1 usage or fewer than --minimum programs compared, 2 a difference.
"""

import argparse
import collections
import functools
import json
import pathlib
import struct
import subprocess
import sys

import numpy as np

from numpy_methods import COMPUTED_WIDE, METHODS, PROMOTED, UNROUNDED

try:
    import ml_dtypes
except ImportError:
    ml_dtypes = None

DTYPES = {
    "bool": np.bool_, "i8": np.int8, "u8": np.uint8, "i16": np.int16, "u16": np.uint16,
    "i32": np.int32, "u32": np.uint32, "i64": np.int64, "u64": np.uint64,
    "f16": np.float16, "f32": np.float32, "f64": np.float64,
}
if ml_dtypes:
    DTYPES["bf16"] = ml_dtypes.bfloat16
NAMES = {np.dtype(kind): name for name, kind in DTYPES.items()}
UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
ORDER = ["bool", "i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64", "f16", "bf16", "f32", "f64"]
FLOATS = ORDER[9:]


class Skip(Exception):
    """NumPy cannot say what the program says."""

MASK32 = np.uint64(0xFFFFFFFF)


def dtype_of(name):
    if name not in DTYPES:
        raise Skip(f"no {name} without ml_dtypes")
    return np.dtype(DTYPES[name])


def promote(a, b):
    """By rule, not by lattice: floats absorb integers, then widths and signs are joined."""
    a, b = sorted((a, b), key=ORDER.index)
    if a == b or a == "bool":
        return b
    if b in FLOATS:
        return "f32" if (a, b) == ("f16", "bf16") else b
    (kind_a, bits_a), (kind_b, bits_b) = (a[0], int(a[1:])), (b[0], int(b[1:]))
    if kind_a == kind_b:
        return f"{kind_a}{max(bits_a, bits_b)}"
    signed, unsigned = (bits_a, bits_b) if kind_a == "i" else (bits_b, bits_a)
    if unsigned == 64:
        return "f16"
    return f"i{max(signed, 2 * unsigned)}"


def from_bits(bits, name):
    dtype = dtype_of(name)
    if name == "bool":
        return np.array(bits, dtype=np.bool_)
    return np.array(bits, dtype=UNSIGNED[dtype.itemsize]).view(dtype)


def literal(value, name):
    (kind, text), = value.items()
    if kind == "float":
        text = struct.unpack("<d", struct.pack("<Q", int(text)))[0]
        return cast(np.float64(text), name)
    if kind == "int" and name in FLOATS:
        return cast(np.float64(int(text)), name)
    return np.array(text if kind == "bool" else int(text), dtype=dtype_of(name))


def nearly(x):
    """Numbers in f32, cut, and odd in the last bit if inexact: so bf16 is rounded to once."""
    near = x.astype(np.float32)
    wide = near.astype(x.dtype)
    cut = np.where(np.abs(wide) > np.abs(x), np.nextafter(near, np.float32(0)), near)
    odd = (cut.view(np.uint32) | (wide != x)).astype(np.uint32).view(np.float32)
    return np.where(np.isnan(x), near, odd)


def cast(value, name):
    value, dtype = np.asarray(value), dtype_of(name)
    if value.dtype == dtype:
        return value
    # From integers NumPy rounds twice, to infinity beyond 2^53; ml_dtypes from all but f32.
    if name == "f16" and value.dtype.kind in "iu":
        value = value.astype(np.float64)
    if name == "bf16" and value.dtype != np.float32:
        value = nearly(value.astype(np.longdouble))
    return value.astype(dtype)


def integer(op, x, y):
    """Integer binary ops over Python's unbounded integers, wrapped; 0 where undefined."""
    dtype, bits = x.dtype, 8 * x.dtype.itemsize

    def one(a, b):
        a, b = int(a), int(b)
        if op in ("cdiv", "cmod", "floordiv", "floormod") and b == 0:
            return 0
        if op in ("shl", "shr") and not 0 <= b < bits:
            return 0
        result = {
            "add": lambda: a + b, "sub": lambda: a - b, "mul": lambda: a * b,
            "floordiv": lambda: a // b, "floormod": lambda: a % b,
            "cdiv": lambda: abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1),
            "cmod": lambda: abs(a) % abs(b) * (-1 if a < 0 else 1),
            "shl": lambda: a << b, "shr": lambda: a >> b,
        }[op]() % (1 << bits)
        if dtype.kind == "i" and result >= 1 << (bits - 1):
            result -= 1 << bits
        return result

    x, y = np.broadcast_arrays(x, y)
    flat = [one(a, b) for a, b in zip(x.ravel(), y.ravel())]
    return np.array(flat, dtype=dtype).reshape(x.shape)


def power(x, y):
    wide = [np.asarray(a, dtype=np.float64) for a in (x, y)]
    return np.power(*wide).astype(x.dtype)


def maximum(x, y, function):
    if x.dtype == np.bool_:
        return function(x.astype(np.uint8), y.astype(np.uint8)).astype(np.bool_)
    return function(x, y)


def threefry(x, y):
    words = [(x & MASK32).astype(np.uint32), (x >> np.uint64(32)).astype(np.uint32)]
    key = [(y & MASK32).astype(np.uint32), (y >> np.uint64(32)).astype(np.uint32)]
    key.append(key[0] ^ key[1] ^ np.uint32(0x1BD11BDA))
    words = [words[0] + key[0], words[1] + key[1]]
    for group in range(5):
        for turn in ((13, 15, 26, 6), (17, 29, 16, 24))[group % 2]:
            words[0] = words[0] + words[1]
            words[1] = words[0] ^ (words[1] << np.uint32(turn) | words[1] >> np.uint32(32 - turn))
        words[0] = words[0] + key[(group + 1) % 3]
        words[1] = words[1] + key[(group + 2) % 3] + np.uint32(group + 1)
    return words[0].astype(np.uint64) | words[1].astype(np.uint64) << np.uint64(32)


def binary(op, x, y):
    if op in ("add", "sub", "mul", "cdiv", "cmod", "floordiv", "floormod", "shl", "shr"):
        if x.dtype.kind in "iu":
            return integer(op, x, y)
    return {
        "add": lambda: x + y, "sub": lambda: x - y, "mul": lambda: x * y, "div": lambda: x / y,
        "pow": lambda: power(x, y),
        "max": lambda: maximum(x, y, np.maximum), "min": lambda: maximum(x, y, np.minimum),
        "cmplt": lambda: x < y, "cmpne": lambda: x != y, "cmpeq": lambda: x == y,
        "threefry": lambda: threefry(x, y),
        "and": lambda: x & y, "or": lambda: x | y, "xor": lambda: x ^ y,
    }[op]()


def unary(op, x):
    wide = x.astype(np.float32) if NAMES[x.dtype] in ("f16", "bf16") else x
    return {
        "neg": lambda: -x, "not": lambda: ~x, "exp2": lambda: np.exp2(wide).astype(x.dtype),
        "log2": lambda: np.log2(wide).astype(x.dtype), "sin": lambda: np.sin(wide).astype(x.dtype),
        "sqrt": lambda: np.sqrt(wide).astype(x.dtype),
        "recip": lambda: (wide.dtype.type(1) / wide).astype(x.dtype),
    }[op]()


def reduce(op, x, axes):
    axes, name = tuple(axes), NAMES[x.dtype]
    if op == "max":
        if name == "bool":
            return x.any(axis=axes, keepdims=True)
        least = -np.inf if name in FLOATS else np.iinfo(x.dtype).min
        return x.max(axis=axes, keepdims=True, initial=least).astype(x.dtype)
    result = {"bool": "i32", "i8": "i32", "i16": "i32", "u8": "u32", "u16": "u32"}.get(name, name)
    wide = "f32" if name in ("f16", "bf16") else result
    function = np.sum if op == "sum" else np.prod
    total = function(x.astype(DTYPES[wide]), axis=axes, keepdims=True, dtype=DTYPES[wide])
    return total.astype(DTYPES[result])


def gather(x, index, axis):
    out = np.zeros(index.shape, dtype=x.dtype)
    for place in np.ndindex(*index.shape):
        at = int(index[place])
        if 0 <= at < x.shape[axis]:
            out[place] = x[place[:axis] + (at,) + place[axis + 1:]]
    return out


def dtype_of_numbers(statement, values):
    """The dtype that the numbers of a method take."""
    names = [NAMES[values[src].dtype] for src in statement["srcs"]]
    if not names or statement["name"] in UNROUNDED:
        return "f64"
    if statement["name"] in COMPUTED_WIDE:
        return "f64" if "f64" in names else "f32"
    return names[0]


def arguments_of(statement, values):
    """The arguments of a method by name."""
    arguments = dict(statement["args"])
    for key, value in arguments.items():
        if not isinstance(value, dict):
            continue
        if "dtype" in value:
            arguments[key] = dtype_of(value["dtype"])
        else:
            number = literal(value, dtype_of_numbers(statement, values))
            arguments[key] = number if statement["srcs"] else float(number)
    return arguments


def method(statement, values):
    name = statement["name"]
    if name not in METHODS:
        raise Skip(f"no {name} here")
    arguments = arguments_of(statement, values)
    srcs = [values[i] for i in statement["srcs"]]
    if name in PROMOTED:
        common = functools.reduce(promote, (NAMES[src.dtype] for src in srcs))
        srcs = [cast(src, common) for src in srcs]
    return np.asarray(METHODS[name](*srcs, **arguments))


def arange(statement):
    bits = 8 * dtype_of(statement["dtype"]).itemsize
    numbers = range(statement["count"])
    wrapped = [(statement["start"] + i * statement["step"]) % (1 << bits) for i in numbers]
    return from_bits(wrapped, statement["dtype"])


def operands(statement, values, first=0):
    """The sources from number `first` on, promoted."""
    srcs = statement["srcs"][first:]
    names = [NAMES[values[src["value"]].dtype] for src in srcs if "value" in src]
    name = names[0]
    for other in names[1:]:
        name = promote(name, other)
    return [
        cast(values[src["value"]], name) if "value" in src else literal(src["literal"], name)
        for src in srcs
    ]


def step(statement, values):
    op = statement["op"]
    src = values[statement["src"]] if "src" in statement else None
    if op == "data":
        return from_bits(statement["bits"], statement["dtype"]).reshape(statement["shape"])
    if op == "arange":
        return arange(statement)
    if op == "where":
        condition = statement["srcs"][0]
        chosen = values[condition["value"]] if "value" in condition \
            else literal(condition["literal"], "bool")
        return np.where(chosen, *operands(statement, values, 1))
    if op == "mulacc":
        x, y, z = operands(statement, values)
        return binary("add", binary("mul", x, y), z)
    if op == "cast":
        return cast(src, statement["dtype"])
    if op == "bitcast":
        return src.view(dtype_of(statement["dtype"]))
    if op.startswith("reduce_"):
        return reduce(op[len("reduce_"):], src, statement["axes"])
    if op == "reshape":
        return src.reshape(statement["shape"])
    if op == "permute":
        return src.transpose(statement["axes"])
    if op == "expand":
        return np.broadcast_to(src, statement["shape"])
    if op == "pad":
        value = literal(statement["value"], NAMES[src.dtype])
        out = np.full([b + n + a for (b, a), n in zip(statement["pads"], src.shape)], value)
        out[tuple(slice(b, b + n) for (b, _), n in zip(statement["pads"], src.shape))] = src
        return out
    if op == "shrink":
        return src[tuple(slice(*ends) for ends in statement["ranges"])]
    if op == "flip":
        return np.flip(src, statement["axes"])
    if op == "cat":
        return np.concatenate([values[i] for i in statement["srcs"]], axis=statement["axis"])
    if op == "gather":
        return gather(src, values[statement["index"]], statement["axis"])
    if op in ("same", "detach"):
        return src
    if op == "gradient":
        raise Skip("gradients: check_torch.py has them")
    if op == "method":
        return method(statement, values)
    return unary(op, src) if "src" in statement else binary(op, *operands(statement, values))


def real(bits):
    return struct.unpack("<d", struct.pack("<Q", bits))[0]


def differs(element, got, bits):
    """Why a found element is not among what the oracle expects; None if it is."""
    kind = element[0]
    if kind == "exact":
        wrong = bits != element[1]
    elif kind == "zero":
        wrong = got != 0
    elif kind == "nan":
        wrong = not np.isnan(got)
    else:
        center, low, radius = (real(part) for part in element[1:])
        wrong = not abs((float(got) - center) - low) <= radius
        element = [kind, center, low, radius]
    return f"oracle {element}, found {got} (bits {bits:#x})" if wrong else None


def compare(output, value, counts):
    if NAMES[value.dtype] != output["dtype"] or list(value.shape) != output["shape"]:
        return f"oracle {output['dtype']}{output['shape']}, found {value.dtype}{value.shape}"
    value = np.ascontiguousarray(value).reshape(-1)
    patterns = value.view(UNSIGNED[value.dtype.itemsize])
    for index, element in enumerate(output["elements"]):
        if element[0] == "unspecified":
            counts["unspecified: " + element[1]] += 1
            continue
        counts["elements"] += 1
        counts["elements " + element[0]] += 1
        wrong = differs(element, value[index], int(patterns[index]))
        if wrong:
            return f"element {index}: {wrong}"
    return None


def check(line, counts):
    case = json.loads(line)
    if "error" in case:
        counts["refused: " + case["error"].split(":")[0]] += 1
        return f"refused: {case['error']}"
    try:
        values = []
        for statement in case["statements"]:
            values.append(np.asarray(step(statement, values)))
        wrong = None
        for output in case["outputs"]:
            wrong = wrong or compare(output, values[output["value"]], counts)
    except Skip as skip:
        counts[f"skipped: {skip}"] += 1
        return None
    counts["programs"] += 1
    return wrong


def oracle(text):
    command = ["cargo", "run", "--quiet", "--release", "-p", "gradiff-oracle", "--example", "eval"]
    root = pathlib.Path(__file__).resolve().parent.parent
    run = subprocess.run(command, input=text, stdout=subprocess.PIPE, text=True, cwd=root, check=True)
    return run.stdout.splitlines()


def summary(counts, differences, minimum, notes=()):
    """Prints what was compared and skipped, and returns the exit code."""
    for name, count in sorted(counts.items()):
        print(f"{name}: {count}")
    for note in notes:
        print(note)
    print(f"differences: {differences}")
    if differences:
        return 2
    if counts["programs"] < minimum:
        print(f"only {counts['programs']} programs compared, {minimum} asked for")
        return 1
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", help="file of programs separated by ---; default stdin")
    parser.add_argument("--minimum", type=int, default=2000, help="programs to compare at least")
    parser.add_argument("--show", type=int, default=5, help="how many differences to print")
    options = parser.parse_args()
    text = pathlib.Path(options.programs).read_text() if options.programs else sys.stdin.read()
    np.seterr(all="ignore")
    counts, differences = collections.Counter(), 0
    for line in oracle(text):
        wrong = check(line, counts)
        if wrong:
            differences += 1
            if differences <= options.show:
                print(f"DIFFERENCE {wrong}\n{json.loads(line)['text']}\n---")
    return summary(counts, differences, options.minimum)


if __name__ == "__main__":
    sys.exit(main())
