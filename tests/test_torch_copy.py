"""Snapshots of training jobs that go on, in memory and on a GPU; what a checkpoint of one is worth on the other."""

import json
import os
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: the extra 'torch'")
from safetensors.torch import load, load_file  # noqa: E402

from testbed.workloads import torch_copy, torch_training  # noqa: E402
from testbed.workloads.base import StateMismatch, write_parts  # noqa: E402
from testbed.workloads.copying import copy_of  # noqa: E402
from testbed.workloads.messages import Finished, SnapshotTaken, Started  # noqa: E402
from testbed.workloads.torch_copy import TensorsCopy, layouts_of, staged  # noqa: E402
from testbed.workloads.torch_file import TREE, file_pieces, tree_tensor  # noqa: E402
from tests.job_desk import all_events, begun_copy, desk, job_of, next_of  # noqa: E402
from tests.torch_jobs import Motley, as_before  # noqa: E402, F401

pytestmark = pytest.mark.extra
no_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason=f"torch {torch.__version__} sees no GPU")
gpu = pytest.param("cuda", marks=no_gpu)
DEVICES = ["cpu", gpu]


def begun(device: str, steps: int = 0) -> Motley:
    job = Motley({"steps": 40, "seed": 5, "device": device})
    job.begin()
    for _ in range(steps):
        job.step()
    return job


def saved(job: Motley) -> bytes:
    return b"".join(bytes(part) for part in job._file())


# ---------------------------------------------------------------- the copy


@pytest.mark.parametrize("has_room", [True, pytest.param(False, marks=no_gpu)])
@pytest.mark.parametrize("device", DEVICES)
def test_copy_is_byte_for_byte_what_would_have_been_saved_whatever_the_job_does_then(
    device: str, has_room: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_room:
        monkeypatch.setattr(TensorsCopy, "_room_on", lambda *_: None)
    job = begun(device, steps=3)
    copy = TensorsCopy(job.gathered, layouts_of(job.gathered()[0]))
    reserving = threading.Thread(target=copy.reserve)
    reserving.start()
    job.step()
    reserving.join()
    expected = saved(job)
    assert copy.take() == ""
    for _ in range(3):
        job.step()
    assert saved(job) != expected
    assert b"".join(bytes(part) for part in copy.complete()) == expected
    copy.release()
    assert copy.delayed == ""


@pytest.mark.parametrize("device", DEVICES)
def test_what_is_fetched_is_the_state_whatever_the_size_of_the_stage(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = begun(device, steps=2)
    expected = saved(job)
    tensors = load(expected)
    for name, value in job.model.state_dict().items():
        assert torch.equal(tensors[f"model.{name}"], value.cpu()), name
    for size_bytes in (1, 1000, 4096):
        monkeypatch.setattr(torch_copy, "STAGE_BYTES", size_bytes)
        assert saved(job) == expected


@pytest.mark.parametrize("device", DEVICES)
def test_a_hundred_snapshots_leave_no_memory_behind(device: str, tmp_path: Path) -> None:
    def used() -> int:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") + (torch.cuda.memory_allocated() if device == "cuda" else 0)

    class Large(Motley):
        def build(self) -> Any:
            model, *others = super().build()
            model.register_buffer("large", torch.zeros(8 << 20, device=self.device))
            return model, *others

    job, reserved = Large({"steps": 1 << 30, "device": device}), []
    job.begin()
    job.step()
    for number in range(100):
        copy = copy_of(job)
        assert isinstance(copy, TensorsCopy)
        assert copy.size_bytes > 32 << 20  # what it may take
        snapshot, told = begun_copy(tmp_path / "snap", copy)
        assert snapshot.copy(job.step_number)
        snapshot.join()
        assert isinstance(told[0], SnapshotTaken)
        if number == 9:
            before = used()
        if device == "cuda":
            reserved.append(torch.cuda.memory_reserved())
    assert used() - before < 32 << 20
    assert len(set(reserved[1:])) <= 1  # torch keeps one copy's memory, and takes no more


@no_gpu
def test_a_gpu_without_room_says_so_and_its_state_is_fetched_meanwhile(tmp_path: Path) -> None:
    job = begun("cuda", steps=1)
    torch.cuda.empty_cache()
    filler = torch.empty(torch.cuda.mem_get_info()[0] - (512 << 20), dtype=torch.uint8, device="cuda")
    snapshot, told = begun_copy(tmp_path / "snap", copy_of(job))
    expected = saved(job)
    assert snapshot.copy(1)
    job.step()
    snapshot.join()
    del filler
    torch.cuda.empty_cache()
    [taken] = told
    assert "MB are free on " in taken.stopped
    assert "fetched while the job stood still" in taken.stopped
    assert (tmp_path / "snap").read_bytes() == expected


@no_gpu
def test_steps_get_the_memory_that_a_snapshot_had() -> None:
    job = begun("cuda", steps=1)
    copy = job.state_copy()
    copy.reserve()
    assert copy.take() == ""
    list(copy.complete())
    copy.release()
    most = torch.cuda.mem_get_info()[0] + torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
    torch.empty(int(most * 0.98), dtype=torch.uint8, device="cuda")
    torch.cuda.empty_cache()


# ---------------------------------------------------------------- a job that goes on


@pytest.mark.alone
@pytest.mark.timeout(300)
@pytest.mark.parametrize("device", DEVICES)
async def test_a_job_killed_beside_its_snapshot_goes_on_to_the_last_bit(device: str, tmp_path: Path) -> None:
    shutil.copy(Path(__file__).with_name("torch_jobs.py"), tmp_path)
    spec = job_of("torch_jobs:Motley", {"steps": 400, "seed": 5, "device": device})
    async with desk(tmp_path, within_s=120.0) as d:
        job = await d.start(spec)
        await next_of(job, Started)
        await job.snapshot(tmp_path / "first")
        taken = await job.snapshot(tmp_path / "second")
        assert taken.stopped == ""
        assert 0 < taken.step < 400
        job.kill()
        await all_events(job)
        again = await d.start(spec, restore=tmp_path / "second")
        assert (await next_of(again, Started)).step == taken.step
        proof = await next_of(again, Finished)
    told = [json.loads(line) for line in d.log().splitlines() if line.startswith("{")]
    twin = Motley(spec.params)
    twin.begin()
    losses = {}
    twin.measured = lambda **values: losses.update({twin.step_number: values["loss"]})
    while twin.step_number < 400:
        twin.step()
    assert {line["step"] for line in told} == set(losses)
    assert all(line["loss"] == losses[line["step"]] for line in told)
    assert proof.digest == twin.verify()
    assert "bits may differ" not in d.log()


@no_gpu
def test_generators_of_a_gpu_are_part_of_a_checkpoint(tmp_path: Path) -> None:
    job = begun("cuda", steps=2)
    job.save(tmp_path / "state")
    drawn = torch.rand(5, device="cuda")
    tensors = load_file(tmp_path / "state")
    assert tensors["generators.cuda.0"].numel() > 0
    other = begun("cuda", steps=5)
    torch.rand(7, device="cuda")
    other.load(tmp_path / "state")
    other.verify()
    assert torch.equal(torch.rand(5, device="cuda"), drawn)


# ---------------------------------------------------------------- from one device to another


def elsewhere(state: Path, path: Path) -> bytes:
    """The same state as a job with one GPU would have saved it."""
    tensors: dict[str, Any] = dict(load_file(state))
    tree = json.loads(bytes(tensors[TREE].numpy()))
    tensors["generators.cuda.0"] = torch.arange(16, dtype=torch.uint8)
    tree["computed_on"] = ["torch 9.9", "NVIDIA Z9"]
    tree["generators"]["dict"] = [
        [name, {"list": [{"tensor": "generators.cuda.0"}]} if name == "cuda" else value]
        for name, value in tree["generators"]["dict"]
    ]
    tensors[TREE] = tree_tensor(tree)
    write_parts(path, staged(file_pieces(tensors)))
    return path.read_bytes()


def test_state_of_a_gpu_goes_on_on_a_processor_and_it_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    begun("cpu", steps=2).save(tmp_path / "here")
    there = elsewhere(tmp_path / "here", tmp_path / "there")
    job = begun("cpu")
    capsys.readouterr()
    job.load(tmp_path / "there")
    told = capsys.readouterr().out
    assert told.startswith("step 2 was computed on torch 9.9, NVIDIA Z9; this is torch ")
    assert told.endswith("bits may differ from here on\n")
    job.verify()
    assert saved(job) == there  # until a step is computed, the file that it came from
    job.step()
    job.save(tmp_path / "later")
    tensors = load_file(tmp_path / "later")
    assert "generators.cuda.0" not in tensors
    assert json.loads(bytes(tensors[TREE].numpy()))["computed_on"] == torch_training._processors([])
    begun("cpu").load(tmp_path / "later")
    assert "bits may differ" not in capsys.readouterr().out


@no_gpu
@pytest.mark.parametrize(("there", "here"), [("cpu", "cuda"), ("cuda", "cpu")])
def test_state_goes_from_a_processor_to_a_gpu_and_back_and_it_is_said(
    there: str, here: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Movable(Motley):
        def __init__(self, device: str) -> None:
            super().__init__({"steps": 40, "device": ""})
            self.given = {"steps": 40, "device": "any"}
            self.on = device

        def build(self) -> Any:
            self.given = {**self.given, "device": self.on}
            try:
                return super().build()
            finally:
                self.given = {**self.given, "device": "any"}

    job = Movable(there)
    job.begin()
    for _ in range(3):
        job.step()
    job.save(tmp_path / "state")
    capsys.readouterr()
    moved = Movable(here)
    moved.load(tmp_path / "state")
    assert "step 3 was computed on" in capsys.readouterr().out
    moved.verify()
    moved.step()
    moved.verify()
    for name, value in moved.model.state_dict().items():
        assert value.device.type == here, name


def test_a_file_that_does_not_say_what_computed_it_is_refused(tmp_path: Path) -> None:
    begun("cpu").save(tmp_path / "state")
    tensors: dict[str, Any] = dict(load_file(tmp_path / "state"))
    tree = json.loads(bytes(tensors[TREE].numpy()))
    del tree["computed_on"]
    tensors[TREE] = tree_tensor(tree)
    write_parts(tmp_path / "older", staged(file_pieces(tensors)))
    with pytest.raises(StateMismatch, match="computed_on"):
        begun("cpu").load(tmp_path / "older")
