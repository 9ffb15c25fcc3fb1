"""tinygrad's shape trackers and index expressions, for `gradiff views` and `gradiff exprs`.

The peer answers what an expression is after tinygrad has simplified it, at points: each node is
evaluated here, for all points at once, from what the operations mean.
"""

import numpy

try:
    from tinygrad.uop.ops import Ops, UOp  # 0.11 and later
except ImportError:
    try:
        from tinygrad.ops import Ops, UOp  # 0.10
        UOp.variable, Ops.CMPLT  # 0.9 has classes of these names, for linear kernels alone.
    except (ImportError, AttributeError):
        UOp = None
if UOp is None:
    from tinygrad.shape import symbolic
try:
    from tinygrad.shape.shapetracker import ShapeTracker
except ImportError:  # 0.12 and later
    ShapeTracker = None


def cdiv(x, y):
    quotient = numpy.abs(x) // numpy.abs(y)
    return numpy.where((x < 0) != (y < 0), -quotient, quotient)


MEANINGS = {
    "ADD": numpy.add, "SUB": numpy.subtract, "MUL": numpy.multiply, "NEG": numpy.negative,
    "MAX": numpy.maximum, "XOR": numpy.bitwise_xor, "OR": numpy.bitwise_or,
    "AND": numpy.bitwise_and, "SHL": numpy.left_shift, "SHR": numpy.right_shift,
    "CMPLT": numpy.less, "CMPNE": numpy.not_equal, "CMPEQ": numpy.equal, "WHERE": numpy.where,
    "IDIV": cdiv, "CDIV": cdiv, "MOD": numpy.fmod, "CMOD": numpy.fmod,
    "FLOORDIV": numpy.floor_divide, "FLOORMOD": numpy.mod, "MULACC": lambda x, y, z: x * y + z,
}


# What has no operands. A variable is one of the last three, as the version has it.
LEAVES = ("CONST", "RANGE", "DEFINE_VAR", "BUFFER", "PARAM")


def sources(node):
    """Returns the operands of a node."""
    if UOp is not None:
        return () if node.op.name in LEAVES else node.src
    if hasattr(node, "nodes"):
        return tuple(node.nodes)
    return tuple(getattr(node, part) for part in ("a", "b") if hasattr(node, "a"))


def variable_of(node):
    """Returns what names a variable in the columns; `None` for other nodes."""
    if UOp is None:
        return getattr(node, "expr", None)
    if node.op.name == "RANGE":
        return node.arg[0] if isinstance(node.arg, tuple) else node.arg
    if node.op.name == "DEFINE_VAR":
        return node.arg[0]
    return node.expr if node.op.name in LEAVES[3:] else None


def constant_of(node):
    """Returns the number that a node is; `None` for other nodes."""
    if isinstance(node, (int, bool)):
        return int(node)
    if UOp is None:
        return node.b if type(node).__name__ == "NumNode" else None
    if node.op.name == "CAST":  # 0.14 casts numbers without a type.
        return constant_of(node.src[0])
    return int(node.arg) if node.op.name == "CONST" else None


def order(root):
    """Returns the nodes of an expression, each after its operands."""
    done, found, pending = set(), [], [(root, False)]
    while pending:
        node, is_ready = pending.pop()
        if is_ready:
            found.append(node)
        elif id(node) not in done:
            done.add(id(node))
            operands = () if isinstance(node, int) else sources(node)
            pending += [(node, True), *((operand, False) for operand in operands)]
    return found


def value_of_node(node, values, columns):
    if (number := constant_of(node)) is not None:
        return numpy.int64(number)
    if (name := variable_of(node)) is not None:
        return columns[name]
    operands = [values[id(operand)] for operand in sources(node)]
    if UOp is not None:
        if node.op.name == "CAST":
            return operands[0] != 0 if node.dtype == dtypes.bool else operands[0]
        return numpy.asarray(MEANINGS[node.op.name](*operands)).astype(numpy.int64)
    kind = type(node).__name__
    if kind in ("SumNode", "AndNode"):
        function = numpy.add if kind == "SumNode" else numpy.multiply
        return function.reduce(numpy.broadcast_arrays(*operands))
    # Kernels divide as C does, and the classes promise that nothing negative is divided.
    function = {"MulNode": numpy.multiply, "DivNode": cdiv, "ModNode": numpy.fmod,
                "LtNode": numpy.less}[kind]
    return numpy.asarray(function(*operands)).astype(numpy.int64)


def evaluate(root, columns, count):
    """Returns the values of an expression at all points."""
    values = {}
    with numpy.errstate(all="ignore"):
        for node in order(root):
            values[id(node)] = value_of_node(node, values, columns)
    return numpy.broadcast_to(values[id(root)], (count,)).astype(numpy.int64)


# --- Shape trackers ---------------------------------------------------------------------------


def moved(tracker, name, argument):
    argument = tuple(tuple(entry) if isinstance(entry, list) else entry for entry in argument)
    if name == "flip":
        flips = [axis in argument for axis in range(len(tracker.shape))]
        if hasattr(tracker, "flip"):
            return tracker.flip(tuple(flips))
        return tracker.stride(tuple(-1 if flip else 1 for flip in flips))
    return getattr(tracker, name)(argument)


def addresses(tracker):
    """Returns for each element its address in the buffer; -1 is padding."""
    shape = tracker.shape
    count = int(numpy.prod(shape))
    grids = numpy.indices(shape).reshape(len(shape), count)
    if UOp is not None:
        index, valid = tracker.to_indexed_uops()
        columns = dict(enumerate(grids))
    else:
        index, valid = tracker.expr_idxs()
        columns = {f"idx{axis}": grid for axis, grid in enumerate(grids)}
    at, is_valid = evaluate(index, columns, count), evaluate(valid, columns, count)
    return numpy.where(is_valid != 0, at, -1).tolist()


def examined(case):
    tracker = ShapeTracker.from_shape(tuple(case["shape"]))
    count = len(case["ops"])
    before, after = tracker, None
    for number, (name, argument) in enumerate(case["ops"]):
        if number == count // 2:
            before, after = tracker, ShapeTracker.from_shape(tracker.shape)
        tracker = moved(tracker, name, argument)
        after = after and moved(after, name, argument)
    if 0 in tracker.shape or 0 in case["shape"]:
        return {"skipped": "it has no index of a tensor without elements"}
    forms = {"merged": tracker, "simplified": tracker.simplify(),
             "composed": before + after if after else tracker}
    inverse = tracker.invert(tuple(case["shape"]))
    return {
        "shape": list(tracker.shape), "views": len(tracker.views),
        "index": {name: addresses(form) for name, form in forms.items()},
        "strides": [list(tracker.real_strides(ignore)) for ignore in (True, False)],
        "masked": [tracker.axis_is_masked(axis) for axis in range(len(tracker.shape))],
        "inverse": None if inverse is None else addresses(inverse),
    }


# --- Index expressions ------------------------------------------------------------------------


def named(*names):
    """Returns the first of these operations that this version has."""
    found = [getattr(Ops, name) for name in names if hasattr(Ops, name)]
    if not found:
        raise Skip(f"it has no {names[0]}")
    return found[0]


def alu(*names):
    return lambda x, y: x.alu(named(*names), y)


def number_of(value, like):
    dtype = dtypes.bool if isinstance(value, bool) else like
    return UOp.const(value, dtype) if NUMBERS >= [0, 14] else UOp.const(dtype, value)


FUNCTIONS = {
    "add": alu("ADD"), "sub": lambda x, y: x - y, "mul": alu("MUL"), "cdiv": alu("IDIV", "CDIV"),
    "cmod": alu("MOD", "CMOD"), "floordiv": alu("FLOORDIV"), "floormod": alu("FLOORMOD"),
    "max": alu("MAX"), "min": lambda x, y: x.minimum(y), "cmplt": alu("CMPLT"),
    "cmpne": alu("CMPNE"), "and": alu("AND"), "or": alu("OR"), "xor": alu("XOR"),
    "shl": alu("SHL"), "shr": alu("SHR"), "neg": lambda x: -x,
    "cmpeq": lambda x, y: x.alu(Ops.CMPNE, y).logical_not(),
    "not": lambda x: x.logical_not() if x.dtype == dtypes.bool else x ^ -1,
    "where": lambda condition, x, y: condition.where(x, y),
}


def whole(x, y):
    """Returns a divisor of the old classes, which divide by positive numbers alone."""
    if type(y).__name__ != "NumNode" or y.b <= 0:
        raise Skip("it divides by positive numbers alone")
    return y.b


def factor(x, y):
    if type(y).__name__ == "NumNode":
        return x * y.b
    if type(x).__name__ == "NumNode":
        return y * x.b
    raise Skip("it has no products of variables")


OLD_FUNCTIONS = {
    "add": lambda x, y: x + y, "sub": lambda x, y: x - y, "mul": factor, "neg": lambda x: -x,
    "floordiv": lambda x, y: x // whole(x, y), "floormod": lambda x, y: x % whole(x, y),
    "cmplt": lambda x, y: x < (y.b if type(y).__name__ == "NumNode" else y),
}


def built(tree, variables, like):
    """Returns the expression of nested lists."""
    if not isinstance(tree, list):
        return number_of(tree, like) if UOp is not None else symbolic.NumNode(int(tree))
    name, *operands = tree
    if name == "var":
        return variables[operands[0]]
    functions = FUNCTIONS if UOp is not None else OLD_FUNCTIONS
    if name not in functions:
        raise Skip(f"it has no {name}")
    return functions[name](*(built(operand, variables, like) for operand in operands))


def text(node):
    """Returns an expression as text, for messages."""
    if (number := constant_of(node)) is not None:
        return str(number)
    if (name := variable_of(node)) is not None:
        return str(name)
    kind = node.op.name.lower() if UOp is not None else type(node).__name__
    return f"{kind}({', '.join(map(text, sources(node)))})"


def simplified(case):
    variables = []
    for var in case["vars"]:
        low, high = var["min"], var["max"]
        if UOp is not None:
            variables.append(UOp.variable(var["name"], low, high))
        else:
            # Old variables begin at 0.
            variables.append(symbolic.Variable(var["name"], 0, high - low) + low)
    like = dtypes.int if NUMBERS < [0, 12] else UOp.variable("like", 0, 1).dtype
    root = built(case["expr"], variables, like)
    simple = root.simplify() if UOp is not None else root
    points = numpy.array(case["points"], dtype=numpy.int64).reshape(-1, len(variables))
    shifts = [0 if UOp is not None else var["min"] for var in case["vars"]]
    columns = {var["name"]: points[:, number] - shifts[number]
               for number, var in enumerate(case["vars"])}
    low, high = ("vmin", "vmax") if UOp is not None else ("min", "max")
    # Indices without a type have bounds that no i64 has.
    bounds = [[min(max(int(getattr(node, side)), -1 << 63), (1 << 63) - 1) for side in (low, high)]
              for node in (root, simple)]
    return {"values": evaluate(simple, columns, len(points)).tolist(), "bounds": bounds,
            "text": text(simple)[:300], "nodes": len({id(node) for node in order(simple)})}


def each(function):
    """Returns a function of a list of cases that answers for each."""
    def answer_one(case):
        try:
            return function(case)
        except Skip as reason:
            return {"skipped": str(reason)}
        except Exception as error:
            first = (str(error).strip().splitlines() or [""])[0]
            return {"refused": f"{type(error).__name__}: {first}"[:300]}
    return lambda cases: [answer_one(case) for case in cases]


TinyGrad.REQUESTS = {"exprs": each(simplified)}
if ShapeTracker is not None:
    TinyGrad.REQUESTS["views"] = each(examined)
