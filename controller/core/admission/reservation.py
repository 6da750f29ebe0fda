"""The reservation of an admitted migration: bytes by a deadline, while they are being sent.

A timetable states when a migration's bytes may travel; what has travelled is known only roughly. The coordinator
knows what it granted. A paced flow gets at least `GOODPUT` of that (measured; `reclaimnet measure rates`). A rate
that rises is known at the sender up to `LAG_S` later, and the last byte is followed by its acknowledgement. So a
reservation

- counts in granted bytes, of which it takes C / GOODPUT to carry C;
- counts nothing before the final snapshot is known to exist, since a running copy may be worth nothing by then;
- counts a rise from `LAG_S` later;
- ends `MARGIN_S` before the destination must begin to restart.

Counted like that the rest is an upper bound, and planning it again at every change corrects the timetable by itself.
The bound may be wrong (a flow got less of its grant than was ever seen). A migration that has had all of its bytes
and has not arrived is then given some more, a few times: without room of its own it would wait behind all others for
its last bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

from controller.core.admission.schedule import MigrationRequest
from topologies.spec import DirectedLink

GOODPUT = 0.97  # least share of its grant that a paced flow was seen to get
LAG_S = 0.1  # the longest that a message to an agent was seen to take on a busy machine
MARGIN_S = 0.2  # between timetable and restart: the receiver's fsync, and its word to the coordinator
NOTHING = 1e-6  # of a payload: what is left then is rounding
SOME_MORE, TIMES_MORE = 0.05, 4  # of a payload, and how often: who needs more than this is not slow but stuck


@dataclass(slots=True)
class Reservation:
    """A reservation: `left_bytes` granted bytes are to be sent by `due_s`."""

    left_bytes: float
    due_s: float
    lead_s: float  # from the final snapshot to its first byte, at most
    final_at_s: float = inf  # when the source is ordered to take the final snapshot, at the latest
    told: bool = False  # whether the source knows final_at_s
    since_s: float | None = None  # up to when bytes have been counted; None until the final snapshot exists
    reserved_bytes_per_s: float = 0.0  # of its path, on average until it is due, when last counted
    slow_until_s: float = -inf  # a rise is not sure to have arrived before
    slow_bytes_per_s: float = 0.0  # what counts until then
    more_bytes: float = field(init=False)  # what it gets more, each time it has had all and is not there
    times_more: int = TIMES_MORE

    def __post_init__(self) -> None:
        self.more_bytes = SOME_MORE * self.left_bytes

    @property
    def start_s(self) -> float:
        """Moment at which sending begins if nothing is moved: the first byte's expected time, later the last count's."""
        return self.final_at_s + self.lead_s if self.since_s is None else self.since_s

    def begin(self, now_s: float) -> None:
        """Count what is sent from now on as what was reserved."""
        if self.since_s is None:
            self.since_s = now_s

    def count(self, now_s: float, rate_bytes_per_s: float) -> None:
        """Count what was sent until now at this grant (0: what its sender did is not known)."""
        if self.since_s is not None and now_s > self.since_s:
            slow_s = max(0.0, min(now_s, self.slow_until_s) - self.since_s)
            sent = slow_s * self.slow_bytes_per_s + (now_s - self.since_s - slow_s) * rate_bytes_per_s
            left = self.left_bytes - sent
            if left <= NOTHING * self.left_bytes:
                left = self.more_bytes if self.times_more else 0.0
                self.times_more = max(0, self.times_more - 1)
            self.left_bytes, self.since_s = left, now_s
        self.reserved_bytes_per_s = self.left_bytes / (self.due_s - now_s) if now_s < self.due_s else 0.0

    def regranted(self, now_s: float, old_bytes_per_s: float, new_bytes_per_s: float) -> None:
        """Record that the grant changes now; a rise counts only when it is sure to have arrived."""
        before = min(self.slow_bytes_per_s, old_bytes_per_s) if now_s < self.slow_until_s else old_bytes_per_s
        self.slow_bytes_per_s = min(before, new_bytes_per_s)
        if new_bytes_per_s > old_bytes_per_s:
            self.slow_until_s = now_s + LAG_S

    def request(
        self,
        key: str,
        links: tuple[DirectedLink, ...],
        cap_bytes_per_s: float,
        now_s: float,
        *,
        movable: bool,
    ) -> MigrationRequest:
        """Build the request for which P3 has to leave room. `movable`: the final snapshot's moment can still be changed."""
        start_s = rather_s = self.start_s
        if self.since_s is None and movable:
            start_s = min(now_s, self.final_at_s) + self.lead_s
        return MigrationRequest(
            key, self.left_bytes, self.due_s, 0.0, links, start_s, rather_s, cap_bytes_per_s
        )
