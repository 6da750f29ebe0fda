"""Training jobs: killed anywhere, gone on from any checkpoint, to the last bit what they would have been."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: the extra 'torch'")
from safetensors.torch import load_file, save_file  # noqa: E402

from testbed.errors import SpecError  # noqa: E402
from testbed.workloads.base import StateMismatch, load_workload  # noqa: E402
from testbed.workloads.torch_training import CannotBeSaved, TorchTraining  # noqa: E402
from tests.torch_jobs import Motley, as_before  # noqa: E402, F401

pytestmark = pytest.mark.extra
EXAMPLES = Path(__file__).parents[1] / "docs/examples"


def transformer(params: Mapping[str, object]) -> TorchTraining:
    sys.path.insert(0, str(EXAMPLES))
    try:
        made = load_workload("transformer:Transformer", params)
    finally:
        sys.path.remove(str(EXAMPLES))
    return made


MAKERS = {
    "motley": lambda: Motley({"steps": 12, "seed": 7}),
    "transformer": lambda: transformer({"steps": 6, "seed": 7}),
    "bf16": lambda: transformer({"steps": 2, "seed": 7, "bf16": 1}),
}


def played(job: TorchTraining, until: int, capsys: pytest.CaptureFixture[str]) -> dict[int, float]:
    """The losses that it tells of the steps up to there."""
    while job.step_number < until:
        job.step()
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    return {line["step"]: line["loss"] for line in told}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_a_job_goes_on_from_any_checkpoint_to_the_last_bit(
    make: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    twin = make()
    twin.begin()
    losses: dict[int, float] = {}
    proofs = {0: twin.verify()}
    steps = twin.steps_total
    checkpoints = sorted({0, 1, steps // 2, steps})
    for at in checkpoints:
        losses |= played(twin, at, capsys)
        twin.save(tmp_path / str(at))
        proofs[at] = twin.verify()
    assert sorted(losses) == list(range(1, steps + 1))
    for at in checkpoints:
        job = make()
        torch.manual_seed(99)  # whatever ran in this process before
        job.load(tmp_path / str(at))
        assert (job.step_number, job.verify()) == (at, proofs[at])
        assert played(job, steps, capsys) == {step: loss for step, loss in losses.items() if step > at}
        assert job.verify() == proofs[steps]


def test_a_checkpoint_is_a_safetensors_file_and_lies_as_the_last_one_did(tmp_path: Path) -> None:
    job = MAKERS["motley"]()
    job.begin()
    job.step()
    job.save(tmp_path / "1")
    for _ in range(10):
        job.step()
    job.save(tmp_path / "11")
    tensors = load_file(tmp_path / "11")
    for name, value in job.model.state_dict().items():
        assert torch.equal(tensors[f"model.{name}"], value)
    first, later = (tmp_path / "1").read_bytes(), (tmp_path / "11").read_bytes()
    head = 8 + int.from_bytes(first[:8], "little")
    assert (len(first), first[:head]) == (len(later), later[:head])


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (lambda: Motley({"steps": 13, "seed": 7}), "another job"),
        (lambda: transformer({"steps": 12, "seed": 7}), "no state of this model"),
    ],
)
def test_the_state_of_another_job_is_refused(other: Any, why: str, tmp_path: Path) -> None:
    job = MAKERS["motley"]()
    job.begin()
    job.save(tmp_path / "state")
    with pytest.raises(StateMismatch, match=why):
        other().load(tmp_path / "state")


@pytest.mark.parametrize(
    "tree",
    [
        "[]",
        "1",
        "[" * 100_000,
        '{"step": 1}',
        '{"params": GIVEN, "step": 1, "state": {"array": 1, "dtype": "x"}, "generators": {}}',
        '{"params": GIVEN, "step": 1, "state": {"tensor": []}, "generators": {}}',
        '{"params": GIVEN, "step": 1, "state": {"dict": [["model", {"dict": []}]]}, "generators": {}}',
        '{"params": GIVEN, "step": 99, "state": {}, "generators": {}}',
    ],
)
def test_a_file_whose_tree_is_none_is_refused(tree: str, tmp_path: Path) -> None:
    told = tree.replace("GIVEN", '{"steps": 12, "seed": 7}').encode()
    tensors = {"reclaimnet.tree": torch.frombuffer(bytearray(told), dtype=torch.uint8)}
    save_file(tensors, tmp_path / "state")
    with pytest.raises(StateMismatch):
        MAKERS["motley"]().load(tmp_path / "state")


def test_a_state_that_comes_out_of_memory_changed_is_found(tmp_path: Path) -> None:
    class Forgetful(Motley):
        def build(self) -> Any:
            model, optimizer, *_ = super().build()
            return model, optimizer, Half()

    class Half:
        value = 3.0

        def state_dict(self) -> dict[str, float]:
            return {"value": self.value}

        def load_state_dict(self, state: Mapping[str, float]) -> None:
            self.value = state["value"] / 2.0

    job = Forgetful({"steps": 12})
    job.begin()
    job.save(tmp_path / "state")
    again = Forgetful({"steps": 12})
    again.load(tmp_path / "state")
    with pytest.raises(StateMismatch, match="as it was saved"):
        again.verify()


@pytest.mark.parametrize(
    "value",
    [{"f": print}, {("a", 1): 2}, {"s": torch.eye(2).to_sparse()}, {"f8": torch.zeros(1).half().view(torch.uint16)}],
)
def test_what_cannot_be_saved_without_pickle_is_refused_by_name(value: Any, tmp_path: Path) -> None:
    class Odd:
        def state_dict(self) -> Any:
            return value

    class WithOdd(Motley):
        def build(self) -> Any:
            return *super().build(), Odd()

    job = WithOdd({"steps": 12})
    job.begin()
    with pytest.raises(CannotBeSaved, match="other2"):
        job.save(tmp_path / "state")


def test_wrong_params_are_named() -> None:
    with pytest.raises(SpecError, match=r"params\.steps"):
        Motley({})
    with pytest.raises(SpecError, match=r"params\.seed"):
        Motley({"steps": 3, "seed": -1})
