"""The synthetic job: its state at step n is a closed function of its parameters and n, and it can prove it."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.errors import SpecError
from testbed.workloads.base import StateMismatch, load_workload
from testbed.workloads.synthetic import BLOCK_BYTES, Params, Synthetic

SMALL: dict[str, Any] = {"payload_bytes": 5 * BLOCK_BYTES + 100, "steps": 50, "step_s": 0.0, "dirty_fraction": 0.4}


def job(step: int = 0, **params: Any) -> Synthetic:
    workload = Synthetic({**SMALL, **params})
    workload.begin()
    for _ in range(step):
        workload.step()
    return workload


@given(st.integers(0, 12), st.floats(0.0, 1.0), st.integers(0, 40))
def test_versions_count_the_rewrites_of_the_steps(blocks: int, dirty: float, steps: int) -> None:
    params = Params.of({"payload_bytes": blocks * BLOCK_BYTES, "steps": 50, "dirty_fraction": dirty})
    rewrites = [0] * blocks
    for turn in range(params.written(steps)):
        rewrites[turn % blocks] += 1
    assert [params.version(block, steps) for block in range(blocks)] == rewrites


@settings(max_examples=20)
@given(st.integers(0, 4 * BLOCK_BYTES), st.floats(0.0, 1.0), st.integers(0, 12), st.integers(0, 2**63 - 1))
def test_stepping_leads_to_the_state_that_the_closed_form_gives(size: int, dirty: float, steps: int, seed: int) -> None:
    workload = job(steps, payload_bytes=size, dirty_fraction=dirty, seed=seed)
    assert workload.verify() == workload.digest()


@pytest.mark.parametrize("step", [0, 1, 127, 128, 255, 256, 65536])
def test_any_step_can_be_saved_and_loaded(tmp_path: Path, step: int) -> None:
    workload = job(payload_bytes=100, steps=1 << 20)
    workload.step_number = step
    workload.save(tmp_path / "state")
    resumed = Synthetic({**SMALL, "payload_bytes": 100, "steps": 1 << 20})
    resumed.load(tmp_path / "state")
    assert resumed.step_number == step


@pytest.mark.parametrize("place", [0, BLOCK_BYTES, 5 * BLOCK_BYTES + 99])
def test_one_changed_byte_is_no_state_of_that_step(tmp_path: Path, place: int) -> None:
    job(7).save(tmp_path / "state")
    raw = bytearray((tmp_path / "state").read_bytes())
    raw[place] ^= 1
    (tmp_path / "state").write_bytes(raw)
    workload = Synthetic(SMALL)
    workload.load(tmp_path / "state")
    with pytest.raises(StateMismatch, match=f"block {place // BLOCK_BYTES}"):
        workload.verify()


def test_right_payload_under_a_wrong_step_is_refused(tmp_path: Path) -> None:
    older, newer = job(7), job(8)
    newer._payload = older._payload
    newer.save(tmp_path / "state")
    workload = Synthetic(SMALL)
    workload.load(tmp_path / "state")
    with pytest.raises(StateMismatch):
        workload.verify()


def test_state_of_another_job_or_a_short_file_is_refused(tmp_path: Path) -> None:
    job(3, seed=1).save(tmp_path / "state")
    with pytest.raises(StateMismatch, match="another job"):
        Synthetic(SMALL).load(tmp_path / "state")
    job(51, steps=60).save(tmp_path / "longer")
    with pytest.raises(StateMismatch, match="another job"):
        Synthetic(SMALL).load(tmp_path / "longer")
    raw = (tmp_path / "state").read_bytes()
    for harm in (raw[:-1], b"", raw + b"x"):
        (tmp_path / "state").write_bytes(harm)
        with pytest.raises(StateMismatch, match="bytes"):
            Synthetic(SMALL).load(tmp_path / "state")
    (tmp_path / "state").write_bytes(raw[:-128] + b"\xff" * 128)
    with pytest.raises(StateMismatch, match="no state"):
        Synthetic(SMALL).load(tmp_path / "state")


@pytest.mark.parametrize(
    ("dirty", "steps", "changed"), [(0.1, 1, 1), (0.1, 4, 4), (0.25, 2, 5), (1.0, 1, 10), (0.0, 9, 0)]
)
def test_steps_rewrite_the_dirty_fraction_of_the_blocks(dirty: float, steps: int, changed: int) -> None:
    workload = job(payload_bytes=10 * BLOCK_BYTES, dirty_fraction=dirty)
    before = bytes(workload._payload)
    for _ in range(steps):
        workload.step()
    blocks = range(0, len(before), BLOCK_BYTES)
    assert sum(workload._payload[b : b + BLOCK_BYTES] != before[b : b + BLOCK_BYTES] for b in blocks) == changed


@pytest.mark.parametrize(
    ("params", "key"),
    [
        ({}, "steps"),
        ({"steps": 0}, "steps"),
        ({"steps": 1.5}, "steps"),
        ({"steps": True}, "steps"),
        ({"steps": "10"}, "steps"),
        ({"steps": 1, "payload_bytes": -1}, "payload_bytes"),
        ({"steps": 1, "payload_bytes": 1 << 60}, "payload_bytes"),
        ({"steps": 1, "dirty_fraction": 1.1}, "dirty_fraction"),
        ({"steps": 1, "dirty_fraction": float("nan")}, "dirty_fraction"),
        ({"steps": 1, "step_s": -0.1}, "step_s"),
        ({"steps": 1, "step_s": None}, "step_s"),
        ({"steps": 1, "seed": -1}, "seed"),
        ({"steps": 1, "colour": "red"}, "colour"),
    ],
)
def test_wrong_parameter_is_named_with_what_is_allowed(params: dict[str, object], key: str) -> None:
    with pytest.raises(SpecError) as caught:
        load_workload("synthetic", params)
    assert caught.value.key == f"params.{key}"


@pytest.mark.parametrize(
    "name", ["", "nonsense", "no.such.module:Class", "pathlib:Path", "pathlib:Nothing", "os:", ":Synthetic", "..:x"]
)
def test_name_that_is_no_workload_is_refused(name: str) -> None:
    with pytest.raises(SpecError) as caught:
        load_workload(name, {"steps": 1})
    assert caught.value.key == "workload"
