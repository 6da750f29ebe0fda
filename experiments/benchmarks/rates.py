"""Goodput of granted flows over their grants: pacing, paper A's drop bucket, HTB classes at the bottleneck, and nothing.

One flow is granted 5, 50 and 400 Mbit/s over a trunk of 1 Gbit/s. Seven flows of unequal grants share a trunk of 100
Mbit/s, whose queue holds 100 ms, with one unlimited research flow. Research is once on BBR and once on CUBIC. Goodput
is payload that arrived at the sink in the measured time, after the warm-up. The goal for every flow is 0.97 to 1.00 of
its grant. No bucket is to drop a packet, and research is to get the rest of the trunk.

Reasons of the settings, as measured:
- pacing half a percent under the grant, so that goodput cannot exceed it; a guard 5 % over it, four super-packets deep;
- small super-packets (`smooth_pacing`): with the kernel's default, a flow of 4 Mbit/s with short round trips sends 64
  KiB every 130 ms. Goodput over some seconds is then off by up to 3 %;
- on one queue for all, CUBIC under the pacing, and research that keeps the queue short (BBR): 0.99. Paced BBR falls to 0.88,
  since its own model of the path sits below the pacing;
- where research fills the one queue (CUBIC), no sender holds its grant. Paced BBR falls to 0.1-0.8: it takes the round
  trip of the empty trunk for the true one and holds its window to twice that. Paced CUBIC falls to 0.4-1.0 (research's
  tail drops);
- a trunk that serves the marked classes first, from a queue of their own and up to their share (1 - beta). The four
  classes of paper A, section VII-A, mean this ("marked first"). Every grant is then met, under BBR or CUBIC, whatever
  research runs.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from rich.table import Table

from controller.core.admission.schedule import LAG_S
from experiments.benchmarks.frame import Goal, Result, Run, at_most, in_ms, table_of
from experiments.benchmarks.rates_network import Order, RatesNetwork, TrunkShaping, rates_network
from testbed.enforcement import Enforcement, payload_rate, wire_rate
from topologies.units import GBIT_PER_S, MBIT_PER_S

GOAL: Final = (0.97, 1.0)
RISING_GRANTS: Final = tuple(rate * MBIT_PER_S for rate in (5, 50, 400))
NOTHING_S: Final = 0.5
DEFAULT: Final = "paced, BBR, marked first"
SHARED_GRANTS: Final = tuple(rate * MBIT_PER_S for rate in (2, 4, 6, 8, 10, 12, 14))


@dataclass(frozen=True, slots=True)
class EnforcementSystem:
    """A means to hold flows at their grants."""

    name: str
    enforcement: Enforcement
    congestion: str
    has_trunk_classes: bool = False
    serves_marked_first: bool = False


@dataclass(frozen=True, slots=True)
class Setting:
    """Grants (payload bytes/s) over a trunk (wire bytes/s), and the congestion control of an unlimited flow beside them."""

    name: str
    trunk_bytes_per_s: float
    grants_bytes_per_s: tuple[float, ...]
    research_congestion: str | None = None

    @property
    def rest_bytes_per_s(self) -> float:
        """Payload bytes/s of the trunk beyond all grants."""
        return payload_rate(self.trunk_bytes_per_s - wire_rate(sum(self.grants_bytes_per_s)))


SYSTEMS: Final = (
    EnforcementSystem("paced, BBR", Enforcement.PACE, "bbr"),
    EnforcementSystem("paced, CUBIC", Enforcement.PACE, "cubic"),
    EnforcementSystem("paced, BBR, marked first", Enforcement.PACE, "bbr", serves_marked_first=True),
    EnforcementSystem("paced, CUBIC, marked first", Enforcement.PACE, "cubic", serves_marked_first=True),
    EnforcementSystem("drop bucket", Enforcement.DROP, "cubic"),
    EnforcementSystem("HTB classes", Enforcement.NONE, "cubic", has_trunk_classes=True),
    EnforcementSystem("nothing", Enforcement.NONE, "cubic"),
)
SETTINGS: Final = (
    Setting("one flow, 5 Mbit/s", GBIT_PER_S, (5 * MBIT_PER_S,)),
    Setting("one flow, 50 Mbit/s", GBIT_PER_S, (50 * MBIT_PER_S,)),
    Setting("one flow, 400 Mbit/s", GBIT_PER_S, (400 * MBIT_PER_S,)),
    Setting("seven flows, research on BBR", 100 * MBIT_PER_S, SHARED_GRANTS, "bbr"),
    Setting("seven flows, research on CUBIC", 100 * MBIT_PER_S, SHARED_GRANTS, "cubic"),
)


def measure(run: Run) -> dict[str, Any]:
    """Measure every system in every setting: 5 minutes, `quick` 90 s. BpfError where BPF is missing."""
    warm_s, measured_s, tries = (1.0, 1.5, 2) if run.quick else (2.0, 6.0, 5)
    rises: list[dict[str, Any]] = []
    with rates_network(len(SHARED_GRANTS) + 1) as network:
        network.shape(TrunkShaping(GBIT_PER_S, serves_marked_first=True))
        for congestion in ("bbr", "cubic"):
            for grant in RISING_GRANTS:
                order = Order(grant, Enforcement.PACE, congestion)
                behind_s = [network.rise(order, NOTHING_S) for _ in range(tries)]
                rises.append({"congestion": congestion, "grant_bytes_per_s": grant, "behind_s": behind_s})
        settings = {
            setting.name: {s.name: _measure(network, setting, s, warm_s, measured_s) for s in SYSTEMS}
            for setting in SETTINGS
        }
    return {"warm_s": warm_s, "measured_s": measured_s, "settings": settings, "rises": rises}


def goals(result: Result) -> Iterator[Goal]:
    """Yield, for each setting, the worst goodput over grant of the default; then the delay of a grant that comes back."""
    low, high = GOAL
    for name, systems in result["settings"].items():
        found = systems[DEFAULT]
        met = found["is_exact"] and not found["bucket_drops"]
        worst = f"{found['worst_goodput_over_grant']:.3f}"
        yield Goal(f"goodput over grant, {name}", f"{low} to {high}", worst, met)
    behind_s = max(max(rise["behind_s"]) for rise in result["rises"])
    yield at_most("delay of a grant that follows none", behind_s, LAG_S, in_ms)


def tables(result: Result) -> Iterator[Table]:
    """Yield goodput over grant with drops and research's part of the rest; then the delay of grants that come back."""
    rows: list[tuple[str, ...]] = []
    for setting, systems in result["settings"].items():
        rows += [(), (setting,)]
        for name, found in systems.items():
            ratios = [flow["goodput_over_grant"] for flow in found["flows"]]
            research = found.get("research")
            rest = f"{research['goodput_over_rest']:.2f}" if research else ""
            spread = f"{min(ratios):.3f}" if len(ratios) == 1 else f"{min(ratios):.3f} - {max(ratios):.3f}"
            rows.append((f"  {name}", spread, f"{found['bucket_drops']}", f"{found['retransmits']}", rest))
    heads = ("system", "goodput / grant", "bucket drops", "retransmits", "research / rest")
    yield table_of(f"{result['measured_s']:g} s measured after {result['warm_s']:g} s", heads, rows)
    title = f"A grant, none for {NOTHING_S:g} s, the grant again: delay against half a second's bytes"
    yield table_of(
        title,
        ("grant", "congestion control", "delay"),
        (
            (
                f"{rise['grant_bytes_per_s'] / MBIT_PER_S:g} Mbit/s",
                rise["congestion"],
                f"{in_ms(min(rise['behind_s']))} - {in_ms(max(rise['behind_s']))}",
            )
            for rise in result["rises"]
        ),
    )


def _measure(
    network: RatesNetwork, setting: Setting, system: EnforcementSystem, warm_s: float, measured_s: float
) -> dict[str, Any]:
    classes = setting.grants_bytes_per_s if system.has_trunk_classes else ()
    network.shape(TrunkShaping(setting.trunk_bytes_per_s, system.serves_marked_first, classes))
    orders = [Order(grant, system.enforcement, system.congestion) for grant in setting.grants_bytes_per_s]
    if setting.research_congestion:
        orders.append(Order(None, Enforcement.NONE, setting.research_congestion))
    reports = network.measure(orders, warm_s, measured_s)
    granted, research = reports[: len(setting.grants_bytes_per_s)], reports[len(setting.grants_bytes_per_s) :]
    flows = [
        report | {"grant_bytes_per_s": grant, "goodput_over_grant": report["goodput_bytes_per_s"] / grant}
        for report, grant in zip(granted, setting.grants_bytes_per_s, strict=True)
    ]
    ratios = [flow["goodput_over_grant"] for flow in flows]
    measured = {
        "flows": flows,
        "worst_goodput_over_grant": max(ratios, key=lambda ratio: max(GOAL[0] - ratio, ratio - GOAL[1])),
        "median_goodput_over_grant": statistics.median(ratios),
        "is_exact": all(GOAL[0] <= ratio <= GOAL[1] for ratio in ratios),
        "bucket_drops": sum(flow["bucket_drops"] for flow in flows),
        "retransmits": sum(flow["retransmits"] for flow in flows),
    }
    for report in research:
        measured["research"] = {
            "goodput_bytes_per_s": report["goodput_bytes_per_s"],
            "rest_bytes_per_s": setting.rest_bytes_per_s,
            "goodput_over_rest": report["goodput_bytes_per_s"] / setting.rest_bytes_per_s,
            "retransmits": report["retransmits"],
        }
    return measured
