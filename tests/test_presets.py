"""Campuses that need no file."""

from collections import Counter
from itertools import pairwise

import pytest

from topologies.errors import SpecError
from topologies.paths import Routes
from topologies.presets import A100, PAPER_MIX, RTX3090, GpuShare, campus54, three_tier
from topologies.spec import MAX_PORTS, Campus, Role, Tier


def test_campus54_has_the_machines_of_the_paper() -> None:
    campus = campus54()
    found = Counter((h.gpu_model, h.gpus) for h in campus.hosts_of(Role.VOLUNTEER))
    assert found == {("rtx3090", 1): 20, ("rtx4090", 1): 15, ("a100", 4): 8, ("a6000", 2): 10}
    assert len(campus.hosts) == 54
    assert len(campus.buildings) == 4
    assert campus.research_reserve.beta == 0.3


def test_campus54_has_the_tiers_of_the_paper() -> None:
    campus = campus54()
    tier = {switch.name: switch.tier for switch in campus.switches}
    rates: dict[object, set[float]] = {}
    for link in campus.links:
        rates.setdefault((tier.get(link.a), tier.get(link.b)), set()).add(link.rate_bytes_per_s * 8 / 1e9)
    assert rates[None, Tier.ACCESS] == {1.0}
    assert rates[Tier.ACCESS, Tier.DISTRIBUTION] == {1.0, 2.5, 10.0}
    assert rates[Tier.DISTRIBUTION, Tier.CORE] == {10.0}


def test_every_pair_of_buildings_of_campus54_meets_at_the_core() -> None:
    campus = campus54()
    routes = Routes(campus)
    first = [next(h.name for h in campus.hosts if h.building == b.name) for b in campus.buildings]
    for a, b in pairwise(first):
        assert "core" in {step.target for step in routes.route(a, b)}


@pytest.mark.parametrize(
    ("hosts", "buildings", "on_demand"),
    [(1, 1, 0), (5, 3, 2), (12, 3, 2), (500, 4, 5), (2000, 7, 10), (2000, 1, 0), (5000, 357, 0)],
)
def test_three_tier_has_what_was_asked_for(hosts: int, buildings: int, on_demand: int) -> None:
    campus = three_tier(hosts, buildings, on_demand)
    roles = Counter(h.role for h in campus.hosts)
    assert (roles[Role.VOLUNTEER], roles[Role.ON_DEMAND], roles[Role.COORDINATOR]) == (hosts, on_demand, 1)
    spread = Counter(h.building for h in campus.hosts_of(Role.VOLUNTEER))
    assert len(spread) == buildings
    assert max(spread.values()) - min(spread.values()) <= 1
    assert max(len(n) for n in campus.neighbours.values()) <= MAX_PORTS


def test_addresses_tell_the_building() -> None:
    campus = three_tier(1000, 3, 2)
    for host in campus.hosts:
        building = 0 if host.building == "room" else int(host.building[1:])
        assert host.address.packed[1] == building
        assert host.address.packed[3] not in (0, 255)


def test_buildings_beyond_255_share_a_second_byte_and_no_address() -> None:
    campus = three_tier(4000, 1000, 2)
    assert len({host.address for host in campus.hosts}) == len(campus.hosts)
    first = {host.building: str(host.address) for host in reversed(campus.hosts)}
    assert (first["b255"], first["b256"], first["b513"]) == ("10.255.0.1", "10.0.64.1", "10.1.128.1")


def test_coordinator_and_on_demand_hosts_stand_with_the_core() -> None:
    campus = three_tier(20, 2, 3)
    routes = Routes(campus)
    for host in (h for h in campus.hosts if h.role is not Role.VOLUNTEER):
        assert [str(step) for step in routes.route(host.name, "core")] == [f"{host.name}>room", "room>core"]
        assert host.building not in {h.building for h in campus.hosts_of(Role.VOLUNTEER)}


def test_gpus_are_dealt_in_proportion_in_every_stretch() -> None:
    campus = three_tier(530, 10)
    for building in campus.buildings[:-1]:
        models = Counter(h.gpu_model for h in campus.hosts if h.building == building.name)
        assert all(abs(models[s.model.name] - s.weight) <= 2 for s in PAPER_MIX)


def test_rates_can_differ_by_building() -> None:
    campus = three_tier(4, 2, uplink_bytes_per_s=[5e6, 7e6], access_bytes_per_s=1e9, core_bytes_per_s=9e9)
    assert campus.neighbours["a1"]["d1"].rate_bytes_per_s == 5e6
    assert Routes(campus).bottleneck("h1", "h4")[0] == 5e6
    assert campus.neighbours["d2"]["core"].rate_bytes_per_s == 9e9


@pytest.mark.parametrize(
    ("key", "arguments"),
    [
        ("hosts", {"hosts": 0}),
        ("hosts", {"hosts": 100_001}),
        ("hosts", {"hosts": 2.5}),
        ("hosts", {"hosts": True}),
        ("buildings", {"hosts": 3, "buildings": 4}),
        ("buildings", {"hosts": 3, "buildings": 0}),
        ("on_demand", {"hosts": 3, "buildings": 1, "on_demand": -1}),
        ("hosts_per_access", {"hosts": 3, "buildings": 1, "hosts_per_access": 1023}),
        ("uplink_bytes_per_s", {"hosts": 3, "buildings": 1, "uplink_bytes_per_s": [1e6, 1e6]}),
        ("mix", {"hosts": 3, "buildings": 1, "mix": ()}),
        ("mix", {"hosts": 3, "buildings": 1, "mix": (GpuShare(RTX3090, 1, 0.0),)}),
        ("links.a1-d1.rate", {"hosts": 3, "buildings": 1, "uplink_bytes_per_s": -5.0}),
    ],
)
def test_impossible_arguments_are_named(key: str, arguments: dict[str, object]) -> None:
    with pytest.raises(SpecError) as caught:
        three_tier(**arguments)  # type: ignore[arg-type]
    assert caught.value.key == key


def test_a_model_of_the_mix_that_also_serves_on_demand_is_listed_once() -> None:
    campus: Campus = three_tier(8, 2, 1, mix=(GpuShare(A100, 4, 1),), on_demand_model=A100)
    assert campus.gpu_models == (A100,)
