"""The processes of a live run: one coordinator, one agent a host, research flows, a prober. Made, watched, restarted.

Agents and the coordinator that die are started again after a moment, as a service manager would on a real host: an agent as
often as it dies, the coordinator, which goes on with its journal, `MOST_RESTARTS` times.
"""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from bpf.build import build
from controller.core.settings import Settings
from controller.host import AGENT_PORT
from controller.process import CoordinatorConfig, run_coordinator
from controller.warm_up import compile_once
from experiments.inputs.scenario import Scenario
from experiments.inputs.scenario.settings import enforcement_of
from experiments.results.run_context import Death
from experiments.worlds.live import probe, research
from experiments.worlds.live.operator import SOCKET
from testbed import owner
from testbed.agent.config import AgentConfig
from testbed.agent.host import run_agent
from testbed.emulation.campus import LiveCampus
from testbed.emulation.processes import ForkedProcess, ForkRequest
from testbed.enforcement import Enforcement, payload_rate
from topologies.spec import Host, Role

COORDINATOR = "coordinator"
DATA_ROOT = Path("/var/tmp/reclaimnet")  # checkpoints live on disk, not on a RAM disk such as /run
RESTART_AFTER_S = 1.0
COORDINATOR_AFTER_S = 0.3  # and some time to replay its journal: less than a lease, if that is short
MOST_RESTARTS = 3  # what dies more often than this will die again
END_S = 5.0  # how long the coordinator may take to close its journal


@dataclass
class LiveWorld:
    """A started campus and its processes. `started_s` (CLOCK_MONOTONIC) is time 0 of all records."""

    scenario: Scenario  # as played
    settings: Settings
    campus: LiveCampus
    out: Path
    data: Path
    owners_gid: int | None = None  # the group whose members may reclaim and return, beside root
    started_s: float = field(default_factory=time.monotonic)
    agents: dict[str, ForkedProcess] = field(default_factory=dict)
    coordinator: ForkedProcess | None = None
    flows: list[research.Measured] = field(default_factory=list)
    deaths: list[Death] = field(default_factory=list)
    prober_host: str = ""
    prober: socket.socket | None = None
    _restart_at_s: dict[str, float] = field(default_factory=dict)  # by host

    @property
    def operator_socket(self) -> Path:
        """Where operators find the coordinator."""
        return self.campus.run_dir / SOCKET

    @property
    def journal(self) -> Path:
        """The coordinator's journal."""
        return self.out / "journal.sqlite"

    def owner_socket(self, host: str) -> Path:
        """Where the owner of a host finds its agent."""
        return self.campus.run_dir / f"{host}.sock"

    def switch_pin(self, host: str) -> Path:
        """The pinned kill-switch of a host."""
        return self.campus.pin_dir / host / "switch"

    # ------------------------------------------------------------ start

    def start_processes(self) -> None:
        """Coordinator first, agents after; research flows and the prober last."""
        (self.out / "logs").mkdir(parents=True, exist_ok=True)
        self._start_coordinator()
        hosts = self.campus.spec.agents(head_stores=self.settings.head_stores)
        forked = self.campus.fork_all([self._agent_request(host) for host in hosts])
        self.agents = {host.name: process for host, process in zip(hosts, forked, strict=True)}

    def _start_coordinator(self) -> None:
        """For the first time, or to go on with its journal."""
        host = self.campus.spec.coordinator
        config = CoordinatorConfig(
            self.campus.spec,
            self.settings,
            self.scenario.seed,
            self.journal,
            self.operator_socket,
            str(host.address),
            started_s=self.started_s,
        )
        self.coordinator = self.campus.fork(
            host.name,
            partial(run_coordinator, config),
            label="coordinator",
            log=self._log("coordinator"),
        )

    def start_research(self) -> None:
        """The scenario's research flows, receivers before senders."""
        self.flows = research.plan_flows(self.campus.spec, self.scenario.research, self.out)
        log = self._log("research")
        self.campus.fork_all(
            [ForkRequest(f.flow.target, f.receive, "research receiver", log) for f in self.flows]
        )
        self.campus.fork_all([ForkRequest(f.flow.source, f.send, "research sender", log) for f in self.flows])

    def start_prober(self) -> None:
        """The prober outside: on an on-demand host if there is one, else on the last volunteer."""
        hosts = self.campus.spec.hosts
        on_demand = [host for host in hosts if host.role is Role.ON_DEMAND]
        self.prober_host = (on_demand or [h for h in hosts if h.role is Role.VOLUNTEER])[-1].name
        self.prober, theirs = socket.socketpair()
        with theirs:
            request = ForkRequest(
                self.prober_host,
                partial(probe.serve, theirs),
                "prober",
                self._log("prober"),
                (theirs.fileno(),),
            )
            self.campus.fork_all([request])

    def _agent_request(self, host: Host) -> ForkRequest:
        spec, protocol = self.campus.spec, self.scenario.protocol
        share = spec.research_reserve.migration_share_bytes_per_s(
            spec.access_link(host.name).rate_bytes_per_s
        )
        config = AgentConfig(
            host.name,
            host.address,
            (str(spec.coordinator.address), AGENT_PORT),
            self.data / host.name,
            pin_dir=self.campus.pin_dir / host.name,
            owner_socket=self.owner_socket(host.name),
            owners_gid=self.owners_gid,
            migration_share_bytes_per_s=payload_rate(share),
            enforcement=enforcement_of(self.scenario),
            congestion=protocol.congestion_control,
            snapshots_stop=protocol.snapshots == "stop",
        )
        return ForkRequest(host.name, partial(run_agent, config), "agent", self._log(f"agent-{host.name}"))

    def _log(self, name: str) -> Path:
        return self.out / "logs" / f"{name}.log"

    # ------------------------------------------------------------ watch

    def watch_processes(self) -> bool:
        """Note deaths, start again what died; False once the coordinator has died too often."""
        now_s = time.monotonic()
        for host, process in self.agents.items():
            self._note_death(f"agent {host}", host, process, now_s + RESTART_AFTER_S)
        assert self.coordinator is not None
        name = self.campus.spec.coordinator.name
        self._note_death(COORDINATOR, name, self.coordinator, now_s + COORDINATOR_AFTER_S)
        if sum(death.subject == COORDINATOR for death in self.deaths) > MOST_RESTARTS:
            return False
        for host in [host for host, at_s in self._restart_at_s.items() if now_s >= at_s]:
            del self._restart_at_s[host]
            if host == name:
                self._start_coordinator()
            else:
                request = self._agent_request(self.campus.spec.host_by_name[host])
                [self.agents[host]] = self.campus.fork_all([request])
        return True

    def _note_death(self, what: str, host: str, process: ForkedProcess, again_at_s: float) -> None:
        if process.poll() is not None and host not in self._restart_at_s:
            status = process.returncode or 0
            how = f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
            self.deaths.append(Death(time.monotonic() - self.started_s, what, how))
            self._restart_at_s[host] = again_at_s

    def end_coordinator(self) -> None:
        """Ask it to end, so that its journal is whole; kill it if it does not."""
        if self.coordinator is None or self.coordinator.poll() is not None:
            return
        self.coordinator.send_signal(signal.SIGTERM)
        with suppress(TimeoutError):
            self.coordinator.wait(END_S)
        self.coordinator.kill()


@contextmanager
def live_world(
    scenario: Scenario,
    settings: Settings,
    out: Path,
    *,
    owners_gid: int | None = None,
    controller: str | None = None,
) -> Iterator[LiveWorld]:
    """A campus that stands, its coordinator and agents starting; all of it is gone after.

    `owners_gid`: the group whose members may reclaim and return hosts, beside root. `controller`: an OpenFlow controller that
    programs the switches instead of the campus's own (see `LiveCampus`).
    """
    out.mkdir(parents=True, exist_ok=True)
    for old in (*out.glob("journal.sqlite*"), *out.glob("research-*.bin"), *out.glob("logs/*.log")):
        old.unlink()
    compile_once()
    build()
    holds = enforcement_of(scenario) is not Enforcement.NONE
    with LiveCampus(scenario.campus, hold_migrations=holds, controller=controller) as campus:
        let_owners(campus, owners_gid)
        world = LiveWorld(scenario, settings, campus, out, campus.make_directory(DATA_ROOT), owners_gid)
        try:
            world.start_processes()
            yield world
        finally:
            world.end_coordinator()
            if world.prober is not None:
                world.prober.close()


def let_owners(campus: LiveCampus, gid: int | None) -> None:
    """Let a group use the switches of all hosts that have an owner; None: root alone may."""
    if gid is not None and campus.enforcement:
        for host in campus.spec.hosts_of(Role.VOLUNTEER):
            owner.let_group(campus.pin_dir / host.name / "switch", gid)
