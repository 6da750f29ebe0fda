"""How exactly a flow gets its grant: ours, paper A's drop bucket, HTB classes at the bottleneck, and nothing, side by side.

One flow granted 5, 50 and 400 Mbit/s over a trunk of 1 Gbit/s; seven flows of unequal grants beside one unlimited research flow
over a shared trunk of 100 Mbit/s whose queue holds 100 ms, once with research on BBR and once on CUBIC. Goodput is payload that
arrived at the sink in the measured time, after the warm-up; the goal is 0.97 to 1.00 of the grant for every flow, no packet
dropped by a bucket, and what is left of the trunk for research.

What holds it there, as measured:
- pacing half a percent under the grant, so that goodput cannot exceed it; a guard 5 % over it, four super-packets deep;
- small super-packets (`smooth_pacing`): with the kernel's default, short round trips make a flow of 4 Mbit/s send 64 KiB every
  130 ms, and goodput over some seconds is off by up to 3 %;
- on one queue for all, CUBIC under the pacing, and research that keeps the queue short (BBR): .99. Paced BBR falls to .88 there,
  since its own model of the path sits below the pacing;
- where research fills the one queue (CUBIC), no sender holds its grant: paced BBR falls to .1-.8 (it takes the round trip of the
  empty trunk for the true one and holds its window to twice that), paced CUBIC to .4-1.0 (research's tail drops);
- a trunk that serves the marked classes first, from a queue of their own and up to their share (1 - beta), as the four classes
  of paper A, section VII-A mean it ("marked first"): then every grant is met, under BBR or CUBIC, whatever research runs.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from controller.core.admission.reservation import LAG_S
from experiments.benchmarks.goals import JudgedFigure, in_ms
from experiments.benchmarks.rates_network import (
    Order,
    RatesNetwork,
    TrunkShaping,
    rates_network,
)
from experiments.benchmarks.results import machine, write_result
from experiments.results.pictures import GOOD, MUTED, OURS, PEER, canvas
from testbed.enforcement import Enforcement, payload_rate, wire_rate
from topologies.units import GBIT_PER_S, MBIT_PER_S

GOAL: Final = (0.97, 1.0)
RISING_GRANTS: Final = tuple(rate * MBIT_PER_S for rate in (5, 50, 400))
NOTHING_S: Final = 0.5
PARKED, PACED = "parked", "paced to nothing"
SHARED_GRANTS: Final = tuple(rate * MBIT_PER_S for rate in (2, 4, 6, 8, 10, 12, 14))


@dataclass(frozen=True, slots=True)
class EnforcementSystem:
    """A way to hold flows at their grants."""

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
        """Payload bytes/s that the trunk has left when every grant is used."""
        return payload_rate(self.trunk_bytes_per_s - wire_rate(sum(self.grants_bytes_per_s)))


SYSTEMS: Final = (
    EnforcementSystem("ours, BBR", Enforcement.PACE, "bbr"),
    EnforcementSystem("ours, CUBIC", Enforcement.PACE, "cubic"),
    EnforcementSystem("ours, BBR, marked first", Enforcement.PACE, "bbr", serves_marked_first=True),
    EnforcementSystem("ours, CUBIC, marked first", Enforcement.PACE, "cubic", serves_marked_first=True),
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


def measure_rates(out: Path, *, quick: bool = False) -> dict[str, Any]:
    """Measures every system in every setting; writes rates.json and rates.svg to `out` and returns what the JSON holds.

    Takes 5 minutes, `quick` 90 s. SetupError without root; BpfError where BPF is missing.
    """
    warm_s, measured_s, tries = (1.0, 1.5, 2) if quick else (2.0, 6.0, 5)
    rises: list[dict[str, Any]] = []
    with rates_network(len(SHARED_GRANTS) + 1) as network:
        network.shape(TrunkShaping(GBIT_PER_S, serves_marked_first=True))
        for congestion in ("bbr", "cubic"):
            for grant in RISING_GRANTS:
                order = Order(grant, Enforcement.PACE, congestion)
                ways = {
                    way: [network.rise(order, NOTHING_S, paced_to_nothing=way == PACED) for _ in range(tries)]
                    for way in (PARKED, PACED)
                }
                rises.append({"congestion": congestion, "grant_bytes_per_s": grant, "behind_s": ways})
        measured = {
            setting.name: {s.name: _measure(network, setting, s, warm_s, measured_s) for s in SYSTEMS}
            for setting in SETTINGS
        }
    result: dict[str, Any] = {
        **machine(),
        "warm_s": warm_s,
        "measured_s": measured_s,
        "goal": GOAL,
        "settings": measured,
        "nothing_s": NOTHING_S,
        "rises": rises,
        # whether every flow gets its grant and no more, without a drop
        "verdict": {
            name: {
                system: all(GOAL[0] <= flow["goodput_over_grant"] <= GOAL[1] for flow in found["flows"])
                and not found["bucket_drops"]
                for system, found in of_setting.items()
            }
            for name, of_setting in measured.items()
        },
    }
    write_result(out / "rates.json", result)
    timing = f"{result['measured_s']:g} s measured after {result['warm_s']:g} s"
    rest = "rest: research's goodput over what the grants leave"
    title = f"Goodput of each flow over its grant: {timing}; green: 0.97 to 1.00; {rest}"
    with canvas(out / "rates.svg", 2, 3, (15, 8), title, sharey=True) as (_, panels):
        for axes, (name, of_setting) in zip(panels.flat, result["settings"].items(), strict=False):
            axes.axhspan(*GOAL, color=GOOD, alpha=0.25, zorder=0)
            for place, (kind, system) in enumerate(of_setting.items()):
                ratios = [flow["goodput_over_grant"] for flow in system["flows"]]
                spread = [place + 0.09 * (n - (len(ratios) - 1) / 2) for n in range(len(ratios))]
                axes.scatter(spread, ratios, s=28, color=OURS if kind.startswith("ours") else PEER, zorder=3)
                research = system.get("research")
                words = f"{system['bucket_drops']} drops\n{system['retransmits']} retr."
                words += f"\nrest {research['goodput_over_rest']:.2f}" if research else ""
                axes.annotate(words, (place, 0.006), ha="center", va="bottom", fontsize=7.5, color=MUTED)
            axes.set_yscale("log")
            axes.set_ylim(0.005, 400)
            axes.set_yticks([0.1, 0.5, 1, 10, 100], ["0.1", "0.5", "1", "10", "100"])
            axes.set_xticks(
                range(len(of_setting)), [kind.replace(" ", "\n") for kind in of_setting], fontsize=8
            )
            axes.set_title(name)
            axes.grid(axis="y")
        for axes in panels.flat[len(result["settings"]) :]:
            axes.set_visible(False)
        for axes in panels[:, 0]:
            axes.set_ylabel("goodput / grant (log)")
    return result


def judged_figures(result: Mapping[str, Any]) -> Iterator[JudgedFigure]:
    """The figures of `result`, as it stands in the JSON, that have a goal."""
    low, high = GOAL
    for name, systems in result["settings"].items():
        worst = systems["ours, BBR, marked first"]["worst_goodput_over_grant"]
        met = result["verdict"][name]["ours, BBR, marked first"]
        yield JudgedFigure(f"goodput over grant, {name}", f"{low} to {high}", f"{worst:.3f}", met)
    behind_s = max(max(rise["behind_s"][PARKED]) for rise in result["rises"])
    yield JudgedFigure(
        "a grant that follows nothing: behind by", f"<= {in_ms(LAG_S)}", in_ms(behind_s), behind_s <= LAG_S
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
