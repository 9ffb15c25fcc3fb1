"""The methods that programs may call, in NumPy: name -> function(sources, arguments).

A function gets arrays in their dtypes and the arguments by their names in corpus/src/methods. It
computes in the dtype that the method's documentation says, and returns an array. check_numpy.py
skips, and counts, what is not here.
"""

import numpy as np


def accumulated(x, function):
    """A running function in the accumulator's dtype; halves are rounded once."""
    name = x.dtype.name
    small = {"bool": np.int32, "int8": np.int32, "int16": np.int32,
             "uint8": np.uint32, "uint16": np.uint32}
    if name in ("float16", "bfloat16"):
        return function(x.astype(np.float32)).astype(x.dtype)
    return function(x.astype(small.get(name, x.dtype)))


def roll(x, shifts, axes):
    return np.roll(x, shifts, axes) if axes else x


def smallest(x, axes, keepdim):
    if x.dtype == np.bool_:
        return x.all(axis=tuple(axes), keepdims=keepdim)
    return x.min(axis=tuple(axes), keepdims=keepdim) if axes else x


METHODS = {
    "cumsum": lambda x, axis: accumulated(x, lambda x: np.cumsum(x, axis=axis, dtype=x.dtype)),
    "cumprod": lambda x, axis: accumulated(x, lambda x: np.cumprod(x, axis=axis, dtype=x.dtype)),
    "cummax": lambda x, axis: np.maximum.accumulate(x.astype(np.uint8), axis=axis).astype(x.dtype)
    if x.dtype == np.bool_ else np.maximum.accumulate(x, axis=axis),
    "amin": smallest,
    "roll": roll,
}
