"""Prints random numbers of tinygrad 0.10.2, which gradiff's are compared with.

    python3 -m venv VENV && VENV/bin/pip install tinygrad==0.10.2
    VENV/bin/python oracle/upstream/random_numbers.py > engine/tests/random_numbers.txt

A line is `seed N`, or a call and the bits of its result: function, number of the device in the order
of first use, dtype, shape, parameters, `=`, numbers in hexadecimal. Calls after a seed follow each
other. tinygrad's device PYTHON computes them, one operation at a time, each rounded once; constants
are rounded too, as all compiled devices do. f16, which that device has with Python 3.12 only, and
bf16, which it does not have, are taken from the same words (`halves`).
"""

import base64
import ctypes
import hashlib
import os
import pickle
import struct
import sys

os.environ["PYTHON"] = "1"
sys.path.pop(0)  # The folder of this file.

from tinygrad import Device, Tensor, dtypes  # noqa: E402
from tinygrad.ops import Ops  # noqa: E402
from tinygrad.runtime.ops_python import PythonRenderer  # noqa: E402

FLOATS = {"f32": dtypes.float32, "f64": dtypes.float64}
MANTISSA_BITS = {"f16": 10, "bf16": 7}
BITS = {1: dtypes.uint8, 2: dtypes.uint16, 4: dtypes.uint32, 8: dtypes.uint64}
INTS = {
    "i8": dtypes.int8, "u8": dtypes.uint8, "i16": dtypes.int16, "u16": dtypes.uint16,
    "i32": dtypes.int32, "u32": dtypes.uint32, "i64": dtypes.int64, "u64": dtypes.uint64,
}  # fmt: skip


def round_constants():
    render = PythonRenderer.render

    def rounded(self, uops):
        rows = []
        for op, dtype, sources, arg in pickle.loads(base64.b64decode(render(self, uops))):
            if op is Ops.CONST and dtype == dtypes.float32:
                arg = ctypes.c_float(arg).value
            rows.append((op, dtype, sources, arg))
        return base64.b64encode(pickle.dumps(rows)).decode()

    PythonRenderer.render = rounded


def device(number):
    return f"PYTHON:{number}" if number else "PYTHON"


def show(call, tensor):
    bits = tensor.flatten().bitcast(BITS[tensor.dtype.itemsize])
    print(call, "=", *(f"{word:x}" for word in bits.tolist()))


def text(shape):
    return ",".join(map(str, shape)) or "scalar"


def seed(number):
    Tensor.manual_seed(number)
    print("seed", number)


def rand(shape, dtype="f32", number=0):
    call = f"rand {number} {dtype} {text(shape)}"
    if dtype in MANTISSA_BITS:
        return halves(call, shape, dtype, number)
    show(call, Tensor.rand(*shape, device=device(number), dtype=FLOATS[dtype]))


def halves(call, shape, dtype, number):
    """The same words as `Tensor.rand` takes: a float has the highest bits of each half."""
    count = 1
    for size in shape:
        count *= size
    bits = []
    recorded = Tensor._threefry_random_bits

    def record(*arguments):
        bits.append(recorded(*arguments))
        return bits[0]

    Tensor._threefry_random_bits = staticmethod(record)
    Tensor.rand((count + 1) // 2, device=device(number))
    Tensor._threefry_random_bits = staticmethod(recorded)
    words = bits[0].tolist()
    numbers = []
    for position in range(count):
        half = words[position // 2] >> 16 * (position % 2) & 0xFFFF
        mantissa = half >> 16 - MANTISSA_BITS[dtype]
        numbers.append(mantissa / (1 << MANTISSA_BITS[dtype]))
    print(call, "=", *(f"{float_bits(value, dtype):x}" for value in numbers))


def float_bits(value, dtype):
    """The bits of a number that f16 or bf16 has."""
    if dtype == "f16":
        return struct.unpack("<H", struct.pack("<e", value))[0]
    return struct.unpack("<I", struct.pack("<f", value))[0] >> 16


def call(name, shape, dtype="f32", **parameters):
    found = {**FLOATS, **INTS}[dtype]
    words = [name, "0", dtype, text(shape), *map(str, parameters.values())]
    show(" ".join(words), getattr(Tensor, name)(*shape, dtype=found, **parameters))


def dropout(shape, p, dtype="f32"):
    """Of a tensor of 1, 2, 3, ..."""
    count = 1
    for size in shape:
        count *= size
    x = Tensor(list(range(1, count + 1)), dtype={**FLOATS, **INTS}[dtype]).reshape(shape)
    with Tensor.train():
        show(f"dropout 0 {dtype} {text(shape)} {p}", x.dropout(p))


def multinomial(weights, samples, replacement=True):
    """Of integer weights, in rows."""
    result = Tensor(weights).multinomial(samples, replacement)
    rows = weights if isinstance(weights[0], list) else [weights]
    flat = ",".join(str(weight) for row in rows for weight in row)
    shape = f"{len(rows)},{len(rows[0])}" if rows is weights else len(weights)
    show(f"multinomial 0 i32 {shape} {flat} {samples}", result)


def main():
    assert Device.DEFAULT == "PYTHON"
    round_constants()
    for number in range(16):
        digest = hashlib.sha256(number.to_bytes(4, "big")).digest()
        print(f"key {number} = {int.from_bytes(digest, 'big') & 0xFFFFFFFF:x}")
    for number in [0, 1, 42, 1337, 2**31, 2**32 - 1]:
        seed(number)
        rand([5])
        rand([2, 3])
        rand([1])
        rand([])
    seed(2**32 + 42)
    rand([5])
    for dtype in ["f16", "bf16", "f32", "f64"]:
        for count in [1, 2, 3, 4, 5, 7, 33]:
            seed(count)
            rand([count], dtype)
            rand([count + 2], dtype)
    # The counter: words of all sizes, no elements, many elements.
    seed(3)
    for shape, dtype in [([3], "f64"), ([3], "f16"), ([0], "f32"), ([2, 2], "f32"), ([1], "bf16"),
                         ([2, 0, 3], "f64"), ([257], "f32"), ([5], "f64"), ([9, 3], "bf16"),
                         ([2], "f32")]:  # fmt: skip
        rand(shape, dtype)
    # The keys of devices, in the order of their first use.
    seed(4)
    for number in [0, 1, 2, 3, 1, 4, 5, 0, 6, 7, 7, 2]:
        rand([3], number=number)
    for dtype, low, high in [
        ("i32", 0, 10), ("i32", -3, 9), ("i32", -7, -6), ("i32", 0, 2**31 - 1), ("u8", 0, 255),
        ("u8", 0, 256), ("i8", -128, 127), ("i8", -5, 100), ("i16", -300, 300), ("u16", 0, 65536),
        ("u32", 0, 2**31), ("u32", 5, 1000), ("i64", -(2**40), 2**40), ("u64", 0, 2**40),
        ("i64", 0, 2**24 + 1), ("i64", 12345678901, 12345678999),
    ]:  # fmt: skip
        seed(5)
        call("randint", [6], dtype, low=low, high=high)
        call("randint", [2, 2], dtype, low=low, high=high)
    for dtype in ["f32", "f64"]:
        seed(6)
        for low, high in [(0.0, 1.0), (-1.0, 1.0), (2.0, 10.0), (-0.1, 0.3), (1e-30, 1e-20), (0.7, 1e6)]:
            call("uniform", [9], dtype, low=low, high=high)
        call("scaled_uniform", [3, 5], dtype)
        call("glorot_uniform", [3, 5], dtype)
        call("glorot_uniform", [7], dtype)
        call("kaiming_uniform", [3, 5, 2], dtype, a=0.01)
        call("kaiming_uniform", [5, 3], dtype, a=2.5)
        call("kaiming_uniform", [4], dtype, a=0.0)
        call("randn", [33], dtype)
        call("randn", [2, 3], dtype)
        call("randn", [], dtype)
        call("normal", [9], dtype, mean=10.0, std=2.0)
        call("normal", [9], dtype, mean=-0.3, std=0.1)
        call("kaiming_normal", [3, 5, 2], dtype, a=0.01)
    seed(8)
    for p in [0.5, 0.1, 0.3, 0.9, 0.0]:
        dropout([4, 5], p)
    dropout([6], 0.3, "f64")
    dropout([6], 0.3, "i32")
    seed(9)
    multinomial([1, 2, 3, 4], 20)
    multinomial([1, 2, 3, 4], 1)
    multinomial([[5, 0, 1], [0, 0, 9], [1, 1, 1]], 8)
    multinomial([[5, 0, 1], [0, 0, 9], [1, 1, 1]], 1, replacement=False)


if __name__ == "__main__":
    main()
