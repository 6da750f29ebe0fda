"""Campuses that need no file."""

from collections import Counter

import pytest

from topologies.errors import SpecError
from topologies.presets import PAPER_MIX, RTX3090, GpuShare, campus54, three_tier
from topologies.spec import MAX_PORTS, Role, Tier


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


def test_gpus_are_dealt_in_proportion_in_every_stretch() -> None:
    campus = three_tier(530, 10)
    for building in campus.buildings[:-1]:
        models = Counter(h.gpu_model for h in campus.hosts if h.building == building.name)
        assert all(abs(models[s.model.name] - s.weight) <= 2 for s in PAPER_MIX)


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
