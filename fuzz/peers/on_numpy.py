"""NumPy as a peer. Its bf16 is that of ml_dtypes."""

import numpy as np

try:
    import ml_dtypes
except ImportError:
    ml_dtypes = None


def same(text):
    """The same text, in the statement's dtype: NumPy computes some functions in another one."""
    return f"np.asarray({text}).astype({{dtype}})"


def reduction(function, wide=True):
    """Sums and products of 16-bit floats are accumulated in f32."""
    def text(adapter, statement, operands, types):
        axes, dtype = tuple(statement["axes"]), types[0]["dtype"]
        if function == "max" and any(types[0]["shape"][axis] == 0 for axis in axes):
            raise Skip("an empty maximum is an error in NumPy")
        inner = "np.float32" if dtype in ("f16", "bf16") else adapter.dtype(statement["dtype"])
        inner = f", dtype={inner}" if wide else ""
        call = f"np.{function}({operands[0]}, axis={axes}, keepdims=True{inner})"
        return f"np.asarray({call}).astype({adapter.dtype(statement['dtype'])})"
    return text


def pad(adapter, statement, operands, types):
    value = adapter.literal(types[0]["dtype"], (), statement["bytes"])
    pads = [tuple(pair) for pair in statement["pads"]]
    return f"np.pad({operands[0]}, {pads or 0}, constant_values={value})"


def rounded(function):
    def text(adapter, statement, operands, types):
        # Integers stay; some of these functions make floats of them.
        is_float = types[0]["dtype"] in FLOATS
        return f"np.asarray(np.{function}({operands[0]}))" if is_float else operands[0]
    return text


def wide(function):
    """A function that is computed in f32 for 16-bit floats, as their hardware does."""
    def text(adapter, statement, operands, types):
        x, dtype = operands[0], adapter.dtype(statement["dtype"])
        if statement["dtype"] in ("f16", "bf16"):
            x = f"{x}.astype(np.float32)"
        return f"np.asarray({function.format(x)}).astype({dtype})"
    return text


GATHER = ("np.where(({1} >= 0) & ({1} < {0}.shape[{axis}]), np.take_along_axis({0}, "
          "np.clip({1}.astype(np.int64), 0, max({0}.shape[{axis}] - 1, 0)), {axis}), "
          "np.zeros((), {dtype}))")


def gather(adapter, statement, operands, types):
    data, index = types
    axis = statement["axis"]
    # take_along_axis wants the other axes of the same size.
    sizes = enumerate(index["shape"])
    cut = ", ".join(":" if number == axis else f":{size}" for number, size in sizes) or "..."
    if data["shape"][axis] == 0:
        raise Skip("NumPy takes nothing from an empty axis")
    return GATHER.format(f"{operands[0]}[{cut}]", operands[1], **adapter.fields(statement))


def floor_division(sign):
    """NumPy's operator rounds down; of zero it warns, where gradiff leaves the value open."""
    return same(f"{{0}} {sign} {{1}}")


def truncated(adapter, statement, operands, types):
    x, y = operands
    if statement["dtype"].startswith("u"):
        sign = "//" if statement["op"] == "cdiv" else "%"
        return f"np.asarray({x} {sign} {y})"
    down = f"({x} // {y} + (({x} % {y} != 0) & (({x} < 0) != ({y} < 0))))"
    text = down if statement["op"] == "cdiv" else f"{x} - {down} * {y}"
    return f"np.asarray({text}).astype({adapter.dtype(statement['dtype'])})"


class Numpy(Adapter):
    NAME = f"numpy {np.__version__}"
    DTYPES = {
        "bool": "np.bool_", "i8": "np.int8", "u8": "np.uint8", "i16": "np.int16",
        "u16": "np.uint16", "i32": "np.int32", "u32": "np.uint32", "i64": "np.int64",
        "u64": "np.uint64", "f16": "np.float16", "f32": "np.float32", "f64": "np.float64",
        **({"bf16": "ml_dtypes.bfloat16"} if ml_dtypes else {}),
    }
    PRELUDE = (
        "import numpy as np\n"
        + ("import ml_dtypes\n" if ml_dtypes else "")
        + "np.seterr(all='ignore')\n"
        "def bits(dtype, shape, data):\n"
        "    return np.frombuffer(bytes.fromhex(data), dtype).reshape(shape)\n")
    CAST = "np.asarray({0}).astype({dtype})"
    COUNT = "np.arange({0}, dtype=np.int64)"
    OPS = {
        "const": lambda adapter, statement, operands, types:
            f"np.broadcast_to({adapter.literal(statement['dtype'], (), statement['bytes'])}, "
            f"{tuple(statement['shape'])})",
        "arange": arange,
        "neg": same("-{0}"), "not": "~{0}", "recip": wide("1 / {0}"), "exp2": wide("np.exp2({0})"),
        "log2": wide("np.log2({0})"), "sin": wide("np.sin({0})"), "sqrt": wide("np.sqrt({0})"),
        "add": same("{0} + {1}"), "sub": same("{0} - {1}"), "mul": same("{0} * {1}"),
        "div": same("{0} / {1}"), "pow": same("np.power({0}, {1})"),
        "cdiv": truncated, "cmod": truncated,
        "floordiv": floor_division("//"), "floormod": floor_division("%"),
        "max": same("np.maximum({0}, {1})"), "min": same("np.minimum({0}, {1})"),
        "cmplt": "np.asarray({0} < {1})", "cmpne": "np.asarray({0} != {1})",
        "cmpeq": "np.asarray({0} == {1})",
        "and": same("{0} & {1}"), "or": same("{0} | {1}"), "xor": same("{0} ^ {1}"),
        "shl": same("{0} << {1}"), "shr": same("{0} >> {1}"),
        "where": same("np.where({0}, {1}, {2})"), "mulacc": same("{0} * {1} + {2}"),
        "cast": CAST, "bitcast": "np.ascontiguousarray({0}).view({dtype}).reshape({shape})",
        "reduce_sum": reduction("sum"), "reduce_prod": reduction("prod"),
        "reduce_max": reduction("max", wide=False),
        "reshape": "{0}.reshape({shape})", "expand": "np.broadcast_to({0}, {shape})",
        "permute": "np.transpose({0}, {axes})", "flip": "np.flip({0}, {axes})", "pad": pad,
        "shrink": shrink,
        "cat": lambda adapter, statement, operands, types:
            f"np.concatenate([{', '.join(operands)}], {statement['axis']})",
        "gather": gather, "contiguous": "np.ascontiguousarray({0}).reshape({shape})",
        "realize": "{0}", "detach": "{0}",
        "abs": "np.asarray(np.abs({0}))", "sign": same("np.sign({0})"), "square": same("{0} * {0}"),
        **{name: rounded(function) for name, function in (
            ("trunc", "trunc"), ("floor", "floor"), ("ceil", "ceil"), ("round", "rint"))},
        "isnan": "np.asarray(np.isnan({0}))", "isinf": "np.asarray(np.isinf({0}))",
        "isfinite": "np.asarray(np.isfinite({0}))", "roll": "np.roll({0}, {shifts}, {axes})",
    }

    def read(self, value):
        value = np.asarray(value)
        return NAMES.get(value.dtype, str(value.dtype)), value.shape, value.tobytes()


NAMES = {np.dtype(eval(text)): name for name, text in Numpy.DTYPES.items()}
ADAPTER = Numpy()
