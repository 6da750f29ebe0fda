"""P2's candidates a host at a time, as tests write them, and rules that take a list of these."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from controller.core.placement.select import Candidates, DestinationChoice, NoDestination, PlacementRequest
from controller.numerics.portable_math import log


@dataclass(frozen=True, slots=True)
class Candidate:
    """A row of `Candidates`. `mean_migration_s` None: no other host could take the job. `expected_reclaims` None: -ln S_d."""

    host: str
    building: str
    free_gpus: int
    memory_bytes: float
    capability: float
    load: float
    bandwidth_bytes_per_s: float
    survival: float
    mean_migration_s: float | None = None
    added_loss_s: float = 0.0
    expected_reclaims: float | None = None
    speed: float = 1.0

    @property
    def reclaims_to_expect(self) -> float:
        """The integral of its hazard over the remaining time; infinite where S underflowed to 0."""
        if self.expected_reclaims is not None:
            return self.expected_reclaims
        return -log(self.survival) if self.survival > 0.0 else math.inf


def in_columns(hosts: Sequence[Candidate]) -> Candidates:
    """The same hosts, in the order of their names."""
    ordered = sorted(hosts, key=lambda host: host.host)
    columns: dict[str, Any] = {
        "hosts": np.array([host.host for host in ordered], dtype=object),
        "buildings": np.array([host.building for host in ordered], dtype=object),
        "expected_reclaims": np.array([host.reclaims_to_expect for host in ordered], dtype=float),
    }
    for name in [field.name for field in fields(Candidates) if field.name not in columns]:
        values = [getattr(host, name) for host in ordered]
        columns[name] = np.array([math.nan if value is None else value for value in values], dtype=float)
    return Candidates(**columns)


def over_hosts(rule: Callable[..., DestinationChoice | NoDestination]) -> Callable[..., Any]:
    """The rule, of a list of hosts."""

    def chosen(request: PlacementRequest, hosts: Sequence[Candidate], **options: Any) -> Any:
        return rule(request, in_columns(hosts), **options)

    return chosen
