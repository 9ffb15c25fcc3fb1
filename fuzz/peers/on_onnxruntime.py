"""ONNX Runtime as a peer: each program is one ONNX model, optimised as by default, on the CPU.

Inputs of a program are inputs of the graph, so that they are not folded; its constants are. The
opset is 21, which versions from 1.18 on have. Its reader of arrays for Python has no bf16.

Skipped is what ONNX does not promise, with the reason, and what the runtime says that it has not
implemented: many operations of small integers. Two of its failures would hide others: where they
may show, nothing is judged, and scripts of the cases that are named below show them.
"""

import math

import numpy as np
import onnx
import onnx.parser
import onnx.printer
import onnxruntime
from onnx import TensorProto, helper, numpy_helper


def node(op, *sources, **attributes):
    """Returns the text of a node."""
    words = [repr(op), *map(str, sources), *(f"{name}={x!r}" for name, x in attributes.items())]
    return f"node({', '.join(words)})"


def plain(op, *attributes):
    """A node whose sources are the operands, with attributes as texts."""
    def text(adapter, statement, operands, types):
        fields = adapter.fields(statement)
        words = [repr(op), *operands, *(word.format(**fields) for word in attributes)]
        return f"node({', '.join(words)})"
    return text


def reshaped(x, *sizes):
    return node("Reshape", x, ints(*sizes), allowzero=1)


def ints(*numbers):
    return f"ints({list(numbers)})"


def taken(adapter, x, dtype, wanted):
    """An operand of this dtype as one of the dtype that is wanted."""
    return x if dtype == wanted else adapter.cast(x, wanted)


def by_kind(of_bool, of_ints):
    """One node for bool and another one for integers."""
    def text(adapter, statement, operands, types):
        return node(of_bool if statement["dtype"] == "bool" else of_ints, *operands)
    return text


def of_floats(rule):
    """A rule for floats of a function that does not change integers."""
    def text(adapter, statement, operands, types):
        is_float = types[0]["dtype"] in FLOATS
        return plain(rule)(adapter, statement, operands, types) if is_float else operands[0]
    return text


def remainder(adapter, statement, operands, types):
    """Integers have only the remainder with the sign of the divisor."""
    if statement["dtype"] in FLOATS:
        return node("Mod", *operands, fmod=1)
    x, y = operands
    return node("Sub", x, node("Mul", node("Div", x, y), y))


def shift(direction):
    def text(adapter, statement, operands, types):
        return node("BitShift", *operands, direction=direction)
    return text


def reduced(op):
    """16-bit floats are accumulated in f32."""
    def text(adapter, statement, operands, types):
        source, dtype, axes = types[0]["dtype"], statement["dtype"], list(statement["axes"])
        wide = "f32" if source == "f16" and op != "ReduceMax" else dtype
        x = taken(adapter, operands[0], source, wide)
        return taken(adapter, node(op, x, ints(*axes)) if axes else x, wide, dtype)
    return text


def method_reduced(op, through=None):
    """A reduction whose axes are arguments."""
    def text(adapter, statement, operands, types):
        args, dtype = statement["args"], statement["dtype"]
        if op == "ReduceMean" and 0 in types[0]["shape"]:
            raise Skip("ONNX does not define the mean of nothing")
        inner = through or ("f32" if dtype == "f16" else dtype)
        x = taken(adapter, operands[0], types[0]["dtype"], inner)
        x = node(op, x, ints(*args["axes"]), keepdims=int(args["keepdim"]), noop_with_empty_axes=1)
        return taken(adapter, x, inner, dtype)
    return text


def pad(adapter, statement, operands, types):
    pads = [before for before, _ in statement["pads"]] + [after for _, after in statement["pads"]]
    value = adapter.literal(types[0]["dtype"], (), statement["bytes"])
    return node("Pad", operands[0], ints(*pads), value) if pads else operands[0]


def padded(mode):
    def text(adapter, statement, operands, types):
        before, after = statement["args"]["before"], statement["args"]["after"]
        return node("Pad", *operands, ints(*before, *after), mode=mode) if before else operands[0]
    return text


def pad_to(adapter, statement, operands, types):
    shape = types[0]["shape"]
    sizes = [after - size for after, size in zip(statement["shape"], shape)]
    return node("Pad", operands[0], ints(*[0] * len(shape), *sizes)) if shape else operands[0]


def sliced(x, starts, stops, steps):
    axes = ints(*range(len(starts)))
    return node("Slice", x, ints(*starts), ints(*stops), axes, ints(*steps)) if starts else x


def shrink(adapter, statement, operands, types):
    ranges = statement["ranges"]
    starts, stops = [start for start, _ in ranges], [stop for _, stop in ranges]
    return sliced(operands[0], starts, stops, [1] * len(ranges))


def slice_method(adapter, statement, operands, types):
    args = statement["args"]
    axes = zip(args["starts"], args["steps"], types[0]["shape"])
    if any(step < 0 and start < -size for start, step, size in axes):
        raise Skip("ONNX begins at the first element where Python is before it")
    return sliced(operands[0], args["starts"], args["stops"], args["steps"])


def shrink_to(adapter, statement, operands, types):
    sizes = statement["shape"]
    return sliced(operands[0], [0] * len(sizes), sizes, [1] * len(sizes))


def flip(adapter, statement, operands, types):
    axes = statement["axes"]
    if not axes:
        return operands[0]
    count = len(axes)
    lowest = ints(*[-2**63 + 1] * count)
    return node("Slice", operands[0], ints(*[-1] * count), lowest, ints(*axes), ints(*[-1] * count))


def extended(adapter, x, at, of, axis):
    """The source with a zero at the end of an axis, and the indices, of which those beyond the
    axis become that of the zero: in ONNX they are errors, or count from the end."""
    shape = of["shape"]
    pads = [0] * (len(shape) + axis) + [1] + [0] * (len(shape) - 1 - axis)
    zero = scalar(adapter, "0", of["dtype"])
    at, size = adapter.cast(at, "i64"), f"ints({shape[axis]})"
    is_outside = node("Or", node("Less", f"(at := {at})", "ints(0)"), node("Less", size, "at"))
    return node("Pad", x, ints(*pads), zero), node("Where", is_outside, size, "at")


def gather(adapter, statement, operands, types):
    x, at = extended(adapter, *operands, types[0], statement["axis"])
    return node("GatherElements", x, at, axis=statement["axis"])


def index_select(adapter, statement, operands, types):
    axis = statement["args"]["axis"] % len(types[0]["shape"])
    x, at = extended(adapter, *operands, types[0], axis)
    return node("Gather", x, at, axis=axis)


def scatter(reduction):
    def text(adapter, statement, operands, types):
        x, at, src = operands
        dtype, axis = statement["dtype"], statement["args"]["axis"]
        # A negative index would count from the end. Beyond the axis the runtime reports an error.
        size = f"ints({types[0]['shape'][axis]})"
        at = f"(at := {adapter.cast(at, 'i64')})"
        at = node("Where", node("Less", at, "ints(0)"), size, "at")
        wide = "f32" if dtype == "f16" and reduction == "add" else dtype
        x, src = (taken(adapter, operand, dtype, wide) for operand in (x, src))
        x = node("ScatterElements", x, at, src, axis=axis, reduction=reduction)
        return taken(adapter, x, wide, dtype)
    return text


def promoted(op, **attributes):
    """The operands in the dtype of the result, where ONNX promotes none."""
    def text(adapter, statement, operands, types):
        operands = [taken(adapter, x, of["dtype"], statement["dtype"])
                    for x, of in zip(operands, types)]
        return op(*operands) if callable(op) else node(op, *operands, **attributes)
    return text


def linear(adapter, statement, operands, types):
    op = "Mul" if len(types[1]["shape"]) == 1 else "MatMul"
    if statement["dtype"] == "f16":
        raise Skip("the product is rounded to f16 before the sum")
    rule = promoted(lambda x, weight, *bias: (
        node("Add", node(op, x, weight), *bias) if bias else node(op, x, weight)))
    return rule(adapter, statement, operands, types)


def bounded(adapter, statement, operands, types):
    dtype, args = types[0]["dtype"], statement["args"]
    if any(end["number"].lower() == "nan" for end in args.values()):
        raise Skip("ONNX does not say what NaN bounds")
    # relu6 has no arguments.
    ends = [args[end]["number"] for end in ("min", "max")] if args else ["0", "6"]
    return node("Clip", operands[0], *(scalar(adapter, end, dtype) for end in ends))


def scalar(adapter, text, dtype):
    return f"scalar({number(text)}, {adapter.dtype(dtype)})"


def leaky_relu(adapter, statement, operands, types):
    slope = float(statement["args"]["slope"]["number"])
    if types[0]["dtype"] == "f64" and struct.unpack("<f", struct.pack("<f", slope))[0] != slope:
        raise Skip("attributes are numbers of f32")
    return f"node('LeakyRelu', {operands[0]}, alpha={number(repr(slope))})"


def softplus(adapter, statement, operands, types):
    if float(statement["args"]["beta"]["number"]) != 1:
        raise Skip("its Softplus has no beta")
    return node("Softplus", operands[0])


def both_sides(padding, axes):
    """The padding before and after each axis, in the order of ONNX."""
    if len(padding) == 1:
        padding = padding * axes
    if len(padding) == axes:
        return padding * 2
    if len(padding) != 2 * axes:
        raise Skip("the padding has another number of axes")
    return padding[::2] + padding[1::2]


def each(values, axes):
    return values * axes if len(values) == 1 else values


def conv(op):
    def text(adapter, statement, operands, types):
        args = statement["args"]
        axes = len(types[1]["shape"]) - 2
        if axes < 1:
            raise Skip("ONNX convolves over one axis or more")
        words = {"group": args["groups"], "strides": each(args["stride"], axes),
                 "dilations": each(args["dilation"], axes),
                 "pads": both_sides(args["padding"], axes)}
        if "output_padding" in args:
            words["output_padding"] = each(args["output_padding"], axes)
        return promoted(op, **words)(adapter, statement, operands, types)
    return text


def pool(op):
    def text(adapter, statement, operands, types):
        args = statement["args"]
        axes, shape = len(args["kernel"]), types[0]["shape"]
        if axes < 1 or len(shape) < axes:
            raise Skip("ONNX pools over one axis or more")
        pads = both_sides(args["padding"], axes)
        if any(kernel <= pad for kernel, pad in zip(args["kernel"] * 2, pads)):
            raise Skip("the runtime pads by less than a window")
        is_dilated = any(step != 1 for step in args["dilation"])
        if is_dilated and any(pads) and not args.get("count_include_pad"):
            raise Skip("ONNX does not say what a window without elements gives")
        words = {"kernel_shape": args["kernel"], "pads": pads, "ceil_mode": int(args["ceil_mode"]),
                 "strides": each(args["stride"] or args["kernel"], axes),
                 "dilations": each(args["dilation"], axes)}
        if "count_include_pad" in args:
            words["count_include_pad"] = int(args["count_include_pad"])
        # ONNX wants a batch and channels.
        x, outer = operands[0], shape[:len(shape) - axes]
        if len(outer) != 2:
            inner = shape[len(shape) - axes:]
            x = reshaped(x, 1, math.prod(outer), *inner)
        pooled = node(op, x, **words)
        return pooled if len(outer) == 2 else reshaped(pooled, *statement["shape"])
    return text


def cumsum(adapter, statement, operands, types):
    dtype = statement["dtype"]
    wide = "f32" if dtype == "f16" else dtype
    x = taken(adapter, operands[0], types[0]["dtype"], wide)
    return taken(adapter, node("CumSum", x, f"ints({statement['args']['axis']})"), wide, dtype)


def sizes(adapter, statement, operands, types):
    """The same elements in the shape of the result."""
    return reshaped(operands[0], *statement["shape"])


def permuted(adapter, statement, operands, types):
    axes = list(statement["axes"])
    return node("Transpose", *operands, perm=axes) if axes else operands[0]


def exchanged(adapter, statement, operands, types):
    args, axes = statement["args"], list(range(len(types[0]["shape"])))
    a, b = args["axis0"], args["axis1"]
    axes[a], axes[b] = axes[b], axes[a]
    return node("Transpose", *operands, perm=axes)


def movedim(adapter, statement, operands, types):
    args, rank = statement["args"], len(types[0]["shape"])
    to = {target % rank: source % rank for source, target in zip(args["from"], args["to"])}
    rest = iter(axis for axis in range(rank) if axis not in to.values())
    axes = [to[axis] if axis in to else next(rest) for axis in range(rank)]
    return node("Transpose", *operands, perm=axes) if axes else operands[0]


def repeat(adapter, statement, operands, types):
    counts, shape = statement["args"]["counts"], types[0]["shape"]
    more = len(counts) - len(shape)
    x = operands[0]
    if more > 0:
        x = reshaped(x, *[1] * more, *shape)
    return node("Tile", x, ints(*[1] * -more, *counts)) if counts else x


def stack(adapter, statement, operands, types):
    axis = statement["args"]["axis"]
    return node("Concat", *(node("Unsqueeze", x, ints(axis)) for x in operands), axis=axis)


def split(adapter, statement, operands, types):
    args = statement["args"]
    part, count = args["part"], len(args["sizes"])
    parts = node("Split", *operands, ints(*args["sizes"]), axis=args["axis"], outputs=count)
    return f"{parts}[{part}]" if count > 1 else operands[0]


def triangle(upper):
    return plain("Trilu", "ints({diagonal})", f"upper={upper}")


def topk(part):
    """The k first elements, and their indices."""
    def text(adapter, statement, operands, types):
        args, shape = statement["args"], types[0]["shape"]
        if not shape:
            raise Skip("ONNX sorts no scalars")
        largest = args["largest"] if "largest" in args else args["descending"]
        count = args["k"] if "k" in args else shape[args["axis"]]
        x = node("TopK", *operands, ints(count), axis=args["axis"], largest=int(largest), outputs=2)
        return adapter.cast(f"{x}[{part}]", "i32") if part else f"{x}[{part}]"
    return text


def arg_extreme(op):
    def text(adapter, statement, operands, types):
        args = statement["args"]
        x = node(op, *operands, axis=args["axis"], keepdims=int(args["keepdim"]))
        return adapter.cast(x, "i32")
    return text


def count_nonzero(adapter, statement, operands, types):
    x = operands[0] if types[0]["dtype"] == "bool" else adapter.cast(operands[0], "bool")
    return method_reduced("ReduceSum")(adapter, statement, [x], [{"dtype": "bool"}])


def one_hot(adapter, statement, operands, types):
    """A negative index counts from the end in ONNX."""
    at = adapter.cast(operands[0], "i64")
    count = statement["args"]["classes"]
    if not types[0]["shape"]:
        raise Skip("ONNX has no OneHot of a scalar")
    at = node("Where", node("Less", f"(at := {at})", "ints(0)"), f"ints({count})", "at")
    return node("OneHot", at, f"ints({count})", "const(np.array([0, 1], np.int32))")


def layer_norm(adapter, statement, operands, types):
    shape, args = types[0]["shape"], statement["args"]
    axes = sorted(axis % len(shape) for axis in args["axes"])
    if not axes or axes != list(range(axes[0], len(shape))):
        raise Skip("ONNX normalises the last axes")
    if statement["dtype"] == "f64":
        raise Skip("its numbers of f64 are normalised in f32")
    ones = f"const(np.ones({tuple(shape[axes[0]:])}, np.float32))"
    ones = ones if statement["dtype"] == "f32" else adapter.cast(ones, statement["dtype"])
    return (f"node('LayerNormalization', {operands[0]}, {ones}, axis={axes[0]}, "
            f"epsilon={number(repr(float(args['eps']['number'])))})")


def einsum(adapter, statement, operands, types):
    args, letters, words = statement["args"], "abcdefghijklmnopqrstuvwxyz", []
    if set(args["labels"]) <= set(args["output"]):
        raise Skip("ONNX does not say whether a product is added to zero")
    labels = iter(args["labels"])
    for of in types:
        words.append("".join(letters[next(labels)] for _ in of["shape"]))
    equation = f"{','.join(words)}->{''.join(letters[label] for label in args['output'])}"
    return promoted("Einsum", equation=equation)(adapter, statement, operands, types)


def interpolate(adapter, statement, operands, types):
    args, shape = statement["args"], types[0]["shape"]
    ways = {("nearest", False): ("nearest", "asymmetric", "floor"),
            ("nearest_exact", False): ("nearest", "half_pixel", "round_prefer_ceil"),
            ("linear", False): ("linear", "half_pixel", None),
            ("linear", True): ("linear", "align_corners", None)}
    mode, positions, nearest = ways[args["mode"], args["align_corners"]]
    more = {"nearest_mode": nearest} if nearest else {}
    return node("Resize", *operands, "''", "''", ints(*statement["shape"]), mode=mode,
                coordinate_transformation_mode=positions, **more)


def meshgrid(adapter, statement, operands, types):
    args, rank = statement["args"], len(types)
    part = args["part"]
    axis = 1 - part if args["indexing"] == "xy" and part < 2 <= rank else part
    shape = [1] * rank
    shape[axis] = math.prod(types[part]["shape"])
    return node("Expand", reshaped(operands[part], *shape), ints(*statement["shape"]))


FLOAT = {name: plain(op) for name, op in {
    "softsign": "Softsign", "exp": "Exp", "log": "Log", "sigmoid": "Sigmoid", "tanh": "Tanh",
    "mish": "Mish", "cos": "Cos", "tan": "Tan", "sinh": "Sinh", "cosh": "Cosh", "asinh": "Asinh",
    "acosh": "Acosh", "atanh": "Atanh", "erf": "Erf", "asin": "Asin", "acos": "Acos",
    "atan": "Atan",
}.items()}
# What ONNX does not define, and what the runtime says that it does not take.
MISSING = ("indices element out of data bounds", "Integer division by zero",
           "Integer modulo by zero", "data type is not supported", "'Linear' mode only supports",
           "output_padding")
# Of these ONNX does not say what NaN gives, and of interpolations neither what infinities do.
UNSPECIFIED = {**{op: np.isnan for op in (
    "sign", "argmax", "argmin", "sort", "argsort", "topk", "topk_indices", "scatter_amax",
    "max_pool2d")}, "interpolate": lambda x: ~np.isfinite(x)}
# Operations that compute nothing; many of them are optimised away.
MOVEMENTS = (
    "contiguous", "realize", "detach", "reshape", "expand", "permute", "flip", "shrink", "pad",
    "cat", "squeeze", "unsqueeze", "flatten", "unflatten", "transpose", "movedim", "repeat",
    "stack", "split", "slice", "shrink_to", "pad_to", "meshgrid")


def forgets_casts(program):
    """Returns whether an operation computes with what a cast has rounded to f16: on the CPU it is
    computed in f32, and the runtime leaves out both casts."""
    statements = program["statements"]
    exact = ("bool", "i8", "u8", "f16")
    rounded = set()
    for number, s in enumerate(statements):
        sources = [source for source in s.get("src", []) if not isinstance(source, dict)]
        is_cast = any(statements[source]["dtype"] not in exact for source in sources)
        if s["op"] == "cast" and s["dtype"] == "f16" and is_cast:
            rounded.add(number)
        elif s.get("operands") == "f16" and is_cast:
            return True
        elif rounded & set(sources):
            if s["op"] not in MOVEMENTS:
                return True
            rounded.add(number)
    return False


def model_text(model):
    """Returns the model in ONNX's own syntax; `None` if that is not the same model."""
    text = onnx.printer.to_text(model)
    try:
        read = onnx.parser.parse_model(text)
    except onnx.parser.ParseError:
        return None
    constants = [[(numpy_helper.to_array(constant).dtype, numpy_helper.to_array(constant).tobytes())
                  for constant in of.graph.initializer] for of in (model, read)]
    is_same = onnx.printer.to_text(read) == text and constants[0] == constants[1]
    head, _, body = text.partition("{\n")
    return " ".join(head.split()) + " {\n" + body.rstrip() if is_same else None


class OnnxRuntime(Adapter):
    NAME = f"onnxruntime {onnxruntime.__version__} with onnx {onnx.__version__}"
    DTYPES = {
        "bool": "TensorProto.BOOL", "i8": "TensorProto.INT8", "u8": "TensorProto.UINT8",
        "i16": "TensorProto.INT16", "u16": "TensorProto.UINT16", "i32": "TensorProto.INT32",
        "u32": "TensorProto.UINT32", "i64": "TensorProto.INT64", "u64": "TensorProto.UINT64",
        "f16": "TensorProto.FLOAT16", "f32": "TensorProto.FLOAT", "f64": "TensorProto.DOUBLE",
    }
    PRELUDE = (
        "import numpy as np\n"
        "import onnxruntime\n"
        "from onnx import TensorProto, helper, numpy_helper\n"
        "nodes, constants, inputs, feeds = [], [], [], {}\n"
        "def array(dtype, shape, data):\n"
        "    kind = helper.tensor_dtype_to_np_dtype(dtype)\n"
        "    return np.frombuffer(bytes.fromhex(data), kind).reshape(shape)\n"
        "def const(value):\n"
        "    constants.append(numpy_helper.from_array(np.asarray(value), f'c{len(constants)}'))\n"
        "    return constants[-1].name\n"
        "def bits(*parts):\n"
        "    return const(array(*parts))\n"
        "def ints(value):\n"
        "    return const(np.array(value, np.int64))\n"
        "def scalar(value, dtype):\n"
        "    return const(np.array(value, helper.tensor_dtype_to_np_dtype(dtype)))\n"
        "def given(dtype, shape, data):\n"
        "    name = f'x{len(feeds)}'\n"
        "    feeds[name] = array(dtype, shape, data)\n"
        "    inputs.append(helper.make_tensor_value_info(name, dtype, shape))\n"
        "    return name\n"
        "def node(op, *sources, outputs=1, **attributes):\n"
        "    names = [f'n{len(nodes)}_{i}' for i in range(outputs)]\n"
        "    nodes.append(helper.make_node(op, sources, names, **attributes))\n"
        "    return names if outputs > 1 else names[0]\n"
        "def model(*values):\n"
        "    names = [node('Identity', value) for value in values]\n"
        "    infos = [helper.make_empty_tensor_value_info(name) for name in names]\n"
        "    graph = helper.make_graph(nodes, 'program', inputs, infos, constants)\n"
        "    opsets = [helper.make_opsetid('', 21)]\n"
        "    return helper.make_model(graph, opset_imports=opsets, ir_version=10)\n"
        "def run(*values):\n"
        "    options = onnxruntime.SessionOptions()\n"
        "    options.intra_op_num_threads = 1\n"
        "    session = onnxruntime.InferenceSession(model(*values).SerializeToString(), options,\n"
        "                                           providers=['CPUExecutionProvider'])\n"
        "    return session.run(None, feeds)\n")
    CAST = "node('Cast', {0}, to={dtype})"
    # Where adds zero to what it chooses: where-of-negative-zero.case.
    ZERO_SIGNS = False
    ZERO_DIVISORS = False
    OPS = {
        "const": lambda adapter, statement, operands, types: node(
            "Expand", adapter.literal(statement["dtype"], (), statement["bytes"]),
            ints(*statement["shape"])),
        "arange": lambda adapter, statement, operands, types: adapter.cast(
            node("Add", node("Mul", node("Range", "ints(0)", f"ints({statement['shape'][0]})",
                                         "ints(1)"),
                             f"ints({statement['step']})"), f"ints({statement['start']})"),
            statement["dtype"]),
        "neg": plain("Neg"), "not": by_kind("Not", "BitwiseNot"), "recip": plain("Reciprocal"),
        "sin": plain("Sin"), "sqrt": plain("Sqrt"), "add": plain("Add"), "sub": plain("Sub"),
        "mul": plain("Mul"), "div": plain("Div"), "pow": plain("Pow"), "cdiv": plain("Div"),
        "cmod": remainder, "floormod": plain("Mod"), "max": plain("Max"), "min": plain("Min"),
        "cmplt": plain("Less"), "cmpeq": plain("Equal"),
        "cmpne": "node('Not', node('Equal', {0}, {1}))",
        "and": by_kind("And", "BitwiseAnd"), "or": by_kind("Or", "BitwiseOr"),
        "xor": by_kind("Xor", "BitwiseXor"), "shl": shift("LEFT"), "shr": shift("RIGHT"),
        "where": plain("Where"), "mulacc": "node('Add', node('Mul', {0}, {1}), {2})",
        "cast": CAST, "reduce_sum": reduced("ReduceSum"), "reduce_prod": reduced("ReduceProd"),
        "reduce_max": reduced("ReduceMax"), "reshape": sizes,
        "expand": lambda adapter, statement, operands, types:
            node("Expand", operands[0], ints(*statement["shape"])),
        "permute": permuted, "flip": flip, "pad": pad, "shrink": shrink,
        "cat": plain("Concat", "axis={axis}"), "gather": gather,
        "contiguous": plain("Identity"), "realize": plain("Identity"), "detach": plain("Identity"),
        "abs": plain("Abs"), "sign": plain("Sign"), "square": "node('Mul', {0}, {0})",
        "floor": of_floats("Floor"), "ceil": of_floats("Ceil"), "round": of_floats("Round"),
        "isnan": plain("IsNaN"), "isinf": plain("IsInf"),
        "isfinite": "node('Not', node('Or', node('IsNaN', {0}), node('IsInf', {0})))",
        "clamp": bounded, "relu": plain("Relu"), "relu6": bounded, "hardtanh": bounded,
        "masked_fill": lambda adapter, statement, operands, types: node(
            "Where", operands[1], scalar(adapter, statement["args"]["value"]["number"],
                                         statement["dtype"]), operands[0]),
        "lerp": promoted(lambda x, y, weight: node(
            "Add", x, node("Mul", node("Sub", y, x), weight))),
        # Elu, Celu, Selu and Gelu are left out: the formulas by which ONNX defines them subtract
        # or add 1 where that cancels.
        "leaky_relu": leaky_relu, "softplus": softplus, **FLOAT,
        "rsqrt": "node('Reciprocal', node('Sqrt', {0}))",
        "fmod": promoted("Mod", fmod=1), "squeeze": sizes, "unsqueeze": sizes, "flatten": sizes,
        "unflatten": sizes, "transpose": exchanged, "movedim": movedim, "repeat": repeat,
        "stack": stack, "split": split, "triu": triangle(1), "tril": triangle(0),
        "slice": slice_method, "shrink_to": shrink_to, "pad_to": pad_to,
        "pad_reflect": padded("reflect"), "pad_replicate": padded("edge"),
        "pad_circular": padded("wrap"),
        "one_hot": one_hot, "index_select": index_select, "scatter_add": scatter("add"),
        "scatter_amax": scatter("max"), "sort": topk(0), "topk": topk(0), "argsort": topk(1),
        "topk_indices": topk(1), "argmax": arg_extreme("ArgMax"), "argmin": arg_extreme("ArgMin"),
        "any": method_reduced("ReduceMax", "bool"), "all": method_reduced("ReduceMin", "bool"),
        "count_nonzero": count_nonzero, "amin": method_reduced("ReduceMin"),
        "mean": method_reduced("ReduceMean"), "logsumexp": method_reduced("ReduceLogSumExp"),
        "cumsum": cumsum, "softmax": plain("Softmax", "axis={axis}"),
        "log_softmax": plain("LogSoftmax", "axis={axis}"),
        "softmin": "node('Softmax', node('Neg', {0}), axis={axis})",
        "layernorm": layer_norm, "matmul": promoted("MatMul"), "dot": promoted("MatMul"),
        "linear": linear, "conv2d": conv("Conv"), "conv_transpose2d": conv("ConvTranspose"),
        "max_pool2d": pool("MaxPool"), "avg_pool2d": pool("AveragePool"), "einsum": einsum,
        "interpolate": interpolate, "meshgrid": meshgrid,
    }

    def run(self, program):
        if forgets_casts(program):
            raise Skip("ONNX Runtime leaves out casts to f16: cast-to-f16.case")
        # Their sources are outputs of another model.
        watched = {}
        for s in program["statements"]:
            for source in s["src"] if s["op"] in UNSPECIFIED else []:
                watched.setdefault(source, []).append(UNSPECIFIED[s["op"]])
        if watched:
            given = super().run({**program, "outputs": list(watched)})
            codes = {"f16": np.float16, "f32": np.float32, "f64": np.float64}
            for (dtype, _, data), conditions in zip(given, watched.values()):
                if dtype in codes:
                    elements = np.frombuffer(data, codes[dtype])
                    if any(is_open(elements).any() for is_open in conditions):
                        raise Skip("ONNX does not say what NaN gives")
        return super().run(program)

    def expression(self, statement, program):
        text = super().expression(statement, program)
        return text.replace("bits(", "given(", 1) if statement["op"] == "input" else text

    def script(self, program, expected):
        """The model as ONNX writes it, if that has all constants; else how it is built."""
        names, outputs = {}, list(dict.fromkeys(program["outputs"]))
        exec(self.PRELUDE, names)
        exec("\n".join(super().lines(program)), names)
        text = model_text(names["model"](*(names[f"v{output}"] for output in outputs)))
        if text is None:
            return super().script(program, expected)
        feeds = [f"{name!r}: np.frombuffer(bytes.fromhex({array.tobytes().hex()!r}), "
                 f"{str(array.dtype)!r}).reshape({array.shape})"
                 for name, array in names["feeds"].items()]
        names = [f"v[{outputs.index(output)}]" for output in program["outputs"]]
        return self.comparison([
            "import numpy as np, onnx.parser, onnxruntime",
            f'model = onnx.parser.parse_model("""{text}""")', f"feeds = {{{', '.join(feeds)}}}",
            "v = onnxruntime.InferenceSession(model.SerializeToString(), "
            "providers=['CPUExecutionProvider']).run(None, feeds)"], program, names, expected)

    def lines(self, program):
        outputs = ", ".join(f"v{output}" for output in dict.fromkeys(program["outputs"]))
        return [*super().lines(program), f"({outputs},) = run({outputs})"]

    def read(self, value):
        value = np.asarray(value)
        return NAMES.get(value.dtype, str(value.dtype)), value.shape, value.tobytes()

    def is_missing(self, error):
        """Returns whether there is no kernel, or no definition, of an operator for a dtype."""
        kind, text = type(error).__name__, str(error)
        return (kind == "NotImplemented" or kind == "InvalidGraph" and "Type Error: Type" in text
                or any(words in text for words in MISSING))


NAMES = {np.dtype(helper.tensor_dtype_to_np_dtype(eval(text))): name
         for name, text in OnnxRuntime.DTYPES.items()}
ADAPTER = OnnxRuntime()
