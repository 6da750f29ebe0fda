"""Snapshots of a training job that goes on, its tensors in memory or on GPUs.

Between two steps a state is copied where it lies: a GPU copies within its own memory twenty-five times as fast as its
link carries anything to the host. The job goes on, and the snapshot's thread brings the copy over, piece by piece and
on a stream of its own, and writes it. The copy's memory is torch's, set aside for that stream: it stays there for the
next snapshot, and torch takes it back before a step runs out of memory. Where a GPU has too little of it, the state is
fetched while the job stands still.

What is fetched passes through a little memory that stays pinned. Pageable memory takes a quarter of a link's rate, and
while it is copied to, no other thread launches anything: a step beside it came later by all of that time. To pin memory
for a whole state, and to free it, stops launches too, three times as long as the fetch then takes. Little is gained by
it where a GPU has no room.

CheckFreq, FAST '21, copies on the GPU where it has room, too. Elsewhere it lets the fetch overlap with the next step,
up to its update of the weights. That asks of a job that nothing but its optimiser changes its state, which a subclass
of `TorchTraining` need not heed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from errno import ENOMEM
from functools import cache
from typing import Any, Final, NamedTuple

import torch

from testbed.workloads.base import StateCopy
from testbed.workloads.copying import CopyBuffer
from testbed.workloads.torch_file import TREE, header, in_order, tree_tensor

RESHAPED: Final = "the state has another shape than it had"
# of a GPU's memory, what stays free beside a copy: later steps may take more than earlier ones
LEFT_SHARE: Final = 1 / 16
# pinned memory through which states are fetched: a third of a millisecond of a fast link, enough for its rate
STAGE_BYTES: Final = 16 << 20


class TensorLayout(NamedTuple):
    """Properties of a tensor that decide its place in a copy and in a file."""

    dtype: Any
    shape: Any
    device: Any

    @property
    def size_bytes(self) -> int:
        """Size of its elements."""
        return int(self.shape.numel() * self.dtype.itemsize)


def layouts_of(tensors: Mapping[str, Any]) -> dict[str, TensorLayout]:
    """Return the layout of each tensor."""
    return {name: TensorLayout(each.dtype, each.shape, each.device) for name, each in tensors.items()}


class TensorsCopy(StateCopy):
    """A copy of what `gathered` gives: tensors by name, and the tree that is no tensor (`torch_file.flattened`).

    They should be of `layouts`, which are emptied where they are not.
    """

    def __init__(self, gathered: Callable[[], tuple[dict[str, Any], Any]], layouts: dict[str, TensorLayout]) -> None:
        self._gathered, self._layouts_then = gathered, layouts
        self._layouts = dict(layouts)
        self.size_bytes = sum(
            layout.size_bytes for layout in layouts.values()
        )  # until it is known what GPUs take of it
        self._tree: Any = None
        self._buffer: CopyBuffer | None = None
        # where each is copied to: a tensor of bytes, in memory (several devices' may be) or on a GPU; and the place in it
        self._rooms: dict[str, tuple[Any, int]] = {}
        # names and places by device and type: GPUs copy many tensors of one type at once
        self._targets: dict[tuple[Any, Any], tuple[list[str], list[Any]]] = {}

    def reserve(self) -> None:
        """Take memory of GPUs as far as they have it, and of the host."""
        by_device: dict[Any, list[str]] = {}
        for name in in_order(self._layouts):
            by_device.setdefault(self._layouts[name].device, []).append(name)
        on_gpus: set[str] = set()
        for device, names in by_device.items():
            if device.type == "cuda":
                room = self._room_on(device, sum(self._layouts[name].size_bytes for name in names))
                if room is not None:
                    self._lay_out(names, room)
                    on_gpus.update(names)
        in_memory = {name: layout for name, layout in self._layouts.items() if name not in on_gpus}
        self.size_bytes = sum(layout.size_bytes for layout in in_memory.values())
        self._buffer = CopyBuffer(self.size_bytes)
        self._lay_out(in_order(in_memory), torch.frombuffer(self._buffer.memory, dtype=torch.uint8))

    def take(self) -> str:
        """Copy each tensor to its place."""
        tensors, self._tree = self._gathered()
        if {name: (each.dtype, each.shape, each.device) for name, each in tensors.items()} != self._layouts:
            self._layouts_then.clear()
            return RESHAPED
        gpus = {layout.device for layout in self._layouts.values() if layout.device.type == "cuda"}
        for gpu in gpus:  # whichever streams the step used
            torch.cuda.synchronize(gpu)
        with torch.no_grad():
            for (device, _), (names, targets) in self._targets.items():
                sources = [tensors[name] for name in names]
                if device == targets[0].device:
                    torch._foreach_copy_(targets, sources)
                else:
                    for target, source in zip(targets, sources, strict=True):
                        target.copy_(source)
        for gpu in gpus:
            torch.cuda.synchronize(gpu)
        return ""

    def complete(self) -> Iterator[memoryview]:
        """Yield the file's header, then the tensors."""
        tree = tree_tensor(self._tree)
        layouts = self._layouts | layouts_of({TREE: tree})
        pieces: list[tuple[Any, int, int]] = [(head := header(layouts), 0, len(head))]
        for name in in_order(layouts):
            room, begin = (tree, 0) if name == TREE else self._rooms[name]
            end = begin + layouts[name].size_bytes
            if pieces[-1][0] is room and pieces[-1][2] == begin:
                begin = pieces.pop()[1]
            pieces.append((room, begin, end))
        yield from staged([room[begin:end] for room, begin, end in pieces])

    def release(self) -> None:
        """Give it all back."""
        self._targets.clear()
        self._rooms.clear()
        if self._buffer is not None:
            self._buffer.close()

    def _lay_out(self, names: Iterable[str], room: Any) -> None:
        at = 0
        for name in names:
            layout = self._layouts[name]
            end = at + layout.size_bytes
            listed, targets = self._targets.setdefault((layout.device, layout.dtype), ([], []))
            listed.append(name)
            targets.append(room[at:end].view(layout.dtype).view(layout.shape))
            self._rooms[name], at = (room, at), end

    def _room_on(self, gpu: Any, size_bytes: int) -> Any:
        """Return memory of a GPU, as a tensor of bytes; None: it has too little, and `delayed` has the reason."""
        stream = _side_stream(gpu)
        kept_bytes = sum(
            segment["total_size"] - segment["allocated_size"]
            for segment in torch.cuda.memory_snapshot()
            if (segment["device"], segment["stream"]) == (gpu.index, stream.cuda_stream)
        )
        free_bytes, total_bytes = torch.cuda.mem_get_info(gpu)
        needed_bytes = size_bytes + LEFT_SHARE * total_bytes
        if kept_bytes >= size_bytes or free_bytes >= needed_bytes:
            try:
                with torch.cuda.stream(stream):
                    return torch.empty(size_bytes, dtype=torch.uint8, device=gpu)
            except torch.OutOfMemoryError:
                free_bytes = torch.cuda.mem_get_info(gpu)[0]
        self.delayed = (
            f"{free_bytes / 1e6:.0f} MB are free on {torch.cuda.get_device_name(gpu)}, a copy there needs "
            f"{needed_bytes / 1e6:.0f}: the state was fetched while the job stood still"
        )
        return None


def staged(pieces: Iterable[Any]) -> Iterator[memoryview]:
    """Yield tensors of bytes one behind the other, in memory: the pieces themselves, if none is on a GPU.

    Else each of what it gives holds until the next is asked for. Raises OSError: no memory can be pinned.
    """
    pieces = [piece for piece in pieces if len(piece)]
    streams = [_side_stream(gpu) for gpu in {piece.device for piece in pieces if piece.is_cuda}]
    if not streams:
        yield from (memoryview(piece.numpy()) for piece in pieces)
        return
    try:  # torch keeps what it has pinned for the next time
        stage = torch.empty(STAGE_BYTES, dtype=torch.uint8, pin_memory=True)
    except RuntimeError as error:
        raise OSError(ENOMEM, f"pinned memory: {error}") from error
    used = 0
    view = memoryview(stage.numpy())
    with ExitStack() as entered:
        for stream in streams:
            entered.enter_context(torch.cuda.stream(stream))
        for piece in pieces:
            at = 0
            while at < len(piece):
                count = min(len(piece) - at, len(stage) - used)
                stage[used : used + count].copy_(piece[at : at + count], non_blocking=True)
                at, used = at + count, used + count
                if used == len(stage):
                    _wait_for(streams)
                    yield view
                    used = 0
        _wait_for(streams)
        yield view[:used]


def _wait_for(streams: Iterable[Any]) -> None:
    for stream in streams:
        stream.synchronize()


@cache
def _side_stream(gpu: Any) -> Any:
    """Return the stream on which what lies on a GPU is fetched: one for all, since torch keeps memory by stream."""
    return torch.cuda.Stream(gpu)
