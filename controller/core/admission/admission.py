"""P3: which migrations are admitted, to finish in time for sure, and what each flow may send (paper A, section VII).

A planned migration k has tau_k seconds, of which the restart takes T_r. It finishes in time if it is given r_k >=
C_k/(tau_k - T_r) throughout (eq. 12, Theorem 3). Every link keeps B_res = max(beta B, B_min) for research; what is
left, B_mig, is the account from which migrations and checkpoints are paid. Admission decides whose minimum is
guaranteed; `max_min.fill` divides the rest. A job that is not admitted learns so at once and recovers from its
freshest completed checkpoint.

Where this departs from the print:

- **The path, not one link.** A flow must fit on every link that it crosses, and a refusal names the link.
- **No time, no demand.** tau <= T_r makes eq. (12) negative or infinite: such a flow is infeasible and frees no
  budget for others.
- **Rates may vary.** Eq. (12) holds a rate from notice to deadline: a link on which several rates are held has idle
  room in no moment and urgent work in few. `fluid_edf` reserves bytes by a deadline instead: the link is for the most
  urgent first, and rates follow a timetable (`schedule`). Of 7 flows at 87.5 MB/s with the paper campus's notices it
  admits 6.1 on average; the printed rule, `edf_stop`, admits 2.4. Smallest demand first (5.7) and skipping a flow
  that does not fit (5.3) lie between.
- **Commitments are kept.** Flows admitted earlier hold their floors; newcomers get what is left, and no newcomer's
  deadline removes them. If a link's share shrinks below what was reserved on it (the estimate of research use grew),
  nothing more is admitted there.
- **One account.** Checkpoints (class CS1) draw on the same B_mig, with no floor and capped at P1's b_i.
- **No staggering of deadline flows.** Offsetting starts by tau/K' breaks Theorem 3: a flow that starts late at a rate
  computed for an early start ends late. Paced flows have no slow-start burst to spread. A flow that wants to start
  later (to keep the work of the window) states so in `start_s`. It is charged the higher rate from there.

**What to refuse**, where rates vary. On one link, with equal first moments, all payloads of a set can be delivered
iff, in order of due time, every prefix fits: sum of C up to k <= B (due_k - now). Moore and Hodgson (1968): go
through them by due time, and whenever the prefix no longer fits drop the largest payload in it. What is left is as
many as can be delivered at all. Payloads with a reservation cannot be dropped. The largest of the others is, and the
result is still the most that can be added (held to brute force in tests).

Beyond that (first moments that differ, caps, several links) the question which to drop is NP-hard. The same walk is
then a heuristic with an exact floor: a set is kept only if `timetable` has a schedule for it. It differs from the
print in two ways (of 3 000 small instances on networks, 3 had a set with one more). It drops the largest of those
whose absence makes room. It looks once more, smallest first, at each that was dropped: what it was dropped for may be
gone.

**Comfort.** A job would rather be stopped late: while it waits it computes, and a copy of its state travels ahead.
So a migration may name a moment after its first one, from which it would rather be sent. That is granted only where
all are in time with it: admission is decided without.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from controller.core.admission.schedule import MigrationRequest, Timetable, by_due, timetable
from controller.core.network.links import fits
from controller.core.network.max_min import Wants
from controller.numerics.arrays import Floats, Numbers
from topologies.paths import Way
from topologies.spec import DirectedLink

COMFORTABLE = 0.5  # of a link's share: up to here ways are taken as they come


class Reason(StrEnum):
    """Reasons to refuse a migration."""

    NO_TIME = "the notice is not longer than the restart"
    NO_ROOM = "a link cannot carry its minimum rate beside those admitted"
    BEHIND = "an earlier deadline did not fit"  # only where admission stops there, as printed
    CAPPED = "its host cannot send at its minimum rate"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Reason for refusing a flow, and the link that is shortest of room for it."""

    reason: Reason
    link: DirectedLink | None = None


@dataclass(frozen=True, slots=True)
class Admission:
    """Answer of P3: requests that are admitted, with their rates, and those that are refused."""

    admitted: dict[str, float]  # key -> guaranteed payload bytes/s; where rates vary, those of this moment
    refused: dict[str, Refusal]  # all others, for degraded recovery
    # where rates vary: all, earlier reservations included
    timetable: Timetable = field(default_factory=Timetable)


@dataclass(frozen=True, slots=True)
class Held:
    """A rate that is held on each of these links, whatever comes."""

    key: str
    links: tuple[DirectedLink, ...]
    rate_bytes_per_s: float


# what has to be left room for; of a request, bytes that are still to be there by its deadline
Commitment = Held | MigrationRequest
Requests = Sequence[MigrationRequest]
Commitments = Sequence[Commitment]
LinkShares = Mapping[DirectedLink, float]  # what migrations may take of each link, payload bytes/s
Admit = Callable[[Requests, float, LinkShares, Commitments], Admission]
Share = Callable[[Wants, Floats], tuple[Floats, Numbers]]


def minimum_rate(payload_bytes: float, notice_s: float, restart_s: float) -> float:
    """Return r_min = C/(tau - T_r) in bytes/s (eq. 12); infinite if tau <= T_r: no rate can meet the deadline."""
    time_s = notice_s - restart_s
    return payload_bytes / time_s if time_s > 0.0 else math.inf


def edf_stop(requests: Requests, now_s: float, share: LinkShares, committed: Commitments = ()) -> Admission:
    """Admit by earliest deadline at constant rates, as printed: the first request that does not fit ends admission.

    All that can start as early as they may are admitted first; then, of those, all that can start when it would be welcome.
    `share`: payload bytes/s that migrations may take of each link; `committed`: flows admitted earlier, whose floors are
    untouched. Ties go to the first key.
    """
    taken, answer, stopped = committed_rates(committed, now_s), Admission({}, {}), False
    ordered = sorted(requests, key=lambda request: (request.deadline_s, request.key))
    for request in ordered:
        rate = _rate(request, now_s)
        if rate == math.inf:
            answer.refused[request.key] = Refusal(Reason.NO_TIME)
        elif stopped:
            answer.refused[request.key] = Refusal(Reason.BEHIND)
        elif rate > request.cap_bytes_per_s:
            answer.refused[request.key] = Refusal(Reason.CAPPED)
        elif (link := _too_full(request.links, rate, taken, share)) is not None:
            answer.refused[request.key] = Refusal(Reason.NO_ROOM, link)
            stopped = True
        else:
            answer.admitted[request.key] = rate
            _take(taken, request.links, rate)
    for request in ordered:
        later = _rate(request.comfortable, now_s)
        if request.key in answer.refused or later == math.inf or later > request.cap_bytes_per_s:
            continue
        more = later - answer.admitted[request.key]
        if more > 0.0 and _too_full(request.links, more, taken, share) is None:
            answer.admitted[request.key] = later
            _take(taken, request.links, more)
    return answer


def fluid_edf(requests: Requests, now_s: float, share: LinkShares, committed: Commitments = ()) -> Admission:
    """Admit by earliest deadline first with rates that vary, and by Moore and Hodgson's choice of what to refuse.

    As many requests are admitted as can be delivered beside what is `committed`. Of that, a `Held` rate stays for
    ever. A `MigrationRequest` (what is left of a payload) is planned again, earlier or later, but always in time. The
    timetable has both.

    Exact on one link with equal starts; sound everywhere: a migration that is admitted is in time if the timetable is
    followed. No reservation is broken by an admission. One that is late is late without it too (a share shrank, a
    transfer stalled), and nothing is admitted on the links that it crosses. Without requests: the timetable of what
    is committed. Independent of the order of both. ValueError: a key twice.
    """
    free = share
    if held := [each for each in committed if isinstance(each, Held)]:
        taken = committed_rates(held, now_s)
        free = {**share, **{link: max(0.0, share[link] - rate) for link, rate in taken.items()}}
    hopeful = [r for r in requests if r.due_s > max(now_s, r.start_s)]
    reserved = [each for each in committed if isinstance(each, MigrationRequest)]
    everything = sorted((*hopeful, *reserved), key=by_due)
    if len({each.key for each in everything}) != len(everything):
        raise ValueError("two migrations have the same key")
    schedule = timetable([each.comfortable for each in everything], now_s, free)
    crowded: dict[str, DirectedLink | None] = {}
    if schedule.late:
        schedule, crowded = _choose(hopeful, reserved, now_s, free)
    refused = {r.key: Refusal(Reason.NO_TIME) for r in requests if r not in hopeful}
    refused |= {key: Refusal(Reason.NO_ROOM, link) for key, link in crowded.items()}
    rates = {r.key: schedule.rate_at(r.key, now_s) for r in hopeful if r.key not in refused}
    return Admission(rates, refused, schedule)


def _choose(
    requests: Requests, reserved: Requests, now_s: float, share: LinkShares
) -> tuple[Timetable, dict[str, DirectedLink | None]]:
    """Return the schedule of as many requests as fit beside those reserved; and all others, each with the link that is full."""
    late = timetable(reserved, now_s, share).late
    if late and not timetable([each.comfortable for each in reserved], now_s, share).late:
        # late if all start at once, but not as planned: they stay as planned, since no rule is monotone in starts
        late, reserved = frozenset(), [each.comfortable for each in reserved]

    def fit(some: Requests) -> bool:
        """Return whether every one that can be in time at all is delivered in time."""
        return timetable(some, now_s, share).late <= late

    def use(one: MigrationRequest) -> tuple[bool, float, tuple[float, str]]:
        """Return the use of dropping one of those kept: whether all others fit, and its payload."""
        return fit([each for each in kept if each is not one]), one.payload_bytes, by_due(one)

    sore = {link for each in reserved if each.key in late for link in each.links}
    kept, dropped = list[MigrationRequest](), list[MigrationRequest]()
    for request in sorted((*(r for r in requests if sore.isdisjoint(r.links)), *reserved), key=by_due):
        kept.append(request)
        # it may be that reservations alone do not fit in this order, though all of them do
        while not fit(kept) and (droppable := [each for each in kept if each not in reserved]):
            dropped.append(max(droppable, key=use))
            kept.remove(dropped[-1])
    for request in sorted(dropped, key=lambda each: (each.payload_bytes, by_due(each))):
        kept += [request] if fit([*kept, request]) else []
    kept.sort(key=by_due)
    names = {each.key for each in kept}
    crowded = {each.key: _crowded(each, kept, share) for each in requests if each.key not in names}
    for place, request in enumerate(kept):  # as many as can start when they would rather, the earliest due time first
        kept[place] = request.comfortable
        if not fit(kept):
            kept[place] = request
    return timetable(kept, now_s, share), crowded


def _crowded(request: MigrationRequest, kept: Requests, share: LinkShares) -> DirectedLink | None:
    """Return the link on which what is due before it, itself included, overruns its due time most."""

    def needed_s(link: DirectedLink) -> float:
        before = (w.payload_bytes for w in (*kept, request) if link in w.links and w.due_s <= request.due_s)
        return math.fsum(before) / share[link] if share[link] else math.inf

    return max(request.links, key=needed_s, default=None)


def admit_all(requests: Requests, now_s: float, share: LinkShares, committed: Commitments = ()) -> Admission:
    """Admit every request and reserve nothing for it (floor 0): a baseline without admission control."""
    return Admission({request.key: 0.0 for request in requests}, {})


def _rate(request: MigrationRequest, now_s: float) -> float:
    """Return the minimum rate from when it can start."""
    notice_s = request.deadline_s - max(now_s, request.start_s)
    return minimum_rate(request.payload_bytes, notice_s, request.restart_s)


def _too_full(
    links: Sequence[DirectedLink], rate: float, taken: Mapping[DirectedLink, float], share: LinkShares
) -> DirectedLink | None:
    """Return the link that the rate overfills most; None if it fits on all."""
    over = [link for link in links if not fits(taken.get(link, 0.0) + rate, share[link])]
    return max(over, key=lambda link: taken.get(link, 0.0) - share[link], default=None)


def committed_rates(commitments: Commitments, now_s: float) -> dict[DirectedLink, float]:
    """Return the load of commitments on each link now; bytes by a deadline count at their minimum rate."""
    taken: dict[DirectedLink, float] = {}
    for each in commitments:
        held = each.rate_bytes_per_s if isinstance(each, Held) else _rate(each, now_s)
        _take(taken, each.links, 0.0 if held == math.inf else held)
    return taken


def _take(taken: dict[DirectedLink, float], links: Sequence[DirectedLink], rate: float) -> None:
    for link in links:
        taken[link] = taken.get(link, 0.0) + rate


def emptiest_first(
    ways: Sequence[Way], asked: MigrationRequest, now_s: float, share: LinkShares, committed: Commitments
) -> list[Way]:
    """Return the ways on which every link stays half empty, as they come; then the others by their fullest link.

    A migration would rather start half-way through its notice (`migration`), which doubles the rate that it needs. The first
    way is the tree's, so what fits there goes there.
    """
    taken, within_s = committed_rates(committed, now_s), asked.deadline_s - max(now_s, asked.start_s)
    needed = minimum_rate(asked.payload_bytes, within_s, asked.restart_s)
    rate = needed if needed < math.inf else 0.0

    def fullest(way: Way) -> float:
        carried = [(taken.get(link, 0.0) + rate, share[link]) for link in way]
        return max((load / of if of > 0.0 else math.inf for load, of in carried if load > 0.0), default=0.0)

    return sorted(ways, key=lambda way: max(COMFORTABLE, fullest(way)))
