"""The traffic of all others, drawn from a scenario's law, as flows that the testbed's flows share links with.

One flow loads each pair of access links: hosts of an access switch send to each other in a ring, so that every access
link carries one flow up and one down. Two load what joins each building to the core. Their rates are what the link has
less what is to be left of it. They are whole steps of 1 kB/s, so that the last digits of a machine's `exp` decide
nothing.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from random import Random

import numpy as np

from controller.numerics.portable_math import exp, rounded
from experiments.inputs.scenario import Scenario
from experiments.inputs.traces.streams import stream
from experiments.inputs.traces.trace import BackgroundTraffic
from topologies.errors import SpecError
from topologies.spec import Campus, Role, Tier

STEP_BYTES_PER_S = 1000.0
ROUNDS = 40  # of the fixed point that gives the means
MAX_EPOCHS = 1_000_000

Series = list[float]


def background_traffic(scenario: Scenario) -> BackgroundTraffic | None:
    """Return the flows and their rates in each epoch of the run; None if the scenario has no background."""
    law = scenario.background
    if law is None:
        return None
    epochs = math.ceil(scenario.duration_s / law.epoch_s)
    if epochs > MAX_EPOCHS:
        raise SpecError("background.epoch", law.epoch_s, f"at least a {MAX_EPOCHS}th of the duration")
    access, core = access_rings(scenario.campus), uplinks(scenario.campus)
    # the logarithm of what is left, the same for the whole campus
    hazard = standardised(epoch_hazards(scenario, law.epoch_s, epochs))
    rest = noise(epochs, law.memory, stream(scenario.seed, "background"))
    weight, other = law.hazard_weight, math.sqrt(1.0 - law.hazard_weight**2)
    common = [-law.sigma * (weight * s + other * e) for s, e in zip(hazard, rest, strict=True)]

    @cache
    def taken(building: str | None, mean: float, capacity: float) -> Series:
        """Return the rate taken from a link in each epoch, in whole steps."""
        own = noise(epochs, law.memory, stream(scenario.seed, "background", building or ""))
        shape = [exp(a - law.building_sigma * b) for a, b in zip(common, own, strict=True)]
        left = _with_mean(shape, mean, law.spread, capacity)
        return [max(0.0, STEP_BYTES_PER_S * round((capacity - each) / STEP_BYTES_PER_S)) for each in left]

    columns, flows, parallel = [], [], []
    for mean, pairs in ((law.local_bytes_per_s, access), (law.core_bytes_per_s, core)):
        for building, source, target, capacity in pairs:
            flows.append((source, target))
            parallel.append(connections(capacity, min(mean, capacity)))
            columns.append(taken(building, min(mean, capacity), capacity))
    rows = tuple(zip(*columns, strict=True))
    return BackgroundTraffic(law.epoch_s, tuple(flows), rows, tuple(parallel))


def connections(capacity: float, left: float) -> int:
    """Return the number of connections on a link: each is as fast as what is left of it, the paper's bandwidth of one flow."""
    return max(1, round((capacity - left) / left))


def access_rings(campus: Campus) -> list[tuple[str, str, str, float]]:
    """Return (building, host, next host of its access switch, the lesser rate of their links), of volunteers."""
    members: defaultdict[str, list[str]] = defaultdict(list)
    for host in campus.hosts_of(Role.VOLUNTEER):
        members[next(iter(campus.neighbours[host.name]))].append(host.name)
    rings = []
    for hosts in members.values():
        for one, other in zip(hosts, [*hosts[1:], hosts[0]], strict=True):
            if one != other:
                rate = min(campus.access_link(end).rate_bytes_per_s for end in (one, other))
                rings.append((campus.host_by_name[one].building, one, other, rate))
    return rings


def uplinks(campus: Campus) -> list[tuple[str, str, str, float]]:
    """Return (building, from, to, rate) of each direction between a distribution switch with volunteers and the core."""
    tiers = {switch.name: switch.tier for switch in campus.switches}
    inhabited = {host.building for host in campus.hosts_of(Role.VOLUNTEER)}
    found = []
    for switch in campus.switches:
        if switch.tier is Tier.DISTRIBUTION and switch.building in inhabited:
            for other, link in campus.neighbours[switch.name].items():
                if tiers.get(other) is Tier.CORE:
                    found.append((switch.building, switch.name, other, link.rate_bytes_per_s))
                    found.append((switch.building, other, switch.name, link.rate_bytes_per_s))
    return found


def epoch_hazards(scenario: Scenario, epoch_s: float, epochs: int) -> Series:
    """Return the mean hazard of a reclaim in each epoch, per second."""
    owners = scenario.owners
    return [owners.exposure(n * epoch_s, (n + 1) * epoch_s) / epoch_s for n in range(epochs)]


def standardised(values: Sequence[float]) -> Series:
    """Return the series with mean 0 and standard deviation 1; all 0 if its values are all alike."""
    mean = math.fsum(values) / len(values)
    deviation = math.sqrt(math.fsum((x - mean) ** 2 for x in values) / len(values))
    return [(x - mean) / deviation if deviation > 1e-12 * abs(mean) else 0.0 for x in values]


def noise(length: int, memory: float, rng: Random) -> Series:
    """Return a stationary autoregressive series of variance 1: each value remembers `memory` of the one before."""
    # rounded, because the last digits of sines and logarithms are those of the machine
    value, fresh = rounded(rng.gauss(0.0, 1.0)), math.sqrt(1.0 - memory * memory)
    series = []
    for _ in range(length):
        series.append(value)
        value = memory * value + fresh * rounded(rng.gauss(0.0, 1.0))
    return series


def _with_mean(shape: Series, mean: float, spread: float, capacity: float) -> Series:
    """Return the shape, times a factor, held within the spread and what the link has, so that its mean is as asked.

    The mean grows with the factor, so the factor is found by halving; where limits forbid the mean, the nearest is
    taken.
    """
    low, high = 0.0, (1.0 + spread) * mean / min(shape)
    least, most, column = (1.0 - spread) * mean, min((1.0 + spread) * mean, capacity), np.array(shape)
    for _ in range(ROUNDS):
        factor = (low + high) / 2.0
        held: Series = np.minimum(np.maximum(factor * column, least), most).tolist()
        low, high = (factor, high) if math.fsum(held) < mean * len(held) else (low, factor)
    return held
