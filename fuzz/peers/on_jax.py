"""JAX as a peer: each program is one function, compiled by XLA for the CPU. The table is NumPy's.

XLA's threads flush subnormal numbers to zero, so programs with such inputs are not judged. By
default XLA may leave out roundings in between; that is switched off.
"""

os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_allow_excess_precision=false"

import jax

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_platforms", "cpu")


class Jax(Numpy):
    NAME = f"jax {jax.__version__}"
    DTYPES = {**Numpy.DTYPES, "bf16": "np.bfloat16"}
    PRELUDE = (
        "import os\n"
        "os.environ['XLA_FLAGS'] = '--xla_allow_excess_precision=false'\n"
        "import jax\n"
        "import jax.numpy as np\n"
        "import numpy\n"
        "jax.config.update('jax_enable_x64', True)\n"
        "def bits(dtype, shape, data):\n"
        "    raw = numpy.frombuffer(bytes.fromhex(data), numpy.dtype(dtype))\n"
        "    return np.asarray(raw.reshape(shape))\n")
    COMPILED = "jax.jit(program)"
    # A bitcast may make subnormal numbers.
    OPS = {**{op: rule for op, rule in Numpy.OPS.items() if op != "bitcast"}, "contiguous": "{0}"}
    # Of sums that are regrouped.
    ZERO_SIGNS = False
    SUBNORMALS = False

    def run(self, program):
        given = ((s["dtype"], bytes.fromhex(s["bytes"]))
                 for s in program["statements"] if s["op"] in ("input", "const"))
        if any(is_subnormal(*data) for data in given):
            raise Skip("XLA takes subnormal numbers for zero")
        return super().run(program)


def is_subnormal(dtype, data):
    """Returns whether a float among these has the exponent 0 and is not 0."""
    layouts = {"f16": ("H", 10), "bf16": ("H", 7), "f32": ("I", 23), "f64": ("Q", 52)}
    if dtype not in layouts:
        return False
    code, mantissa = layouts[dtype]
    sign = 1 << (8 * struct.calcsize(code) - 1)
    words = (word & ~sign for word, in struct.iter_unpack(f"<{code}", data))
    return any(0 < word < 1 << mantissa for word in words)


ADAPTER = Jax()
