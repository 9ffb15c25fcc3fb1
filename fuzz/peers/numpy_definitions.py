"""The operations of programs in NumPy, by their definitions: each in its dtype, rounded once.

Statements are those of the protocol; values are arrays. A second oracle, which knows nothing of the
first one, and a slow one. numpy_methods.py has the methods.
"""

import functools
import struct

import numpy as np
from __main__ import Skip

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


def array(name, shape, data):
    """The array of these bytes, in hexadecimal."""
    return np.frombuffer(bytes.fromhex(data), dtype_of(name)).reshape(shape)


def number(text, name):
    """A number that is written, in a dtype."""
    if text.lstrip("-").isdigit():
        return cast(np.float64(int(text)), name) if name in FLOATS else wrapped(int(text), name)
    return cast(np.float64(text), name)


def wrapped(value, name):
    dtype = dtype_of(name)
    if name == "bool":
        return np.array(value != 0)
    value %= 1 << 8 * dtype.itemsize
    return np.array(value, UNSIGNED[dtype.itemsize]).view(dtype)


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


def dtype_of_numbers(statement, sources):
    """The dtype that the numbers of a method take."""
    names = [NAMES[source.dtype] for source in sources]
    if not names or statement["op"] in UNROUNDED:
        return "f64"
    if statement["op"] in COMPUTED_WIDE:
        return "f64" if "f64" in names else "f32"
    return names[0]


def arguments_of(statement, sources):
    """The arguments of a method by name."""
    arguments = dict(statement["args"])
    for key, value in arguments.items():
        if not isinstance(value, dict):
            continue
        if "dtype" in value:
            arguments[key] = dtype_of(value["dtype"])
        else:
            found = number(value["number"], dtype_of_numbers(statement, sources))
            arguments[key] = found if sources else float(found)
    return arguments


def method(statement, sources):
    name = statement["op"]
    if name not in METHODS:
        raise Skip(f"it has no {name}")
    arguments = arguments_of(statement, sources)
    if name in PROMOTED:
        common = functools.reduce(promote, (NAMES[source.dtype] for source in sources))
        sources = [cast(source, common) for source in sources]
    return np.asarray(METHODS[name](*sources, **arguments))


def arange(statement):
    numbers = range(statement["shape"][0])
    values = [wrapped(statement["start"] + at * statement["step"], statement["dtype"])
              for at in numbers]
    return np.array(values, dtype_of(statement["dtype"]))


def sources_of(statement, values):
    """The sources, in the dtype in which the statement takes them."""
    found, wanted = [], statement.get("operands")
    # The condition of `where` stays as it is.
    first = 1 if statement["op"] == "where" else 0
    for at, source in enumerate(statement.get("src", [])):
        x = array(source["dtype"], (), source["bytes"]) if isinstance(source, dict) \
            else values[source]
        found.append(cast(x, wanted) if wanted and first <= at else x)
    return found


def moved(op, x, statement):
    """A movement of a source."""
    if op == "reshape":
        return x.reshape(statement["shape"])
    if op == "permute":
        return x.transpose(statement["axes"])
    if op == "expand":
        return np.broadcast_to(x, statement["shape"])
    if op == "shrink":
        return x[tuple(slice(*ends) for ends in statement["ranges"])]
    if op == "flip":
        return np.flip(x, statement["axes"])
    out = np.full(statement["shape"], array(statement["dtype"], (), statement["bytes"]), x.dtype)
    out[tuple(slice(b, b + n) for (b, _), n in zip(statement["pads"], x.shape))] = x
    return out


def step(statement, values):
    """The value of a statement."""
    op, sources = statement["op"], sources_of(statement, values)
    if "args" in statement:
        return method(statement, sources)
    if op == "input":
        return array(statement["dtype"], statement["shape"], statement["bytes"])
    if op == "const":
        return np.broadcast_to(array(statement["dtype"], (), statement["bytes"]),
                               statement["shape"])
    if op == "arange":
        return arange(statement)
    if op == "gradient":
        raise Skip("it has no gradients")
    if op == "where":
        return np.where(*sources)
    if op == "mulacc":
        return binary("add", binary("mul", *sources[:2]), sources[2])
    if op == "cast":
        return cast(sources[0], statement["dtype"])
    if op == "bitcast":
        return np.ascontiguousarray(sources[0]).view(dtype_of(statement["dtype"])) \
            .reshape(statement["shape"])
    if op.startswith("reduce_"):
        return reduce(op[len("reduce_"):], sources[0], statement["axes"])
    if op in ("reshape", "permute", "expand", "pad", "shrink", "flip"):
        return moved(op, sources[0], statement)
    if op == "cat":
        return np.concatenate(sources, axis=statement["axis"])
    if op == "gather":
        return gather(*sources, statement["axis"])
    if op in ("contiguous", "realize", "detach"):
        return sources[0]
    return unary(op, *sources) if len(sources) == 1 else binary(op, *sources)
