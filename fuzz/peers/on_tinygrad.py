"""tinygrad as a peer, 0.8 and later, on the device that DEVICE names. The CPU is its default: a
variable that tinygrad reads as the choice of a device may choose another one.

Not promised there, so not judged: division by zero, which is undefined in the C that it writes, and
signs of zeros. Its own tests (test/test_dtype_alu.py) expect that integers of all types wrap.
"""

import importlib.util
import os
import pathlib

try:
    from importlib.metadata import version
    VERSION = version("tinygrad")
except Exception:
    VERSION = "99 of a checkout"
NUMBERS = [int(part) for part in VERSION.split()[0].split(".") if part.isdigit()]

# A version reads its device from a variable of the device's name, or from DEV.
VARIABLES = {
    "CPU": {"DEV": "CPU"} if NUMBERS >= [0, 11] else {"CPU": "1", "CLANG": "1"},
    "LLVM": {"DEV": "CPU:LLVM"} if NUMBERS >= [0, 13] else
            {"DEV": "CPU", "CPU_LLVM": "1"} if NUMBERS >= [0, 12] else {"LLVM": "1"},
    "PYTHON": {"DEV": "PYTHON"} if NUMBERS >= [0, 11] else {"PYTHON": "1"},
}[DEVICE]
SPEC = importlib.util.find_spec("tinygrad")
FOLDERS = (SPEC.submodule_search_locations if SPEC else None) or []
DEVICES = sorted(path.stem[len("ops_"):].upper() for folder in FOLDERS
                 for path in pathlib.Path(folder).glob("runtime/ops_*.py"))


def chosen():
    """Returns the variables of the environment that tinygrad reads as the choice of a device. Other
    programs have variables of such names, too."""
    names = [name for name in DEVICES if name not in ("DISK", "NPY", "TINYFS")]
    given = {name: "1" for name in names if NUMBERS < [0, 13] and os.environ.get(name) == "1"}
    parts = os.environ.get("DEV", "").upper().replace("+", ":").split(":")
    if NUMBERS >= [0, 11] and any(part in DEVICES for part in parts):
        given["DEV"] = os.environ["DEV"]
    return given


if DEVICE == "CPU":
    VARIABLES = chosen() or VARIABLES
for name in (*DEVICES, "CPU_LLVM", "DEV"):
    os.environ.pop(name, None)
os.environ.update(VARIABLES)
# Nothing is taken from an earlier run, and no further processes compile.
os.environ.setdefault("CACHELEVEL", "0")
os.environ.setdefault("PARALLEL", "0")

import tinygrad
from tinygrad import Device, Tensor, dtypes


def pad(adapter, statement, operands, types):
    value = value_of(types[0]["dtype"], statement["bytes"])
    text = number(repr(value))
    pads = tuple(tuple(pair) for pair in statement["pads"])
    return f"{operands[0]}.pad({pads}, value={text})" if pads else operands[0]


def shrink(adapter, statement, operands, types):
    ranges = tuple(tuple(pair) for pair in statement["ranges"])
    return f"{operands[0]}.shrink({ranges})" if ranges else operands[0]


def reduced(function):
    def text(adapter, statement, operands, types):
        axes, dtype = tuple(statement["axes"]), adapter.dtype(statement["dtype"])
        # Its products are accumulated in the dtype of the source.
        x = f"{operands[0]}.cast({dtype})" if function == "prod" or not axes else operands[0]
        return f"{x}.{function}(axis={axes}, keepdim=True).cast({dtype})" if axes else x
    return text


def gather(adapter, statement, operands, types):
    """What an index beyond the axis gives is not promised."""
    axis = statement["axis"]
    size = types[0]["shape"][axis]
    if size == 0:
        raise Skip("gather takes nothing from an empty axis")
    at = f"{operands[1]}.cast(dtypes.int64)"
    dtype = adapter.dtype(statement["dtype"])
    index = f"{at}.maximum(0).minimum({size - 1})"
    arguments = f"{axis}, {index}" if NUMBERS >= [0, 9] else f"{index}, {axis}"
    both = "&" if hasattr(Tensor, "__and__") else "*"
    return (f"(({at} >= 0) {both} ({at} < {size})).where({operands[0]}.gather({arguments}), "
            f"Tensor(0, dtype={dtype})).cast({dtype})")


def rounded(name):
    def text(adapter, statement, operands, types):
        # Of integers it gives floats.
        return f"{operands[0]}.{name}()" if types[0]["dtype"] in FLOATS else operands[0]
    return text


def method(name):
    return f"{{0}}.{name}()"


class TinyGrad(Adapter):
    NAME = f"tinygrad {VERSION} on {Device.DEFAULT}"
    DTYPES = {
        "bool": "dtypes.bool", "i8": "dtypes.int8", "u8": "dtypes.uint8", "i16": "dtypes.int16",
        "u16": "dtypes.uint16", "i32": "dtypes.int32", "u32": "dtypes.uint32",
        "i64": "dtypes.int64", "u64": "dtypes.uint64", "f16": "dtypes.float16",
        "f32": "dtypes.float32", "f64": "dtypes.float64",
    }
    if Device.DEFAULT == "PYTHON" and sys.version_info < (3, 12):
        # Its memory is a memoryview, which has no 16-bit floats there.
        DTYPES.pop("f16")
    # A script runs on the same device.
    PRELUDE = f"import os; os.environ.update({VARIABLES})\n" + ((
        "from tinygrad import Tensor, dtypes\n"
        "def bits(dtype, shape, data): "
        "return Tensor(bytes.fromhex(data), dtype=dtype).reshape(shape)\n"
    ) if NUMBERS >= [0, 9, 1] else (
        "import numpy as np\n"
        "from tinygrad import Tensor, dtypes\n"
        "def bits(dtype, shape, data): "
        "return Tensor(np.frombuffer(bytes.fromhex(data), dtype.np)).reshape(shape)\n"))
    CAST = "{0}.cast({dtype})"
    # As `read` does: its own lists have no f16 before Python 3.12.
    ELEMENTS = "([] if 0 in {0}.shape else {0}.numpy().flatten().tolist())"
    COUNT = "Tensor.arange({0}, dtype=dtypes.int64)"
    OPS = {
        "const": lambda adapter, statement, operands, types: (
            f"Tensor.full({tuple(statement['shape'])}, "
            f"{number(repr(value_of(statement['dtype'], statement['bytes'])))}, "
            f"dtype={adapter.dtype(statement['dtype'])})"),
        "arange": arange,
        "neg": "-{0}", "recip": method("reciprocal"), "exp2": method("exp2"),
        "log2": method("log2"), "sin": method("sin"), "sqrt": method("sqrt"),
        "add": "{0} + {1}", "sub": "{0} - {1}", "mul": "{0} * {1}", "div": "{0} / {1}",
        "pow": composed("{0} ** {1}"),
        # The first versions do not have these operators.
        **{name: text for name, text, operator in (
            ("not", "~{0}", "__invert__"), ("and", "{0} & {1}", "__and__"),
            ("floormod", "{0} % {1}", "__mod__")) if hasattr(Tensor, operator)},
        # Documented to cut toward zero at first, and to round down since.
        **({"floordiv": "{0} // {1}"} if NUMBERS >= [0, 11] else
           {"cdiv": "{0}.idiv({1})", "cmod": "{0} - {0}.idiv({1}) * {1}"}),
        "max": "{0}.maximum({1})", "min": "{0}.minimum({1})", "cmplt": "{0} < {1}",
        "cmpne": "{0} != {1}", "cmpeq": "{0} == {1}", "or": "{0} | {1}",
        "xor": "{0} ^ {1}", "where": "{0}.where({1}, {2})", "mulacc": "{0} * {1} + {2}",
        "cast": CAST, "bitcast": "{0}.bitcast({dtype})",
        "reduce_sum": reduced("sum"), "reduce_max": reduced("max"), "reduce_prod": reduced("prod"),
        "reshape": "{0}.reshape({shape})", "expand": "{0}.expand({shape})",
        "permute": "{0}.permute({axes})", "flip": "{0}.flip({axes})", "pad": pad, "shrink": shrink,
        "cat": lambda adapter, statement, operands, types:
            f"Tensor.cat({', '.join(operands)}, dim={statement['axis']})",
        "gather": gather, "contiguous": method("contiguous"), "realize": method("realize"),
        "detach": method("detach"),
        **{name: method(name) for name in (
            # Functions that it composes of others are left out: their errors are not promised.
            "abs", "sign", "square", "isnan", "isinf", "relu", "relu6")},
        **{name: composed(method(name)) for name in ("exp", "log", "rsqrt")},
        **{name: rounded(name) for name in ("trunc", "floor", "ceil", "round")},
        "clamp": "{0}.clamp({min}, {max})", "hardtanh": "{0}.hardtanh({min}, {max})",
        "leaky_relu": "{0}.leaky_relu({slope})",
        "matmul": "{0}.cast({dtype}).matmul({1}.cast({dtype}))",
        "roll": "{0}.roll({shifts}, {axes})", "cumsum": "{0}.cumsum({axis}).cast({dtype})",
        "tril": "{0}.tril({diagonal})", "triu": "{0}.triu({diagonal})",
        "softmax": composed("{0}.softmax({axis})"),
        "log_softmax": composed("{0}.log_softmax({axis})"),
        "amin": "{0}.min({axes}, keepdim={keepdim})",
        "transpose": "{0}.transpose({axis0}, {axis1})", "squeeze": "{0}.squeeze({axis})",
        "unsqueeze": "{0}.unsqueeze({axis})", "repeat": "{0}.repeat({counts})",
    }
    ZERO_SIGNS = False
    ZERO_DIVISORS = False

    def read(self, value):
        dtype, shape = NAMES.get(value.dtype, str(value.dtype)), tuple(value.shape)
        if 0 in shape:
            return dtype, shape, b""
        return dtype, shape, value.numpy().tobytes()

    def is_missing(self, error):
        # A name that this version does not have is missing in the script itself.
        last = error.__traceback__
        while last is not None and last.tb_next is not None:
            last = last.tb_next
        is_of_script = last is not None and last.tb_frame.f_code.co_filename == "<string>"
        # The device PYTHON ends at a division by zero.
        is_division = DEVICE == "PYTHON" and isinstance(error, ZeroDivisionError)
        is_name = is_of_script and isinstance(error, AttributeError)
        # A result that should be a tensor may lack the name as well. Python says so since 3.10.
        if is_name and sys.version_info >= (3, 10):
            is_name = isinstance(error.obj, Tensor) or error.obj is Tensor
        return isinstance(error, NotImplementedError) or is_division or is_name


NAMES = {eval(text): name for name, text in TinyGrad.DTYPES.items()}
# Without its compiler a device is there, and fails at its first kernel.
(Tensor([1.0]) + 1).realize()
ADAPTER = TinyGrad()
