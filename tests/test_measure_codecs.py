"""`reclaimnet measure codecs`: every way brings back what it was given, and the ways' figures are those of these bytes."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

from experiments.benchmarks.codecs import codecs_table, measure_codecs
from experiments.cli.measure import app
from testbed.checkpoints import CHUNK_BYTES
from testbed.errors import SetupError
from tests.test_coding import trained, weights


def test_files_of_ones_own_are_measured_each_against_the_one_before(tmp_path: Path) -> None:
    first = weights()
    later = trained(first)
    later[: CHUNK_BYTES // 4] = first[: CHUNK_BYTES // 4]  # one chunk of two stays
    files = [tmp_path / name for name in ("first", "later", "odd")]
    for path, content in zip(
        files, (first.tobytes(), later.tobytes(), later.tobytes() + b"xyz"), strict=True
    ):
        path.write_bytes(content)
    result = measure_codecs(tmp_path / "out", files, quick=True)
    assert result == json.loads((tmp_path / "out/codecs.json").read_text())
    left = {(row["content"], row["way"]): row["wire_bytes"] / row["plain_bytes"] for row in result["rows"]}
    assert left["later after first", "deduplication"] == 0.5
    assert left["later after first", "delta, planes, zstd 1"] < 0.45
    assert left["later after first", "transfers"] == pytest.approx(
        left["later after first", "delta, planes, zstd 1"], abs=0.01
    )
    assert left["odd after later", "deduplication"] == pytest.approx(0.0, abs=1e-4)
    assert left["later after first", "planes, zstd 1"] > left["later after first", "delta, planes, zstd 1"]
    assert all(row["encode_s_per_gb"] >= 0.0 for row in result["rows"])
    console = Console(width=160, record=True)
    console.print(codecs_table(result))
    assert "pays below" in console.export_text()


def test_files_are_named_on_the_command_line(tmp_path: Path) -> None:
    for n in (1, 2):
        (tmp_path / str(n)).write_bytes(weights(seed=n).tobytes())
    words = [
        "codecs",
        str(tmp_path / "1"),
        str(tmp_path / "2"),
        "--quick",
        "--json",
        "--out",
        str(tmp_path / "out"),
    ]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["results"]["codecs"]["chunk_bytes"] == CHUNK_BYTES


def test_random_bytes_pay_at_no_rate(tmp_path: Path) -> None:
    files = [tmp_path / "a", tmp_path / "b"]
    for path in files:
        path.write_bytes(np.random.default_rng(len(path.name) + ord(path.name)).bytes(CHUNK_BYTES))
    rows = measure_codecs(tmp_path / "out", files, quick=True)["rows"]
    assert {row["pays_below_bytes_per_s"] for row in rows} == {None}


@pytest.mark.parametrize("names", [["one"], ["one", "missing"], ["one", "empty"]])
def test_what_is_no_pair_of_checkpoints_is_refused(names: list[str], tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(b"x" * 100)
    (tmp_path / "empty").touch()
    with pytest.raises(SetupError):
        measure_codecs(tmp_path / "out", [tmp_path / name for name in names])


def test_the_example_is_trained_where_no_files_are_named(tmp_path: Path) -> None:
    if importlib.util.find_spec("torch") is None:
        with pytest.raises(SetupError, match="the extra 'torch'"):
            measure_codecs(tmp_path, quick=True)
        return
    rows = measure_codecs(tmp_path, quick=True)["rows"]
    assert {row["content"] for row in rows} == {
        "32-bit weights, AdamW, 1 step later",
        "bf16 weights, AdamW, 1 step later",
    }
    assert all(row["wire_bytes"] < 0.8 * row["plain_bytes"] for row in rows if row["way"] == "transfers")
