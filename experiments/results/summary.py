"""The figures of one run, from its journal and from what observers measured; nothing else. What each means stands at its field.

Times, sizes and rates are as they were played; `Summary.real_scale` has those with a unit once more, scaled back.
"""

from __future__ import annotations

from msgspec import Struct

from experiments.results.promises import Broken
from experiments.results.run_context import Death
from topologies.dimension import Dimension


class JobFigures(Struct, frozen=True):
    """Jobs, and where they are when the run ends; submitted = finished + failed + running + waiting + lost."""

    # accepted into the journal
    submitted: int
    # ended with all steps done
    finished: int
    # ended by the workload's own failure
    failed: int
    # at the end an attempt is on a host: told to start, running, fetching its checkpoint, or moving
    running: int
    # at the end in the queue, or waiting for an on-demand slot
    waiting: int
    # redirected to on-demand by the queue
    on_demand: int
    # accepted, and in none of the states above: must be 0
    lost: int
    # dispatches, of all jobs
    attempts: int
    # dispatches after a job's first one, of all jobs
    restarts: int
    # the same of each job that had any, by name
    restarts_of: dict[str, int] = {}


class Excused(Struct, frozen=True):
    """An admitted migration that was not in time, and the cause that excuses it."""

    job: str
    # the host that the owner wanted back
    source: str
    destination: str
    # when the notice was given, seconds since the coordinator started
    at_s: float
    # in words: see `experiments.results.exemptions`
    cause: str


class MigrationFigures(Struct, frozen=True):
    """Pairs of a notice and a job on its host, each counted once, however often it is planned again.

    admitted = in_time + excused + late + under_notice; what is not admitted and not degraded ended before it was planned.
    """

    planned: int
    # for which P2 found a destination and P3 a rate
    admitted: int
    # admitted, and running at the destination before the notice was over
    in_time: int
    # whose last word was that no migration is feasible
    degraded: int
    # from the stop of a job at its source to its proved state at the destination
    downtime_median_s: float | None
    downtime_p90_s: float | None
    # admitted, not in time for a cause that is no fault of the admission
    excused: int = 0
    # admitted, not in time, and nothing excuses it: where migrations in time are promised, each is a breach
    late: int = 0
    # admitted, and the notice still ran at the end
    under_notice: int = 0
    # the excused ones, with their causes
    excuses: list[Excused] = []


class Emergencies(Struct, frozen=True):
    """What owners closed without notice."""

    # attempts that were ended so
    count: int
    # of these, jobs that ran on from a completed checkpoint whose state was proved by hash
    restored_verified: int
    # seconds of a GPU that these attempts computed and no later attempt kept (`experiments.results.losses`)
    work_lost_s: float
    # closings of a host without notice, idle hosts included
    reclaims: int
    # of `count`, jobs that began again from step 0: no checkpoint had completed
    restarted: int
    # of `count`, jobs that were not running again at the end
    pending: int


class Interruptions(Struct, frozen=True):
    """Attempts that ended before their job did, whatever ended them; losses by the one definition in `losses`."""

    # attempts, by cause; those stopped for a better checkpoint included
    by_cause: dict[str, int]
    # seconds of a GPU that they computed and no later attempt kept, by cause
    work_lost_s: dict[str, float]
    # from the stop to the proved state, over all restarts
    downtime_median_s: float | None
    downtime_p90_s: float | None
    # all of them, less those that were stopped for a better checkpoint
    events: int = 0
    # what they lost in all, seconds of a GPU: executed less kept
    lost_gpu_s: float = 0.0
    # lost_gpu_s / events; None without events
    lost_per_event_s: float | None = None


class CheckpointFigures(Struct, frozen=True):
    """Snapshots, and their way to other hosts."""

    # verified and on disk on another host
    completed: int
    # payload of all transfers that ended
    bytes_sent: int
    # payload that the receiver had already
    bytes_deduplicated: int
    # local snapshots
    taken: int


class Rates(Struct, frozen=True):
    """What transfers got of what they were granted."""

    # transfers long enough to measure
    flows: int
    # payload rate over the grant, of those
    worst_goodput_over_grant: float | None
    median_goodput_over_grant: float | None
    # packets that the flows' own buckets dropped
    bucket_drops: int
    # all packets dropped at hosts' egress
    egress_drops: int


class TrafficFigures(Struct, frozen=True):
    """Wire bytes that left hosts, by kind."""

    migration_bytes: int
    research_bytes: int
    # the highest rate of migrations at any host in 100 ms
    peak_migration_bytes_per_s: float


class ResearchFigures(Struct, frozen=True):
    """What research keeps of the links, on the wire."""

    # the smallest reserve on a link that was measured; none measured: on any access link
    reserve_bytes_per_s: float
    # the least that is kept for research, over the link's capacity
    reserve_share: float
    # while greedy research flows ran: the lowest throughput of all flows over the narrowest link of one, in any window, over
    # that link's capacity; None if nothing was measured
    lowest_share: float | None
    # windows that were measured
    samples: int


class Cost(Struct, frozen=True):
    """Paper B's cost of a job's first dispatch: 1 for a spot, k for on-demand."""

    mean: float | None
    k: float


class Delay(Struct, frozen=True):
    """Paper B's delay: from submission to the first dispatch, 0 for on-demand."""

    mean_s: float | None
    target_s: float


class KillSwitchFigures(Struct, frozen=True):
    """Watched uses of the kill-switch."""

    probes: int
    # length of the call
    set_to_closed_median_s: float | None
    set_to_closed_worst_s: float | None
    # from the call's return to the first dropped packet
    first_drop_median_s: float | None
    # after the call's return
    connections_tried: int
    # of those, the ones that got in: must be 0
    connections_admitted: int


class RunVerdict(Struct, frozen=True):
    """Whether the machine played the campus as described, and what says so."""

    valid: bool
    # what speaks against it, in words
    reasons: list[str]
    # what was measured, by name
    figures: dict[str, float]


class Summary(Struct, frozen=True):
    """What `summary.json` holds."""

    jobs: JobFigures
    migrations: MigrationFigures
    emergencies: Emergencies
    interruptions: Interruptions
    checkpoints: CheckpointFigures
    rates: Rates
    traffic: TrafficFigures
    research: ResearchFigures
    cost: Cost
    delay: Delay
    # paper B's r = N + p at the end; None if no job came to the queue
    level: float | None
    kill_switch: KillSwitchFigures
    fidelity: RunVerdict
    # every promise that did not hold, with its story
    invariants_broken: list[Broken]
    # live or virtual
    world: str
    # factors by which bytes and time were played: real times factor is played
    scale: dict[str, float]
    seed: int
    # the campus's name
    campus: str
    duration_s: float
    # completed, or what cut the run short
    ended: str
    # deaths of the coordinator and agents that nobody had planned
    deaths: list[Death]
    # figures with a unit once more, by section.name, at real scale
    real_scale: dict[str, float]
    # rule of `promises` that the system does not promise -> why
    not_promised: dict[str, str] = {}
    # what the run did not put to the test
    warnings: list[str] = []


# ---------------------------------------------------------------- real scale

DIMENSIONS: dict[str, Dimension] = {
    "duration_s": Dimension.DURATION,
    "migrations.downtime_median_s": Dimension.DURATION,
    "migrations.downtime_p90_s": Dimension.DURATION,
    "emergencies.work_lost_s": Dimension.DURATION,
    "interruptions.downtime_median_s": Dimension.DURATION,
    "interruptions.downtime_p90_s": Dimension.DURATION,
    "interruptions.lost_gpu_s": Dimension.DURATION,
    "interruptions.lost_per_event_s": Dimension.DURATION,
    "checkpoints.bytes_sent": Dimension.SIZE,
    "checkpoints.bytes_deduplicated": Dimension.SIZE,
    "traffic.migration_bytes": Dimension.SIZE,
    "traffic.research_bytes": Dimension.SIZE,
    "traffic.peak_migration_bytes_per_s": Dimension.RATE,
    "research.reserve_bytes_per_s": Dimension.RATE,
    "delay.mean_s": Dimension.DURATION,
    "delay.target_s": Dimension.DURATION,
}  # kill_switch is missing on purpose: a call of this kernel has no other scale


def value_of(summary: Summary, dotted: str) -> float | None:
    """The number that `section.name` names."""
    found: object = summary
    for name in dotted.split("."):
        found = getattr(found, name)
    return found if isinstance(found, int | float) else None
