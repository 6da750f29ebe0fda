"""A coordinator whose ticks that can change nothing are left out.

Live, it wakes every control period (10 s at real scale) to try degraded migrations again, to serve jobs that wait, and to plan
all checkpoints anew. Over two months that is half a million plans of which nearly all say what the one before said: P1 and P2
look at hosts, jobs, flows and measurements, which only events change, and at the hazard, which has one value an hour. So after a
tick that led to nothing the next one is due an hour of the scenario's day later; any event that changes something that a plan
looks at brings it back to one control period from then. While a notice runs out over a degraded job, or a job waits
beside an offer, ticks go on as they are.

The decisions are the parent's, all of them: this class only moves the time of its next tick.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from controller.core import effects as do
from controller.core import events as ev
from controller.core import facts
from controller.core.coordinator import Coordinator
from controller.core.settings import Settings
from testbed import messages as m
from topologies.spec import Campus

TICKS_A_DAY = 24  # the hourly hazard table
LEAST_CHANGE = 0.1  # of what a checkpoint sends, before P1 is asked again; what P1 itself takes for a change

QUIET = (
    facts.CheckpointTaken,
    facts.CheckpointCompleted,
    facts.CheckpointHeld,
    facts.EgressMeasured,
    facts.TransferFinished,
)


class PatientCoordinator(Coordinator):
    """See the module."""

    def __init__(self, campus: Campus, settings: Settings, draw: Callable[[], float]) -> None:
        super().__init__(campus, settings, draw)
        self._planned_with: dict[str, int] = {}  # job -> what its checkpoints sent when P1 was last asked

    def handle(self, event: ev.Event, now_s: float) -> list[do.Effect]:
        """As the parent's; then the next tick is moved."""
        due_s = self._tick_s
        effects = super().handle(event, now_s)
        period_s = self.world.settings.control_period_s
        if self._stirs(event, effects) or self._is_pressing():
            self._tick_s = self._tick_s if due_s == inf else min(self._tick_s, now_s + period_s)
        elif self._tick_s != due_s < inf:
            self._tick_s = now_s + max(period_s, self.world.settings.day_s / TICKS_A_DAY)
        return effects

    def _stirs(self, event: ev.Event, effects: list[do.Effect]) -> bool:
        """Whether anything changed that a plan looks at."""
        match event:
            case ev.AgentSaid(_, m.TransferEnded(job=name)) if self._sends_otherwise(name):
                return True
        return any(_is_loud(effect) for effect in effects)

    def _sends_otherwise(self, name: str) -> bool:
        """Whether the size of a job's checkpoints, as P1 counts it, has moved."""
        job = self.world.jobs.get(name)
        if job is None or job.sent_bytes is None:
            return False
        before = self._planned_with.get(name)
        if before is not None and abs(job.sent_bytes - before) <= LEAST_CHANGE * before:
            return False
        self._planned_with[name] = job.sent_bytes
        return True

    def _is_pressing(self) -> bool:
        """Whether time alone may help somebody: a degraded job whose notice runs, a job that waits beside an offer."""
        world = self.world
        if world.offers and world.queue.waiting():
            return True
        noticed = (host for host in world.hosts.values() if host.reclaim_at_s is not None)
        return any(world.jobs[name].degraded for host in noticed for name in host.jobs)


def _is_loud(effect: do.Effect) -> bool:
    match effect:
        case do.Record(fact):
            return not isinstance(fact, QUIET)
        case do.Tell(_, message):
            return not isinstance(message, m.HeartbeatAck | m.Forget)
        case do.Disconnect():
            return True
        case do.Answer():
            return False
