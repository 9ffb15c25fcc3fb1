"""The methods that programs may call, in NumPy: name -> function(sources, arguments).

A function gets arrays in their dtypes and the arguments by their names in corpus/src/methods. It
computes in the dtype that the method's documentation says, and returns an array. check_numpy.py
skips, and counts, what is not here.
"""

import math

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


def wide(function):
    """A function of floats, computed in the longest float and rounded once."""
    def call(*sources, **arguments):
        dtype = promoted(sources)
        numbers = {name: np.longdouble(np.float64(value)) for name, value in arguments.items()}
        sources = [x.astype(np.float64).astype(np.longdouble) for x in sources]
        return rounded(function(*sources, **numbers), dtype)
    return call


def rounded(x, dtype):
    # To 16 bits through f32, as the definitions say: rounded once more, within the bounds.
    return x.astype(np.float32 if dtype.itemsize == 2 else dtype).astype(dtype)


def promoted(sources):
    """The promoted dtype of floats."""
    dtypes = {x.dtype for x in sources}
    if len(dtypes) == 1:
        return dtypes.pop()
    return np.dtype(np.float64 if np.dtype(np.float64) in dtypes else np.float32)


def whole(function):
    """A rounding to integers, which integers pass unchanged."""
    def call(x):
        return x if x.dtype.kind in "iu" else function(x.astype(np.float64)).astype(x.dtype)
    return call


def predicate(function, integers):
    def call(x):
        is_float = x.dtype.kind not in "iub"
        return function(x.astype(np.float64)) if is_float else np.full(x.shape, integers)
    return call


def clamp(x, min, max):
    return np.minimum(np.maximum(x, min), max).astype(x.dtype)


def sign(x):
    return np.sign(x) + np.zeros_like(x)


def copysign(x, y):
    x, y = x.astype(dtype := promoted([x, y])), y.astype(dtype)
    size = np.copysign(x.astype(np.float64), y.astype(np.float64)).astype(dtype)
    return np.where(np.isnan(y.astype(np.float64)), y, size)


def lerp(x, y, weight):
    dtype = promoted([x, y, weight])
    wide = np.float64 if dtype == np.float64 else np.float32
    x, y, weight = (a.astype(wide) for a in (x, y, weight))
    return (x + (y - x) * weight).astype(dtype)


def leaky_relu(x, slope):
    return np.where(x.astype(np.float64) < 0, x * slope, x).astype(x.dtype)


def hardsigmoid(x):
    return np.clip(x + 3, 0, 6) / 6


def sigmoid(x):
    small = np.exp(-np.abs(x))
    return np.where(x < 0, small, 1) / (1 + small)


def softplus(x, beta=1):
    return np.logaddexp(0, x * beta) / beta


def elu(x, alpha):
    return np.where(x < 0, alpha * np.expm1(x), x)


def gelu(x):
    scale = np.sqrt(2 / np.longdouble(math.pi))
    return x * sigmoid(2 * scale * (x + np.longdouble("0.044715") * x**3))


def rsqrt(x):
    return np.longdouble(1) / np.sqrt(x)


METHODS = {
    "cumsum": lambda x, axis: accumulated(x, lambda x: np.cumsum(x, axis=axis, dtype=x.dtype)),
    "cumprod": lambda x, axis: accumulated(x, lambda x: np.cumprod(x, axis=axis, dtype=x.dtype)),
    "cummax": lambda x, axis: np.maximum.accumulate(x.astype(np.uint8), axis=axis).astype(x.dtype)
    if x.dtype == np.bool_ else np.maximum.accumulate(x, axis=axis),
    "amin": smallest,
    "roll": roll,

    "abs": np.abs,
    "sign": sign,
    "square": lambda x: x * x,
    "clamp": clamp,
    "trunc": whole(np.trunc),
    "floor": whole(np.floor),
    "ceil": whole(np.ceil),
    "round": whole(np.round),
    "isnan": predicate(np.isnan, False),
    "isinf": predicate(np.isinf, False),
    "isfinite": predicate(np.isfinite, True),
    "copysign": copysign,
    "masked_fill": lambda x, mask, value: np.where(mask, value, x).astype(x.dtype),
    "lerp": lerp,
    "relu": lambda x: np.maximum(x, x.dtype.type(0)),
    "relu6": lambda x: clamp(x, x.dtype.type(0), x.dtype.type(6)),
    "hardtanh": clamp,
    "leaky_relu": leaky_relu,
    "hardsigmoid": wide(hardsigmoid),
    "hardswish": wide(lambda x: x * hardsigmoid(x)),
    "softsign": wide(lambda x: x / (1 + np.abs(x))),
    "exp": wide(np.exp),
    "log": wide(np.log),
    "log10": wide(np.log10),
    "rsqrt": wide(rsqrt),
    "sigmoid": wide(sigmoid),
    "tanh": wide(np.tanh),
    "silu": wide(lambda x: x * sigmoid(x)),
    "softplus": wide(softplus),
    "logsigmoid": wide(lambda x: -softplus(-x)),
    "elu": wide(elu),
    "celu": wide(lambda x, alpha: np.where(x < 0, alpha * np.expm1(x / alpha), x)),
    "selu": wide(lambda x: np.longdouble("1.0507") * elu(x, np.longdouble("1.67326"))),
    "gelu": wide(gelu),
    "quick_gelu": wide(lambda x: x * sigmoid(np.longdouble("1.702") * x)),
    "mish": wide(lambda x: x * np.tanh(np.logaddexp(0, x))),
    "cos": wide(np.cos),
    "tan": wide(np.tan),
    "sinh": wide(np.sinh),
    "cosh": wide(np.cosh),
    "asinh": wide(np.arcsinh),
    "acosh": wide(np.arccosh),
    "atanh": wide(np.arctanh),
    "erf": wide(lambda x: np.vectorize(math.erf, otypes=[np.longdouble])(x)),
    "asin": wide(np.arcsin),
    "acos": wide(np.arccos),
    "atan": wide(np.arctan),
    "logaddexp": wide(np.logaddexp),
    "fmod": wide(np.fmod),
}
