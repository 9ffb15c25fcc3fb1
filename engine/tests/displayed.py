"""Writes displayed.txt: dtype, shape, elements in hexadecimal, and the text that NumPy prints.

python3 displayed.py > displayed.txt    (needs NumPy)
"""
import random

import numpy as np

random.seed(3)
DTYPES = {"bool": np.bool_, "i8": np.int8, "u64": np.uint64, "i32": np.int32, "f16": np.float16,
          "f32": np.float32, "f64": np.float64}
SHAPES = [(), (1,), (3,), (7,), (2, 3), (3, 1, 2), (2, 2, 2), (40,), (2, 30), (0,), (2, 0)]
LARGE = [(1001,), (30, 40), (2, 501), (7, 6, 30), (1001, 1), (1, 1500)]
SPECIAL = [0.0, -0.0, float("nan"), float("inf"), float("-inf"), 1.0, -1.5]


def number(kind):
    if kind == "special":
        return random.choice(SPECIAL)
    if kind == "whole":
        return float(random.randint(-300, 300))
    if kind == "eighths":
        return random.randint(-80, 80) / 8
    if kind == "wide":
        return random.uniform(-1, 1) * 10.0 ** random.randint(-9, 9)
    if kind == "far":
        return random.uniform(-1, 1) * 10.0 ** random.randint(-290, 290)
    return random.uniform(-1, 1)


def elements(dtype, count):
    if dtype == np.bool_:
        return [random.random() < 0.5 for _ in range(count)]
    if issubclass(dtype, np.integer):
        info = np.iinfo(dtype)
        most = random.choice([9, 120, info.max])
        return [random.randint(max(info.min, -most), most) for _ in range(count)]
    kind = random.choice(["special", "whole", "eighths", "wide", "far", "unit", "unit"])
    rare = random.choice([kind, kind, "special"])
    return [number(rare if random.random() < 0.2 else kind) for _ in range(count)]


for dtype_name, dtype in DTYPES.items():
    for shape in [*SHAPES * (8 if issubclass(dtype, np.floating) else 2), *LARGE]:
        with np.errstate(over="ignore"):
            array = np.array(elements(dtype, int(np.prod(shape))), dtype=dtype).reshape(shape)
        text = str(array).replace("\n", "\\n")
        shape_text = ",".join(map(str, shape))
        data = array.astype(array.dtype.newbyteorder("<")).tobytes()
        if array.size > 1000:
            # Of long tensors, all elements are one of a few.
            data = array.ravel()[:16].tobytes()
            array = np.resize(array.ravel()[:16], shape)
            text = str(array).replace("\n", "\\n")
        print(f"{dtype_name} [{shape_text}] {data.hex()} {text}")
