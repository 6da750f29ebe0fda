"""Integrals over a law of which only the distribution function and its corners are known.

Gauss-Legendre on panels that end at the corners of F (where it is not smooth) and shrink geometrically towards them: that
takes algebraic singularities (a gamma law of shape below 1 at 0) and boundary layers (the walls of the bath-tub) alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from scipy import special

from experiments.theory.laws import Floats, Law

POINTS = 16
GRADES = 44  # halvings towards a corner
TAIL = 2e-16


def panels(law: Law, widest: float, extra: Sequence[float] = ()) -> tuple[Floats, Floats]:
    """(nodes, weights) over [0, end of the support], panels no wider than `widest` (0: as the grading gives)."""
    end = effective_end(law)
    corners = sorted({0.0, end, *(c for c in (*law.corners, *extra) if 0.0 < c < end)})
    edges = np.concatenate([_graded(a, b, widest) for a, b in pairwise(corners)])
    edges = np.unique(edges)
    x, w = np.polynomial.legendre.leggauss(POINTS)
    half = np.diff(edges)[:, None] / 2.0
    nodes = (edges[:-1, None] + half) + half * x
    return nodes.ravel(), (half * w).ravel()


def effective_end(law: Law) -> float:
    """Where the support ends, or where no more than 2e-16 of the law is left."""
    if np.isfinite(law.longest):
        return law.longest
    end = law.mean
    while float(law.cdf(end)) < 1.0 - TAIL:
        end *= 1.5
    return end


def waiting_weights(law: Law, rate: float) -> tuple[Floats, Floats]:
    """(w, u): w_m = P(a Poisson process of `rate` has m points in X), u_m = E[time within X that it has had m points].

    u_m is the integral of (1 - F(t)) e^(-vt) (vt)^m/m!, and w_m = [m = 0] + v (u_(m-1) - u_m).
    """
    nodes, weights = panels(law, 2.0 / rate)
    remaining = weights * (1.0 - law.cdf(nodes))
    counts = rate * nodes
    most = int(counts[-1] + 12.0 * np.sqrt(counts[-1]) + 60.0)
    logs = np.log(counts)
    u = np.array(
        [float(remaining @ np.exp(m * logs - counts - special.gammaln(m + 1.0))) for m in range(most)]
    )
    w = rate * np.diff(u, prepend=1.0 / rate) * -1.0
    return w, u


def _graded(a: float, b: float, widest: float) -> Floats:
    """Edges from a to b, panels halving towards both ends."""
    steps = 0.5 ** np.arange(1, GRADES)
    half = (b - a) * np.concatenate([steps, [0.0]])
    edges = np.concatenate([a + half, b - half])
    edges.sort()
    if not widest > 0.0:
        return edges
    parts = np.maximum(1, np.ceil(np.diff(edges) / widest)).astype(int)
    wide = [np.linspace(x, y, n + 1) for x, y, n in zip(edges, edges[1:], parts, strict=False) if n > 1]
    return np.unique(np.concatenate([edges, *wide]))
