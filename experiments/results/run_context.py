"""Context of a run beside its journal: its parameters, and what observers outside the coordinator measured."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple

from bpf.observer import Observation
from controller.core.parameters import DAY_S
from experiments.inputs.traces.reclaim_law import ReclaimLaw
from experiments.results.measurements import MeasuredCurve
from testbed.emulation.safety.observation import DisturbedWindow
from testbed.enforcement import GUARD_BURST_BYTES, GUARD_BURST_S, GUARD_SLACK
from topologies.paths import Routes
from topologies.scale import Scale
from topologies.spec import Campus, DirectedLink
from topologies.units import WIRE_PER_PAYLOAD

_AT_S = attrgetter("at_s")
COMPLETED, INTERRUPTED = "completed", "interrupted"
SUPER_PACKET_BYTES = 65_536  # the debt that a bucket allows: one GSO super-packet


@dataclass(frozen=True, slots=True)
class ResearchSample:
    """Payload that arrived at the receiver of a research flow during one window that ends at `at_s`.

    The window lies inside a time in which the flow always had something to send, if it has a capacity.
    `link_capacity_bytes_per_s` (wire) and `reserve_bytes_per_s` (wire) are those of the narrowest link from `source` to
    `target`. Both are 0 if a link between them changed, or the flow is not greedy: then the window counts only for others that
    share a link.
    """

    at_s: float
    window_s: float
    source: str
    target: str
    link_capacity_bytes_per_s: float
    reserve_bytes_per_s: float
    payload_bytes: float
    # that narrowest link, if another than by the description: links change
    narrowest: DirectedLink | None = None
    # all links that it crossed in the window, where that is known: switches with several ways choose by a hash
    way: tuple[DirectedLink, ...] = ()

    @property
    def wire_bytes_per_s(self) -> float:
        """Throughput as the link sees it; 0 for an empty window."""
        return self.payload_bytes * WIRE_PER_PAYLOAD / self.window_s if self.window_s > 0.0 else 0.0


class FlowCompletion(NamedTuple):
    """A research flow with a size that is over; `took_s` None: it was cut."""

    at_s: float
    size_bytes: int
    took_s: float | None


@dataclass(frozen=True, slots=True)
class ResearchShare:
    """A sample, and what all measured research got of a link during its window: the reserve is for all of it.

    A greedy flow fills some link of its way, and there research has its reserve. So of its links the one counts of which
    research got most; its rate is that of as large a part of the narrowest link.
    """

    sample: ResearchSample
    wire_bytes_per_s: float

    @property
    def share(self) -> float:
        """Throughput over the link's capacity, both on the wire."""
        return self.wire_bytes_per_s / self.sample.link_capacity_bytes_per_s


@dataclass(frozen=True, slots=True)
class SwitchProbe:
    """A use of an owner's kill-switch, watched by a prober that goes on trying to connect to the host."""

    host: str
    at_s: float
    # isolate or drain
    kind: str
    # how long the call took
    set_to_closed_s: float
    # from the call's return to the first packet that the kernel dropped; None: none came
    first_drop_after_s: float | None
    # both counted from the call's return
    connections_tried: int
    connections_admitted: int


COORDINATORS = ("coordinator", "standby")  # the second: where there are two


@dataclass(frozen=True, slots=True)
class Death:
    """A process that ended before its time: an agent, the coordinator, a workload."""

    at_s: float
    subject: str
    how: str


@dataclass(frozen=True, slots=True)
class FidelityRecord:
    """Evidence that the machine played the campus as described; an invalid run's figures are not to be used."""

    valid: bool = True
    reasons: Sequence[str] = ()
    figures: Mapping[str, float] = field(default_factory=dict)
    # what the kernel did to each host, to the switches and to the machine; empty where not observed, as in virtual time
    observed: Mapping[str, Observation] = field(default_factory=dict)
    # seconds in which tasks waited or queues dropped, in the run's time
    disturbances: Sequence[DisturbedWindow] = ()
    watched: bool = True


@dataclass(frozen=True, slots=True)
class CheckpointPrice:
    """Least cost of a job's checkpoints in the world that played it; sizes and times as played."""

    payload_bytes: float
    dirty_fraction: float  # share of the state that a step rewrites
    step_s: float  # on a reference GPU
    loss_budget_s: float  # likewise
    pause_s: float  # for which a snapshot stops the job, at least


@dataclass(frozen=True, slots=True)
class RunContext:
    """Context of a run. Times are in seconds since the coordinator started, in the time scale that was played."""

    seed: int
    scale: Scale
    campus: Campus
    # what migrations may use of each direction of each link, payload bytes/s
    share: Mapping[DirectedLink, float]
    on_demand_cost: float
    target_delay_s: float
    # live or virtual
    world: str = "live"
    research: Sequence[ResearchSample] = ()
    # of research flows that have sizes
    completions: Sequence[FlowCompletion] = ()
    switches: Sequence[SwitchProbe] = ()
    fidelity: FidelityRecord = field(default_factory=FidelityRecord)
    # completed, or what cut the run short
    ended: str = COMPLETED
    # None: when the last fact was written
    ended_at_s: float | None = None
    deaths: Sequence[Death] = ()
    # what jobs printed of their steps on their output
    measured: Sequence[MeasuredCurve] = ()
    # the bucket that holds a host's migrations fills at most at the share times the slack ...
    guard_slack: float = GUARD_SLACK
    # ... and lets one super-packet of debt pass beside a burst: so many bytes, or so long at its rate, whichever is more
    guard_burst_bytes: float = GUARD_BURST_BYTES
    guard_burst_s: float = GUARD_BURST_S
    # part of the reserve that a measurement may fall short of it: a receiver's window cuts TCP's bursts at its two ends, and the
    # shaper's own burst borrows from the next window
    research_tolerance: float = 0.05
    scenario: str = ""  # its name
    # system that ran, with its overrides
    policy: str = ""
    # rule of `experiments.results.rules` -> why the system that ran does not promise it
    not_promised: Mapping[str, str] = field(default_factory=dict)
    # whether the system that ran leaves research its reserve
    keeps_reserve: bool = True
    # whether its checkpoints may use what research does not ask for of its reserve
    borrows: bool = False
    # by how much of itself a step takes longer on hosts with an owner, because a replica computes it too
    replica_slowdown: float = 0.0
    # length of a day, and the time of day at which the run began
    day_s: float = DAY_S
    day_start_s: float = 0.0
    # what owners were drawn from; None: it is not known, or the system keeps jobs with their hosts, which lose nothing by waiting
    reclaims: ReclaimLaw | None = None
    # job -> what its checkpoints take at least; empty: it is not known, or jobs are computed twice instead
    prices: Mapping[str, CheckpointPrice] = field(default_factory=dict)
    # r_max, the most that paper B's r may be
    level_max: float = math.inf


def migration_shares(campus: Campus, *, keeps_reserve: bool = True) -> dict[DirectedLink, float]:
    """Return migrations' share of each direction of each link, payload bytes/s: all but max(beta B, B_min) (paper A, VII-B).

    For judges: computed from the campus's description alone, not by the code that decides. `keeps_reserve` False: for a
    system that leaves research nothing.
    """
    shares: dict[DirectedLink, float] = {}
    for link in campus.links:
        share = migration_share(campus, link.rate_bytes_per_s, keeps_reserve=keeps_reserve)
        shares |= dict.fromkeys(link.directions(), share)
    return shares


def migration_share(campus: Campus, wire_bytes_per_s: float, *, keeps_reserve: bool = True) -> float:
    """Return migrations' share of one link of this rate, payload bytes/s."""
    beta, least = campus.research_reserve.beta, campus.research_reserve.minimum_bytes_per_s
    kept = max(beta * wire_bytes_per_s, least) if keeps_reserve else 0.0
    return max(0.0, wire_bytes_per_s - kept) / WIRE_PER_PAYLOAD


def research_shares(context: RunContext) -> list[ResearchShare]:
    """Return every sample that has a window and a link, with the throughput of all flows over that link; in order of time."""
    routes = Routes(context.campus)
    nodes = {node.name for node in context.campus.nodes}
    samples = [s for s in context.research if s.window_s > 0.0 and {s.source, s.target} <= nodes]
    crossing: dict[DirectedLink, list[ResearchSample]] = {}
    for sample in samples:
        route = sample.way or routes.route(sample.source, sample.target)
        if sample.narrowest is not None and sample.narrowest not in route:  # it went around a dead trunk
            route = (sample.narrowest,)
        for link in route:
            crossing.setdefault(link, []).append(sample)
    crossing = {link: sorted(crossed, key=_AT_S) for link, crossed in crossing.items()}
    longest_s = max((sample.window_s for sample in samples), default=0.0)
    capacity, shares = context.campus.capacity_bytes_per_s, []
    for sample in sorted(samples, key=lambda s: s.at_s):
        if sample.source != sample.target and sample.link_capacity_bytes_per_s > 0.0:
            narrowest, rate = (
                sample.narrowest or routes.bottleneck(sample.source, sample.target)[1],
                sample.link_capacity_bytes_per_s,
            )
            parts = {narrowest: 1.0}
            if capacity[narrowest] == rate:
                way = sample.way or routes.route(sample.source, sample.target)
                parts |= {link: rate / capacity[link] for link in way if capacity[link] >= rate and link in crossing}
            together = max(part * _on_a_link(crossing[link], sample, longest_s) for link, part in parts.items())
            shares.append(ResearchShare(sample, together))
    return shares


def _on_a_link(crossing: Sequence[ResearchSample], sample: ResearchSample, longest_s: float) -> float:
    """Return the rate of these together during a sample's window, wire bytes/s.

    They are in order of time; `longest_s`: of any window.
    """
    together = 0.0
    first = bisect_right(crossing, sample.at_s - sample.window_s, key=_AT_S)
    for other in crossing[first : bisect_right(crossing, sample.at_s + longest_s, key=_AT_S)]:
        start_s = max(other.at_s - other.window_s, sample.at_s - sample.window_s)
        overlap_s = max(0.0, min(other.at_s, sample.at_s) - start_s)
        together += other.wire_bytes_per_s * overlap_s / sample.window_s
    return together
