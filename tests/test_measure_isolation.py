"""`reclaimnet measure isolation`: rows, frames, verdicts, and one row of it in the kernel."""

from pathlib import Path
from typing import Any

import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Dot1Q, Ether

from experiments.benchmarks import isolation
from experiments.benchmarks.attacks import AF41, Frames, SendingHost
from experiments.benchmarks.frame import KEPT, NOT_JUDGED, NOT_KEPT, NOTHING_PROMISED, Run
from testbed.enforcement import Enforcement, payload_rate, wire_rate
from tests.live_campus import live
from tests.shown import shown
from topologies.units import MBIT_PER_S

STATION = SendingHost(
    interface="p3-eth0",
    mac=b"\x02\x00\x0a\x01\x00\x06",
    address="10.1.0.6",
    target="10.2.0.3",
    target_mac=b"\x02\x00\x0a\x02\x00\x03",
    rate_bytes_per_s=200 * MBIT_PER_S,
    grant_bytes_per_s=1e6,
    share_bytes_per_s=1e7,
    pins=Path("/nowhere"),
    enforcement=Enforcement.PACE,
    congestion=None,
    neighbour="10.1.0.4",
)


def row(key: str) -> isolation.Row:
    return next(each for each in isolation.rows() if each.key == key)


def samples(research_bytes: list[int], through_bytes: int = 0, *, valid: bool = True) -> dict[str, Any]:
    classes = {"migration_bytes": through_bytes, "research_bytes": 0}
    return {
        "research_bytes": {"r1": research_bytes, "r2": [0] * len(research_bytes)},
        "granted_bytes": {},
        "towards_attacked": [classes] * len(research_bytes),
        "ports": {},
        "causes": ["a queue was full"] * len(research_bytes),
        "valid": valid,
        "reasons": [] if valid else ["slow"],
    }


def told(*rows: dict[str, Any]) -> dict[str, Any]:
    return {
        "trunk_bytes_per_s": isolation.TRUNK,
        "reserve_bytes_per_s": isolation.reserve_bytes_per_s(),
        "u_bytes_per_s": isolation.UNCONTROLLED,
        "rows": list(rows),
    }


def test_participants_fill_the_share_and_the_others_send_their_part_of_u() -> None:
    for each in isolation.rows():
        if each.phi:
            granted = wire_rate(each.grant_bytes_per_s * len(each.keeping))
            assert granted == pytest.approx(isolation.TRUNK - isolation.reserve_bytes_per_s())
        if each.phi is not None:
            sent = each.offered_bytes_per_s * len(each.ignoring)
            assert sent == pytest.approx((1 - each.phi) * isolation.UNCONTROLLED)
            assert set(each.keeping) | set(each.ignoring) == set(isolation.PROVIDERS)


@pytest.mark.parametrize(("phi", "left"), [(1.0, 60.0), (0.5, 22.5), (0.0, 0.0)])
def test_the_theorem_leaves_research_the_reserve_less_what_is_not_controlled(phi: float, left: float) -> None:
    found = isolation.predicted_bytes_per_s(phi, 75 * MBIT_PER_S)
    assert found == pytest.approx(left * MBIT_PER_S)


def test_a_bound_is_kept_by_the_worst_second_within_the_tolerance() -> None:
    assert isolation.bounded(95.0, 100.0, valid=True) == KEPT
    assert isolation.bounded(94.9, 100.0, valid=True) == NOT_KEPT
    assert isolation.bounded(0.0, 0.0, valid=True) == NOTHING_PROMISED
    assert isolation.bounded(1e9, 100.0, valid=False) == NOT_JUDGED


def test_research_is_judged_by_its_worst_second_and_attackers_by_what_they_got_beyond_their_grants() -> None:
    reserve = isolation.reserve_bytes_per_s()
    enough, little = (int(payload_rate(share * reserve)) + 1 for share in (1.2, 0.5))
    allowed = wire_rate(row("frames-af41").grant_bytes_per_s) * 2
    found = isolation.judged(row("frames-af41"), "reclaimnet", samples([enough, little], int(allowed + reserve / 4)))
    assert (found["reserve"], found["theorem"]) == (NOT_KEPT, NOT_KEPT)
    assert "frames past the host's programs, AF41, reclaimnet: in the worst second a queue was full" in shown(
        isolation.tables(told(found))
    )
    assert found["predicted_bytes_per_s"] == pytest.approx(0.75 * reserve, rel=1e-6)
    within = isolation.judged(row("frames-af41"), "reclaimnet", samples([enough], int(0.9 * allowed)))
    assert (within["uncontrolled_bytes_per_s"], within["reserve"]) == (0.0, KEPT)


def test_a_trial_on_a_machine_that_was_too_slow_is_not_judged_and_says_so() -> None:
    found = isolation.judged(row("phi-0.5-AF41"), "reclaimnet", samples([1], valid=False))
    assert (found["reserve"], found["theorem"]) == (NOT_JUDGED, NOT_JUDGED)
    assert "1 of 1 trials are not judged: slow" in shown(isolation.tables(told(found)))


def test_frames_carry_the_class_the_addresses_and_the_tags_that_they_are_to() -> None:
    plain = Ether(Frames(8).made_at(STATION))
    assert (len(plain), plain.src, plain.dst) == (1514, "02:00:0a:01:00:06", "02:00:0a:02:00:03")
    assert (plain[IP].src, plain[IP].dst, plain[IP].tos >> 2) == ("10.1.0.6", "10.2.0.3", 8)
    checksum = plain[IP].chksum
    del plain[IP].chksum
    assert Ether(bytes(plain))[IP].chksum == checksum
    assert plain[UDP].len == 1480
    tagged = Ether(Frames(AF41, is_tagged=True).made_at(STATION))
    assert (tagged[Dot1Q].vlan, tagged[IP].tos >> 2, len(tagged)) == (7, 34, 1514)
    assert Ether(Frames(AF41, forges_address=True).made_at(STATION))[IP].src == "10.1.0.4"


def test_the_table_shows_every_row() -> None:
    found = [
        isolation.judged(each, system.name, samples([10**7]))
        for each in isolation.rows()
        for system in isolation.SYSTEMS
    ]
    text = shown(isolation.tables(told(*found)))
    assert all(each.words in text for each in isolation.rows())


def test_goals_count_what_was_judged_and_leave_unmarked_traffic_to_theorem_4() -> None:
    def result(of: dict[str, str], theorem: str) -> dict[str, Any]:
        return {
            "rows": [
                {"row": each.key, "system": system.name, "reserve": of.get(each.key, KEPT), "theorem": theorem}
                for each in isolation.rows()
                for system in isolation.SYSTEMS
            ]
        }

    reserve, theorem = isolation.goals(result({"frames-unmarked": NOT_KEPT}, NOTHING_PROMISED))
    assert (reserve.met, theorem.met) == (True, None)
    reserve, _ = isolation.goals(result({"frames-af41": NOT_KEPT, "tagged": NOT_JUDGED}, KEPT))
    assert reserve.met is False
    assert reserve.measured.endswith(", 1 not judged")


class TestLive:
    pytestmark = live

    def test_a_flood_in_a_migration_class_stays_in_it_where_switches_hold(self, tmp_path: Path) -> None:
        result = isolation.measure(Run(tmp_path, quick=True), only=("frames-af41",), systems=isolation.SYSTEMS[:2])
        ours, printed = result["rows"]
        for each in (ours, printed):
            assert sum(map(sum, each["samples"]["research_bytes"].values())) > 0
            assert all(port["migration_bytes"] > 0 for port in each["samples"]["ports"].values())
        assert all(second["migration_bytes"] > 0 for second in ours["samples"]["trunk"])
        assert all(second["migration_bytes"] == 0 for second in printed["samples"]["trunk"])
        if ours["samples"]["valid"]:
            assert ours["reserve"] == KEPT
