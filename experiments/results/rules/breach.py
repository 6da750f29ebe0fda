"""A breach of a rule, and the form of a check."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct

from experiments.results.history import Timed
from experiments.results.run_context import RunContext

RATE_TOLERANCE = 1e-6  # relative: what rounding may add to a sum of rates
ROUNDING_S = 1e-6  # of a sum of seconds


class Breach(Struct, frozen=True):
    """A breach of a rule: the job, host or link, the time, and how."""

    subject: str
    at_s: float
    what: str


Check = Callable[[Sequence[Timed], RunContext], Iterator[Breach]]
