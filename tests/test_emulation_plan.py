"""The plan of a campus, and the encoding of its shaping: pure, no kernel."""

from __future__ import annotations

import struct

from hypothesis import given
from hypothesis import strategies as st

from testbed.emulation import netlink, shaping
from testbed.emulation.plan import plan
from testbed.units import GBIT_PER_S, MBIT_PER_S
from tests.emulation_campuses import small_campus


def test_equal_descriptions_give_equal_plans() -> None:
    assert plan(small_campus(7)).cables == plan(small_campus(7)).cables


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


def test_burst_is_a_millisecond_of_the_rate_but_never_tiny() -> None:
    assert shaping.Shape(round(10 * GBIT_PER_S)).burst_bytes == 1_250_000
    assert shaping.Shape(round(MBIT_PER_S)).burst_bytes == shaping.MIN_BURST_BYTES


@given(rate=st.integers(1, 1 << 40))
def test_rate_in_the_class_request_is_the_rate_that_is_read(rate: int) -> None:
    request = shaping.requests(100, shaping.Shape(rate), "x")[1].data
    body = memoryview(request)[netlink.HEADER.size :]
    found = shaping.read([body], ("bfifo", struct.pack("=I", shaping.Shape(rate).queue_bytes)))
    assert found == shaping.expected(shaping.Shape(rate))


@given(st.dictionaries(st.integers(1, 100), st.binary(max_size=50)))
def test_attributes_survive_encoding(values: dict[int, bytes]) -> None:
    encoded = b"".join(netlink.attribute(kind, value) for kind, value in values.items())
    assert netlink.attributes(encoded) == values


@given(st.binary(max_size=80))
def test_damaged_attributes_never_loop_or_raise(data: bytes) -> None:
    netlink.attributes(data)
