"""A run while it runs: the campus, the queue, the transfers and the latest events, in a terminal.

Where there is no terminal, one plain line for each notable event is all.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from functools import partial
from types import TracebackType

from rich.columns import Columns
from rich.console import Console, Group, RenderableType
from rich.layout import Layout
from rich.live import Live as RichLive
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from controller.core.model import facts as f
from experiments.inputs.scenario import Scenario
from experiments.results.narration import TONES, notable, sentence
from testbed.messages import HostStatus, Status
from topologies.dimension import Dimension
from topologies.units import format_duration, format_level, format_rate

STYLES = {
    "idle": "green",
    "busy": "white on blue",
    "noticed": "black on yellow",
    "reclaimed": "bright_black strike",
    "lost": "white on red",
    "absent": "bright_black",
}
COLOURS = {"bad": "red", "good": "green", "calm": "cyan", "": ""}
MAX_NAMED = 60  # hosts that are shown with their jobs; of more, each is a square
EVENTS_KEPT = 60
COUNTS = ("submitted", "waiting", "running", "moving", "finished", "failed", "on_demand")


class Live:
    """The display of one run; a context manager. Feed it `event` for each fact and `update` once or twice a second.

    Text only, no thread: it draws in `update`. The scenario is in real units, the display in those that are played.
    """

    def __init__(self, scenario: Scenario, console: Console | None = None) -> None:
        self._scenario, self._console = scenario, console or Console()
        self._events: deque[Text] = deque(maxlen=EVENTS_KEPT)
        self._live: RichLive | None = None

    def __enter__(self) -> Live:
        if self._console.is_terminal:
            waits = f"{self._scenario.name}: waiting for the first status"
            self._live = RichLive(Text(waits), console=self._console, auto_refresh=False)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def event(self, at_s: float, fact: f.Fact) -> None:
        """Keep an event for the next drawing, or print it where there is no terminal."""
        told = sentence(fact)
        if told is None or not notable(fact):
            return
        self._events.append(Text(f"{at_s:7.1f} s  {told}", COLOURS[TONES.get(type(fact), "")], no_wrap=True))
        if self._live is None:
            self._console.print(f"{at_s:7.1f} s  {told}", markup=False, highlight=False, soft_wrap=True)

    def update(self, status: Status) -> None:
        """Draw the coordinator's status; nothing where there is no terminal."""
        if self._live is not None:
            self._live.update(self.picture(status), refresh=True)

    def picture(self, status: Status) -> RenderableType:
        """Return the whole display, as high as the console allows."""
        height = self._console.height - 1
        events = Group(*reversed(self._events))  # the latest are never cut off
        parts = (
            Layout(self._header(status), size=3),
            Layout(_hosts(status.hosts), ratio=2),
            Layout(_transfers(status), ratio=2),
            Layout(Panel(events, title="events", title_align="left"), ratio=3),
        )
        whole = Layout()
        whole.split_column(*parts)
        return Panel(whole, title=Text(f"{self._scenario.name}, seed {self._scenario.seed}"), height=height)

    def _header(self, status: Status) -> RenderableType:
        scenario, scale = self._scenario, self._scenario.scale
        duration_s, target_s = (
            scale.apply(real_s, Dimension.DURATION) for real_s in (scenario.duration_s, scenario.queue.target_delay_s)
        )
        mean_cost = f"{status.mean_cost:.2f}" if math.isfinite(status.mean_cost) else "-"
        mean_delay = format_duration(status.mean_delay_s) if math.isfinite(status.mean_delay_s) else "-"
        clock = Table.grid(padding=(0, 1))
        scales = f"bytes x {scale.bytes:.3g}, time x {scale.time:.3g}"
        bar = ProgressBar(total=duration_s, completed=min(status.now_s, duration_s), width=20)
        clock.add_row(bar, f"{status.now_s:.1f} s of {duration_s:.0f} s", Text(scales, "dim"))
        figures = (
            f"r = {format_level(status.level)}   mean cost {mean_cost} (k = {scenario.queue.on_demand_cost:g})   "
            f"mean delay {mean_delay} (target {format_duration(target_s)})"
        )
        counts = [f"{name.replace('_', ' ')} {status.counts.get(name, 0)}" for name in COUNTS]
        return Group(clock, Text(figures, no_wrap=True), Text("jobs: " + "   ".join(counts), "dim", no_wrap=True))


def unseen(scenario: Scenario) -> Callable[[], Live]:
    """Return the maker of the display of a run whose figures alone are wanted."""
    return partial(Live, scenario, Console(quiet=True, force_terminal=False))


def _hosts(hosts: list[HostStatus]) -> RenderableType:
    """Return the buildings below one another, each with its hosts."""
    table, named = Table.grid(padding=(0, 1)), len(hosts) <= MAX_NAMED
    for building in dict.fromkeys(host.building for host in hosts):
        cells = [_cell(host, named=named) for host in hosts if host.building == building]
        table.add_row(
            Text(building, "bold"), Columns(cells, equal=True) if named else Text(overflow="fold").join(cells)
        )
    legend = Text(" ").join(Text(f" {state} ", style) for state, style in STYLES.items())
    return Panel(table, title=legend, title_align="left")


def _cell(host: HostStatus, *, named: bool) -> Text:
    style = STYLES[host.state]
    if host.role == "on_demand" and host.jobs:
        style = "white on magenta"
    if not named:
        return Text("■", style.rpartition(" on ")[2])
    left = f"{host.reclaim_in_s:.1f}s " if host.reclaim_in_s is not None else ""
    jobs = " ".join(host.jobs) if len(host.jobs) < 2 else f"{len(host.jobs)}/{host.gpus} jobs"
    return Text(f" {host.host} {left}{jobs or host.state} ", style)


def _transfers(status: Status) -> RenderableType:
    """Return the transfers, planned moves first, and the queue below them."""
    table = Table.grid(padding=(0, 1))
    for each in sorted(status.transfers, key=lambda t: (t.traffic_class != "planned", t.transfer)):
        goodput, grant = each.goodput_bytes_per_s, each.grant_bytes_per_s
        table.add_row(
            each.transfer.partition(":")[0],
            f"{each.source}→{each.destination} {each.traffic_class}",
            ProgressBar(total=max(grant, 1.0), completed=min(goodput, grant), width=12),
            f"{format_rate(goodput)} of {format_rate(grant)}",
        )
    titles = (f"transfers ({len(status.transfers)})", f"waiting ({len(status.waiting)}): {' '.join(status.waiting)}")
    return Panel(table, title=titles[0], title_align="left", subtitle=Text(titles[1]), subtitle_align="left")
