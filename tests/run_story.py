"""A run that keeps every promise, for tests of accounting, rules and pages: the demo in virtual time, and what a live run would
have measured beside it.
"""

import random
from dataclasses import replace
from functools import cache

from controller.core.model import facts as f
from experiments.inputs.scenario import Scenario, demo_scenario
from experiments.inputs.traces import generate
from experiments.results.run_context import FidelityRecord, ResearchSample, RunContext, SwitchProbe, migration_shares
from experiments.worlds.virtual import simulate
from topologies.scale import Scale
from topologies.spec import Campus, Role
from topologies.units import WIRE_PER_PAYLOAD

SCALE = Scale(bytes=1 / 250, time=1 / 40)
Timed = tuple[float, f.AnyFact]


def scenario(hosts: int = 12, buildings: int = 3, seed: int = 1) -> Scenario:
    """The demo of so many volunteers."""
    return demo_scenario(hosts, buildings, seed=seed)


@cache
def small_campus(hosts: int = 12, buildings: int = 3) -> Campus:
    """The demo's campus, as it is played."""
    return scenario(hosts, buildings).played().campus


def star(*hosts: str, rate: str = "1 Gbit/s", models: str = 'gpu = {memory = "24 GB", compute_capability = 8}') -> str:
    """The end of a scenario's text: its campus of one switch; a host is a name, and its model of GPU if there are several."""
    ends = 'building = "b", link_to = "a", rate'
    volunteers = [[*each.split(), "gpu"][:2] for each in hosts]
    rows = [f'{{name = "{name}", gpu_model = "{model}", {ends} = "{rate}"}},' for name, model in volunteers]
    return "\n".join((
        '[campus]\nname = "star"\nbuildings = ["b"]\nswitches = [{name = "a", tier = "access", building = "b"}]',
        *("hosts = [", f'{{name = "coord", role = "coordinator", {ends} = "{rate}"}},', *rows, "]"),
        f"[campus.gpu_models]\n{models}\n",
    ))  # fmt: skip


@cache
def _played(hosts: int, seed: int) -> tuple[Timed, ...]:
    demo = scenario(hosts, seed=seed)
    return tuple(simulate(demo, generate(demo)).facts)


def facts(hosts: int = 12, seed: int = 1) -> list[Timed]:
    """The journal of the demo."""
    return list(_played(hosts, seed))


def context(campus: Campus | None = None, seed: int = 1, until_s: float = 75.5) -> RunContext:
    """A live run's context that keeps all promises."""
    campus = campus or small_campus()
    rng = random.Random(seed)
    capacity = campus.access_link("h1").rate_bytes_per_s
    reserve = campus.research_reserve.reserve_bytes_per_s(capacity)
    last = f"h{sum(h.role is Role.VOLUNTEER for h in campus.hosts)}"
    research = [
        ResearchSample(
            second + 1.0, 1.0, "h1", last, capacity, reserve, capacity / WIRE_PER_PAYLOAD * rng.uniform(0.42, 0.97)
        )
        for second in range(int(until_s))
    ]
    switches = (
        SwitchProbe("h7", 33.75, "isolate", 1.9e-6, 0.0031, 40, 0),
        SwitchProbe("h10", 45.0, "drain", 2.3e-6, 0.0044, 31, 0),
    )
    verdict = FidelityRecord(True, (), {"cpu_busy": 0.61, "worst_loop_lag_s": 0.011})
    shares = migration_shares(campus)
    made = RunContext(seed, SCALE, campus, shares, 10.0, 1.5, research=research, switches=switches)
    return replace(made, fidelity=verdict, ended_at_s=until_s, borrows=True)
