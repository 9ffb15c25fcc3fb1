"""torch.compile as a peer: each program is one function, compiled by Inductor for the CPU.

By default Inductor leaves out the roundings to 16-bit floats in between; that is switched off.
"""

import torch._inductor.config


class TorchCompile(Torch):
    NAME = f"torch.compile of {torch.__version__}"
    PRELUDE = (
        Torch.PRELUDE + "import torch._inductor.config\n"
        "torch._dynamo.config.recompile_limit = 1\n"
        "torch._inductor.config.emulate_precision_casts = True\n")
    COMPILED = "torch.compile(program)"

    def run(self, program):
        torch._dynamo.reset()
        try:
            return super().run(program)
        except RuntimeError as error:
            if "ZeroDivisionError" not in str(error):
                raise
            # This raises the same if a divisor is zero.
            Torch().run(program)
            raise RuntimeError("it divides by zero, but no divisor is zero") from error


ADAPTER = TorchCompile()
