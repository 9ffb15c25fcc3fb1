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


def unflatten(x, axis, sizes):
    axis %= x.ndim
    if -1 in sizes:
        at = sizes.index(-1)
        rest = x.shape[axis] // int(np.prod(sizes[:at] + sizes[at + 1:], dtype=np.int64))
        sizes = sizes[:at] + [rest] + sizes[at + 1:]
    return x.reshape(x.shape[:axis] + tuple(sizes) + x.shape[axis + 1:])


def flatten(x, start, end):
    x = x.reshape(1) if x.ndim == 0 else x
    start, end = start % x.ndim, end % x.ndim
    merged = int(np.prod(x.shape[start:end + 1], dtype=np.int64))
    return x.reshape(x.shape[:start] + (merged,) + x.shape[end + 1:])


def split(x, sizes, axis, part):
    return np.split(x, np.cumsum(sizes)[:-1], axis=axis)[part]


def chunk(x, count, axis, part):
    size = -(-x.shape[axis] // count)
    return np.take(x, range(part * size, min(part * size + size, x.shape[axis])), axis=axis)


def unfold(x, axis, size, step):
    if size == 0:
        shape = list(x.shape) + [0]
        shape[axis % x.ndim] = x.shape[axis] // step + 1
        return np.zeros(shape, x.dtype)
    windows = np.lib.stride_tricks.sliding_window_view(x, size, axis=axis)
    return windows[(slice(None),) * (axis % x.ndim) + (slice(None, None, step),)]


def diagonals(offset):
    """An offset that NumPy can add to the number of a row; those beyond the corners are alike."""
    return max(-1 << 30, min(1 << 30, offset))


def index(x, starts, stops, steps):
    return x[tuple(slice(*range_) for range_ in zip(starts, stops, steps))]


def pad(x, counts, mode):
    return np.pad(x, counts, mode=mode) if counts else x


def pad_with(mode):
    return lambda x, before, after: pad(x, list(zip(before, after)), mode)


def linspace(dtype, start, stop, count):
    wide = np.longdouble
    points = np.linspace(wide(start), wide(stop), count, dtype=wide)
    return points.astype(np.float64 if dtype.itemsize == 8 else np.float32).astype(dtype)


def arange(dtype, start, stop, step):
    count = max(0, int(np.ceil((stop - start) / step)))
    wide = np.float64 if dtype.itemsize > 2 else np.float32
    return (wide(start) + np.arange(count, dtype=wide) * wide(step)).astype(dtype)


def one_hot(x, classes):
    return (x[..., None] == np.arange(classes, dtype=object)).astype(np.int32)


def index_select(x, index, axis):
    axis, out = axis % x.ndim, []
    for at in index.tolist():
        found = np.take(x, [at], axis=axis) if 0 <= at < x.shape[axis] else None
        shape = x.shape[:axis] + (1,) + x.shape[axis + 1:]
        out.append(np.zeros(shape, x.dtype) if found is None else found)
    return np.concatenate(out, axis=axis) if out else np.take(x, [], axis=axis)


def scatter(write, wide=lambda dtype: dtype):
    """Writes the elements one after another, in row-major order."""
    def method(x, index, src, axis):
        out = x.astype(wide(x.dtype))
        for place in np.ndindex(*index.shape):
            at = list(place)
            at[axis] = int(index[place])
            if 0 <= at[axis] < x.shape[axis]:
                out[tuple(at)] = write(out[tuple(at)], src[place].astype(out.dtype))
        return out.astype(x.dtype)
    return method


def largest(a, b):
    return a | b if a.dtype == np.bool_ else np.maximum(a, b)


def halves_wide(dtype):
    return np.dtype(np.float32) if dtype.name in ("float16", "bfloat16") else dtype


def argsort(x, axis, descending):
    """Stable, by keys that NumPy compares as the method does; descending is the reverse of the
    reverse."""
    keys = x.astype(np.float64) if x.dtype.name in ("float16", "bfloat16", "float32") else x
    if descending:
        turned = np.argsort(np.flip(keys, axis), axis=axis, kind="stable")
        return np.flip(x.shape[axis] - 1 - turned, axis).astype(np.int32)
    return np.argsort(keys, axis=axis, kind="stable").astype(np.int32)


def topk_indices(x, k, axis, largest):
    return np.take(argsort(x, axis, largest), range(k), axis=axis)


def extreme(function):
    return lambda x, axis, keepdim: function(
        x.astype(np.float64) if x.dtype.name == "bfloat16" else x, axis=axis, keepdims=keepdim
    ).astype(np.int32)


def cummin(x, axis):
    if x.dtype == np.bool_:
        return np.minimum.accumulate(x.astype(np.uint8), axis=axis).astype(x.dtype)
    return np.minimum.accumulate(x, axis=axis)


def truth(function, dtype):
    return lambda x, axes, keepdim: function(
        x != 0, axis=tuple(axes), keepdims=keepdim).astype(dtype)


METHODS = {
    "linspace": linspace,
    "arange_float": arange,
    "eye": lambda dtype, rows, columns: np.eye(rows, columns).astype(dtype),
    "tri": lambda dtype, rows, columns, diagonal: np.tri(rows, columns, diagonal).astype(dtype),
    "one_hot": one_hot,
    "index_select": index_select,
    "scatter": scatter(lambda old, new: new),
    "scatter_add": scatter(lambda old, new: old + new, halves_wide),
    "scatter_amax": scatter(largest),
    "sort": lambda x, axis, descending: np.take_along_axis(
        x, argsort(x, axis, descending), axis=axis),
    "argsort": argsort,
    "topk": lambda x, k, axis, largest: np.take_along_axis(
        x, topk_indices(x, k, axis, largest), axis=axis),
    "topk_indices": topk_indices,
    "argmax": extreme(np.argmax),
    "argmin": extreme(np.argmin),
    "cummin": cummin,
    "any": truth(np.any, np.bool_),
    "all": truth(np.all, np.bool_),
    "count_nonzero": truth(np.sum, np.int32),
    "squeeze": lambda x, axis: np.squeeze(x, axis),
    "unsqueeze": lambda x, axis: np.expand_dims(x, axis),
    "transpose": lambda x, axis0, axis1: np.swapaxes(x, axis0, axis1),
    "flatten": flatten,
    "unflatten": unflatten,
    "repeat": lambda x, counts: np.tile(x, counts),
    "repeat_interleave": lambda x, count, axis: np.repeat(x, count, axis=axis),
    "stack": lambda *xs, axis: np.stack(xs, axis=axis),
    "split": split,
    "chunk": chunk,
    "unfold": unfold,
    "diagonal": lambda x, offset, axis0, axis1: np.diagonal(x, offset, axis0, axis1),
    "diag": lambda x, offset: np.diag(x, offset),
    "triu": lambda x, diagonal: np.triu(x, diagonals(diagonal)),
    "tril": lambda x, diagonal: np.tril(x, diagonals(diagonal)),
    "slice": index,
    "pad_reflect": pad_with("reflect"),
    "pad_replicate": pad_with("edge"),
    "pad_circular": pad_with("wrap"),
    "shrink_to": lambda x, sizes: x[tuple(map(slice, sizes))],
    "pad_to": lambda x, sizes: pad(
        x, [(0, to - of) for of, to in zip(x.shape, sizes)], "constant"),
    "movedim": lambda x, **axes: np.moveaxis(x, axes["from"], axes["to"]),
    "cumsum": lambda x, axis: accumulated(x, lambda x: np.cumsum(x, axis=axis, dtype=x.dtype)),
    "cumprod": lambda x, axis: accumulated(x, lambda x: np.cumprod(x, axis=axis, dtype=x.dtype)),
    "cummax": lambda x, axis: np.maximum.accumulate(x.astype(np.uint8), axis=axis).astype(x.dtype)
    if x.dtype == np.bool_ else np.maximum.accumulate(x, axis=axis),
    "amin": smallest,
    "roll": roll,
}
