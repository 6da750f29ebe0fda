"""Training with PyTorch as a workload. Bring a model, an optimiser and a loss; checkpoints, proof and determinism are here.

    class Mine(TorchTraining):
        def build(self):
            model = ...
            return model, torch.optim.AdamW(model.parameters())

        def loss(self, step):
            inputs, targets = batch_of(step)      # a function of the step, and of nothing that is not saved
            return cross_entropy(self.model(inputs), targets)

**What a checkpoint is**: the state_dict of everything that `build` returned, the random number generators (torch's,
Python's, NumPy's) and the step. All is in one safetensors file, the model's tensors under "model.", so that other tools
read it. What of it is no tensor (learning rates, counters) is a tree of JSON in a tensor of bytes. Nothing is pickled:
a file from another host is data.

**Snapshots** need no fork: `testbed.workloads.torch_copy` copies the tensors between two steps, in memory or within a
GPU, and a thread writes the copy while training goes on. fork(2) would be wrong here: the child has none of torch's
threads but every lock that they held, and no GPU.

**Proof**: that the file is the one that was saved is the checkpoint store's, by its chunks' hashes. `verify` proves the
rest of the way, from the file through every load_state_dict into memory: the state, saved again, has the hash of the
file loaded.

**Determinism**: one thread, deterministic algorithms (cuBLAS's workspaces with them), generators seeded by `seed`,
those of the GPUs on which the state lies too. A job that is killed anywhere and goes on from any of its checkpoints
computes what it would have computed. It does so to the last bit, on processors of one kind, or on GPUs of one kind. A
checkpoint names what computed it. A job that goes on with another torch or on another device (a GPU from a processor's
state) prints that its bits may differ.
"""

from __future__ import annotations

import json
import os
import random
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from blake3 import blake3

from testbed.workloads.base import StateMismatch, Workload, number, write_parts

try:
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load as read_safetensors

    from testbed.workloads.torch_copy import TensorLayout, TensorsCopy, layouts_of, staged
    from testbed.workloads.torch_file import TREE, CannotBeSaved, file_pieces, flattened, tree_tensor, unflattened
except ImportError as error:
    raise ImportError(f"{error}: install the extra 'torch' of reclaimnet-testbed") from error

__all__ = ["CannotBeSaved", "TorchTraining"]

# what reading a file that is no state of this model may raise, here and in torch
MALFORMED: Final = (SafetensorError, AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError)
# cuBLAS sums in an order of its own unless its workspaces are fixed, and torch then refuses to be deterministic
CUBLAS: Final = "CUBLAS_WORKSPACE_CONFIG"
CUBLAS_WORKSPACES: Final = ":4096:8"


@dataclass(frozen=True)
class _Loaded:
    """Facts about the file loaded last, until the step after it."""

    step: int
    digest: bytes
    computed_on: list[str]
    cuda: list[Any]  # the states of GPUs' generators


class TorchTraining(Workload):
    """Parameters: `steps` (of the job) and `seed` (0); all others are the subclass's own, in `self.given`."""

    model: Any
    optimizer: Any

    def __init__(self, params: Mapping[str, object]) -> None:
        super().__init__(params)
        self._steps = int(number(params, "steps", None, 1, 1 << 40, whole=True))
        self.seed = int(number(params, "seed", 0, 0, (1 << 32) - 1, whole=True))
        self._built: dict[str, Any] = {}
        self._loaded: _Loaded | None = None
        self._layouts: dict[str, TensorLayout] = {}  # of the state's tensors, as snapshots found them last

    @abstractmethod
    def build(self) -> Sequence[Any]:
        """Return the model, the optimiser, and all else with `state_dict` and `load_state_dict`: a scheduler, an average."""

    @abstractmethod
    def loss(self, step: int) -> Any:
        """Return the loss of a step (the first: 0), a tensor of one number. Its data follow from `step` alone."""

    @property
    def steps_total(self) -> int:
        """Number of steps, from the parameters."""
        return self._steps

    def begin(self) -> None:
        """Make the model as `build` makes it from the seed."""
        os.environ.setdefault(CUBLAS, CUBLAS_WORKSPACES)
        torch.set_num_threads(1)
        torch.use_deterministic_algorithms(True)
        torch.manual_seed(self.seed)
        random.seed(self.seed)
        np.random.seed(self.seed)
        self.model, self.optimizer, *others = self.build()
        self._built = {"model": self.model, "optimizer": self.optimizer}
        self._built |= {f"other{n}": other for n, other in enumerate(others)}
        self.step_number = 0

    def step(self) -> None:
        """Do an optimiser step and report its loss. An override calls `super().step()`, then for example a scheduler's."""
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.loss(self.step_number)
        loss.backward()
        self.optimizer.step()
        self.step_number += 1
        self.measured(loss=loss.item())

    def save(self, path: Path) -> None:
        """Write a safetensors file."""
        write_parts(path, self._file())

    def state_copy(self) -> TensorsCopy:
        """Return a copy of the state, made where it lies."""
        if not self._layouts:
            self._layouts.update(layouts_of(self.gathered()[0]))
        return TensorsCopy(self.gathered, self._layouts)

    def load(self, path: Path) -> None:
        """Rebuild everything and load the state of the file."""
        content = path.read_bytes()
        try:
            tensors = read_safetensors(content)
            told = json.loads(bytes(tensors[TREE].numpy()))
            params, step, generators = told["params"], told["step"], told["generators"]
            if params != self.given or not isinstance(step, int) or not 0 <= step <= self._steps:
                raise StateMismatch(f"{path}: the state of another job: step {step} of {params}")
            computed_on = [str(each) for each in told["computed_on"]]
            state = unflattened(told["state"], tensors)
            self.begin()
            for name, each in self._built.items():
                each.load_state_dict(state[name])
            cuda = self._set_generators(unflattened(generators, tensors))
        except torch.OutOfMemoryError:
            raise
        except MALFORMED as error:
            raise StateMismatch(f"{path}: no state of this model: {error}") from error
        self.step_number = step
        self._loaded = _Loaded(step, blake3(content).digest(), computed_on, cuda)
        here = _processors(self._gpus())
        if here != computed_on:
            there = ", ".join(computed_on)
            print(
                f"step {step} was computed on {there}; this is {', '.join(here)}: bits may differ from here on",
                flush=True,
            )

    def verify(self) -> bytes:
        """Return the BLAKE3 of the state as it would be saved now. Right after `load` it has to be that of the file."""
        hasher = blake3()
        for part in self._file():
            hasher.update(part)
        digest = hasher.digest()
        loaded = self._as_loaded
        if loaded is not None and loaded.digest != digest:
            raise StateMismatch(f"the state of step {self.step_number} does not come out of memory as it was saved")
        return digest

    @property
    def _as_loaded(self) -> _Loaded | None:
        """The file that this state comes from, if no step was computed since."""
        return self._loaded if self._loaded is not None and self._loaded.step == self.step_number else None

    def _file(self) -> Iterator[memoryview]:
        """Return the contents that `save` writes."""
        tensors, tree = self.gathered()
        tensors[TREE] = tree_tensor(tree)
        pieces = file_pieces(tensors)
        for gpu in _gpus_of(tensors):
            torch.cuda.synchronize(gpu)
        return staged(pieces)

    def gathered(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the state's tensors by name, each where it lies, and as a tree what is no tensor."""
        tensors: dict[str, Any] = {}
        state = flattened({name: each.state_dict() for name, each in self._built.items()}, "", tensors)
        gpus = _gpus_of(tensors)
        name, keys, *rest = np.random.get_state(legacy=True)
        cuda = [torch.cuda.get_rng_state(gpu) for gpu in gpus]
        computed_on = _processors(gpus)
        if (loaded := self._as_loaded) is not None:  # other GPUs than there, or none: as it was there
            cuda = [*cuda, *loaded.cuda[len(cuda) :]][: len(loaded.cuda)]
            computed_on = loaded.computed_on
        generators = {
            "torch": torch.get_rng_state(),
            "python": random.getstate(),
            # NumPy's words are unsigned, which torch has no arithmetic for: the same bits
            "numpy": (name, np.asarray(keys, np.uint32).view(np.int32), *rest),
            "cuda": cuda,
        }
        tree = {
            "params": self.given,
            "step": self.step_number,
            "computed_on": computed_on,
            "state": state,
            "generators": flattened(generators, "generators.", tensors),
        }
        return tensors, tree

    def _set_generators(self, state: Mapping[str, Any]) -> list[Any]:
        """Restore generators of GPUs, the state's first to the first here; return them."""
        torch.set_rng_state(state["torch"])
        random.setstate(state["python"])
        name, keys, *rest = state["numpy"]
        np.random.set_state((name, keys.view(np.uint32), *rest))
        cuda = list(state["cuda"])
        for gpu, each in zip(self._gpus(), cuda, strict=False):
            torch.cuda.set_rng_state(each, gpu)
        return cuda

    def _gpus(self) -> list[int]:
        """Return the numbers of the GPUs that hold the state."""
        tensors: dict[str, Any] = {}
        flattened({name: each.state_dict() for name, each in self._built.items()}, "", tensors)
        return _gpus_of(tensors)


def _gpus_of(tensors: Mapping[str, Any]) -> list[int]:
    return sorted({each.device.index for each in tensors.values() if each.is_cuda})


def _processors(gpus: Sequence[int]) -> list[str]:
    """Return the properties of torch and its devices on which a state's bits depend."""
    names = [torch.cuda.get_device_name(gpu) for gpu in gpus]
    return [f"torch {torch.__version__}", *(names or [f"processor with {torch.backends.cpu.get_cpu_capability()}"])]
