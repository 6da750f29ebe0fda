"""`reclaimnet measure snapshots`: three ways side by side, of states that are small here."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.benchmarks import snapshots
from experiments.benchmarks.frame import Run
from experiments.benchmarks.snapshots import WAYS
from testbed.errors import SetupError
from tests.shown import shown

pytestmark = pytest.mark.alone


def test_each_way_is_measured_at_each_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "GOAL_MB", 1)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    result = snapshots.measure(Run(tmp_path, quick=True))
    assert [(row["dirty_share"], row["way"]) for row in result["rows"]] == [
        (share, way) for share in snapshots.DIRTY_SHARES for way in WAYS
    ]
    for row in result["rows"]:
        assert 0.0 < row["pause_p50_s"] <= row["pause_p99_s"]
        assert row["lost_s"] > 0.0
    assert list(tmp_path.iterdir()) == []
    [goal] = snapshots.goals(result)
    assert goal.met is not None
    assert "1 MB 100% fork" in shown(snapshots.tables(result))


def test_a_state_for_which_there_is_no_room_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "available_bytes", lambda: 2_000_000.0)
    with pytest.raises(SetupError, match="1000000 bytes of state"):
        snapshots.measure(Run(tmp_path))
