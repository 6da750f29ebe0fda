"""`reclaimnet measure snapshots`: three ways side by side, of states that are small here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rich.console import Console

from experiments.benchmarks import snapshots
from experiments.benchmarks.snapshots import WAYS, measure_snapshots, snapshots_table
from testbed.errors import SetupError

pytestmark = pytest.mark.alone


def test_each_way_is_measured_at_each_size(tmp_path: Path) -> None:
    result = measure_snapshots(tmp_path / "out", [1], tmp_path, quick=True)
    assert result == json.loads((tmp_path / "out/snapshots.json").read_text())
    assert [(row["dirty_share"], row["way"]) for row in result["rows"]] == [
        (share, way) for share in snapshots.DIRTY_SHARES for way in WAYS
    ]
    for row in result["rows"]:
        assert 0.0 < row["pause_p50_s"] <= row["pause_p99_s"]
        assert row["pause_p50_s"] <= row["written_s"] or row["way"] != "stop"
        assert (row["extra_bytes"] == 0) == (row["way"] == "stop")
    assert all(row["extra_bytes"] == 1_000_000 for row in result["rows"] if row["way"] == "copy")
    assert result["goal"]["met"] is None
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    console = Console(width=160, record=True)
    console.print(snapshots_table(result))
    assert "until written" in console.export_text()


def test_a_state_for_which_there_is_no_room_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "available_bytes", lambda: 2_000_000.0)
    with pytest.raises(SetupError, match="1000000 bytes of state"):
        measure_snapshots(tmp_path, [1])
