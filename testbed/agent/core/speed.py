"""Times of snapshots on this host: exponential averages of what they really took."""

from __future__ import annotations

from dataclasses import dataclass

from testbed.bounds import FASTEST_BYTES_PER_S, SLOWEST_BYTES_PER_S
from testbed.messages import SnapshotCost, SnapshotSpeed

# of the newest snapshot: the gain of TCP's smoothed round-trip time (RFC 6298); half of the average is of the last five
GAIN = 1.0 / 8.0
# a smaller one takes as long as its system calls and its fsync, whatever it holds: 16 MB are written in 10 ms, synced in 5 to 20
MIN_MEASURED_BYTES = 16 << 20


@dataclass
class SnapshotSpeeds:
    """Seconds a byte: of standing still, and of writing (None: nothing was measured yet)."""

    pause_s_per_byte: float | None = None
    write_s_per_byte: float | None = None

    def observe(self, size_bytes: int, cost: SnapshotCost, *, final: bool) -> None:
        """Record a snapshot. A final one stops its job anyway: only its write counts."""
        if size_bytes < MIN_MEASURED_BYTES:
            return
        self.write_s_per_byte = _moved(self.write_s_per_byte, cost.write_s / size_bytes)
        if not final:
            self.pause_s_per_byte = _moved(self.pause_s_per_byte, cost.pause_s / size_bytes)

    @property
    def told(self) -> SnapshotSpeed | None:
        """The speeds to report to the coordinator; None until both are known."""
        if self.pause_s_per_byte is None or self.write_s_per_byte is None:
            return None
        return SnapshotSpeed(_bytes_per_s(self.pause_s_per_byte), _bytes_per_s(self.write_s_per_byte))


def _moved(average: float | None, value: float) -> float:
    return value if average is None else average + GAIN * (value - average)


def _bytes_per_s(s_per_byte: float) -> float:
    return 1.0 / min(max(s_per_byte, 1.0 / FASTEST_BYTES_PER_S), 1.0 / SLOWEST_BYTES_PER_S)
