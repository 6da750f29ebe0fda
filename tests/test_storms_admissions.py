"""A fault excuses the migrations that it acts on, while it acts; all others have to be in time."""

from __future__ import annotations

from collections import Counter

import pytest

from experiments.storms import StormWorld, parse
from experiments.storms.campaign import Campaign
from experiments.storms.play import run
from experiments.storms.setup import ground_of
from experiments.storms.verdict import check_admissions, excused_admissions
from testbed.errors import InvariantBroken

MOVE = """
campus hosts=4 on_demand=0 buildings=1 mix=one
0 start
1 submit a steps=300 payload=2000000
6 reclaim @a 8
"""


def excuses(*faults: str) -> list[str]:
    """Why each admission of the story is not judged, with these faults in it."""
    script = parse(MOVE + "\n".join(faults))
    world = StormWorld(ground_of(script))
    run(world, script)
    return [excuse for _, excuse in excused_admissions(world)]


def test_without_a_fault_the_migration_is_judged() -> None:
    assert excuses() == [""]


@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        ("6.5 pause @a 0.2", "an agent stood still"),
        ("6 late @a 0.4 3", "messages were late"),
        ("6 late * 0.4 3", "messages were late"),
        ("6 link h1 a1 0.5 2\n6 link h2 a1 0.5 2\n6 link h3 a1 0.5 2", "a cable was slow"),
        ("5 fill @a\n7 empty @a", "a disk was full"),
        ("5 fail @a snapshot 0.5", ""),  # over before the notice
        ("1 fill @a\n5 empty @a", ""),
        ("20 late * 0.4 1", ""),  # after its end
    ],
)
def test_only_a_fault_on_its_way_and_in_its_time_excuses(fault: str, cause: str) -> None:
    assert excuses(fault) == [cause]


def test_a_judged_migration_that_is_late_breaks_the_promise() -> None:
    script = parse(MOVE)
    world = StormWorld(ground_of(script))
    run(world, script)
    check_admissions(world)
    late = [
        (at_s, fact) for at_s, fact in world.facts if type(fact).__name__ != "MigrationFinished"
    ]  # as if it had never run on
    world.facts[:] = late
    with pytest.raises(InvariantBroken, match="in time"):
        check_admissions(world)


def test_the_share_that_was_judged_is_told() -> None:
    counts = Counter({"admission: judged": 3, "admission: messages were late": 1, "fault: late": 9})
    assert Campaign(counts=counts).admissions.startswith("Of 4 admitted migrations 3 (75%) were judged")
    assert Campaign().admissions.startswith("Of 0 admitted migrations 0 were judged")
