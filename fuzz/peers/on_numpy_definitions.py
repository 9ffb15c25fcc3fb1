"""A second oracle as a peer: every operation and method by its definition in NumPy.

It judges the first one: where they differ, the meaning decides who is wrong. It writes no scripts.
"""

import warnings

import numpy as np
from numpy_definitions import DTYPES, METHODS, NAMES, step

np.seterr(all="ignore")
warnings.simplefilter("ignore")


class Definitions(Adapter):
    NAME = f"definitions in numpy {np.__version__}"
    DTYPES = {name: name for name in DTYPES}
    OPS = dict.fromkeys([
        "const", "arange", "neg", "not", "exp2", "log2", "sin", "sqrt", "recip", "add", "sub",
        "mul", "div", "cdiv", "cmod", "floordiv", "floormod", "max", "min", "pow", "cmplt",
        "cmpne", "cmpeq", "and", "or", "xor", "shl", "shr", "threefry", "where", "mulacc", "cast",
        "bitcast", "contiguous", "realize", "detach", "reshape", "expand", "reduce_sum",
        "reduce_max", "reduce_prod", "permute", "flip", "pad", "shrink", "cat", "gather",
        *METHODS])

    def values(self, program):
        """Returns the values of all statements."""
        values = []
        for statement in program["statements"]:
            values.append(np.asarray(step(statement, values)))
        return values

    def run(self, program):
        values = self.values(program)
        return [self.read(values[output]) for output in program["outputs"]]

    def read(self, value):
        return NAMES[value.dtype], value.shape, np.ascontiguousarray(value).tobytes()

    def script(self, program, expected):
        raise Skip("it writes no scripts")


ADAPTER = Definitions()
