"""A peer in Python: writes each program as a script for a framework, runs it, answers.

README.md beside this file describes the protocol. What differs between frameworks is an `Adapter`:
tables from operations to lines of Python. The script that runs is the one that a report shows.
"""

import json
import os
import struct
import sys
import traceback
import types

# The protocol has standard output for itself: whatever a framework prints goes to standard error.
ANSWERS = os.fdopen(os.dup(1), "w", encoding="utf-8")
os.dup2(2, 1)

FLOATS = ("f16", "bf16", "f32", "f64")


def module(name, text):
    """Makes a module of a text, for adapters that import it."""
    sys.modules[name] = types.ModuleType(name)
    exec(compile(text, f"{name}.py", "exec"), sys.modules[name].__dict__)


class Skip(Exception):
    """The framework does not have, or does not promise, what a program says."""


class Adapter:
    """A framework. An operation is a template, whose fields are the operands `{0}`, `{1}`, ... and
    what `fields` gives, or a function of the statement and the operands that returns the text."""

    # The framework's name and version.
    NAME = ""
    # The text of each dtype that it has.
    DTYPES = {}
    # The first lines of a script. They define `bits(dtype, shape, hexadecimal)`.
    PRELUDE = ""
    # Without any, whether it has an operation shows when it runs.
    OPS = {}
    # The conversion of `{0}` to `{dtype}`, and the numbers of i64 below `{0}`.
    CAST = ""
    COUNT = ""
    # The list of the elements of a value.
    ELEMENTS = "{0}.flatten().tolist()"
    # The compiled form of the function `program`, if programs are compiled as a whole.
    COMPILED = ""
    # False if a zero's sign is not promised, or if zeros may take the place of subnormal numbers.
    ZERO_SIGNS = True
    SUBNORMALS = True
    # False if the division of an integer by zero may give anything.
    ZERO_DIVISORS = True
    # Further requests that it answers, and their functions.
    REQUESTS = {}
    # The functions that write scripts of other cases than programs, by a key that these cases have.
    SCRIPTS = {}

    def fields(self, statement):
        """Returns what templates may name besides operands."""
        args = {name: self.argument(value) for name, value in statement.get("args", {}).items()}
        lists = {key: statement[key] for key in ("axes", "axis", "pads", "ranges", "start", "step")
                 if key in statement}
        return {**args, **lists, "shape": tuple(statement["shape"]),
                "dtype": self.dtype(statement["dtype"])}

    def argument(self, value):
        if isinstance(value, dict):
            return self.dtype(value["dtype"]) if "dtype" in value else number(value["number"])
        return value

    def dtype(self, name):
        if name not in self.DTYPES:
            raise Skip(f"it has no {name}")
        return self.DTYPES[name]

    def literal(self, dtype, shape, data):
        return f"bits({self.dtype(dtype)}, {tuple(shape)}, {data!r})"

    def cast(self, text, dtype):
        return self.CAST.format(text, dtype=self.dtype(dtype))

    def operand(self, source, program, wanted):
        """Returns the text of a source, in the dtype in which the statement takes it."""
        if isinstance(source, dict):
            return self.literal(source["dtype"], (), source["bytes"])
        dtype = program["statements"][source]["dtype"]
        return f"v{source}" if wanted in (None, dtype) else self.cast(f"v{source}", wanted)

    def operands(self, statement, program):
        wanted = statement.get("operands")
        # The condition of `where` stays as it is.
        first = 1 if statement["op"] == "where" else 0
        return [self.operand(source, program, wanted if first <= number else None)
                for number, source in enumerate(statement.get("src", []))]

    def expression(self, statement, program):
        op = statement["op"]
        if op == "input":
            return self.literal(statement["dtype"], statement["shape"], statement["bytes"])
        if op not in self.OPS:
            raise Skip(f"it has no {op}")
        rule, operands = self.OPS[op], self.operands(statement, program)
        if callable(rule):
            types = [program["statements"][source] for source in statement.get("src", [])
                     if not isinstance(source, dict)]
            return rule(self, statement, operands, types)
        return rule.format(*operands, **self.fields(statement))

    def lines(self, program):
        """Returns the script without its head: one assignment for each statement."""
        for statement in program["statements"]:
            self.dtype(statement["dtype"])
        lines = [f"v{number} = {self.expression(statement, program)}"
                 for number, statement in enumerate(program["statements"])]
        if not self.COMPILED:
            return lines
        inputs = [number for number, statement in enumerate(program["statements"])
                  if statement["op"] == "input"]
        names = ", ".join(f"v{number}" for number in inputs)
        outputs = ", ".join(f"v{output}" for output in dict.fromkeys(program["outputs"]))
        body = [f"    {line}" for number, line in enumerate(lines) if number not in inputs]
        return [*(lines[number] for number in inputs), f"def program({names}):", *body,
                f"    return ({outputs},)", f"({outputs},) = {self.COMPILED}({names})"]

    def script(self, program, expected):
        """Returns a script that runs by itself, prints dtype, shape and elements of all outputs and
        what is expected of them, and fails if they differ. Expected is a value, a pair of bounds,
        these and the text of a zero between them, or `None` for anything."""
        return self.comparison([self.PRELUDE.rstrip(), *self.lines(program)], program,
                               [f"v{output}" for output in program["outputs"]], expected)

    def comparison(self, lines, program, names, expected):
        """Returns the script of these lines that compares the outputs, which have these names."""
        types = [program["statements"][output] for output in program["outputs"]]
        types = [(self.shown(of["dtype"]), tuple(of["shape"])) for of in types]
        elements = [self.ELEMENTS.format(name) for name in names]
        return script(lines, elements, expected, names, types, self.ZERO_SIGNS)

    def shown(self, name):
        """Returns the text of a dtype as values of the framework have it. The adapter's NAMES are
        its dtypes with ours."""
        return next((str(dtype) for dtype, known in NAMES.items() if known == name), name)

    def run(self, program):
        """Returns for each output dtype, shape and bytes."""
        names = {}
        exec(self.PRELUDE, names)
        exec("\n".join(self.lines(program)), names)
        return [self.read(names[f"v{output}"]) for output in program["outputs"]]

    def read(self, value):
        """Returns dtype, shape and bytes of a value."""
        raise NotImplementedError

    def is_missing(self, error):
        """Returns whether an exception says that the framework does not have something."""
        return isinstance(error, NotImplementedError)


def script(lines, elements, expected, names=(), types=(), has_zero_signs=True):
    """Returns the script of these lines that compares lists of elements with what is expected, and
    the dtypes and shapes of the values of these names with theirs."""
    found = ", ".join(f"(str({name}.dtype), tuple({name}.shape))" for name in names)
    zeros = "" if has_zero_signs else "x == e == 0 or "
    signs = " and (x != 0 or str(x) in e[2:3] or len(e) < 3)" if has_zero_signs else ""
    return "\n".join([
        *lines, f"got, types = {' + '.join(elements)}, [{found}]",
        f"expected, expected_types = [{', '.join(expected)}], {list(types)}",
        'print(f"got      {types} {got}\\nexpected {expected_types} {expected}")',
        "raise SystemExit(types != expected_types or len(got) != len(expected) or not all("
        f"e is None or {zeros}str(x) == str(e) or "
        f"type(e) == tuple and e[0] <= x <= e[1]{signs} for x, e in zip(got, expected)))"]) + "\n"


def arange(adapter, statement, operands, types):
    numbers = adapter.COUNT.format(statement["shape"][0])
    return adapter.cast(f"({numbers} * {statement['step']} + {statement['start']})",
                        statement["dtype"])


def shrink(adapter, statement, operands, types):
    ranges = ", ".join(f"{start}:{stop}" for start, stop in statement["ranges"])
    return f"{operands[0]}[{ranges or '...'}]"


def composed(template):
    """A function that the framework composes of others, which round to 16 bits each: it does not
    promise the error of the whole."""
    def text(adapter, statement, operands, types):
        if statement["dtype"] in ("f16", "bf16"):
            raise Skip(f"it does not promise the error of {statement['op']} in 16 bits")
        return template.format(*operands, **adapter.fields(statement))
    return text


def number(text):
    """Returns the Python text of a number."""
    return f"float({text!r})" if text.lower() in ("inf", "-inf", "nan") else text


def value_of(dtype, data):
    """Returns the number that a literal's bytes are."""
    raw = bytes.fromhex(data)
    if dtype == "bf16":
        return struct.unpack("<f", b"\0\0" + raw)[0]
    codes = {"bool": "?", "i8": "b", "u8": "B", "i16": "h", "u16": "H", "i32": "i", "u32": "I",
             "i64": "q", "u64": "Q", "f16": "e", "f32": "f", "f64": "d"}
    return struct.unpack("<" + codes[dtype], raw)[0]


def answer(adapter, request):
    if "run" in request:
        try:
            outputs = adapter.run(request["run"])
        except Skip as reason:
            return {"skipped": str(reason)}
        except Exception as error:
            kind = type(error).__name__
            text = (str(error).strip().splitlines() or [""])[0]
            key = "skipped" if adapter.is_missing(error) else "refused"
            if key == "refused":
                traceback.print_exc()
            return {key: f"{kind}: {text}"[:300]}
        return {"values": [{"dtype": dtype, "shape": list(shape), "bytes": data.hex()}
                           for dtype, shape, data in outputs]}
    if "script" in request:
        case, expected = request["script"], request.get("expected", [])
        try:
            for key, function in adapter.SCRIPTS.items():
                if key in case:
                    return {"script": function(case, request.get("about"), expected)}
            return {"script": adapter.script(case, expected)}
        except Skip as reason:
            return {"skipped": str(reason)}
    for name, function in adapter.REQUESTS.items():
        if name in request:
            return {name: function(request[name])}
    return {"refused": f"no request that is known: {sorted(request)}"}


def greeting(adapter):
    """Says who answers, and what it has and does not promise."""
    ops = sorted([*adapter.OPS, "input"]) if adapter.OPS else None
    return {"gradiff": 1, "name": adapter.NAME, "ops": ops,
            "dtypes": list(adapter.DTYPES), "zero_signs": adapter.ZERO_SIGNS,
            "subnormals": adapter.SUBNORMALS, "zero_divisors": adapter.ZERO_DIVISORS,
            "requests": ["run", "script", *adapter.REQUESTS]}


def serve(adapter):
    """Answers requests until standard input ends."""
    for line in sys.stdin:
        request = json.loads(line)
        number = request.pop("id", None)
        said = greeting(adapter) if "gradiff" in request else answer(adapter, request)
        ANSWERS.write(json.dumps({**said, "id": number}) + "\n")
        ANSWERS.flush()
