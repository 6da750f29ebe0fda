"""Judge that nothing remains of jobs that are over: not in the coordinator's books, not on the hosts, not on the links.

What leaks a little in each storm fills a campus in a month.
"""

from __future__ import annotations

from experiments.storms.world import StormWorld
from experiments.worlds.virtual.invariants import broken


def check_nothing_is_left(world: StormWorld) -> None:
    """Check a world in which all jobs are over and every agent is connected. InvariantBroken: something is left of one."""
    known = world.coordinator.cluster
    for key, flow in known.flows.items():
        raise broken(world, flow.job, f"all is over, and the book has a flow {key}")
    for host in known.hosts.values():
        for name in sorted(host.jobs):
            raise broken(world, name, f"all is over, and {host.name} holds a GPU for it")
    for machine in world.machines.values():
        core = machine.core
        for name, _ in machine.processes:
            raise broken(world, name, f"all is over, and it computes on {machine.name}")
        for name, _ in machine.transfers:
            raise broken(world, name, f"all is over, and {machine.name} sends a checkpoint of it")
        if core is None:
            continue
        for name in [*core.running, *(job for job, _ in core.sends.table), *core.ended]:
            raise broken(world, name, f"all is over, and the agent of {machine.name} still has it in a table")
        for expected in core.announced.table.values():
            raise broken(
                world, expected.job, f"all is over, and {machine.name} still expects a checkpoint of it"
            )
        for name, sequence in [*machine.store, *core.stored]:
            raise broken(world, name, f"all is over, and {machine.name} keeps checkpoint {sequence} of it")
