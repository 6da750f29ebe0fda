"""One link over time: migrations arrive, some are admitted, and what was admitted is followed to its last byte.

Constant rates: each flow has its floor until its last byte, and what no floor needs is shared max-min
(`admission.share_totals`), so that a flow that is done early leaves room; or, as a second baseline, no flow gets more than its
floor.
Rates that vary: the timetable, planned anew at each arrival from what is left.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field, replace

from controller.core.admission.admission import Admit, Commitment, MigrationRequest, share_totals
from controller.core.network.links import Network
from controller.core.network.sharing import Demand, in_columns
from experiments.benchmarks.reclaim_waves import (
    LINK,
    SHARE_BYTES_PER_S,
    payload_bytes,
    time_s,
)

SHARE, NETWORK = {LINK: SHARE_BYTES_PER_S}, Network([LINK])
NOTED_ADMITTED = {"EDF, skips": 0.514, "fluid EDF": 0.614}
# mean, four times what the link could carry; fluid EDF admits about the noted share there
INTERARRIVAL_S = 24.0
TOLERANCE_S = 1e-6


def arrivals(count: int, rng: random.Random) -> list[MigrationRequest]:
    """Poisson arrivals of the law of `reclaim_waves`; each may start when it comes."""
    requests, at_s = list[MigrationRequest](), 0.0
    for n in range(count):
        at_s += rng.expovariate(1.0 / INTERARRIVAL_S)
        requests.append(
            MigrationRequest(f"m{n:05}", payload_bytes(rng), at_s + time_s(rng), 0.0, (LINK,), at_s)
        )
    return requests


@dataclass
class OnlineLink:
    """The state between two arrivals."""

    admit: Admit
    varies: bool
    shares_rest: bool = True
    now_s: float = 0.0
    left: dict[str, MigrationRequest] = field(default_factory=dict)  # admitted, with what is still to be sent
    floors: dict[str, float] = field(default_factory=dict)
    admitted: int = 0
    missed: int = 0

    def arrive(self, request: MigrationRequest) -> None:
        """Follow the present rates until it comes, then ask for it."""
        while self.left and self._step(request.start_s):
            pass
        self.now_s = request.start_s
        answer = self.admit([request], self.now_s, SHARE, self._commitments())
        if request.key in answer.admitted:
            self.admitted += 1
            self.left[request.key] = request
            self.floors[request.key] = answer.admitted[request.key]

    def finish(self) -> None:
        """Go on until the last byte of the last one."""
        while self.left and self._step(math.inf):
            pass

    def _commitments(self) -> list[Commitment]:
        if self.varies:
            return list(self.left.values())
        return [self._demand(key) for key in self.left]

    def _demand(self, key: str) -> Demand:
        return Demand(key, (LINK,), 1.0, self.floors[key])

    def _step(self, until_s: float) -> bool:
        """Step to the next change of a rate, at most to `until_s`; whether that is still ahead."""
        rates, change_s = self._rates()
        ends_s = [self.now_s + r.payload_bytes / rates[k] for k, r in self.left.items() if rates[k] > 0.0]
        to_s = min([until_s, change_s, *ends_s])
        for key, request in list(self.left.items()):
            rest = request.payload_bytes - rates[key] * (to_s - self.now_s)
            if rest > TOLERANCE_S * SHARE_BYTES_PER_S:
                self.left[key] = replace(request, payload_bytes=rest)
            else:
                del self.left[key]
                self.missed += to_s > request.due_s + TOLERANCE_S
        self.now_s = to_s
        return to_s < until_s

    def _rates(self) -> tuple[dict[str, float], float]:
        if self.varies:
            plan = self.admit([], self.now_s, SHARE, self._commitments()).timetable
            return {key: plan.rate_at(key, self.now_s) for key in self.left}, plan.next_change_s(self.now_s)
        if not self.shares_rest:
            return self.floors, math.inf
        wants = in_columns([self._demand(key) for key in sorted(self.left)], NETWORK)
        rates, _ = share_totals(wants, NETWORK.column(SHARE))
        return dict(zip(sorted(self.left), rates.tolist(), strict=True)), math.inf
