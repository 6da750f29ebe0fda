"""Rules about rates: grants, traffic on the wire, the reserve of research, and hosts that are closed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import groupby

from controller.core.model import facts as f
from experiments.results.history import Timed, only
from experiments.results.link_rates import WAYS, Flow, GrantsInForce, LinkRates
from experiments.results.rules.breach import RATE_TOLERANCE, Breach
from experiments.results.run_context import (
    SUPER_PACKET_BYTES,
    RunContext,
    migration_share,
    migration_shares,
    research_shares,
)
from topologies.errors import SpecError
from topologies.spec import DirectedLink, TrafficClass
from topologies.units import WIRE_PER_PAYLOAD, format_rate

REPORTED_S = 3.0  # the longest from the kernel's change of a link to an agent's counters of a window before it
SAMPLE_S = 0.1  # the sampling period behind peak_migration_bytes_per_s


def grants_stay_within_the_share(facts: Sequence[Timed], context: RunContext) -> Iterator[Breach]:
    """Check that at every moment no more is granted over a link than migrations may use of it.

    Facts of one moment are one new sharing, and compared as one.

    Where checkpoints are below research, that holds for all else that is granted, and no stream of checkpoints is
    granted more than the link has. Where they borrow, all together are granted no more than that, or than migrations
    and those streams take whose senders cannot learn of it.
    """
    account = _GrantAccount(context)
    kinds = (f.Granted, f.GrantEnded, *WAYS, f.HostLost, f.HostJoined)
    for at_s, moment in groupby(only(facts, kinds), key=lambda timed: timed[0]):
        changed: set[DirectedLink] = set()
        for _, fact in moment:
            try:
                links = account.note(at_s, fact)
                changed |= set() if isinstance(fact, f.GrantEnded) else links  # where grants rose
            except SpecError as error:
                yield Breach(getattr(fact, "job", ""), at_s, f"a grant that has no route: {error}")
        for link, over in sorted((str(link), over) for link in changed if (over := account.excess(link))):
            yield Breach(link, at_s, over)


def goodputs_over_guarantee(facts: Sequence[Timed], context: RunContext) -> Iterator[float]:
    """Yield, for each measured transfer, its goodput over the part of its grants that was no loan of research's reserve.

    A transfer of which all was lent is left out.
    """
    account = _GrantAccount(context)
    # times, granted and guaranteed rates from then on
    since: dict[Flow, list[tuple[float, float, float]]] = {}
    for at_s, fact in only(facts, (f.Granted, f.GrantEnded, f.TransferFinished, *WAYS)):
        if not isinstance(fact, f.TransferFinished):
            with suppress(SpecError):  # a host that the campus does not have
                for flow, granted, guaranteed in account.guaranteed(account.note(at_s, fact)):
                    since.setdefault(flow, []).append((at_s, granted, guaranteed))
            continue
        flow, until_s, sums = (fact.job, fact.source, fact.destination), at_s, [0.0, 0.0]
        for from_s, *rates in reversed(since.get(flow, [])):
            lasted_s = max(0.0, until_s - max(from_s, at_s - fact.duration_s))
            sums, until_s = [sum_ + rate * lasted_s for sum_, rate in zip(sums, rates, strict=True)], from_s
        since[flow] = since.get(flow, [])[-1:]
        if fact.goodput_over_grant is not None and (sums[1] or not sums[0]):
            yield fact.goodput_over_grant * (sums[0] / sums[1] if sums[0] else 1.0)


class _GrantAccount:
    """The grants in force on each link against what they may take, payload bytes/s."""

    def __init__(self, context: RunContext) -> None:
        self._context, self._grants = context, GrantsInForce(context.campus)
        self._share = dict(context.share)
        self._changed: set[DirectedLink] = set()  # links that have not their described rate any more
        self._lost: set[str] = set()  # hosts that cannot receive anything: they keep the rate that they have
        self._yielding: set[Flow] = set()  # flows that may exceed the share
        self._parts: dict[DirectedLink, float] = {}  # what a link guarantees of such a flow's grant
        self._whole = migration_shares(context.campus, keeps_reserve=False)

    def note(self, at_s: float, fact: f.AnyFact) -> set[DirectedLink]:
        """Take in a fact; return the links on which grants changed. SpecError: the campus has no such hosts."""
        match fact:
            case f.LinkChanged(source, target, rate):
                link, keeps = DirectedLink(source, target), self._context.keeps_reserve
                self._share[link] = migration_share(self._context.campus, rate, keeps_reserve=keeps)
                self._whole[link] = migration_share(self._context.campus, rate, keeps_reserve=False)
                self._changed.add(link)
            case f.HostLost(host=host):
                self._lost.add(host)
            case f.HostJoined(host=host):
                self._lost.discard(host)
        changed = self._grants.note(at_s, fact)
        if isinstance(fact, WAYS):  # grants that were moved to other links
            self._changed |= changed
        if isinstance(fact, f.Granted | f.GrantEnded):
            flow = (fact.job, fact.source, fact.destination)
            self._yielding.discard(flow)
            if isinstance(fact, f.Granted) and self._context.borrows and fact.traffic_class == TrafficClass.PRESYNC:
                self._yielding.add(flow)
        return changed

    def guaranteed(self, links: set[DirectedLink]) -> Iterator[tuple[Flow, float, float]]:
        """Yield the flows on links that have changed, with their grants, and what of these is guaranteed.

        Streams that may exceed the share are guaranteed what other grants leave of it, each in proportion to its own.
        """
        for link in links:
            on = self._grants.on.get(link, {})
            streams = sum(rate for flow, rate in on.items() if flow in self._yielding)
            left = self._share.get(link, 0.0) - (sum(on.values()) - streams)
            self._parts[link] = min(1.0, max(0.0, left) / streams) if streams else 1.0
        for flow, rate in {x: rate for link in links for x, rate in self._grants.on.get(link, {}).items()}.items():
            parts = [self._parts[link] for link in self._grants.way(flow)] if flow in self._yielding else []
            yield flow, rate, rate * min(parts, default=1.0)

    def excess(self, link: DirectedLink) -> str | None:
        """Return the excess on a link in words, if there is any. A rate that is no number is one, too."""
        flows = self._grants.on.get(link, {})
        if link in self._changed:  # a sender that cannot learn of it keeps the rate that fitted before
            flows = {flow: rate for flow, rate in flows.items() if flow[1] not in self._lost}
        held = {flow: rate for flow, rate in flows.items() if flow not in self._yielding}
        granted, share = sum(held.values()), self._share.get(link, 0.0)
        if granted <= share * (1.0 + RATE_TOLERANCE):
            # streams that may borrow have, with all else, at most the whole link; the stream of a lost sender keeps its rate, and
            # yields on the wire to migrations admitted meanwhile
            streams = {flow: rate for flow, rate in flows.items() if flow in self._yielding}
            kept = sum(rate for flow, rate in streams.items() if flow[1] in self._lost)
            share = max(self._whole.get(link, 0.0), granted + kept)
            granted += sum(streams.values())
            if granted <= share * (1.0 + RATE_TOLERANCE):
                return None
        named = ", ".join(f"{job} {a}->{b} {format_rate(rate)}" for (job, a, b), rate in flows.items())
        return f"{format_rate(granted)} granted where {format_rate(share)} may be: {named}"


def migrations_leave_within_the_share(facts: Sequence[Timed], context: RunContext) -> Iterator[Breach]:
    """Check the wire bytes that the kernel counted leaving a host in migration classes against its access link's share.

    Checkpoints that may borrow are not counted there, and with all else within the link's rate.
    Allowed in a window are the rate of the host's aggregate bucket times the window, its burst, and one super-packet of
    debt; for the peak the window is one sample.
    """
    rates = LinkRates(context.campus, facts)
    for at_s, fact in facts:
        if not isinstance(fact, f.EgressMeasured):
            continue
        if fact.host not in context.campus.host_by_name:
            yield Breach(fact.host, at_s, "egress of a host that the campus does not have")
            continue
        link = context.campus.access_link(fact.host)
        up = DirectedLink(fact.host, link.b if link.a == fact.host else link.a)
        # counters lie a heartbeat back, and the kernel's change a moment before the coordinator's word of it
        _, fastest = rates.extremes(up, at_s - fact.window_s - REPORTED_S, at_s + REPORTED_S)
        share = migration_share(context.campus, fastest, keeps_reserve=context.keeps_reserve)
        if context.keeps_reserve and fastest == context.campus.capacity_bytes_per_s.get(up):
            share = context.share.get(up, 0.0)
        whole = migration_share(context.campus, fastest, keeps_reserve=False)
        for what, most, size, window_s in (
            ("migration bytes sent", share, fact.held_bytes, fact.window_s),
            ("peak of migration bytes sent", share, fact.peak_held_bytes_per_s * SAMPLE_S, SAMPLE_S),
            ("bytes of migrations and checkpoints sent", whole, fact.migration_bytes, fact.window_s),
            ("peak of both", whole, fact.peak_migration_bytes_per_s * SAMPLE_S, SAMPLE_S),
        ):
            rate = most * WIRE_PER_PAYLOAD * context.guard_slack
            burst = max(context.guard_burst_bytes, rate * context.guard_burst_s) + SUPER_PACKET_BYTES
            allowed = rate * window_s + burst
            if not size <= allowed * (1.0 + RATE_TOLERANCE):
                yield Breach(fact.host, at_s, f"{what}: {size:.0f} bytes in {window_s:.3g} s, at most {allowed:.0f}")


def research_keeps_its_reserve(facts: Sequence[Timed], context: RunContext) -> Iterator[Breach]:
    """Check that research gets the reserve of its narrowest link, less the tolerance, while a greedy flow of it runs."""
    for measured in research_shares(context):
        sample = measured.sample
        least = sample.reserve_bytes_per_s * (1.0 - context.research_tolerance)
        if not measured.wire_bytes_per_s >= least:
            got, kept = format_rate(measured.wire_bytes_per_s), format_rate(sample.reserve_bytes_per_s)
            words = f"research got {got} where {kept} are kept for it"
            yield Breach(f"{sample.source}>{sample.target}", sample.at_s, words)


def closed_hosts_admit_nobody(facts: Sequence[Timed], context: RunContext) -> Iterator[Breach]:
    """Check that no new connection gets in after the kill-switch call has returned."""
    for probe in context.switches:
        if probe.connections_admitted > 0:
            admitted, tried = probe.connections_admitted, probe.connections_tried
            yield Breach(probe.host, probe.at_s, f"{admitted} of {tried} connections got in after {probe.kind}")
