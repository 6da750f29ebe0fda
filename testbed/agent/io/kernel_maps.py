"""The kernel's part of a host, as its agent sees it: the owner's switch, the counters, and whose packets are marked."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import IPv4Address
from math import inf

import trio

from bpf.errors import BpfError
from bpf.layout import MAX_FLOWS, BucketMode, ClassId, Mode, SwitchStatus
from bpf.maps import HostMaps
from bpf.switch import KillSwitch
from testbed import messages as m
from testbed.agent.config import AgentConfig
from testbed.agent.core import events as ev
from testbed.enforcement import CLASS_IDS, Enforcement, FlowGuard, flow_key, set_aggregate, smooth_pacing
from testbed.logs import logger
from testbed.transfer import TransferFailed
from testbed.wire import MessageStream
from topologies.spec import TrafficClass

NO_END_S = 1e6  # a drain that was given no end
# of a host's flow table, what connections that only acknowledge may take: the rest is for transfers of its own.
MAX_MARKED = MAX_FLOWS // 2
LOG = logger("agent")


# of each class that is reported: its name, and which words of memory are its counters
_COUNTED = [(name.value, 4 * number) for name, number in CLASS_IDS.items()]


class KernelMaps:
    """The pinned maps of one host; without them it answers that nothing is there."""

    def __init__(self, config: AgentConfig) -> None:
        self.config = config
        self.maps = HostMaps.open_pinned(config.pin_dir) if config.pin_dir else None
        self._marked = 0  # connections that are metadata now
        self._switch_seen: tuple[int, int] | None = None
        self._sampled: tuple[float, dict[str, m.ClassCount]] | None = None  # the last counters, and when

    def memory(self) -> tuple[memoryview, memoryview]:
        """Return the memory that changes when the owner acts, and the memory that changes when data leaves this host."""
        if self.maps is None:
            return memoryview(b""), memoryview(b"")
        # without what is sent to the coordinator and acknowledged to senders: that alone is not worth a sample
        return self.maps.switch.setting(), self.maps.counters.memory(ClassId.PLANNED, ClassId.RESEARCH)

    def prepare(self) -> ev.SwitchRead | None:
        """Clear the state of a killed predecessor and set the aggregate bucket; a switch that is set already is an event.

        A bucket that a predecessor has set follows the link, which may have changed since this agent received the
        share.
        """
        smooth_pacing()
        if self.maps is None:
            return None
        for key, _ in list(self.maps.flows.items()):
            self.maps.flows.delete(key)
        config, share = self.config, self.config.migration_share_bytes_per_s
        is_set = self.maps.aggregate.state().mode is not BucketMode.ACCOUNT
        if config.enforcement is not Enforcement.NONE and share < inf and not is_set:
            set_aggregate(self.maps, share, migrations_only=config.checkpoints_apart)
        self._mend_switch(self.maps.switch)
        status = self.maps.switch.status()
        self._switch_seen = self.maps.switch.seen
        return None if status.mode is Mode.OFF else _read(status, grace=False)

    def look_at_switch(self, *, grace: bool = False) -> ev.SwitchRead | None:
        """Return the owner's setting since the last look; None if it did not change."""
        if self.maps is None:
            return None
        self._mend_switch(self.maps.switch)
        if self.maps.switch.seen == self._switch_seen:
            return None
        status = self.maps.switch.status()
        self._switch_seen = self.maps.switch.seen
        return _read(status, grace)

    def _mend_switch(self, switch: KillSwitch) -> None:
        """Put right what no owner's command writes: a member of the host's group may write anything."""
        coordinator = IPv4Address(self.config.coordinator[0])
        if not switch.allows_coordinator(coordinator):
            LOG.warning("the switch let another address than the coordinator's pass: it is put right")
            switch.allow_coordinator(coordinator)
        if switch.is_broken:
            LOG.warning("the switch held no setting: it is set to ISOLATE, as the kernel took it")
            switch.set(Mode.ISOLATE)

    def sample(self, flows: list[m.FlowCount], lag_s: float, idle_at_s: float) -> list[ev.Sampled]:
        """Return all counters, with the traffic since the last sample, or since `idle_at_s` if that is later."""
        if self.maps is None:
            return [ev.Sampled({}, flows, None, lag_s)]
        now_s, before, counts = trio.current_time(), self._sampled, self.maps.counters.read_words()
        classes = {name: m.ClassCount(counts[at], counts[at + 1], counts[at + 3]) for name, at in _COUNTED}
        self._sampled = now_s, classes
        if before is None:
            return [ev.Sampled(classes, flows, None, lag_s)]
        from_s, counted = before
        sent = {name: count.bytes - counted[name].bytes for name, count in classes.items()}
        planned, research = sent[TrafficClass.PLANNED], sent[TrafficClass.RESEARCH]
        migration = planned + sent[TrafficClass.PRESYNC]
        sampled: list[ev.Sampled] = []
        if (migration or research) and idle_at_s > from_s:
            idle = m.EgressSample(idle_at_s - from_s, 0, 0, 0)
            sampled, from_s = [ev.Sampled(counted, [], idle, 0.0)], idle_at_s
        held = planned if self.config.checkpoints_apart else migration
        egress = m.EgressSample(now_s - from_s, migration, research, held)
        return [*sampled, ev.Sampled(classes, flows, egress, max(0.0, lag_s))]

    def guard(self, sock: socket.socket, traffic_class: TrafficClass, rate_bytes_per_s: float) -> FlowGuard:
        """Hold a transfer's socket at a rate, as this agent is configured to.

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
        """Mark a connection's traffic as class EF while it is open (paper A, section VII-A: metadata, notifications).

        That holds for control messages and for the acknowledgements of checkpoints that arrive: behind a greedy download of
        its owner's, a receiver's acknowledgements would be late, and the sender slow. More than MAX_MARKED stay unmarked.
        """
        if self.maps is None or not isinstance(stream, trio.SocketStream | MessageStream) or self._marked >= MAX_MARKED:
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


def _read(status: SwitchStatus, grace: bool) -> ev.SwitchRead:
    match status.mode:
        case Mode.OFF:
            return ev.SwitchRead(lent=True)
        case Mode.ISOLATE:
            return ev.SwitchRead(lent=False, isolate_in_s=0.0, grace=grace)
        case Mode.DRAIN:
            at_ns = status.isolate_at_ns
            left_s = (at_ns - time.monotonic_ns()) / 1e9 if at_ns else NO_END_S
            return ev.SwitchRead(lent=False, isolate_in_s=min(max(0.0, left_s), NO_END_S), grace=grace)
