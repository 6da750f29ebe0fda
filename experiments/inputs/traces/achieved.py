"""Statistics of a trace beside paper A's measurements (section IV) and the law that it was drawn from.

Hazard and bandwidth are looked at in windows of ten minutes, as in F3 and F4. The hazard is the scenario's profile (a
record has none of its own, only events); the bandwidth is what the background leaves of links. B_local is the mean of
access links, B_core of those between buildings and core, and B_eff the mean of both (Appendix C: 530 Mbit/s, between
820 and 240).
"""

from __future__ import annotations

import math
import statistics
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from controller.numerics.arrays import Floats
from experiments.inputs.scenario import OwnerEvent, Scenario
from experiments.inputs.scenario.owners import HOUR_S
from experiments.inputs.traces.background import epoch_hazards
from experiments.inputs.traces.trace import BackgroundTraffic, Trace
from topologies.paths import Routes
from topologies.spec import DirectedLink, Tier
from topologies.units import MBIT_PER_S

WINDOW_S = 600.0
TOGETHER_S = 60.0  # reclaims within so long are simultaneous
DAY_S = 24 * HOUR_S
GB = 1e9


@dataclass(frozen=True, slots=True)
class Statistic:
    """A figure of paper A beside the trace's; None: there is none."""

    finding: str  # where the paper has it
    name: str
    unit: str
    paper: float | None
    law: float | None  # what the scenario's law gives in the mean
    achieved: float | None  # what this trace has


def achieved(scenario: Scenario, trace: Trace) -> list[Statistic]:
    """Return all statistics in the paper's order, its counts scaled to the run's length. Both arguments are in real units."""
    part = scenario.duration_s / (61.0 * DAY_S)
    jobs, owners = scenario.jobs, scenario.owners
    reclaims = [event for event in trace.owner_events if event.kind == "reclaim"]
    # as paper A counts them: those with a short grace included
    emergencies = sum(event.notice_s == 0.0 or event.grace for event in reclaims)
    hours = sum(arrival.job.run_s for arrival in trace.arrivals) / HOUR_S
    work_h = jobs.work_s / HOUR_S if jobs.count is not None and jobs.work_s else None
    asked = None if owners.count is None else float(round(owners.emergency_share * owners.count))
    sizes = sorted(arrival.job.payload_bytes / GB for arrival in trace.arrivals)
    least, middle, most = (sizes[0], statistics.median(sizes), sizes[-1]) if sizes else (None, None, None)
    payload = jobs.payload
    largest = payload.maximum / GB if payload.maximum < math.inf else None
    hazards = window_hazards(scenario)
    ratio = float(hazards.max() / hazards.min()) if hazards.min() > 0.0 else None

    # hazard -> (seconds, exposure) of the run
    parts: dict[float, tuple[float, float]] = {}
    for start_s, end_s, rate in owners.segments(0.0):
        if start_s >= scenario.duration_s:
            break
        lasted_s = min(end_s, scenario.duration_s) - start_s
        seconds, exposure = parts.get(rate, (0.0, 0.0))
        parts[rate] = seconds + lasted_s, exposure + lasted_s * rate
    high, low = max(parts), min(parts)
    exposure = sum(exposure for _, exposure in parts.values())
    in_peaks_law = parts[high][1] / exposure if exposure > 0.0 else None
    found_at = [owners.reclaim_hazard_per_s(event.at_s) for event in reclaims]
    peak = owners.hazard_per_s * max((peak.factor for peak in owners.peaks), default=math.inf)
    in_peaks = sum(h >= peak * (1.0 - 1e-9) for h in found_at) / len(reclaims) if reclaims else None

    # reclaims an hour at the times of the highest hazard, over those at the times of the lowest
    at_high, at_low = (sum(abs(h - rate) <= 1e-9 * rate for h in found_at) for rate in (high, low))
    peak_ratio = at_high / parts[high][0] / (at_low / parts[low][0]) if high != low and at_low else None
    share = emergencies / len(reclaims) if reclaims else None
    burst = float(owners.burst) if owners.count is not None and owners.burst_share else None
    lent = _percent(owners.lent_at_start) if owners.count is not None else None
    found = [
        Statistic("IX-A", "jobs", "", 312 * part, jobs.count, len(trace.arrivals)),
        Statistic("IX-A", "GPU time of all jobs", "h", 4890 * part, work_h, hours),
        Statistic("IX-A", "reclaims", "", 847 * part, owners.count, len(reclaims)),
        Statistic("App. C", "emergencies", "", 358 * part, asked, emergencies),
        Statistic(
            "F1", "emergencies of all reclaims", "%", 42.0, _percent(owners.emergency_share), _percent(share)
        ),
        Statistic("F1", "hazard, highest to lowest", "times", 6.0, ratio, peak_ratio),
        Statistic("F1", "reclaims in the two peaks", "%", None, _percent(in_peaks_law), _percent(in_peaks)),
        Statistic("F4", "variation of the hazard, CV", "", 0.62, variation(hazards), None),
        Statistic("IV-B", "most reclaims within a minute", "", 7.0, burst, simultaneous(reclaims)),
        Statistic("", "hosts lent, on average", "%", None, lent, _percent(lent_share(scenario, trace))),
        Statistic("F2", "smallest payload", "GB", 0.12, payload.minimum / GB, least),
        Statistic("F2", "median payload", "GB", 3.2, payload.quantile(0.5) / GB, middle),
        Statistic("F2", "largest payload", "GB", 48.0, largest, most),
    ]
    if trace.background is None:
        return found

    law_local = law_core = law_both = spread = None
    if law := scenario.background:
        law_local, law_core = law.local_bytes_per_s / MBIT_PER_S, law.core_bytes_per_s / MBIT_PER_S
        law_both, spread = (law_local + law_core) / 2.0, _percent(law.spread)
    local, core = windows_left(scenario, trace.background)
    effective = (local + core) / 2.0
    inverse = np.divide(1.0, effective, out=np.full(len(effective), np.inf), where=effective > 0.0)
    mean = float(core.mean())
    below, above = _percent(1.0 - core.min() / mean), _percent(core.max() / mean - 1.0)
    gap = _percent(predicted_gap(hazards, inverse))
    return [
        *found,
        Statistic("F3", "B_local, mean", "Mbit/s", 820.0, law_local, float(local.mean())),
        Statistic("F3", "B_core, mean", "Mbit/s", 240.0, law_core, mean),
        Statistic("App. C", "B_eff, mean", "Mbit/s", 530.0, law_both, float(effective.mean())),
        Statistic("F3", "least of B_core, below its mean", "%", 60.0, spread, below),
        Statistic("F3", "most of B_core, above its mean", "%", 60.0, spread, above),
        Statistic("F4", "correlation of hazard and B_eff", "", -0.43, None, correlation(hazards, effective)),
        Statistic("F4", "correlation of hazard and 1 / B_eff", "", 0.39, None, correlation(hazards, inverse)),
        Statistic("F4", "variation of 1 / B_eff, CV", "", 0.31, None, variation(inverse)),
        Statistic("Thm. 2", "adaptivity gap predicted from both", "%", 5.2, None, gap),
    ]


# ---------------------------------------------------------------- series


def _windows(scenario: Scenario) -> tuple[int, float]:
    """Return how many windows there are, and their width in seconds."""
    count = max(1, int(scenario.duration_s / WINDOW_S))
    return count, scenario.duration_s / count


def window_hazards(scenario: Scenario) -> Floats:
    """Return the mean hazard of a reclaim in each window of ten minutes, per second."""
    count, width_s = _windows(scenario)
    return np.array(epoch_hazards(scenario, width_s, count))


def windows_left(scenario: Scenario, traffic: BackgroundTraffic) -> tuple[Floats, Floats]:
    """Return (B_local, B_core) in each window: means of access links, of links to the core, Mbit/s."""
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


# ---------------------------------------------------------------- of events


def simultaneous(reclaims: Sequence[OwnerEvent], within_s: float = TOGETHER_S) -> int:
    """Return the most reclaims within so long."""
    times = [event.at_s for event in reclaims]
    return max((n + 1 - bisect_left(times, at_s - within_s) for n, at_s in enumerate(times)), default=0)


def lent_share(scenario: Scenario, trace: Trace) -> float:
    """Return the share of host-time in which hosts were lent, notices included."""
    hosts, end_s = len(scenario.volunteers), scenario.duration_s
    lent_s = hosts * end_s - len(trace.away) * end_s
    for event in trace.owner_events:
        left_s = max(0.0, end_s - event.gone_s)
        lent_s += left_s if event.kind == "return" else -left_s
    return lent_s / (hosts * end_s)


def variation(values: Floats) -> float | None:
    """Return the coefficient of variation; None without a finite mean above 0."""
    mean = float(values.mean())
    return float(values.std()) / mean if mean > 0.0 and math.isfinite(mean) else None


def correlation(first: Floats, second: Floats) -> float | None:
    """Return Pearson's correlation; None if either is constant."""
    if not (np.ptp(first) > 0.0 and np.ptp(second) > 0.0 and np.isfinite(second).all()):
        return None
    return float(np.corrcoef(first, second)[0, 1])


def predicted_gap(hazards: Floats, inverse: Floats) -> float | None:
    """Return the gap of Theorem 2 of paper A: sqrt(E[lambda] E[1/B]) / E[sqrt(lambda / B)] - 1."""
    mixed = float(np.sqrt(hazards * inverse).mean())
    if not (mixed > 0.0 and math.isfinite(mixed)):
        return None
    return math.sqrt(float(hazards.mean()) * float(inverse.mean())) / mixed - 1.0


def _percent(share: float | None) -> float | None:
    return None if share is None else 100.0 * share
