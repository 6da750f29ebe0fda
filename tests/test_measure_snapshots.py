"""`reclaimnet measure snapshots`: three ways side by side, of states that are small here."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from experiments.benchmarks import snapshots, snapshots_gpu
from experiments.benchmarks.snapshots import WAYS, gpu_table, measure_snapshots, snapshots_table
from testbed.errors import SetupError

pytestmark = pytest.mark.alone


def test_each_way_is_measured_at_each_size(tmp_path: Path) -> None:
    result = measure_snapshots(tmp_path / "out", [1], tmp_path, gpu_sizes_mb=[], quick=True)
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
    if find_spec("torch") is None or "why_not" in result["gpu"]:
        assert printed(result).startswith("on a GPU: not measured: ")


def test_a_state_for_which_there_is_no_room_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "available_bytes", lambda: 2_000_000.0)
    with pytest.raises(SetupError, match="1000000 bytes of state"):
        measure_snapshots(tmp_path, [1])


def printed(result: dict[str, Any]) -> str:
    console = Console(width=160, record=True)
    console.print(gpu_table(result))
    return console.export_text()


@pytest.mark.skipif(find_spec("torch") is None, reason="needs PyTorch: the extra 'torch'")
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_each_way_of_a_gpu_is_measured_where_there_is_one(device: str, tmp_path: Path) -> None:
    import torch

    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip(f"torch {torch.__version__} sees no GPU")
    done = subprocess.run(
        [sys.executable, "-m", snapshots.GPU_MODULE, json.dumps([device, [1, 2], True, str(tmp_path)])],
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    told = json.loads(done.stdout)
    assert [(row["size_mb"], row["way"]) for row in told["rows"]] == [
        (size_mb, way) for size_mb in (1, 2) for way in snapshots_gpu.WAYS
    ]
    for row in told["rows"]:
        assert 0.0 < row["pause_p50_s"] <= row["pause_p99_s"]
        assert row["tensors"] == 24 * 6 * 4 + (3 if device == "cuda" else 2)  # with the generators'
        in_memory = row["way"] != "stop" and not (row["way"] == "copy" and device == "cuda")
        assert (row["extra_bytes"] > 0.9e6 * row["size_mb"]) == in_memory
    assert all(rate > 0.0 for rate in told["bytes_per_s"].values())
    assert bool(told["bytes_per_s"]) == (device == "cuda")
    assert "until written" in printed({"gpu": told})
    assert list(tmp_path.iterdir()) == []


def test_where_there_is_no_gpu_it_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    told = snapshots_gpu.measured("cuda", [1], True, str(tmp_path))
    assert "the extra 'torch'" in told["why_not"]
    assert "not measured: " in printed({"gpu": told})
