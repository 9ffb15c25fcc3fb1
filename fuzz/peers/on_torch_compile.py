"""torch.compile as a peer: each program is one function, compiled by Inductor for the CPU."""


class TorchCompile(Torch):
    NAME = f"torch.compile of {torch.__version__}"
    PRELUDE = Torch.PRELUDE + "torch._dynamo.config.recompile_limit = 1\n"
    COMPILED = "torch.compile(program)"

    def run(self, program):
        torch._dynamo.reset()
        return super().run(program)


ADAPTER = TorchCompile()
