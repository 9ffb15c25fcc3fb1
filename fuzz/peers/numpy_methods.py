"""The methods that programs may call, in NumPy: name -> function(sources, arguments).

A function gets arrays in their dtypes and the arguments by their names in corpus/src/methods. It
computes in the dtype that the method's documentation says, and returns an array.
"""

import hashlib
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


def wide_type(dtype):
    """The type in which sums are computed; they are cast back."""
    return np.dtype(np.float32) if dtype.name in ("float16", "bfloat16") else dtype


def matmul(x, y):
    return np.matmul(x.astype(wide_type(x.dtype)), y.astype(wide_type(y.dtype))).astype(x.dtype)


def both_sides(padding, axes):
    """The padding before and after each axis."""
    return [n for n in padding for _ in range(2)] if len(padding) == axes else padding


def convolution(x, w, groups, stride, dilation, padding):
    space = len(stride)
    padding = both_sides(padding, space)
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
    padding = both_sides(padding, len(stride))
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
    padding = both_sides(padding, len(kernel))
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
PROMOTED = {"matmul", "dot", "conv2d", "conv_transpose2d", "einsum"}
# The methods whose numbers take the dtype that they are computed in, and those that round none; the
# numbers of others take the dtype of the first source.
COMPUTED_WIDE = {"isclose", "layernorm", "newton_schulz", "normalize"}
UNROUNDED = {"cross_entropy", "sparse_categorical_crossentropy"}


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


def assign_slice(x, y, starts, stops, steps):
    out = x.copy()
    out[tuple(slice(*range_) for range_ in zip(starts, stops, steps))] = y
    return out


def selection(x, at, sources):
    """A copy with a spare element, which is 0, after the axes whose positions are sources; indices
    that select from it: the first without sources, the second with them."""
    taken = sum(1 for index in at if index not in ("new", "..."))
    left = [":"] * (x.ndim - taken)
    if "..." in at:
        number = at.index("...")
        at = at[:number] + left + at[number + 1:]
    else:
        at = at + left
    basic, named, positions, spare = [], [], [], []
    for index in at:
        size = x.shape[len(spare)] if index != "new" else 1
        if index == "new":
            basic.append(None)
        elif index == "source":
            basic.append(slice(None))
            numbers = sources[len(positions)].astype(object)
            numbers = np.where(numbers < 0, numbers + size, numbers)
            outside = (numbers < 0) | (numbers >= size)
            positions.append(np.where(outside, size, numbers).astype(np.int64))
        elif ":" in index:
            ends = [int(end) if end else None for end in index.split(":")]
            basic.append(slice(*ends))
        else:
            basic.append(int(index))
        if index != "new":
            spare.append((0, int(index == "source")))
        if index == "new" or index == "source" or ":" in index:
            named.append(positions[-1] if index == "source" else slice(None))
    padded = np.pad(x, spare) if spare else x.copy()
    return padded, tuple(basic), tuple(named)


def get(x, *sources, at):
    padded, basic, named = selection(x, at, sources)
    return padded[basic + (...,)][named + (...,)]


def assign_at(x, y, *sources, at):
    padded, basic, named = selection(x, at, sources)
    padded[basic + (...,)][named + (...,)] = y
    return padded[tuple(map(slice, x.shape))]


def pad(x, counts, mode):
    return np.pad(x, counts, mode=mode) if counts else x


def pad_with(mode):
    return lambda x, before, after: pad(x, list(zip(before, after)), mode)


def linspace(dtype, start, stop, count):
    wide = np.longdouble
    start, stop = (wide(float(dtype.type(end))) for end in (start, stop))
    points = np.linspace(start, stop, count, dtype=wide)
    return points.astype(np.float64 if dtype.itemsize == 8 else np.float32).astype(dtype)


def arange(dtype, start, stop, step):
    count = max(0, int(np.ceil((stop - start) / step)))
    wide = np.float64 if dtype.itemsize > 2 else np.float32
    return (wide(start) + np.arange(count, dtype=wide) * wide(step)).astype(dtype)


def one_hot(x, classes):
    return (x[..., None] == np.arange(classes, dtype=object)).astype(np.int32)


def masked_select_sized(x, mask, size):
    x, mask = np.broadcast_arrays(x, mask)
    found = x[mask][:size]
    return np.concatenate([found, np.zeros(size - len(found), x.dtype)])


def nonzero_sized(x, size, fill):
    found = np.argwhere(x)[:size]
    rest = np.full((size - len(found), x.ndim), fill)
    return np.concatenate([found, rest]).astype(np.int32)


def max_pool_indices(x, kernel, *options):
    sizes = x.shape[x.ndim - len(kernel):]
    positions = np.broadcast_to(np.arange(math.prod(sizes)).reshape(sizes), x.shape)
    shape, elements = windows(x, kernel, *options)
    _, numbers = windows(positions, kernel, *options)
    out = np.full(shape, -1, dtype=np.int32)
    for place in np.ndindex(*shape):
        parts = [part for part in elements(place) if part is not None]
        if parts:
            # As wide, NumPy's own halves are no numbers that argmax takes.
            parts = np.array(parts, dtype=longest(parts[0]).dtype)
            out[place] = [at for at in numbers(place) if at is not None][np.argmax(parts)]
    return out


def max_unpool(x, positions, sizes):
    outer = x.shape[:x.ndim - len(sizes)]
    out = np.zeros(outer + (math.prod(sizes),), x.dtype)
    for at in np.ndindex(*x.shape):
        position = int(positions[at])
        if 0 <= position < out.shape[-1]:
            out[at[:len(outer)] + (position,)] = x[at]
    return out.reshape(outer + tuple(sizes))


def rearrange(x, sizes, parts, order, groups):
    moved = x.reshape(sizes).transpose(order)
    rest = list(moved.shape)
    return moved.reshape([math.prod(rest.pop(0) for _ in range(group)) for group in groups])


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


def statistic(function):
    """A function of floats along axes, computed in the longest float and rounded once."""
    def call(x, axes, **arguments):
        wide = x.astype(np.float64).astype(np.longdouble)
        return rounded(function(wide, tuple(axes), **arguments), x.dtype)
    return call


def variance(x, axes, keepdim, correction):
    squares = (x - x.mean(axis=axes, keepdims=True)) ** 2
    count = math.prod(x.shape[axis] for axis in axes)
    return squares.sum(axis=axes, keepdims=keepdim) / np.longdouble(max(0, count - correction))


def layernorm(x, axes, eps):
    difference = x - x.mean(axis=axes, keepdims=True)
    square = (difference * difference).mean(axis=axes, keepdims=True)
    return difference / np.sqrt(square + np.longdouble(np.float64(eps)))


def normalize(x, p, axis, eps):
    # The numbers have the type that an engine computes in.
    kind = np.float64 if x.dtype == np.float64 else np.float32
    p, eps = kind(p), kind(eps)
    wide = x.astype(np.float64).astype(np.longdouble)
    sums = (np.abs(wide) ** np.longdouble(p)).sum(axis=axis, keepdims=True)
    norm = sums ** np.longdouble(kind(np.float64(1) / np.float64(p)))
    return rounded(wide / np.maximum(norm, np.longdouble(eps)), x.dtype)


def largest_finite(x, axes):
    most = x.max(axis=axes, keepdims=True, initial=-np.inf)
    return np.where(np.isfinite(most), most, 0)


def logsumexp(x, axes, keepdim):
    most = largest_finite(x, axes)
    found = np.log(np.exp(x - most).sum(axis=axes, keepdims=True)) + most
    return found if keepdim else found.reshape(
        [size for axis, size in enumerate(x.shape) if axis not in {a % x.ndim for a in axes}])


def softmax(x, axes):
    powers = np.exp(x - x.max(axis=axes, keepdims=True, initial=-np.inf))
    return powers / powers.sum(axis=axes, keepdims=True)


def log_softmax(x, axes):
    shifted = x - x.max(axis=axes, keepdims=True, initial=-np.inf)
    return shifted - np.log(np.exp(shifted).sum(axis=axes, keepdims=True))


def isclose(x, y, rtol, atol, equal_nan):
    dtype = np.float64 if promoted([x, y]) == np.float64 else np.float32
    x, y = x.astype(dtype), y.astype(dtype)
    near = np.abs(x - y) <= dtype(atol) + dtype(rtol) * np.abs(y)
    close = (np.isfinite(x) & np.isfinite(y) & near) | (np.isinf(x) & (x == y))
    return close | (np.isnan(x) & np.isnan(y)) if equal_nan else close


def linear(*sources):
    dtype = promoted(sources)
    x, weight, *bias = (a.astype(dtype).astype(wide_type(dtype)) for a in sources)
    return sum(bias, x * weight if weight.ndim == 1 else np.matmul(x, weight)).astype(dtype)


def scatter_reduce(x, index, src, axis, reduce, include_self):
    mean = reduce == "mean"
    names = {"bool": np.dtype(bool)}
    wide = halves_wide(x.dtype) if reduce in ("sum", "prod", "mean") else names.get(
        x.dtype.name, x.dtype)
    groups = {}
    for place in np.ndindex(*index.shape):
        at = list(place)
        at[axis] = int(index[place])
        if 0 <= at[axis] < x.shape[axis]:
            groups.setdefault(tuple(at), []).append(src[place])
    out = x.copy()
    function = {"sum": np.sum, "prod": np.prod, "mean": np.sum, "amax": np.max,
                "amin": np.min}[reduce]
    for at, group in groups.items():
        group = np.array(([x[at]] if include_self else []) + group, dtype=x.dtype).astype(wide)
        kwargs = {"dtype": wide} if reduce in ("sum", "prod", "mean") else {}
        found = function(group, **kwargs)
        out[at] = (found / wide.type(len(group)) if mean else found).astype(x.dtype)
    return out


def losses_of_classes(x, classes, axis, smoothing):
    logs = np.moveaxis(log_softmax(x, axis), axis, -1)
    inside = (0 <= classes) & (classes < logs.shape[-1])
    picked = np.where(inside, classes, 0).astype(np.int64)[..., None]
    some = np.take_along_axis(logs, picked, -1)[..., 0] if logs.shape[-1] else 0
    loss = -np.where(inside, some, np.longdouble(0))
    if smoothing:
        loss = (1 - smoothing) * loss - logs.sum(axis=-1) * (smoothing / logs.shape[-1])
    return loss


def reduced(losses, reduction, count=None):
    if reduction == "none":
        return losses
    total = losses.sum()
    return total / np.longdouble(losses.size if count is None else count) if (
        reduction == "mean") else total


def longest(x):
    return x.astype(np.float64).astype(np.longdouble)


def cross_entropy(x, target, label_smoothing, reduction):
    axis = 1 if x.ndim > 1 else 0
    smoothing = np.longdouble(np.float64(label_smoothing))
    if target.dtype.kind in "iu":
        losses = losses_of_classes(longest(x), target, axis, smoothing)
    else:
        weights = (1 - smoothing) * longest(target) + smoothing / np.longdouble(x.shape[axis])
        losses = -(log_softmax(longest(x), axis) * weights).sum(axis=axis)
    return rounded(np.asarray(reduced(losses, reduction)), x.dtype)


def sparse_categorical(x, classes, ignore_index, label_smoothing, reduction):
    smoothing = np.longdouble(np.float64(label_smoothing))
    losses = losses_of_classes(longest(x), classes, -1, smoothing)
    kept = (classes.astype(object) != ignore_index).astype(bool) | (ignore_index == -1)
    return rounded(np.asarray(reduced(np.where(kept, losses, 0), reduction, kept.sum())), x.dtype)


def nll_loss(x, classes, weight=None, *, ignore_index, reduction):
    weight = np.ones(x.shape[1:2], x.dtype) if weight is None else weight
    values = np.moveaxis(longest(x), 1, -1)
    inside = (0 <= classes) & (classes < values.shape[-1])
    picked = np.where(inside, classes, 0).astype(np.int64)
    # One more class, so that there is a class.
    values = np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, 1)])
    ignored = (classes.astype(object) == ignore_index).astype(bool)
    kept = inside & ~ignored
    weights = np.where(kept, np.append(longest(weight), 0)[picked], 0)
    found = np.where(inside, np.take_along_axis(values, picked[..., None], -1)[..., 0], 0)
    losses = np.where(ignored, 0, -found * weights)
    return rounded(np.asarray(reduced(losses, reduction, weights.sum())), x.dtype)


def binary_loss(function):
    def call(x, y, reduction):
        losses = function(longest(x), longest(y))
        return rounded(np.asarray(reduced(losses, reduction)), promoted([x, y]))
    return call


def einsum(*sources, labels, output):
    terms = []
    for x in sources:
        terms.append((x, labels[:x.ndim]))
        labels = labels[x.ndim:]
    if any(label not in output for _, of in terms for label in of):
        terms = [part for x, of in terms for part in (x.astype(wide_type(x.dtype)), of)]
        return np.asarray(np.einsum(*terms, output)).astype(sources[0].dtype)
    # NumPy would add the products to 0, which would lose the sign of -0.
    product = None
    for x, of in terms:
        x = np.einsum(x, of, [label for label in output if label in of])
        x = np.expand_dims(x, [at for at, label in enumerate(output) if label not in of])
        product = x if product is None else product * x
    return product


def attention(query, key, value, mask=None, *, is_causal):
    """In the longest float; `promoted` is of the floats but those of the mask."""
    scores = np.matmul(longest(query), np.swapaxes(longest(key), -1, -2))
    scores = scores / np.sqrt(np.longdouble(query.shape[-1]))
    if mask is not None:
        is_bool = mask.dtype == np.bool_
        scores = np.where(mask, scores, -np.inf) if is_bool else scores + longest(mask)
    if is_causal:
        scores = np.where(np.tri(*scores.shape[-2:], dtype=np.bool_), scores, -np.inf)
    found = np.matmul(softmax(scores, -1), longest(value))
    return rounded(found, promoted([query, key, value]))


def interpolate(x, sizes, mode, align_corners):
    """By whole numbers: a position is `over / under`."""
    linear = mode == "linear"
    dtype, x = x.dtype, longest(x) if linear else x
    for axis, m in reversed(list(enumerate(sizes, x.ndim - len(sizes)))):
        n, i = x.shape[axis], np.arange(m)
        if linear and align_corners:
            over, under = (i * (n - 1), m - 1) if m > 1 else (i * 0, 1)
        elif linear:
            over, under = np.clip((2 * i + 1) * n - m, 0, (n - 1) * 2 * m), 2 * m
        else:
            over, under = ((2 * i + 1) * n, 2 * m) if mode == "nearest_exact" else (i * n, m)
        low, rest = over // under, over % under
        below = np.take(x, low, axis=axis)
        if linear:
            weight = (rest / np.longdouble(under)).reshape([m] + [1] * (x.ndim - axis - 1))
            above = np.take(x, low + (rest != 0), axis=axis)
            below = below + (above - below) * weight
        x = below
    return rounded(x, dtype) if linear else x


def of_matrices(function):
    """A function of each matrix, the last two axes, in the longest float, rounded once."""
    def call(x, **arguments):
        wide = x.astype(np.float64).astype(np.longdouble)
        outer = x.shape[:-2]
        found = [function(wide[at], **arguments) for at in np.ndindex(*outer)]
        empty = function(np.zeros(x.shape[-2:], np.longdouble), **arguments)
        return rounded(np.array(found).reshape(outer + empty.shape), x.dtype)
    return call


def newton_schulz(x, steps, a, b, c, eps):
    if x.shape[1] < x.shape[0]:
        return newton_schulz(x.T, steps, a, b, c, eps).T
    with np.errstate(all="ignore"):
        x = x / (np.sqrt((x * x).sum()) + np.longdouble(eps))
    for _ in range(steps):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x


def qr(part):
    def call(x):
        rows, columns = x.shape
        q, r = np.eye(rows, dtype=x.dtype), x.copy()
        if not np.isfinite(x).all():
            q[:], r[:] = np.nan, np.nan
        for at in range(min(x.shape)):
            column = np.where(np.arange(rows) < at, 0, r[:, at])
            length = np.hypot.reduce(column)
            if length == 0:
                continue
            # The image of the column: its length, with the sign opposite to that of the first.
            target = np.zeros(rows, x.dtype)
            target[at] = length if column[at] < 0 else -length
            normal = column - target
            mirror = np.eye(rows, dtype=x.dtype) - 2 * np.outer(normal, normal) / (normal @ normal)
            q, r = q @ mirror, mirror @ r
        return (q, np.triu(r))[part]
    return call


def svd(part):
    def call(x, full_matrices=False):
        is_finite = np.isfinite(x).all()
        x = np.where(is_finite, x, 0).astype(np.float64)
        found = part(*np.linalg.svd(x, full_matrices=full_matrices))
        return np.where(is_finite, found, np.nan)
    return call


def keccak(x, function):
    rows = np.ascontiguousarray(x).reshape(math.prod(x.shape[:-1]), x.shape[-1])
    digests = {
        "sha3_224": lambda data: hashlib.sha3_224(data).digest(),
        "sha3_256": lambda data: hashlib.sha3_256(data).digest(),
        "shake_128": lambda data: hashlib.shake_128(data).digest(16),
    }
    found = [np.frombuffer(digests[function](row.tobytes()), np.uint8) for row in rows]
    size = len(digests[function](b""))
    return np.array(found, np.uint8).reshape(x.shape[:-1] + (size,))


METHODS = {
    "newton_schulz": of_matrices(newton_schulz),
    "qr_q": of_matrices(qr(0)),
    "qr_r": of_matrices(qr(1)),
    "svd_s": of_matrices(svd(lambda u, s, vt: s)),
    "svd_product": of_matrices(svd(lambda u, s, vt: (u[:, :len(s)] * s) @ vt[:len(s)])),
    "svd_u": of_matrices(svd(lambda u, s, vt: u.T @ u)),
    "svd_vt": of_matrices(svd(lambda u, s, vt: vt @ vt.T)),
    "keccak": keccak,
    "einsum": einsum,
    "scaled_dot_product_attention": attention,
    "interpolate": interpolate,
    "meshgrid": lambda *xs, indexing, part: np.meshgrid(*xs, indexing=indexing)[part],
    "scatter_reduce": scatter_reduce,
    "cross_entropy": cross_entropy,
    "sparse_categorical_crossentropy": sparse_categorical,
    "nll_loss": nll_loss,
    "binary_crossentropy": binary_loss(lambda x, y: -y * np.log(x) - (1 - y) * np.log(1 - x)),
    "binary_crossentropy_logits": binary_loss(
        lambda x, y: np.maximum(x, 0) - y * x + np.log1p(np.exp(-np.abs(x)))),
    "mean": statistic(lambda x, axes, keepdim: x.mean(axis=axes, keepdims=keepdim)),
    "var": statistic(variance),
    "std": statistic(lambda *args, **options: np.sqrt(variance(*args, **options))),
    "layernorm": statistic(layernorm),
    "normalize": normalize,
    "logsumexp": statistic(logsumexp),
    "logcumsumexp": lambda x, axis: statistic(
        lambda x, axes: np.logaddexp.accumulate(x, axis=axes[0]))(x, [axis]),
    "softmax": lambda x, axis: statistic(softmax)(x, [axis]),
    "log_softmax": lambda x, axis: statistic(log_softmax)(x, [axis]),
    "softmin": lambda x, axis: statistic(softmax)(-x, [axis]),
    "isclose": isclose,
    "dot": matmul,
    "linear": linear,
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
    "assign": lambda x, y: np.broadcast_to(y, x.shape),
    "assign_slice": assign_slice,
    "get": get,
    "set": assign_at,
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
    # Products and windows.
    "matmul": matmul,
    "conv2d": convolution,
    "conv_transpose2d": transposed_convolution,
    "max_pool2d": max_pool,
    "max_pool2d_indices": lambda x, kernel, stride, dilation, padding, ceil_mode: max_pool_indices(
        x, kernel, stride, dilation, padding, ceil_mode),
    "max_unpool2d": max_unpool,
    "masked_select_sized": masked_select_sized,
    "nonzero_sized": nonzero_sized,
    "rearrange": rearrange,
    "avg_pool2d": avg_pool,

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
