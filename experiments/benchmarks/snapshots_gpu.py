"""What a snapshot costs a model that is trained on a GPU; a process of its own for `reclaimnet measure snapshots`.

Perceptrons of as many bytes of state are trained by AdamW. Three ways alternate:

    stop    the state is fetched and written while the job stands still
    fetch   it is fetched while the job stands still, a thread writes it: what is done where a GPU has no room for a copy
    copy    what agents do (`testbed.workloads.torch_copy`): it is copied within the GPU, a thread fetches and writes the copy

Of each the figures are those of `snapshots`; *lost* counts how much longer steps took while a copy was fetched over the link that
they use, and a thread of the same interpreter wrote. Beside them stand the machine's plain rates of copying, on which the pauses
rest: medians of `COPIES` copies of 1 GB, of memory that was touched before unless said.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from math import inf, sqrt
from pathlib import Path
from typing import Any, Final

from experiments.benchmarks.snapshots import SnapshotSamples, SteppingJob
from testbed.garbage import survivors_set_aside
from testbed.workloads.base import StateCopy
from testbed.workloads.copying import CopyBuffer

WAYS: Final = ("stop", "fetch", "copy")
# by MB: enough for the quantile where it is cheap. Else fewer: 3.2 GB take seconds each
SNAPSHOTS: Final = {100: 100}
SNAPSHOTS_ELSE: Final = 10
BLOCKS: Final = 24
# AdamW's state of a parameter of 32 bits: itself and two moments
BYTES_A_PARAMETER: Final = 12
# a state needs so much of a GPU: itself, its gradients, a copy, and what steps take besides
ROOM: Final = 2.5
# multiplications of one step, so that it takes some tens of milliseconds whatever the size
STEP_PARAMETERS: Final = 2.7e11
MOST_SAMPLES: Final = 16384
COPIES: Final = 7
COPIED_BYTES: Final = 1_000_000_000


def measured(device: str, sizes_mb: Sequence[int], quick: bool, folder: str) -> dict[str, Any]:
    """The result's part `gpu`: rows, rates; or why there are none."""
    try:
        import torch
    except ImportError as error:
        return {"why_not": f"{error}: the extra 'torch' of reclaimnet-testbed"}
    if device == "cuda" and not torch.cuda.is_available():
        return {"why_not": f"torch {torch.__version__} sees no GPU"}
    rows, left_out = [], []
    with tempfile.TemporaryDirectory(dir=folder, prefix="reclaimnet-snapshots-") as place:
        for size_mb in sizes_mb:
            free_bytes = torch.cuda.mem_get_info()[0] if device == "cuda" else inf
            if free_bytes < ROOM * size_mb * 1e6:
                left_out.append(f"{size_mb} MB: the GPU has {free_bytes / 1e6:.0f} MB free")
                continue
            count = SNAPSHOTS.get(size_mb, SNAPSHOTS_ELSE)
            rows += _rows(device, size_mb, max(3, count // 10) if quick else count, Path(place) / "snapshot")
    on_gpu = device == "cuda"
    return {
        "device": torch.cuda.get_device_name() if on_gpu else device,
        "torch": torch.__version__,
        "rows": rows,
        "left_out": left_out,
        "bytes_per_s": _rates() if on_gpu else {},
    }


def _rows(device: str, size_mb: int, count: int, path: Path) -> list[dict[str, Any]]:
    job = _trained(device, size_mb, path)
    seen = {way: SnapshotSamples() for way in WAYS}
    for round_number in range(count + 1):
        for way in WAYS:
            job.rest()
            into = (
                seen[way] if round_number else SnapshotSamples()
            )  # the first round touches files and memory
            job.on_gpu = way != "fetch"
            (job.stop if way == "stop" else job.copy)(into)
    told = {"size_mb": size_mb, "tensors": len(job.layouts), "step_s": job.step_s}
    return [{**told, "way": way, **figures.figures()} for way, figures in seen.items()]


def _trained(device: str, size_mb: int, path: Path) -> Any:
    import torch
    from torch import nn

    from testbed.workloads.torch_copy import TensorsCopy, layouts_of
    from testbed.workloads.torch_training import TorchTraining

    class Perceptrons(TorchTraining):
        def build(self) -> Any:
            wide = round(sqrt(size_mb * 1e6 / BYTES_A_PARAMETER / BLOCKS / 8))
            blocks = [
                nn.Sequential(
                    nn.LayerNorm(wide), nn.Linear(wide, 4 * wide), nn.GELU(), nn.Linear(4 * wide, wide)
                )
                for _ in range(BLOCKS)
            ]
            model = nn.Sequential(*blocks).to(device)
            samples = min(MOST_SAMPLES, max(1, round(STEP_PARAMETERS / (size_mb * 1e6 / BYTES_A_PARAMETER))))
            if device == "cpu":
                samples = 1
            self.samples = torch.randn(samples, wide, device=device)
            return model, torch.optim.AdamW(model.parameters())

        def loss(self, step: int) -> Any:
            return self.model(self.samples).square().mean()

        def measured(self, **values: float) -> None:
            pass  # standard output has the result alone

    class Job(SteppingJob):
        on_gpu = True

        def __init__(self) -> None:
            super().__init__(path)
            self.training = Perceptrons({"steps": 1 << 40})
            self.training.begin()
            self.training.step()
            self.layouts = layouts_of(self.training.gathered()[0])

        def step(self) -> float:
            began_s = time.perf_counter()
            self.training.step()
            return time.perf_counter() - began_s

        def write(self) -> None:
            self.training.save(self.path)

        def state_copy(self) -> StateCopy:
            if self.on_gpu:
                return self.training.state_copy()
            return TensorsCopy(self.training.gathered, self.layouts, on_gpus=False)

    return Job()


def _rates() -> Mapping[str, float]:
    """Bytes a second that this machine copies, by where from and where to; and that it pins."""
    import torch

    runtime, buffer = torch.cuda.cudart(), CopyBuffer(COPIED_BYTES)
    here = torch.frombuffer(buffer.memory, dtype=torch.uint8)
    there, twin = (torch.ones(COPIED_BYTES, dtype=torch.uint8, device="cuda") for _ in range(2))
    mirror, address = bytearray(COPIED_BYTES), here.data_ptr()

    def rate(copy: Callable[[], object]) -> float:
        taken_s = []
        for _ in range(COPIES):
            torch.cuda.synchronize()
            began_s = time.perf_counter()
            copy()
            torch.cuda.synchronize()
            taken_s.append(time.perf_counter() - began_s)
        return COPIED_BYTES / statistics.median(taken_s)

    def pin() -> None:
        runtime.cudaHostRegister(address, COPIED_BYTES, 0)
        runtime.cudaHostUnregister(address)

    found = {
        "within the GPU": rate(lambda: twin.copy_(there)),
        "GPU to pageable memory": rate(lambda: here.copy_(there)),
        "GPU to memory that is new each time": rate(there.cpu),
        "memory to memory": rate(lambda: buffer.fill([memoryview(mirror)])),
        "pinned and unpinned": rate(pin),
    }
    runtime.cudaHostRegister(address, COPIED_BYTES, 0)
    found["GPU to pinned memory"] = rate(lambda: here.copy_(there, non_blocking=True))
    runtime.cudaHostUnregister(address)
    return found


if __name__ == "__main__":
    with survivors_set_aside():  # as in a job's process
        print(json.dumps(measured(*json.loads(sys.argv[1]))))
