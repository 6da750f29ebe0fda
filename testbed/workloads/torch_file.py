"""Layout of a training job's checkpoint as a file: states as tensors and a tree of JSON, tensors as safetensors.

The header is written here and not by the library, which has no way to lay out a file over memory that exists; it reads
the file. The layout depends on shapes alone. So a tensor lies at the same place in every checkpoint of a job, and on
whichever device it was: what differs between two of them is what training changed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import torch

from testbed.errors import TestbedError

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
TREE: Final = "reclaimnet.tree"
# its length grows with digits of counters: in steps of this, so that tensors seldom change their place
_TREE_BYTES: Final = 4096
_ALIGNED_BYTES: Final = 8
_PLAIN: Final = frozenset({type(None), bool, int, float, str})


class CannotBeSaved(TestbedError):
    """A part of a state_dict that is neither a tensor of a usual kind nor plain data."""


def flattened(value: Any, name: str, tensors: dict[str, Any]) -> Any:
    """Return `value` as JSON, its tensors appended to `tensors` and named in their place. Raises CannotBeSaved."""
    match value:
        case _ if type(value) in _PLAIN:  # what most are, and a job stands still for this
            return value
        case torch.Tensor():
            plain = value.layout is torch.strided and not value.is_quantized and value.dtype in _DTYPES
            if not plain:
                raise CannotBeSaved(f"{name}: a tensor of {value.dtype}, {value.layout}")
            key = name.removesuffix(".")
            tensors[key] = value
            return {"tensor": key}
        case bool() | int() | float() | str():
            return value
        case Mapping():
            wrong = next((key for key in value if not isinstance(key, str | int)), None)
            if wrong is not None:
                raise CannotBeSaved(f"{name}: a key {wrong!r}: only texts and whole numbers can be saved")
            return {"dict": [[key, flattened(v, f"{name}{key}.", tensors)] for key, v in value.items()]}
        case list() | tuple():
            inner = [flattened(v, f"{name}{n}.", tensors) for n, v in enumerate(value)]
            return {"list" if isinstance(value, list) else "tuple": inner}
        case np.ndarray():
            return {"array": flattened(torch.from_numpy(value), name, tensors), "dtype": str(value.dtype)}
    raise CannotBeSaved(f"{name}: {type(value).__name__}: only tensors, numbers, texts and their collections")


def unflattened(value: Any, tensors: Mapping[str, Any]) -> Any:
    """Rebuild the argument of `flattened`. A tensor is a copy, with torch's own memory layout."""
    match value:
        case {"tensor": name}:
            return tensors[name].clone()
        case {"dict": items}:
            return {key: unflattened(v, tensors) for key, v in items}
        case {"list": items}:
            return [unflattened(v, tensors) for v in items]
        case {"tuple": items}:
            return tuple(unflattened(v, tensors) for v in items)
        case {"array": array, "dtype": dtype}:
            return unflattened(array, tensors).numpy().view(dtype)
    return value


def tree_tensor(tree: Any) -> Any:
    """Return the rest that `flattened` left, as the tensor TREE holds it."""
    text = json.dumps(tree, separators=(",", ":")).encode()
    return torch.frombuffer(bytearray(text.ljust(-(-len(text) // _TREE_BYTES) * _TREE_BYTES)), dtype=torch.uint8)


def in_order(tensors: Mapping[str, Any]) -> list[str]:
    """Return the names as they follow in the file: the largest elements first, so that everything is aligned."""
    return sorted(tensors, key=lambda name: (-tensors[name].dtype.itemsize, name))


def header(tensors: Mapping[str, Any]) -> Any:
    """Return the beginning of the file, before the tensors `in_order`, as a tensor of bytes.

    Of a tensor it looks at dtype and shape.
    """
    told: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name in in_order(tensors):
        shape, dtype = tensors[name].shape, tensors[name].dtype
        end = at + shape.numel() * dtype.itemsize
        told[name] = {"dtype": _DTYPES[dtype], "shape": list(shape), "data_offsets": [at, end]}
        at = end
    head = json.dumps(told, separators=(",", ":")).encode()
    head = head.ljust(-(-len(head) // _ALIGNED_BYTES) * _ALIGNED_BYTES)
    return torch.frombuffer(bytearray(len(head).to_bytes(8, "little") + head), dtype=torch.uint8)


def file_pieces(tensors: Mapping[str, Any]) -> list[Any]:
    """Return the whole file, as tensors of bytes where they lie."""
    laid = [tensors[name].detach().contiguous() for name in in_order(tensors)]
    return [header(tensors), *(tensor.reshape(-1).view(torch.uint8) for tensor in laid)]
