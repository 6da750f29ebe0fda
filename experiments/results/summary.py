"""The figures of one run, from its journal and from what observers measured; nothing else. What each means stands at its field.

Times, sizes and rates are as they were played; `Summary.real_scale` has those with a unit once more, scaled back.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from msgspec import Struct

from experiments.results.rules import Broken
from experiments.results.run_context import Death
from topologies.dimension import Dimension


class JobFigures(Struct, frozen=True):
    """Jobs, and where they are when the run ends; submitted = finished + failed + cancelled + running + waiting + lost."""

    submitted: Annotated[int, "accepted into the journal"]
    finished: Annotated[int, "ended with all steps done"]
    failed: Annotated[int, "ended by the workload's own failure"]
    running: Annotated[int, "on a host at the end: told to start, running, fetching a checkpoint, or moving"]
    waiting: Annotated[int, "at the end in the queue, or waiting for an on-demand slot"]
    on_demand: Annotated[int, "redirected to on-demand by the queue"]
    lost: Annotated[int, "accepted, and in none of the states above: must be 0"]
    attempts: Annotated[int, "dispatches, of all jobs"]
    restarts: Annotated[int, "dispatches after a job's first one, of all jobs"]
    cancelled: Annotated[int, "ended by their users"] = 0
    restarts_of: Annotated[dict[str, int], "the same of each job that had any, by name"] = {}
    on_demand_gpu_s: Annotated[float, Dimension.DURATION, "GPU time of attempts on hosts that no owner takes"] = 0.0
    completion_mean_s: Annotated[float | None, Dimension.DURATION, "from submission to end, of those finished"] = None


class MissedDeadline(Struct, frozen=True):
    """An admitted migration that was not in time, and why."""

    job: str
    source: Annotated[str, "the host that the owner wanted back"]
    destination: str
    at_s: Annotated[float, "when the notice was given, seconds since the coordinator started"]
    cause: Annotated[str, "in words: what excuses it, or what the kernel saw meanwhile"]


class MigrationFigures(Struct, frozen=True):
    """Pairs of a notice and a job on its host, each counted once, however often it is planned again.

    admitted = in_time + excused + late + under_notice; what is not admitted and not degraded ended before it was planned.
    """

    planned: int
    admitted: Annotated[int, "for which P2 found a destination and P3 a rate"]
    in_time: Annotated[int, "admitted, and running at the destination before the notice was over"]
    degraded: Annotated[int, "whose last word was that no migration is feasible"]
    downtime_median_s: Annotated[
        float | None, Dimension.DURATION, "from the stop to the proved state at the destination"
    ]
    downtime_p90_s: Annotated[float | None, Dimension.DURATION]
    excused: Annotated[int, "admitted, not in time for a cause that is no fault of the admission"] = 0
    late: Annotated[int, "admitted, not in time, without excuse: a breach where migrations in time are promised"] = 0
    under_notice: Annotated[int, "admitted, and the notice still ran at the end"] = 0
    excuses: Annotated[list[MissedDeadline], "the excused ones, with their causes"] = []
    late_causes: Annotated[
        list[MissedDeadline], "the late ones of an observed run: whether the processor was busy or a queue dropped"
    ] = []


class Emergencies(Struct, frozen=True):
    """Figures of what owners closed without notice."""

    count: Annotated[int, "attempts that it ended"]
    restored_verified: Annotated[int, "of `count`, jobs that ran on from a completed checkpoint, state proved by hash"]
    work_lost_s: Annotated[float, Dimension.DURATION, "seconds of a GPU computed by these attempts, kept by none"]
    reclaims: Annotated[int, "closings of a host without notice, idle hosts included"]
    restarted: Annotated[int, "of `count`, jobs that began again from step 0: no checkpoint had completed"]
    pending: Annotated[int, "of `count`, jobs that were not running again at the end"]


class Interruptions(Struct, frozen=True):
    """Attempts that ended before their job did, whatever ended them; losses by the one definition in `losses`."""

    by_cause: Annotated[dict[str, int], "attempts, by cause; those stopped for a better checkpoint included"]
    work_lost_s: Annotated[dict[str, float], "seconds of a GPU that they computed and no later attempt kept, by cause"]
    downtime_median_s: Annotated[
        float | None, Dimension.DURATION, "from the stop to the proved state, over all restarts"
    ]
    downtime_p90_s: Annotated[float | None, Dimension.DURATION]
    events: Annotated[int, "all of them, less those that were stopped for a better checkpoint"] = 0
    lost_gpu_s: Annotated[float, Dimension.DURATION, "what they lost in all, seconds of a GPU: executed less kept"] = (
        0.0
    )
    lost_per_event_s: Annotated[float | None, Dimension.DURATION, "lost_gpu_s / events; None without events"] = None


class LostGpuTime(Struct, frozen=True):
    """GPU time that jobs had or waited for and that none kept (`experiments.results.lost_time`).

    begun = useful + first starts + total, of every job from its first dispatch to its end; of one that still runs when the run
    ends, up to its latest snapshot.
    """

    total_s: Annotated[float, Dimension.DURATION, "the sum of the parts, seconds of a GPU"]
    work_lost_s: Annotated[
        float, Dimension.DURATION, "work computed and not kept: emergencies + out_of_reach + notices + faults"
    ]
    emergencies_s: Annotated[float, Dimension.DURATION, "since the newest copy, where no notice was given"]
    out_of_reach_s: Annotated[
        float, Dimension.DURATION, "between the newest complete copy and an older one that could be reached"
    ]
    notices_s: Annotated[float, Dimension.DURATION, "since the newest copy, where a notice ran out"]
    faults_s: Annotated[float, Dimension.DURATION, "since the newest copy, where an agent or a process died"]
    pauses_s: Annotated[float, Dimension.DURATION, "jobs stood still for snapshots"]
    restarts_s: Annotated[float, Dimension.DURATION, "state read and proved anew, of every start but a job's first"]
    downtime_s: Annotated[
        float, Dimension.DURATION, "begun, and on no GPU that could compute: waiting, requeued, fetching state"
    ]
    redundancy_s: Annotated[float, Dimension.DURATION, "GPUs of replicas, and what they make steps longer"]
    unfinished_s: Annotated[float, Dimension.DURATION, "on a GPU, in no whole step that is known"]
    begun_s: Annotated[float, Dimension.DURATION, "from first dispatches to ends, and replicas' GPUs"]
    useful_s: Annotated[float, Dimension.DURATION, "steps that were kept"]
    first_starts_s: Annotated[float, Dimension.DURATION, "of jobs' first starts that succeeded"]
    by_class: Annotated[dict[str, dict[str, float]], "payload at real scale -> part -> seconds, as played"] = {}
    by_hour: Annotated[dict[str, list[float]], "part -> seconds, as played, in each of the 24 hours of the day"] = {}
    expected_emergencies_s: Annotated[
        float | None,
        Dimension.DURATION,
        "work that emergencies take in the mean over their moments, where owners follow a law",
    ] = None
    online_bound_s: Annotated[
        float | None,
        Dimension.DURATION,
        "the least that it and pauses_s cost any on-line schedule together; in virtual time",
    ] = None
    online_bound_within_budgets_s: Annotated[
        float | None, Dimension.DURATION, "the same of schedules that begin a snapshot at least every 2 L_max"
    ] = None
    online_bound_forced_s: Annotated[
        float | None, Dimension.DURATION, "pauses in it that 2 L_max alone forces on every such schedule"
    ] = None
    over_online_bound: Annotated[float | None, "expected_emergencies_s and pauses_s, over online_bound_s"] = None
    over_online_bound_unforced: Annotated[
        float | None, "the same over online_bound_within_budgets_s, less online_bound_forced_s on both sides"
    ] = None
    reference_total_s: Annotated[float, Dimension.DURATION, "total_s in seconds of a reference GPU"] = 0.0
    reference_work_lost_s: Annotated[float, Dimension.DURATION, "likewise work_lost_s"] = 0.0
    online_bound_covers: Annotated[
        float | None, "share of expected_emergencies_s and pauses_s in what is lost in all, in the mean"
    ] = None


class CheckpointFigures(Struct, frozen=True):
    """Snapshots, and their way to other hosts."""

    completed: Annotated[int, "verified and on disk on another host"]
    bytes_sent: Annotated[int, Dimension.SIZE, "TCP payload of all transfers that ended"]
    bytes_deduplicated: Annotated[int, Dimension.SIZE, "payload that the receiver had already"]
    taken: Annotated[int, "local snapshots"]
    stopped: Annotated[
        int, "for which a job stood still until they were written or fetched, though it was to go on"
    ] = 0
    pause_median_s: Annotated[
        float | None, "for which a snapshot stopped a job that went on; of this machine, unscaled"
    ] = None
    pause_p99_s: Annotated[float | None, "likewise, exceeded by one in a hundred"] = None


class GoodputFigures(Struct, frozen=True):
    """Rates that transfers got of what they were granted."""

    flows: Annotated[int, "transfers long enough to measure"]
    worst_goodput_over_grant: Annotated[float | None, "payload rate over the grant, of those"]
    worst_goodput_over_guarantee: Annotated[
        float | None, "over the part of it that was not lent of research's reserve; of a live run"
    ]
    median_goodput_over_grant: float | None
    bucket_drops: Annotated[int, "packets that the flows' own buckets dropped"]
    egress_drops: Annotated[int, "all packets dropped at hosts' egress"]


class TrafficFigures(Struct, frozen=True):
    """Wire bytes that left hosts, by kind."""

    migration_bytes: Annotated[int, Dimension.SIZE]
    research_bytes: Annotated[int, Dimension.SIZE]
    peak_migration_bytes_per_s: Annotated[float, Dimension.RATE, "the highest rate of migrations at any host in 100 ms"]


class ResearchFigures(Struct, frozen=True):
    """Shares of the links that research keeps, on the wire."""

    reserve_bytes_per_s: Annotated[
        float, Dimension.RATE, "the least on a measured link; none measured: on any access link"
    ]
    reserve_share: Annotated[float, "the least that is kept for research, over the link's capacity"]
    # of all greedy flows together over the narrowest link of one, in any window that was measured
    lowest_share: Annotated[float | None, "lowest research throughput over the link's capacity, while flows ran"]
    samples: Annotated[int, "windows that were measured"]
    flows: Annotated[int | None, "flows with a size that were over: all their bytes there, or cut"] = None
    flows_cut: Annotated[int | None, "of these, cut: an end of theirs was closed"] = None
    # from its beginning to its last byte, of a flow with a size
    completion_median_s: Annotated[float | None, Dimension.DURATION] = None
    completion_p99_s: Annotated[float | None, Dimension.DURATION] = None


class Cost(Struct, frozen=True):
    """Paper B's cost of a job's first dispatch: 1 for a spot, k for on-demand."""

    mean: float | None
    k: float


class Delay(Struct, frozen=True):
    """Paper B's delay: from submission to the first dispatch, 0 for on-demand."""

    mean_s: Annotated[float | None, Dimension.DURATION]
    target_s: Annotated[float, Dimension.DURATION]


class KillSwitchFigures(Struct, frozen=True):
    """Watched uses of the kill-switch."""

    probes: int
    set_to_closed_median_s: Annotated[float | None, "length of the call"]
    set_to_closed_worst_s: float | None
    first_drop_median_s: Annotated[float | None, "from the call's return to the first dropped packet"]
    connections_tried: Annotated[int, "after the call's return"]
    connections_admitted: Annotated[int, "of those, the ones that got in: must be 0"]


class NetworkObservation(Struct, frozen=True):
    """Activity of the kernel in the network of a host (or of all switches, or to the machine's own processes)."""

    where: str
    retransmitted: Annotated[int, "TCP segments sent again"]
    dropped: Annotated[dict[str, int], "packets, by the kernel's reason, most first"]
    round_trip_p50_s: Annotated[float, "TCP's smoothed round trip, at each segment that arrived"]
    round_trip_p99_s: float
    run_delay_p50_s: Annotated[float, "from a task's waking until a processor took it"]
    run_delay_p99_s: float


class RunVerdict(Struct, frozen=True):
    """Verdict on whether the machine played the campus as described, and the evidence."""

    valid: bool
    reasons: Annotated[list[str], "what speaks against it, in words"]
    figures: Annotated[dict[str, float], "what was measured, by name"]
    observed: Annotated[list[NetworkObservation], "what the kernel did to each host; none in virtual time"] = []
    watched: Annotated[bool, "false: nothing watched whether the machine kept up"] = True


class Summary(Struct, frozen=True):
    """Contents of `summary.json`."""

    jobs: JobFigures
    migrations: MigrationFigures
    emergencies: Emergencies
    interruptions: Interruptions
    lost_time: LostGpuTime
    checkpoints: CheckpointFigures
    rates: GoodputFigures
    traffic: TrafficFigures
    research: ResearchFigures
    cost: Cost
    delay: Delay
    level: Annotated[float | None, "paper B's r = N + p at the end; None if no job came to the queue"]
    kill_switch: KillSwitchFigures
    fidelity: RunVerdict
    invariants_broken: Annotated[list[Broken], "every promise that did not hold, with its story"]
    world: Annotated[str, "live or virtual"]
    scale: Annotated[dict[str, float], "factors of bytes and time: real times factor is played"]
    policy: Annotated[str, "the system, with its overrides"]
    seed: int
    campus: Annotated[str, "the campus's name"]
    duration_s: Annotated[float, Dimension.DURATION]
    ended: Annotated[str, "completed, or what cut the run short"]
    deaths: Annotated[list[Death], "deaths of the coordinator and agents that the scenario did not plan"]
    real_scale: Annotated[dict[str, float], "figures with a unit once more, by section.name, at real scale"]
    not_promised: Annotated[dict[str, str], "rule of `promises` that the system does not promise -> why"] = {}
    warnings: Annotated[list[str], "what the run did not put to the test"] = []
    scenario: Annotated[str, "the scenario's name"] = ""


def value_of(summary: Summary, dotted: str) -> float | None:
    """Return the number that `section.name` names."""
    found = attrgetter(dotted)(summary)
    return found if isinstance(found, int | float) else None


def _declared(record: type[Struct] = Summary, prefix: str = "") -> Iterator[tuple[str, Any, list[Any]]]:
    """Yield (section.name, type, annotations) of each figure; a section is annotated with its docstring's first line."""
    for name, hint in get_type_hints(record, include_extras=True).items():
        kind, *told = get_args(hint) if get_origin(hint) is Annotated else (hint,)
        if isinstance(kind, type) and issubclass(kind, Struct):
            yield f"{prefix}{name}", kind, [(kind.__doc__ or "").partition("\n")[0]]
            yield from _declared(kind, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", kind, told


NUMBERS = [name for name, kind, _ in _declared() if kind in (int, float, float | None)]
# of figures that are scaled back; none of the kill-switch, for a call of this kernel has no other scale
DIMENSIONS = {name: part for name, _, told in _declared() for part in told if isinstance(part, Dimension)}
MEANINGS = {name: part for name, _, told in _declared() for part in told if isinstance(part, str)}
