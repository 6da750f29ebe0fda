"""Paper A, E4: how soon the kill-switch closes a host."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from experiments.benchmarks.killswitch import IPTABLES, MAP, NFT, CannotMeasureError, measure_kill_switch
from experiments.benchmarks.syn_storm import Trial
from experiments.claims.framework.claim import Check, ClaimKind, Config
from experiments.claims.framework.panels import Panel
from experiments.claims.framework.rows import mean_row
from experiments.claims.framework.values import CANNOT, Point, Value, Values
from experiments.claims.framework.verdicts import below, near

SWITCH = "BPF switch"
BATCHES, QUICK_BATCHES, ROUNDS = 20, 6, 400
TOOL_ROUNDS = 20  # a rule takes a hundred times as long
PRINTED_MS = {"median": 0.6, "p99": 0.9}
LIMIT_MS = 1.0
POINTS = 60


def run(config: Config) -> Values:
    """Run batches of uses of the real switch; a reason stands for numbers where the machine does not allow it."""
    count = config.seeds or (QUICK_BATCHES if config.quick else BATCHES)
    try:
        batches = []
        for done in range(count):
            config.progress(done, count)
            switch = measure_kill_switch(ROUNDS, names=(MAP,))
            batches.append(switch | measure_kill_switch(TOOL_ROUNDS, names=(NFT, IPTABLES)))
        config.progress(count, count)
    except CannotMeasureError as error:
        return Values(
            (),
            (),
            {CANNOT: f"the switch cannot be measured here: {error}", "world": "the kernel of this machine"},
        )
    stores = [_samples(batch, MAP) for batch in batches]
    rows = list(_rows(SWITCH, [[trial.last_let_in_s for trial in batch] for batch in stores]))
    for tool in (NFT, IPTABLES):
        times_s = [
            [t.last_let_in_s for t in _samples(batch, tool)] for batch in batches if _samples(batch, tool)
        ]
        rows += _rows(tool, times_s) if times_s else []
    passed = float(sum(trial.let_in_after_return for batch in stores for trial in batch))
    rows.append(
        Value("passed", SWITCH, "packets after the store", "packets", passed, note="of a storm a use")
    )
    settings = {
        "runs": f"{count} batches of {ROUNDS} uses, each in a network namespace of its own",
        "world": "the kernel of this machine: the ingress program on a cable of its own, a storm of SYNs around each store",
    }
    curves = []
    for share in np.linspace(0.0, 0.999, POINTS).tolist():
        quantiles = sorted(1e3 * float(np.quantile([t.last_let_in_s for t in b], share)) for b in stores)
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


PANELS = (
    Panel(
        "quantile",
        "From the store to the last connection let in",
        x="share of uses",
        y="ms (log), mean of batches",
        log="y",
        marks={f"paper A: {name}": ms for name, ms in PRINTED_MS.items()},
    ),
    Panel("median", "Beside other tools, ms", log="x"),
)
