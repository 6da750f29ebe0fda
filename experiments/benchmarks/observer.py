"""What it costs to observe: throughput of one TCP flow between two hosts, with the observer's programs and without, by turns."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mininet.log import setLogLevel
from rich.table import Table

from experiments.benchmarks.goals import JudgedFigure
from experiments.benchmarks.links import two_hosts
from experiments.benchmarks.results import machine, write_result
from testbed.emulation.campus import LiveCampus
from testbed.emulation.fidelity import probe_link_rates
from testbed.emulation.safety.observation import CampusObserver
from topologies.units import GBIT_PER_S, format_rate

RATE = 40 * GBIT_PER_S  # faster than this machine forwards, so that the processor is what limits
FLOW_S = 1.0
GOAL = 0.03  # of throughput


def measure_observer(out: Path, rounds: int) -> dict[str, Any]:
    """`rounds` pairs of flows; which of a pair is observed first alternates. Writes observer.json into `out`. SetupError."""
    setLogLevel("error")
    pairs: list[dict[str, float]] = []
    with LiveCampus(two_hosts(RATE)) as net:
        pids = net.kernel.holder_pids | {"": net.kernel.fabric_pid}

        def flow(*, observed: bool) -> float:
            observer = CampusObserver(pids, time.monotonic()) if observed else None
            try:
                return probe_link_rates(net, [("h1", "h2")], duration_s=FLOW_S)[0].measured_bytes_per_s
            finally:
                if observer:
                    observer.close()

        for number in range(rounds):
            order = (True, False) if number % 2 else (False, True)
            pairs.append({("observed" if seen else "plain"): flow(observed=seen) for seen in order})
    costs = sorted(1.0 - pair["observed"] / pair["plain"] for pair in pairs)
    quarters = statistics.quantiles(costs, n=4)
    result = {
        **machine(),
        "pairs": pairs,
        "cost": {"median": quarters[1], "quartiles": [quarters[0], quarters[2]]},
        "met": quarters[1] <= GOAL,
    }
    write_result(out / "observer.json", result)
    return result


def judged_figures(result: Mapping[str, Any]) -> Iterator[JudgedFigure]:
    """The figures of `result`, as it stands in the JSON, that have a goal."""
    cost = f"{result['cost']['median']:.1%}"
    yield JudgedFigure("what observing costs a TCP flow", f"<= {GOAL:.0%}", cost, result["met"])


def observer_table(result: dict[str, Any]) -> Table:
    """Medians, and what observing costs beside the goal."""
    table = Table("", "one TCP flow", title=f"{result['cpus']} processors, kernel {result['kernel']}")
    for key, words in (("plain", "not observed"), ("observed", "observed")):
        table.add_row(words, format_rate(statistics.median(pair[key] for pair in result["pairs"])))
    low, high = result["cost"]["quartiles"]
    verdict = "met" if result["met"] else "not met"
    table.add_row(
        f"cost, median of {len(result['pairs'])} pairs",
        f"{result['cost']['median']:.1%} (quartiles {low:.1%} to {high:.1%}); goal at most {GOAL:.0%}: {verdict}",
    )
    return table
