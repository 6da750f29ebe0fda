"""A user's own policies, beside the project's rows.

They are a row of a module (`module:NAME`), where NAME may be a key of its `POLICIES`, or of an installed package (entry points
`reclaimnet.policies`). They are known in this process and in all
that it forks; any other process looks up a name again. An error in a user's function, or an invalid answer, ends the
run with a SpecError that names row, column and line: it is no fault of this program, and must not look like one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from math import inf, isfinite
from pathlib import Path
from typing import Any, Final

import numpy as np

from bpf.caches import fingerprint
from controller.core.admission.admission import Admission
from controller.core.checkpointing.planner import CheckpointPlans, StaticPlanner
from controller.core.placement.select import DestinationChoice, Missing, NoDestination
from controller.core.policies.overrides import base_of
from controller.core.policies.table import POLICIES, Policy, UserFunction, row_of
from controller.core.queueing.controllers.controller import Controller
from testbed.errors import InvariantBroken
from topologies import plugins
from topologies.errors import SpecError, nearest

_OWN = '"module:NAME" of a controller.core.policies.table.Policy'


def find_policy(name: str, key: str = "policy") -> Policy:
    """Return the row of that name, the project's or a user's, with its overrides; a user's is added to the table.

    A user's name is that of an entry point, or `module:NAME`, where NAME is a `Policy` of the module or a key of its
    `POLICIES`. SpecError names `key`, the fault, and the allowed values.
    """
    base = name if name in POLICIES else base_of(name)
    if base not in POLICIES:
        allowed = f"one of {', '.join(POLICIES)}{nearest(base, POLICIES)}, or {_OWN}"
        found = plugins.find(key, base, plugins.POLICIES, allowed, among="POLICIES")
        if not isinstance(found, Policy):
            wanted = _OWN if plugins.is_reference(base) else allowed
            raise SpecError(key, base, f"that is a {type(found).__name__}, no Policy; allowed: {wanted}")
        POLICIES[base] = guarded(base, found)
    return row_of(name)


def files_of(name: str) -> dict[str, Path]:
    """Return the files of a user's policy by name (`plugins.sources`); none for a row of the project's own."""
    return plugins.sources(base_of(name), plugins.POLICIES)


def source_of(name: str) -> str:
    """Return a fingerprint of a user's policy's code; empty for a row of the project's own."""
    files = files_of(name)
    return fingerprint(files.values(), *files) if files else ""


def forget(modules: Collection[str]) -> None:
    """Take the rows of users' modules out of the table: their code is about to change."""
    for name in [each for each in POLICIES if ":" in each and each.partition(":")[0].partition(".")[0] in modules]:
        del POLICIES[name]


# ---------------------------------------------------------------- what a user's functions may do


@dataclass(frozen=True)
class OwnRule(UserFunction):
    """A user's function in a column of a row. SpecError: it fails, or what it answers is no answer of that column."""

    policy: str
    column: str
    function: Callable[..., Any]

    def __call__(self, *given: Any, **named: Any) -> Any:
        """Call the function; numpy's numbers in the answer become Python's, of which facts are made."""
        key = f"{self.policy}.{self.column}"
        try:
            answer = self.function(*given, **named)
            allowed = _ANSWERS[self.column](answer, *given)
        except (SpecError, InvariantBroken):
            raise
        except (Exception, SystemExit) as error:
            told = f"{plugins.where(error, plugins.module_of(self.function))}{error!r}"
            raise SpecError(key, told, "a function that does not fail") from error
        if allowed:
            raise SpecError(key, f"{answer!r}"[:200], f"a function that answers with {allowed}")
        return _plain(answer)


def guarded(name: str, row: Policy) -> Policy:
    """Return the row, each function in it that is not of the project watched (`OwnRule`).

    SpecError: a column cannot be what it is.
    """
    columns: dict[str, Any] = {}
    for each in fields(Policy):
        value, usual = getattr(row, each.name), getattr(_USUAL, each.name)
        if each.name in _ANSWERS:
            if not callable(value):
                raise SpecError(f"{name}.{each.name}", value, "a function")
            if _is_own(value):
                columns[each.name] = OwnRule(name, each.name, value)

        elif type(value) is not type(usual):
            raise SpecError(f"{name}.{each.name}", value, f"a {type(usual).__name__}")
    return replace(row, **columns) if columns else row


def _is_own(function: Any) -> bool:
    """Return whether a function is a user's; the project's planners are not, even where a user's module made one."""
    module = plugins.module_of(function)
    return module.partition(".")[0] not in plugins.PROJECT and not isinstance(function, StaticPlanner | OwnRule)


def _plain(answer: Any) -> Any:
    if isinstance(answer, np.generic):
        return answer.item()
    if isinstance(answer, dict):
        return {key: _plain(value) for key, value in answer.items()}
    if isinstance(answer, DestinationChoice):
        numbers = map(float, (answer.score_s, answer.migration_s, answer.survival))
        return DestinationChoice(str(answer.host), *numbers)
    if isinstance(answer, CheckpointPlans):
        rates, intervals_s = (np.asarray(each, dtype=float) for each in (answer.rates_bytes_per_s, answer.intervals_s))
        return CheckpointPlans(rates, intervals_s, np.asarray(answer.infeasible, dtype=bool))
    if isinstance(answer, NoDestination | Admission):
        return replace(answer, **{each.name: _plain(getattr(answer, each.name)) for each in fields(answer)})
    return answer


def _choice(answer: Any, request: Any, candidates: Any, *_: Any) -> str:
    if isinstance(answer, NoDestination):
        return "" if isinstance(answer.reason, Missing) else "a reason that is a Missing"
    if not isinstance(answer, DestinationChoice):
        return "a DestinationChoice or a NoDestination"
    if answer.host not in candidates.hosts:
        return "a host of the candidates"
    try:
        chosen = _plain(answer)
    except (TypeError, ValueError):
        return "numbers for score_s, migration_s and survival"
    if not -inf < chosen.score_s:
        return "a score_s that is a number"
    if not 0.0 <= chosen.migration_s < inf:
        return "a finite migration_s of 0 or more"
    return "" if 0.0 <= chosen.survival <= 1.0 else "a survival from 0 to 1"


def _plans(answer: Any, jobs: Any, *_: Any) -> str:
    if not isinstance(answer, CheckpointPlans):
        return "CheckpointPlans"
    columns = (answer.rates_bytes_per_s, answer.intervals_s, answer.infeasible)
    if not all(len(column) == len(jobs.names) for column in columns):
        return "CheckpointPlans with a row for each job"
    usable = all(map(_is_rate, columns[0])) and all(each >= 0.0 for each in columns[1])
    return "" if usable else "finite rates and intervals of 0 or more"


def _admission(answer: Any, requests: Iterable[Any], *_: Any) -> str:
    if not isinstance(answer, Admission):
        return "an Admission"
    if not all(request.key in answer.admitted or request.key in answer.refused for request in requests):
        return "an Admission that admits or refuses each request"
    return "" if all(map(_is_rate, answer.admitted.values())) else "finite rates of 0 or more"


def _shares(answer: Any, wants: Any, *_: Any) -> str:
    is_pair = isinstance(answer, Sequence) and len(answer) == 2
    if not is_pair or not all(hasattr(part, "__len__") and len(part) == len(wants.floor) for part in answer):
        return "two columns of an entry a flow: its rate, and the link that holds it down"
    return "" if all(map(_is_rate, answer[0])) else "finite rates of 0 or more"


def _controller(answer: Any, *_: Any) -> str:
    return "" if isinstance(answer, Controller) else "a Controller of the queue"


def _is_rate(value: Any) -> bool:
    return isfinite(value) and value >= 0.0


# column -> what would be allowed, if an answer is not; "" if it is
_ANSWERS: Final[Mapping[str, Callable[..., str]]] = {
    "plan": _plans,
    "select": _choice,
    "admit": _admission,
    "share": _shares,
    "learner": _controller,
    "standby": _choice,
}
_USUAL: Final = Policy("")
