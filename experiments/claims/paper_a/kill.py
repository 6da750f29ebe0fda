"""Paper A, E4: how soon the kill-switch closes a host."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from experiments.benchmarks.closing_paths import IPTABLES, MAP, NFT, CannotMeasureError, measure_kill_switch
from experiments.benchmarks.syn_storm import Trial
from experiments.claims.framework.claim import CANNOT, Check, Claim, ClaimKind, Config
from experiments.claims.framework.pictures import OURS, PRINTED_MARK, canvas, dress
from experiments.claims.framework.rows import exact_row, mean_row
from experiments.claims.framework.values import Point, Value, Values
from experiments.claims.framework.verdicts import below, near

SWITCH = "BPF switch"
BATCHES, QUICK_BATCHES, ROUNDS = 20, 6, 400
PRINTED_MS = {"median": 0.6, "p99": 0.9}
LIMIT_MS = 1.0
POINTS = 60

CLAIM_TEXT = (
    "The kill-switch blocks within a millisecond (median .6 ms, 99th percentile .9 ms), two to three orders of magnitude sooner "
    "than application-layer enforcement (about 100 ms) and iptables (about 10 ms); fewer than 500 B of new work get in "
    "after the signal."
)
LIMITS = (
    "How long an owner's click takes to reach the switch, nor what the paper timed: it does not say where its .6 ms begin. Here "
    "the latency is from just before the store to the answer of the last SYN of a storm that gets in, on this machine, whose "
    "load disturbs the tail. Its 100 ms and 10 ms of others are quoted; only tools that are installed are measured."
)


def run(config: Config) -> Values:
    """Run batches of uses of the real switch; a reason stands for numbers where the machine does not allow it."""
    count = config.seeds or (QUICK_BATCHES if config.quick else BATCHES)
    try:
        batches = []
        for done in range(count):
            config.progress(done, count)
            batches.append(measure_kill_switch(ROUNDS, names=(MAP, NFT, IPTABLES)))
        config.progress(count, count)
    except CannotMeasureError as error:
        return Values(
            (),
            (),
            {CANNOT: f"the switch cannot be measured here: {error}", "world": "the kernel of this machine"},
        )
    switch = [_samples(batch, MAP) for batch in batches]
    rows = list(_rows(SWITCH, [[trial.last_let_in_s for trial in batch] for batch in switch]))
    for tool in (NFT, IPTABLES):
        times_s = [
            [t.last_let_in_s for t in _samples(batch, tool)] for batch in batches if _samples(batch, tool)
        ]
        rows += _rows(tool, times_s) if times_s else []
    passed = float(sum(trial.let_in_after_return for batch in switch for trial in batch))
    rows.append(exact_row("passed", SWITCH, "packets after the store", "packets", passed, "of a storm a use"))
    settings = {
        "runs": f"{count} batches of {ROUNDS} uses, each in a network namespace of its own",
        "world": "the kernel of this machine: the ingress program on a cable of its own, a storm of SYNs around each store",
    }
    curves = []
    for share in np.linspace(0.0, 0.999, POINTS).tolist():
        quantiles = sorted(1e3 * float(np.quantile([t.last_let_in_s for t in b], share)) for b in switch)
        ends = (quantiles[0], quantiles[-1])
        curves.append(Point("latency", SWITCH, "quantile", share, statistics.fmean(quantiles), *ends, *ends))
    return Values(tuple(rows), tuple(curves), settings)


def _samples(batch: Mapping[str, list[Trial] | str], name: str) -> list[Trial]:
    """Return the samples; None of a way that this machine does not have."""
    found = batch[name]
    return [] if isinstance(found, str) else found


def _rows(system: str, batches_s: Sequence[Sequence[float]]) -> Iterator[Value]:
    for quantity, q in (("median", 0.5), ("p99", 0.99)):
        numbers = [1e3 * float(np.quantile(batch, q)) for batch in batches_s]
        published = PRINTED_MS[quantity] if system == SWITCH else None
        yield mean_row("latency", system, quantity, "ms", numbers, "of a batch", published=published)


def checks(values: Values) -> Iterator[Check]:
    """Yield the checks of the paper's statements, from the values alone."""
    median, tail = (values.find("latency", SWITCH, quantity) for quantity in ("median", "p99"))
    yield below(ClaimKind.ORDERING, "half of the uses block within a millisecond", median, LIMIT_MS)
    yield below(ClaimKind.ORDERING, "99 of 100 uses block within a millisecond", tail, LIMIT_MS)
    passed = values.find("passed", SWITCH, "packets after the store")
    yield below(ClaimKind.ORDERING, "nothing that is sent after the store gets in", passed, 0.5)
    for row in values.rows:
        if row.group == "latency" and row.system != SWITCH and row.quantity == "median":
            text = f"the switch is a hundred times sooner than {row.system}"
            yield below(
                ClaimKind.ORDERING, text, median, (row.low if row.low is not None else row.measured) / 100.0
            )
    yield near(ClaimKind.VALUE, "the median is the printed .6 ms", median, PRINTED_MS["median"], 0.2)
    yield near(ClaimKind.VALUE, "the 99th percentile is the printed .9 ms", tail, PRINTED_MS["p99"], 0.2)


def draw(values: Values, path: Path) -> None:
    """Draw the distribution, with the paper's two numbers."""
    with canvas(path, 1, 1, (8.6, 4.8), "Kill-switch: from the store to the last connection let in") as (
        _,
        panels,
    ):
        axes = panels[0][0]
        points = values.curve("latency", SWITCH, "quantile")
        if not points:
            axes.text(0.5, 0.5, f"not measured:\n{values.settings.get(CANNOT, '')}", ha="center", wrap=True)
        shares = [point.x for point in points]
        axes.plot(
            [point.mean for point in points],
            shares,
            color=OURS,
            linewidth=2,
            label="this kernel, mean of batches",
        )
        axes.fill_betweenx(
            shares, [p.low for p in points], [p.high for p in points], color=OURS, alpha=0.2, linewidth=0
        )
        printed_ms = list(PRINTED_MS.values())
        axes.plot(printed_ms, [0.5, 0.99], "D", label="paper A: median, p99", zorder=4, **PRINTED_MARK)
        axes.set_xscale("log")
        dress(axes, "ms (log)", "share of uses")
        axes.legend(loc="center")


CLAIM = Claim(
    name="A-kill",
    paper="Paper A, E4",
    title="Kill-switch latency",
    text=CLAIM_TEXT,
    does_not_prove=LIMITS,
    headline=("median", "p99"),
    run=run,
    draw=draw,
    checks=checks,
)
