"""Elementary functions: near the true value, the same for numbers and arrays, and the same whatever the processor offers."""

import decimal
import math
import os
import random
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal

import pytest
from scipy import special

from controller.numerics import gamma
from controller.numerics import portable_math as el

RNG = random.Random(5)
POSITIVE = [RNG.uniform(0.0, 4.0) for _ in range(300)] + [10.0 ** RNG.uniform(-300, 300) for _ in range(300)]
ANY = [RNG.uniform(-1.0, 1.0) for _ in range(300)] + [RNG.uniform(-700.0, 700.0) for _ in range(300)]
SMALL = [RNG.choice((-1, 1)) * 10.0 ** RNG.uniform(-18, -0.01) for _ in range(600)]
DIGITS = decimal.Context(prec=60)

CASES: list[tuple[Callable[[float], float], Callable[[Decimal], Decimal], list[float]]] = [
    (el.log, lambda x: x.ln(DIGITS), POSITIVE),
    (el.exp, lambda x: x.exp(DIGITS), ANY),
    (el.cbrt, lambda x: DIGITS.power(x, 1 / Decimal(3)), POSITIVE),
    (el.log1p, lambda x: DIGITS.add(1, x).ln(DIGITS), SMALL),
    (el.expm1, lambda x: DIGITS.subtract(x.exp(DIGITS), Decimal(1)), [*SMALL, *ANY]),
]


@pytest.mark.parametrize(("ours", "true", "values"), CASES, ids=["log", "exp", "cbrt", "log1p", "expm1"])
def test_results_are_within_three_last_places_of_the_true_value(
    ours: Callable[[float], float], true: Callable[[Decimal], Decimal], values: list[float]
) -> None:
    with decimal.localcontext(DIGITS):
        for x in values:
            expected = true(Decimal(x))
            assert abs(Decimal(ours(x)) - expected) <= 3 * Decimal(math.ulp(float(expected))), x


def test_ends_of_the_range() -> None:
    assert (el.log(0.0), el.log(math.inf), el.log(1.0)) == (-math.inf, math.inf, 0.0)
    assert (el.exp(0.0), el.exp(-math.inf), el.exp(math.inf), el.exp(800.0)) == (1.0, 0.0, math.inf, math.inf)
    assert el.exp(-800.0) == 0.0 < el.exp(-744.0)
    assert math.isnan(el.exp(math.nan))
    assert (el.cbrt(0.0), el.cbrt(27.0), el.cbrt(math.inf)) == (0.0, 3.0, math.inf)


def test_what_has_no_value_is_refused() -> None:
    for wrong in (-1.0, math.nan):
        with pytest.raises(ValueError, match="0 or more"):
            el.log(wrong)
        with pytest.raises(ValueError, match="0 or more"):
            el.cbrt(wrong)


# The seed of hashes, and what libraries choose their code by; a machine of the test takes several at once, as real ones do.
OLD = {
    "PYTHONHASHSEED": "4242",
    "OPENBLAS_CORETYPE": "Prescott",
    "NPY_DISABLE_CPU_FEATURES": "AVX512F AVX512CD AVX512_SKX",
    "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX2,-FMA,-AVX512F",
}
# the decisions are compiled anew for it: a minute
OLDEST = {**OLD, "NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}
NEWER = {
    "OPENBLAS_CORETYPE": "Haswell",
    "NPY_DISABLE_CPU_FEATURES": "X86_V4",  # the machine's own code of numba has fused multiply-add, as Haswell's
}
RUN = """
import hashlib, os, sys
sys.modules.update(dict.fromkeys(os.environ.get("WITHOUT", "").split()))
from dataclasses import replace
from experiments.inputs.traces.paper_campus import paper_campus
from experiments.worlds.virtual import simulate
from experiments.results.events_file import digest
scenario, trace = paper_campus(7, days=2.0)
print(hashlib.sha256(repr((trace.arrivals, trace.owner_events, trace.background)).encode()).hexdigest())
print(digest(simulate(scenario, trace).facts))
"""


def printed(machine: dict[str, str]) -> str:
    """What the run prints where libraries take this for their processor."""
    told = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", RUN],
        env={**os.environ, **machine},
        capture_output=True,
        text=True,
        check=True,
    )
    return told.stdout


@pytest.fixture(scope="module")
def here() -> str:
    return printed({})


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "machine",
    [OLD, {"WITHOUT": "numba scipy polars"}, *(pytest.param(each, marks=pytest.mark.long) for each in (NEWER, OLDEST))],
    ids=["old", "without libraries", "newer", "oldest"],
)
def test_a_seed_gives_the_same_trace_and_run_whatever_code_libraries_choose(machine: dict[str, str], here: str) -> None:
    assert printed(machine) == here, [name for name in machine if printed({name: machine[name]}) != here]


SHAPES = (0.05, 0.3, 1.0, 2.0, 4.0, 15.9, 16.0, 30.0, 1000.0)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_gamma_law_is_scipys_to_more_digits_than_are_kept(shape: float) -> None:
    for _ in range(300):
        below = RNG.choice((RNG.random(), 10.0 ** RNG.uniform(-12, -1), 1.0 - 10.0 ** RNG.uniform(-12, -1)))
        expected = float(special.gammaincinv(shape, below))
        assert gamma.quantile(shape, below) == pytest.approx(expected, rel=1e-12, abs=1e-300)
        x = shape * 10.0 ** RNG.uniform(-2, 1)
        assert gamma.both_sides(shape, x)[0] == pytest.approx(float(special.gammainc(shape, x)), rel=1e-10, abs=1e-300)


def test_the_gamma_law_has_ends() -> None:
    assert (gamma.both_sides(4.0, 0.0), gamma.both_sides(4.0, math.inf)) == ((0.0, 1.0), (1.0, 0.0))
    assert (gamma.quantile(4.0, 0.0), gamma.quantile(4.0, 1.0)) == (0.0, math.inf)
    assert gamma.both_sides(1e6, 1e-300) == (0.0, 1.0) and gamma.both_sides(0.001, 1e300) == (1.0, 0.0)
    assert gamma.quantile(309.4, 1e-295) == pytest.approx(float(special.gammaincinv(309.4, 1e-295)), rel=1e-9)
    assert gamma.quantile(0.001, 1e-12) == 0.0  # 10 to the minus twelve thousand
