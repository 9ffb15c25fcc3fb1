"""tinygrad's shape trackers and index expressions, for `gradiff views` and `gradiff exprs`.

The peer answers what an expression is after tinygrad has simplified it, at points: each node is
evaluated here, for all points at once, from what the operations mean. As of programs, the texts
that build a case are those that a report shows.
"""

import numpy

try:
    from tinygrad.uop.ops import Ops, UOp  # 0.11 and later
    UOP_IMPORT = "from tinygrad.uop.ops import Ops, UOp"
except ImportError:
    try:
        from tinygrad.ops import Ops, UOp  # 0.10
        UOp.variable, Ops.CMPLT  # 0.9 has classes of these names, for linear kernels alone.
        UOP_IMPORT = "from tinygrad.ops import Ops, UOp"
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


def movement(name, argument, rank):
    """Returns the text of the call that moves the elements of a tracker."""
    argument = tuple(tuple(entry) if isinstance(entry, list) else entry for entry in argument)
    if name != "flip":
        return f".{name}({argument})"
    flips = tuple(axis in argument for axis in range(rank))
    if hasattr(ShapeTracker, "flip"):
        return f".flip({flips})"
    return f".stride({tuple(-1 if flip else 1 for flip in flips)})"


def moved(tracker, name, argument):
    return eval(f"tracker{movement(name, argument, len(tracker.shape))}")


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
    """Returns the text of the first of these operations that this version has."""
    found = [f"Ops.{name}" for name in names if hasattr(Ops, name)]
    if not found:
        raise Skip(f"it has no {names[0]}")
    return found[0]


def alu(*names):
    return lambda x, y: f"{x}.alu({named(*names)}, {y})"


def sign_changed(x):
    return f"(-{x})"


FUNCTIONS = {
    "add": alu("ADD"), "sub": "({0} - {1})".format, "mul": alu("MUL"),
    "cdiv": alu("IDIV", "CDIV"), "cmod": alu("MOD", "CMOD"), "floordiv": alu("FLOORDIV"),
    "floormod": alu("FLOORMOD"), "max": alu("MAX"), "min": "{0}.minimum({1})".format,
    "cmplt": alu("CMPLT"), "cmpne": alu("CMPNE"), "and": alu("AND"), "or": alu("OR"),
    "xor": alu("XOR"), "shl": alu("SHL"), "shr": alu("SHR"), "neg": sign_changed,
    "cmpeq": "{0}.alu(Ops.CMPNE, {1}).logical_not()".format, "where": "{0}.where({1}, {2})".format,
}


def is_number(tree):
    return not isinstance(tree, list)


def divided(sign):
    """A division of the old classes, which divide by positive numbers alone."""
    def function(x, y):
        if not y.isdecimal() or int(y) == 0:
            raise Skip("it divides by positive numbers alone")
        return f"({x} {sign} {y})"
    return function


def factor(x, y):
    if not any(text.lstrip("-").isdecimal() for text in (x, y)):
        raise Skip("it has no products of variables")
    return f"({x} * {y})"


OLD_FUNCTIONS = {
    "add": "({0} + {1})".format, "sub": "({0} - {1})".format, "mul": factor, "neg": sign_changed,
    "floordiv": divided("//"), "floormod": divided("%"), "cmplt": "({0} < {1})".format,
}
def text(node):
    """Returns an expression as text, for messages."""
    if (number := constant_of(node)) is not None:
        return str(number)
    if (name := variable_of(node)) is not None:
        return str(name)
    kind = node.op.name.lower() if UOp is not None else type(node).__name__
    return f"{kind}({', '.join(map(text, sources(node)))})"


def is_bool(tree, case):
    """Returns whether an expression is a condition."""
    if is_number(tree):
        return isinstance(tree, bool)
    name, *operands = tree
    if name == "var":
        return case["vars"][operands[0]]["dtype"] == "bool"
    return name in ("cmplt", "cmpne", "cmpeq") or (
        name in ("not", "and", "or", "xor", "where") and is_bool(operands[-1], case))


def text_of(tree, case):
    """Returns the text that builds an expression of nested lists."""
    if is_number(tree):
        if UOp is None:
            return str(int(tree))
        constant = "UOp.const({0}, dtypes.bool)" if NUMBERS >= [0, 14] else \
            "UOp.const(dtypes.bool, {0})"
        return constant.format(tree) if isinstance(tree, bool) else f"number({tree})"
    name, *operands = tree
    if name == "var":
        return case["vars"][operands[0]]["name"]
    texts = [text_of(operand, case) for operand in operands]
    if UOp is None:
        if name not in OLD_FUNCTIONS:
            raise Skip(f"it has no {name}")
        return OLD_FUNCTIONS[name](*texts)
    if name == "not":
        return f"{texts[0]}.logical_not()" if is_bool(operands[0], case) else f"({texts[0]} ^ -1)"
    if name not in FUNCTIONS:
        raise Skip(f"it has no {name}")
    return FUNCTIONS[name](*texts)


def built_by(case):
    """Returns the lines that build an expression, `whole`, and simplify it, `simple`."""
    lines = []
    if UOp is not None:
        like = "dtypes.int" if NUMBERS < [0, 12] else "UOp.variable('like', 0, 1).dtype"
        order = "x, {0}" if NUMBERS >= [0, 14] else "{0}, x"
        lines += [UOP_IMPORT, "from tinygrad import dtypes",
                  f"number = lambda x: UOp.const({order.format(like)})"]
        lines += [f"{var['name']} = UOp.variable('{var['name']}', {var['min']}, {var['max']})"
                  for var in case["vars"]]
    else:
        # Old variables begin at 0.
        lines += ["from tinygrad.shape.symbolic import NumNode, Variable"]
        lines += ["{0} = ({0}_ := Variable('{0}', 0, {1})) + {2}".format(
            var["name"], var["max"] - var["min"], var["min"]) for var in case["vars"]]
    whole = text_of(case["expr"], case)
    if UOp is None:
        has_variables = "var" in json.dumps(case["expr"])
        return [*lines, f"simple = whole = {whole if has_variables else f'NumNode({whole})'}"]
    return [*lines, f"simple = (whole := {whole}).simplify()"]


def is_op(node):
    return constant_of(node) is None and variable_of(node) is None


def simplified(case):
    names = {}
    exec("\n".join(built_by(case)), names)
    root, simple = names["whole"], names["simple"]
    # Without variables a point is an empty list.
    shape = len(case["points"]), len(case["vars"])
    points = numpy.array(case["points"], dtype=numpy.int64).reshape(shape)
    shifts = [0 if UOp is not None else var["min"] for var in case["vars"]]
    columns = {var["name"]: points[:, number] - shifts[number]
               for number, var in enumerate(case["vars"])}
    low, high = ("vmin", "vmax") if UOp is not None else ("min", "max")
    # Indices without a type have bounds that no i64 has.
    bounds = [[min(max(int(getattr(node, side)), -1 << 63), (1 << 63) - 1) for side in (low, high)]
              for node in (root, simple)]
    ops = {id(node) for node in order(simple) if is_op(node)}
    return {"values": evaluate(simple, columns, len(points)).tolist(), "bounds": bounds,
            "text": text(simple)[:300], "ops": len(ops)}


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


# --- Scripts ----------------------------------------------------------------------------------


def expression_script(case, about, expected):
    """Returns a script that prints what an expression is at points, its bounds, and what is
    expected. It fails if a value is another one, or outside the bounds."""
    names = [var["name"] for var in case["vars"]]
    if UOp is not None:
        at = ", ".join(f"{name}: number(p[{number}])" for number, name in enumerate(names))
        value, low, high = "simplify().vmin", "vmin", "vmax"
    else:
        at = ", ".join(f"{var['name']}_: NumNode(p[{number}] - {var['min']})"
                       for number, var in enumerate(case["vars"]))
        value, low, high = "min", "min", "max"
    point = "substitute({" + at + "})." if names else ""
    return "\n".join([
        *built_by(case),
        f"points, expected = {[tuple(point) for point in case['points']]}, {expected}",
        f"got = [simple.{point}{value} for p in points]",
        f"bounds = [(e.{low}, e.{high}) for e in (whole, simple)]",
        'print(f"got      {got} within {bounds}\\nexpected {expected}")',
        "raise SystemExit(got != expected or not all(l <= x <= h for l, h in bounds "
        "for x in got))"]) + "\n"


def neighbours(shape, axis, elements):
    """Returns the pairs of the addresses of elements that follow each other along an axis."""
    grid = numpy.array(elements, numpy.int64).reshape(shape)
    here, there = numpy.delete(grid, -1, axis), numpy.delete(grid, 0, axis)
    return list(zip(here.flatten().tolist(), there.flatten().tolist()))


def shape_after(name, argument, shape):
    """Returns the shape of a tensor of this shape after a movement."""
    if name in ("reshape", "expand"):
        return tuple(argument)
    if name == "permute":
        return tuple(shape[axis] for axis in argument)
    if name == "pad":
        return tuple(sum(pair) + size for pair, size in zip(argument, shape))
    return tuple(stop - start for start, stop in argument) if name == "shrink" else shape


def tracker_script(case, about, expected):
    """Returns a script that prints what a tracker says of its elements, and what is expected.
    `about` is the form whose addresses are asked for, `inverse`, or `strides`. Of addresses it
    evaluates the rendered text, so that it divides negative numbers as Python does, not as C."""
    moves, shapes = [], [tuple(case["shape"])]
    for name, argument in case["ops"]:
        moves.append(movement(name, argument, len(shapes[-1])))
        shapes.append(shape_after(name, argument, shapes[-1]))
    start, half = f"ShapeTracker.from_shape({tuple(case['shape'])})", len(moves) // 2
    lines = ["from itertools import product",
             "from tinygrad.shape.shapetracker import ShapeTracker",
             f"t = {start}{''.join(moves)}"]
    if about == "strides":
        shape = shapes[-1]
        pairs = [neighbours(shape, axis, expected) for axis in range(len(shape))]
        steps = [{y - x for x, y in of if x >= 0 and y >= 0} or set() for of in pairs]
        masked = [any((x < 0) != (y < 0) for x, y in of) for of in pairs]
        return "\n".join([
            lines[1], lines[2],
            "got = list(zip(t.real_strides(True), t.real_strides(), "
            "map(t.axis_is_masked, range(len(t.shape)))))",
            f"steps, masked = {steps}, {masked}  # from each element to the next one, by axis",
            'print(f"got      {got}\\nexpected {steps} {masked}")',
            "raise SystemExit(not all((s is None or d <= {s}) and (t is None or t == s and not m) "
            "and c >= m for (s, t, c), d, m in zip(got, steps, masked)))"]) + "\n"
    form = {"simplified": "t.simplify()", "inverse": f"t.invert({tuple(case['shape'])})",
            "composed": f"{start}{''.join(moves[:half])} + "
                        f"ShapeTracker.from_shape({shapes[half]}){''.join(moves[half:])}"}
    if about == "refused":
        return "\n".join([*lines[1:], f"u = {form['composed']}", f"v = {form['inverse']}",
                          "print(*(f.expr_idxs() if hasattr(f, 'expr_idxs') else "
                          "f.to_indexed_uops() for f in (t, t.simplify(), u)), t.real_strides())"
                          ]) + "\n"
    name, asked = ("ridx", "to_indexed_uops") if UOp is not None else ("idx", "expr_idxs")
    return "\n".join([
        *lines, f"t = {form.get(about, 't')}",
        f"points = [{{f'{name}{{i}}': x for i, x in enumerate(p)}} for p in "
        "product(*map(range, t.shape))] if t else []",
        f"index, valid = [e.render() for e in t.{asked}()] if t else ('', '')",
        "got = [eval(index, p) if eval(valid, dict(p)) else -1 for p in points] if t else None",
        f"expected = {expected}  # the address of each element, -1 for padding",
        'print(f"got      {got}\\nexpected {expected}")',
        "raise SystemExit(got != expected)"]) + "\n"


TinyGrad.REQUESTS = {"exprs": each(simplified)}
TinyGrad.SCRIPTS = {"expr": expression_script}
if ShapeTracker is not None:
    TinyGrad.REQUESTS["views"] = each(examined)
    TinyGrad.SCRIPTS["ops"] = tracker_script
