"""Elision of the coordinator's ticks that can change nothing.

Live, it wakes every control period (10 s at real scale). It then tries degraded migrations again, serves jobs that
wait, finds better standbys, and plans all checkpoints again. Over two months that is half a million plans, and nearly
all repeat the one before. They depend on hosts, jobs, flows and measurements, which only events change, and on the
hazard, which has one value an hour. (A notice that grows shorter never makes a move feasible that was not.) So

- after a tick that led to nothing, the next one is due an hour of the scenario's day later; sooner at the beginning,
  while estimates rest on little;
- a tick that led to something is followed by the next, as live;
- so is an event that changed the size of a job's checkpoints. So is any change while a job waits, is degraded, or has a
  loss budget that its standby cannot keep. Other events have planned everything again themselves. Rates of checkpoints
  are no change: plans depend on reservations for migrations, not on the rates of checkpoints.

The decisions are the parent's, all of them: this class only moves the time of its next tick.
"""

from __future__ import annotations

from collections.abc import Callable
from math import floor, inf

from controller.core.coordinator import Coordinator
from controller.core.model import effects as do
from controller.core.model import events as ev
from controller.core.model import facts
from controller.core.parameters import Protocol, Queue
from testbed import messages as m
from topologies.spec import Campus

TICKS_A_DAY = 24  # the hourly hazard table
MIN_NEWS = 0.05  # of the record so far: by so little more of it estimates hardly move
ROUNDING = 1e-6  # of a period: a tick that happens now is not the next one
MIN_CHANGE = 0.1  # of what a checkpoint sends, before P1 is asked again; what P1 itself takes for a change

QUIET = frozenset(
    (
        facts.CheckpointTaken,
        facts.CheckpointCompleted,
        facts.CheckpointHeld,
        facts.EgressMeasured,
        facts.TransferFinished,
        facts.GrantEnded,
        m.Grant,
        m.Protect,  # a plan that changed is a fact, which is loud
        m.SendStored,
        m.Expect,
        m.ExpectNoMore,
        m.CancelTransfers,
        m.HeartbeatAck,
        m.Forget,
    )
)


class ElidingCoordinator(Coordinator):
    """Coordinator without the ticks that can change nothing; see the module."""

    def __init__(self, campus: Campus, protocol: Protocol, terms: Queue, draw: Callable[[], float]) -> None:
        super().__init__(campus, protocol, terms, draw)
        self._first_tick_s = inf
        self._counted: dict[str, float] = {}  # job -> its checkpoints' bytes when P1 was last asked

    def handle(self, event: ev.Event, now_s: float) -> list[do.Effect]:
        """Handle as the parent does, and move the next tick."""
        due_s = self._tick_s
        effects = super().handle(event, now_s)
        if due_s == inf:
            self._first_tick_s = self._tick_s
            return effects
        ticked = self._tick_s != due_s
        loud = any(map(_is_loud, effects))
        if self._sends_otherwise(event) or (loud and (ticked or self._tick_may_help())):
            self._tick_s = min(self._tick_s, self._live_tick_s(now_s))
        elif ticked:
            hour_s = self.cluster.protocol.day_s / TICKS_A_DAY
            self._tick_s = self._live_tick_s(now_s + min(hour_s, MIN_NEWS * now_s))
        return effects

    def _live_tick_s(self, after_s: float) -> float:
        """Return the first tick after a moment that a live coordinator would have."""
        period_s = self.cluster.protocol.control_period_s
        return self._first_tick_s + period_s * max(0, floor((after_s - self._first_tick_s) / period_s + ROUNDING) + 1)

    def _sends_otherwise(self, event: ev.Event) -> bool:
        """Return whether the size of a job's checkpoints, as P1 counts it, has moved."""
        if not (isinstance(event, ev.AgentSaid) and isinstance(event.message, m.TransferEnded)):
            return False
        name = event.message.job
        job = self.cluster.jobs.get(name)
        if job is None or job.sent_bytes is None:
            return False
        before, now = self._counted.get(name), job.checkpoint_bytes
        if before is not None and abs(now - before) <= MIN_CHANGE * before:
            return False
        self._counted[name] = now
        return True

    def _tick_may_help(self) -> bool:
        """Return whether a job waits, is degraded, or has a loss budget that its standby does not keep."""
        if self.cluster.backlog or self.cluster.queue.waiting():
            return True
        return any(job.degraded or job.endangered for job in self.cluster.jobs.unfinished)


def _is_loud(effect: do.Effect) -> bool:
    if isinstance(effect, do.Record):
        fact = effect.fact
        if isinstance(fact, facts.Granted):
            return fact.floor_bytes_per_s > 0.0
        return type(fact) not in QUIET
    if isinstance(effect, do.Tell):
        return type(effect.message) not in QUIET
    return isinstance(effect, do.Disconnect)
