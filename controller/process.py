"""The coordinator as a process: listeners, journal and core, until a signal ends it.

Started on a journal that holds a run, it goes on with that run.
"""

from __future__ import annotations

import random
import secrets
import signal
import socket
import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import trio

from controller.core.coordinator import Coordinator
from controller.core.model import events as ev
from controller.core.parameters import Protocol, Queue
from controller.host import AGENT_PORT, CoordinatorHost
from controller.load import LOAD_FILE
from controller.persistence.journal import DamagedJournal, Journal, damaged_beside, set_aside
from controller.persistence.recovery import Replay, check_origin, origin_of, salvage, start_after
from controller.persistence.snapshot import program
from controller.warm_up import rehearse
from testbed.driver import run_process
from testbed.errors import SetupError
from testbed.logs import logger
from topologies.spec import Campus

EPOCHS_OF_ONE = 1 << 32  # of one journal, at most
LOG = logger("controller")


@dataclass(frozen=True, slots=True)
class CoordinatorConfig:
    """Configuration of the coordinator's process. `started_s` (CLOCK_MONOTONIC) is time 0 of its journal, if that is new."""

    campus: Campus
    protocol: Protocol
    queue: Queue
    seed: int
    journal: Path
    operator_socket: Path
    address: str
    port: int = AGENT_PORT
    started_s: float = field(default_factory=time.monotonic)
    # key of transfers' numbers, kept by the process that starts this one and its successors; no file holds it
    secret: bytes = field(default_factory=partial(secrets.token_bytes, 32))
    # where the controller of the switches listens; None: this project's does not program them
    network_socket: Path | None = None


def run_coordinator(config: CoordinatorConfig) -> None:
    """Run the coordinator's process; SIGTERM ends it with its journal closed.

    SetupError: the journal is another coordinator's, or another process writes it.
    """
    run_process(_main, config)


async def _main(config: CoordinatorConfig) -> None:
    rehearse(config.protocol.policy)  # no decision waits for a compiler
    journal, host = _resumed(config)
    try:
        agents = await trio.open_tcp_listeners(config.port, host=config.address, backlog=4096)
        config.operator_socket.unlink(missing_ok=True)
        operators = trio.socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        await operators.bind(str(config.operator_socket))
        config.operator_socket.chmod(0o600)
        operators.listen(64)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(host.serve, agents, [trio.SocketListener(operators)])
            with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
                await anext(signals)
            host.ending = True
            nursery.cancel_scope.cancel()
        host.load.write(config.journal.with_name(LOAD_FILE))
    finally:
        journal.close()


def _resumed(config: CoordinatorConfig) -> tuple[Journal, CoordinatorHost]:
    """Return the journal and its coordinator: of a damaged one a new journal beside it, with what could be read."""
    path = config.journal
    try:
        journal = Journal(path)
        try:
            return journal, _host(config, journal)
        except BaseException:
            journal.close()
            raise
    except DamagedJournal as damage:
        aside = set_aside(path)
        LOG.warning("%s; it is now %s", damage, aside.name)
    journal = Journal(path)
    journal.found(_origin(config))
    LOG.warning("%d events of it are decided again", salvage(aside, journal, partial(_core, config)))
    return journal, _host(config, journal)


def _origin(config: CoordinatorConfig) -> dict[str, str]:
    return origin_of(config.campus, config.protocol, config.queue, config.seed, config.started_s)


def _core(config: CoordinatorConfig) -> Coordinator:
    placement = random.Random(f"{config.seed} placement")
    return Coordinator(config.campus, config.protocol, config.queue, placement.random, config.secret)


def _replay(config: CoordinatorConfig, journal: Journal) -> Replay:
    """Return a new coordinator, or the one that wrote the journal."""
    mine, origin = _origin(config), journal.origin()
    if origin:
        check_origin(origin, mine, config.journal)
    else:
        journal.found(mine)
    # the very program that wrote the journal decides the same, unless something else has changed it
    same = origin.get("program") == program()
    replay = Replay(journal, _core(config), DamagedJournal if same else SetupError)
    replay.advance()
    LOG.info("%d events of %s decided again", replay.events, config.journal)
    return replay


def _host(config: CoordinatorConfig, journal: Journal) -> CoordinatorHost:
    """Return the host of a new coordinator, or of the one that wrote the journal: it leads. Deposed: another does."""
    replay = _replay(config, journal)
    # agents know epochs of journals that were put aside since
    journal.seize(max(journal.epoch, len(damaged_beside(journal.path)) * EPOCHS_OF_ONE) + 1)
    draws = random.Random(f"{config.seed} admission")
    for _ in range(replay.submitted):
        draws.random()
    host = CoordinatorHost(
        replay.core,
        journal,
        draws,
        started_s=start_after(journal.origin(), journal.last_s),
        last_s=journal.last_s,
        submitted=replay.submitted,
        network_socket=config.network_socket,
    )
    if journal.last_s > 0.0:
        host.handle(ev.Restarted(host.now_s - journal.last_s))
    return host
