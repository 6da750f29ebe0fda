"""`reclaimnet measure scavenger`: what its figures say of seconds, and one situation in the kernel."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from experiments.benchmarks import scavenger
from tests.live_campus import live
from topologies.spec import CheckpointClass
from topologies.units import MBIT_PER_S

SECOND = int(scavenger.TRUNK)  # bytes that the trunk carries in one


def trial(
    situation: str,
    way: str,
    without: list[float],
    beside: list[float],
    checkpoints: float,
    *,
    valid: bool = True,
) -> dict[str, Any]:
    """Shares of the trunk, second by second; `checkpoints` of each second beside research."""
    research = {
        "without": [int(share * SECOND) for share in without],
        "with": [int(share * SECOND) for share in beside],
    }
    return {
        "situation": situation,
        "way": way,
        "research_bytes": research,
        "research_wire_bytes": research,
        "checkpoint_wire_bytes": {
            "without": [0] * len(without),
            "with": [int(checkpoints * SECOND)] * len(beside),
        },
        "valid": valid,
        "reasons": [] if valid else ["slow"],
    }


def result(*trials: dict[str, Any]) -> dict[str, Any]:
    return {"cpus": 2, "kernel": "6", "trunk_bytes_per_s": scavenger.TRUNK, "trials": list(trials)}


def test_research_is_compared_second_by_second_and_use_is_of_what_it_leaves() -> None:
    [found] = scavenger.figures(result(trial("slow", "below research, BBR", [0.4, 0.4], [0.4, 0.392], 0.58)))
    assert (found.worst, found.median) == (pytest.approx(0.98), pytest.approx(0.99))
    assert found.apart == pytest.approx(1.0)
    assert found.used == pytest.approx(0.58 / 0.604)
    assert found.keeps_research is True
    [short] = scavenger.figures(result(trial("slow", "below research, BBR", [0.4, 0.4], [0.4, 0.38], 0.58)))
    assert short.keeps_research is False


def test_where_seconds_alone_differ_by_more_than_may_be_lost_the_median_is_asked() -> None:
    uneven = [0.2, 0.2, 0.2, 0.1]
    [found] = scavenger.figures(result(trial("short", "below research, BBR", uneven, [0.2, 0.2, 0.1], 0.8)))
    assert found.keeps_research is True


def test_a_rhythm_is_compared_at_the_same_place_and_silent_seconds_have_nothing_to_lose() -> None:
    on_off = [1.0, 1.0, 1.0, 0.0, 0.0, 0.0]
    [found] = scavenger.figures(
        result(trial("on-off", "within the share, BBR", on_off * 2, [0.3, 0.3, 0.3, 0.0, 0.0, 0.0], 0.7))
    )
    assert (found.worst, found.median) == (pytest.approx(0.3), pytest.approx(0.3))
    assert found.keeps_research is False


def test_only_checkpoints_below_research_have_goals_and_slow_machines_are_not_judged() -> None:
    told = result(
        trial("greedy", "below research, BBR", [1.0], [0.99], 0.002),
        trial("greedy", "within the share, BBR", [1.0], [0.3], 0.7),
        trial("slow", "below research, BBR", [0.4], [0.3], 0.1, valid=False),
        trial("none", "below research, BBR", [0.0], [0.0], 0.5),
    )
    goals = {each.what: each.met for each in scavenger.judged_figures(told)}
    assert list(goals.values()) == [
        True,
        None,
        None,
        False,
    ]  # nothing is left of the greedy one's trunk to use
    assert scavenger.scavenger_notes(told) == ["slow, below research, BBR: not judged: slow"]
    console = Console(width=200, record=True, file=StringIO())
    console.print(scavenger.scavenger_table(told))
    shown = console.export_text()
    assert "0.990" in shown
    assert "(not judged)" in shown


def test_every_situation_leaves_what_its_words_say() -> None:
    campus = scavenger.trunk_campus()
    assert {host for each in scavenger.SITUATIONS for host in each.hosts} <= campus.host_by_name.keys()
    assert campus.access_link(scavenger.SLOW_STRANGER).rate_bytes_per_s == 0.4 * scavenger.TRUNK
    assert [way.usable_bytes_per_s / MBIT_PER_S for way in scavenger.WAYS] == pytest.approx(
        [200, 200, 200, 140]
    )


@pytest.mark.kernel
@pytest.mark.campus
class TestLive:
    pytestmark = live

    @pytest.fixture(autouse=True)
    def sooner(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A second is asked about as a whole, and three of them have a median."""
        monkeypatch.setattr(scavenger, "QUICK_SECONDS", 3)
        monkeypatch.setattr(scavenger, "WARM_S", 1.0)

    def test_greedy_strangers_keep_their_trunk_and_checkpoints_have_what_a_slow_one_leaves(
        self, tmp_path: Path
    ) -> None:
        told = scavenger.measure_scavenger(
            tmp_path, quick=True, only=("greedy", "slow"), ways=scavenger.WAYS[:1]
        )
        assert json.loads((tmp_path / scavenger.RESULT).read_text()) == told
        greedy, slow = scavenger.figures(told)
        assert greedy.median is not None
        assert slow.median is not None
        assert slow.used is not None
        if greedy.valid:
            assert greedy.median >= 1.0 - scavenger.MOST_LOST
        if slow.valid:
            assert slow.median >= 1.0 - scavenger.MOST_LOST
            assert slow.used >= scavenger.LEAST_USED

    def test_beside_checkpoints_that_borrow_research_keeps_its_reserve_and_they_their_share_or_all_that_is_idle(
        self, tmp_path: Path
    ) -> None:
        [borrowing] = [way for way in scavenger.WAYS if way.checkpoints is CheckpointClass.BORROW]
        told = scavenger.measure_scavenger(tmp_path, quick=True, only=("greedy", "none"), ways=[borrowing])
        greedy, idle = scavenger.figures(told)
        assert greedy.kept is not None and idle.used is not None
        share = scavenger.RESERVE.migration_share_bytes_per_s(scavenger.TRUNK)
        if greedy.valid:
            assert greedy.kept >= 1.0 - scavenger.MOST_LOST
            assert greedy.checkpoint_bytes_per_s >= scavenger.LEAST_USED * share
        if idle.valid:
            assert idle.used >= scavenger.LEAST_USED
