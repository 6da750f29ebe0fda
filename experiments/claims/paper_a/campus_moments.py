"""Hazard and bandwidth of a trace in windows of ten minutes, as in F3 and F4 of paper A.

The hazard is the scenario's profile; the bandwidth is what the background leaves of links. B_local is the mean of access links,
B_core of those between buildings and core, and B_eff the mean of both (Appendix C: 530 Mbit/s, between 820 and 240).
"""

from __future__ import annotations

import numpy as np

from controller.numerics.arrays import Floats
from experiments.inputs.scenario import Scenario
from experiments.inputs.traces.background import epoch_hazards
from experiments.inputs.traces.trace import BackgroundTraffic
from topologies.paths import Routes
from topologies.spec import DirectedLink, Tier
from topologies.units import MBIT_PER_S

WINDOW_S = 600.0


def _windows(scenario: Scenario) -> tuple[int, float]:
    """Return the number of windows, and their width in seconds."""
    count = max(1, int(scenario.duration_s / WINDOW_S))
    return count, scenario.duration_s / count


def window_hazards(scenario: Scenario) -> Floats:
    """Return the mean hazard of a reclaim in each window, per second."""
    count, width_s = _windows(scenario)
    return np.array(epoch_hazards(scenario, width_s, count))


def windows_left(scenario: Scenario, traffic: BackgroundTraffic) -> tuple[Floats, Floats]:
    """Return (B_local, B_core) in each window, in Mbit/s."""
    campus, routes = scenario.campus, Routes(scenario.campus)
    cores = {switch.name for switch in campus.switches if switch.tier is Tier.CORE}
    volunteers = {host.name for host in scenario.volunteers}
    inhabited = {host.building for host in scenario.volunteers}
    switches = {switch.name for switch in campus.switches if switch.building in inhabited}
    ends = {link: {link.source, link.target} for link in campus.capacity_bytes_per_s}
    access = {link for link in ends if ends[link] & volunteers}
    to_core = {link for link in ends if ends[link] & cores and ends[link] & switches}
    ways = [set(routes.shortest_links(*each)) for each in traffic.flows]
    count, width_s = _windows(scenario)
    epochs = ((np.arange(count) + 0.5) * width_s / traffic.epoch_s).astype(int)
    rates = np.array(traffic.rates_bytes_per_s)[np.minimum(epochs, len(traffic.rates_bytes_per_s) - 1)]

    def left(links: set[DirectedLink]) -> Floats:
        total = sum(campus.capacity_bytes_per_s[link] for link in links)
        found: Floats = (total - rates @ [len(way & links) for way in ways]) / len(links) / MBIT_PER_S
        return found

    return left(access), left(to_core or access)
