"""Laws of the times between jobs and between spots (paper B; hours), as frozen data.

Exponential, uniform and gamma laws are frozen distributions of `scipy.stats`, which gives mean, F and draws; it has neither the
constant nor the bath-tub. Transforms E[e^(-sX)] of all of them are one integral, to 1e-13.

The bath-tub law (paper B, section V-A, after Kadupitiya et al. 2020) is printed with an indicator 1{t <= tau2} that would
remove the second wall. That is an error. Without it, F(t) = A(1 - e^(-t/tau1) + e^((t-b)/tau2)) rises to 1 at a time L,
where the law ends. It has an atom of A e^(-b/tau2) at 0: 5e-14 with the paper's values.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike
from scipy import integrate, optimize, stats

from controller.numerics.arrays import Floats
from experiments.theory.domain import not_negative, positive, require

TAIL = 2e-16
GONE = 50.0  # times the time of an exponential decay: nothing of it is left


class Law(ABC):
    """A law of positive times."""

    @property
    @abstractmethod
    def mean(self) -> float:
        """E[X]."""

    @property
    @abstractmethod
    def longest(self) -> float:
        """End of the support; infinity if there is none."""

    @property
    def corners(self) -> tuple[float, ...]:
        """Points inside the support at which F is not smooth."""
        return ()

    @abstractmethod
    def cdf(self, x: ArrayLike) -> Floats:
        """Return P(X <= x) of each element; 0 below 0."""

    @abstractmethod
    def sample(self, rng: Generator, n: int) -> Floats:
        """Return n independent draws."""

    def laplace(self, s: float) -> float:
        """Return E[e^(-sX)] for s >= 0, which is 1 less s times the integral of e^(-st) over a time of this law."""
        over = GONE / s if not_negative("s", s) else math.inf
        return 1.0 - s * float(while_it_lasts(self, lambda t: np.exp(-s * np.asarray(t)), over))


class ScipyLaw(Law):
    """A frozen distribution of `scipy.stats`; a law adds its parameters."""

    scipy: Any  # the frozen distribution; a cached property of each law

    @cached_property
    def mean(self) -> float:
        """E[X]."""
        return float(self.scipy.mean())

    @cached_property
    def longest(self) -> float:
        """End of the support."""
        return float(self.scipy.support()[1])

    def cdf(self, x: ArrayLike) -> Floats:
        """Return P(X <= x)."""
        return np.asarray(self.scipy.cdf(x))

    def sample(self, rng: Generator, n: int) -> Floats:
        """Return n independent draws."""
        return np.asarray(self.scipy.rvs(size=n, random_state=rng))


@dataclass(frozen=True)
class Exponential(ScipyLaw):
    """Exponential law of the given mean."""

    mean_h: float

    def __post_init__(self) -> None:
        positive("mean of the exponential law", self.mean_h)

    @cached_property
    def scipy(self) -> Any:
        """SciPy's law of this mean."""
        return stats.expon(scale=self.mean_h)


@dataclass(frozen=True)
class Uniform(ScipyLaw):
    """Uniform law on [lo, hi]."""

    lo: float
    hi: float

    def __post_init__(self) -> None:
        not_negative("lo of the uniform law", self.lo)
        require(self.lo < self.hi < math.inf, "hi of the uniform law", self.hi, f"must be above lo = {self.lo}")

    @cached_property
    def scipy(self) -> Any:
        """SciPy's law on [lo, hi]."""
        return stats.uniform(self.lo, self.hi - self.lo)

    @property
    def corners(self) -> tuple[float, ...]:
        """Start of the support."""
        return (self.lo,)


@dataclass(frozen=True)
class Gamma(ScipyLaw):
    """Gamma law of mean shape * scale; shape 1 is exponential. Paper B's Gamma(1/lambda, 1) is shape 12, scale 1."""

    shape: float
    scale: float

    def __post_init__(self) -> None:
        positive("shape of the gamma law", self.shape)
        positive("scale of the gamma law", self.scale)

    @cached_property
    def scipy(self) -> Any:
        """SciPy's law of this shape and scale."""
        return stats.gamma(self.shape, scale=self.scale)


@dataclass(frozen=True)
class Deterministic(Law):
    """Law of a constant."""

    value: float

    def __post_init__(self) -> None:
        positive("value of the deterministic law", self.value)

    @property
    def mean(self) -> float:
        """Value of every draw."""
        return self.value

    @property
    def longest(self) -> float:
        """Value of every draw."""
        return self.value

    def cdf(self, x: ArrayLike) -> Floats:
        """Return 1 from the value on."""
        return np.asarray(np.asarray(x) >= self.value, dtype=np.float64)

    def sample(self, rng: Generator, n: int) -> Floats:
        """Return the value n times."""
        del rng
        return np.full(n, self.value)


@dataclass(frozen=True)
class BathTub(Law):
    """Spots that come at once or near the 24 h limit (paper B, section V-A, corrected: see the top of this file)."""

    share: float = 0.5  # A
    tau1: float = 1.0
    tau2: float = 0.8
    b: float = 24.0

    def __post_init__(self) -> None:
        for name in ("share", "tau1", "tau2", "b"):
            positive(f"{name} of the bath-tub law", getattr(self, name))
        atom = self.share * math.exp(-self.b / self.tau2)
        require(atom < 1.0, "F(0) = A e^(-b/tau2) of the bath-tub law", atom, "must be less than 1")

    @cached_property
    def longest(self) -> float:
        """The time L at which F reaches 1: b for A = 1/2, up to e^(-b/tau1)."""
        # there even e^((t-b)/tau2) alone is enough
        most = self.tau2 * math.log(1.0 / self.share + 1.0) + self.b

        def missing(t: float) -> float:
            return math.exp((t - self.b) / self.tau2) - math.exp(-t / self.tau1) + 1.0 - 1.0 / self.share

        return float(optimize.brentq(missing, 0.0, most, xtol=1e-13, rtol=1e-15))

    @property
    def mean(self) -> float:
        """E[X]."""
        end = self.longest
        walls = end - self.tau1 * self._early + self.tau2 * (self._late(end) - self._late(0.0))
        return end - self.share * walls

    def cdf(self, x: ArrayLike) -> Floats:
        """Return A (1 - e^(-t/tau1) + e^((t-b)/tau2)) up to L."""
        t = np.clip(np.asarray(x, dtype=np.float64), 0.0, self.longest)
        walls = 1.0 - np.exp(-t / self.tau1) + np.exp((t - self.b) / self.tau2)
        inside = np.where(t >= self.longest, 1.0, np.minimum(1.0, self.share * walls))
        return np.where(np.asarray(x, dtype=np.float64) < 0.0, 0.0, inside)

    def sample(self, rng: Generator, n: int) -> Floats:
        """Return n exact draws: a wall is a truncated exponential, the first of mass A(1 - e^(-L/tau1)); the rest is the atom."""
        end = self.longest
        first = self.share * self._early
        second = self.share * (self._late(end) - self._late(0.0))
        which, u = rng.random(n), rng.random(n)
        rising = -self.tau1 * np.log1p(-u * self._early)
        falling = end + self.tau2 * np.log1p(-u * -math.expm1(-end / self.tau2))
        return np.where(which < first, rising, np.where(which < first + second, falling, 0.0))

    @property
    def _early(self) -> float:
        return -math.expm1(-self.longest / self.tau1)

    def _late(self, t: float) -> float:
        return math.exp((t - self.b) / self.tau2)


def effective_end(law: Law) -> float:
    """Return the end of the support, or a time beyond which at most 2e-16 of the law is left."""
    if math.isfinite(law.longest):
        return law.longest
    end = law.mean
    while float(law.cdf(end)) < 1.0 - TAIL:
        end *= 1.5
    return end


def while_it_lasts(law: Law, rates: Callable[[float], Floats], over: float = math.inf) -> Floats:
    """Return the integral of (1 - F(t)) rates(t), to 1e-13 of E[X] times the largest; `rates` are 0 from `over` on.

    It is the mean of the integral of `rates` over a time of this law. `rates` may be of any shape; the answer has it.
    """
    found, _ = integrate.quad_vec(
        lambda t: (1.0 - float(law.cdf(t))) * rates(t),
        0.0,
        min(effective_end(law), over),
        epsabs=1e-13 * law.mean,
        epsrel=1e-13,
        norm="max",
        points=law.corners,
    )
    return np.asarray(found)
