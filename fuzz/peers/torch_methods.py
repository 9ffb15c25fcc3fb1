"""The methods of floats in PyTorch, in f64: name -> function(sources, arguments, counts).

As in numpy_methods.py, a function gets its sources and the arguments by their names in
corpus/src/methods; in addition the counts of what was met. DIFFERENCES are the places where PyTorch's derivative is not the one that
oracle/README.md ("Derivatives") states; the stated one is computed there, and only there.
"""

import collections
import functools

import numpy as np
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from __main__ import Skip
from numpy_definitions import cast
from numpy_methods import both_sides, windows

Difference = collections.namedtuple("Difference", "method where theirs ours source probe")
# Derivatives that PyTorch gives at points; `theirs` holds as long as it gives these. The sources
# that a row names are where to look; what was measured is the probe, and that programs differed.
Probe = collections.namedtuple("Probe", "function points derivatives")

DIFFERENCES = [
    Difference(
        "clamp", "at min and max", "0", "1",
        "PyTorch 2.15.0, measured",
        Probe(lambda x: torch.clamp(x, 0.0, 1.0), [0.0, 0.5, 1.0], [0.0, 1.0, 0.0])),
    Difference(
        "copysign", "at infinities and zeros", "NaN at infinities, and of second ones at zeros",
        "1 or -1 at infinities, 0 at zeros",
        "FunctionsManual.cpp, copysign_tensor_self_backward: the result divided by x",
        Probe(lambda x: torch.copysign(x, torch.ones(1)), [-np.inf, -2.0], [np.nan, -1.0])),
    Difference(
        "cummax", "at prefixes with equal maxima", "1 for the last", "1/count each",
        "derivatives.yaml, cummax: cummaxmin_backward adds at the indices",
        Probe(lambda x: torch.cummax(x, 0).values, [3.0, 3.0], [1.0, 1.0])),
    Difference(
        "cummin", "at prefixes with equal minima", "1 for the last", "1/count each",
        "derivatives.yaml, cummin: as cummax",
        Probe(lambda x: torch.cummin(x, 0).values, [3.0, 3.0], [1.0, 1.0])),
    Difference(
        "max_pool2d", "at windows with equal maxima", "1 for the first", "1/count each",
        "documentation of MaxPool2d: return_indices names one of them",
        Probe(lambda x: F.max_pool2d(x.reshape(1, 1, 2), [1, 2]), [3.0, 3.0], [1.0, 0.0])),
    Difference(
        "max_pool2d of padding", "at windows without an element",
        "1 for the place where the window begins, even beyond the end of the memory", "0",
        "PyTorch 2.15.0, measured; so its function is not called where a window is empty", None),
    Difference(
        "topk", "at slices with equal elements", "one of them", "the first",
        "documentation of torch.topk: the order of equal elements is not stated", None),
    Difference(
        "scatter", "at positions that are written again", "undefined", "the last write",
        "documentation of torch.Tensor.scatter_: the gradient is wrong unless indices are unique",
        None),
    Difference(
        "celu", "at and below 0", "alpha is rounded to f32 in 1/alpha, also of f64", "1/alpha",
        "derivatives.yaml, celu: alpha.toFloat()",
        Probe(lambda x: F.celu(x, 0.3), [0.0], [0.3 / float(np.float32(0.3))])),
    Difference(
        "elu", "at derivatives of derivatives at 0, also of selu", "0", "alpha, as below 0",
        "PyTorch 2.15.0, measured",
        Probe(lambda x: derivative(lambda y: F.elu(y, 1.5), x), [0.0, -1.0],
              [0.0, 1.5 * float(np.exp(-1.0))])),
    Difference(
        "gelu", "below 0", "1 + tanh, whose error does not vanish with it", "within 8 ulps",
        "Gelu in Activation.cpp; so the logistic function here", None),
    Difference(
        "hardsigmoid", "between -3 and 3", "1/6 rounded to f32, also of f64; no second one", "1/6",
        "PyTorch 2.15.0, measured; so F.relu6(x + 3) / 6 here",
        Probe(F.hardsigmoid, [0.0], [float(np.float32(1) / np.float32(6))])),
    Difference(
        "prod", "at derivatives of derivatives", "result / x / x - result / x^2, not quite 0", "0",
        "derivatives.yaml, prod: prod_backward; so a chain of products here",
        None),
    Difference(
        "prod of infinities", "at infinite and NaN factors", "NaN, the quotient of the result and x",
        "the product of the others", "derivatives.yaml, prod: prod_backward",
        Probe(torch.prod, [np.inf, 2.0], [np.nan, np.inf])),
    Difference(
        "scaled_dot_product_attention", "at queries that see no key", "0", "NaN, so none",
        "PyTorch 2.15.0, measured; _safe_softmax in attention.cpp; so a softmax here", None),
    Difference(
        "logsumexp", "at results beyond 8", "e^(x - result), whose error grows with the result",
        "the share of e^x, as if elements were counted from the largest",
        "FunctionsManual.cpp, logsumexp_backward",
        Probe(lambda x: torch.logsumexp(x, 0), [1e20, 1e20], [1.0, 1.0])),
    Difference(
        "logcumsumexp", "at results beyond 8", "as logsumexp", "as logsumexp",
        "FunctionsManual.cpp, logcumsumexp_backward",
        Probe(lambda x: torch.logcumsumexp(x, 0)[1:], [1e20, 1e20], [1.0, 1.0])),
    Difference(
        "std", "at 0", "0", "none", "PyTorch 2.15.0, measured",
        Probe(lambda x: torch.std(x, 0, correction=0), [3.0, 3.0], [0.0, 0.0])),
    Difference(
        "scatter_reduce of extremes", "at elements that equal the extreme without being included",
        "1/(count + 1) for those that are included", "1/count each", "PyTorch 2.15.0, measured",
        Probe(lambda x: scattered(x, "amax"), [3.0, 3.0], [1 / 3, 1 / 3])),
    Difference(
        "scatter_reduce of infinities", "at products with infinite or NaN factors",
        "NaN, the quotient of the result and x", "the product of the others",
        "PyTorch 2.15.0, measured",
        Probe(lambda x: scattered(x, "prod"), [np.inf, 2.0], [np.nan, np.inf])),
    Difference(
        "scatter_reduce of prod", "at derivatives of derivatives",
        "not quite 0, as those of prod; refused for several zeros", "0",
        "PyTorch 2.15.0, measured; so a chain of products here",
        Probe(lambda x: derivative(lambda y: scattered(y, "prod"), x)[:1], [0.9, -0.9, -0.7],
              [2.0**-53, -0.7, -0.9])),
    Difference(
        "cross_entropy", "at classes out of range, also of sparse_categorical_crossentropy", "refused",
        "that of the smoothing alone", "PyTorch 2.15.0, measured", None),
    Difference(
        "nll_loss", "by the weights", "refused", "the negative element of the class",
        "PyTorch 2.15.0, measured; so two losses without weights, and their product, here", None),
    Difference(
        "binary_crossentropy", "where x * (1 - x) is at most 1e-12, or x or y not from 0 to 1",
        "bounded, or refused", "(1 - y) / (1 - x) - y / x",
        "documentation of BCELoss; Loss.cpp, binary_cross_entropy_backward",
        Probe(lambda x: loss_of_quarter(x), [0.0], [-0.25 / float(np.float32(1e-12))])),
    Difference(
        "binary_crossentropy twice", "at derivatives of derivatives", "of x + 1e-12 and 1 - x + 1e-12",
        "y / x^2 + (1 - y) / (1 - x)^2", "FunctionsManual.cpp, binary_cross_entropy_double_backward",
        Probe(lambda x: derivative(loss_of_quarter, x), [0.5], [4 / (1 + 2e-12)**4])),
]


def derivative(function, x):
    return torch.autograd.grad(function(x).sum(), x, create_graph=True)[0]


def scattered(x, reduce):
    """Elements that are scattered to a 3, which is not included."""
    index = torch.zeros(x.shape, dtype=torch.int64)
    return torch.full((1,), 3.0, dtype=x.dtype).scatter_reduce(0, index, x, reduce, include_self=False)


def loss_of_quarter(x):
    return F.binary_cross_entropy(x, torch.full_like(x, 0.25), reduction="sum")


def changed():
    """The rows whose probe gives other derivatives in this version of PyTorch."""
    rows = []
    for row in DIFFERENCES:
        if row.probe and row.probe.derivatives:
            x = torch.tensor(row.probe.points, dtype=torch.float64, requires_grad=True)
            found = derivative(row.probe.function, x).detach().numpy()
            if not np.allclose(found, row.probe.derivatives, 1e-14, 0, equal_nan=True):
                rows.append(f"{row.method} {row.where}: {found.tolist()}")
    return rows


class Real:
    """Floats of a dtype: `tensor` holds them in f64, `name` is the dtype."""

    def __init__(self, tensor, name):
        self.tensor, self.name = tensor, name

    @staticmethod
    def of(array, name):
        return Real(torch.from_numpy(np.array(array, dtype=np.float64)), name)

    def fresh(self):
        """The value of a statement: its derivatives are not those of another statement."""
        if self.tensor.requires_grad:
            return Real(self.tensor.view_as(self.tensor), self.name)
        return Real(self.tensor.clone().requires_grad_(True), self.name)

    def array(self):
        return rounded(self.tensor.detach().numpy(), self.name)


def rounded(x, name):
    """Numbers of f64, rounded once to a dtype."""
    return np.ascontiguousarray(cast(x, name)).reshape(x.shape)


def reduced(x, axes, keepdim, function):
    return function(x, tuple(axes), keepdim) if axes else x


def product(x, axes, counts, twice):
    for axis in axes:
        infinite = int((~torch.isfinite(x.detach())).sum())
        if twice or infinite:
            counts["differs: prod of infinities"] += infinite
            counts["differs: prod"] += x.numel() if twice else 0
            shape = [1 if axis == at else size for at, size in enumerate(x.shape)]
            found = torch.ones(shape, dtype=x.dtype)
            for part in x.split(1, axis) if x.shape[axis] else ():
                found = found * part
            x = found
        else:
            x = torch.prod(x, axis, keepdim=True)
    return x


def greatest(x, axes, counts, twice):
    if any(x.shape[axis] == 0 for axis in axes):
        shape = [1 if axis in axes else size for axis, size in enumerate(x.shape)]
        return torch.full(shape, -torch.inf, dtype=x.dtype)
    return reduced(x, axes, True, torch.amax)


REDUCTIONS = {
    "reduce_sum": lambda x, axes, counts, twice: reduced(x, axes, True, torch.sum),
    "reduce_prod": product,
    "reduce_max": greatest,
}


def chosen(method, kink, ours, theirs, counts):
    """Our result where the kink is, theirs elsewhere."""
    found = int(kink.sum())
    if not found:
        return theirs
    counts["differs: " + method] += found
    return torch.where(kink, ours, theirs)


def clamp(x, min, max, counts):
    at = x.detach()
    bound = ((at == min) | (at == max)) & (min <= at) & (at <= max)
    return chosen("clamp", bound, x, torch.clamp(x, min, max), counts)


def copysign(x, y, counts):
    x, y = torch.broadcast_tensors(x, y)
    at = x.detach()
    sign = torch.copysign(torch.ones_like(at), y.detach()) * torch.sign(at)
    kink = torch.isinf(at) | (at == 0)
    ours = torch.where(torch.isinf(at), x * sign, torch.copysign(at, y.detach()))
    # The argument is replaced as well: the derivative of what torch.where omits would be NaN.
    theirs = torch.copysign(torch.where(kink, 1.0, x), y)
    return chosen("copysign", kink, ours, theirs, counts)


def celu(x, alpha, counts):
    kink = x.detach() <= 0
    ours = torch.expm1(torch.where(kink, x, 0.0) / alpha) * alpha
    return chosen("celu", kink, ours, F.celu(x, alpha), counts)


def elu(x, alpha, counts):
    kink = x.detach() == 0
    ours = torch.expm1(torch.where(kink, x, 0.0)) * alpha
    return chosen("elu", kink, ours, F.elu(x, alpha), counts)


def gelu(x, counts):
    logistic = torch.sigmoid(2 * np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))
    return chosen("gelu", x.detach() < 0, x * logistic, F.gelu(x, approximate="tanh"), counts)


def hardsigmoid(x, counts):
    counts["differs: hardsigmoid"] += int((x.detach().abs() < 3).sum())
    return F.relu6(x + 3) / 6


def prefixes(x, axis):
    """The elements along an axis on a new last axis for each position, and which are up to it."""
    x = x.movedim(axis, -1)
    size = x.shape[-1]
    within = torch.ones(size, size, dtype=torch.bool).tril()
    return x.unsqueeze(-2).expand(*x.shape, size), within


def running(method, native, extreme):
    def call(x, axis, counts):
        theirs = native(x, axis).values
        if x.shape[axis] == 0:
            return theirs
        ours, ties = shared(*prefixes(x, axis), extreme)
        return chosen(method, ties.movedim(-1, axis), ours.movedim(-1, axis), theirs, counts)
    return call


class Replaced(torch.autograd.Function):
    """The second source, with the derivatives of the first."""

    @staticmethod
    def forward(ctx, x, y):
        return y.clone()

    @staticmethod
    def backward(ctx, adjoint):
        return adjoint, None


def shared(x, within, extreme):
    """The extreme over the last axis of what is within, and where several elements equal it."""
    least = float("-inf" if extreme is torch.amax else "inf")
    found = extreme(torch.where(within, x.detach(), least), -1, keepdim=True)
    equal = (x.detach() == found) & within
    count = equal.sum(-1, keepdim=True)
    value = torch.where(equal, x / count.clamp(min=1), 0.0).sum(-1)
    return Replaced.apply(value, found.squeeze(-1)), (count > 1).squeeze(-1)


def is_native(x, kernel, padding):
    padding = both_sides(padding, len(kernel))
    pairs = list(zip(padding[::2], padding[1::2]))
    return len(kernel) == 2 and x.numel() > 0 and all(
        before == after and 2 * before <= size for (before, after), size in zip(pairs, kernel))


def images(x, function):
    """A function of images [n, c, height, width] over the last two axes."""
    outer = x.shape[:-2]
    result = function(x.reshape(1, -1, *x.shape[-2:]))
    return result.reshape(*outer, *result.shape[-2:])


def gathered(x, kernel, stride, dilation, padding, ceil_mode):
    """The elements of each window on a new last axis, which exist, and which are padding."""
    numbers = np.arange(x.numel()).reshape(tuple(x.shape))
    shape, elements = windows(numbers, kernel, stride, dilation, padding, ceil_mode)
    parts = [elements(place) for place in np.ndindex(*shape)]
    size = max([len(part) for part in parts] + [1])
    at = np.zeros((len(parts), size), dtype=np.int64)
    exists, pads = np.zeros(at.shape, dtype=np.bool_), np.zeros(at.shape, dtype=np.bool_)
    for row, part in enumerate(parts):
        for column, number in enumerate(part):
            exists[row, column], pads[row, column] = number is not None, number is None
            at[row, column] = number or 0
    at, exists, pads = (torch.from_numpy(a.reshape(*shape, size)) for a in (at, exists, pads))
    flat = torch.cat([x.reshape(-1), torch.zeros(1, dtype=x.dtype)])
    return flat[at], exists, pads


def max_pool(x, kernel, stride, dilation, padding, ceil_mode, counts):
    elements, exists, _ = gathered(x, kernel, stride, dilation, padding, ceil_mode)
    ours, ties = shared(elements, exists, torch.amax)
    empty = int((~exists.any(-1)).sum())
    counts["differs: max_pool2d of padding"] += empty
    if empty or not is_native(x, kernel, padding):
        counts["max_pool2d beyond PyTorch's: an index and amax"] += 1
        return ours
    padding = padding if len(padding) == 2 else padding[::2]
    theirs = images(x, lambda x: F.max_pool2d(
        x, kernel, stride, padding, dilation, ceil_mode=ceil_mode))
    return chosen("max_pool2d", ties, ours, theirs, counts)


def avg_pool(x, kernel, stride, dilation, padding, ceil_mode, count_include_pad, counts):
    if is_native(x, kernel, padding) and all(distance == 1 for distance in dilation):
        padding = padding if len(padding) == 2 else padding[::2]
        return images(x, lambda x: F.avg_pool2d(
            x, kernel, stride, padding, ceil_mode, count_include_pad))
    counts["avg_pool2d beyond PyTorch's: an index and a sum"] += 1
    elements, exists, pads = gathered(x, kernel, stride, dilation, padding, ceil_mode)
    count = exists.sum(-1) + (pads.sum(-1) if count_include_pad else 0)
    return torch.where(exists, elements, 0.0).sum(-1) / count


def sides(padding, space):
    """The padding in F.pad's order: the last axis first."""
    pairs = both_sides(padding, space)
    return [n for i in reversed(range(space)) for n in pairs[2 * i:2 * i + 2]]


def convolution(x, w, groups, stride, dilation, padding, counts):
    space = len(stride)
    if space > 3:
        raise Skip("PyTorch has convolutions of 1 to 3 axes")
    function = (F.conv1d, F.conv2d, F.conv3d)[space - 1]
    return function(F.pad(x, sides(padding, space)), w, None, stride, 0, dilation, groups)


def transposed_convolution(x, w, groups, stride, dilation, padding, output_padding, counts):
    space = len(stride)
    if space > 3:
        raise Skip("PyTorch has convolutions of 1 to 3 axes")
    function = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[space - 1]
    whole = function(x, w, None, stride, 0, 0, groups, dilation)
    added = sides([n for count in output_padding for n in (0, count)], space)
    return F.pad(whole, [a - b for a, b in zip(added, sides(padding, space))])


def positions(x, index, axis):
    """The numbers of the elements that a scatter writes, and which of its indices are in range."""
    axis %= x.dim()
    valid = (0 <= index) & (index < x.shape[axis])
    numbers = torch.arange(x.numel()).reshape(x.shape)
    places = list(torch.meshgrid(*(torch.arange(n) for n in index.shape), indexing="ij"))
    places[axis] = torch.where(valid, index, 0)
    if not x.numel():
        return torch.zeros(0, dtype=torch.int64), torch.zeros_like(valid)
    return numbers[tuple(places)][valid], valid


def signed(index):
    """Positions in i64; those of u64 beyond are out of range like negative ones."""
    return index.to(torch.int64)


def scatter(x, index, src, axis, counts):
    at, valid = positions(x, signed(index), axis)
    last = np.zeros(len(at), dtype=np.bool_)
    numbers, first = np.unique(at.numpy()[::-1], return_index=True)
    last[len(at) - 1 - first] = True
    counts["differs: scatter"] += len(at) - len(numbers)
    last = torch.from_numpy(last)
    return x.reshape(-1).index_put((at[last],), src[valid][last]).reshape(x.shape)


def scatter_add(x, index, src, axis, counts):
    at, valid = positions(x, signed(index), axis)
    return x.reshape(-1).scatter_add(0, at, src[valid]).reshape(x.shape)


def scatter_amax(x, index, src, axis, counts):
    at, valid = positions(x, signed(index), axis)
    return x.reshape(-1).scatter_reduce(0, at, src[valid], "amax").reshape(x.shape)


def scattered_products(x, index, src, include_self):
    """A chain of products: factor k is write number k to the position."""
    written = torch.zeros(x.shape, dtype=torch.bool).index_fill(0, index, True)
    found = x if include_self else torch.where(written, 1.0, x)
    factors, count = collections.defaultdict(list), collections.Counter()
    for number, at in enumerate(index.tolist()):
        factors[count[at]].append(number)
        count[at] += 1
    for numbers in factors.values():
        found = found * torch.ones_like(found).index_put((index[numbers],), src[numbers])
    return found


def scatter_prod(x, index, src, include_self, counts, twice):
    ours = scattered_products(x, index, src, include_self)
    if twice:
        counts["differs: scatter_reduce of prod"] += x.numel()
        return ours
    replaced_x, replaced_src = (~torch.isfinite(part.detach()) for part in (x, src))
    kink = replaced_x.index_fill(0, index[replaced_src], True)
    # The factors are replaced as well: the derivative of what torch.where omits would be NaN.
    x, src = torch.where(replaced_x, 1.0, x), torch.where(replaced_src, 1.0, src)
    theirs = x.scatter_reduce(0, index, src, "prod", include_self=include_self)
    return chosen("scatter_reduce of infinities", kink, ours, theirs, counts)


def scatter_extreme(x, index, src, reduce, include_self, counts):
    theirs = x.scatter_reduce(0, index, src, reduce, include_self=include_self)
    if include_self:
        return theirs
    written = torch.zeros(x.shape, dtype=torch.bool).index_fill(0, index, True)
    kink = written & (x.detach() == theirs.detach())
    # NaN, which equals no extreme, is not among what shares it.
    ours = torch.where(kink, np.nan, x).scatter_reduce(0, index, src, reduce, include_self=False)
    return chosen("scatter_reduce of extremes", kink, ours, theirs, counts)


def scatter_reduce(x, index, src, axis, reduce, include_self, counts, twice=False):
    at, valid = positions(x, signed(index), axis)
    flat, src = x.reshape(-1), src[valid]
    if reduce == "prod":
        found = scatter_prod(flat, at, src, include_self, counts, twice)
    elif reduce in ("amax", "amin"):
        found = scatter_extreme(flat, at, src, reduce, include_self, counts)
    else:
        found = flat.scatter_reduce(0, at, src, reduce, include_self=include_self)
    return found.reshape(x.shape)


def sort(x, axis, descending, counts):
    return torch.sort(x, dim=axis, descending=descending, stable=True).values


def topk(x, k, axis, largest, counts):
    ordered = sort(x, axis, largest, counts)
    still = ordered.detach()
    size = max(x.shape[axis] - 1, 0)
    equal = still.narrow(axis, 0, size) == still.narrow(axis, x.shape[axis] - size, size)
    ties = equal.any(axis, keepdim=True).expand_as(ordered.narrow(axis, 0, k)) \
        if equal.numel() else torch.zeros_like(ordered.narrow(axis, 0, k), dtype=torch.bool)
    theirs = torch.topk(x, k, axis, largest, sorted=True).values
    return chosen("topk", ties, ordered.narrow(axis, 0, k), theirs, counts)


def einsum(*sources, labels, output, counts):
    terms = []
    for x in sources:
        terms += [x, labels[:x.dim()]]
        labels = labels[x.dim():]
    return torch.einsum(*terms, output)


def attention(query, key, value, mask=None, *, is_causal, counts):
    seen = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool)
    seen = seen.tril() if is_causal else seen
    if mask is not None and is_causal:
        # PyTorch takes no mask if is_causal; both together are one.
        mask = mask & seen if mask.dtype == torch.bool else torch.where(seen, mask, -torch.inf)
        is_causal = False
    if mask is not None:
        seen = seen & (mask if mask.dtype == torch.bool else mask.detach() != -torch.inf)
    blind = int((~seen.any(-1)).sum())
    if not blind:
        # The fused kernels have no second derivatives.
        with sdpa_kernel(SDPBackend.MATH):
            return F.scaled_dot_product_attention(query, key, value, mask, 0.0, is_causal)
    counts["differs: scaled_dot_product_attention"] += blind
    scores = query @ key.transpose(-2, -1) / np.sqrt(query.shape[-1])
    scores = scores + mask if mask is not None and mask.dtype != torch.bool else scores
    return torch.softmax(scores.masked_fill(~seen, -torch.inf), -1) @ value


def interpolate(x, sizes, mode, align_corners, counts):
    """Linear; the modes that move elements are among MOVED."""
    axes = len(sizes)
    if axes > 3 or not x.numel():
        raise Skip("PyTorch interpolates 1 to 3 axes that have elements")
    mode = ("linear", "bilinear", "trilinear")[axes - 1]
    images = x.reshape(1, -1, *x.shape[x.dim() - axes:])
    found = F.interpolate(images, sizes, mode=mode, align_corners=align_corners)
    return found.reshape(*x.shape[:x.dim() - axes], *sizes)


def statistic(function):
    """A function along axes; no axes would be all of them to PyTorch."""
    def call(x, axes, keepdim, counts=None, **arguments):
        if not axes:
            x, axes, keepdim = x.unsqueeze(-1), (-1,), False
        return function(x, tuple(axes), keepdim=keepdim, **arguments)
    return call


def log_of_powers(method, x, theirs, counts):
    """`theirs` for small results, else the logarithm of the sum over the last axis, as if elements
    were counted from the largest."""
    at = theirs.detach().abs()
    kink = (8 < at) & torch.isfinite(at)
    x = torch.where(kink.unsqueeze(-1), x, 0.0)
    largest = x.detach().amax(-1, keepdim=True)
    ours = torch.log(torch.exp(x - largest).sum(-1)) + largest.squeeze(-1)
    return chosen(method, kink, ours, theirs, counts)


def logsumexp(x, axes, keepdim, counts):
    theirs = statistic(torch.logsumexp)(x, axes, keepdim)
    if not x.numel():
        return theirs
    axes = [axis % x.dim() for axis in axes]
    shape = [size for axis, size in enumerate(x.shape) if axis not in axes]
    groups = x.movedim(axes, list(range(-len(axes), 0))).reshape(*shape, -1)
    found = log_of_powers("logsumexp", groups, theirs.reshape(shape), counts)
    return found.reshape(theirs.shape)


def logcumsumexp(x, axis, counts):
    theirs = torch.logcumsumexp(x, axis)
    if not x.numel():
        return theirs
    elements, within = prefixes(x, axis)
    elements = torch.where(within, elements, -torch.inf)
    found = log_of_powers("logcumsumexp", elements, theirs.movedim(axis, -1), counts)
    return found.movedim(-1, axis)


def std(x, axes, keepdim, correction, counts):
    arguments = {"axes": axes, "keepdim": keepdim, "correction": correction}
    theirs = statistic(torch.std)(x, **arguments)
    kink = theirs.detach() == 0
    return chosen("std", kink, torch.sqrt(statistic(torch.var)(x, **arguments)), theirs, counts)


def layernorm(x, axes, eps, counts):
    if not axes:
        return layernorm(x.unsqueeze(-1), [-1], eps, counts).squeeze(-1)
    if not x.numel():
        return x
    last = tuple(range(-len(axes), 0))
    x = x.movedim(tuple(axes), last)
    return F.layer_norm(x, x.shape[-len(axes):], eps=eps).movedim(last, tuple(axes))


def linear(x, weight, *bias):
    """Not F.linear, whose weight is the transpose, of two axes."""
    return sum(bias, x * weight if weight.dim() == 1 else torch.matmul(x, weight))


def reduced_losses(losses, reduction, count):
    if reduction == "none":
        return losses
    return losses.sum() / count if reduction == "mean" else losses.sum()


# A class that PyTorch ignores.
IGNORED = -100


def known_classes(classes, count, ignore_index):
    """The classes, IGNORED where one is ignored or out of range; and where one is ignored."""
    numbers = classes.numpy().astype(object)
    ignored = torch.from_numpy(np.array(numbers == ignore_index, dtype=np.bool_))
    classes = signed(classes)
    inside = (0 <= classes) & (classes < count)
    return torch.where(inside & ~ignored, classes, IGNORED), ignored


def losses_of_classes(x, classes, ignore_index, label_smoothing, reduction, counts):
    """The classes of x are along axis 1, or 0 of a vector."""
    axis = min(1, x.dim() - 1)
    known, ignored = known_classes(classes, x.shape[axis], ignore_index)
    outside = (known == IGNORED) & ~ignored
    options = {"ignore_index": IGNORED, "label_smoothing": label_smoothing}
    if not outside.any():
        return F.cross_entropy(x, known, reduction=reduction, **options)
    counts["differs: cross_entropy"] += int(outside.sum())
    losses = torch.zeros(known.shape, dtype=x.dtype)
    if x.shape[axis]:
        losses = F.cross_entropy(x, known, reduction="none", **options)
    if label_smoothing:
        smooth = torch.log_softmax(x, axis).mean(axis) * -label_smoothing
        losses = torch.where(outside, smooth, losses)
    return reduced_losses(losses, reduction, (~ignored).sum())


def cross_entropy(x, target, label_smoothing, reduction, counts):
    if target.is_floating_point():
        return F.cross_entropy(x, target, label_smoothing=label_smoothing, reduction=reduction)
    return losses_of_classes(x, target, None, label_smoothing, reduction, counts)


def sparse_categorical_crossentropy(x, classes, ignore_index, label_smoothing, reduction, counts):
    ignore_index = None if ignore_index == -1 else ignore_index
    x = x.movedim(-1, 1) if x.dim() > 1 else x
    return losses_of_classes(x, classes, ignore_index, label_smoothing, reduction, counts)


def nll_loss(x, classes, weight=None, *, ignore_index, reduction, counts):
    weight = torch.ones(x.shape[1:2], dtype=x.dtype) if weight is None else weight
    if not x.numel():
        # PyTorch refuses no classes.
        losses = torch.zeros(tuple(classes.shape), dtype=x.dtype)
        return reduced_losses(losses, reduction, 0)
    known, _ = known_classes(classes, x.shape[1], ignore_index)
    counts["differs: nll_loss"] += known.numel()
    weights = weight.reshape([-1] + [1] * (x.dim() - 2)).expand(x.shape)
    losses, weights = (
        # PyTorch refuses derivatives of what is not contiguous for axes of 1 alone.
        -F.nll_loss(part.contiguous(), known, ignore_index=IGNORED, reduction="none")
        for part in (-x, weights)
    )
    return reduced_losses(losses * weights, reduction, weights.sum())


def binary_losses(x, y):
    return -y * torch.log(x) - (1 - y) * torch.log(1 - x)


def binary_crossentropy(x, y, reduction, counts):
    x, y = torch.broadcast_tensors(x, y)
    at, targets = x.detach(), y.detach()
    kink = ~((0 < at) & (at < 1) & (1e-12 < at * (1 - at)) & (0 <= targets) & (targets <= 1))
    allowed = (torch.where(kink, 0.5, part) for part in (x, y))
    theirs = F.binary_cross_entropy(*allowed, reduction="none")
    losses = chosen("binary_crossentropy", kink, binary_losses(x, y), theirs, counts)
    return reduced_losses(losses, reduction, losses.numel())


def binary_crossentropy_twice(x, y, reduction, counts):
    losses = binary_losses(x, y)
    counts["differs: binary_crossentropy twice"] += losses.numel()
    return reduced_losses(losses, reduction, losses.numel())


def binary_crossentropy_logits(x, y, reduction):
    x, y = torch.broadcast_tensors(x, y)
    return F.binary_cross_entropy_with_logits(x, y, reduction=reduction)


def plain(function):
    """A function of PyTorch's that agrees everywhere."""
    return lambda *srcs, counts, **arguments: function(*srcs, **arguments)


def newton_schulz(x, steps, a, b, c, eps):
    if x.shape[-1] < x.shape[-2]:
        return newton_schulz(x.mT, steps, a, b, c, eps).mT
    x = x / ((x * x).sum((-2, -1), keepdim=True).sqrt() + eps)
    for _ in range(steps):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x


def reflected(x):
    """The factors of matrices. A column of zeros has no derivative, which the oracle says."""
    rows, columns = x.shape[-2:]
    q, r = torch.eye(rows, dtype=x.dtype).expand(*x.shape[:-2], rows, rows), x
    for at in range(min(rows, columns)):
        column = torch.where(torch.arange(rows) < at, 0.0, r[..., at])
        length = (column * column).sum(-1, keepdim=True).sqrt()
        sign = torch.where(column[..., at:at + 1] < 0, -1.0, 1.0).detach()
        unit = F.one_hot(torch.tensor(at), rows).to(x.dtype)
        normal = column + sign * length * unit
        square = (normal * normal).sum(-1, keepdim=True)
        is_zero = square == 0
        factor = torch.where(is_zero, 0.0, 2 / torch.where(is_zero, 1.0, square))
        mirror = torch.eye(rows, dtype=x.dtype) - (factor * normal)[..., None] * normal[..., None, :]
        q, r = q @ mirror, mirror @ r
    is_whole = torch.isfinite(x).all(-1, keepdim=True).all(-2, keepdim=True)
    return torch.where(is_whole, q, torch.nan), torch.where(is_whole, r, torch.nan).triu()


def singular(x, full_matrices, part):
    """A product of the factors of matrices, whose vectors are constants for gradients."""
    is_whole = torch.isfinite(x).all(-1, keepdim=True).all(-2, keepdim=True)
    wide = x if x.dtype == torch.float64 else x.float()
    safe = torch.where(is_whole, wide, 0.0)
    u, _, vt = torch.linalg.svd(safe.detach(), full_matrices=full_matrices)
    count = min(x.shape[-2:])
    s = torch.diagonal(u[..., :count].mT @ safe @ vt[..., :count, :].mT, dim1=-2, dim2=-1)
    found = part(u, s, vt).to(x.dtype)
    is_whole = is_whole if found.dim() == x.dim() else is_whole[..., 0]
    return torch.where(is_whole, found, torch.nan)


def product_of_factors(u, s, vt):
    count = s.shape[-1]
    return (u[..., :count] * s[..., None, :]) @ vt[..., :count, :]


AGREED = {
    "abs": torch.abs,
    "sign": torch.sign,
    "square": torch.square,
    "trunc": torch.trunc,
    "floor": torch.floor,
    "ceil": torch.ceil,
    "round": torch.round,
    "masked_fill": lambda x, mask, value: torch.where(mask, value, x),
    "lerp": torch.lerp,
    "relu": F.relu,
    "relu6": F.relu6,
    "hardtanh": lambda x, min, max: F.hardtanh(x, min, max),
    "leaky_relu": lambda x, slope: F.leaky_relu(x, slope),
    "hardswish": F.hardswish,
    "softsign": F.softsign,
    "exp": torch.exp,
    "log": torch.log,
    "log10": torch.log10,
    "rsqrt": torch.rsqrt,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "silu": F.silu,
    # Without the threshold above which F.softplus is linear.
    "softplus": lambda x, beta: torch.logaddexp(torch.zeros_like(x), x * beta) / beta,
    "logsigmoid": F.logsigmoid,
    "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x),
    "mish": F.mish,
    "cos": torch.cos,
    "tan": torch.tan,
    "sinh": torch.sinh,
    "cosh": torch.cosh,
    "asinh": torch.asinh,
    "acosh": torch.acosh,
    "atanh": torch.atanh,
    "erf": torch.erf,
    "asin": torch.asin,
    "acos": torch.acos,
    "atan": torch.atan,
    "logaddexp": torch.logaddexp,
    "fmod": torch.fmod,
    "matmul": torch.matmul,
    "cumsum": lambda x, axis: torch.cumsum(x, axis),
    "cumprod": lambda x, axis: torch.cumprod(x, axis),
    "amin": lambda x, axes, keepdim: reduced(x, axes, keepdim, torch.amin),
    "mean": statistic(torch.mean),
    "var": statistic(torch.var),
    "softmax": lambda x, axis: torch.softmax(x, axis),
    "log_softmax": lambda x, axis: torch.log_softmax(x, axis),
    "softmin": lambda x, axis: F.softmin(x, axis),
    "normalize": lambda x, p, axis, eps: F.normalize(x, p, axis, eps),
    "newton_schulz": newton_schulz,
    "qr_q": lambda x: reflected(x)[0],
    "qr_r": lambda x: reflected(x)[1],
    "svd_s": lambda x: singular(x, False, lambda u, s, vt: s),
    "svd_product": lambda x, full_matrices: singular(x, full_matrices, product_of_factors),
    "svd_u": lambda x, full_matrices: singular(x, full_matrices, lambda u, s, vt: u.mT @ u),
    "svd_vt": lambda x, full_matrices: singular(x, full_matrices, lambda u, s, vt: vt @ vt.mT),
    "dot": torch.matmul,
    "linear": linear,
    "binary_crossentropy_logits": binary_crossentropy_logits,
}

FLOWS = {name: plain(function) for name, function in AGREED.items()} | {
    "celu": celu,
    "elu": elu,
    # With the numbers of tinygrad; those of torch.selu have more digits.
    "selu": lambda x, counts: 1.0507 * elu(x, 1.67326, counts),
    "clamp": clamp,
    "copysign": copysign,
    "gelu": gelu,
    "hardsigmoid": hardsigmoid,
    "cummax": running("cummax", torch.cummax, torch.amax),
    "cummin": running("cummin", torch.cummin, torch.amin),
    "max_pool2d": max_pool,
    "avg_pool2d": avg_pool,
    "conv2d": convolution,
    "conv_transpose2d": transposed_convolution,
    "scatter": scatter,
    "scatter_add": scatter_add,
    "scatter_amax": scatter_amax,
    "sort": sort,
    "topk": topk,
    "einsum": einsum,
    "scaled_dot_product_attention": attention,
    "interpolate": interpolate,
    "std": std,
    "logsumexp": logsumexp,
    "logcumsumexp": logcumsumexp,
    "layernorm": layernorm,
    "scatter_reduce": scatter_reduce,
    "cross_entropy": cross_entropy,
    "sparse_categorical_crossentropy": sparse_categorical_crossentropy,
    "nll_loss": nll_loss,
    "binary_crossentropy": binary_crossentropy,
}

# The methods that are computed otherwise in programs with several gradients.
TWICE = {
    "scatter_reduce": functools.partial(scatter_reduce, twice=True),
    "binary_crossentropy": binary_crossentropy_twice,
}

# Methods through which no gradient flows: NumPy computes them.
PASSIVE = {
    "linspace", "arange_float", "eye", "tri", "one_hot", "argsort", "topk_indices", "argmax",
    "argmin", "any", "all", "count_nonzero", "isnan", "isinf", "isfinite", "isclose", "assign",
    "assign_slice", "set", "nonzero_sized", "max_pool2d_indices", "keccak",
}

# Methods that only move elements, and fill with 0: NumPy says which.
MOVED = {
    "squeeze", "unsqueeze", "transpose", "flatten", "unflatten", "repeat", "repeat_interleave",
    "stack", "split", "chunk", "unfold", "diagonal", "diag", "triu", "tril", "slice",
    "pad_reflect", "pad_replicate", "pad_circular", "shrink_to", "pad_to", "movedim", "roll",
    "index_select", "get", "meshgrid", "masked_select_sized", "max_unpool2d", "rearrange",
}

# The sources, by number, that are positions, classes or masks if they are no floats.
POSITIONS = {
    "masked_fill": (1,), "scatter": (1,), "scatter_add": (1,), "scatter_amax": (1,),
    "scatter_reduce": (1,), "cross_entropy": (1,), "sparse_categorical_crossentropy": (1,),
    "nll_loss": (1,), "scaled_dot_product_attention": (3,),
}

# The sources, by number, that do not take part in the promotion.
UNPROMOTED = {"scaled_dot_product_attention": (3,)}


def is_movement(statement):
    """Whether a method is one of MOVED, or in a mode that only moves elements."""
    name, arguments = statement["op"], dict(statement["args"])
    return name in MOVED or name == "interpolate" and arguments["mode"] != "linear"
