"""A map's file descriptor, and the memory of a map that can be mapped."""

from __future__ import annotations

import mmap
import os

from bpf.library import check, libbpf

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ctypes import Structure
    from pathlib import Path
    from typing import Any, Self


class KernelMap:
    """A BPF map; owns its file descriptor."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    @classmethod
    def open_pinned(cls, path: Path | str) -> Self:
        """Return the map pinned at `path` on a bpffs; BpfError if there is none."""
        return cls(open_pinned_fd(path))

    def pin(self, path: Path | str) -> None:
        """Make the map outlive this process, under `path` on a bpffs."""
        check(libbpf().bpf_obj_pin(self.fd, os.fsencode(path)), f"pin a map at {path}")

    def close(self) -> None:
        """Close the file descriptor (once); the kernel's map lives on while it is pinned or used by a program."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)


class MappedMap(KernelMap):
    """An array whose entries are mapped into this process: 8-byte words are loaded and stored whole."""

    size_bytes = mmap.PAGESIZE
    protection = mmap.PROT_READ
    records: Any = ()  # the memory as an array of structures of `layout`, where a class has it so

    def __init__(self, fd: int) -> None:
        super().__init__(fd)
        self._memory = mmap.mmap(fd, self.size_bytes, mmap.MAP_SHARED, self.protection)
        self.u8 = memoryview(self._memory)
        self.u32, self.u64 = self.u8.cast("I"), self.u8.cast("Q")

    def close(self) -> None:
        """Unmap, and close the file descriptor (once)."""
        if self.fd >= 0:
            self.records = ()
            for view in (self.u32, self.u64, self.u8):
                view.release()
            try:  # noqa: SIM105 - an owner's command imports this, and nothing that it can do without
                self._memory.close()
            except BufferError:  # an error's frame holds a record, with which the memory goes
                pass
        super().close()


class WritableMap(MappedMap):
    """A mapped map, to be written too."""

    protection = mmap.PROT_READ | mmap.PROT_WRITE

    def lay_over(self, kind: type[Structure], count: int) -> None:
        """Lay `records` over the memory; a field of 8 bytes is loaded and stored whole."""
        self.records = (kind * count).from_buffer(self._memory)


def open_pinned_fd(path: Path | str) -> int:
    """Return a descriptor of a pinned map; BpfError if there is none at `path`."""
    return check(libbpf().bpf_obj_get(os.fsencode(path)), f"open the pinned map {path}")
