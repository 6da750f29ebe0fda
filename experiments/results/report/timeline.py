"""The time line: what every GPU of every host did, when its owner had it, and where the jobs went."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from markupsafe import Markup

from controller.core.model import facts as f
from experiments.results.history import OVER, Attempt, Timed, attempts, end_s, tries_of, turn_of_host
from experiments.results.narration import CAUSES
from experiments.results.report.drawing import Axis, Picture, Shape, outline, path, steps
from experiments.results.report.times import RunClock
from experiments.results.run_context import RunContext
from topologies.spec import Host, Role
from topologies.units import format_duration

WIDTH, RIGHT = 1240.0, 22.0
MIN_LABELS, GLYPH = 74.0, 8.0  # width left of the lanes, at least; of a letter in it, at most
STRIP, GAP = 46.0, 9.0  # height of the queue's strip; space between buildings
# (lanes at most, height of each); with more lanes, the least height
LANE_HEIGHTS, MIN_LANE_HEIGHT = ((40, 18.0), (100, 13.0), (250, 8.0)), 5.0
COLOURS = 8
LABELLED = 14.0  # height of a lane in which names of jobs can be read
LETTER = 6.2  # width of a letter in a bar
KILLED = ("emergency", "deadline", "agent_lost")


@dataclass(frozen=True)
class TimelineRow:
    """A host and the place of its lanes."""

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


def spans(facts: Sequence[Timed], until_s: float) -> list[TimelineSpan]:
    """Return notices, reclaims and silences of all hosts; those still open end with the run."""
    done: list[TimelineSpan] = []
    opened: dict[tuple[str, str], tuple[float, str]] = {}  # one of each kind may be open at a host

    def close(at_s: float, host: str, *kinds: str) -> None:
        ended = [(kind, opened.pop((host, kind))) for kind in kinds if (host, kind) in opened]
        done.extend(TimelineSpan(host, kind, from_s, at_s, why) for kind, (from_s, why) in ended)

    for at_s, fact in facts:
        if turn := turn_of_host(fact):
            host, ended, begun, why = turn
            close(at_s, host, *ended)
            if begun:
                opened.setdefault((host, begun), (at_s, why))
    for host, kind in list(opened):
        close(until_s, host, kind)
    return done


def colours(facts: Sequence[Timed]) -> dict[str, int]:
    """Return a colour for each job, in order of submission; neighbours differ."""
    jobs = dict.fromkeys(fact.job for _, fact in facts if isinstance(fact, f.JobSubmitted | f.JobDispatched))
    return {job: n % COLOURS for n, job in enumerate(jobs)}


def clock_of(facts: Sequence[Timed], context: RunContext) -> RunClock:
    """Return the time of a run, from its beginning to its end."""
    return RunClock(max(end_s(facts, context.ended_at_s), 1e-3), context.day_s, context.day_start_s)


def queue_lengths(facts: Sequence[Timed]) -> list[tuple[float, float]]:
    """Return (s, jobs waiting) at each change: in the spot queue, interrupted without a host, or for an on-demand slot."""
    waiting: set[str] = set()
    lengths: list[tuple[float, float]] = []
    for at_s, fact in facts:
        match fact:
            case f.JobQueued(job=job) | f.JobWaits(job=job):
                waiting.add(job)
            case f.JobDispatched(job=job) | f.JobFinished(job=job) | f.JobFailed(job=job) | f.JobCancelled(job=job):
                waiting.discard(job)
        if not lengths or lengths[-1][1] != len(waiting):
            lengths.append((at_s, float(len(waiting))))
    return lengths


def timeline(facts: Sequence[Timed], context: RunContext) -> Markup:
    """Return the picture, as SVG; the times of day stand above it."""
    return _Timeline(facts, context).draw()


class _Timeline:
    def __init__(self, facts: Sequence[Timed], context: RunContext) -> None:
        self.facts, self.context = facts, context
        self.clock = clock_of(facts, context)
        self.until_s = self.clock.until_s
        self.colour = colours(facts)
        self.at: dict[tuple[str, int], float] = {}  # attempt -> middle of its lane
        hosts = [h for h in context.campus.hosts if h.role is not Role.COORDINATOR]
        lanes: dict[str, list[list[Attempt]]] = {host.name: [[]] for host in hosts}
        for attempt in sorted(attempts(facts), key=lambda a: a.dispatched_s):
            if (some := lanes.get(attempt.host)) is None:
                continue
            free = (lane for lane in some if not lane or self._end(lane[-1]) <= attempt.dispatched_s)
            if (lane := next(free, None)) is None:
                some.append(lane := [])
            lane.append(attempt)
        count = sum(map(len, lanes.values()))
        height = next((tall for most, tall in LANE_HEIGHTS if count <= most), MIN_LANE_HEIGHT)
        self.lane_height = height
        self.rows: dict[str, TimelineRow] = {}
        self.bottom, top, building = STRIP + 20.0, STRIP + 34.0, None
        for host in hosts:
            top += GAP if building not in (None, host.building) else 0.0
            building = host.building
            row = self.rows[host.name] = TimelineRow(host, top, lanes[host.name], height)
            self.bottom = top + row.height
            top = self.bottom + (2.0 if height > 10.0 else 1.0)
        letters = max((len(host.building) + len(host.name) for host in hosts), default=0)
        self.labels = max(MIN_LABELS, 16.0 + GLYPH * letters)
        self.picture = Picture(
            "Time line of jobs and reclaims by host", WIDTH, self.bottom + 30.0, self.clock, "timeline"
        )
        self.picture.left, self.picture.right = self.labels, RIGHT
        self.x = self.picture.x

    def _end(self, attempt: Attempt) -> float:
        return self.until_s if attempt.ended_s is None else attempt.ended_s

    def draw(self) -> Markup:
        shapes = self.picture.shapes
        for at_s, label in self.clock.hours(10):
            shapes.append(Shape(look="tick", x=self.x(at_s), y=STRIP + 24.0, text=label, anchor="middle"))
        for at_s, label in self.clock.ticks(10):
            x = self.x(at_s)
            shapes.append(Shape(look="grid", d=path([(x, STRIP + 29.0), (x, self.bottom + 4)])))
            shapes.append(Shape(look="tick", x=x, y=self.bottom + 18, text=label, anchor="middle"))
        self._queue()
        self._hosts()
        self._spans()
        for row in self.rows.values():
            for n, lane in enumerate(row.lanes):
                for attempt in lane:
                    self._bar(row, n, attempt)
        self._checkpoints()
        self._moves()
        self._deaths()
        return self.picture.svg()

    def _label(self, y: float, text: str, look: str = "host", tip: str = "") -> None:
        self.picture.shapes.append(Shape(look=look, x=self.labels - 8, y=y, text=text, anchor="end", tip=tip))

    def _queue(self) -> None:
        lengths = queue_lengths(self.facts)
        most = max([n for _, n in lengths], default=0)
        height, bottom = Axis(0.0, max(most, 1.0), STRIP + 8.0, 14.0), STRIP + 8.0
        line = [(self.x(at_s), height(n)) for at_s, n in steps([(0.0, 0.0), *lengths], self.until_s)]
        area = path([(self.x.start, bottom), *outline(line, 1.0), (self.x.end, bottom)])
        self.picture.shapes += (
            Shape(look="queue-area", d=area),
            Shape(look="axis", d=path([(self.x.start, bottom), (self.x.end, bottom)])),
        )
        self._label(STRIP + 2, "waiting")
        self._label(18, f"{most:g}", "tick", f"jobs waiting, at most {most:g}")

    def _hosts(self) -> None:
        building, width = None, self.x.end - self.x.start
        for row in self.rows.values():
            host, middle = row.host, row.top + row.height / 2 + 4
            shade = "lane" if host.role is Role.VOLUNTEER else "lane od"
            lane = Shape(look=shade, x=self.x.start, y=row.top, width=width, height=row.height)
            self.picture.shapes.append(lane)
            size = "host" if row.lane_height > 10.0 else "host small"
            tip = f"{host.name}, building {host.building}: {host.gpus} x {host.gpu_model}"
            self._label(middle, host.name, size, tip)
            if host.building != building:
                building = host.building
                self.picture.shapes.append(Shape(look=f"{size} building", x=4, y=middle, text=building))

    def _spans(self) -> None:
        moment = self.clock.moment
        for span in spans(self.facts, self.until_s):
            if row := self.rows.get(span.host):
                x, end, look = self.x(span.from_s), self.x(span.to_s), f"span {span.kind}"
                tip = f"{span.host}: {span.why}, {moment(span.from_s)} to {moment(span.to_s)}"
                box = Shape(look=look, x=x, y=row.top, width=end - x, height=row.height, tip=tip)
                self.picture.mark((look, row.top), x, end, box)

    def _bar(self, row: TimelineRow, lane: int, attempt: Attempt) -> None:
        job, end, moment = attempt.job, self._end(attempt), self.clock.moment
        height, top = row.lane_height - 2.0, row.top + lane * row.lane_height + 1.0
        middle = self.at[job, attempt.attempt] = top + height / 2
        run = attempt.running_s if attempt.running_s is not None else end
        x0, xr, x1 = self.x(attempt.dispatched_s), self.x(min(run, end)), self.x(end)
        started = "never reported to run" if attempt.running_s is None else f"running from {moment(run)}"
        ended = "still there at the end" if attempt.ended_s is None else f"until {moment(end)}"
        why = CAUSES.get(attempt.how, attempt.how)
        tip = (
            f"{job}, attempt {attempt.attempt} on {attempt.host}\n"
            f"given at {moment(attempt.dispatched_s)}, {started}, {ended}" + (f"\n{why}" if why else "")
        )
        colour = f"c{self.colour.get(job, 0)}"
        drawn = [Shape(look=f"bar {colour}", x=xr, y=top, width=x1 - xr, height=height, rx=2, tip=tip, job=job)]
        if xr > x0:
            look = f"bar starting {colour}"
            drawn.insert(0, Shape(look=look, x=x0, y=top, width=xr - x0, height=height, job=job))
        name = job if len(job) * LETTER + 6 < x1 - xr else job.removeprefix("job")
        if row.lane_height >= LABELLED and len(name) * LETTER + 4 < x1 - xr:
            drawn.append(Shape(look="bar-label", x=xr + 3, y=middle + 3.6, text=name, job=job))
        self.picture.mark(("bar", top), x0, x1, *drawn)
        size = min(4.0, height / 2)
        if attempt.how in KILLED:
            look, whole = "kill", 2 * size
            d = f"M{x1:.2f},{middle:.2f}m{-size:g},{-size:g}l{whole:g},{whole:g}m0,{-whole:g}l{-whole:g},{whole:g}"
        elif attempt.how in OVER:
            look = f"end {attempt.how}"
            d = path([(x1, middle - size - 2), (x1, middle + size + 2)])
        else:
            return
        self.picture.mark((look, top), x1, x1, Shape(look=look, d=d, job=job))

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
            tip, top = f"{fact.job}: checkpoint of step {fact.step}, {became}", y + half * 0.5
            line = Shape(look=look, d=path([(x, top), (x, y + half)]), job=fact.job, tip=tip)
            self.picture.mark((look, top), x, x, line)

    def _moves(self) -> None:
        for before, after in (pair for tries in tries_of(self.facts).values() for pair in pairwise(tries)):
            here, there = self.at.get((before.job, before.attempt)), self.at.get((after.job, after.attempt))
            if here is None or there is None:
                continue
            ended_s, begun_s = self._end(before), after.running_s
            begun_s = after.dispatched_s if begun_s is None else begun_s
            x0, x1 = self.x(ended_s), self.x(begun_s)
            look, words = ("planned", "moved") if before.how == "final_checkpoint" else ("resumed", "resumed")
            bend = min(26.0, 8.0 + (x1 - x0) / 2)
            way = f"M{x0:.2f},{here:.1f}C{x0 + bend:.2f},{here:.1f} {x1 - bend:.2f},{there:.1f} {x1:.2f},{there:.1f}"
            down = format_duration(begun_s - ended_s)
            tip = f"{before.job} {words}: {before.host} -> {after.host}, down for {down}"
            arrow = Shape(look=f"move {look}", d=way, job=before.job, tip=tip)
            self.picture.mark((f"move {look}", here), x0, x1, arrow)

    def _deaths(self) -> None:
        for death in self.context.deaths:
            x, row = self.x(death.at_s), self.rows.get(death.subject)
            top, bottom = (row.top, row.top + row.height) if row else (STRIP + 30.0, self.bottom)
            tip = f"{death.subject} died at {self.clock.moment(death.at_s)}: {death.how}"
            y = (top + bottom) / 2 if row else top
            line = Shape(look="death", d=path([(x, top), (x, bottom)]))
            diamond = Shape(look="death-mark", d=f"M{x:.2f},{y - 6:.1f}l6,6l-6,6l-6,-6z", tip=tip)
            self.picture.mark((death.subject, y), x, x, line, diamond)
