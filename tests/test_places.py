"""Hosts by number on the tree of the campus: bandwidths and means against walking every path."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.core.network.links import Network
from controller.core.placement.select import Places, Reaches
from controller.numerics.arrays import Floats
from topologies.files import campus54
from topologies.paths import Routes
from topologies.presets import three_tier
from topologies.spec import Campus, DirectedLink, Role

CAMPUSES = [three_tier(11, 3, 2, hosts_per_access=2), three_tier(1, 1, 0), campus54()]


def places_of(campus: Campus) -> tuple[Places, Network, Routes]:
    network, routes = Network(campus.capacity_bytes_per_s), Routes(campus)
    volunteers = [host.name for host in campus.hosts if host.role is Role.VOLUNTEER]
    return Places(campus, volunteers, network, routes), network, routes


def bandwidth(routes: Routes, free: dict[DirectedLink, float], source: str, target: str) -> float:
    return min((free[link] for link in routes.route(source, target)), default=math.inf)


def free_column(network: Network, seed: int) -> Floats:
    rng = np.random.default_rng(seed)
    return rng.choice([0.0, 1e6, 3e7, 3e7, 1e8, 9e8], len(network.links), p=[0.05, 0.1, 0.2, 0.25, 0.2, 0.2])


@given(st.sampled_from(CAMPUSES), st.integers(0, 10_000))
def test_bandwidths_are_those_of_the_narrowest_link_of_each_path(campus: Campus, seed: int) -> None:
    places, network, routes = places_of(campus)
    column = free_column(network, seed)
    free, reaches = dict(zip(network.links, column.tolist(), strict=True)), Reaches(places, column)
    everybody = [host.name for host in campus.hosts if host.role is not Role.COORDINATOR]
    for source in everybody[:: max(1, len(everybody) // 7)]:
        expected = [bandwidth(routes, free, source, target) for target in places.hosts]
        assert reaches.from_host(source).tolist() == expected


@given(st.sampled_from(CAMPUSES), st.integers(0, 10_000), st.floats(0.0, 1.0))
def test_means_of_all_hosts_at_once_are_those_of_one_pair_at_a_time(campus: Campus, seed: int, share: float) -> None:
    places, network, routes = places_of(campus)
    column = free_column(network, seed)
    free = dict(zip(network.links, column.tolist(), strict=True))
    among = np.random.default_rng(seed + 1).random(len(places.hosts)) <= share
    found = Reaches(places, column).mean_slowness(among)
    members = [host for host, inside in zip(places.hosts, among, strict=True) if inside]
    for host, mean in zip(places.hosts, found.tolist(), strict=True):
        rates = [bandwidth(routes, free, host, other) for other in members if other != host]
        times = [1.0 / rate for rate in rates if rate > 0.0]
        if host not in members or not rates:
            assert math.isnan(mean)
        else:
            assert mean == (pytest.approx(math.fsum(times) / len(times), rel=1e-9) if times else math.inf)


def test_hosts_that_stand_alike_have_exactly_the_same_mean() -> None:
    places, network, _ = places_of(three_tier(96, 4, 0, hosts_per_access=6))
    means = Reaches(places, np.full(len(network.links), 1.1e8)).mean_slowness(np.ones(96, dtype=bool))
    assert len(set(means.tolist())) == 1


def test_what_has_not_changed_is_not_computed_again_and_what_has_is() -> None:
    places, network, _ = places_of(three_tier(8, 2, 0))
    free, everybody = np.full(len(network.links), 1e8), np.ones(8, dtype=bool)
    reaches = places.reaches(free)
    means = reaches.mean_slowness(everybody)
    assert places.reaches(free.copy()) is reaches
    assert reaches.mean_slowness(everybody.copy()) is means
    fewer = everybody.copy()
    fewer[0] = False
    assert math.isnan(reaches.mean_slowness(fewer)[0])
    narrow = free.copy()
    narrow[0] = 1e3
    assert places.reaches(narrow) is not reaches
