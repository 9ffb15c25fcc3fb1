"""tinygrad's kernels of a program, for `gradiff compare`: how it fuses, optimises and renders."""

import re


def asts(outputs):
    """Returns the kernels of a schedule, before they are optimised; copies are left out."""
    first, *rest = outputs
    if hasattr(Tensor, "schedule"):
        found = [item.ast for item in first.schedule(*rest)]
    else:  # 0.13 and later
        found = [call.src[0] for call in first.schedule_linear(*rest).src]
    return [ast for ast in found if ast.op.name == "SINK"]


def compiled(ast):
    """Returns name, optimisations, linear uops and source of a kernel."""
    from tinygrad.engine import realize
    renderer = Device[Device.DEFAULT].renderer
    if hasattr(realize, "get_kernel"):  # 0.10
        kernel = realize.get_kernel(renderer, ast)
        program = kernel.to_program()
        return program.name, kernel.applied_opts, program.uops, program.src
    if hasattr(realize, "get_program"):  # 0.11 and 0.12
        program = realize.get_program(ast, renderer)
        return program.name, program.applied_opts or (), program.uops, program.src
    from tinygrad.codegen import to_program
    program = to_program(ast, renderer)
    of = {source.op.name: source for source in program.src}
    info = of["SINK"].arg
    return info.name, info.applied_opts, of["LINEAR"].src, of["SOURCE"].arg


def lanes(node):
    """Returns the number of elements of a value."""
    shape = getattr(node, "_shape", None) or ()  # Since 0.13 vectors have shapes.
    return max(getattr(node.dtype, "count", 1), int(numpy.prod(shape)))


def is_register(node):
    """Returns whether a load or store is of an accumulator."""
    while node.src and node.op.name not in ("DEFINE_REG", "DEFINE_ACC"):
        if getattr(getattr(node, "addrspace", None), "name", "") == "REG":
            return True
        node = node.src[0]
    return node.op.name in ("DEFINE_REG", "DEFINE_ACC")


def trip_count(node):
    """Returns the end of a range, whose start is 0 if it has one."""
    return max(constant_of(source) or 0 for source in node.src)


def counted(uops):
    """Returns how many elements are loaded, stored and computed in a run of a kernel."""
    counts, times, trips = {"loads": 0, "stores": 0, "alu": 0}, 1, []
    for node in uops:
        name = node.op.name
        if name in ("RANGE", "SPECIAL"):
            is_special = name == "SPECIAL" and isinstance(node.arg, tuple)
            trip = node.arg[1] if is_special else trip_count(node)
            times *= trip
            if name == "RANGE":
                trips.append(trip)
        elif name in ("ENDRANGE", "END"):
            times //= trips.pop()
        elif name == "LOAD" and not is_register(node.src[0]):
            counts["loads"] += times * lanes(node)
        elif name == "STORE" and not is_register(node.src[0]):
            counts["stores"] += times * lanes(node.src[1])
        elif name in MEANINGS or name in ("EXP2", "LOG2", "SIN", "SQRT", "RECIP", "RECIPROCAL",
                                          "FDIV", "POW", "TRUNC"):
            counts["alu"] += times * lanes(node)
    return counts


class Folded(TinyGrad):
    """Literals are constants, which kernels contain, not inputs."""

    def operand(self, source, program, wanted):
        if not isinstance(source, dict):
            return super().operand(source, program, wanted)
        value = number(repr(value_of(source["dtype"], source["bytes"])))
        return f"Tensor({value}, dtype={self.dtype(source['dtype'])})"


def kernels(program):
    """Returns the kernels of a program, in order."""
    try:
        names = {}
        exec(TinyGrad.PRELUDE, names)
        exec("\n".join(Folded().lines(program)), names)
        outputs = [names[f"v{output}"] for output in dict.fromkeys(program["outputs"])]
        found = []
        for ast in asts(outputs):
            name, opts, uops, source = compiled(ast)
            words = [f"{opt.op.name.lower()} {opt.axis} {getattr(opt, 'arg', getattr(opt, 'amt', 0))}"
                     for opt in opts]
            found.append({"name": re.sub("\x1b\\[[0-9]*m", "", name), "opts": ", ".join(words),
                          "source": source, **counted(uops)})
        return {"list": found}
    except Skip as reason:
        return {"skipped": str(reason)}
    except Exception as error:
        first = (str(error).strip().splitlines() or [""])[0]
        return {"refused": f"{type(error).__name__}: {first}"[:300]}


if UOp is not None:
    TinyGrad.REQUESTS["kernels"] = kernels
