"""The plan of a campus, and the encoding of its shaping: pure, no kernel."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from testbed.emulation import netlink
from testbed.emulation.description import shaping
from testbed.emulation.description.plan import plan
from testbed.enforcement import PACING_SHARE
from tests.emulation_campuses import small_campus
from topologies.spec import Fabric, ResearchReserve


def test_interface_numbers_and_names_are_unique_in_the_fabric() -> None:
    made = plan(small_campus(40, switches=5))
    ends = list(made.fabric_ends.values())
    assert len({e.name for e in ends}) == len(ends) == 40 + 1 + 2 * 5
    assert not {e.ifindex for e in ends} & {b.ifindex for b in made.bridges.values()}
    assert all(len(e.name) <= 15 for e in ends)


def test_ports_of_a_switch_count_from_one() -> None:
    made = plan(small_campus(6, switches=2))
    ports = sorted(e.port for e in made.fabric_ends.values() if e.node == "s1")
    assert ports == list(range(1, len(ports) + 1))


def test_mac_is_made_of_the_address() -> None:
    assert plan(small_campus(1)).host_cables["h1"].b.mac_text == "02:00:0a:00:01:01"


def test_reserve_of_an_end_follows_its_rate() -> None:
    made = plan(small_campus(1))
    end = made.host_cables["h1"].b
    faster = made.shape_at(end, 4 * end.shape.rate_bytes_per_s)
    assert faster.reserve_bytes_per_s == 4 * end.shape.reserve_bytes_per_s > 0


def test_ports_of_a_slow_campus_hold_no_second_of_super_packets() -> None:
    slow, fast = (campus_at(rate) for rate in (0.3e6, 1e9))
    assert {(s.super_packet_bytes, s.queue_bytes) for s in slow if s.rate_bytes_per_s == 300_000} == {(6144, 32768)}
    assert {s.super_packet_bytes for s in fast} == {65536}
    assert all(s.queue_bytes >= 4 * s.super_packet_bytes for s in (*slow, *fast))


def campus_at(rate_bytes_per_s: float) -> list[shaping.LinkShape]:
    """Shapes of a campus whose first host's link has a rate."""
    campus = small_campus(3)
    links = [
        replace(link, rate_bytes_per_s=rate_bytes_per_s) if "h1" in (link.a, link.b) else link for link in campus.links
    ]
    made = plan(replace(campus, links=tuple(links)))
    return [end.shape for end in made.fabric_ends.values()]


def test_a_switch_with_one_trunk_is_a_bridge() -> None:
    made = plan(replace(small_campus(6, switches=3), fabric=Fabric.OPENVSWITCH))
    assert (set(made.openflow), {*made.bridges} - {*made.openflow}) == ({"core"}, {"s1", "s2", "s3"})


@given(rate=st.integers(100, 1 << 40), reserved=st.floats(0, 1), borrows=st.booleans())
def test_rates_and_depths_in_the_requests_are_those_that_are_read(rate: int, reserved: float, borrows: bool) -> None:
    shape = shaping.LinkShape(rate, reserve_bytes_per_s=round(reserved * rate), borrows=borrows)
    made = shaping.requests(100, shape, "x")
    classes, queues = (
        [memoryview(r.data)[netlink.HEADER.size :] for r in made if kind in r.what] for kind in (" class ", "bfifo")
    )
    found = shaping.Found(shaping.class_rates(classes), shaping.queue_depths(queues)[100])
    assert found == shaping.expected(shape)


@given(rate=st.integers(1000, 1 << 40), reserved=st.integers(0, 1 << 41), borrows=st.booleans())
def test_all_parts_of_a_link_are_guaranteed_something_and_together_the_link(
    rate: int, reserved: int, borrows: bool
) -> None:
    shape = shaping.LinkShape(rate, reserve_bytes_per_s=reserved, borrows=borrows)
    assert min(shape.research_bytes_per_s, shape.migration_bytes_per_s) > 0
    assert (shape.checkpoint_bytes_per_s > 0) is borrows
    assert shape.research_bytes_per_s + shape.migration_bytes_per_s + shape.checkpoint_bytes_per_s == rate


def test_what_checkpoints_are_guaranteed_does_not_reach_into_paced_migrations() -> None:
    share = 1.0 - ResearchReserve().beta
    shape = shaping.LinkShape(1_000_000_000, reserve_bytes_per_s=300_000_000, borrows=True)
    assert shape.migration_bytes_per_s >= PACING_SHARE * share * shape.rate_bytes_per_s


@given(st.dictionaries(st.integers(1, 100), st.binary(max_size=50)))
def test_attributes_survive_encoding(values: dict[int, bytes]) -> None:
    encoded = b"".join(netlink.attribute(kind, value) for kind, value in values.items())
    assert netlink.attributes(encoded) == values


@given(st.binary(max_size=80))
def test_damaged_attributes_never_loop_or_raise(data: bytes) -> None:
    netlink.attributes(data)
