"""The processes of a live run: one coordinator, agents, research flows, a prober. Made, watched, restarted.

An agent has a process of its own, or shares one with others (`testbed.agent.host`): isolation is worth 12 MB and 0.35 % of a core
each, as long as there are not many.

Agents and the coordinator that die are started again after a moment, as a service manager would on a real host, however
often that is. What dies soon again waits twice as long each time, up to `MAX_PAUSE_S`: of a full disk, until there is room.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import socket
import struct
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from pathlib import Path

from bpf.build import build
from controller.core.policies.table import Policy, policy, policy_of
from controller.host import AGENT_PORT
from controller.load import LOAD_FILE
from controller.persistence.etcd import ADDRESS, PROGRAM, leading, log_credentials, member, member_files
from controller.process import CoordinatorConfig, run_coordinator
from controller.warm_up import compile_once, rehearse
from experiments.inputs.scenario import Scenario
from experiments.results.run_context import COORDINATORS, Death
from experiments.worlds.live import probe, research
from experiments.worlds.live.habits import Habits
from experiments.worlds.live.operator import JOB_LOGS, JOURNAL, LOGS, SOCKET
from testbed import owner
from testbed.agent.config import AgentConfig
from testbed.agent.host import run_agents
from testbed.control_groups import TOP
from testbed.emulation.campus import LiveCampus
from testbed.emulation.capabilities import require_before_start
from testbed.emulation.processes import ForkedProcess, ForkRequest, Keeper
from testbed.enforcement import Enforcement, payload_rate
from testbed.errors import SetupError
from testbed.identity import signal_name
from testbed.linux import FIRST_NICE, come_first
from testbed.namespaces import NetworkNamespace
from testbed.trust import channel
from testbed.trust.authority import Authority, domain_of, nameless_file
from testbed.workloads.returned import SUFFIX
from topologies.errors import SpecError
from topologies.spec import Campus, Host, Role

COORDINATOR, STANDBY = COORDINATORS
COPY = "standby.sqlite"  # journal of the second coordinator, where the log is in etcd
MEMBERS = 3
ETCD_PORTS = tuple(range(2379, 2379 + 2 * MEMBERS))
ETCD = tuple((ADDRESS, port) for port in ETCD_PORTS[::2])
Owners = Mapping[str, int]  # host -> group
DATA_ROOT = Path("/var/tmp/reclaimnet")  # checkpoints live on disk, not on a RAM disk such as /run
RESTART_AFTER_S = 1.0
BESIDE_ANOTHER_S = 3.0  # which takes over meanwhile: agents' handshakes come after that
COORDINATOR_AFTER_S = 0.3  # and some time to replay its journal: less than a lease, if that is short
MAX_PAUSE_S = 10.0  # and what has lived for so long begins with the shortest pause again
WATCH_PERIOD_S = 0.1
END_S = 5.0  # how long the coordinator may take to close its journal
# agents in pools where nothing else is asked for: above so many hosts, and so many in one process
POOLS_ABOVE, POOL_HOSTS = 100, 125


@dataclass
class Restarts:
    """Time at which a process that has died is started again: `at_s`; inf: it lives."""

    first_s: float  # pause after a death that follows none
    pause_s: float = 0.0
    since_s: float = field(default_factory=time.monotonic)  # the process runs
    at_s: float = inf

    def died(self, now_s: float) -> None:
        """Set the time of the next start."""
        again = now_s - self.since_s < MAX_PAUSE_S
        self.pause_s = min(max(self.first_s, 2.0 * self.pause_s if again else 0.0), MAX_PAUSE_S)
        self.at_s = now_s + self.pause_s

    def due(self, now_s: float) -> bool:
        """Return whether it is to be started now; that is taken as done."""
        if now_s < self.at_s:
            return False
        self.at_s, self.since_s = inf, now_s
        return True


@dataclass
class Kept:
    """A process that is started again when it has died: a coordinator, a member of etcd, an agent or a pool of them."""

    subject: str
    start: Callable[[], ForkedProcess]
    restarts: Restarts
    process: ForkedProcess
    hosts: tuple[Host, ...] = ()  # of agents


@dataclass
class LiveWorld:
    """A started campus and its processes. `started_s` (CLOCK_MONOTONIC) is time 0 of all records."""

    scenario: Scenario  # as played
    campus: LiveCampus
    out: Path
    data: Path
    owners: Owners = field(default_factory=dict)
    agents_per_process: int | None = None  # None: 1, or POOL_HOSTS above POOLS_ABOVE hosts
    started_s: float = field(default_factory=time.monotonic)
    agents: list[Kept] = field(default_factory=list)
    coordinators: list[Kept] = field(default_factory=list)
    members: list[Kept] = field(default_factory=list)  # of etcd
    deaths: list[Death] = field(default_factory=list)
    prober_host: str = ""
    prober: socket.socket | None = None
    secret: bytes = field(default_factory=partial(secrets.token_bytes, 32), repr=False)  # of every coordinator here
    # of the names of all processes, in a file: the coordinator may follow it by another; None: they are without certificates
    authority: Path | None = None
    log_credentials: channel.Credentials | None = None  # of etcd's members and clients
    habits: Habits = field(init=False)  # of the owners, once its processes run

    @property
    def operator_socket(self) -> Path:
        """The path of the coordinator's socket for operators."""
        return self.campus.run_dir / SOCKET

    @property
    def journal(self) -> Path:
        """The coordinator's journal."""
        return self.out / JOURNAL

    def load(self) -> dict[str, float]:
        """Return the coordinator's own measurements (`controller.load`); empty if it was killed."""
        path = self.out / LOAD_FILE
        told = json.loads(path.read_bytes()) if path.exists() else {}
        return {f"{what}_{key}": value for what, figures in told.items() for key, value in figures.items()}

    def owner_socket(self, host: str) -> Path:
        """Return the path of an agent's socket for its owner."""
        return self.campus.run_dir / f"{host}.sock"

    def switch_pin(self, host: str) -> Path:
        """Return the pinned kill-switch of a host."""
        return self.campus.pin_dir / host / "switch"

    @property
    def leads(self) -> bool:
        """True where the coordinator runs: on one machine of several."""
        return self.campus.spec.coordinator.name in self.campus.plan.host_cables

    @property
    def agent_hosts(self) -> Sequence[Host]:
        """The hosts of the campus that have an agent, on whatever machine."""
        return self.campus.spec.agents(head_stores=self.scenario.protocol.head_stores)

    @property
    def owner_hosts(self) -> Collection[str]:
        """The hosts here that have an owner."""
        return self.habits.states.keys()

    def carries(self, nodes: Iterable[str]) -> bool:
        """Return whether all these nodes are here."""
        plan = self.campus.plan
        return all(node in plan.host_cables or node in plan.bridges for node in nodes)

    # ------------------------------------------------------------ start

    def start_processes(self) -> None:
        """Start the coordinator first, agents after; research flows and the prober last."""
        logs = self.out / "logs"
        for folder in (logs, logs / JOB_LOGS):
            folder.mkdir(parents=True, exist_ok=True)
            folder.chmod(0o700)
        (self.campus.run_dir / LOGS).symlink_to(logs.absolute())
        if self.leads:
            self._start_coordinators()
        if (rehearsed := self._credentials(channel.PartyRole.HOST, "none")) is not None:
            channel.Identity(rehearsed).client  # noqa: B018 - OpenSSL fills its tables once for all processes
        hosts = [host for host in self.agent_hosts if host.name in self.campus.plan.guarded]
        together = self.agents_per_process or (POOL_HOSTS if len(hosts) > POOLS_ABOVE else 1)
        parts = [tuple(hosts[i : i + together]) for i in range(0, len(hosts), together)]
        for part, process in zip(parts, self.campus.fork_all(list(map(self._agents_request, parts))), strict=True):
            first, *others = (host.name for host in part)
            subject = f"agents of {1 + len(others)} hosts, {first} to {others[-1]}" if others else f"agent {first}"
            start = partial(self._start_agents, part)
            self.agents.append(Kept(subject, start, Restarts(RESTART_AFTER_S), process, part))

    def _start_coordinators(self) -> None:
        (self.campus.run_dir / JOURNAL).symlink_to(self.journal.absolute())
        trust = self.scenario.trust
        if trust.journal == "etcd":
            self.log_credentials = log_credentials()
            files = member_files(self.log_credentials)
            for number in range(MEMBERS):
                start = partial(self._start_member, number, files)
                self.members.append(Kept(f"etcd {number}", start, Restarts(RESTART_AFTER_S), start()))
        again_s = BESIDE_ANOTHER_S if trust.standby else COORDINATOR_AFTER_S
        for number, subject in enumerate((COORDINATOR, STANDBY)[: 1 + trust.standby]):
            start = partial(self._start_coordinator, number)
            self.coordinators.append(Kept(subject, start, Restarts(again_s), start()))

    def agent_process(self, host: str) -> ForkedProcess:
        """Return the process of a host's agent, which may be others' too."""
        return next(one.process for one in self.agents if any(host == served.name for served in one.hosts))

    def _start_member(self, number: int, files: tuple[Path, Path]) -> ForkedProcess:
        """Start a member of etcd on the loopback of the coordinator's host, at the coordinator's priority."""
        argv = member(number, ETCD_PORTS, self.data / PROGRAM, files)

        def become() -> None:
            come_first()
            os.execvp(argv[0], argv)

        return self.campus.fork(self.campus.spec.coordinator.name, become, label=PROGRAM, log=self._log(PROGRAM))

    def kill_leader(self, *, of_etcd: bool = False) -> None:
        """Kill the coordinator that leads, and etcd's leader with it. OSError: none leads."""
        with socket.socket(socket.AF_UNIX) as asked:
            asked.connect(str(self.operator_socket))
            pid, _, _ = struct.unpack("iII", asked.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        killed = [next(kept for kept in self.coordinators if kept.process.pid == pid)]
        if of_etcd and self.log_credentials is not None:
            holder = self.campus.kernel.holder_pids[self.campus.spec.coordinator.name]
            with NetworkNamespace.of_process(holder).entered():
                killed.append(self.members[leading(ETCD, self.log_credentials)])
        now_s = time.monotonic()
        for kept in killed:
            kept.process.kill()
            kept.process.wait(END_S)
            self._note_death(kept, now_s)

    def _start_coordinator(self, number: int) -> ForkedProcess:
        """Start a coordinator for the first time, or to go on with its journal; it follows where another one lives."""
        host, openflow, trust = self.campus.spec.coordinator, self.campus.openflow, self.scenario.trust
        journals = (self.journal, self.out / COPY if trust.journal == "etcd" else self.journal)
        config = CoordinatorConfig(
            self.campus.spec,
            self.scenario.protocol,
            self.scenario.queue,
            self.scenario.seed,
            journals[number],
            self.operator_socket,
            str(host.address),
            AGENT_PORT + number,
            started_s=self.started_s,
            secret=self.secret,
            credentials=self._credentials(channel.PartyRole.COORDINATOR, host.name),
            members=ETCD if trust.journal == "etcd" else (),
            log_credentials=self.log_credentials,
            other_journal=journals[1 - number] if trust.journal == "etcd" and trust.standby else None,
            paired=trust.standby,
            follows=any(kept.process.poll() is None for kept in self.coordinators),
            authority=self.authority,
            network_socket=openflow.socket if openflow is not None and openflow.is_ours else None,
            comes_first=True,
        )
        log = self._log((COORDINATOR, STANDBY)[number])
        return self.campus.fork(host.name, partial(_coordinate, config), label=COORDINATOR, log=log)

    def start_research(self) -> None:
        """Start the scenario's research flows, receivers before senders."""
        flows = research.plan_flows(self.campus.spec, self.scenario.research, self.out, self.scenario.seed)
        log, here = self._log("research"), self.campus.plan.host_cables
        for requests in (
            [ForkRequest(f.flow.target, f.receive, "research receiver", log) for f in flows],
            [ForkRequest(f.flow.source, f.send, "research sender", log) for f in flows],
        ):
            self.campus.fork_all([request for request in requests if request.host in here])

    def start_prober(self) -> None:
        """Start the prober outside: on an on-demand host if there is one here, else on the last volunteer, if there is one."""
        hosts = [host for host in self.campus.spec.hosts if host.name in self.campus.plan.host_cables]
        on_demand = [host for host in hosts if host.role is Role.ON_DEMAND]
        if not (places := on_demand or [host for host in hosts if host.role is Role.VOLUNTEER]):
            return
        self.prober_host = places[-1].name
        self.prober, theirs = socket.socketpair()
        with theirs:
            request = ForkRequest(
                self.prober_host, partial(probe.serve, theirs), "prober", self._log("prober"), (theirs.fileno(),)
            )
            self.campus.fork_all([request])

    def _agents_request(self, hosts: tuple[Host, ...]) -> ForkRequest:
        """Return the request for an agent's process in its host's network, or for a pool's in that of its first host."""
        first, kind = hosts[0].name, "agents" if len(hosts) > 1 else "agent"
        holder_pids = self.campus.kernel.holder_pids
        members = [(self._agent_config(host), holder_pids[host.name]) for host in hosts]
        return ForkRequest(first, partial(run_agents, members), kind, self._log(f"{kind}-{first}"))

    def _start_agents(self, hosts: tuple[Host, ...]) -> ForkedProcess:
        return self.campus.fork_all([self._agents_request(hosts)])[0]

    def _agent_config(self, host: Host) -> AgentConfig:
        spec, protocol = self.campus.spec, self.scenario.protocol
        share = self.campus.plan.host_cables[host.name].b.shape.unreserved_bytes_per_s
        return AgentConfig(
            host.name,
            host.address,
            (str(spec.coordinator.address), AGENT_PORT),
            self.data / host.name,
            gpus=host.gpus,
            pin_dir=self.campus.pin_dir / host.name,
            owner_socket=self.owner_socket(host.name),
            owners_gid=self.owners.get(host.name),
            migration_share_bytes_per_s=payload_rate(share),
            checkpoints_apart=policy_of(self.scenario.protocol).borrows,
            enforcement=enforcement_of(self.scenario),
            congestion=protocol.congestion_control,
            snapshots_stop=protocol.snapshots == "stop",
            transfers=self.scenario.trust.transfers,
            standby=(str(spec.coordinator.address), AGENT_PORT + 1) if self.scenario.trust.standby else None,
            job_logs=self.out / "logs" / JOB_LOGS,
            credentials=self._credentials(channel.PartyRole.HOST, host.name),
            group=f"{TOP}/{self.campus.id}/{host.name}",
        )

    def _credentials(self, role: channel.PartyRole, subject: str) -> channel.Credentials | None:
        """Return a new certificate and key of a process; it gets them in its memory."""
        if self.authority is None:
            return None
        authority = Authority.load(self.authority)
        return authority.credentials(channel.Name(authority.campus, role, subject))

    def _log(self, name: str) -> Path:
        return self.out / "logs" / f"{name}.log"

    # ------------------------------------------------------------ watch

    def watch_processes(self) -> None:
        """Note deaths, and start again what died."""
        now_s = time.monotonic()
        for kept in (*self.members, *self.coordinators, *self.agents):
            self._note_death(kept, now_s)
            if kept.restarts.due(now_s):
                kept.process = kept.start()

    def _note_death(self, kept: Kept, now_s: float) -> None:
        if kept.restarts.at_s < inf or kept.process.poll() is None:
            return
        status = kept.process.returncode or 0
        how = f"killed by {signal_name(-status)}" if status < 0 else f"exit status {status}"
        self.deaths.append(Death(now_s - self.started_s, kept.subject, how))
        kept.restarts.died(now_s)

    @contextmanager
    def watched_by_a_thread(self) -> Iterator[None]:
        """Watch the processes while the main thread does something else; the coordinator has ended after."""
        over = threading.Event()

        def watch() -> None:
            while not over.wait(WATCH_PERIOD_S):
                self.watch_processes()
                self.habits.look(calendars=True)
            self.end_coordinator()  # it would die with this thread

        keeper = Keeper(target=watch)
        keeper.start()
        try:
            yield
        finally:
            over.set()
            keeper.join()

    def end_coordinator(self) -> None:
        """Ask all that coordinate to end, so that their journals are whole; kill one that does not."""
        for kept in self.coordinators:
            kept.process.terminate()
        for kept in self.coordinators:
            with suppress(TimeoutError):
                kept.process.wait(END_S)
            kept.process.kill()


def authority_of(scenario: Scenario) -> Path:
    """Return the file of the authority that issues the names of a run. SpecError: it is another campus's."""
    campus, given = domain_of(scenario.campus.name), scenario.trust.authority
    if given is None:
        path = nameless_file()
        Authority.new(campus).save(path)
        return path
    if (found := Authority.load(Path(given)).campus) != campus:
        raise SpecError("trust.authority", given, f"a file for the campus {campus}: this one is for {found}")
    return Path(given).absolute()


def clear(out: Path) -> None:
    """Remove an older run's files from the folder of a run."""
    for old in (
        *out.glob("journal.sqlite*"),
        *out.glob(f"{COPY}*"),
        *out.glob(LOAD_FILE),
        *out.glob("research-*.bin"),
        *out.glob("logs/*.log"),
        *out.glob(f"logs/{JOB_LOGS}/*.log"),
        *out.glob(f"logs/{JOB_LOGS}/*.{SUFFIX}"),
    ):
        old.unlink()


@contextmanager
def live_world(
    scenario: Scenario,
    out: Path,
    *,
    owners: Owners | None = None,
    controller: str | None = None,
    agents_per_process: int | None = None,
    switches_hold: bool = True,
    machine: str | None = None,
) -> Iterator[LiveWorld]:
    """Build a campus and start its coordinator and agents; all of it is gone after.

    `owners`: see `owners_of`. `agents_per_process`: None is one,
    or POOL_HOSTS where there are more than POOLS_ABOVE hosts. `controller`: an OpenFlow controller that programs the
    switches instead of the campus's own (see `LiveCampus`). `switches_hold` False: switches only count migrations and
    have one queue a port, so that nothing but their senders holds them, as in paper A. `machine`: the part that is built here.
    """
    if controller is not None:
        protocol = replace(scenario.protocol, paths=1)  # no controller could report others
        scenario = replace(scenario, protocol=protocol)
    holds = switches_hold and enforcement_of(scenario) is not Enforcement.NONE
    cut = {event.between for event in scenario.events if event.changes.keys() - {"rate_bytes_per_s", "up"}}
    groups = owners_of(scenario.campus, owners or {})
    planned = LiveCampus(
        scenario.campus,
        hold_migrations=holds,
        one_queue=not switches_hold,
        borrows=policy_of(scenario.protocol).borrows,
        controller=controller,
        cut=sorted(cut),
        machine=machine,
    )
    if scenario.trust.journal == "etcd" and shutil.which(PROGRAM) is None:
        raise SetupError(f"{PROGRAM} is missing, and trust.journal asks for it: apt-get install etcd-server")
    require_before_start(planned.plan)  # before an older run's files go, and anything is compiled for half a minute
    out.mkdir(parents=True, exist_ok=True)
    clear(out)
    compile_once()
    rehearse(scenario.protocol.policy)  # each coordinator is forked from here, and need not load that machine code
    build()
    with planned as campus:
        let_owners(campus, groups)
        world = LiveWorld(scenario, campus, out, campus.make_directory(DATA_ROOT), groups, agents_per_process)
        if scenario.trust.transfers != "plain":
            world.authority = authority_of(scenario)
        try:
            world.start_processes()
            world.habits = Habits(scenario, campus, groups, world.started_s)
            yield world
        finally:
            world.end_coordinator()
            if world.prober is not None:
                world.prober.close()


def _coordinate(config: CoordinatorConfig) -> None:
    """Run the coordinator with priority for the processor, the more while it leads: on a campus it has a machine of its own."""
    os.setpriority(os.PRIO_PROCESS, 0, FIRST_NICE)
    run_coordinator(config)


def owners_of(campus: Campus, groups: Owners) -> Owners:
    """Return the group of each host whose members may reclaim and return it, beside root; of a host called "", of all others.

    SpecError: a host is named that has no owner.
    """
    volunteers = [host.name for host in campus.hosts_of(Role.VOLUNTEER)]
    for host in groups:
        if host and host not in volunteers:
            raise SpecError("--group", host, f"one of the hosts that have an owner: {', '.join(volunteers)}")
    named = {host: groups.get(host, groups.get("")) for host in volunteers}
    return {host: gid for host, gid in named.items() if gid is not None}


def let_owners(campus: LiveCampus, owners: Owners) -> None:
    """Let the members of a host's group use its switch."""
    if campus.enforcement:
        for host in owners.keys() & campus.plan.guarded:
            owner.let_group(campus.pin_dir / host / "switch", owners[host])


def live_row(played: Scenario) -> Policy:
    """Return the row of the policy that a live run plays.

    SpecError: no such row, or one that only the virtual world can play.
    """
    row = policy(played.protocol.policy)
    if row.interruption.replication is not None:
        allowed = (
            "a system whose jobs run once: replicas that compute too are modelled in virtual time only (`simulate`)"
        )
        raise SpecError("protocol.policy", played.protocol.policy, allowed)
    return row


def enforcement_of(played: Scenario) -> Enforcement:
    """Return the kernel's enforcement of grants: none for a system that does not ask for it, whatever the scenario has."""
    row = live_row(played)
    return Enforcement(played.protocol.enforcement) if row.enforced else Enforcement.NONE
