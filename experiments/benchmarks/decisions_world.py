"""Coordinator in the middle of its work: every host registered, a job running and protected on every second one.

It is the real core with its real state. Only the way there is left out. Registering 50 000 agents and starting as many
jobs by events makes all plans again each time: it takes hours and ends in the same state. A test holds this state to
that of a core that was brought there by its agents' messages. Standbys are drawn among the idle hosts of the whole
campus, so that some take checkpoints of several jobs and trunks are shared: P1 has to divide links, which is its hard
case.
"""

from __future__ import annotations

from random import Random

from controller.core.coordinator import Coordinator
from controller.core.lifecycle.attempts import begin_attempt
from controller.core.lifecycle.grants import open_flow, presync_flow
from controller.core.model import events as ev
from controller.core.model.entities import JobState
from controller.core.parameters import Protocol, Queue
from testbed.messages import Hello, JobSpec
from topologies.files import campus54
from topologies.presets import three_tier
from topologies.spec import Campus

DAY_S = 86_400.0
HISTORY_S = 7 * DAY_S  # how long hosts have been lent and taken back before the measurement
AWAY_S = 2 * 3600.0  # how long an owner keeps a host that he took back
EMERGENCIES_PER_DAY = (0.2, 0.5, 1.0, 2.0)  # of hosts, in turn: paper A sees a coefficient of variation of .62
PAYLOADS_BYTES = (1e9, 8e9)  # state-dicts that fit a loss budget on 1 Gbit/s
LOSS_BUDGETS_S = (600.0, 900.0, 1800.0)
HOSTS_A_BUILDING = 500
PROTOCOL = Protocol(lease_s=1e9)
SEED = 1


def campus_of(hosts: int) -> Campus:
    """Return paper A's campus for 54; else a three-tier one."""
    return campus54() if hosts == 54 else three_tier(hosts, max(4, hosts // HOSTS_A_BUILDING), 2)


def coordinator_at_work(campus: Campus) -> Coordinator:
    """Return a coordinator of this campus at time HISTORY_S, its next tick due at once."""
    rng = Random(SEED)
    core = Coordinator(campus, PROTOCOL, Queue(), rng.random)
    world = core.cluster
    volunteers = [host for host in world.hosts.values() if host.is_volunteer]
    # emergencies of the past, in the order in which they happened
    for host in volunteers:
        world.hazards.lend(host.name, 0.0)
    events: list[tuple[float, str, bool]] = []
    for number, host in enumerate(volunteers):
        rate_per_s = EMERGENCIES_PER_DAY[number % len(EMERGENCIES_PER_DAY)] / DAY_S
        at_s = rng.expovariate(rate_per_s)
        while at_s < HISTORY_S - AWAY_S:
            events += [(at_s, host.name, False), (at_s + AWAY_S, host.name, True)]
            at_s += AWAY_S + rng.expovariate(rate_per_s)
    for at_s, name, returns in sorted(events):
        if returns:
            world.hazards.lend(name, at_s)
        else:
            world.hazards.depart(name, at_s, 0.0)
    world.now_s = HISTORY_S
    for host in world.hosts.values():
        host.data_port = 7200
        host.connected = True
        host.lent = True
        world.lease(host, HISTORY_S + PROTOCOL.lease_s)
    idle = volunteers[1::2]
    # jobs that were started an hour ago, each with a standby that its checkpoints go to
    for number, host in enumerate(volunteers[::2]):
        name, standby = f"job{number + 1}", rng.choice(idle)
        payload_bytes = int(rng.uniform(*PAYLOADS_BYTES))
        spec = JobSpec(name, 360_000, 1.0, payload_bytes, loss_budget_s=rng.choice(LOSS_BUDGETS_S))
        world.jobs.add(job := JobState(spec))
        begin_attempt(world, job, host, None)
        world.advance(job, "offered")
        world.advance(job, "started")
        job.step, job.timer.since_s = 3600, HISTORY_S - 3600.0
        job.standby = standby.name
        open_flow(world, presync_flow(name, host.name, standby.name, 0.0))
    hello = Hello(volunteers[-1].name, 1, 7200, [], [], [], True)
    core.handle(ev.AgentSaid(volunteers[-1].name, hello), HISTORY_S)  # starts the clock
    return core
