"""Owners by the clock and at their keyboards, on a campus that stands: both act through the owner's switch.

Each host has a presence file in the campus's run directory. A program that sees an owner, such as a hook of the screen saver,
touches it. The owner then has the host until the file was left alone for `owners.idle`. Calendars are played here only where
no trace plays them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Container, Mapping
from math import inf

from experiments.inputs.scenario import Scenario
from testbed import owner
from testbed.emulation.campus import LiveCampus

LENT, ENDS, PRESENT = range(
    3
)  # what an owner's habits make of a host; ENDS: its calendar's window does, soon or already


class Habits:
    """The owners of a campus. `held`: hosts that others than this have taken, and give back."""

    def __init__(self, played: Scenario, campus: LiveCampus, owners: Mapping[str, int], started_s: float) -> None:
        self._played, self._campus, self._started_s = played, campus, started_s
        self.held: Container[str] = ()
        # of other machines' hosts their own processes look after
        self._hosts = [host for host in played.volunteers if host.name in campus.plan.guarded]
        self.states = {host.name: LENT for host in self._hosts}
        self._files = {host: campus.run_dir / f"{host}.present" for host in self.states}
        for host, path in self._files.items():
            path.touch(0o600)
            os.utime(path, (0.0, 0.0))
            if (group := owners.get(host)) is not None:
                os.chown(path, -1, group)
                path.chmod(0o660)

    def look(self, *, calendars: bool = False) -> None:
        """Take back hosts whose owners have come, and lend those that they have left; by calendars too, where they are played."""
        protocol, now_s = self._played.protocol, time.monotonic() - self._started_s
        absent_s = time.time() - self._played.owners.idle_s
        for host in self._hosts:
            begin_s, end_s = next(protocol.week.windows_s(host.lent if calendars else None, now_s))
            left_s, before = end_s - now_s if begin_s <= now_s else 0.0, self.states[host.name]
            ends = ENDS if left_s <= protocol.calendar_notice_s and left_s < inf else LENT
            state = PRESENT if self._files[host.name].stat().st_mtime > absent_s else ends
            if state == before:
                continue
            self.states[host.name] = state
            switch = self._campus.pin_dir / host.name / "switch", self._campus.run_dir / f"{host.name}.sock"
            if state > before:
                owner.reclaim(*switch, notice_s=left_s if state == ENDS else 0.0)
            elif state == LENT and host.name not in self.held:
                owner.lend(*switch)
