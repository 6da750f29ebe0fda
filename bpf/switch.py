"""The owner's switch: one entry of shared memory that the ingress program reads for every packet."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from bpf.layout import KillSwitchStruct, Mode
from bpf.memory import WritableMap

if TYPE_CHECKING:
    from ipaddress import IPv4Address, IPv6Address

_V4 = slice(KillSwitchStruct.coordinator_v4.offset, KillSwitchStruct.coordinator_v4.offset + 4)
_V6 = slice(KillSwitchStruct.coordinator_v6.offset, KillSwitchStruct.coordinator_v6.offset + 16)
_SET_AT = KillSwitchStruct.set_at_ns.offset // 8
_ISOLATE_AT = KillSwitchStruct.isolate_at_ns.offset // 8
_FIRST_DROP = KillSwitchStruct.first_drop_ns.offset // 8
_DROPPED_PACKETS = KillSwitchStruct.dropped_packets.offset // 8
_DROPPED_BYTES = KillSwitchStruct.dropped_bytes.offset // 8
_LIVE = slice(KillSwitchStruct.live.offset, KillSwitchStruct.live.offset + KillSwitchStruct.live.size)
_NONE_LIVE = bytes(KillSwitchStruct.live.size)


class SwitchStatus(NamedTuple):
    """The kill-switch. Times in CLOCK_MONOTONIC ns; 0 is "not"."""

    mode: Mode
    set_at_ns: int
    isolate_at_ns: int  # when a drain becomes an isolation by itself
    first_drop_ns: int  # since it was set, as the counts
    dropped_packets: int
    dropped_bytes: int


class KillSwitch(WritableMap):
    """A store into the mode word closes or opens the host for the next packet."""

    @property
    def mode(self) -> Mode:
        """The mode that was set; a drain past its `isolate_at_ns`, which isolates, still says DRAIN."""
        return Mode(self.u32[0])

    @property
    def seen(self) -> tuple[int, int]:
        """Mode and time of the last setting, in two loads: what changes whenever the switch is set."""
        return self.u32[0], self.u64[_SET_AT]

    def set(self, mode: Mode, *, isolate_at_ns: int = 0) -> None:
        """Opens a new record (times and counts of drops begin at zero), then sets the mode as the last store.

        `isolate_at_ns` (CLOCK_MONOTONIC, 0: never) is when a drain becomes an isolation by itself. Setting DRAIN on an
        isolated host opens it that far. ValueError: a time in the past of 1970, or a time with another mode than DRAIN.
        """
        if isolate_at_ns < 0 or (isolate_at_ns and mode is not Mode.DRAIN):
            raise ValueError(
                f"isolate_at_ns = {isolate_at_ns} with mode {mode.name}: a time > 0, and only with DRAIN"
            )
        self.u8[_LIVE] = _NONE_LIVE
        self.u64[_ISOLATE_AT] = isolate_at_ns
        self.u64[_DROPPED_PACKETS] = self.u64[_DROPPED_BYTES] = self.u64[_FIRST_DROP] = 0
        self.u64[_SET_AT] = time.monotonic_ns()
        self.u32[0] = mode

    def allow_coordinator(self, v4: IPv4Address | None, v6: IPv6Address | None = None) -> None:
        """Let the coordinator's packets pass a closed host (None: no address). Call it before the switch is needed."""
        self.u8[_V4] = bytes(4) if v4 is None else v4.packed
        self.u8[_V6] = bytes(16) if v6 is None else v6.packed

    def status(self) -> SwitchStatus:
        """The record as it is now."""
        at = self.u64
        times = at[_SET_AT], at[_ISOLATE_AT], at[_FIRST_DROP]
        return SwitchStatus(self.mode, *times, at[_DROPPED_PACKETS], at[_DROPPED_BYTES])
