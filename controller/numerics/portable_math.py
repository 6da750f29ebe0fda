"""exp, log and cube root to the same last bit on every machine.

IEEE 754 fixes the result of + - * / and of the square root, and of nothing else. Libraries choose the code of exp and
log by the processor: glibc has one with fused multiply-add and one without, numpy one for AVX-512; their last digits
differ, and so does that of a matrix product or a linear solver of a BLAS. One last digit is enough for another
decision some days later, and then a seed names one run here and another there. What decides, or draws what is decided
on, therefore uses these. They do the same few additions, multiplications and divisions in the same order for a number
and for an array. Results are within three units of the last place of the true value.

The methods are the ordinary ones (Cody and Waite, Software Manual for the Elementary Functions, 1980): the exponent
is split off exactly; log of the mantissa m is 2 artanh((m - 1)/(m + 1)) by its series. exp of what is left of a
multiple of log 2 is Taylor's, a cube root is Newton's.
"""

from __future__ import annotations

import math
from typing import Any

ROOT_HALF = 0.7071067811865476
LN2_HIGH, LN2_LOW = (6.93147180369123816490e-01, 1.90821492927058770002e-10)  # the high part times 1000 is exact
PER_LN2 = 1.4426950408889634
# of 2 artanh(s)/s over s^2, but the first: |s| < 0.172
SERIES = tuple(2.0 / (2 * k + 1) for k in range(11, 0, -1))
TAYLOR = tuple(1.0 / math.factorial(k) for k in range(14, -1, -1))  # of exp: |x| < 0.347
HIGHEST, LOWEST = 709.782712893384, -745.2  # beyond these exp is infinite, or 0
ROUNDED = 2.0**32
CUBE_STEPS = 5  # of Newton, from at most 16 % off


def log(x: float) -> float:
    """Return the natural logarithm; minus infinity of 0. ValueError: x is negative, or not a number."""
    if not x >= 0.0:
        raise ValueError(f"log of {x}: a number of 0 or more")
    if x == 0.0 or x == math.inf:
        return -math.inf if x == 0.0 else math.inf
    mantissa, exponent = math.frexp(x)
    if mantissa < ROOT_HALF:
        mantissa, exponent = 2.0 * mantissa, exponent - 1
    s = (mantissa - 1.0) / (mantissa + 1.0)
    return exponent * LN2_HIGH + (s * artanh_part(s) + exponent * LN2_LOW)


def exp(x: float) -> float:
    """Return e to the x; infinite above 709.78, like numpy's."""
    if not LOWEST < x < HIGHEST:
        return math.inf if x >= HIGHEST else x if x != x else 0.0
    times = float(round(x * PER_LN2))
    return math.ldexp(exp_of_parts(x, times), int(times))


def expm1(x: float) -> float:
    """Return e to the x, less 1, without loss of digits near 0."""
    if abs(x) >= 0.5:
        return exp(x) - 1.0
    return x * float(polynomial(x, TAYLOR[:-1]))


def log1p(x: float) -> float:
    """Return the logarithm of 1 + x, without loss of digits near 0. ValueError: x is below -1."""
    if abs(x) >= 0.3:
        return log(1.0 + x)
    s = x / (2.0 + x)
    return s * artanh_part(s)


def artanh_part(s: float) -> float:
    """Return 2 artanh(s)/s."""
    square = s * s
    return 2.0 + square * float(polynomial(square, SERIES))


def cbrt(x: float) -> float:
    """Return the cube root of x, 0 or more (ValueError)."""
    if not x >= 0.0:
        raise ValueError(f"cube root of {x}: a number of 0 or more")
    if x == 0.0 or x == math.inf:
        return x
    mantissa, exponent = math.frexp(x)
    thirds, rest = divmod(exponent, 3)
    part = math.ldexp(mantissa, rest)  # from 1/2 to 4
    root = 0.65 + 0.25 * part
    for _ in range(CUBE_STEPS):
        root = root - (root - part / (root * root)) / 3.0
    return math.ldexp(root, thirds)


def rounded(x: float) -> float:
    """Round to 32 bits, nine digits, for a function that only a library has.

    Its last digits then hardly ever matter (where they differ by 1e-16 at all, once in some million values).
    """
    mantissa, exponent = math.frexp(x)
    return math.ldexp(round(mantissa * ROUNDED), exponent) / ROUNDED if math.isfinite(x) else x


# ---------------------------------------------------------------- what numba compiles, too


def polynomial(x: Any, coefficients: tuple[float, ...]) -> Any:
    """Return the polynomial of these coefficients, the highest first."""
    value = coefficients[0] * x + coefficients[1]
    for coefficient in coefficients[2:]:
        value = value * x + coefficient
    return value


def exp_of_parts(x: Any, times: Any) -> Any:
    """Return e to the x, divided by 2 to the `times`."""
    return polynomial((x - times * LN2_HIGH) - times * LN2_LOW, TAYLOR)
