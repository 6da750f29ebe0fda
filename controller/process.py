"""The coordinator as a process: listeners, journal, core, until it is told to end."""

from __future__ import annotations

import logging
import random
import signal
import socket
import time
from dataclasses import dataclass, field
from pathlib import Path

import trio

from controller.core.coordinator import Coordinator
from controller.core.settings import Settings
from controller.host import AGENT_PORT, CoordinatorHost
from controller.journal import Journal
from testbed.clock import MonotonicClock
from topologies.spec import Campus


@dataclass(frozen=True, slots=True)
class CoordinatorConfig:
    """What the coordinator needs to know. `started_s` (CLOCK_MONOTONIC) is time 0 of its journal."""

    campus: Campus
    settings: Settings
    seed: int
    journal: Path
    operator_socket: Path
    address: str
    port: int = AGENT_PORT
    started_s: float = field(default_factory=time.monotonic)


def run_coordinator(config: CoordinatorConfig) -> None:
    """The whole life of the coordinator's process; SIGTERM ends it with its journal closed."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    trio.run(_main, config, clock=MonotonicClock())


async def _main(config: CoordinatorConfig) -> None:
    placement = random.Random(f"{config.seed} placement")
    core = Coordinator(config.campus, config.settings, placement.random)
    journal = Journal(config.journal)
    host = CoordinatorHost(
        core, journal, random.Random(f"{config.seed} admission"), started_s=config.started_s
    )
    try:
        agents = await trio.open_tcp_listeners(config.port, host=config.address, backlog=4096)
        operators = await _unix_listener(config.operator_socket)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(host.serve, agents, [operators])
            await _until_told_to_end()
            nursery.cancel_scope.cancel()
    finally:
        journal.close()


async def _unix_listener(path: Path) -> trio.SocketListener:
    path.unlink(missing_ok=True)
    sock = trio.socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    await sock.bind(str(path))
    path.chmod(0o600)
    sock.listen(64)
    return trio.SocketListener(sock)


async def _until_told_to_end() -> None:
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for _ in signals:
            return
