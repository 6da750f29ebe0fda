"""Results of a sweep: a row a run, intervals over the seeds with paired differences, a picture and a page.

All of it follows from the plan and the runs' results, in the order of the plan. The order in which runs ended, and the
places where they were played, leave no trace in it.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import product, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.results.pages import render
from experiments.results.pictures import INK, SERIES, canvas, dress, placed
from experiments.results.provenance import provenance
from experiments.results.report.tables import written
from experiments.results.report.times import round_step
from experiments.results.statistics import ENOUGH_SEEDS, Paired, interval, paired
from experiments.results.summary import DIMENSIONS, MEANINGS
from experiments.runtime.tasks import Result
from experiments.sweeps.plan import FIGURES, SweepCase, SweepPlan
from topologies.dimension import Dimension
from topologies.writing import write_whole

if TYPE_CHECKING:
    import polars

# figures of which more is better; neither more nor less of ASIDE; of all others less
MORE = (
    *("jobs.finished", "migrations.in_time", "migrations.admitted", "emergencies.restored_verified"),
    *(
        "lost_time.useful_s",
        "research.lowest_share",
        "rates.worst_goodput_over_grant",
        "rates.median_goodput_over_grant",
    ),
)
ASIDE = ("lost_time.online_bound_covers", "checkpoints.bytes_sent", "jobs.submitted", "lost_time.begun_s")
COLUMN_IN, ROW_IN = 5.2, 0.26  # of the picture
MAX_LISTED = 40  # promises that were broken, on the page
Text = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class SweepInterval:
    """A figure under a policy at values of the keys: mean over the seeds, 95 % interval, and difference from the reference.

    The reference is the first policy at the same values; with one policy alone, the first values. `pairs`: seeds in
    which both have the figure. None: no run has it, or it is the reference itself; with one seed there is no interval,
    and nothing to test.
    """

    policy: str
    values: Text
    figure: str
    mean: float | None = None
    low: float | None = None
    high: float | None = None
    seeds: int = 0
    difference: float | None = None
    difference_low: float | None = None
    difference_high: float | None = None
    p_value: float | None = None
    pairs: int = 0


@dataclass(frozen=True)
class SweepResult:
    """The runs of a sweep in the order of its plan."""

    plan: SweepPlan
    cases: tuple[SweepCase, ...]
    results: tuple[Result, ...]

    @property
    def broken(self) -> Iterator[str]:
        """Each promise that did not hold, and in which run."""
        for case, result in zip(self.cases, self.results, strict=True):
            yield from (f"{case.label}, seed {case.seed}: {broken}" for broken in result["broken"])

    @cached_property
    def shown(self) -> tuple[str, ...]:
        """The plan's figures that some run has, or all of them if none has any; if none were named, not those that are 0."""
        absent = (None, 0) if self.plan.figures == FIGURES else (None,)
        known = {name for result in self.results for name, value in result["figures"].items() if value not in absent}
        return tuple(figure for figure in self.plan.figures if figure in known) or self.plan.figures

    @cached_property
    def runs(self) -> polars.DataFrame:
        """A row a run: policy, seed, each key that is varied, every figure, promises that were broken, digest of its events."""
        import polars

        columns: dict[str, Any] = {
            "scenario": [case.scenario.name for case in self.cases],
            "policy": [case.policy for case in self.cases],
            "seed": [case.seed for case in self.cases],
        }
        for place, key in enumerate(self.plan.keys):
            texts = [case.values[place][1] for case in self.cases]
            numeric = all(map(_is_number, self.plan.values.get(key, [""])))
            columns[key] = list(map(float, texts)) if numeric else texts
        # each figure that some run has, in the summary's order
        known = {name for result in self.results for name in result["figures"]}
        for figure in (name for name in (*MEANINGS, *sorted(known - MEANINGS.keys())) if name in known):
            found = [result["figures"].get(figure) for result in self.results]
            whole = all(value is None or isinstance(value, int) for value in found)
            columns[figure] = polars.Series(figure, found, polars.Int64 if whole else polars.Float64, strict=False)
        columns["promises_broken"] = [len(result["broken"]) for result in self.results]
        columns["events_sha256"] = [result["sha256"] for result in self.results]
        return polars.DataFrame(columns)

    @cached_property
    def intervals(self) -> polars.DataFrame:
        """A row a policy, combination of values and figure: what `SweepInterval` has."""
        import polars

        rows = []
        for row in self.rows:
            found = asdict(row)
            rows.append({"policy": found.pop("policy"), **dict(found.pop("values")), **found})
        return polars.DataFrame(rows, infer_schema_length=None)

    @cached_property
    def _cells(self) -> dict[tuple[Text, str], Sequence[Result]]:
        """Results of all seeds, by values and policy."""
        seeds = len(self.plan.seeds)
        firsts = [(start, self.cases[start]) for start in range(0, len(self.cases), seeds)]
        return {(first.values, first.policy): self.results[start : start + seeds] for start, first in firsts}

    def _paired(self, figure: str, one: tuple[Text, str], other: tuple[Text, str]) -> Paired | None:
        """Compare two cells over the seeds in which both have the figure; None: there is none."""
        of_both = (([result["figures"].get(figure) for result in self._cells[cell]]) for cell in (one, other))
        pairs = [pair for pair in zip(*of_both, strict=True) if None not in pair]
        return paired(*map(list, zip(*pairs, strict=True))) if pairs else None

    @property
    def winners(self) -> Iterator[tuple[str, str]]:
        """Yield each figure with a sentence that names the winner; of several policies, one at each combination of values."""
        has_policies = len(self.plan.policies) > 1
        contests: dict[Text, list[tuple[Text, str]]] = {}
        for values, policy in self._cells:
            contests.setdefault(values if has_policies else (), []).append((values, policy))
        for figure, (values, cells) in product((name for name in self.shown if name not in ASIDE), contests.items()):
            at = ", ".join(f"{key} {value}" for key, value in values)
            if told := self._winner(figure, cells):
                yield words_of(figure), f"at {at}: {told}" if at else told

    def _winner(self, figure: str, cells: Sequence[tuple[Text, str]]) -> str:
        """Return the best mean and, of each other, by how much it is behind; level: the 95 % interval holds 0."""
        rows = {(row.values, row.policy): row for row in self.rows if row.figure == figure and row.mean is not None}
        known = [cell for cell in cells if cell in rows]
        ranked = sorted(known, key=lambda cell: rows[cell].mean or 0.0, reverse=figure in MORE)
        if len(ranked) < 2:
            return ""
        names = {cell: cell[1] if len(self.plan.policies) > 1 else ", ".join(v for _, v in cell[0]) for cell in ranked}
        best, behind, level = ranked[0], [], []
        for cell in ranked[1:]:
            if (both := self._paired(figure, cell, best)) is None:
                continue
            apart = both.difference
            if apart.low is None or apart.high is None:
                return f"not judged: below {ENOUGH_SEEDS} seeds there is no interval; best mean: {names[best]}"
            is_behind, ends = apart.low * apart.high > 0.0, [apart.low, apart.high]
            low, high = (written(figure, each) for each in (sorted(map(abs, ends)) if is_behind else ends))
            if is_behind:
                behind.append(f"{names[cell]} by {written(figure, abs(apart.mean))} ({low} to {high})")
            else:
                level.append(names[cell] + ("" if low == high else f" (apart {low} to {high})"))
        mine = f"{names[best]}, {written(figure, rows[best].mean)}"
        won = f"{mine}, is level with {', '.join(level)}" if level else f"{mine}, wins"
        return f"{won}; ahead of {', '.join(behind)}" if behind else won

    @cached_property
    def rows(self) -> tuple[SweepInterval, ...]:
        """Rows of the plan's figures, in its order."""
        found = []
        for figure in self.shown:
            for values, policy in self._cells:
                ours = [result["figures"].get(figure) for result in self._cells[values, policy]]
                known = [value for value in ours if value is not None]
                row = SweepInterval(policy, values, figure, seeds=len(known))
                if known:
                    mean = interval(known)
                    row = replace(row, mean=mean.mean, low=mean.low, high=mean.high)
                base = self._reference(values)
                if base != (values, policy) and (both := self._paired(figure, (values, policy), base)):
                    apart = both.difference
                    row = replace(row, difference=apart.mean, p_value=both.p_value, pairs=apart.seeds)
                    row = replace(row, difference_low=apart.low, difference_high=apart.high)
                found.append(row)
        return tuple(found)

    def write(self, folder: str | Path) -> Path:
        """Write the tables, the picture and the page into a folder; return the page's path.

        Files: `runs.csv`, `runs.parquet`, `intervals.csv`, `sweep.svg` and `sweep.html`.
        """
        out = Path(folder)
        out.mkdir(parents=True, exist_ok=True)
        # polars reports a full disk as an error of its own, without its number
        in_memory = io.BytesIO()
        self.runs.write_parquet(in_memory)
        write_whole(out / "runs.parquet", in_memory.getbuffer())
        write_whole(out / "runs.csv", self.runs.write_csv())
        write_whole(out / "intervals.csv", self.intervals.write_csv())
        return self.report(out / "sweep.html")

    def picture(self, path: str | Path) -> Path:
        """Write the picture (SVG): a panel a figure, means with their intervals."""
        columns = 2 if len(self.shown) > 1 else 1
        rows = -(-len(self.shown) // columns)
        height = 1.0 + ROW_IN * max(3, len(self.cases) // len(self.plan.seeds))
        title = f"{self.plan.scenario.name}: {self._size}"
        size_in = (COLUMN_IN * columns, height * rows)
        from matplotlib.ticker import MultipleLocator

        with canvas(Path(path), rows, columns, size_in, title, sharey=True) as (_, panels):
            for axes, figure in zip_longest(panels.flat, self.shown):
                axes.set_visible(figure is not None)
                if figure is not None:
                    self._draw(axes, [row for row in self.rows if row.figure == figure])
                    dress(axes, words_of(figure), "", grid="x")
                    if DIMENSIONS.get(figure) is Dimension.DURATION:
                        low, high = axes.get_xlim()
                        axes.xaxis.set_major_locator(MultipleLocator(round_step((high - low) / 5.0)))
                    axes.xaxis.set_major_formatter(lambda value, _, figure=figure: written(figure, value))
        return Path(path)

    def _draw(self, axes: Any, rows: Sequence[SweepInterval]) -> None:
        """Draw a line for each row: its mean, and its interval if it has one."""
        labels = []
        for place, row in enumerate(rows):
            values = (f"{key.rpartition('.')[2]} {value}" for key, value in row.values)
            labels.append(", ".join([row.policy, *values]))
            if row.mean is not None:
                colour = SERIES[self.plan.policies.index(row.policy) % len(SERIES)]
                reach = None
                if row.low is not None and row.high is not None:
                    reach = [[row.mean - row.low], [row.high - row.mean]]
                look = {"color": colour, "marker": "o", "markersize": 4.5, "capsize": 3}
                axes.errorbar([row.mean], [place], xerr=reach, **look)
        axes.set_yticks(range(len(labels)), labels, fontsize=8, color=INK)
        axes.set_ylim(len(labels) - 0.5, -0.5)

    def report(self, path: str | Path) -> Path:
        """Write the page (HTML, self-contained); return its path."""
        file = Path(path)
        picture = self.picture(file.with_suffix(".svg"))
        broken = list(self.broken)
        text = render(
            Path(__file__).with_name("sweep.html"),
            title=f"Sweep: {self.plan.scenario.name}",
            plan=self.plan,
            size=self._size,
            reference=self._reference(())[1] if len(self.plan.policies) > 1 else "the first values",
            picture=placed(
                picture.read_text("utf-8"),
                "Each figure under each policy, with error bars; the table below has the same numbers",
            ),
            figures=[
                (figure, words_of(figure), MEANINGS.get(figure, ""), [row for row in self.rows if row.figure == figure])
                for figure in self.shown
            ],
            winners=list(self.winners),
            written=written,
            keys=self.plan.keys,
            broken=broken[:MAX_LISTED],
            count=len(broken),
            runs=len(self.cases),
            origin=provenance(),
        )
        write_whole(file, text)
        return file

    def __repr__(self) -> str:
        return f"<sweep of {self.plan.scenario.name}: {self._size}>"

    @property
    def _size(self) -> str:
        return f"{len(self.cases)} runs, {len(self.plan.seeds)} seeds"

    def _reference(self, values: Text) -> tuple[Text, str]:
        if len(self.plan.policies) > 1:
            return values, self.plan.policies[0]
        return self.cases[0].values, self.plan.policies[0]


def words_of(figure: str) -> str:
    """Return a figure's name for people."""
    section, _, name = figure.partition(".")
    words = name.removesuffix("_bytes_per_s").removesuffix("_s").replace("gpu", "GPU time").replace("_", " ")
    return f"{section.replace('_', ' ')}: {words}"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
