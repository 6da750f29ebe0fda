"""Memory of processes, and how much more one may take before the kernel ends it: the machine's, and its groups'."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import Final

# of a control group by version: where the groups are mounted, and its files (limit, use)
_CGROUP_FILES: Final = {
    "": ("", "memory.max", "memory.current"),
    "memory": ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
}


def available_bytes(proc: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")) -> float:
    """Return the least of what the machine and every control group above this process have left; cached files count as free."""
    return min(of_machine(proc), *_of_groups(proc, groups))


def pss_bytes(pid: int) -> int:
    """Return a process's memory: a page shared by n processes counts 1/n (PSS). 0 if the process is gone."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return 1024 * int(line.split()[1])
    return 0


def of_machine(proc: Path = Path("/proc")) -> float:
    """Return the machine's available memory; infinite if unknown."""
    with suppress(OSError):
        for line in (proc / "meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return float(line.split()[1]) * 1024.0
    return inf


def _of_groups(proc: Path, groups: Path) -> Iterator[float]:
    yield inf
    lines: list[str] = []
    with suppress(OSError):
        lines = (proc / "self/cgroup").read_text().splitlines()
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers not in _CGROUP_FILES:
            continue
        mount, limit, use = _CGROUP_FILES[controllers]
        folder = groups / mount / path.lstrip("/")
        while folder.is_relative_to(groups / mount):
            # no such file: no limit there, or the mount is another's
            with suppress(OSError, ValueError):
                most, used = int((folder / limit).read_text()), int((folder / use).read_text())
                yield most - used + _cached_bytes(folder)
            folder = folder.parent


def _cached_bytes(folder: Path) -> float:
    with suppress(OSError):
        for line in (folder / "memory.stat").read_text().splitlines():
            name, _, value = line.partition(" ")
            if name == "inactive_file":
                return float(value)
    return 0.0
