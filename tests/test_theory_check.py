"""`reclaimnet theory check`: the recorded vectors where they are at hand, a few of our own everywhere, and that it bites."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from experiments.cli.main import app
from experiments.theory.check import FAMILIES, agrees, check
from experiments.theory.domain import DomainError
from experiments.theory.vectors import load
from topologies.errors import SpecError

OURS = Path(__file__).with_name("theory_vectors.json")
RECORD = Path(__file__).parents[2] / "shared" / "papers" / "reference_vectors.json"
VECTORS: list[dict[str, Any]] = json.loads(OURS.read_text())["vectors"]


def lines_of(path: Path) -> list[str]:
    lines: list[str] = []
    check(path, lines.append)
    return lines


def written(tmp_path: Path, vectors: object) -> Path:
    path = tmp_path / "vectors.json"
    path.write_text(json.dumps({"vectors": vectors}))
    return path


def test_recorded_vectors_are_all_met() -> None:
    if not RECORD.exists():
        pytest.skip(f"the recorded vectors are not here: {RECORD}")
    lines = lines_of(RECORD)
    assert [line for line in lines if not line.startswith("pass ")] == [lines[-1]]
    assert lines[-1] == f"{len(lines) - 1} passed, 0 failed, 0 without a family" and len(lines) > 90


def test_our_own_vectors_are_all_met_and_of_every_family() -> None:
    assert [line for line in lines_of(OURS) if "FAIL" in line or "no such" in line] == []
    for prefix in FAMILIES:
        assert any(vector["id"].startswith(prefix) for vector in VECTORS), prefix


def changed(value: Any) -> Any:
    """Another value, by one percent or altogether."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, list):
        return [changed(value[0]), *value[1:]]
    if isinstance(value, str):
        return 7.25
    return value * 1.01 if value else 0.01


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: str(vector["id"]))
def test_any_other_output_fails_and_is_named(vector: dict[str, Any], tmp_path: Path) -> None:
    wrong = []
    for name, value in vector["outputs"].items():
        other = copy.deepcopy(vector)
        other["outputs"] = {name: changed(value)}
        wrong.append(other)
    lines = lines_of(written(tmp_path, wrong))
    assert lines[-1] == f"0 passed, {len(wrong)} failed, 0 without a family"
    for line, name in zip(lines, vector["outputs"], strict=False):
        assert line.startswith(f"FAIL {vector['id']} {name}: expected ") and ", found " in line


def test_command_prints_a_line_a_vector_and_exits_1_if_any_failed(tmp_path: Path) -> None:
    good = VECTORS[0]
    bad = good | {"id": "p1.thm1.bad", "outputs": {"cost": 3.0}}
    stranger = good | {"id": "p3.thm1.0"}
    found = CliRunner().invoke(app, ["theory", "check", str(written(tmp_path, [good, bad, stranger]))])
    assert found.exit_code == 1
    assert found.output.splitlines() == [
        f"pass {good['id']}",
        "FAIL p1.thm1.bad cost: expected 3, found 2.5",
        "no such family p3.thm1.0",
        "1 passed, 1 failed, 1 without a family",
    ]
    assert CliRunner().invoke(app, ["theory", "check", str(OURS)]).exit_code == 0


def test_vectors_without_a_family_are_counted_and_the_command_says_so_by_its_status(tmp_path: Path) -> None:
    path = written(tmp_path, [VECTORS[0] | {"id": "q.1"}])
    assert lines_of(path) == ["no such family q.1", "0 passed, 0 failed, 1 without a family"]
    assert CliRunner().invoke(app, ["theory", "check", str(path)]).exit_code == 1


def test_an_id_may_be_the_name_of_its_family(tmp_path: Path) -> None:
    vector = {
        "id": "p1.alg1.admission",
        "inputs": {"r": 1.5, "queue_lengths": [0, 1, 2]},
        "outputs": {"admit_probability": [1.0, 0.5, 0.0]},
    }
    longer = vector | {"id": "p1.alg1.admissions"}
    assert lines_of(written(tmp_path, [vector, longer])) == [
        "pass p1.alg1.admission",
        "no such family p1.alg1.admissions",
        "1 passed, 0 failed, 1 without a family",
    ]


def test_input_that_is_missing_or_of_another_kind_fails_that_vector_only(tmp_path: Path) -> None:
    bare = {"id": "p2.lemma1.bare", "inputs": {"C_bytes": 1e9}, "outputs": {"delta_s": 1.0}}
    worded = {"id": "p2.eq12.word", "inputs": {"C_bytes": "much", "tau": 1}, "outputs": {"r_min": 1.0}}
    other = VECTORS[0] | {"outputs": {"price": 1.0}}
    lines = lines_of(written(tmp_path, [bare, worded, other, VECTORS[0]]))
    assert "input lam_per_h = None: is missing" in lines[0]
    assert "input C_bytes = 'much': must be a number" in lines[1]
    assert lines[2].endswith("price: expected 1, found no such output")
    assert lines[3:] == [f"pass {VECTORS[0]['id']}", "1 passed, 3 failed, 0 without a family"]


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("{", "file"),
        ("\xff\xfe", "file"),
        ("[]", "(top level)"),
        ('{"vectors": 3}', "vectors"),
        ("{}", "vectors"),
        ('{"vectors": [7]}', "vectors[0]"),
        ('{"vectors": [{"inputs": {}, "outputs": {"a": 1}}]}', "vectors[0].id"),
        ('{"vectors": [{"id": "p1.thm1.0", "inputs": [], "outputs": {"a": 1}}]}', "vectors[0].inputs"),
        ('{"vectors": [{"id": "p1.thm1.0", "inputs": {}}]}', "vectors[0].outputs"),
        ('{"vectors": [{"id": "p1.thm1.0", "inputs": {}, "outputs": {}}]}', "vectors[0].outputs"),
        (
            '{"vectors": [{"id": "a", "inputs": {}, "outputs": {"a": 1}, "rel_tol": "x"}]}',
            "vectors[0].rel_tol",
        ),
    ],
)
def test_malformed_file_is_one_error_with_file_and_key(text: str, key: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(SpecError) as caught:
        load(path)
    assert str(path) in str(caught.value) and caught.value.key == key
    with pytest.raises(SpecError, match="nowhere"):
        load(tmp_path / "nowhere.json")


def test_values_agree_within_their_tolerance_and_no_further() -> None:
    refusal = DomainError("delta", 9.0, "must be at most 8")
    assert agrees(2.0, 2.00001, 1e-5) and not agrees(2.0, 2.0001, 1e-5)
    assert (
        agrees("inf", float("inf"), 1e-5)
        and not agrees("inf", 1e300, 1e-5)
        and not agrees(1e300, float("inf"), 1e-5)
    )
    assert agrees("error", refusal, 1e-5) and agrees(None, refusal, 1e-5) and not agrees(8.0, refusal, 1e-5)
    assert agrees([2, 0], {0, 2}, 1e-5) and not agrees([0], {0, 2}, 1e-5)
    assert agrees([0.5, 0.5, 0.0], (0.5, 0.5), 1e-5) and not agrees([0.5], (0.5, 0.5), 1e-5)
    assert (
        not agrees([0.5, 0.4], [0.4, 0.5], 1e-5)
        and not agrees(True, 1.0, 1e-5)
        and not agrees(1.0, True, 1e-5)
    )
    assert not agrees(1.0, float("nan"), 1e-5) and not agrees("word", 1.0, 1e-5)
