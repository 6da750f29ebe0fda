"""Many hosts' agents in one process, for campuses of hundreds: each as it would be alone, in its own host's network.

Every agent keeps its own core, store, lease and connections; its sockets are opened in its host's namespace (`namespaces`) and
its jobs are children of one fork server. What the agents share is the loop, and one look at all kernel maps every 100 ms. An idle
agent costs some hundred kilobytes and a heartbeat; alone in a process it costs 12 MB and 0.35 % of a core.

What is given up is isolation: a fault of one agent's ends the process, and with it the agents and jobs of all its hosts. It is
started again as any agent that died.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial

import trio

from testbed.agent.config import AgentConfig
from testbed.agent.core import events as ev
from testbed.agent.host import AgentHost, watch
from testbed.driver import run_process
from testbed.logs import log_level
from testbed.namespaces import NetworkNamespace
from testbed.workloads.launch import ForkServer, Launched

LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s %(host)s: %(message)s"
# Each system call of the loop gives the interpreter's lock away, and a thread that moves a checkpoint keeps it for so long: with
# Python's own 5 ms the answers to heartbeats took .5 s in the median at 500 hosts, with this .15 (a busy machine).
SWITCH_INTERVAL_S = 0.0005
_host: ContextVar[str] = ContextVar("host", default="pool")


@dataclass(frozen=True, slots=True)
class PoolMember:
    """An agent of a pool. `network_pid`: a process in its host's network."""

    config: AgentConfig
    network_pid: int


class _PooledHost(AgentHost):
    """An agent whose kernel maps are looked at with all others'."""

    def __init__(self, member: PoolMember, forks: ForkServer, watched: list[AgentHost]) -> None:
        self._watched = watched
        network = NetworkNamespace.of_process(member.network_pid)

        async def launch(sock: int, lease: int, output: int) -> Launched:
            return await forks.launch(sock, lease, output, network)

        super().__init__(member.config, network, launch)

    async def watch_kernel(self) -> None:
        """The pool does."""
        self._watched.append(self)

    def handle(self, event: ev.Event) -> None:
        """Handle it as an agent alone does; what is logged of it, and by the tasks that follow, names the host."""
        _host.set(self.config.host)
        super().handle(event)


def run_pool(members: Sequence[PoolMember]) -> None:
    """The whole life of a pool's process. OSError: a member's network is gone."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter(LOG_FORMAT))
    handler.addFilter(_named)
    logging.basicConfig(level=log_level(), handlers=[handler])
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    run_process(_serve, members)


async def _serve(members: Sequence[PoolMember]) -> None:
    forks, watched = ForkServer(), list[AgentHost]()
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch, watched)
            for member in members:
                await nursery.start(partial(_live, member, forks, watched))
    finally:
        forks.close()


async def _live(
    member: PoolMember,
    forks: ForkServer,
    watched: list[AgentHost],
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run an agent until cancelled."""
    _host.set(member.config.host)
    await _PooledHost(member, forks, watched).run(task_status)


def _named(record: logging.LogRecord) -> bool:
    record.host = _host.get()
    return True
