"""Training with PyTorch as a workload. Bring a model, an optimiser and a loss; checkpoints, proof and determinism are here.

    class Mine(TorchTraining):
        def build(self):
            model = ...
            return model, torch.optim.AdamW(model.parameters())

        def loss(self, step):
            inputs, targets = batch_of(step)      # a function of the step, and of nothing that is not saved
            return cross_entropy(self.model(inputs), targets)

**What a checkpoint is**: the state_dict of everything that `build` returned, the random number generators (torch's, Python's,
NumPy's) and the step, in one safetensors file, the model's tensors under "model.", so that other tools read it. What of it is no
tensor (learning rates, counters) is a tree of JSON in a tensor of bytes. Nothing is pickled: a file from another host is data.

**Snapshots** need no fork. `parts` gives the tensors' own memory behind a header, the runner copies that between two steps
(`testbed.workloads.copying`) and a thread writes the copy while training goes on. fork(2) would be wrong here: the child has none
of torch's threads but every lock that they held. The header is written here and not by the library, which has no way to lay out
a file over memory that exists; it reads the file. The layout depends on shapes alone, so that a tensor lies at the same place in
every checkpoint of a job: what differs between two of them is what training changed.

**Proof**: that the file is the one that was saved is the checkpoint store's, by its chunks' hashes. `verify` proves the rest of
the way, from the file through every load_state_dict into memory: the state, saved again, has the hash of the file loaded.

**Determinism**: one thread, deterministic algorithms, generators seeded by `seed`. A job that is killed anywhere and goes on from
any of its checkpoints computes what it would have computed, to the last bit, on processors of one kind. A GPU's state is fetched
into memory for a snapshot; its generators are not saved, and none of that was tried.
"""

from __future__ import annotations

import json
import random
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from blake3 import blake3

from testbed.errors import TestbedError
from testbed.workloads.base import StateMismatch, Workload, number, write_parts

try:
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load as read_safetensors
except ImportError as error:
    raise ImportError(f"{error}: install the extra 'torch' of reclaimnet-testbed") from error

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_DTYPES: Final = {
    torch.float64: "F64",
    torch.int64: "I64",
    torch.complex64: "C64",
    torch.float32: "F32",
    torch.int32: "I32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
# the tensor of bytes that holds what is no tensor
_TREE: Final = "reclaimnet.tree"
# its length grows with digits of counters: in steps of this, so that tensors seldom change their place
_TREE_BYTES: Final = 4096
_ALIGNED_BYTES: Final = 8
# what reading a file that is no state of this model may raise, here and in torch
MALFORMED: Final = (
    SafetensorError,
    AttributeError,
    IndexError,
    KeyError,
    RuntimeError,
    TypeError,
    ValueError,
)


class CannotBeSaved(TestbedError):
    """A state_dict holds something that is neither a tensor of a usual kind nor plain data."""


class TorchTraining(Workload):
    """Parameters: `steps` (of the job) and `seed` (0); all others are the subclass's own, in `self.given`."""

    model: Any
    optimizer: Any

    def __init__(self, params: Mapping[str, object]) -> None:
        super().__init__(params)
        self._steps = int(number(params, "steps", None, 1, 1 << 40, whole=True))
        self.seed = int(number(params, "seed", 0, 0, (1 << 32) - 1, whole=True))
        self._built: dict[str, Any] = {}
        self._loaded: tuple[int, bytes] | None = None

    @abstractmethod
    def build(self) -> Sequence[Any]:
        """The model, the optimiser, and all else that has a `state_dict` and `load_state_dict`: a scheduler, an average."""

    @abstractmethod
    def loss(self, step: int) -> Any:
        """The loss of a step (the first: 0), a tensor of one number. Its data follow from `step` alone."""

    @property
    def steps_total(self) -> int:
        """The steps that the parameters say."""
        return self._steps

    def begin(self) -> None:
        """The model as `build` makes it from the seed."""
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
        """One step of the optimiser; its loss is told. Override it for more: `super().step()`, then a scheduler's, say."""
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.loss(self.step_number)
        loss.backward()
        self.optimizer.step()
        self.step_number += 1
        self.measured(loss=loss.item())

    def save(self, path: Path) -> None:
        """A safetensors file."""
        write_parts(path, self.parts())

    def parts(self) -> list[ReadableBuffer]:
        """The file's header, then every tensor where it lies in memory."""
        tensors: dict[str, Any] = {}
        tree = _flattened({name: each.state_dict() for name, each in self._built.items()}, "", tensors)
        generators = _flattened(_generators(), "generators.", tensors)
        told = {"params": self.given, "step": self.step_number, "state": tree, "generators": generators}
        text = json.dumps(told, separators=(",", ":")).encode()
        text = text.ljust(-(-len(text) // _TREE_BYTES) * _TREE_BYTES)
        tensors[_TREE] = torch.frombuffer(bytearray(text), dtype=torch.uint8)
        header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
        memory: list[ReadableBuffer] = []
        at = 0
        # the largest elements first: everything is aligned
        for name, tensor in sorted(tensors.items(), key=lambda named: (-named[1].element_size(), named[0])):
            end = at + tensor.numel() * tensor.element_size()
            shape = list(tensor.shape)
            header[name] = {"dtype": _DTYPES[tensor.dtype], "shape": shape, "data_offsets": [at, end]}
            if end > at:
                memory.append(memoryview(tensor.reshape(-1).view(torch.uint8).numpy()))
            at = end
        head = json.dumps(header, separators=(",", ":")).encode()
        head = head.ljust(-(-len(head) // _ALIGNED_BYTES) * _ALIGNED_BYTES)
        return [len(head).to_bytes(8, "little") + head, *memory]

    def load(self, path: Path) -> None:
        """Builds everything anew and gives it the state of the file."""
        content = path.read_bytes()
        try:
            tensors = read_safetensors(content)
            told = json.loads(bytes(tensors[_TREE].numpy()))
            params, step, generators = told["params"], told["step"], told["generators"]
            if params != self.given or not isinstance(step, int) or not 0 <= step <= self._steps:
                raise StateMismatch(f"{path}: the state of another job: step {step} of {params}")
            state = _unflattened(told["state"], tensors)
            self.begin()
            for name, each in self._built.items():
                each.load_state_dict(state[name])
            _set_generators(_unflattened(generators, tensors))
        except MALFORMED as error:
            raise StateMismatch(f"{path}: no state of this model: {error}") from error
        self.step_number = step
        self._loaded = step, blake3(content).digest()

    def verify(self) -> bytes:
        """BLAKE3 of the state as it would be saved now. Right after `load` it has to be that of the file."""
        hasher = blake3()
        for part in self.parts():
            hasher.update(part)
        digest = hasher.digest()
        if self._loaded is not None and self._loaded[0] == self.step_number and self._loaded[1] != digest:
            raise StateMismatch(
                f"the state of step {self.step_number} does not come out of memory as it was saved"
            )
        return digest


def _flattened(value: Any, name: str, tensors: dict[str, Any]) -> Any:
    """`value` as JSON, each tensor of it put among `tensors` and named in its place. Raises CannotBeSaved."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case torch.Tensor():
            plain = value.layout is torch.strided and not value.is_quantized and value.dtype in _DTYPES
            if not plain:
                raise CannotBeSaved(f"{name}: a tensor of {value.dtype}, {value.layout}")
            key = name.removesuffix(".")
            tensors[key] = value.detach().cpu().contiguous()
            return {"tensor": key}
        case Mapping():
            wrong = next((key for key in value if not isinstance(key, str | int)), None)
            if wrong is not None:
                raise CannotBeSaved(f"{name}: a key {wrong!r}: only texts and whole numbers can be saved")
            return {"dict": [[key, _flattened(v, f"{name}{key}.", tensors)] for key, v in value.items()]}
        case list() | tuple():
            inner = [_flattened(v, f"{name}{n}.", tensors) for n, v in enumerate(value)]
            return {"list" if isinstance(value, list) else "tuple": inner}
        case np.ndarray():
            return {"array": _flattened(torch.from_numpy(value), name, tensors), "dtype": str(value.dtype)}
    raise CannotBeSaved(f"{name}: {type(value).__name__}: only tensors, numbers, texts and their collections")


def _unflattened(value: Any, tensors: Mapping[str, Any]) -> Any:
    """What `_flattened` was given. A tensor is a copy: memory that torch has laid out as it does its own."""
    match value:
        case {"tensor": name}:
            return tensors[name].clone()
        case {"dict": items}:
            return {key: _unflattened(v, tensors) for key, v in items}
        case {"list": items}:
            return [_unflattened(v, tensors) for v in items]
        case {"tuple": items}:
            return tuple(_unflattened(v, tensors) for v in items)
        case {"array": array, "dtype": dtype}:
            return _unflattened(array, tensors).numpy().view(dtype)
    return value


def _generators() -> dict[str, Any]:
    name, keys, *rest = np.random.get_state(legacy=True)
    return {
        "torch": torch.get_rng_state(),
        "python": random.getstate(),
        # NumPy's words are unsigned, which torch has no arithmetic for: the same bits
        "numpy": (name, np.asarray(keys, np.uint32).view(np.int32), *rest),
    }


def _set_generators(state: Mapping[str, Any]) -> None:
    torch.set_rng_state(state["torch"])
    random.setstate(state["python"])
    name, keys, *rest = state["numpy"]
    np.random.set_state((name, keys.view(np.uint32), *rest))
