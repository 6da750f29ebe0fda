"""The room of an attempt on its host: its folder, its control group, its sandbox, and what leaves the folder as root's own.

Its folder belongs to the job, which may put anything there in any moment. So a snapshot is taken by its descriptor, and never by
its name alone.
"""

from __future__ import annotations

import _thread
import errno
import mmap
import os
import stat
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final

import trio

from testbed import control_groups
from testbed.bounds import most_checkpoint_bytes
from testbed.checkpoints import BadManifest
from testbed.checkpoints.files import free_bytes
from testbed.linux import remove_folder
from testbed.messages import JobSpec
from testbed.workloads.output import LOOK_S
from testbed.workloads.returned import LARGEST_BYTES
from testbed.workloads.sandbox import Sandbox
from topologies.units import format_size

MAX_PROCESSES: Final = 1024  # of a job, threads too
MARGIN_BYTES: Final = 1 << 30  # of a folder, beside checkpoints and output
ENTRY_BYTES: Final = 4096  # of a folder, for the name and the inode of a file, though it be empty
JOBS_SHARE: Final = 0.9  # of the machine's memory, for all jobs of a campus
JOB_SHARE: Final = 0.6  # and for one, since the kernel may end another job where they have taken all of it
LOOKING_SHARE: Final = 0.02  # of the time: for looking through one folder


class JobRoom:
    """The room of one attempt. `furnish` makes it, `clear` takes it away once no process of it runs."""

    def __init__(self, folder: str, spec: JobSpec) -> None:
        self.folder = folder
        self._spec, self._groups, self._fault, self._look_s = spec, list[Path](), "", 0.0
        self._is_looking, self._free_bytes = False, 0
        self._most_bytes = 4 * most_checkpoint_bytes(spec.payload_bytes) + LARGEST_BYTES + MARGIN_BYTES

    def furnish(self, restore: str | None, slots: tuple[int, ...], group: str) -> Sandbox | None:
        """Make the folder and the control group; return the sandbox, None where this user can make none.

        OSError, SetupError: they cannot be made.
        """
        Path(self.folder).mkdir(mode=0o700, parents=True)
        self._free_bytes = free_bytes(Path(self.folder))
        if os.geteuid() != 0:
            return None
        joined = self._make_groups(group) if group else []
        spec, program = self._spec, self._spec.program
        return Sandbox(
            spec.sandbox,
            self.folder,
            () if restore is None else (restore,),
            (*spec.reads, *([str(Path(program.command[0]).parent)] if program and "/" in program.command[0] else [])),
            (program.working_directory,) if program and program.working_directory else (),
            tuple(map(str, joined)),
            slots,
            spec.network == "host" or spec.sandbox == "none",
            self._most_bytes,
        )

    def snapshot(self, sequence: int) -> Path:
        """Return the file to which the job writes a snapshot."""
        return Path(self.folder, f"snapshot.{sequence}")

    def is_overfull(self) -> bool:
        """Return True if its folder was found to take more of the disk than it may; have it looked at again, if that is due.

        That is soon where the disk fills. The look is a thread's: a job may have many files.
        """
        is_filling = (free := free_bytes(Path(self.folder))) < self._free_bytes - MARGIN_BYTES
        if not self._is_looking and (is_filling or time.monotonic() >= self._look_s):
            self._is_looking, self._free_bytes = True, free if is_filling else self._free_bytes
            _thread.start_new_thread(self._look, (is_filling,))
        return bool(self._fault)

    def _look(self, at_nameless: bool) -> None:
        began_s, folders = time.monotonic(), [self.folder]
        room_bytes = self._most_bytes - (self._nameless_bytes() if at_nameless else 0)
        while folders and room_bytes >= 0:
            try:
                with os.scandir(folders.pop()) as entries:
                    for entry in entries:
                        with suppress(FileNotFoundError):
                            room_bytes -= ENTRY_BYTES + 512 * entry.stat(follow_symlinks=False).st_blocks
                            folders += [entry.path] if entry.is_dir(follow_symlinks=False) else []
            except OSError as error:
                if error.errno == errno.ENAMETOOLONG:
                    self._fault = "a folder in its folder is too deep to be looked at"
        if room_bytes < 0:
            self._fault = f"its folder takes more than {format_size(self._most_bytes)}"
        now_s = time.monotonic()
        self._look_s = now_s + max(LOOK_S / 2.0, (now_s - began_s) / LOOKING_SHARE)
        self._is_looking = False

    def _nameless_bytes(self) -> int:
        """Return the bytes of files on its folder's disk that have no name, and that its processes hold open or mapped."""
        found, device = dict[int, int](), Path(self.folder).parent.stat().st_dev
        for pid in control_groups.members(self._groups[0]) if self._groups else ():
            with suppress(OSError):  # it has ended
                for held in (each for kind in ("fd", "map_files") for each in Path(f"/proc/{pid}", kind).iterdir()):
                    with suppress(OSError):
                        if (status := held.stat()).st_nlink == 0 and status.st_dev == device:
                            found[status.st_ino] = 512 * status.st_blocks
        return sum(found.values())

    def fault(self) -> str:
        """Return the bound that it was ended for passing; "" for none."""
        if not self._fault and any(map(control_groups.was_out_of_memory, self._groups)):
            self._fault = "it took more memory than it may: a process of it was ended"
        return self._fault

    async def clear(self) -> None:
        """Remove its folder and its control group."""
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(self._clear)

    def _clear(self) -> None:
        remove_folder(self.folder)
        for folder in self._groups:
            with suppress(OSError):
                control_groups.remove(folder)

    def _make_groups(self, name: str) -> list[Path]:
        """Make the control group, and return the folders that the job joins: its own, and with v1 its host's of `cpu`."""
        if control_groups.missing(("memory", "pids")):
            return []
        host = name.rpartition("/")[0]
        _limit_campus(host.rpartition("/")[0])
        self._groups = control_groups.make(name, processes=MAX_PROCESSES, memory_bytes=_of_memory(JOB_SHARE))
        of_v1 = [key for key, found in control_groups.controllers().items() if found.version == 1]
        beside = control_groups.folders(host, [key for key in of_v1 if key in ("cpu", "cpuset")])
        return [*self._groups, *filter(Path.is_dir, beside)]


@cache
def _limit_campus(name: str) -> None:
    """Leave the machine some memory, however much all jobs of the campus take."""
    control_groups.make(name, memory_bytes=_of_memory(JOBS_SHARE))


def _of_memory(share: float) -> float:
    return share * os.sysconf("SC_PHYS_PAGES") * mmap.PAGESIZE


def end_left(host: str) -> None:
    """End what jobs of an agent before left, by their control groups: a process may have kept itself from dying with it."""
    for folder in (each for above in control_groups.folders(host) for each in above.glob("*.*/")):
        with suppress(OSError):
            control_groups.remove(folder)


def take_over(written: Path, target: Path) -> None:
    """Make what a job has written root's own, under another name: the very file that was looked at. BadManifest, OSError."""
    fd = os.open(written, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
            raise BadManifest(f"{written}: a snapshot is a regular file with one name")
        if os.geteuid() == 0:
            os.fchown(fd, 0, 0)
        os.fchmod(fd, 0o600)
        os.link(f"/proc/self/fd/{fd}", target, src_dir_fd=fd)  # with a descriptor it follows the link
    finally:
        os.close(fd)
    written.unlink(missing_ok=True)
