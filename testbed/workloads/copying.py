"""A snapshot of a job that goes on: its state is copied in memory, and a thread writes the copy.

The job stands still for the copy alone. Memory for it is taken, page by page, by the thread before the job is stopped,
and given back when the file is written: beside its state a job holds at most one copy, and only while a snapshot is
under way.

Why not fork(2), whose child would write the state while the kernel copies the pages that the parent changes? It stops
the job for half as long, since it copies page tables. It stops it again for every page that is changed before the child
has ended. Each such fault takes several times as long as copying the page.

`reclaimnet measure snapshots` has all three ways side by side. Of 100 MB a job that rewrites a tenth in each step loses
8 ms either way. One that rewrites all of it (as training does) loses 56 ms by a fork and 10 by the copy; standing still
for the write takes 22. A fork also carries over no threads, no locks that they held and no GPU. It needs a bound for
the pages that will be copied, and leaves a second process to be ended. The copy asks for none of that: its bound is the
size of the state, and it ends with the process.
"""

from __future__ import annotations

import _thread
import ctypes
import mmap
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from testbed.workloads.base import StateCopy, Workload, write_parts
from testbed.workloads.memory import available_bytes
from testbed.workloads.messages import Snapshot, SnapshotFailed, SnapshotTaken

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

# what has to be available, times the size of a copy: the copy, and the file's pages until they are on disk
ROOM: Final = 2.0
NO_PARTS: Final = "the workload has no parts()"
_MADV_DONTNEED: Final = 4
_MADV_POPULATE_WRITE: Final = 23
_LIBC: Final = ctypes.CDLL(None, use_errno=True)


class CopyBuffer:
    """Memory of so many bytes, all of it taken at once. Raises OSError (no such memory)."""

    def __init__(self, size_bytes: int) -> None:
        self.memory = mmap.mmap(-1, max(1, size_bytes), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        # fewer page faults, and given back 20 times as fast; a kernel without huge pages answers EINVAL
        self._advise(mmap.MADV_HUGEPAGE)
        # before Linux 5.14 the copy itself takes the pages, and the job stands still longer
        self._advise(_MADV_POPULATE_WRITE)

    def fill(self, parts: Sequence[memoryview]) -> memoryview:
        """Copy the parts into the memory, one behind the other, as they are now; return what they fill."""
        at = 0
        for part in parts:
            self.memory[at : at + len(part)] = part
            at += len(part)
        return memoryview(self.memory)[:at]

    def close(self) -> None:
        """Give the memory back. Nothing may look at it any more."""
        # munmap(2) alone would hold the interpreter for as long as it takes
        self._advise(_MADV_DONTNEED)
        self.memory.close()

    def _advise(self, advice: int) -> None:
        """Call madvise(2) for each part, while the interpreter is free."""
        start = ctypes.c_char.from_buffer(self.memory)
        _LIBC.madvise(ctypes.c_void_p(ctypes.addressof(start)), ctypes.c_size_t(len(self.memory)), advice)


class PartsCopy(StateCopy):
    """A copy of what `Workload.parts` gives, of that size at most."""

    def __init__(self, parts: Callable[[], Sequence[ReadableBuffer] | None], size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self._parts = parts
        self._buffer: CopyBuffer | None = None
        self._taken = memoryview(b"")

    def reserve(self) -> None:
        """Take memory for so many bytes."""
        self._buffer = CopyBuffer(self.size_bytes)

    def take(self) -> str:
        """Copy them, if there is room."""
        parts = self._parts()
        if parts is None:
            return NO_PARTS
        views = [memoryview(part).cast("B") for part in parts]
        size_bytes = sum(map(len, views))
        if size_bytes > self.size_bytes:
            return f"the state has grown to {size_bytes} bytes, there is room for {self.size_bytes}"
        assert self._buffer is not None
        self._taken = self._buffer.fill(views)
        return ""

    def complete(self) -> list[memoryview]:
        """Return the copy."""
        return [self._taken]

    def release(self) -> None:
        """Give the memory back."""
        self._taken.release()
        if self._buffer is not None:
            self._buffer.close()


def copy_of(workload: Workload) -> StateCopy | None:
    """Return the copier of the workload's state for snapshots; None: it cannot be copied."""
    if (own := workload.state_copy()) is not None:
        return own
    parts = workload.parts()
    return None if parts is None else PartsCopy(workload.parts, sum(memoryview(each).nbytes for each in parts))


def why_not(copy: StateCopy | None) -> str:
    """Return the reason why this copy (None: the workload has no parts) cannot be made in memory now; "" if it can."""
    if copy is None:
        return NO_PARTS
    left_bytes, needed_bytes = available_bytes(), ROOM * copy.size_bytes
    if left_bytes < needed_bytes:
        return f"{left_bytes / 1e6:.0f} MB of memory are available, a copy needs {needed_bytes / 1e6:.0f}"
    return ""


class CopiedSnapshot:
    """A snapshot under way. Its thread takes memory, calls `wake`, waits for `copy`, writes and reports."""

    def __init__(
        self,
        order: Snapshot,
        state: StateCopy,
        wake: Callable[[], None],
        tell: Callable[[SnapshotTaken | SnapshotFailed], None],
    ) -> None:
        self.order = order
        self.obstacle = ""  # why it cannot be copied, once that is known
        self.stood_s = 0.0  # for which the job has stood still so far
        self._state, self._wake, self._tell = state, wake, tell
        self._step: int | None = None  # of which the state was taken
        self._ready, self._decided, self._over = threading.Event(), threading.Event(), threading.Event()
        # Thread.start() waits until the thread runs: on a busy machine that would be most of a small state's pause
        _thread.start_new_thread(self._run, ())

    @property
    def ready(self) -> bool:
        """True while the thread waits for `copy`: memory is taken, or known to be short."""
        return self._ready.is_set() and not self._decided.is_set()

    @property
    def under_way(self) -> bool:
        """True while the thread runs."""
        return not self._over.is_set()

    def copy(self, step: int) -> bool:
        """Take the state, which is that of `step`; False: it cannot, `obstacle` has the reason, and this snapshot is over."""
        began_s = time.monotonic()
        if not self.obstacle:
            self.obstacle = self._state.take()
        self._step = None if self.obstacle else step
        self.stood_s += time.monotonic() - began_s
        self._decided.set()
        return self._step is not None

    def wait_until_ready(self) -> None:
        """Wait until the memory is taken, or known not to be there."""
        self._ready.wait()

    def join(self) -> None:
        """Wait until it is over, after `copy`."""
        self._over.wait()

    def _run(self) -> None:
        try:
            self._take()
        finally:
            self._over.set()

    def _take(self) -> None:
        try:
            self._state.reserve()
        except OSError as error:
            self.obstacle = f"no memory for a copy: {error}"
        self._ready.set()
        self._wake()
        self._decided.wait()
        if self._step is not None:
            self._write(self._step)
        self._state.release()

    def _write(self, step: int) -> None:
        path, began_s = Path(self.order.path), time.monotonic()
        try:
            write_parts(path, self._state.complete())
        except OSError as error:
            path.unlink(missing_ok=True)
            self._tell(SnapshotFailed(self.order.number, str(error)))
        else:
            write_s = time.monotonic() - began_s
            taken = SnapshotTaken(self.order.number, step, self.stood_s, write_s, self._state.delayed)
            self._tell(taken)
