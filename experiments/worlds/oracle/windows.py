"""The answer for a window, and its figures."""

from __future__ import annotations

from dataclasses import dataclass

from experiments.worlds.oracle.problem import Handover

NOTHING = 1e-9  # an objective below this is none


@dataclass(frozen=True, slots=True)
class WindowAnswer:
    """Chosen handovers, their objective and the best bound known (seconds of work), the solver's status and the program's size.

    `status`: "optimal"; "time limit" (the best that was found by then); "nothing" (no plan was found by then).
    """

    chosen: tuple[Handover, ...]
    objective_s: float
    bound_s: float
    status: str
    variables: int
    constraints: int
    solve_s: float = 0.0

    @property
    def gap(self) -> float:
        """(objective - bound) / objective: no plan can be better by more. 0 where there is nothing to lose."""
        if self.objective_s - self.bound_s <= NOTHING:
            return 0.0
        return (self.objective_s - self.bound_s) / self.objective_s


@dataclass(frozen=True, slots=True)
class Window:
    """A program of a run. `jobs` planned, stays that end under them (`events`), and the answer's figures.

    `amends`: not a whole window, but jobs that came to be elsewhere than planned, for the rest of one. `predicted_loss_s`: of
    the handovers on the chosen ways. Times in seconds of the run as played; `solve_s` is the solver's own.
    """

    from_s: float
    until_s: float
    amends: bool
    jobs: int
    events: int
    predicted_loss_s: float
    objective_s: float
    bound_s: float
    gap: float
    status: str
    variables: int
    constraints: int
    solve_s: float


@dataclass(frozen=True, slots=True)
class WindowEnd:
    """An attempt that its owner ended. `planned_loss_s`: its loss by the plan; None: no plan foresaw it."""

    job: str
    at_s: float
    planned_loss_s: float | None
