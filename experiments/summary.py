"""The figures of one run, from its journal and from what observers measured; nothing else.

What each number means (`Summary` holds them under these names; times, sizes and rates as they were played, `real_scale` has
those with a unit once more, scaled back):

jobs        *submitted*: accepted into the journal. *finished*, *failed*: ended so. *running*: at the end of the run an attempt
            is on a host (told to start, running, fetching its checkpoint, moving). *waiting*: at the end in the queue or
            waiting for an on-demand slot. *lost* = submitted - finished - failed - running - waiting, must be 0.
            *on_demand*: jobs that the queue redirected. *attempts*: dispatches. *restarts*: dispatches after the first.
migrations  Counted once for each (job, notice), however often it is planned again. *planned*: pairs of a notice and a job on
            its host. *admitted*: pairs for which P2 found a destination and P3 a rate. *in_time*: those running at
            their destination before the notice was over. *degraded*: pairs whose last word was that no migration is
            feasible. The rest of *planned* ended otherwise (the job finished first, the notice still ran at the end).
            *downtime_*: from the stop of a job at its source to its proved state at the destination.
emergencies *count*: attempts that an owner ended without notice. *reclaims*: closings of a host without notice, idle hosts
            included. *restored_verified*: of *count*, jobs that ran on from a completed checkpoint whose state was proved
            by hash. *restarted*: from step 0, no checkpoint had completed. *pending*: not running again at the end.
            *work_lost_s*: work that emergencies made the jobs compute again, in seconds of a GPU.
interruptions  *by_cause*: attempts that ended before their job, by cause; *work_lost_s* by cause; *downtime_* over all restarts.
            *events*: all of them; *lost_gpu_s*, *lost_per_event_s*: what they lost, by the one definition in `losses`.
checkpoints *completed*: verified and on disk on another host. *bytes_sent*, *bytes_deduplicated*: payload of all transfers
            that ended, and payload that the receiver had already. *taken*: local snapshots.
rates       *flows*: transfers long enough to measure. *worst_*, *median_goodput_over_grant*: payload rate over the grant, of
            those. *bucket_drops*: packets that the flows' buckets dropped. *egress_drops*: all drops counted at hosts' egress.
traffic     Wire bytes that left hosts, by kind, and the highest 100 ms rate of migrations at any host.
research    *lowest_share*: while greedy research flows ran, the lowest throughput of all that were measured over the narrowest
            link of one, in any window, over that link's capacity, both on the wire; None if nothing was measured.
            *reserve_share*: the least that is kept for research, over capacity; *reserve_bytes_per_s*: the smallest
            reserve on such a link (none measured: of any access link).
cost        *mean* over first dispatches (paper B): 1 for a spot, *k* for on-demand. *delay* likewise: from submission to the
            first dispatch, on-demand 0; against the *target_s*. *level*: r = N + p at the end.
kill_switch *probes* by watched uses of the switch; *set_to_closed_*: length of the call; *first_drop_*: from its return to the
            first dropped packet; *connections_admitted*: of *connections_tried* after its return, must be 0.
"""

from __future__ import annotations

from msgspec import Struct

from experiments.promises import Broken
from experiments.run_context import Death
from topologies.dimension import Dimension


class Jobs(Struct, frozen=True):
    """See the module."""

    submitted: int
    finished: int
    failed: int
    running: int
    waiting: int
    on_demand: int
    lost: int
    attempts: int
    restarts: int


class Migrations(Struct, frozen=True):
    """See the module."""

    planned: int
    admitted: int
    in_time: int
    degraded: int
    downtime_median_s: float | None
    downtime_p90_s: float | None


class Emergencies(Struct, frozen=True):
    """See the module."""

    count: int
    restored_verified: int
    work_lost_s: float
    reclaims: int
    restarted: int
    pending: int


class Interruptions(Struct, frozen=True):
    """See the module."""

    by_cause: dict[str, int]
    work_lost_s: dict[str, float]
    downtime_median_s: float | None
    downtime_p90_s: float | None
    events: int = 0
    lost_gpu_s: float = 0.0
    lost_per_event_s: float | None = None


class Checkpoints(Struct, frozen=True):
    """See the module."""

    completed: int
    bytes_sent: int
    bytes_deduplicated: int
    taken: int


class Rates(Struct, frozen=True):
    """See the module."""

    flows: int
    worst_goodput_over_grant: float | None
    median_goodput_over_grant: float | None
    bucket_drops: int
    egress_drops: int


class Traffic(Struct, frozen=True):
    """See the module."""

    migration_bytes: int
    research_bytes: int
    peak_migration_bytes_per_s: float


class Research(Struct, frozen=True):
    """See the module."""

    reserve_bytes_per_s: float
    reserve_share: float
    lowest_share: float | None
    samples: int


class Cost(Struct, frozen=True):
    """See the module."""

    mean: float | None
    k: float


class Delay(Struct, frozen=True):
    """See the module."""

    mean_s: float | None
    target_s: float


class KillSwitch(Struct, frozen=True):
    """See the module."""

    probes: int
    set_to_closed_median_s: float | None
    set_to_closed_worst_s: float | None
    first_drop_median_s: float | None
    connections_tried: int
    connections_admitted: int


class Verdict(Struct, frozen=True):
    """Whether the machine played the campus as described, and what says so."""

    valid: bool
    reasons: list[str]
    figures: dict[str, float]


class Summary(Struct, frozen=True):
    """What `summary.json` holds; the module's docstring defines every number."""

    jobs: Jobs
    migrations: Migrations
    emergencies: Emergencies
    interruptions: Interruptions
    checkpoints: Checkpoints
    rates: Rates
    traffic: Traffic
    research: Research
    cost: Cost
    delay: Delay
    level: float | None
    kill_switch: KillSwitch
    fidelity: Verdict
    invariants_broken: list[Broken]
    world: str
    scale: dict[str, float]
    seed: int
    campus: str
    duration_s: float
    ended: str
    deaths: list[Death]
    real_scale: dict[str, float]
    not_promised: dict[str, str] = {}  # rule of `promises` that the system does not promise -> why


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
