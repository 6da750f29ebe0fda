"""The coordinator as a process: listeners, journal and core, until a signal ends it.

Started on a journal that holds a run, it goes on with that run.
"""

from __future__ import annotations

import os
import random
import secrets
import signal
import socket
import time
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from time import perf_counter

import trio

from controller.core.coordinator import Coordinator
from controller.core.model import events as ev
from controller.core.parameters import Protocol, Queue
from controller.host import AGENT_PORT, DESK_PORT, CoordinatorHost
from controller.load import LOAD_FILE
from controller.persistence.etcd import EtcdLog
from controller.persistence.group_commit import GroupCommit
from controller.persistence.journal import DamagedJournal, Journal, begin_as, damaged_beside, set_aside
from controller.persistence.lines import Deposed, Log, LogLine, Missed
from controller.persistence.recovery import JournalReplay, check_origin, origin_of, salvage, start_after
from controller.persistence.snapshot import program
from controller.warm_up import rehearse
from testbed.driver import run_process
from testbed.errors import SetupError
from testbed.installed.unit import keep_notified
from testbed.linux import come_first
from testbed.logs import logger
from testbed.trust.channel import Credentials, Identity
from topologies.spec import Campus, TrafficClass

EPOCHS_OF_ONE = 1 << 32  # of one journal, at most
# of a coordinator that follows: between two looks; at most counted for one; it tries to lead after so long without a line
LOOK_S, MAX_LOOK_S, SILENT_S = 0.1, 0.2, 0.5
DEPOSED = 4  # exit status
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
    members: tuple[tuple[str, int], ...] = ()  # of etcd, which holds the log; none: the journal is the log
    log_credentials: Credentials | None = None  # for those
    other_journal: Path | None = None  # of the other coordinator, where each has its own
    paired: bool = False  # there is another coordinator, which writes the same log
    follows: bool = False  # it may lead now
    # None: conversations without certificates
    credentials: Credentials | None = None
    authority: Path | None = None  # of names; it may be a file without a name, of the process that starts this one
    # where the controller of the switches listens; None: this project's does not program them
    network_socket: Path | None = None
    is_service: bool = False  # and notifies systemd
    comes_first: bool = False  # for the processor, while it leads


def run_coordinator(config: CoordinatorConfig) -> None:
    """Run the coordinator's process; SIGTERM ends it with its journal closed. It ends when another has taken over.

    SetupError: the journal is another coordinator's.
    """
    try:
        run_process(_main, config)
    except* Missed:
        if config.other_journal is None:
            raise
        LOG.warning("etcd has dropped lines that it has not read: it begins again with the other's journal")
        LOG.warning("its own is now %s", set_aside(config.journal))
        os._exit(DEPOSED)
    except* Deposed:
        LOG.warning("another coordinator leads: this one ends")
        os._exit(DEPOSED)  # an exception from here would be one of a group


async def _main(config: CoordinatorConfig) -> None:
    rehearse(config.protocol.policy)  # no decision waits for a compiler
    candidate = _resumed(config)
    host = candidate.host
    try:
        agents = await trio.open_tcp_listeners(config.port, host=config.address, backlog=4096)
        for listener in agents:  # and connections from there: paper A, section VII-A
            listener.socket.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, TrafficClass.EMERGENCY.dscp << 2)
        desk = []
        if config.authority is not None:
            desk = await trio.open_tcp_listeners(config.port + DESK_PORT - AGENT_PORT, host=config.address)
        # takes its name when this coordinator leads
        path = config.operator_socket.with_suffix(f".{config.port}")
        path.unlink(missing_ok=True)
        operators = trio.socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        await operators.bind(str(path))
        path.chmod(0o600)
        operators.listen(64)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(host.serve, agents, [trio.SocketListener(operators)], desk)
            nursery.start_soon(candidate.stand, path)
            with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
                await anext(signals)
            host.ending = True
            nursery.cancel_scope.cancel()
        if candidate.leads:
            host.load.write(config.journal.with_name(LOAD_FILE))
    finally:
        candidate.close()


class Candidate:
    """A coordinator that may lead: it has handled again what the journal holds, and follows what another adds.

    SetupError: the journal is another coordinator's.
    """

    def __init__(self, config: CoordinatorConfig, journal: Journal) -> None:
        self.config, self.journal, self.leads = config, journal, False
        mine = _origin(config)  # a campus of hundreds as text
        origin = journal.origin() or journal.found(mine)
        check_origin(origin, mine, config.journal)
        # the very program that wrote the journal decides the same, unless something else has changed it
        same = origin.get("program") == program()
        self.replay = JournalReplay(journal, _core(config), DamagedJournal if same else SetupError)
        self.replay.advance()
        LOG.info("%d events of %s decided again", self.replay.events, config.journal)
        self.log: Log = journal
        if config.log_credentials is not None:
            self.log = EtcdLog(config.members, str(config.port), config.log_credentials)
            self.log.number, self.log.epoch = journal.number, journal.epoch
        self.host = CoordinatorHost(
            self.replay.core,
            journal,
            random.Random(f"{config.seed} admission"),
            paired=config.paired,
            leads=trio.Event(),
            identity=None if config.credentials is None else Identity(config.credentials),
            authority=config.authority,
            network_socket=config.network_socket,
        )
        if config.members:
            self.host.group = GroupCommit(self.log, journal, self.host.load.writes.add)

    async def stand(self, operators: Path) -> None:
        """Lead, once no other coordinator does; `operators` is the socket that then takes its name."""
        while True:
            try:
                await self.catch_up(SILENT_S if self.config.follows else 0.0)
                self.seize()
            except (Deposed, OSError) as error:  # of SQLite's lock, too: the one that holds it stands still
                if not self.config.follows:
                    raise
                LOG.warning("it does not lead: %s", error)
            else:
                break
        self.lead()
        operators.rename(self.config.operator_socket)
        if self.config.is_service:
            await keep_notified()

    async def catch_up(self, silent_s: float) -> None:
        """Handle again what another coordinator adds, until looks find nothing for so long."""
        left_s, looked_s = silent_s, trio.current_time()
        while True:
            if self.config.follows:
                await trio.sleep(LOOK_S)
            found, before_s = await self._look(), looked_s
            looked_s = trio.current_time()
            # while this process stood still, nobody looked
            left_s = silent_s if found else left_s - min(looked_s - before_s, MAX_LOOK_S)
            if left_s <= 0.0 and not found:
                return

    async def _look(self) -> bool:
        if self.log is self.journal:
            return self.replay.advance()
        read = partial(self.log.follow, self.journal.number)
        lines = await trio.to_thread.run_sync(lambda: list(read()), abandon_on_cancel=True)
        began_s = perf_counter()
        for line in lines:
            self.replay.copy(line)
        self.host.spent_s += perf_counter() - began_s
        self.host.submitted = self.replay.submitted
        self.host.save_if_due()
        return bool(lines)

    def seize(self) -> None:
        """Write the next line, of a higher epoch. Deposed: another has written it."""
        # agents know epochs of journals that were put aside since, and of those that were removed
        latest = self.log.epoch or int(time.time())
        self.log.seize(max(latest, len(damaged_beside(self.journal.path)) * EPOCHS_OF_ONE) + 1)

    def lead(self) -> None:
        """Go on where the coordinator before ended."""
        log, journal, host = self.log, self.journal, self.host
        if self.config.comes_first:
            come_first()
        if log is not journal:
            self.replay.copy(LogLine(log.number, log.epoch, journal.last_s, None))
        for _ in range(self.replay.submitted):
            host.draws.random()
        host.started_s, host.last_s = start_after(journal.origin(), journal.last_s), journal.last_s
        host.submitted, self.leads = self.replay.submitted, True
        if journal.last_s > 0.0:
            host.handle(ev.Restarted(host.now_s - journal.last_s))
        LOG.info("it leads, with epoch %d", log.epoch)
        assert host.leads is not None
        host.leads.set()

    def close(self) -> None:
        """Close the journal, and the log if that is another."""
        self.log.close()
        self.journal.close()


def _resumed(config: CoordinatorConfig) -> Candidate:
    """Return the journal's coordinator: of a damaged one a new journal beside it, with what could be read.

    DamagedJournal: another coordinator may lead, so it is left where it is.
    """
    path, other = config.journal, config.other_journal
    if other is not None and not path.exists():
        begin_as(other, path)
    try:
        return _candidate(config)
    except DamagedJournal as damage:
        if config.follows and other is None:
            raise
        aside = set_aside(path)
        LOG.warning("%s; it is now %s", damage, aside.name)
    if other is not None:
        begin_as(other, path)
    elif not config.members:  # else all of it is in the log
        with closing(Journal(path)) as journal:
            journal.found(_origin(config))
            LOG.warning("%d events of it are decided again", salvage(aside, journal, partial(_core, config)))
    return _candidate(config)


def _candidate(config: CoordinatorConfig) -> Candidate:
    journal = Journal(config.journal)
    try:
        return Candidate(config, journal)
    except BaseException:
        journal.close()
        raise


def _origin(config: CoordinatorConfig) -> dict[str, str]:
    return origin_of(config.campus, config.protocol, config.queue, config.seed, config.started_s)


def _core(config: CoordinatorConfig) -> Coordinator:
    placement = random.Random(f"{config.seed} placement")
    return Coordinator(config.campus, config.protocol, config.queue, placement.random, config.secret)
