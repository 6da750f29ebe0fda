"""Account of GPU time that no job keeps: every second of a job's life, from its first dispatch to its end, in one place.

    first dispatch to end = useful steps + its first start + lost

and what is lost is the sum of the parts below, to the last bit of rounding (`promises` checks it over every journal):

- *work lost* (`losses`), in four parts. A copy that had completed but that no reachable host held when the job resumed costs
  *out of reach*: what would not be computed again had the job resumed from it. The rest is of *emergencies*, of *notices*
  that could not be moved in time, or of *faults*: an agent or a process that died, a checkpoint that could not be read;
- *pauses*: the job stands still while its state is copied, at its host;
- *restarts*: from the order to start, with the state at the host, until the state is proved to run: T_r and reading. Every
  start but the first that succeeded, which a job without owners would need as well;
- *downtime*: begun, not over, and on no GPU that could compute: waiting, requeued, fetching its state;
- *redundancy*: a replica's GPU for as long as it is held, and what the steps of a replicated job take longer;
- *unfinished*: on a GPU, in no whole step that the journal knows of. The step under way when the host closed, the silence
  before an agent counts as lost. A job whose steps
  are quicker than declared is counted by their measured time (`submitted_jobs`), in a live run.

The host reports how long a snapshot held its job up, if it measured that. Else it follows from the steps between: at a
snapshot of step k the job has stood still for at most the time it has run, less k whole steps. It has never stood still
for more than at any later snapshot, so the least of these bounds is the tightest. It is exact where an attempt ends
with its job, and too long by less than a step elsewhere (at the expense of *unfinished*).

A job that runs when the journal ends is accounted for up to its latest snapshot: what it has computed since is not known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import accumulate
from math import inf, isfinite

import numpy as np
from msgspec import structs

from controller.core.model import facts as f
from controller.numerics.arrays import Floats
from experiments.results.history import Attempt, AttemptSnapshot, Story, Timed, end_s, once, story_of, tries_of
from experiments.results.losses import LostSteps, gpu_steps_of, work_lost
from experiments.results.run_context import RunContext
from topologies.spec import Role

# ways in which an attempt ends because of a notice: it ran out, before or after the job was stopped for its move
OF_NOTICES = frozenset(("deadline", "final_checkpoint", "destination_lost"))
HOURS = 24
# of payloads at real scale, bytes: paper A's F2 has them from 120 MB to 48 GB, three decades
DECADES = ((1e9, "below 1 GB"), (1e10, "1 to 10 GB"), (inf, "above 10 GB"))


class LostPart(StrEnum):
    """Part of the GPU time that is lost."""

    EMERGENCIES = "emergencies"
    OUT_OF_REACH = "out_of_reach"
    NOTICES = "notices"
    FAULTS = "faults"
    PAUSES = "pauses"
    RESTARTS = "restarts"
    DOWNTIME = "downtime"
    REDUNDANCY = "redundancy"
    UNFINISHED = "unfinished"


WORK_LOST = (LostPart.EMERGENCIES, LostPart.OUT_OF_REACH, LostPart.NOTICES, LostPart.FAULTS)


@dataclass(frozen=True, slots=True)
class LostSpell:
    """Seconds of a GPU that a job lost, evenly between two times, or all at one."""

    job: str
    part: LostPart
    from_s: float
    until_s: float
    gpu_s: float
    speed: float = 1.0  # of that GPU; of a job on none, of the one that it had


@dataclass(slots=True)
class GpuTimeBalance:
    """Balance of a job in seconds of a GPU: begun = useful + first start + lost.

    `begun_s`: from its first dispatch to its end, and its replica's GPU while it is held.
    """

    payload_bytes: int
    begun_s: float = 0.0
    useful_s: float = 0.0
    first_start_s: float = 0.0
    lost: list[LostSpell] = field(default_factory=list)

    def on(self, gpus: int) -> GpuTimeBalance:
        """Return the same of a job on so many GPUs."""
        lost = [replace(spell, gpu_s=spell.gpu_s * gpus) for spell in self.lost]
        return GpuTimeBalance(
            self.payload_bytes, self.begun_s * gpus, self.useful_s * gpus, self.first_start_s * gpus, lost
        )

    def lost_s(self, *parts: LostPart) -> float:
        """Return the GPU time lost in these parts."""
        return sum(spell.gpu_s for spell in self.lost if spell.part in parts)

    def reference_lost_s(self, *parts: LostPart) -> float:
        """Return the same in seconds of a reference GPU."""
        return sum(spell.gpu_s * spell.speed for spell in self.lost if spell.part in parts)


@once
def submitted_jobs(facts: Sequence[Timed], context: RunContext) -> dict[str, f.JobSubmitted]:
    """Return the jobs by name; of a live run, those whose steps were quicker than declared with the time that they took."""
    story = story_of(facts)
    found = dict(story.submitted)
    for job, submitted in story.submitted.items() if context.world == "live" else ():
        took_s, steps = 0.0, 0.0
        for each in tries_of(facts).get(job, ()):
            snapshots = story.snapshots.get((job, each.attempt), [])
            ended = (each.ended_s, each.to_step) if each.ended_s else snapshots[-1][:2] if snapshots else None
            if each.running_s is not None and ended is not None:
                took_s += ended[0] - each.running_s - sum(taken.pause_s or 0.0 for taken in snapshots)
                steps += (ended[1] - each.from_step) / each.speed
        if took_s < 0.9 * steps * submitted.step_s:  # else it was messages on their way
            found[job] = structs.replace(submitted, step_s=max(0.0, took_s) / steps)
    return found


@once
def balances(facts: Sequence[Timed], context: RunContext) -> dict[str, GpuTimeBalance]:
    """Return the balance of each job that was dispatched and whose submission the journal has, in order of dispatch."""
    story, ended_s = story_of(facts), end_s(facts, context.ended_at_s)
    submitted = submitted_jobs(facts, context)
    slower = {host.name: context.replica_slowdown for host in context.campus.hosts_of(Role.VOLUNTEER)}
    lost = {(each.job, each.attempt): each for each in work_lost(facts)}
    return {
        job: _Account(submitted[job], some, story, lost, ended_s, slower).balance.on(submitted[job].gpus)
        for job, some in tries_of(facts).items()
        if job in submitted
    }


class _Account:
    """A job's balance as if it had one GPU, attempt by attempt."""

    def __init__(
        self,
        submitted: f.JobSubmitted,
        tries: Sequence[Attempt],
        story: Story,
        lost: Mapping[tuple[str, int], LostSteps],
        ended_s: float,
        slower: Mapping[str, float],
    ) -> None:
        self.balance = GpuTimeBalance(submitted.payload_bytes)
        self._job, self._step_s, self._story, self._ended_s = submitted.job, submitted.step_s, story, ended_s
        self._slower = slower  # host -> by how much of itself a step takes longer there, because of a replica
        self._has_run, self._speed = False, 1.0
        free_s = tries[0].dispatched_s  # since when the job has been on no GPU
        for n, attempt in enumerate(tries):
            following = tries[n + 1] if n + 1 < len(tries) else None
            self._add(LostPart.DOWNTIME, free_s, attempt.dispatched_s)
            free_s = self._attempt(attempt, following)
            if following is not None:
                # what of the loss is due to the newest copy being out of reach, and what to how the attempt ended
                loss = lost[self._job, attempt.attempt]
                at_s = following.dispatched_s if attempt.ended_s is None else attempt.ended_s
                copies = self._story.elsewhere(attempt)
                known = (copy.step for copy in copies if copy.at_s <= following.dispatched_s)
                kept = max([following.from_step, *known])
                since = gpu_steps_of(tries, attempt, attempt.to_step) - gpu_steps_of(tries, attempt, kept)
                ordinary = min(loss.gpu_steps, max(0.0, since))
                part = (
                    LostPart.EMERGENCIES
                    if attempt.how == "emergency"
                    else LostPart.NOTICES
                    if attempt.how in OF_NOTICES
                    else LostPart.FAULTS
                )
                self._speed = loss.steps / loss.gpu_steps if loss.gpu_steps else attempt.speed
                self._add(part, at_s, at_s, ordinary * self._step_s)
                self._add(LostPart.OUT_OF_REACH, at_s, at_s, (loss.gpu_steps - ordinary) * self._step_s)
                self.balance.useful_s -= loss.gpu_steps * self._step_s
                self._speed = attempt.speed
        # one that has failed or was cancelled may have stopped before: "failed" is a cause of that, too
        if tries[-1].how != "finished" and tries[-1].ended_s is not None:
            over_s = story.over_s.get(self._job, ended_s)
            self._add(LostPart.DOWNTIME, free_s, over_s)
            free_s = over_s
        self.balance.begun_s += free_s - tries[0].dispatched_s

    def _add(self, part: LostPart, from_s: float, until_s: float, gpu_s: float | None = None) -> None:
        gpu_s = until_s - from_s if gpu_s is None else gpu_s
        if gpu_s:
            self.balance.lost.append(LostSpell(self._job, part, from_s, until_s, gpu_s, self._speed))

    def _attempt(self, attempt: Attempt, following: Attempt | None) -> float:
        """Account for an attempt's starting and running; return up to when that was done."""
        self._speed = attempt.speed
        snapshots = self._story.snapshots.get((self._job, attempt.attempt), [])
        until_s = attempt.ended_s if following is None else attempt.ended_s or following.dispatched_s
        over_at_s = self._ended_s if until_s is None else until_s
        for from_s, dropped_s in self._story.replicas.get((self._job, attempt.attempt), ()):
            held_s = min(dropped_s, over_at_s) - from_s
            self.balance.begun_s += held_s
            self._add(LostPart.REDUNDANCY, from_s, from_s + held_s, held_s)
        if attempt.running_s is None:
            self._starting(attempt, over_at_s, is_lost=True)
            # a journal that lost the beginning may know all the same how far the attempt came
            over_s = self._computed(attempt, over_at_s, attempt.to_step, elapsed_s=0.0)
            self._add(LostPart.UNFINISHED, over_at_s, over_at_s, over_s)
            return over_at_s
        self._starting(attempt, attempt.running_s, is_lost=self._has_run)
        self._has_run = True
        to_step = attempt.to_step
        if until_s is None:
            until_s, to_step = attempt.running_s, attempt.from_step
            if snapshots:
                until_s, to_step, _ = snapshots[-1]
        elapsed_s = until_s - attempt.running_s
        over_s = self._computed(attempt, until_s, to_step, elapsed_s)
        stood_s = 0.0
        for at_s, up_to_s in self._stood_still(attempt, snapshots, over_s):
            self._add(LostPart.PAUSES, at_s, at_s, up_to_s - stood_s)
            stood_s = up_to_s
        self._add(LostPart.UNFINISHED, until_s, until_s, over_s - stood_s)
        return until_s

    def _starting(self, attempt: Attempt, until_s: float, *, is_lost: bool) -> None:
        began_s = attempt.dispatched_s
        if not is_lost:
            self.balance.first_start_s = until_s - began_s
            return
        there_s = began_s
        if attempt.restore_sequence is not None:
            arrived_s = (
                copy.at_s
                for copy in self._story.copies.get(self._job, ())
                if copy.sequence == attempt.restore_sequence and copy.holder == attempt.host
            )
            there_s = max(began_s, max((at_s for at_s in arrived_s if at_s <= until_s), default=until_s))
        self._add(LostPart.DOWNTIME, began_s, there_s)
        self._add(LostPart.RESTARTS, there_s, until_s)

    def _computed(self, attempt: Attempt, until_s: float, to_step: int, elapsed_s: float) -> float:
        """Add whole steps, and what a replica makes them longer; return what is left of the time that they had."""
        computed_s = (to_step - attempt.from_step) * self._step_s / attempt.speed
        slower_s = computed_s * self._slower.get(attempt.host, 0.0)
        self.balance.useful_s += computed_s
        self._add(LostPart.REDUNDANCY, until_s - elapsed_s, until_s, slower_s)
        return elapsed_s - computed_s - slower_s

    def _stood_still(
        self, attempt: Attempt, snapshots: Sequence[AttemptSnapshot], over_s: float
    ) -> list[tuple[float, float]]:
        """Return (when, for how long in all up to then) at each snapshot of an attempt that had `over_s` beside its steps."""
        assert attempt.running_s is not None
        told_s = [taken.pause_s for taken in snapshots if taken.pause_s is not None]
        if len(told_s) == len(snapshots):
            return list(zip((taken.at_s for taken in snapshots), accumulate(told_s), strict=True))
        pace_s = self._step_s / attempt.speed * (1.0 + self._slower.get(attempt.host, 0.0))
        bound_s, bounds = max(0.0, over_s), []
        for taken in reversed(snapshots):
            computed_s = (taken.step - attempt.from_step) * pace_s
            bound_s = min(bound_s, max(0.0, taken.at_s - attempt.running_s - computed_s))
            bounds.append((taken.at_s, bound_s))
        return bounds[::-1]


def by_class(found: Mapping[str, GpuTimeBalance], bytes_scale: float) -> dict[str, dict[LostPart, float]]:
    """Return payload class at real scale -> seconds of each part; classes without a job are left out."""
    sums: dict[str, dict[LostPart, float]] = {}
    for balance in found.values():
        real_bytes = balance.payload_bytes / bytes_scale
        name = next(name for limit, name in DECADES if real_bytes < limit)
        parts = sums.setdefault(name, dict.fromkeys(LostPart, 0.0))
        for spell in balance.lost:
            parts[spell.part] += spell.gpu_s
    return {name: sums[name] for _, name in DECADES if name in sums}


def by_hour(found: Mapping[str, GpuTimeBalance], day_s: float, day_start_s: float) -> dict[LostPart, list[float]]:
    """Return seconds of each part in each hour of the day; a spell counts in each hour for its share that lies there."""
    hour_s = day_s / HOURS
    hours, sums = np.arange(HOURS), {part: np.zeros(HOURS) for part in LostPart}

    def before(at_s: float) -> Floats:
        """Return the seconds that lie in each hour of all days before a time since a midnight."""
        days, in_day_s = divmod(at_s, day_s)
        seconds: Floats = days * hour_s + np.clip(in_day_s - hours * hour_s, 0.0, hour_s)
        return seconds

    for spell in (spell for balance in found.values() for spell in balance.lost):
        from_s, lasts_s = day_start_s + spell.from_s, spell.until_s - spell.from_s
        if not (isfinite(from_s) and isfinite(lasts_s)):
            continue
        if from_s % hour_s + lasts_s <= hour_s:
            sums[spell.part][int(from_s % day_s // hour_s) % HOURS] += spell.gpu_s
        else:
            sums[spell.part] += spell.gpu_s / lasts_s * (before(from_s + lasts_s) - before(from_s))
    return {part: hours_s.tolist() for part, hours_s in sums.items()}
