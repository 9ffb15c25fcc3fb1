"""PyTorch as a peer: eager, on the CPU.

Unsigned integers beyond u8 are left out: of most operations PyTorch has none for them.
"""

import torch
import torch.nn.functional as F


def same(text):
    return f"({text}).to({{dtype}})"


def reduced(function):
    """PyTorch's sums of several axes; products go axis by axis."""
    def text(adapter, statement, operands, types):
        x, axes = operands[0], statement["axes"]
        if function == "amax" and any(types[0]["shape"][axis] == 0 for axis in axes):
            raise Skip("PyTorch has no maximum of nothing")
        wide = "torch.float32" if types[0]["dtype"] in ("f16", "bf16") else None
        dtype = adapter.dtype(statement["dtype"])
        if wide or function != "amax":
            x = f"{x}.to({wide or dtype})"
        if function == "sum":
            x = f"{x}.sum({axes}, keepdim=True)" if axes else x
        elif function == "amax":
            x = f"{x}.amax({axes}, keepdim=True)" if axes else x
        else:
            for axis in axes:
                x = f"{x}.prod({axis}, keepdim=True)"
        return f"{x}.to({dtype})"
    return text


def pad(adapter, statement, operands, types):
    value = value_of(types[0]["dtype"], statement["bytes"])
    if isinstance(value, int) and not -2**53 <= value <= 2**53:
        raise Skip("F.pad takes its value for a float")
    flat = [size for pair in reversed(statement["pads"]) for size in pair]
    if not flat:
        return operands[0]
    return f"F.pad({operands[0]}, {flat}, value={number(repr(value))})"


def gather(adapter, statement, operands, types):
    data, index = types
    axis = statement["axis"]
    size = data["shape"][axis]
    if size == 0:
        raise Skip("gather takes nothing from an empty axis")
    x, at = operands[0], f"{operands[1]}.to(torch.int64)"
    return (f"torch.where(({at} >= 0) & ({at} < {size}), "
            f"torch.gather({x}, {axis}, {at}.clamp(0, {size - 1})), "
            f"torch.zeros((), dtype={adapter.dtype(statement['dtype'])}))")


def pool(function, extra=""):
    def text(adapter, statement, operands, types):
        args = adapter.fields(statement)
        kernel, padding = args["kernel"], args["padding"]
        if len(kernel) not in (1, 2, 3):
            raise Skip("PyTorch pools over 1 to 3 axes")
        x, rank = operands[0], len(types[0]["shape"])
        if rank not in (len(kernel) + 1, len(kernel) + 2):
            raise Skip("PyTorch wants a batch and channels")
        if len(padding) not in (1, len(kernel)) or any(2 * p > k for p, k in zip(
                padding * (len(kernel) if len(padding) == 1 else 1), kernel)):
            raise Skip("PyTorch pads both sides alike, by half a window at most")
        if types[0]["dtype"] not in FLOATS:
            raise Skip("PyTorch pools floats")
        if function == "avg_pool" and any(step != 1 for step in args["dilation"]):
            raise Skip("PyTorch takes means of adjacent elements only")
        steps = args["stride"] or kernel
        more = extra.format(**args)
        return f"F.{function}{len(kernel)}d({x}, {kernel}, {steps}, {padding}{more})"
    return text


def conv(adapter, statement, operands, types):
    args = adapter.fields(statement)
    axes = len(types[1]["shape"]) - 2
    if axes not in (1, 2, 3) or len(args["padding"]) not in (1, axes):
        raise Skip("PyTorch convolves over 1 to 3 axes, both sides padded alike")
    x, weights = (f"{operand}.to({args['dtype']})" for operand in operands)
    return (f"F.conv{axes}d({x}, {weights}, None, {args['stride']}, {args['padding']}, "
            f"{args['dilation']}, {args['groups']})")


def promoted(template):
    """The operands in the dtype of the result, where PyTorch promotes none."""
    def text(adapter, statement, operands, types):
        dtype = adapter.dtype(statement["dtype"])
        return template.format(*(f"({operand}).to({dtype})" for operand in operands))
    return text


def roll(adapter, statement, operands, types):
    args = statement["args"]
    if not args["axes"]:
        return operands[0]
    return f"torch.roll({operands[0]}, {args['shifts']}, {args['axes']})"


def leaky_relu(adapter, statement, operands, types):
    slope = adapter.argument(statement["args"]["slope"])
    if slope.startswith("-") or "float" in slope:
        raise Skip("PyTorch multiplies a zero by a slope, too")
    return f"F.leaky_relu({operands[0]}, {slope})"


FLOAT = {name: f"{call}({{0}})" for name, call in {
    "relu": "torch.relu", "relu6": "F.relu6", "hardsigmoid": "F.hardsigmoid",
    "hardswish": "F.hardswish", "exp": "torch.exp", "log": "torch.log",
    "log10": "torch.log10", "rsqrt": "torch.rsqrt", "sigmoid": "torch.sigmoid",
    "tanh": "torch.tanh", "silu": "F.silu", "mish": "F.mish",
    "cos": "torch.cos", "tan": "torch.tan", "sinh": "torch.sinh", "cosh": "torch.cosh",
    "asinh": "torch.asinh", "acosh": "torch.acosh", "atanh": "torch.atanh", "erf": "torch.erf",
    "asin": "torch.asin", "acos": "torch.acos", "atan": "torch.atan",
}.items()}


class Torch(Adapter):
    NAME = f"torch {torch.__version__}"
    DTYPES = {
        "bool": "torch.bool", "i8": "torch.int8", "u8": "torch.uint8", "i16": "torch.int16",
        "i32": "torch.int32", "i64": "torch.int64", "f16": "torch.float16",
        "bf16": "torch.bfloat16", "f32": "torch.float32", "f64": "torch.float64",
    }
    PRELUDE = (
        "import torch\n"
        "import torch.nn.functional as F\n"
        "def bits(dtype, shape, data):\n"
        "    raw = torch.tensor(list(bytes.fromhex(data)), dtype=torch.uint8)\n"
        "    return (raw.view(dtype) if data else raw.to(dtype)).reshape(shape)\n")
    CAST = "({0}).to({dtype})"
    COUNT = "torch.arange({0}, dtype=torch.int64)"
    OPS = {
        "const": lambda adapter, statement, operands, types:
            f"{adapter.literal(statement['dtype'], (), statement['bytes'])}"
            f".expand({tuple(statement['shape'])})",
        "arange": arange,
        "neg": same("-{0}"), "not": "~{0}", "recip": "torch.reciprocal({0})",
        "exp2": "torch.exp2({0})", "log2": "torch.log2({0})", "sin": "torch.sin({0})",
        "sqrt": "torch.sqrt({0})",
        "add": same("{0} + {1}"), "sub": same("{0} - {1}"), "mul": same("{0} * {1}"),
        "div": same("{0} / {1}"), "pow": "torch.pow({0}, {1})",
        "cdiv": "torch.div({0}, {1}, rounding_mode='trunc')", "cmod": "torch.fmod({0}, {1})",
        "floordiv": "torch.div({0}, {1}, rounding_mode='floor')",
        "floormod": "torch.remainder({0}, {1})",
        "max": "torch.maximum({0}, {1})", "min": "torch.minimum({0}, {1})",
        "cmplt": "{0} < {1}", "cmpne": "{0} != {1}", "cmpeq": "{0} == {1}",
        "and": "{0} & {1}", "or": "{0} | {1}", "xor": "{0} ^ {1}",
        "shl": same("{0} << {1}"), "shr": same("{0} >> {1}"),
        "where": "torch.where({0}, {1}, {2})", "mulacc": same("{0} * {1} + {2}"),
        "cast": CAST, "bitcast": "{0}.contiguous().view({dtype})",
        "reduce_sum": reduced("sum"), "reduce_prod": reduced("prod"), "reduce_max": reduced("amax"),
        "reshape": "{0}.reshape({shape})", "expand": "{0}.expand({shape})",
        "permute": "{0}.permute({axes})", "flip": "{0}.flip({axes})", "pad": pad, "shrink": shrink,
        "cat": lambda adapter, statement, operands, types:
            f"torch.cat([{', '.join(operands)}], {statement['axis']})",
        "gather": gather, "contiguous": "{0}.contiguous()", "realize": "{0}", "detach": "{0}",
        "abs": "torch.abs({0})", "square": same("{0} * {0}"),
        "trunc": "torch.trunc({0})", "floor": "torch.floor({0})", "ceil": "torch.ceil({0})",
        "round": "torch.round({0})", "isnan": "torch.isnan({0})", "isinf": "torch.isinf({0})",
        "isfinite": "torch.isfinite({0})",
        "lerp": promoted("torch.lerp({0}, {1}, {2})"), "roll": roll,
        "clamp": "torch.clamp({0}, {min}, {max})", "hardtanh": "F.hardtanh({0}, {min}, {max})",
        "leaky_relu": leaky_relu, **FLOAT, "softsign": composed("F.softsign({0})"),
        "cumsum": "torch.cumsum({0}, {axis}, dtype={dtype})",
        "cummax": "torch.cummax({0}, {axis}).values",
        "amin": lambda adapter, statement, operands, types: (
            "{0}.amin({axes}, keepdim={keepdim})".format(operands[0], **statement["args"])
            if statement["args"]["axes"] else operands[0]),
        "matmul": promoted("torch.matmul({0}, {1})"),
        "tril": "torch.tril({0}, {diagonal})",
        "triu": "torch.triu({0}, {diagonal})",
        "conv2d": conv,
        "max_pool2d": pool("max_pool", ", {dilation}, {ceil_mode}"),
        "avg_pool2d": pool("avg_pool", ", {ceil_mode}, {count_include_pad}"),
        "transpose": "{0}.transpose({axis0}, {axis1})", "squeeze": "{0}.squeeze({axis})",
        "unsqueeze": "{0}.unsqueeze({axis})", "repeat": "{0}.repeat({counts})",
    }

    def read(self, value):
        dtype = NAMES.get(value.dtype, str(value.dtype))
        if value.numel() == 0:
            return dtype, value.shape, b""
        flat = value.detach().resolve_neg().reshape(-1).clone(memory_format=torch.contiguous_format)
        return dtype, value.shape, bytes(flat.view(torch.uint8).tolist())

    def is_missing(self, error):
        text = str(error)
        missing = ("not implemented for", "not supported", "only supports", "is not implemented",
                   # Its documentation forbids these, and an integer division by zero ends all.
                   "ZeroDivisionError",
                   "min_val cannot be greater", "to have non-zero size")
        return isinstance(error, NotImplementedError) or any(word in text for word in missing)


torch.set_num_threads(1)
NAMES = {eval(text): name for name, text in Torch.DTYPES.items()}
ADAPTER = Torch()
