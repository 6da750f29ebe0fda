"""The owner's switch: one entry of shared memory that the ingress program reads for every packet.

An owner's command waits for this module before it closes a host. `layout`, with its mirrors and names, takes some
milliseconds to make. So this module has the offsets of `struct kill_switch` as constants; a test compares them with
`layout`.
"""

from __future__ import annotations

import time
from struct import Struct

from bpf.memory import WritableMap

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ipaddress import IPv4Address

    from bpf.layout import Mode, SwitchStatus

OFF, DRAIN, ISOLATE = 0, 1, 2  # `layout.Mode`
COORDINATOR, LIVE = slice(4, 8), slice(48, 48 + 128 * 16)  # bytes
SET_AT, ISOLATE_AT, FIRST_DROP, DROPPED_PACKETS, DROPPED_BYTES = 1, 2, 3, 4, 5  # words of 8 bytes
# these five, each stored as one word; an empty table of live connections
RECORD, NONE_LIVE = Struct("@5Q"), bytes(LIVE.stop - LIVE.start)


class KillSwitch(WritableMap):
    """The switch; a store into its mode word closes or opens the host for the next packet."""

    @property
    def mode(self) -> Mode:
        """The mode that was set; a drain past its `isolate_at_ns`, which isolates, still reads DRAIN.

        What is no mode isolates, for the program too: an owner may write anything.
        """
        from bpf.layout import Mode

        return Mode(min(self.u32[0], ISOLATE))

    @property
    def is_broken(self) -> bool:
        """True if it holds what no command writes."""
        return self.u32[0] > ISOLATE

    @property
    def seen(self) -> tuple[int, int]:
        """Mode and time of the last setting, in two loads: what changes whenever the switch is set."""
        return self.u32[0], self.u64[SET_AT]

    def setting(self) -> memoryview:
        """Return the setting as it lies in memory, with the coordinator's address."""
        return self.u8[: 8 * SET_AT + 8]

    def set(self, mode: int, *, isolate_at_ns: int = 0) -> None:
        """Open a new record (times and counts of drops begin at zero), then set the mode (a `Mode`) as the last store.

        `isolate_at_ns` (CLOCK_MONOTONIC, 0: never) is when a drain becomes an isolation by itself. Setting DRAIN on an
        isolated host opens it that far. ValueError: a time in the past of 1970, or a time with another mode than DRAIN.
        """
        if isolate_at_ns < 0 or (isolate_at_ns and mode != DRAIN):
            raise ValueError(f"isolate_at_ns = {isolate_at_ns} with mode {mode}: a time > 0, and only with DRAIN")
        self.u8[LIVE] = NONE_LIVE
        RECORD.pack_into(self.u8, 8 * SET_AT, time.monotonic_ns(), isolate_at_ns, 0, 0, 0)
        self.u32[0] = mode

    def allows_coordinator(self, address: IPv4Address) -> bool:
        """Return whether packets of this address pass a closed host."""
        return bytes(self.u8[COORDINATOR]) == address.packed

    def allow_coordinator(self, address: IPv4Address) -> None:
        """Set the address whose packets pass a closed host; 0.0.0.0 for none."""
        self.u8[COORDINATOR] = address.packed

    def status(self) -> SwitchStatus:
        """Return the record as it is now."""
        from bpf.layout import SwitchStatus

        at = self.u64
        times = at[SET_AT], at[ISOLATE_AT], at[FIRST_DROP]
        return SwitchStatus(self.mode, *times, at[DROPPED_PACKETS], at[DROPPED_BYTES])
