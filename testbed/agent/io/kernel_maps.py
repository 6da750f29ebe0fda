"""The kernel's part of a host, as its agent sees it: the owner's switch, the counters, and whose packets are marked."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf
from typing import Protocol

import trio

from bpf.errors import BpfError
from bpf.layout import MAX_FLOWS, BucketMode, ClassId, Mode, SwitchStatus
from bpf.maps import HostMaps
from testbed import messages as m
from testbed.agent.config import AgentConfig
from testbed.agent.core import events as ev
from testbed.enforcement import CLASS_IDS, Enforcement, FlowGuard, flow_key, set_aggregate, smooth_pacing
from testbed.logs import logger
from testbed.transfer import TransferFailed
from testbed.wire import MessageStream
from topologies.spec import TrafficClass

SAMPLE_S = 0.1  # paper A, section V-E: egress counters at 100 ms
COUNTING_SHARE = 0.04  # of a processor, for a process's agents together
IDLE_SAMPLE_S = 2.0  # of a host that sends nothing
NO_END_S = 1e6  # a drain that was given no end
# of a host's flow table, what connections that only acknowledge may take: the rest is for transfers of its own.
MARKED_MOST = MAX_FLOWS // 2
LATE_S = 0.5  # a look that comes so late is told, of an idle host too
LOG = logger("agent")


@dataclass(frozen=True, slots=True)
class _Sample:
    """Counters at one time: those of data as they lie in memory, all as they are told; wire bytes of migrations and research."""

    at_s: float
    words: bytes
    migration_bytes: int
    research_bytes: int
    classes: dict[str, m.ClassCount]


class KernelMaps:
    """The pinned maps of one host; without them it answers that nothing is there."""

    def __init__(self, config: AgentConfig) -> None:
        self.config = config
        self.maps = HostMaps.open_pinned(config.pin_dir) if config.pin_dir else None
        self._marked = 0  # connections that are metadata now
        self._switch_seen: tuple[int, int] | None = None
        self._sampled: _Sample | None = None  # the last one
        self._idle_at_s = -inf  # the last look that saw no difference

    def prepare(self) -> ev.SwitchRead | None:
        """Clears what a killed predecessor left and sets the aggregate bucket; a switch that is set already is an event."""
        smooth_pacing()
        if self.maps is None:
            return None
        for key, _ in list(self.maps.flows.items()):
            self.maps.flows.delete(key)
        config = self.config
        if config.enforcement is not Enforcement.NONE and config.migration_share_bytes_per_s < inf:
            share = config.migration_share_bytes_per_s
            set_aggregate(self.maps, share, migrations_only=config.scavenger)
        status = self.maps.switch.status()
        self._switch_seen = (status.mode, status.set_at_ns)
        return None if status.mode is Mode.OFF else _read(status, grace=False)

    def look_at_switch(self, *, grace: bool = False) -> ev.SwitchRead | None:
        """What the owner has set since the last look; None: nothing."""
        if self.maps is None:
            return None
        if self.maps.switch.seen == self._switch_seen:
            return None
        status = self.maps.switch.status()
        self._switch_seen = (status.mode, status.set_at_ns)
        return _read(status, grace)

    def sample(self, flows: list[m.FlowCount], lag_s: float) -> list[ev.Sampled]:
        """All counters now, with what left this host since the last sample; nothing, for at most two seconds, of an idle host."""
        if self.maps is None:
            return [ev.Sampled({}, flows, None, lag_s)]
        now_s, before = trio.current_time(), self._sampled
        # without what is said to the coordinator and acknowledged to senders: that alone is not worth a sample
        words = self.maps.counters.words(ClassId.PLANNED, ClassId.RESEARCH)
        is_idle = before is not None and words == before.words and not flows and lag_s < LATE_S
        if before is not None and is_idle and now_s < before.at_s + IDLE_SAMPLE_S:
            self._idle_at_s = now_s
            return []
        traffic = self.maps.counters.read_all()
        migration = traffic[ClassId.PLANNED].bytes + traffic[ClassId.PRESYNC].bytes
        research = traffic[ClassId.RESEARCH].bytes
        classes = {
            name.value: m.ClassCount(traffic[i].bytes, traffic[i].packets, traffic[i].dropped_packets)
            for name, i in CLASS_IDS.items()
        }
        self._sampled = _Sample(now_s, words, migration, research, classes)
        if before is None:
            return [ev.Sampled(classes, flows, None, lag_s)]
        sampled, from_s = [], before.at_s
        if words != before.words and self._idle_at_s > from_s:  # what left, left since the last look
            idle = m.EgressSample(0.0, self._idle_at_s - from_s, 0, 0)
            sampled, from_s = [ev.Sampled(before.classes, [], idle, 0.0)], self._idle_at_s
        egress = m.EgressSample(
            0.0, now_s - from_s, migration - before.migration_bytes, research - before.research_bytes
        )
        return [*sampled, ev.Sampled(classes, flows, egress, max(0.0, lag_s))]

    def guard(self, sock: socket.socket, traffic_class: TrafficClass, rate_bytes_per_s: float) -> FlowGuard:
        """Holds a transfer's socket at a rate, as this agent is configured to.

        Raises TransferFailed where there is nothing to hold: the flow table is full, or the connection is gone already.
        """
        try:
            return FlowGuard(
                self.maps,
                sock,
                traffic_class,
                rate_bytes_per_s,
                enforcement=self.config.enforcement,
                congestion=self.config.congestion,
            )
        except (BpfError, OSError) as error:
            raise TransferFailed(f"no guard for its flow: {error}", retryable=True) from error

    @contextmanager
    def as_metadata(self, stream: trio.abc.Stream) -> Iterator[None]:
        """What this host says on a connection is class EF while it is open (paper A, section VII-A: metadata, notifications).

        That holds for control messages and for the acknowledgements of checkpoints that arrive: behind a greedy download of
        its owner's, a receiver's acknowledgements would be late, and the sender slow. More than MARKED_MOST stay unmarked.
        """
        if (
            self.maps is None
            or not isinstance(stream, trio.SocketStream | MessageStream)
            or self._marked >= MARKED_MOST
        ):
            yield
            return
        try:
            key = flow_key(stream.socket)
            self.maps.flows.delete(key)  # of a connection that had the same ports
            self.maps.flows.insert(key, traffic_class=ClassId.EMERGENCY, mode=BucketMode.ACCOUNT)
        except (BpfError, OSError) as error:
            LOG.warning("not marked: %s", error)  # the table is full, or the peer gone already
            yield
            return
        self._marked += 1
        try:
            yield
        finally:
            self._marked -= 1
            self.maps.flows.delete(key)


class Watched(Protocol):
    """A host whose kernel maps are looked at."""

    def see_owner(self) -> None:
        """Takes in what the owner has set."""

    def count(self, lag_s: float) -> None:
        """Takes in what the kernel counted; `lag_s` later than it should."""


async def watch(hosts: Sequence[Watched]) -> None:
    """Looks at the switch of each host (there may be more of them later) every SAMPLE_S, until cancelled.

    Counters are read as often, but where many transfers run in one process: reading takes COUNTING_SHARE of a processor at most.
    """
    due_s = counts_at_s = trio.current_time()
    while True:
        due_s += SAMPLE_S
        await trio.sleep_until(due_s)
        now_s, lag_s = trio.current_time(), trio.current_time() - due_s
        for host in hosts:
            host.see_owner()
        if now_s >= counts_at_s:
            began_s = time.thread_time()
            for host in hosts:
                host.count(lag_s)
            counts_at_s = now_s + (time.thread_time() - began_s) / COUNTING_SHARE - SAMPLE_S / 2.0
        # late once is not early the next time: no period is shorter than it says
        due_s = max(due_s, now_s)


def _read(status: SwitchStatus, grace: bool) -> ev.SwitchRead:
    match status.mode:
        case Mode.OFF:
            return ev.SwitchRead(lent=True)
        case Mode.ISOLATE:
            return ev.SwitchRead(lent=False, isolate_in_s=0.0, grace=grace)
        case Mode.DRAIN:
            at_ns = status.isolate_at_ns
            left_s = (at_ns - time.monotonic_ns()) / 1e9 if at_ns else NO_END_S
            return ev.SwitchRead(lent=False, isolate_in_s=max(0.0, left_s), grace=grace)
