"""Tail probabilities of the distributions that the tests in `stats.py` need, without other packages."""

import math

STEPS = 300
TINY = 1e-300


def t_two_sided(t: float, freedom: float) -> float:
    """Return the probability of a Student's t at least this far from zero."""
    return _beta(freedom / 2, 0.5, freedom / (freedom + t * t))


def f_upper(f: float, between: float, within: float) -> float:
    """Return the probability of an F at least this large."""
    return _beta(within / 2, between / 2, within / (within + between * f))


def chi_square_upper(value: float, freedom: float) -> float:
    """Return the probability of a chi-square at least this large."""
    a, x = freedom / 2, value / 2
    if x <= 0:
        return 1.0
    if x < a + 1:
        term = total = 1 / a
        for step in range(1, STEPS * 4):
            term *= x / (a + step)
            total += term
            if term < total * 1e-15:
                break
        return 1 - total * math.exp(-x + a * math.log(x) - math.lgamma(a))
    b = x + 1 - a
    c, d = 1 / TINY, 1 / b
    h = d
    for step in range(1, STEPS):
        factor = -step * (step - a)
        b += 2
        d = 1 / ((factor * d + b) or TINY)
        c = (b + factor / c) or TINY
        h *= d * c
        if abs(d * c - 1) < 1e-15:
            break
    return h * math.exp(-x + a * math.log(x) - math.lgamma(a))


def t_quantile(freedom: float, confidence: float = 0.95) -> float:
    """Return the t that encloses `confidence` of the distribution around zero."""
    low, high = 0.0, 1e4
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if t_two_sided(middle, freedom) > 1 - confidence else (low, middle)
    return (low + high) / 2


def _beta(a: float, b: float, x: float) -> float:
    """Return the regularized incomplete beta function by its continued fraction."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log(1 - x)
    )
    if x < (a + 1) / (a + b + 2):
        return front * _beta_fraction(a, b, x) / a
    return 1 - front * _beta_fraction(b, a, 1 - x) / b


def _beta_fraction(a: float, b: float, x: float) -> float:
    c, d = 1.0, 1 / ((1 - (a + b) * x / (a + 1)) or TINY)
    h = d
    for m in range(1, STEPS):
        for factor in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / ((1 + factor * d) or TINY)
            c = (1 + factor / c) or TINY
            h *= d * c
        if abs(d * c - 1) < 1e-15:
            break
    return h
