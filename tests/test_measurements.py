"""Curves of what jobs measured: read from any output, drawn with their attempts marked."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from experiments.results import measurements
from experiments.results.measurements import MeasuredCurve, measured_curves
from experiments.results.report.charts import MAX_CURVES, MAX_POINTS, curves
from testbed.workloads.synthetic import Synthetic
from tests.run_story import context


def lines(*points: tuple[int, float], name: str = "loss") -> str:
    return "".join(json.dumps({"step": step, name: value}) + "\n" for step, value in points)


def test_what_a_workload_measures_comes_back_to_the_last_bit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = Synthetic({"steps": 3})
    job.step_number = 2
    job.measured(loss=0.1 + 0.2, worst=float("inf"))
    (tmp_path / "job.1.log").write_text(capsys.readouterr().out)
    assert measured_curves(tmp_path) == [MeasuredCurve("job", "loss", {1: [(2, 0.1 + 0.2)]})]


def test_output_that_measures_nothing_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "job.1.log").write_bytes(
        b"begins\n\xff\xfe\n{\n{}\n[1]\n{'step': 1}\n"
        b'{"step": true, "loss": 1}\n{"step": -1, "loss": 1}\n{"step": 1.5, "loss": 1}\n{"loss": 1}\n'
        b'{"step": 1, "loss": null, "name": "x", "flag": true, "deep": {"a": 1}}\n'
        + b'{"step": 1, "a": '
        + b"[" * 5000
        + b"\n"
        + b'{"step": 4, "loss": 2}\n{"step": 5, "lo'
    )
    (tmp_path / "job.log").write_text(lines((1, 1.0)))
    (tmp_path / "job.x.log").write_text(lines((1, 1.0)))
    assert measured_curves(tmp_path) == [MeasuredCurve("job", "loss", {1: [(4, 2.0)]})]


def test_numbers_and_texts_of_any_kind_end_no_report(tmp_path: Path) -> None:
    """A job's output is its own: one wrong byte, or one long number, cost the report of a whole run."""
    digits = "9" * 400
    (tmp_path / "job.1.log").write_bytes(
        b'{"step": 1, "loss": "\xff"}\n{"st\xffp": 1, "loss": 1}\n'
        + f'{{"step": 1, "loss": {digits}}}\n{{"step": 1, "loss": -{digits}}}\n'.encode()
        + b'{"step": 1, "loss": 1e308}\n{"step": 1, "loss": -1.7e308}\n'
        + b'{"step": 2, "tiny": 5e-324}\n{"step": 3, "tiny": -0.0}\n{"step": 3, "loss": 2}\n'
    )
    found = measured_curves(tmp_path)
    assert [(curve.name, curve.attempts[1]) for curve in found] == [
        ("loss", [(3, 2.0)]),
        ("tiny", [(2, 5e-324), (3, 0.0)]),
    ]
    assert len(curves([], replace(context(), measured=found))) == 2


def test_what_is_read_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measurements, "MOST_BYTES", 100)
    long = lines(*((step, 1.0) for step in range(99)))
    (tmp_path / "job.1.log").write_text(long)
    [curve] = measured_curves(tmp_path)
    assert [step for step, _ in curve.attempts[1]] == [0, 1, 98], "its beginning and its end"
    assert curve.unread_bytes == len(long) - 100
    assert "job: loss (2.464 kB amid the output not read)" in drawn(curve)[0]
    (tmp_path / "job.2.log").write_text(long)
    [curve] = measured_curves(tmp_path)
    assert [[step for step, _ in points] for points in curve.attempts.values()] == [[0], [0]]
    (tmp_path / "job.2.log").unlink()
    monkeypatch.undo()
    many = {f"n{n}": 1.0 for n in range(20)} | {"n" * 41: 1.0}
    (tmp_path / "job.1.log").write_text(json.dumps({"step": 1, **many}) + "\n")
    assert len(measured_curves(tmp_path)) == measurements.MOST_NAMES


def test_steps_that_were_computed_twice_are_compared_bit_by_bit() -> None:
    same = MeasuredCurve("job", "loss", {1: [(1, 0.5), (2, 0.25)], 2: [(2, 0.25), (3, 0.1)]})
    assert same.repeated() == (1, 0)
    other = MeasuredCurve("job", "loss", {1: [(1, 0.5), (2, 0.25)], 2: [(2, 0.25 + 2**-54), (3, 0.1)]})
    assert other.repeated() == (1, 1)


def drawn(*found: MeasuredCurve) -> list[str]:
    return [str(picture) for picture in curves([], replace(context(), measured=found))]


def test_attempts_are_marked_and_steps_computed_twice_are_told_of() -> None:
    [picture] = drawn(MeasuredCurve("a<b", "loss", {1: [(1, 3.0), (9, 2.0)], 2: [(5, 2.5), (9, 2.0), (12, 1.0)]}))
    ElementTree.fromstring(picture)
    assert "a&lt;b: loss" in picture
    assert "steps computed twice: 1, the same to the last bit" in picture
    assert picture.count("stroke-dasharray") == 1


def test_long_curves_are_thinned_and_many_are_cut() -> None:
    points = [(step, float(step % 7)) for step in range(50_000)]
    found = [MeasuredCurve("job", f"n{n}", {1: points}) for n in range(MAX_CURVES + 3)]
    pictures = drawn(*found)
    assert len(pictures) == MAX_CURVES
    longest = max(path.count("L") for path in re.findall(' d="([^"]*)"', pictures[0]))
    assert 2 <= longest <= MAX_POINTS + 1


def test_a_curve_of_one_point_is_drawn() -> None:
    [picture] = drawn(MeasuredCurve("job", "loss", {3: [(0, 0.0)]}))
    ElementTree.fromstring(picture)


def test_without_torch_a_training_job_is_refused_with_what_to_install() -> None:
    program = """
import sys
sys.modules["torch"] = None
from testbed.errors import SpecError
from testbed.workloads.base import load_workload
try:
    load_workload("testbed.workloads.torch_training:TorchTraining", {})
except SpecError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "install the extra 'torch'" in done.stdout
