"""Usage of the machine by the parts of a live run: processor time and memory of the coordinator, agents, jobs and the rest."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from experiments.worlds.live.world import LiveWorld
from testbed.emulation.fidelity import CpuTimes
from testbed.workloads.memory import pss_bytes

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
# parts of a run; what the machine was busy with beside them is the kernel's (packets) and other programs'
PARTS = ("builder", "coordinator", "agents", "jobs", "research")


class Usage:
    """Processor seconds of each part from its making to `shares`.

    A job is a descendant of an agent, or of its fork server; jobs that have ended count with what waited for them. Of a process
    that was started again only the last life counts.
    """

    def __init__(self, world: LiveWorld) -> None:
        self._world = world
        self._spent_s, self._machine = self._read(), CpuTimes.now()

    def shares(self) -> dict[str, float]:
        """Return `cpu_PART`, processors kept busy by each part on average (1.0 is one whole processor), and `cpu_machine`."""
        now, machine = self._read(), CpuTimes.now()
        busy, idle = machine.busy - self._machine.busy, machine.idle - self._machine.idle
        steal = machine.steal - self._machine.steal
        processors = os.cpu_count() or 1
        lasted_s = max(1e-3, (busy + idle + steal) / TICKS_PER_S / processors)
        used = {part: max(0.0, now[part] - self._spent_s[part]) / lasted_s for part in PARTS}
        return {f"cpu_{part}": share for part, share in used.items()} | {
            "cpu_machine": (busy + steal) / TICKS_PER_S / lasted_s
        }

    def memory_bytes(self) -> dict[str, float]:
        """Return `memory_PART_bytes`: resident memory of each part now, with shared pages counted once (PSS)."""
        return {
            f"memory_{part}_bytes": float(sum(pss_bytes(pid) for pid in pids)) for part, pids in self._pids().items()
        }

    def _read(self) -> dict[str, float]:
        spent = dict.fromkeys(PARTS, 0.0)
        pids = self._pids()
        for part in PARTS:
            for pid in pids[part]:
                if not (fields := _stat(pid)):
                    continue  # it is gone
                user, system, waited_user, waited_system = map(int, fields[11:15])
                spent[part] += (user + system) / TICKS_PER_S
                # of what agents and fork servers have waited for, all were jobs, or fork servers
                waiter = "jobs" if part in ("agents", "jobs") else part
                spent[waiter] += (waited_user + waited_system) / TICKS_PER_S
        return spent

    def _pids(self) -> dict[str, list[int]]:
        children: dict[int, list[int]] = {}  # the processes of the machine, by parent
        for entry in os.scandir("/proc"):
            if entry.name.isdigit() and (fields := _stat(int(entry.name))):
                children.setdefault(int(fields[1]), []).append(int(entry.name))
        world = self._world
        agents = [one.process.pid for one in world.agents]
        research = [one.pid for one in world.campus.forked if one.label.startswith("research")]
        coordinator = [kept.process.pid for kept in world.coordinators]
        jobs = [job for agent in agents for job in _descendants(agent, children)]
        return {
            "builder": [os.getpid()],
            "coordinator": coordinator,
            "agents": agents,
            "jobs": jobs,
            "research": research,
        }


def _descendants(pid: int, children: dict[int, list[int]]) -> Iterable[int]:
    for child in children.get(pid, ()):
        yield child
        yield from _descendants(child, children)


def _stat(pid: int) -> list[str]:
    """Return the fields of proc(5) stat from the state on; empty if the process is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
