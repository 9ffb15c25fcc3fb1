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


def wide_type(dtype):
    """The type in which sums are computed; they are cast back."""
    return np.dtype(np.float32) if dtype.name in ("float16", "bfloat16") else dtype


def matmul(x, y):
    return np.matmul(x.astype(wide_type(x.dtype)), y.astype(wide_type(y.dtype))).astype(x.dtype)


def convolution(x, w, groups, stride, dilation, padding):
    space = len(stride)
    pads = [(0, 0), (0, 0)] + [tuple(padding[2 * i:2 * i + 2]) for i in range(space)]
    x = np.pad(x, pads)
    reach = [d * (k - 1) + 1 for d, k in zip(dilation, w.shape[2:])]
    sizes = [(n - r) // s + 1 for n, r, s in zip(x.shape[2:], reach, stride)]
    out = np.zeros([x.shape[0], w.shape[0]] + sizes, dtype=x.dtype)
    outputs, inputs = w.shape[0] // groups, w.shape[1]
    for place in np.ndindex(*out.shape):
        group = place[1] // outputs if outputs else 0
        window = tuple(slice(o * s, o * s + r, d)
                       for o, s, r, d in zip(place[2:], stride, reach, dilation))
        part = x[(place[0], slice(group * inputs, (group + 1) * inputs)) + window]
        out[place] = (part * w[place[1]]).astype(wide_type(x.dtype)).sum().astype(x.dtype)
    return out


def transposed_convolution(x, w, groups, stride, dilation, padding, output_padding):
    space = range(len(stride))
    whole = [(x.shape[2 + i] - 1) * stride[i] + dilation[i] * (w.shape[2 + i] - 1) + 1
             + output_padding[i] for i in space]
    outputs = w.shape[1]
    out = np.zeros([x.shape[0], outputs * groups] + whole, dtype=wide_type(x.dtype))
    inputs = x.shape[1] // groups
    for batch, channel, *at in np.ndindex(*x.shape):
        group = channel // inputs
        window = tuple(slice(at[i] * stride[i],
                             at[i] * stride[i] + dilation[i] * (w.shape[2 + i] - 1) + 1,
                             dilation[i]) for i in space)
        target = (batch, slice(group * outputs, (group + 1) * outputs)) + window
        out[target] += (x[(batch, channel, *at)] * w[channel]).astype(out.dtype)
    kept = tuple(slice(padding[2 * i], whole[i] - padding[2 * i + 1]) for i in space)
    return out[(slice(None), slice(None)) + kept].astype(x.dtype)


def windows(x, kernel, stride, dilation, padding, ceil_mode):
    """The shape of the result, and the elements of each window: None where the padding is."""
    space, outer = range(len(kernel)), x.ndim - len(kernel)
    counts = []
    for i in space:
        size, before, after = x.shape[outer + i], padding[2 * i], padding[2 * i + 1]
        rest = size + before + after - dilation[i] * (kernel[i] - 1) - 1
        steps = rest // stride[i]
        if ceil_mode:
            steps = -(-rest // stride[i])
            if steps and steps * stride[i] >= size + before:
                steps -= 1
        counts.append(steps + 1)
    shape = list(x.shape[:outer]) + counts

    def elements(place):
        parts = []
        for offset in np.ndindex(*kernel):
            at = [place[outer + i] * stride[i] + offset[i] * dilation[i] - padding[2 * i]
                  for i in space]
            sizes = x.shape[outer:]
            if all(0 <= a < n for a, n in zip(at, sizes)):
                parts.append(x[place[:outer] + tuple(at)])
            elif all(a < n + padding[2 * i + 1] for i, (a, n) in enumerate(zip(at, sizes))):
                parts.append(None)
        return parts

    return shape, elements


def pooled(x, function, *options):
    shape, elements = windows(x, *options)
    out = np.zeros(shape, dtype=x.dtype)
    for place in np.ndindex(*shape):
        out[place] = function(elements(place))
    return out


def max_pool(x, kernel, stride, dilation, padding, ceil_mode):
    least = False if x.dtype == np.bool_ else (
        np.iinfo(x.dtype).min if x.dtype.kind in "iu" else -np.inf)

    def largest(parts):
        parts = np.array([least] + [part for part in parts if part is not None], dtype=x.dtype)
        return parts.any() if x.dtype == np.bool_ else parts.max()

    return pooled(x, largest, kernel, stride, dilation, padding, ceil_mode)


def avg_pool(x, kernel, stride, dilation, padding, ceil_mode, count_include_pad):
    wide = wide_type(x.dtype).type

    def mean(parts):
        parts = [part for part in parts if part is not None or count_include_pad]
        total = np.array([wide(0 if part is None else part) for part in parts], dtype=wide).sum()
        return (total / wide(len(parts))).astype(x.dtype)

    return pooled(x, mean, kernel, stride, dilation, padding, ceil_mode)


# The methods whose sources are promoted first.
PROMOTED = {"matmul", "conv2d", "conv_transpose2d"}

METHODS = {
    "cumsum": lambda x, axis: accumulated(x, lambda x: np.cumsum(x, axis=axis, dtype=x.dtype)),
    "cumprod": lambda x, axis: accumulated(x, lambda x: np.cumprod(x, axis=axis, dtype=x.dtype)),
    "cummax": lambda x, axis: np.maximum.accumulate(x.astype(np.uint8), axis=axis).astype(x.dtype)
    if x.dtype == np.bool_ else np.maximum.accumulate(x, axis=axis),
    "amin": smallest,
    "roll": roll,
    # Products and windows.
    "matmul": matmul,
    "conv2d": convolution,
    "conv_transpose2d": transposed_convolution,
    "max_pool2d": max_pool,
    "avg_pool2d": avg_pool,
}
