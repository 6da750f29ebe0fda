"""A run while it runs: the campus, the queue, the transfers and the latest events, in a terminal.

Where there is no terminal, one plain line for each notable event is all.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from types import TracebackType

from rich.console import Console, Group, RenderableType
from rich.live import Live as RichLive
from rich.panel import Panel
from rich.style import Style
from rich.table import Table
from rich.text import Text

from controller.core.model import facts as f
from controller.core.model.facts import Fact
from experiments.inputs.scenario import Scenario
from experiments.results.narration import Narrator, notable
from testbed.messages import HostStatus, Status
from topologies.dimension import Dimension
from topologies.scale import Scale
from topologies.spec import Campus, Role
from topologies.units import format_duration, format_rate

STYLES = {
    "idle": Style(color="green"),
    "busy": Style(color="white", bgcolor="blue"),
    "noticed": Style(color="black", bgcolor="yellow"),
    "reclaimed": Style(color="bright_black", strike=True),
    "lost": Style(color="white", bgcolor="red"),
    "absent": Style(color="bright_black"),
    "on_demand": Style(color="white", bgcolor="magenta"),
}
CELL, SHORT_CELL, DOT = 16, 6, 2  # columns of a host: with its job, with its name, as a dot
BAR = 12
HEADER_LINES, BORDER_LINES = 3, 2
COUNTS = ("submitted", "waiting", "running", "moving", "finished", "failed", "on_demand")
NARROW = 80  # columns; below, there is no room for the queue beside the transfers
QUEUE_COLUMNS = 18
EVENTS_KEPT = 60
EVENT_STYLES: dict[type[Fact], str] = {
    f.HostReclaimed: "yellow",
    f.HostReturned: "green",
    f.HostLost: "red",
    f.JobStopped: "red",
    f.WorkLost: "red",
    f.WorkTakenUp: "green",
    f.JobFailed: "red",
    f.JobCancelled: "magenta",
    f.MigrationDegraded: "red",
    f.MigrationAdmitted: "cyan",
    f.MigrationFinished: "cyan",
    f.JobRedirected: "magenta",
    f.JobFinished: "green",
}


class Live:
    """The display of one run; a context manager. Feed it `event` for each fact and `update` once or twice a second.

    `target_delay_s` and all times are in the time scale that is played. Text only, no thread: it draws in `update`.
    """

    def __init__(
        self,
        campus: Campus,
        console: Console | None = None,
        *,
        title: str = "",
        seed: int = 0,
        scale: Scale | None = None,
        on_demand_cost: float | None = None,
        target_delay_s: float | None = None,
        duration_s: float | None = None,
    ) -> None:
        self._campus = campus
        self._console = console or Console()
        self._title, self._seed, self._scale = title or campus.name, seed, scale or Scale()
        self._cost, self._target_s, self._duration_s = on_demand_cost, target_delay_s, duration_s
        self._events: deque[tuple[float, str, str]] = deque(maxlen=EVENTS_KEPT)
        self._narrator = Narrator()
        self._live: RichLive | None = None

    @classmethod
    def of(cls, scenario: Scenario, console: Console | None = None) -> Live:
        """The display of a scenario written in real units, as it is played."""
        scale, queue = scenario.scale, scenario.queue
        return cls(
            scenario.campus,
            console,
            title=scenario.name,
            seed=scenario.seed,
            scale=scale,
            on_demand_cost=queue.on_demand_cost,
            target_delay_s=scale.apply(queue.target_delay_s, Dimension.DURATION),
            duration_s=scale.apply(scenario.duration_s, Dimension.DURATION),
        )

    def __enter__(self) -> Live:
        if self._console.is_terminal:
            self._live = RichLive(
                Text(f"{self._title}: waiting for the first status"),
                console=self._console,
                auto_refresh=False,
                vertical_overflow="crop",
            )
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def event(self, at_s: float, fact: Fact) -> None:
        """Something happened: kept for the next drawing, or printed where there is no terminal."""
        told = self._narrator.tell(fact)
        if told is None or not notable(fact):
            return
        self._events.append((at_s, told, EVENT_STYLES.get(type(fact), "")))
        if self._live is None:
            self._console.print(f"{at_s:7.1f} s  {told}", markup=False, highlight=False, soft_wrap=True)

    def update(self, status: Status) -> None:
        """Draw what the coordinator says now; nothing where there is no terminal."""
        if self._live is not None:
            self._live.update(self.picture(status), refresh=True)

    def picture(self, status: Status) -> RenderableType:
        """The whole display, as high and as wide as the console allows."""
        width, height = self._console.size
        cells = self._campus_lines(status.hosts, width - 4, max(3, height // 2 - 6))
        names = (Text.assemble(("■", Style(color=s.bgcolor or s.color)), f" {n} ") for n, s in STYLES.items())
        legend = Text("campus  ").append_text(Text("").join(names))
        parts = [self._header(status), Panel(Group(*cells), title=legend, title_align="left")]
        left = height - 1 - HEADER_LINES - len(cells) - BORDER_LINES
        flows = min(left // 2, 12)
        if flows > BORDER_LINES:
            parts.append(self._flows(status, width, flows))
            left -= flows
        if left > BORDER_LINES:
            lines = [
                Text.assemble((f"{at_s:6.1f} s  ", "dim"), (told, style), no_wrap=True, overflow="ellipsis")
                for at_s, told, style in list(self._events)[-(left - BORDER_LINES) :]
            ]
            parts.append(Panel(Group(*lines), title="events", title_align="left", height=left))
        return Group(*parts)

    # ------------------------------------------------------------ parts

    def _header(self, status: Status) -> RenderableType:
        of = f" of {self._duration_s:.0f} s" if self._duration_s else ""
        scale = f"bytes x {self._scale.bytes:.3g}, time x {self._scale.time:.3g}"
        first = Text.assemble(
            (f" {self._title} ", "bold reverse"),
            (f"  {status.now_s:6.1f} s{of}", "bold"),
            (f"   seed {self._seed}   scale {scale}", "dim"),
        )
        mean_cost = f"{status.mean_cost:.2f}" if math.isfinite(status.mean_cost) else "-"
        mean_delay = format_duration(status.mean_delay_s) if math.isfinite(status.mean_delay_s) else "-"
        cost = f" (k = {self._cost:g})" if self._cost is not None else ""
        target = f" (target {format_duration(self._target_s)})" if self._target_s is not None else ""
        second = Text.assemble(
            " r = ",
            (f"{status.level:.2f}", "bold"),
            "   mean cost ",
            (mean_cost, "bold"),
            f"{cost}   mean delay ",
            (mean_delay, "bold"),
            target,
        )
        counts = [f"{name.replace('_', ' ')} {status.counts.get(name, 0)}" for name in COUNTS]
        lines = [first, second, Text(" jobs: " + "   ".join(counts), style="dim")]
        for line in lines:
            line.no_wrap, line.overflow = True, "ellipsis"
        return Group(*lines)

    def _campus_lines(self, hosts: Sequence[HostStatus], width: int, height: int) -> list[Text]:
        """Buildings below one another, in the largest cells that fit."""
        known = {host.host: host for host in hosts}
        rows: dict[str, list[HostStatus]] = {}
        for building in self._campus.buildings:
            for host in self._campus.hosts:
                if host.building == building.name and host.role is not Role.COORDINATOR:
                    absent = HostStatus(host.name, building.name, "volunteer", "absent", 0, [])
                    rows.setdefault(building.name, []).append(known.get(host.name, absent))
        label = max((len(name) for name in rows), default=0) + 1
        lines: list[Text] = []
        for cell in (CELL, SHORT_CELL, DOT):
            columns = max(1, (width - label) // cell)
            lines = []
            for name, row in rows.items():
                for first in range(0, len(row), columns):
                    line = Text((name if first == 0 else "").ljust(label), style="bold", no_wrap=True)
                    for status in row[first : first + columns]:
                        line.append_text(_cell(status, cell))
                    lines.append(line)
            if len(lines) <= height:
                break
        return lines[:height]

    def _flows(self, status: Status, width: int, height: int) -> RenderableType:
        """The transfers, planned moves first, and beside them the queue if there is room."""
        table = Table.grid(padding=(0, 1), expand=True)
        for ratio in (None, 1, None, None):
            table.add_column(no_wrap=True, overflow="ellipsis", ratio=ratio)
        ordered = sorted(status.transfers, key=lambda t: (t.traffic_class != "planned", t.transfer))
        shown = ordered[: height - BORDER_LINES]
        for each in shown:
            goodput, grant = each.goodput_bytes_per_s, each.grant_bytes_per_s
            full = min(BAR, max(0, round(BAR * goodput / grant))) if grant else 0
            colour = "yellow" if each.traffic_class == "planned" else "cyan"
            table.add_row(
                each.transfer.split(":", 1)[0],
                f"{each.source}→{each.destination} {each.traffic_class}",
                Text.assemble(("█" * full, colour), ("░" * (BAR - full), "dim")),
                f"{format_rate(goodput)} of {format_rate(grant)}",
            )
        more = f", {len(ordered) - len(shown)} not shown" if len(ordered) > len(shown) else ""
        title = f"transfers ({len(ordered)}{more})"
        transfers = Panel(table if ordered else Text("none"), title=title, title_align="left", height=height)
        if width < NARROW:
            return transfers
        queue = Panel(
            Text(" ".join(status.waiting) or "no job waits"),
            title=f"queue ({len(status.waiting)})",
            title_align="left",
            height=height,
        )
        both = Table.grid(expand=True)
        both.add_column(ratio=4)
        both.add_column(ratio=1, min_width=QUEUE_COLUMNS)
        both.add_row(transfers, queue)
        return both


def _cell(host: HostStatus, width: int) -> Text:
    style = STYLES["on_demand" if host.role == "on_demand" and host.jobs else host.state]
    if width == DOT:
        return Text.assemble(("■", Style(color=style.bgcolor or style.color)), " ")
    text, jobs = host.host, " ".join(host.jobs)
    if width == SHORT_CELL:
        pass
    elif host.reclaim_in_s is not None and host.state == "noticed":
        text += f" {host.reclaim_in_s:.1f}s {jobs}"
    elif len(host.jobs) > 1:
        text += f" {len(host.jobs)}/{host.gpus} jobs"
    else:
        text += " " + (jobs or ("owner's" if host.state == "reclaimed" else host.state))
    return Text.assemble((f" {text}"[: width - 1].ljust(width - 1), style), " ")
