"""The times at which the coordinator looks at everything again, whatever happened since.

A *tick* tries degraded migrations again, serves jobs that wait, finds better standbys, and plans all checkpoints again. Decisions
depend on hosts, jobs, flows and measurements, which events change, and on hazards, which have one value an hour. An event that
changes hosts or jobs plans by itself. So the next tick is due

- one control period (10 s at real scale) after a tick that led to something;
- as soon after an event that changed the size of a job's checkpoints;
- as soon after any change while a job waits, is degraded, or has a loss budget that its standby cannot keep. Rates of
  checkpoints are no change: plans depend on reservations for migrations, not on the rates of checkpoints;
- else an hour of the scenario's day later, sooner at the beginning, while estimates rest on little.

Ticks are whole control periods apart. The rule is the coordinator's own, so ticks are the same in a live and in a virtual run.
With one each control period two months have half a million. Nearly all of them repeat the plan before.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import floor, inf

from controller.core.model import effects as do
from controller.core.model import events as ev
from controller.core.model import facts
from controller.core.model.cluster import Cluster
from testbed import messages as m

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


class Ticks:
    """The time of the next tick; the first agent starts the clock."""

    def __init__(self) -> None:
        self.next_s = self._first_s = inf
        self._counted: dict[str, float] = {}  # job -> its checkpoints' bytes when P1 was last asked

    def begin(self, now_s: float, period_s: float) -> None:
        """Start the clock."""
        self.next_s = self._first_s = now_s + period_s

    def follow(self, cluster: Cluster, event: ev.Event, effects: Iterable[do.Effect], *, ticked: bool) -> None:
        """Move the next tick after an event with these effects; `ticked`: it was a tick."""
        now_s, protocol = cluster.now_s, cluster.protocol
        if self._first_s == inf:
            return
        if self._sends_otherwise(cluster, event) or (_is_loud(effects) and (ticked or _may_help(cluster))):
            due_s = now_s + protocol.control_period_s if ticked else self.next_s
            self.next_s = min(due_s, self._after_s(now_s, protocol.control_period_s))
        elif ticked:
            later_s = now_s + min(protocol.day_s / TICKS_A_DAY, MIN_NEWS * now_s)
            self.next_s = self._after_s(later_s, protocol.control_period_s)

    def _after_s(self, at_s: float, period_s: float) -> float:
        """Return the first whole period of the clock after a moment."""
        return self._first_s + period_s * max(0, floor((at_s - self._first_s) / period_s + ROUNDING) + 1)

    def _sends_otherwise(self, cluster: Cluster, event: ev.Event) -> bool:
        """Return whether the size of a job's checkpoints, as P1 counts it, has moved."""
        if not (isinstance(event, ev.AgentSaid) and isinstance(event.message, m.TransferEnded)):
            return False
        name = event.message.job
        job = cluster.jobs.get(name)
        if job is None or job.stream.sent_bytes is None:
            return False
        before, now = self._counted.get(name), job.checkpoint_bytes
        if before is not None and abs(now - before) <= MIN_CHANGE * before:
            return False
        self._counted[name] = now
        return True


def _may_help(cluster: Cluster) -> bool:
    """Return whether a job waits, is degraded, or has a loss budget that its standby does not keep."""
    if cluster.backlog or len(cluster.queue):
        return True
    return any(job.degraded or job.stream.endangered for job in cluster.jobs.unfinished)


def _is_loud(effects: Iterable[do.Effect]) -> bool:
    """Return whether anything was decided that a tick may add to."""
    for effect in effects:
        if isinstance(effect, do.Record):
            fact = effect.fact
            if fact.floor_bytes_per_s > 0.0 if type(fact) is facts.Granted else type(fact) not in QUIET:
                return True
        elif isinstance(effect, do.Tell):
            if type(effect.message) not in QUIET:
                return True
        elif isinstance(effect, do.Disconnect):
            return True
    return False
