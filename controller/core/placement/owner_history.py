"""History of owners: the hazard of emergencies, all departures, their notices, and hosts that leave together.

`HazardWindow` knows emergencies only, since only they take a host without a word. But most notices are too short for what a job
would need (most two-minute notices end degraded), and a copy's holder that leaves with notice is gone as well. So
`OwnerHistory` records each departure with its notice and gives, for all hosts at once,

    departures.upper_by_hour(hosts, now_s)       rate of departures of any kind, estimated as emergencies are
    notices.too_short_column(needed_s, now_s)    P(notice < needed_s): that rate times it is the hazard that counts for a job
    joint.q_column(h, hosts, now_s)              P(s closes together with h) by class of the pair

An agent that is lost without its owner's doing (`withdraw` without a notice) ends the time lent and is no departure: a
coordinator that restarts loses all agents at once, and must not learn that all owners leave together.
"""

from __future__ import annotations

from collections.abc import Mapping

from controller.core.placement.hazard import (
    DAY_S,
    Experience,
    HazardWindow,
)
from controller.core.placement.joint_departures import TOGETHER, JointWindow, Neighbourhood
from controller.core.placement.notices import NoticeWindow


class OwnerHistory(HazardWindow):
    """A `HazardWindow` of emergencies, and beside it `departures` of any kind, `notices` and `joint` departures.

    `prior`, an emergency in so much time, is believed of departures as well: there are as many at least. `places` says where
    hosts stand. Times must not go backwards.
    """

    def __init__(
        self,
        window_s: float,
        prior: Experience | None = None,
        day_s: float = DAY_S,
        day_start_s: float = 0.0,
        places: Mapping[str, Neighbourhood] | None = None,
    ) -> None:
        super().__init__(window_s, prior, day_s, day_start_s)
        self.departures = HazardWindow(window_s, prior, day_s, day_start_s)
        self.notices = NoticeWindow(window_s)
        self.joint = JointWindow(window_s, min(window_s, TOGETHER * day_s), places or {})

    def lend(self, host: str, now_s: float) -> None:
        """The host is lent from now on; nothing new if it already was."""
        super().lend(host, now_s)
        self.departures.lend(host, now_s)
        self.joint.lend(host, now_s)

    def withdraw(self, host: str, now_s: float, notice_s: float | None = None) -> None:
        """The host is lent no more, without an emergency. `notice_s`: its owner says so long before its end (0: that end, or
        another one than was said, has come); None: its owner did nothing (switched off, its agent lost)."""
        super().withdraw(host, now_s)
        if notice_s is not None:
            self._depart(host, now_s, notice_s)
        else:
            self.departures.withdraw(host, now_s)
            self.joint.withdraw(host, now_s)

    def emergency(self, host: str, now_s: float) -> None:
        """The owner took the host back without notice: one event, and the end of the time lent."""
        super().emergency(host, now_s)
        self._depart(host, now_s, 0.0)

    def _depart(self, host: str, now_s: float, notice_s: float) -> None:
        if self.joint.is_lent(host):  # else its owner has said so before
            self.departures.emergency(host, now_s)
            self.notices.departed(now_s, notice_s)
        self.joint.depart(host, now_s, notice_s)
