"""Owners by the clock and at their keyboards, on a campus that stands: both act through the owner's switch.

Each host has a presence file in the campus's run directory. A program that sees an owner, such as a hook of the screen saver,
touches it. The owner then has the host until the file was left alone for `owners.idle`. Calendars are played here only where
no trace plays them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Container, Mapping
from pathlib import Path

from experiments.inputs.scenario import Scenario
from testbed import owner
from testbed.emulation.campus import LiveCampus

SUFFIX = ".present"


class Habits:
    """Presence of the owners of a campus, and their calendars. `held`: hosts that others than this have taken, and give back."""

    def __init__(self, played: Scenario, campus: LiveCampus, owners: Mapping[str, int], started_s: float) -> None:
        self._played, self._campus, self._started_s = played, campus, started_s
        self.held: Container[str] = ()
        self.present: set[str] = set()
        self._closed: set[str] = set()  # by their calendars
        self._files = {host.name: campus.run_dir / f"{host.name}{SUFFIX}" for host in played.volunteers}
        for host, path in self._files.items():
            path.touch(0o600)
            os.utime(path, (0.0, 0.0))
            if (group := owners.get(host)) is not None:
                os.chown(path, -1, group)
                path.chmod(0o660)

    def look(self, *, calendars: bool = False) -> None:
        """Take back hosts whose owners have come, and lend those that they have left; by calendars too, where they are played."""
        for host in self._played.volunteers if calendars else ():
            if host.lent is not None:
                self._follow_calendar(host.name, host.lent)
        since_s = time.time() - self._played.owners.idle_s
        for name, path in self._files.items():
            is_present = path.stat().st_mtime > since_s
            if is_present and name not in self.present:
                self.present.add(name)
                self._reclaim(name)
            elif not is_present and name in self.present:
                self.present.discard(name)
                self._lend(name)

    def _follow_calendar(self, host: str, calendar: str) -> None:
        protocol, now_s = self._played.protocol, time.monotonic() - self._started_s
        begin_s, end_s = next(protocol.week.windows_s(calendar, now_s))
        left_s = end_s - now_s if begin_s <= now_s else 0.0
        if left_s <= protocol.calendar_notice_s and host not in self._closed:
            self._closed.add(host)
            if host not in self.present:
                self._reclaim(host, left_s)
        elif left_s > protocol.calendar_notice_s and host in self._closed:
            self._closed.discard(host)
            self._lend(host)

    def _reclaim(self, host: str, notice_s: float = 0.0) -> None:
        owner.reclaim(*self._switch(host), notice_s=notice_s)

    def _lend(self, host: str) -> None:
        """Lend a host that nobody has any more."""
        if host not in self.present | self._closed and host not in self.held:
            owner.lend(*self._switch(host))

    def _switch(self, host: str) -> tuple[Path, Path]:
        return self._campus.pin_dir / host / "switch", self._campus.run_dir / f"{host}.sock"
