"""Typed views of the maps that the programs share with user space.

The hash of flows only records in which slot of the meters a flow counts. Putting a flow in, finding it and taking it
out are system calls (1 to 2 us). All else is memory: a grant, a counter and the kill-switch are loads and stores. These
work on a pinned map when every other process of the testbed is dead.
"""

from __future__ import annotations

import ctypes
import errno
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path
from typing import Self

from bpf.errors import BpfError
from bpf.layout import MAX_FLOWS, BucketMode, ClassId, FlowKeyStruct, SwitchStatus
from bpf.library import check, libbpf
from bpf.memory import KernelMap, MappedMap, open_pinned_fd
from bpf.meters import Meters, MeterState, Traffic, check_grant
from bpf.switch import KillSwitch

__all__ = [
    "AggregateBucket",
    "ClassCounters",
    "FlowKey",
    "FlowTable",
    "HostMaps",
    "KillSwitch",
    "MeterState",
    "SwitchStatus",
    "Traffic",
]

BPF_NOEXIST = 1
METERS = "meters"  # pinned beside the flow table


@dataclass(frozen=True, slots=True)
class FlowKey:
    """A flow as its packets name it: from this host's `source` to `destination`; `protocol` is 6 (TCP) or 17 (UDP)."""

    source: IPv4Address
    source_port: int
    destination: IPv4Address
    destination_port: int
    protocol: int = 6

    def packed(self) -> bytes:
        """Return the key as `struct flow_key`."""
        ports = self.source_port.to_bytes(2, "big") + self.destination_port.to_bytes(2, "big")
        return self.source.packed + self.destination.packed + ports + bytes([self.protocol, 0, 0, 0])

    @classmethod
    def unpacked(cls, raw: bytes) -> Self:
        """Return the key of which `raw` is the packed form."""
        ports = int.from_bytes(raw[8:10], "big"), int.from_bytes(raw[10:12], "big")
        return cls(IPv4Address(raw[:4]), ports[0], IPv4Address(raw[4:8]), ports[1], raw[12])


class FlowTable(KernelMap):
    """Flows under enforcement and their meters. One process at a time may insert; any may read, change and delete."""

    def __init__(self, fd: int, meters: Meters) -> None:
        super().__init__(fd)
        self.meters = meters
        self._last_slot = -1

    @classmethod
    def open_pinned(cls, path: Path | str) -> Self:
        """Return the table pinned at `path`, with its meters beside it; BpfError if there is none."""
        meters = Meters.open_pinned(Path(path).with_name(METERS))
        try:
            return cls(open_pinned_fd(path), meters)
        except BpfError:
            meters.close()
            raise

    def pin(self, path: Path | str) -> None:
        """Pin the table at `path` and its meters beside it."""
        super().pin(path)
        self.meters.pin(Path(path).with_name(METERS))

    def close(self) -> None:
        """Close table and meters (once)."""
        super().close()
        self.meters.close()

    def insert(
        self, key: FlowKey, *, traffic_class: ClassId, mode: BucketMode, rate_bytes_per_s: int = 0, burst_bytes: int = 0
    ) -> int:
        """Insert a flow with a full bucket. Rates are of wire bytes.

        Returns its slot of `meters`, which is the flow's until it is taken out.

        BpfError: EEXIST if the flow is there already, E2BIG if the table (MAX_FLOWS) is full.
        """
        check_grant(rate_bytes_per_s, burst_bytes)
        slot = self.meters.find_free(self._last_slot)
        self.meters.reset(slot, traffic_class, mode)
        self.meters.set_rate(slot, rate_bytes_per_s, burst_bytes)
        self.meters.set_credit(slot)
        packed = key.packed(), slot.to_bytes(4, "little")
        try:
            check(libbpf().bpf_map_update_elem(self.fd, *packed, BPF_NOEXIST), f"insert {key}")
        except BpfError:
            self.meters.release(slot)
            raise
        self._last_slot = slot
        return slot

    def lookup(self, key: FlowKey) -> MeterState | None:
        """Return the flow's bucket and counters; None if it is not there."""
        slot = self._slot(key.packed())
        return None if slot is None else self.meters.read(slot)

    def update_rate(self, key: FlowKey, rate_bytes_per_s: int, burst_bytes: int) -> None:
        """Change the rate (and depth) of a flow that keeps its credit and its counters; BpfError ENOENT if unknown."""
        slot = self._slot(key.packed())
        if slot is None:
            raise BpfError(f"change the rate of {key}", errno.ENOENT)
        self.meters.set_rate(slot, rate_bytes_per_s, burst_bytes)

    def delete(self, key: FlowKey) -> MeterState | None:
        """Take a flow out; its last state, or None if it was not there."""
        slot = self._slot(key.packed())
        if slot is None or libbpf().bpf_map_delete_elem(self.fd, key.packed()) == -errno.ENOENT:
            return None
        last = self.meters.read(slot)
        self.meters.release(slot)
        return last

    def items(self) -> Iterator[tuple[FlowKey, MeterState]]:
        """Yield every flow that is there from beginning to end of the walk; others may or may not appear."""
        for raw in self._keys():
            slot = self._slot(raw)
            if slot is not None:
                yield FlowKey.unpacked(raw), self.meters.read(slot)

    def _slot(self, packed: bytes) -> int | None:
        found = ctypes.c_uint32()
        status = libbpf().bpf_map_lookup_elem(self.fd, packed, ctypes.byref(found))
        if status == -errno.ENOENT:
            return None
        check(status, "look for a flow")
        return found.value

    def _keys(self) -> list[bytes]:
        """Return the keys of all flows.

        A flow taken out in the middle of the walk starts it again; 4 rounds are enough or the table is boiling.
        """
        found: dict[bytes, None] = {}
        here, after = None, ctypes.create_string_buffer(ctypes.sizeof(FlowKeyStruct))
        for _ in range(4 * MAX_FLOWS):
            if libbpf().bpf_map_get_next_key(self.fd, here, after):
                break
            here = after.raw
            found[here] = None
        return list(found)


class AggregateBucket(Meters):
    """The host's one bucket for all migration traffic (classes PLANNED and PRESYNC); it only counts until `set_grant`."""

    size_bytes = MappedMap.size_bytes

    def set_grant(self, rate_bytes_per_s: int, burst_bytes: int) -> None:
        """Set wire bytes/s and depth from now on; a bucket that only counted begins full, another keeps its credit."""
        self.set_rate(0, rate_bytes_per_s, burst_bytes)
        if self.records[0].mode == BucketMode.ACCOUNT:
            self.set_credit(0)
        self.records[0].mode = BucketMode.DEBT

    def unset(self) -> None:
        """Return to counting only."""
        self.records[0].mode = BucketMode.ACCOUNT

    @property
    def migrations_only(self) -> bool:
        """True if checkpoints pass uncharged."""
        return bool(self.records[0].migrations_only)

    @migrations_only.setter
    def migrations_only(self, yes: bool) -> None:
        self.records[0].migrations_only = yes

    def state(self) -> MeterState:
        """Return bucket and counters; the class in it has no meaning."""
        return self.read(0)


class ClassCounters(MappedMap):
    """Traffic that left the host, by class."""

    def read(self, traffic_class: ClassId) -> Traffic:
        """Return counters of one class since the programs were loaded; each of the four is exact, they are not one instant."""
        first = traffic_class * 4
        return Traffic(*self.u64[first : first + 4])

    def memory(self, first: ClassId, last: ClassId) -> memoryview:
        """Return the counters of some classes as they lie in memory: the same bytes, the same counts."""
        return self.u8[32 * first : 32 * last + 32]

    def read_words(self) -> list[int]:
        """Return the counters of every class, four each in the order of `Traffic`."""
        return self.u64[: 4 * len(ClassId)].tolist()


@dataclass(frozen=True, slots=True)
class HostMaps:
    """The maps of one host's programs."""

    flows: FlowTable
    aggregate: AggregateBucket
    counters: ClassCounters
    switch: KillSwitch

    @classmethod
    def open_pinned(cls, pin_dir: Path | str) -> HostMaps:
        """Return the maps that `load_host_programs` pinned under `pin_dir`."""
        at = Path(pin_dir)
        return cls(
            FlowTable.open_pinned(at / "flows"),
            AggregateBucket.open_pinned(at / "aggregate"),
            ClassCounters.open_pinned(at / "counters"),
            KillSwitch.open_pinned(at / "switch"),
        )

    def pin(self, pin_dir: Path) -> None:
        """Pin all under `pin_dir`, a folder on a bpffs, by the names of this class's fields. A switch that is there stays."""
        self.flows.pin(pin_dir / "flows")
        self.aggregate.pin(pin_dir / "aggregate")
        self.counters.pin(pin_dir / "counters")
        if not (pin_dir / "switch").exists():
            self.switch.pin(pin_dir / "switch")

    def close(self) -> None:
        """Close all (once)."""
        for one in (self.flows, self.aggregate, self.counters, self.switch):
            one.close()
