"""The time line: what every GPU of every host did, when its owner had it, and where the jobs went."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from markupsafe import Markup

from controller.core.model import facts as f
from experiments.results.history import (
    OVER,
    Attempt,
    Timed,
    attempts,
    end_s,
)
from experiments.results.narration import CAUSES
from experiments.results.report.time_chart import Element, TimeCanvas
from experiments.results.report.times import RunClock
from experiments.results.run_context import RunContext
from experiments.results.svg import Attribute, Axis, steps
from topologies.spec import Host, Role
from topologies.units import format_duration

WIDTH, RIGHT = 1240.0, 22.0
LEAST_LABELS, GLYPH = 74.0, 8.0  # width left of the lanes, at least; of a letter in it, at most
STRIP, GAP = 46.0, 9.0  # height of the queue's strip; space between buildings
# (lanes at most, height of each); with more lanes, the least height
LANE_HEIGHTS, LEAST_LANE_HEIGHT = ((40, 18.0), (100, 13.0), (250, 8.0)), 5.0
COLOURS = 8
LABELLED = 14.0  # height of a lane in which names of jobs can be read
SPANS = {"notice": "under notice", "closed": "with its owner", "silent": "agent lost"}
KILLED = ("emergency", "deadline", "agent_lost")


@dataclass
class TimelineRow:
    """One host: where its lanes are."""

    host: Host
    top: float
    lanes: list[list[Attempt]]
    lane_height: float

    @property
    def height(self) -> float:
        """The height of all lanes."""
        return self.lane_height * len(self.lanes)


@dataclass(frozen=True)
class TimelineSpan:
    """A time in which a host was not simply lent: under notice, with its owner, or silent."""

    host: str
    kind: str
    from_s: float
    to_s: float
    why: str


@dataclass
class _Spans:
    """Collects spans; one of each kind may be open at a host."""

    done: list[TimelineSpan] = field(default_factory=list)
    opened: dict[tuple[str, str], tuple[float, str]] = field(default_factory=dict)

    def open(self, host: str, kind: str, at_s: float, why: str) -> None:
        self.opened.setdefault((host, kind), (at_s, why))

    def close(self, host: str, at_s: float, *kinds: str) -> None:
        for kind in kinds:
            began = self.opened.pop((host, kind), None)
            if began is not None:
                self.done.append(TimelineSpan(host, kind, began[0], at_s, began[1]))


def spans(facts: Sequence[Timed], until_s: float) -> list[TimelineSpan]:
    """Notices, reclaims and silences of all hosts; those still open end with the run."""
    book = _Spans()
    for at_s, fact in facts:
        match fact:
            case f.HostReclaimed(host=host, notice_s=notice_s) if notice_s > 0.0:
                book.open(host, "notice", at_s, f"notice of {notice_s:.2f} s")
            case f.HostReclaimed(host=host):
                book.close(host, at_s, "notice")
                book.open(host, "closed", at_s, "with its owner")
            case f.HostReturned(host=host):
                book.close(host, at_s, "notice", "closed")
            case f.HostLost(host=host):
                book.open(host, "silent", at_s, f"agent lost: {fact.reason}")
            case f.HostJoined(host=host):
                book.close(host, at_s, "silent", *(("closed", "notice") if fact.lent else ()))
    for host, kind in list(book.opened):
        book.close(host, until_s, kind)
    return book.done


def colours(facts: Sequence[Timed]) -> dict[str, int]:
    """A colour for each job, in order of submission; neighbours differ."""
    jobs = dict.fromkeys(fact.job for _, fact in facts if isinstance(fact, f.JobSubmitted | f.JobDispatched))
    return {job: n % COLOURS for n, job in enumerate(jobs)}


def clock_of(facts: Sequence[Timed], context: RunContext) -> RunClock:
    """The time of a run, from its beginning to its end."""
    return RunClock(max(end_s(facts, context.ended_at_s), 1e-3), context.day_s, context.day_start_s)


def timeline(facts: Sequence[Timed], context: RunContext) -> Markup:
    """The picture, as SVG."""
    return _Timeline(facts, context).draw()


class _Timeline:
    def __init__(self, facts: Sequence[Timed], context: RunContext) -> None:
        self.facts, self.context = facts, context
        self.clock = clock_of(facts, context)
        self.until_s = self.clock.until_s
        self.colour = colours(facts)
        self.attempts = attempts(facts)
        self.at: dict[tuple[str, int], float] = {}  # attempt -> middle of its lane
        hosts = [h for h in context.campus.hosts if h.role is not Role.COORDINATOR]
        lanes: dict[str, list[list[Attempt]]] = {host.name: [[]] for host in hosts}
        for attempt in sorted(self.attempts, key=lambda a: a.dispatched_s):
            if (some := lanes.get(attempt.host)) is None:
                continue
            free = (lane for lane in some if not lane or self._end(lane[-1]) <= attempt.dispatched_s)
            if (lane := next(free, None)) is None:
                some.append(lane := [])
            lane.append(attempt)
        count = sum(len(some) for some in lanes.values())
        self.lane_height = height = next(
            (tall for most, tall in LANE_HEIGHTS if count <= most), LEAST_LANE_HEIGHT
        )
        self.rows: dict[str, TimelineRow] = {}
        self.bottom, top, building = STRIP + 20.0, STRIP + 34.0, None
        for host in hosts:
            top += GAP if building not in (None, host.building) else 0.0
            building = host.building
            row = self.rows[host.name] = TimelineRow(host, top, lanes[host.name], height)
            self.bottom = top + row.height
            top = self.bottom + (2.0 if height > 10.0 else 1.0)
        letters = max((len(host.building) + len(host.name) for host in hosts), default=0)
        self.labels = max(LEAST_LABELS, 16.0 + GLYPH * letters)
        self.canvas = TimeCanvas(WIDTH, self.bottom + 30.0, clock=self.clock, left=self.labels, right=RIGHT)
        self.x = self.canvas.x

    def _end(self, attempt: Attempt) -> float:
        return self.until_s if attempt.ended_s is None else attempt.ended_s

    # ------------------------------------------------------------ drawing

    def draw(self) -> Markup:
        canvas = self.canvas
        canvas.parts.append(_DEFS)
        canvas.times(STRIP + 24.0, 10, of_day=True)
        canvas.times(self.bottom + 18, 10, grid=(STRIP + 29.0, self.bottom + 4))
        self._queue()
        building = None
        for row in self.rows.values():
            host, middle = row.host, row.top + row.height / 2 + 4
            shade = "lane" if host.role is Role.VOLUNTEER else "lane od"
            canvas.rect(self.x.start, row.top, self.x.end - self.x.start, row.height, class_=shade)
            size = "host" if row.lane_height > 10.0 else "host small"
            tip = f"{host.name}, building {host.building}: {host.gpus} x {host.gpu_model}"
            canvas.text(self.labels - 8, middle, host.name, class_=size, text_anchor="end", data_tip=tip)
            if host.building != building:
                building = host.building
                canvas.text(4, middle, building, class_=f"{size} building")
        for span in spans(self.facts, self.until_s):
            if found := self.rows.get(span.host):
                x, width = self.x(span.from_s), self.x(span.to_s) - self.x(span.from_s)
                tip = f"{span.host}: {span.why}, {self.clock.moment(span.from_s)} to {self.clock.moment(span.to_s)}"
                named: dict[str, Attribute] = {"x": x, "y": found.top, "width": width, "height": found.height}
                look = f"span {span.kind}"
                element: Element = ("rect", "", {**named, "class_": look, "data_tip": tip})
                what = f"times of {span.host}: {SPANS[span.kind]}"
                self.canvas.mark(x, x + width, element, row=(look, found.top), height=found.height, what=what)
        for row in self.rows.values():
            for n, lane in enumerate(row.lanes):
                for attempt in lane:
                    self._bar(row, n, attempt)
        self._checkpoints()
        self._moves()
        for death in self.context.deaths:
            x, found = self.x(death.at_s), self.rows.get(death.subject)
            top, bottom = (found.top, found.top + found.height) if found else (STRIP + 30.0, self.bottom)
            tip = f"{death.subject} died at {self.clock.moment(death.at_s)}: {death.how}"
            y = (top + bottom) / 2 if found else top
            line: Element = ("line", "", {"x1": x, "y1": top, "x2": x, "y2": bottom, "class_": "death"})
            way = f"M{x:.3f},{y - 6:.1f}l6,6l-6,6l-6,-6z"
            canvas.mark(x, x, line, ("path", "", {"d": way, "class_": "death-mark", "data_tip": tip}))
        return canvas.svg("Time line of jobs and reclaims by host", "timeline")

    def _queue(self) -> None:
        lengths = queue_lengths(self.facts)
        most = max([n for _, n in lengths], default=0)
        y = Axis(0.0, max(most, 1), STRIP + 8.0, 14.0)
        points = [(self.x(x), y(n)) for x, n in steps([(0.0, 0.0), *lengths], self.until_s)]
        self.canvas.curve(points, y.start, class_="queue-area")
        self.canvas.text(self.labels - 8, STRIP + 2, "waiting", class_="host", text_anchor="end")
        self.canvas.text(
            self.labels - 8,
            18,
            f"{most:g}",
            class_="tick",
            text_anchor="end",
            data_tip=f"jobs waiting, at most {most:g}",
        )
        self.canvas.line(self.x.start, y.start, self.x.end, y.start, class_="axis")

    def _bar(self, row: TimelineRow, lane: int, attempt: Attempt) -> None:
        canvas, job, end, moment = self.canvas, attempt.job, self._end(attempt), self.clock.moment
        height, top = row.lane_height - 2.0, row.top + lane * row.lane_height + 1.0
        middle = top + height / 2
        self.at[job, attempt.attempt] = middle
        run = attempt.running_s if attempt.running_s is not None else end
        x0, xr, x1 = self.x(attempt.dispatched_s), self.x(min(run, end)), self.x(end)
        started = "never heard to run" if attempt.running_s is None else f"running from {moment(run)}"
        ended = "still there at the end" if attempt.ended_s is None else f"until {moment(end)}"
        why = CAUSES.get(attempt.how, attempt.how)
        tip = (
            f"{job}, attempt {attempt.attempt} on {attempt.host}\n"
            f"given at {moment(attempt.dispatched_s)}, {started}, {ended}" + (f"\n{why}" if why else "")
        )
        colour = f"c{self.colour.get(job, 0)}"
        told: dict[str, Attribute] = {"data_job": job, "data_tip": tip}
        box: dict[str, Attribute] = {"y": top, "height": height}
        elements: list[Element] = []
        if xr > x0:
            elements.append(
                (
                    "rect",
                    "",
                    {"x": x0, "width": xr - x0, **box, "class_": f"bar starting {colour}", "data_job": job},
                )
            )
        elements.append(
            ("rect", "", {"x": xr, "width": x1 - xr, **box, "rx": 2.0, "class_": f"bar {colour}", **told})
        )
        name = job if len(job) * 6.2 + 6 < x1 - xr else job.removeprefix("job")
        if row.lane_height >= LABELLED and len(name) * 6.2 + 4 < x1 - xr:
            elements.append(
                ("text", name, {"x": xr + 3, "y": middle + 3.6, "class_": "bar-label", "data_job": job})
            )
        what = f"attempts on {attempt.host}"
        canvas.mark(x0, x1, *elements, row=("bar", top), height=height, what=what)
        size = min(4.0, height / 2)
        if attempt.how in KILLED:
            whole = 2 * size
            cross = f"M{x1:.3f},{middle:.2f}m{-size:g},{-size:g}l{whole:g},{whole:g}m0,{-whole:g}l{-whole:g},{whole:g}"
            kill: Element = ("path", "", {"d": cross, "class_": "kill", "data_job": job})
            canvas.mark(
                x1,
                x1,
                kill,
                row=("kill", top),
                height=height,
                what=f"attempts on {attempt.host} ended by force",
            )
        elif attempt.how in OVER:
            ends: dict[str, Attribute] = {
                "x1": x1,
                "y1": middle - size - 2,
                "x2": x1,
                "y2": middle + size + 2,
            }
            look = f"end {attempt.how}"
            line: Element = ("line", "", {**ends, "class_": look, "data_job": job})
            canvas.mark(
                x1, x1, line, row=(look, top), height=height, what=f"jobs {attempt.how} on {attempt.host}"
            )

    def _checkpoints(self) -> None:
        done = {(c.job, c.sequence) for _, c in self.facts if isinstance(c, f.CheckpointCompleted)}
        half = self.lane_height / 2 - 1.0
        for at_s, fact in self.facts:
            if not isinstance(fact, f.CheckpointTaken) or (fact.job, fact.attempt) not in self.at:
                continue
            x, y = self.x(at_s), self.at[fact.job, fact.attempt]
            look, became = "checkpoint", "completed"
            if (fact.job, fact.sequence) not in done:
                look, became = "checkpoint open", "never completed"
            tip = f"{fact.job}: checkpoint of step {fact.step}, {became}"
            ends: dict[str, Attribute] = {
                "x1": x,
                "y1": y + half * 0.5,
                "x2": x,
                "y2": y + half,
                "class_": look,
            }
            line: Element = ("line", "", {**ends, "data_job": fact.job, "data_tip": tip})
            self.canvas.mark(
                x, x, line, row=(look, y + half * 0.5), height=half * 0.5, what=f"checkpoints, {became}"
            )

    def _moves(self) -> None:
        by_job: dict[str, list[Attempt]] = {}
        for attempt in self.attempts:
            by_job.setdefault(attempt.job, []).append(attempt)
        for before, after in (pair for tries in by_job.values() for pair in pairwise(tries)):
            here, there = self.at.get((before.job, before.attempt)), self.at.get((after.job, after.attempt))
            if here is None or there is None:
                continue
            begun = after.running_s if after.running_s is not None else after.dispatched_s
            x0, x1 = self.x(self._end(before)), self.x(begun)
            look, words, marker = "planned", "moved", "url(#arrow)"
            if before.how != "final_checkpoint":
                look, words, marker = "resumed", "resumed", "url(#arrow-red)"
            bend = min(26.0, 8.0 + (x1 - x0) / 2)
            way = f"M{x0:.3f},{here:.1f}C{x0 + bend:.2f},{here:.1f} {x1 - bend:.2f},{there:.1f} {x1:.3f},{there:.1f}"
            down = f"{before.host} -> {after.host}, down for {format_duration(begun - self._end(before))}"
            named: dict[str, Attribute] = {"d": way, "class_": f"move {look}", "marker_end": marker}
            told: dict[str, Attribute] = {"data_job": before.job, "data_tip": f"{before.job} {words}: {down}"}
            row, what = (f"move {look}", here - 2.0), f"jobs that {words} from {before.host}"
            self.canvas.mark(x0, x1, ("path", "", named | told), row=row, height=4.0, what=what)


def queue_lengths(facts: Sequence[Timed]) -> list[tuple[float, float]]:
    """(s, jobs waiting) at each change: in the spot queue, interrupted without a host, or for an on-demand slot."""
    waiting: set[str] = set()
    lengths: list[tuple[float, float]] = []
    for at_s, fact in facts:
        match fact:
            case f.JobQueued(job=job) | f.JobWaits(job=job):
                waiting.add(job)
            case (
                f.JobDispatched(job=job)
                | f.JobFinished(job=job)
                | f.JobFailed(job=job)
                | f.JobCancelled(job=job)
            ):
                waiting.discard(job)
        if not lengths or lengths[-1][1] != len(waiting):
            lengths.append((at_s, float(len(waiting))))
    return lengths


_ARROW = (
    '<marker id="{name}" viewBox="0 0 8 8" refX="7" refY="4" markerUnits="userSpaceOnUse" markerWidth="9" '
    'markerHeight="9" orient="auto"><path d="M0,0L8,4L0,8z" class="{look}"/></marker>'
)
_HATCH = (
    '<pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<rect width="6" height="6" class="hatch-base"/><line x1="0" y1="0" x2="0" y2="6" class="hatch-line"/></pattern>'
)
_ARROWS = _ARROW.format(name="arrow", look="arrow") + _ARROW.format(name="arrow-red", look="arrow red")
_DEFS = f"<defs>{_ARROWS}{_HATCH}</defs>"
