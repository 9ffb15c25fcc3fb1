#!/usr/bin/env python3
"""Prints the computed rows of src/canary/bounds.txt: answers just within and just beyond what is legal.

Everything is exact: fractions, and decimals of 80 digits for functions; derivatives are differences of those.
Nothing is taken from the oracle but what its documentation promises: + - * / and sqrt are rounded once, to one of the
nearest numbers, but for a power of two, which scales; a sum of n terms loses (n-2) u sum|x| and the last rounding,
functions 4 ulps (pow 4 more for each doubling of its result), methods those of corpus/src/methods/mod.rs; f16 and
bf16 are accumulated in f32 and rounded once; casts are rounded to the nearest number.
    python3 fuzz/check/canaries.py > fuzz/check/src/judge/canary/bounds.txt
"""
import random
from decimal import Decimal, getcontext
from fractions import Fraction as F

getcontext().prec = 80
# name: bits of precision, smallest and largest exponent of normal numbers, bits in memory
FORMATS = {"f16": (11, -14, 15, 16), "bf16": (8, -126, 127, 16), "f32": (24, -126, 127, 32), "f64": (53, -1022, 1023, 64)}
DRAW = random.Random(18)


def unit(name):
    return F(1, 2 ** FORMATS[name][0])


def half(name, size):
    """Half the distance of numbers of this size: the bound of a rounding."""
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent += -1 if F(2) ** exponent > size else 0
    return unit(name) * F(2) ** exponent


def number(name, bits):
    precision, least, _, width = FORMATS[name]
    sign = -1 if bits >> (width - 1) else 1
    body = bits & ((1 << (width - 1)) - 1)
    field, fraction = body >> (precision - 1), body & ((1 << (precision - 1)) - 1)
    significand = fraction + ((1 << (precision - 1)) if field else 0)
    return sign * significand * F(2) ** (max(field, 1) - 1 + least - precision + 1)


def nearest(name, value):
    """The bits of the nearest number, ties to even."""
    precision, least, most, width = FORMATS[name]
    sign, size = (1 << (width - 1) if value < 0 else 0), abs(value)
    if size == 0:
        return sign
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent += -1 if F(2) ** exponent > size else 0
    quantum = max(exponent, least) - precision + 1
    field = quantum - (least - precision + 1)
    bits = (field << (precision - 1)) + round(size / F(2) ** quantum)
    return sign | min(bits, (most - least + 2) << (precision - 1))


def order(name, bits):
    """Bits as a number that grows with the value."""
    top = 1 << (FORMATS[name][3] - 1)
    return bits if bits < top else top - bits


def from_order(name, place):
    return place if place >= 0 else (1 << (FORMATS[name][3] - 1)) - place


def edges(name, value, bound, beyond):
    """The outermost numbers within `bound` of the value, and the first beyond `beyond`."""
    found = []
    for side in (-1, 1):
        place = order(name, nearest(name, value + side * bound))
        while abs(number(name, from_order(name, place)) - value) > bound:
            place -= side
        inside = from_order(name, place)
        place = order(name, nearest(name, value + side * beyond)) - side
        while abs(number(name, from_order(name, place)) - value) <= beyond:
            place += side
        found.append((inside, from_order(name, place)))
    return found


def text(name, bits):
    return f"bits:{bits:#x}" if name in FORMATS else str(bits)


def row(title, program, name, value, bound, beyond=None, shape="[1]"):
    """A row of edges; `beyond` is the bound that the oracle may have."""
    pairs = edges(name, value, bound, beyond or bound * F(1004, 1000))
    print(f"# {title}/{name}")
    print(program)
    for answer in sorted({inside for inside, _ in pairs}):
        print(f"accept {name}{shape} {answer:#x}")
    for _, answer in pairs:
        print(f"refuse {name}{shape} {answer:#x}")
    print()


def inputs(name, lists):
    lines = []
    for letter, bits in zip("abc", lists):
        lines.append(f"{letter} = input {name}[{len(bits)}] [{', '.join(text(name, b) for b in bits)}]")
    return "\n".join(lines)


def draw(name, low=F(1, 2), high=F(2)):
    return nearest(name, low + (high - low) * F(DRAW.getrandbits(64), 2**64))


def search(name, count, exact, bound, is_tight):
    """Operands whose result has numbers just within and just beyond its bound."""
    best, best_score = None, None
    for _ in range(6000):
        operands = [draw(name) for _ in range(count)]
        value = exact([number(name, bits) for bits in operands])
        limit = bound(value)
        if value <= 0 or not is_tight(value):
            continue
        below, above = edges(name, value, limit, limit * F(1004, 1000))
        inside = max(abs(number(name, answer) - value) for answer, _ in (below, above)) / limit
        outside = min(abs(number(name, answer) - value) for _, answer in (below, above)) / limit
        score = (1 - inside) + (outside - 1)
        if best_score is None or score < best_score:
            best, best_score = operands, score
        if score < F(5, 100):
            break
    return best


def root(value):
    """The square root to 80 digits."""
    return F((Decimal(value.numerator) / Decimal(value.denominator)).sqrt())


def decimal(value):
    return Decimal(value.numerator) / Decimal(value.denominator)


def exp2(x):
    return F((decimal(x) * Decimal(2).ln()).exp())


def log2(x):
    return F(decimal(x).ln() / Decimal(2).ln())


def sin(x):
    total, term, step = F(0), x, 1
    while abs(term) > F(1, 10**70):
        total, term, step = total + term, -term * x * x / ((step + 1) * (step + 2)), step + 2
        term = F(round(term * 10**75), 10**75)
    return total


def is_tight(name, value, bound):
    """Whether numbers lie just within and just beyond the bound."""
    pairs = edges(name, value, bound, bound * F(103, 100))
    inside = max(abs(number(name, answer) - value) for answer, _ in pairs)
    return inside > bound * F(9, 10) and min(abs(number(name, answer) - value) for _, answer in pairs) < bound * F(13, 10)


def near_one(value):
    return 1 <= value < F(102, 100)


def once(name):
    """Ops that are rounded once."""
    u = unit(name)
    rounding = lambda value: half(name, value)
    for title, count, exact in [
        ("add", 2, lambda v: v[0] + v[1]), ("sub", 2, lambda v: v[0] - v[1]), ("mul", 2, lambda v: v[0] * v[1]),
        ("div", 2, lambda v: v[0] / v[1]), ("sqrt", 1, lambda v: root(v[0])), ("recip", 1, lambda v: 1 / v[0])]:
        if title in ("add", "sub"):
            # 1 and 0.49 of a unit in the last place, which is half as large below 1.
            operands = [nearest(name, F(1)), nearest(name, F(49, 100) * (2 * u if title == "add" else u))]
        elif count == 1 and FORMATS[name][0] > 11:
            # Below 4 ends of results lie densest: the root of 1+x is 1+x/2.
            operands = search(name, 1, exact, rounding, lambda v: 1 <= v < F(105, 100))
        else:
            operands = search(name, count, exact, rounding, near_one if name != "bf16" else lambda v: 1 <= v < F(103, 100))
        value = exact([number(name, bits) for bits in operands])
        names = " ".join("ab"[:count])
        row(title, f"{inputs(name, [[o] for o in operands])}\nc = {title} {names}\noutput c", name, value, rounding(value))


def functions(name):
    """exp2, log2, sin, pow: 4 ulps; below 24 bits computed in f32 and rounded once."""
    u = unit(name)
    is_wide = FORMATS[name][0] >= 24

    def bounds(size, ulps, value):
        if is_wide:
            # An f64 has two more ulps: the oracle's library, and its allowance for it.
            own = 4 * u * size if name == "f64" else 0
            return 2 * u * ulps * size, (2 * u * ulps * size + own) * F(1004, 1000)
        inner = 2 * F(1, 2**24) * ulps * size
        legal = half(name, abs(value) + inner) + inner
        return legal, legal * F(1004, 1000)

    def points(title, count, exact, low, high, size, ulps):
        best, best_score = None, None
        for _ in range(4000 if not is_wide else 60):
            operands = [draw(name, low, high) for _ in range(count)]
            value = exact([number(name, bits) for bits in operands])
            limit, beyond = bounds(size(value), ulps(value), value)
            pairs = edges(name, value, limit, beyond)
            inside = max(abs(number(name, answer) - value) for answer, _ in pairs) / limit
            outside = min(abs(number(name, answer) - value) for _, answer in pairs) / beyond
            score = (1 - inside) + (outside - 1)
            if best_score is None or score < best_score:
                best, best_score = (operands, value, limit, beyond), score
            if score < F(5, 100):
                break
        operands, value, limit, beyond = best
        names = " ".join("ab"[:count])
        op = title.split("-")[0]
        row(title, f"{inputs(name, [[o] for o in operands])}\nc = {op} {names}\noutput c", name, value, limit, beyond)

    four = lambda value: 4
    points("exp2", 1, lambda v: exp2(v[0]), F(0), F(1, 16), abs, four)
    points("log2", 1, lambda v: log2(v[0]), F(2), F(34, 16), abs, four)
    points("sin", 1, lambda v: sin(v[0]), F(53, 100), F(57, 100), abs, four)
    # Where the argument is reduced by multiples of pi, ulps are those of 1.
    points("sin-reduced", 1, lambda v: sin(v[0]), F(3), F(33, 10), lambda value: 1, four)
    power = lambda v: F((decimal(v[0]).ln() * decimal(v[1])).exp())
    points("pow", 2, power, F(3, 4), F(3, 2), abs, lambda value: 4 + 4 * abs(log2(value)))
    points("pow-large", 2, power, F(5, 2), F(3), abs, lambda value: 4 + 4 * abs(log2(value)))


def sums(name):
    """Sums, products of matrices and means: any order, 16-bit types in f32 and rounded once."""
    u = unit(name)
    wide = "f32" if FORMATS[name][0] < 24 else name
    inner = unit(wide)
    last = (lambda value: half(name, value)) if inner != u else (lambda value: F(0))
    for count in (4, 64):
        # Added one after the other to 1, each of these is lost.
        values = [F(1)] + [inner] * (count - 1)
        if inner != u:
            values[1] += F(49, 100) * 2 * u
        bits = [nearest(name, value) for value in values]
        exact = sum(number(name, b) for b in bits)
        bound = (count - 2) * inner * exact + half(wide, exact) + last(exact)
        row(f"sum-{count}", f"{inputs(name, [bits])}\nc = sum a axes=[0]\noutput c", name, exact, bound)
        if count == 4:
            mean = f"{inputs(name, [bits])}\nb = sum a axes=[0]\nc = div b 4.0\noutput c"
            row("mean", mean, name, exact / 4, bound / 4)
    # The last addition meets what is left alone, the others all of it.
    if inner == u:
        bits = [nearest(name, value) for value in (F(1), 3 * u, F(-1))]
        row("sum-cancelled", f"{inputs(name, [bits])}\nc = sum a axes=[0]\noutput c", name, 3 * u, 2 * u)
        bits = [nearest(name, value) for value in (F(1), u, u, u)]
        exact = sum(number(name, b) for b in bits)
        lines = "\n".join(f"{letter} = input {name}[1] [{text(name, b)}]" for letter, b in zip("abcd", bits))
        row("chain", f"{lines}\ne = add a b\nf = add e c\ng = add f d\noutput g", name, exact, 2 * u * exact + half(name, exact))
    bound = lambda value: 6 * inner * value + half(wide, value) + last(value)
    bits, value = None, None
    while True:
        bits = [draw(name, F(9, 10), F(11, 10)) for _ in range(8)]
        value = F(1)
        for b in bits:
            value *= number(name, b)
        powers = [b for b in bits if number(name, b) == 1]
        if near_one(value) and not powers and is_tight(name, value, bound(value)):
            break
    row("prod", f"{inputs(name, [bits])}\nc = prod a axes=[0]\noutput c", name, value, bound(value), bound(value) * F(103, 100))
    # The product of a row and a column of 16.
    while True:
        left = [draw(name, F(1, 8), F(3, 8)) for _ in range(16)]
        right = [draw(name, F(1, 8), F(3, 8)) for _ in range(16)]
        products = [number(name, x) * number(name, y) for x, y in zip(left, right)]
        value = sum(products)
        # A product of 16-bit types is one of their own dtype, rounded to it or not, before it is added in f32.
        rounded = [p for p in products if number(name, nearest(name, p)) != p]
        bound = 14 * inner * value + half(wide, value) + sum(half(name, p) for p in rounded) + last(value)
        if near_one(value) and is_tight(name, value, bound):
            break
    program = f"{inputs(name, [left, right])}\nc = mul a b\nd = sum c axes=[0]\noutput d"
    row("matmul", program, name, value, bound, bound * F(103, 100))


def casts():
    for source, target in [("f64", "f32"), ("f64", "f16"), ("f64", "bf16"), ("f32", "f16"), ("f32", "bf16")]:
        u = unit(target)
        # A product beside the middle of two numbers, which it may be rounded across, is cast to either.
        while True:
            middle = 1 + (2 * DRAW.getrandbits(3) + 1) * u
            operands = [draw(source, F(3, 4), F(1))]
            operands.append(nearest(source, middle / number(source, operands[0])))
            value = number(source, operands[0]) * number(source, operands[1])
            error = half(source, value)
            ends = [nearest(target, value + side * error) for side in (-1, 1)]
            beyond = [nearest(target, value + side * error * F(1004, 1000)) for side in (-1, 1)]
            if ends[0] + 1 == ends[1] and ends == beyond and number(source, nearest(source, value)) != value:
                break
        print(f"# cast-computed-{source}/{target}")
        print(f"{inputs(source, [[o] for o in operands])}\nc = mul a b\nd = cast c {target}\noutput d")
        print(f"accept {target}[1] {ends[0]:#x}\naccept {target}[1] {ends[1]:#x}")
        print(f"refuse {target}[1] {ends[0] - 1:#x}\nrefuse {target}[1] {ends[1] + 1:#x}\n")
        # Halfway: to the even one, and a bit beyond halfway.
        step = 2 * u
        for title, value, right in [("tie", 1 + step / 2, F(1)), ("tie-up", 1 + 3 * step / 2, 1 + 2 * step),
                                    ("above-tie", 1 + step / 2 + 2 * unit(source), 1 + step)]:
            bits, answer = nearest(source, value), nearest(target, right)
            print(f"# cast-{title}-{source}/{target}")
            print(f"a = input {source}[1] [{text(source, bits)}]\nb = cast a {target}\noutput b")
            print(f"accept {target}[1] {answer:#x}")
            print(f"refuse {target}[1] {answer - 1:#x}\nrefuse {target}[1] {answer + 1:#x}\n")
    for source, target in [("i32", "f32"), ("u64", "f64"), ("i32", "f16"), ("i64", "bf16")]:
        value = 2 ** FORMATS[target][0] + 3
        answer = nearest(target, F(value))
        print(f"# cast-rounds-{source}/{target}")
        print(f"a = input {source}[1] [{value}]\nb = cast a {target}\noutput b")
        print(f"accept {target}[1] {answer:#x}")
        print(f"refuse {target}[1] {answer - 1:#x}\nrefuse {target}[1] {answer + 1:#x}\n")


def arc_tangent(x):
    for _ in range(6):
        x = x / (1 + (1 + x * x).sqrt())
    total, power, odd = Decimal(0), x, 1
    while abs(power) > Decimal(10) ** -79:
        total, power, odd = total + power / odd, -power * x * x, odd + 2
    return 64 * total


PI = 4 * arc_tangent(Decimal(1))


def arc_sine(x):
    return arc_tangent(x / (1 - x * x).sqrt())


def cosine(x):
    total, term, step = Decimal(0), Decimal(1), 0
    while abs(term) > Decimal(10) ** -79:
        total, term, step = total + term, -term * x * x / ((step + 1) * (step + 2)), step + 2
    return total


def error_function(x):
    total, term, n = Decimal(0), x, 0
    while abs(term) > Decimal(10) ** -79:
        total, n = total + term / (2 * n + 1), n + 1
        term = -term * x * x / n
    return 2 * total / PI.sqrt()


def sigmoid(x):
    return 1 / (1 + (-x).exp())


def tanh(x):
    return 1 - 2 * sigmoid(-2 * x)


def gate_error(x, argument, roundings):
    """The change of x * sigmoid(argument) that so many roundings of the argument make."""
    return abs(x * argument) * sigmoid(argument) * sigmoid(-argument) * roundings


def quick_argument(x):
    return Decimal("1.702") * x


def gelu_argument(x):
    return 2 * (2 / PI).sqrt() * (x + Decimal("0.044715") * x**3)


# call, function, range of x, ulps, and a further error in roundings of 1
METHODS = [
    ("exp", lambda x: x.exp(), 0, F(1, 16), 2),
    ("log", lambda x: x.ln(), F(11, 4), 3, 3),
    ("log10", lambda x: x.log10(), 10, 11, 3),
    ("sigmoid", sigmoid, F(1, 64), F(1, 8), 3),
    ("tanh", tanh, F(9, 16), F(5, 8), 4),
    ("erf", error_function, F(1, 2), F(5, 8), 4),
    ("sinh", lambda x: (x.exp() - (-x).exp()) / 2, F(15, 16), 1, 4),
    ("cosh", lambda x: (x.exp() + (-x).exp()) / 2, 0, F(1, 4), 4),
    ("asinh", lambda x: (x + (x * x + 1).sqrt()).ln(), F(5, 4), F(11, 8), 5),
    ("acosh", lambda x: (x + (x * x - 1).sqrt()).ln(), F(13, 8), F(7, 4), 5),
    ("atanh", lambda x: ((1 + x) / (1 - x)).ln() / 2, F(3, 4), F(13, 16), 5),
    ("asin", arc_sine, F(1, 2), F(9, 16), 4),
    ("acos", lambda x: PI / 2 - arc_sine(x), F(7, 16), F(1, 2), 4),
    ("atan", arc_tangent, F(9, 16), F(5, 8), 4),
    ("cos", cosine, 1, F(5, 4), 0, lambda x: 12),
    ("softsign", lambda x: x / (1 + x), F(5, 4), F(3, 2), 2),
    ("hardsigmoid", lambda x: (x + 3) / 6, F(1, 8), F(1, 4), 2),
    ("hardswish", lambda x: x * (x + 3) / 6, F(3, 2), F(13, 8), 3),
    ("silu", lambda x: x * sigmoid(x), F(3, 4), 1, 4),
    ("quick_gelu", lambda x: x * sigmoid(quick_argument(x)), F(3, 4), 1, 4,
     lambda x: gate_error(x, quick_argument(x), 3)),
    ("gelu", lambda x: x * sigmoid(gelu_argument(x)), F(3, 4), 1, 4,
     lambda x: gate_error(x, gelu_argument(x), 6)),
    ("mish", lambda x: x * tanh((1 + x.exp()).ln()), F(3, 4), 1, 5),
    ("logsigmoid", lambda x: sigmoid(x).ln(), -1, F(-1, 2), 4),
    ("softplus beta=1.0", lambda x: (1 + x.exp()).ln(), F(1, 2), 1, 4),
    ("elu alpha=1.0", lambda x: x.exp() - 1, -1, F(-3, 4), 3),
    ("celu alpha=1.0", lambda x: x.exp() - 1, -1, F(-3, 4), 3),
]


def methods():
    """Methods of f32: an argument whose result has numbers just within and just beyond the bound."""
    name, u = "f32", unit("f32")
    for call, function, low, high, ulps, *more in METHODS:
        method, *arguments = call.split()
        best, best_score = None, None
        for _ in range(60):
            bits = draw(name, F(low), F(high))
            x = decimal(number(name, bits))
            value = F(function(x))
            limit = 2 * u * ulps * abs(value) + sum(u * F(extra(x)) for extra in more)
            pairs = edges(name, value, limit, limit * F(102, 100))
            inside = max(abs(number(name, answer) - value) for answer, _ in pairs) / limit
            outside = min(abs(number(name, answer) - value) for _, answer in pairs) / limit
            score = (1 - inside) + (outside - 1)
            if best_score is None or score < best_score:
                best, best_score = (bits, value, limit), score
        bits, value, limit = best
        program = f"{inputs(name, [[bits]])}\nb = {' '.join([method, 'a', *arguments])}\noutput b"
        row(method, program, name, value, limit, limit * F(102, 100))


def near(title, program, value, units):
    """A row of f32: the nearest number, and the first ones beyond so many roundings of it."""
    value = F(value)
    row(title, program, "f32", value, half("f32", abs(value)), units * unit("f32") * abs(value))


def slope(function, xs, at):
    """The derivative of a function of decimals."""
    step = Decimal(10) ** -25
    ends = [function([x + side * step if i == at else x for i, x in enumerate(xs)]) for side in (1, -1)]
    return (ends[0] - ends[1]) / (2 * step)


def softmax(xs):
    powers = [x.exp() for x in xs]
    return [power / sum(powers) for power in powers]


def normalized(xs):
    mean = sum(xs) / len(xs)
    variance = sum((x - mean) ** 2 for x in xs) / len(xs)
    return [(x - mean) / (variance + Decimal("0.0625")).sqrt() for x in xs]


def attention(xs):
    """A query of two elements, two keys and their values of one element."""
    query, keys, values = xs[:2], [xs[2:4], xs[4:6]], xs[6:8]
    scores = [sum(x * y for x, y in zip(query, key)) / Decimal(2).sqrt() for key in keys]
    return sum(x * y for x, y in zip(softmax(scores), values))


def dot(xs, ys):
    return sum(x * y for x, y in zip(xs, ys))


def compounds():
    """Sums of many terms and what is made of them, and derivatives."""
    bits = [draw("f32", F(1, 4), F(3, 2)) for _ in range(8)]
    xs = [decimal(number("f32", b)) for b in bits]

    def given(letter, start, stop, sizes):
        elements = ", ".join(text("f32", b) for b in bits[start:stop])
        return f"{letter} = input f32[{sizes}] [{elements}]\n"

    def first(name, rank=1):
        ranges = ",".join(["(0,1)"] * rank)
        return f"y = shrink {name} [{ranges}]\nz = reshape y [1]\noutput z"

    four, row_of_four = given("a", 0, 4, "4"), given("a", 0, 4, "1,4")
    near("layernorm", f"{four}b = layernorm a axes=[0] eps=0.0625\n{first('b')}",
         normalized(xs[:4])[0], 64)
    line = given("a", 0, 3, "1,1,3") + given("w", 3, 5, "1,1,2")
    line += "b = conv2d a w groups=1 stride=[1] dilation=[1] padding=[0]\n"
    near("conv2d", line + first("b", 3), xs[0] * xs[3] + xs[1] * xs[4], 8)
    loss = lambda xs: -softmax(xs)[1].ln()
    entropy = f"{row_of_four}t = input i32[1] [1]\n"
    entropy += "b = cross_entropy a t label_smoothing=0.0 reduction=none\n"
    near("cross-entropy", entropy + first("b"), loss(xs[:4]), 64)
    attended = given("a", 0, 2, "1,2") + given("k", 2, 6, "2,2") + given("v", 6, 8, "2,1")
    attended += "b = scaled_dot_product_attention [a,k,v] is_causal=false\n"
    near("attention", attended + first("b", 2), attention(xs), 64)

    def derived(title, program, rank, function, at, units, names="c a"):
        found = f"{program}g = gradient {names}\n{first('g', rank)}"
        near(f"gradient-{title}", found, slope(function, xs, at), units)

    derived("tanh", f"{four}c = tanh a\n", 1, lambda xs: tanh(xs[0]), 0, 64)
    gelu = lambda xs: xs[0] * sigmoid(gelu_argument(xs[0]))
    derived("gelu", f"{four}c = gelu a\n", 1, gelu, 0, 128)
    three = given("a", 0, 3, "3")
    derived("mean", f"{three}b = square a\nc = mean b axes=[0] keepdim=false\n", 1,
            lambda xs: xs[0] ** 2 / 3, 0, 32)
    product = f"{row_of_four}{given('w', 4, 8, '4,1')}b = matmul a w\nc = square b\n"
    derived("matmul", product, 2, lambda xs: dot(xs[:4], xs[4:]) ** 2, 0, 64)
    whole = lambda xs: sum((xs[i] * xs[3] + xs[i + 1] * xs[4]) ** 2 for i in range(2))
    derived("conv2d", f"{line}c = square b\n", 3, whole, 3, 64, "c w")
    factors = lambda xs: xs[0] * xs[1] * xs[2] * xs[3]
    derived("prod", f"{four}c = prod a axes=[0]\n", 1, factors, 0, 64)
    weights = [Decimal(1), Decimal(-2), Decimal("0.5"), Decimal(3)]
    weighted = "w = input f32[4] [1.0, -2.0, 0.5, 3.0]\nc = mul b w\n"
    derived("softmax", f"{four}b = softmax a axis=0\n{weighted}", 1,
            lambda xs: dot(softmax(xs[:4]), weights), 0, 512)
    derived("layernorm", f"{four}b = layernorm a axes=[0] eps=0.0625\n{weighted}", 1,
            lambda xs: dot(normalized(xs[:4]), weights), 0, 4096)
    derived("cross-entropy", entropy, 2, lambda xs: loss(xs[:4]), 0, 512, "b a")
    derived("attention", attended, 2, attention, 6, 256, "b v")
    second = f"{four}b = exp a\nd = mul b a\nc = gradient d a\n"
    derived("second", second, 1, lambda xs: (xs[0] + 1) * xs[0].exp(), 0, 256)


def main():
    print("; Answers just within and just beyond what is legal, printed by fuzz/check/canaries.py.\n")
    for name in FORMATS:
        once(name)
        functions(name)
        sums(name)
    casts()
    methods()
    compounds()


main()
