"""Writes f64_functions.txt: name, argument, value and what rounding has cut off, as bits of f64.

python3 f64_functions.py [random rows for each function] > f64_functions.txt    (needs mpmath)
"""
import math
import random
import struct
import sys

from mpmath import mp, mpf, sin, log, exp

mp.prec = 1400
random.seed(7)
INF = math.inf


def hexed(x):
    return struct.pack(">d", x).hex()


def as_float(bits):
    return struct.unpack(">d", struct.pack(">Q", bits & (2**64 - 1)))[0]


def rounded(value):
    """The nearest float, also below the normal numbers and above the finite ones."""
    if value == 0:
        return 0.0
    exponent = max(int(mp.floor(log(abs(value), 2))), -1022)
    unit = mpf(2) ** (exponent - 52)
    whole = int(mp.nint(value / unit))
    try:
        return math.ldexp(whole, exponent - 52)
    except OverflowError:
        return INF


def row(name, function, x):
    special = {"exp2": {INF: INF, -INF: 0.0}, "log2": {INF: INF, 0.0: -INF}, "sin": {},
               "exp": {INF: INF, -INF: 0.0}}[name]
    if x != x or (name == "sin" and abs(x) == INF) or (name == "log2" and x < 0):
        high, low = math.nan, 0.0
    elif x in special:
        high, low = special[x], 0.0
    elif name == "exp2" and not -1100 < x < 1100:
        high, low = (INF if x > 0 else 0.0), 0.0
    elif name == "exp" and not -800 < x < 800:
        high, low = (INF if x > 0 else 0.0), 0.0
    elif name == "sin" and x == 0:
        high, low = x, 0.0
    else:
        exact = function(mpf(x))
        high = rounded(exact)
        low = float(exact - mpf(high)) if abs(high) != INF else 0.0
    print(name, hexed(x), hexed(high), hexed(low))


count = int(sys.argv[1]) if len(sys.argv) > 1 else 150
common = [0.0, -0.0, 1.0, -1.0, 0.5, math.nan, INF, -INF, 5e-324, -5e-324, 2.2250738585072014e-308,
          2.225073858507201e-308, 1e-310, 1.7976931348623157e308, 1e-8, -1e-8, 3.0, 1e22]
bounds = {
    "exp2": [-1022.0, -1022.5, -1023.0, -1073.5, -1074.0, -1074.9, -1075.0, -1075.5, -1076.0,
             1023.0, 1023.9999999999999, 1024.0, 1025.0, 1e300, -1e300, 0.4999999999999999],
    "log2": [as_float(0x3FF0000000000000 + by) for by in (-3, -2, -1, 1, 2, 3)]
            + [math.sqrt(0.5), math.sqrt(2), 2.0, 4.0, 1024.0, 1e-320],
    # Numbers that lie very near to multiples of a quarter turn.
    "sin": [6381956970095103 * 2.0**797, 5319372648326541 * 2.0**255, math.pi, math.pi / 2,
            math.pi / 4, 0.7853981633974484, 2.0**1023, 1.5707963267948968, 355.0, 1e5],
    # The bounds of normal, subnormal and finite results, powers of two, halves of ln(2).
    "exp": [-708.0, -708.3964185322641, -708.5, -744.4400719213812, -745.1332191019411,
                -745.1332191019412, -745.5, -750.0, 709.0, 709.782712893384, 709.7827128933841,
                710.0, 1e300, -1e300, 512.0, -512.0, 256.0, 64.0, -64.0, 0.34657359027997264,
                -0.34657359027997264, 1.0397207708399179, 708.7429919725],
}
dice = {
    "exp2": lambda: random.choice([random.uniform(-1, 1), random.uniform(-1076, 1024)]),
    "log2": lambda: random.choice([random.uniform(0.5, 2), random.uniform(0.99, 1.01),
                                   as_float(random.getrandbits(63))]),
    "sin": lambda: random.choice([random.uniform(-4, 4), random.uniform(-1000, 1000),
                                  as_float(random.getrandbits(64)),
                                  random.randrange(1, 10**6) * math.pi / 2]),
    "exp": lambda: random.choice([random.uniform(-1, 1), random.uniform(-746, 710)]),
}
functions = {"exp2": lambda x: mpf(2) ** x, "log2": lambda x: log(x, 2), "sin": sin,
             "exp": exp}
for name, function in functions.items():
    for x in common + bounds[name] + [dice[name]() for _ in range(count)]:
        row(name, function, x)
