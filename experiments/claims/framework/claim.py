"""A claim: a sentence of a paper, a run that could refute it, and a rule that decides.

A claim goes one way: `run` gives values, which are written; picture and verdict are made from the values alone. So both
can be made again from the files, and a test can hand wrong values to the rule and see it fail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from experiments.claims.framework.panels import Panel
from experiments.claims.framework.values import Values
from experiments.runtime.engines import Engine
from experiments.runtime.tasks import silent
from topologies.errors import SpecError


class ClaimOutcome(StrEnum):
    """Outcome of one check. Undecided: the interval is too wide, and more seeds could decide."""

    HOLDS = "holds"
    FAILS = "fails"
    UNDECIDED = "undecided"


class ClaimKind(StrEnum):
    """Subject of a check. Beyond the paper: results that no paper prints; they move no verdict."""

    VALUE = "value"
    ORDERING = "ordering"
    BEYOND = "beyond the paper"


class Level(StrEnum):
    """Level of a verdict."""

    REPRODUCED = "reproduced"
    ORDERING = "ordering reproduced"
    ORDERINGS_ONLY = "orderings only"
    UNDECIDED = "undecided"
    NOT_REPRODUCED = "not reproduced"


@dataclass(frozen=True, slots=True)
class Check:
    """A statement, its outcome, and the numbers it was judged by."""

    kind: ClaimKind
    text: str
    outcome: ClaimOutcome
    detail: str


@dataclass(frozen=True, slots=True)
class ClaimVerdict:
    """Level that the checks give a claim. `because`: the reason, in a sentence or two; `subject`: not the paper's own."""

    level: Level
    because: str
    checks: tuple[Check, ...] = ()
    subject: str = ""

    def __str__(self) -> str:
        return f"{self.level}{self.subject}"

    def held(self, kind: ClaimKind) -> tuple[int, int]:
        """Return (checks of that kind that hold, all of them)."""
        outcomes = [check.outcome for check in self.checks if check.kind is kind]
        return outcomes.count(ClaimOutcome.HOLDS), len(outcomes)


@dataclass(frozen=True, slots=True)
class Config:
    """Size of a run: `quick`, or in full; `seeds` None for the claim's own number of them.

    `folder`: of all claims' files. `workers`: processes; 1 for none but this. `dask`: the scheduler whose
    workers play the sweeps instead; `modules`: a user's own that they need.
    `progress(done, total)` is called after each piece. `systems`: rows of the policies to be compared beside those that
    the claim has. `records`: a folder of recorded owners, for the claim that plays those; `only`: parts of the names of
    the cases that are asked for, all if empty. SpecError: fewer than 2 seeds, or one twice. ValueError: no worker.
    """

    folder: Path
    quick: bool = False
    seeds: tuple[int, ...] | None = None
    workers: int = 1
    systems: tuple[str, ...] = ()
    records: Path | None = None
    only: tuple[str, ...] = ()
    dask: str | None = None
    modules: Mapping[str, Path] = field(default_factory=dict)
    progress: Callable[[int, int], None] = field(default=silent, compare=False)

    def __post_init__(self) -> None:
        if self.seeds is not None and len(set(self.seeds)) < max(2, len(self.seeds)):
            raise SpecError("--seeds", str(self.seeds), "at least 2, each once: one alone gives no interval")
        if self.workers < 1:
            raise ValueError(f"{self.workers} workers: at least 1")

    def seeds_of(self, quick: int, full: int) -> tuple[int, ...]:
        """Return the seeds that were asked for, else from 1 to the claim's own number."""
        return self.seeds or tuple(range(1, 1 + (quick if self.quick else full)))

    @property
    def engine(self) -> Engine:
        """The engine that plays its sweeps."""
        return Engine(self.workers, self.dask, modules=self.modules)


@dataclass(frozen=True, slots=True)
class Claim:
    """A table or figure of a paper. `panels` and `checks` use nothing but values."""

    name: str
    paper: str
    title: str
    text: str  # what the paper claims, in its own terms
    does_not_prove: str  # what no verdict here states
    headline: tuple[str, ...]  # quantities that the page shows at once, a row a system
    run: Callable[[Config], Values]  # may take minutes, and goes on where it was stopped
    panels: Sequence[Panel]  # of its picture
    checks: Callable[[Values], Iterable[Check]]  # each a statement that can fail
    corrected: str = ""  # what is judged, where the paper's own algorithm does not run as printed
