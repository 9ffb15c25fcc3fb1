"""The rows of `suite.txt` and `gpu.txt` in PyTorch (eager), on the device of the argument, or on one core.

Reads lines: `make ROW` prints the sum and the number of the elements of each result, `run COUNT` the seconds
of a run of the row, on average over COUNT runs, `byte COUNT` the seconds to move a byte. Answers `none WHY`
where that fails."""

import os
import re
import sys
import time

os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")

import torch
import torch.nn.functional as F

DEVICE = sys.argv[1] if 1 < len(sys.argv) else "cpu"
torch.set_num_threads(1)
DTYPES = {
    "f32": torch.float32, "f64": torch.float64, "f16": torch.float16, "bf16": torch.bfloat16, "u8": torch.uint8,
    "i8": torch.int8, "i16": torch.int16, "i32": torch.int32, "i64": torch.int64, "bool": torch.bool,
}

NAMES = {dtype: name for name, dtype in DTYPES.items()}


def tensor(text):
    """The same numbers as in `suite.rs`."""
    dtype, sizes, _, below = re.fullmatch(r"(\w+)\[([\d,]*)\](<(\d+))?", text).groups()
    shape = [int(size) for size in sizes.split(",") if size]
    count = 1
    for size in shape:
        count *= size
    number = torch.arange(count, dtype=torch.int64, device=DEVICE) * 7919 % 1000
    if below:
        found = number * 31 % int(below)
    else:
        found = (number.to(torch.float32) / 1000.0) - 0.5
    return found.to(DTYPES[dtype]).reshape(shape)


def conv(n):
    return dict(stride=n("stride", 1), padding=n("padding", 0), dilation=n("dilation", 1), groups=n("groups", 1))


def pool(n):
    kernel = n("kernel", 2)
    return dict(kernel_size=kernel, stride=n("stride", kernel), padding=n("padding", 0))


def rope(x, cos, sin):
    a, b = x.split(x.shape[-1] // 2, -1)
    return x * cos + torch.cat([-b, a], -1) * sin


def adam(x, g, m, v):
    m = m * 0.9 + g * 0.1
    v = v * 0.999 + g * g * 0.001
    return x - m * 0.01 / ((v + 1.0).sqrt() + 1e-8)


# Each op, given its inputs and a function that returns its numbers.
OPS = {
    "add": lambda n, x, y: x + y,
    "mul": lambda n, x, y: x * y,
    "add_relu": lambda n, x, y: F.relu(x + y),
    "relu": lambda n, x: F.relu(x),
    "gelu": lambda n, x: F.gelu(x, approximate="tanh"),
    "silu": lambda n, x: F.silu(x),
    "exp": lambda n, x: x.exp(),
    "sigmoid": lambda n, x: x.sigmoid(),
    "silu_mul": lambda n, x, y: F.silu(x) * y,
    "to_f32": lambda n, x: x.to(torch.float32),
    "to_f16": lambda n, x: x.to(torch.float16),
    "to_bf16": lambda n, x: x.to(torch.bfloat16),
    "image": lambda n, x: (x.to(torch.float32) * (1.0 / 255.0) - 0.45) * 4.0,
    "matmul": lambda n, x, y: x @ y,
    "matmul_t": lambda n, x, y: x @ y.transpose(-1, -2),
    "t_matmul": lambda n, x, y: x.transpose(-1, -2) @ y,
    "linear": lambda n, x, w, b: F.linear(x, w, b),
    "linear_gelu": lambda n, x, w, b: F.gelu(F.linear(x, w, b), approximate="tanh"),
    "conv": lambda n, x, w: (F.conv1d if x.dim() == 3 else F.conv2d)(x, w, **conv(n)),
    "conv_relu": lambda n, x, w, b: F.relu(F.conv2d(x, w, b, **conv(n))),
    "conv_transpose": lambda n, x, w: F.conv_transpose2d(x, w, **conv(n)),
    "max_pool": lambda n, x: F.max_pool2d(x, **pool(n)),
    "avg_pool": lambda n, x: F.avg_pool2d(x, **pool(n)),
    "softmax": lambda n, x: x.softmax(n("axis", -1)),
    "log_softmax": lambda n, x: x.log_softmax(n("axis", -1)),
    "layer_norm": lambda n, x: F.layer_norm(x, x.shape[-1:]),
    "rms_norm": lambda n, x, w: F.rms_norm(x, x.shape[-1:], w, 1e-5),
    "attention": lambda n, q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=n("causal", 0) == 1),
    "cross_entropy": lambda n, x, y: F.cross_entropy(x, y),
    "sum": lambda n, x: x.sum(n("axis", -1)),
    "mean": lambda n, x: x.mean(n("axis", -1)),
    "max": lambda n, x: x.amax(n("axis", -1)),
    "argmax": lambda n, x: x.argmax(n("axis", -1)),
    "var": lambda n, x: x.var(n("axis", -1)),
    "sum_all": lambda n, x: x.sum(),
    "cumsum": lambda n, x: x.cumsum(n("axis", -1)),
    "transpose": lambda n, x: x.transpose(-1, -2).contiguous(),
    "add_transpose": lambda n, x: x + x.transpose(-1, -2),
    "permute_0213": lambda n, x: x.permute(0, 2, 1, 3).contiguous(),
    "permute_0231": lambda n, x: x.permute(0, 2, 3, 1).contiguous(),
    "permute_0312": lambda n, x: x.permute(0, 3, 1, 2).contiguous(),
    "permute_210": lambda n, x: x.permute(2, 1, 0).contiguous(),
    "permute_102": lambda n, x: x.permute(1, 0, 2).contiguous(),
    "flip": lambda n, x: x.flip(n("axis", -1)),
    "cat": lambda n, *xs: torch.cat(xs, n("axis", -1)),
    "pad": lambda n, x: F.pad(x, [n("by", 1)] * 4),
    "slice": lambda n, x: x[..., n("from", 0):n("to", x.shape[-1])].contiguous(),
    "embedding": lambda n, x, table: F.embedding(x.reshape(-1), table),
    "gather": lambda n, x, index: x.gather(n("axis", -1), index),
    "scatter": lambda n, x, index, y: x.scatter(n("axis", -1), index, y),
    "index_add": lambda n, x, index, y: x.index_add(0, index, y),
    "bincount": lambda n, x: x.bincount(minlength=n("classes", 10)),
    "sort": lambda n, x: x.sort(n("axis", -1))[0],
    "topk": lambda n, x: x.topk(n("k", 1), n("axis", -1))[0],
    "one_hot": lambda n, x: F.one_hot(x, n("classes", 10)),
    "causal_mask": lambda n, x: x.tril(),
    "rope": lambda n, x, cos, sin: rope(x, cos, sin),
    "interpolate": lambda n, x: F.interpolate(x, scale_factor=2, mode="nearest"),
    "sgd": lambda n, x, g: x - g * 0.01,
    "adam": lambda n, x, g, m, v: adam(x, g, m, v),
}


def made(row):
    _, call, inputs = row.split("|")
    name, *words = call.split()
    numbers = {key: int(value) for key, value in (word.split("=") for word in words)}
    tensors = [tensor(text) for text in inputs.split()]
    op = OPS[name]
    torch.backends.cuda.matmul.allow_tf32 = numbers.get("tf32", 0) == 1
    torch.backends.cudnn.allow_tf32 = numbers.get("tf32", 0) == 1
    is_backward = numbers.get("backward", 0) == 1
    torch.set_grad_enabled(is_backward)
    run = lambda: op(lambda key, default: numbers.get(key, default), *tensors)
    if not is_backward:
        return lambda: [run()]
    floats = [x.requires_grad_() for x in tensors if x.is_floating_point()]
    result = run()
    weights = tensor(f"{NAMES[result.dtype]}{list(result.shape)}".replace(" ", ""))

    def run_backward():
        result = run()
        return [result.detach(), *torch.autograd.grad(result, floats, weights)]

    return run_backward


def seconds_of(run, count):
    """The seconds of a run, on average."""
    start = time.perf_counter()
    for _ in range(count):
        run()
    if DEVICE != "cpu":
        torch.cuda.synchronize()
    return (time.perf_counter() - start) / count


def seconds_of_byte():
    """The seconds to read or to write a byte, from copies of a gibibyte."""
    x, y = (torch.ones(1 << 28, device=DEVICE) for _ in range(2))
    seconds_of(lambda: y.copy_(x), 3)
    return min(seconds_of(lambda: y.copy_(x), 10) for _ in range(3)) / (2 << 30)


def main():
    run = None
    for line in sys.stdin:
        command, rest = line.split(maxsplit=1)
        try:
            if command == "make":
                run = made(rest)
                sums = [number for x in run() for number in (float(x.to(torch.float64).sum()), x.numel())]
                print(*sums, flush=True)
            elif command == "byte":
                print(seconds_of_byte(), flush=True)
            else:
                print(seconds_of(run, int(rest)), flush=True)
        except Exception as error:
            print("none", type(error).__name__, str(error).split("\n")[0], flush=True)


main()
