"""`reclaimnet observe`: counts of what the kernel does to a running campus."""

from __future__ import annotations

import time
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.table import Table

from bpf.errors import BpfError
from bpf.observer import Observation
from testbed.emulation.safety.ledger import namespace_pids
from testbed.emulation.safety.living import only_campus
from testbed.emulation.safety.observation import MACHINE, SWITCHES, CampusObserver
from testbed.errors import SetupError
from topologies.units import format_duration

MAX_ROWS = 40  # hosts of the table on a screen
MOST_REASONS = 3


def observe(console: Console, campus_id: str | None, seconds: float | None, every_s: float) -> None:
    """Show a table of what happened since the command began, again each `every_s`.

    It ends when interrupted, after `seconds`, or when the campus is gone. SetupError: there is no such campus, or the
    kernel cannot be observed.
    """
    campus = only_campus(campus_id)
    pids, began_s = namespace_pids(campus), time.monotonic()
    try:
        observer = CampusObserver(pids, began_s)
    except BpfError as error:
        raise SetupError(f"this kernel cannot be observed: {error}") from error
    except PermissionError as error:
        raise SetupError("only root may look into the networks of a campus") from error
    try:
        with Live(console=console, auto_refresh=False) as shown:
            seen = observer.look(began_s)
            while seconds is None or time.monotonic() - began_s < seconds:
                time.sleep(every_s)
                now_s = time.monotonic()
                before, seen = seen, observer.look(now_s)
                shown.update(table(campus.id, before, seen, now_s - began_s), refresh=True)
                if not any(Path(f"/proc/{pid}").exists() for pid in pids.values()):
                    return
    finally:
        observer.close()


def table(campus_id: str, before: dict[str, Observation], seen: dict[str, Observation], seconds: float) -> Table:
    """Return the table of the switches, the machine and the hosts where most went wrong.

    Figures are since the beginning, those of delays since the last look.
    """
    shown = Table(
        "",
        "sent again",
        "round trip",
        "99 %",
        "waited for a processor",
        "99 %",
        "packets dropped",
        title=f"campus {campus_id}, {format_duration(seconds)}",
    )
    hosts = [where for where in seen if where not in (SWITCHES, MACHINE)]
    hosts.sort(key=lambda where: (-seen[where].retransmitted, -sum(seen[where].dropped.values())))
    for where in (SWITCHES, MACHINE, *hosts[:MAX_ROWS]):
        whole, last = seen[where], seen[where] - before[where]
        dropped = list(whole.dropped.items())
        words = [f"{count} {reason}" for reason, count in dropped[:MOST_REASONS]]
        if rest := sum(count for _, count in dropped[MOST_REASONS:]):
            words.append(f"{rest} for other reasons")
        delays = [
            format_duration(histogram.quantile_s(share)) if histogram.total else "-"
            for histogram in (last.round_trip, last.run_delay)
            for share in (0.5, 0.99)
        ]
        shown.add_row(where, str(whole.retransmitted), *delays, ", ".join(words))
    if len(hosts) > MAX_ROWS:
        shown.caption = f"{len(hosts) - MAX_ROWS} more hosts, where less went wrong"
    return shown
