"""A campus that exists is a tree that can be built."""

import ipaddress
from dataclasses import replace

import pytest

from topologies.errors import SpecError
from topologies.presets import campus54, three_tier
from topologies.spec import (
    Host,
    Link,
    ResearchReserve,
    Role,
)


def test_a_host_that_no_link_reaches_is_named() -> None:
    campus = three_tier(4, 2)
    with pytest.raises(SpecError, match="h3"):
        replace(campus, links=tuple(link for link in campus.links if link.a != "h3"))


def test_two_hosts_of_one_name_or_address_are_refused() -> None:
    campus = three_tier(4, 2)
    twin = replace(campus.hosts[0], name="twin")
    for double in (campus.hosts[0], twin):
        with pytest.raises(SpecError, match="each only once"):
            replace(campus, hosts=(*campus.hosts, double))


def test_a_campus_has_exactly_one_coordinator() -> None:
    campus = three_tier(4, 2)
    with pytest.raises(SpecError, match="exactly one"):
        replace(campus, hosts=tuple(h for h in campus.hosts if h.role is not Role.COORDINATOR))


def test_a_bridge_has_at_most_1023_ports() -> None:
    with pytest.raises(SpecError, match="1022"):
        three_tier(1100, 1, hosts_per_access=1100)


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan"), float("inf")])
def test_a_link_has_a_positive_finite_rate(rate: float) -> None:
    with pytest.raises(SpecError, match="greater than 0"):
        Link("a", "b", rate)


def test_a_coordinator_has_no_gpu_and_a_volunteer_has_one() -> None:
    address = ipaddress.IPv4Address("10.0.0.1")
    with pytest.raises(SpecError, match="coordinator has no GPUs"):
        Host("c", "b", Role.COORDINATOR, address, "m", 1)
    with pytest.raises(SpecError, match="1 to 1024"):
        Host("h", "b", Role.VOLUNTEER, address, "m", 0)
    with pytest.raises(SpecError, match=r"10\.0\.0\.0/8"):
        Host("h", "b", Role.VOLUNTEER, ipaddress.IPv4Address("192.168.0.1"), "m", 1)


def test_the_reserve_never_exceeds_the_link() -> None:
    reserve = ResearchReserve(beta=0.3, minimum_bytes_per_s=50.0)
    assert reserve.reserve_bytes_per_s(1000.0) == 300.0
    assert reserve.reserve_bytes_per_s(100.0) == 50.0
    assert reserve.migration_share_bytes_per_s(20.0) == 0.0


def test_what_is_kept_of_a_link_is_the_reserve_or_nearly_all_that_research_asks_for() -> None:
    reserve = ResearchReserve(beta=0.3, most_lost=0.1)
    asked_and_kept = {0.0: 30.0, 33.0: 30.0, 50.0: 45.0, 100.0: 90.0, 1e9: 90.0}
    for asked, kept in asked_and_kept.items():
        assert reserve.kept_bytes_per_s(100.0, asked) == pytest.approx(kept)
    with pytest.raises(SpecError, match="most_lost"):
        ResearchReserve(most_lost=1.1)


def test_an_error_says_where_what_and_what_is_allowed() -> None:
    error = SpecError("hosts.h3.gpus", 0, "1 or more").within("lab.toml")
    assert str(error) == "lab.toml: hosts.h3.gpus = 0: 1 or more"


def test_the_access_link_of_every_host_of_the_paper_is_one_gigabit() -> None:
    campus = campus54()
    rates = {campus.access_link(h.name).rate_bytes_per_s for h in campus.hosts_of(Role.VOLUNTEER)}
    assert rates == {125e6}
