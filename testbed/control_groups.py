"""Control groups: limits on the processors, memory and processes of a group of programs, by cgroups v1 or v2.

A group is a folder of one name below the mount of each controller; groups below it are limited by it, too. With v1 every
controller has a mount of its own, with v2 all share one, and some machines have both. In v2 a group with members has no
limited groups below it, so programs of a host join its group's OWN. Each limit is read back.
"""

from __future__ import annotations

import mmap
import os
import signal
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from testbed.errors import KernelMismatch, SetupError
from topologies.writing import naming

TOP: Final = "reclaimnet"  # above a campus's groups
OWN: Final = "own"
CONTROLLERS: Final = ("cpu", "cpuset", "memory", "pids")
OF_SWAP: Final = ("memory.swap.max", "memory.memsw.limit_in_bytes")  # where the kernel accounts swap
PERIOD_US: Final = 100_000  # in which a group has its share of the processors
GONE_S: Final = 5.0  # within which killed members have left


class MountedController(NamedTuple):
    """A controller of this machine."""

    mount: Path
    version: int


@cache
def controllers() -> Mapping[str, MountedController]:
    """Return the machine's controllers by name."""
    found: dict[str, MountedController] = {}
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, where, kind, options, *_ = line.split()
        listed = options.split(",") if kind == "cgroup" else []
        if kind == "cgroup2":
            with suppress(OSError):
                listed = Path(where, "cgroup.controllers").read_text().split()
        found |= {
            name: MountedController(Path(where), 1 + (kind == "cgroup2")) for name in CONTROLLERS if name in listed
        }
    return found


def own_group(pid: int | str = "self") -> str:
    """Return the group of version 2 in which a process is, below the mount; "" for the topmost, or of none."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
            if line.startswith("0::"):
                return line[len("0::/") :]
    return ""


def missing(wanted: Collection[str] = CONTROLLERS) -> list[str]:
    """Return those of the controllers that this machine lacks, or that take no groups of this process."""
    there = controllers()
    return [name for name in wanted if name not in there or not os.access(there[name].mount, os.W_OK)]


def folders(name: str, wanted: Collection[str] = CONTROLLERS) -> list[Path]:
    """Return the folders of a group, one for each mount of the machine's controllers among `wanted`."""
    return [mount / name for mount in dict.fromkeys(c.mount for key, c in controllers().items() if key in wanted)]


def make(
    name: str,
    *,
    cpu: float | None = None,
    cores: str | None = None,
    memory_bytes: float | None = None,
    processes: int | None = None,
    also: Collection[str] = (),
) -> list[Path]:
    """Make a group, limit it, and return its folders; `also` are controllers of it that set no limit.

    SetupError: a controller is missing, or refuses. KernelMismatch: a limit is not in force.
    """
    limits = {"cpu": cpu, "cpuset": cores, "memory": memory_bytes, "pids": processes}
    wanted = [key for key in CONTROLLERS if limits[key] is not None or key in also]
    if lacking := missing(wanted):
        raise SetupError(f"no control group {name}: this machine has no writable controller {', '.join(lacking)}")
    for key in wanted:
        found = controllers()[key]
        try:
            _make_folder(found, key, name)
            for file, value in _settings(key, found.version, limits[key]):
                if file not in OF_SWAP or (found.mount / name / file).exists():
                    _set(found.mount / name / file, value)
        except OSError as error:
            raise SetupError(f"no control group {name}: {error.filename}: {error.strerror}") from error
    return folders(name, wanted)


def place(name: str, wanted: Collection[str]) -> list[Path]:
    """Return the folders that programs of a group join, made if need be: its own, and in v2 those of OWN below it."""
    of_v2 = [key for key in wanted if controllers()[key].version == 2]
    return [*folders(name, set(wanted) - set(of_v2)), *(make(f"{name}/{OWN}", also=of_v2) if of_v2 else ())]


def join(group: Collection[Path], pid: int = 0) -> None:
    """Move a process, by default this one, which has one thread, into a group, given by its folders. OSError."""
    for folder in group:
        # of v1: a thread that moves itself waits for nobody, a process for all processors
        alone = folder / "tasks"
        (alone if pid == 0 and alone.exists() else folder / "cgroup.procs").write_text(str(pid))


def was_out_of_memory(folder: Path) -> bool:
    """Return True if the kernel has ended a process of a group for its limit of memory."""
    for file in ("memory.oom_control", "memory.events"):
        with suppress(OSError):
            return "\noom_kill 0" not in (folder / file).read_text()
    return False


def remove(folder: Path) -> bool:
    """Kill the members of a folder and of those below it, and remove them; return whether it was there. OSError: it stays."""
    if not folder.is_dir():
        return False
    until_s = time.monotonic() + GONE_S
    for path in (*sorted(folder.rglob("*/"), reverse=True), folder):
        while True:
            for pid in members(path):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            try:
                path.rmdir()
            except FileNotFoundError:
                break
            except OSError:
                if time.monotonic() > until_s:
                    raise
                time.sleep(0.002)
            else:
                break
    if folder.parent.name == TOP:
        with suppress(OSError):  # another campus has groups there
            folder.parent.rmdir()
    return True


def members(folder: Path) -> Iterator[int]:
    """Yield the processes of a group, given by its folder; none, if that is gone."""
    with suppress(OSError):
        yield from map(int, (folder / "cgroup.procs").read_text().split())


def _make_folder(found: MountedController, key: str, name: str) -> None:
    """Make the folder of a group and those above it, so that the controller works there."""
    above = found.mount
    for part in name.split("/"):
        if found.version == 2 and key not in (above / "cgroup.subtree_control").read_text().split():
            (above / "cgroup.subtree_control").write_text(f"+{key}")
        folder = above / part
        folder.mkdir(parents=True, exist_ok=True)  # another campus that ends may have removed TOP
        if key == "cpuset" and found.version == 1 and not (folder / "cpuset.mems").read_text().strip():
            for file in ("cpuset.cpus", "cpuset.mems"):
                (folder / file).write_text((above / file).read_text())
        above = folder


def _settings(key: str, version: int, limit: float | str | None) -> Iterator[tuple[str, str]]:
    """Yield (file, value) of a limit."""
    if limit is None:
        return
    if key == "cpu":
        quota = str(max(1000, round(float(limit) * PERIOD_US)))
        if version == 2:
            yield "cpu.max", f"{quota} {PERIOD_US}"
        else:
            yield from (("cpu.cfs_period_us", str(PERIOD_US)), ("cpu.cfs_quota_us", quota))
    elif key == "memory":
        size = str(int(limit) // mmap.PAGESIZE * mmap.PAGESIZE)
        yield "memory.max" if version == 2 else "memory.limit_in_bytes", size
        yield ("memory.swap.max", "0") if version == 2 else ("memory.memsw.limit_in_bytes", size)
    else:
        yield {"cpuset": "cpuset.cpus", "pids": "pids.max"}[key], str(limit)


def _set(file: Path, value: str) -> None:
    with naming(file):
        file.write_text(value)
    seen = file.read_text().strip()
    if seen != value and (file.name != "cpuset.cpus" or _numbers(seen) != _numbers(value)):
        raise KernelMismatch(str(file), value, seen)


def _numbers(listed: str) -> set[int]:
    ranges = (part.split("-") for part in listed.split(","))
    return {number for ends in ranges for number in range(int(ends[0]), int(ends[-1]) + 1)}
