"""Links that change during a run: files, the coordinator's plans, the virtual campus, and judges.

`test_dying_trunks_live` plays such events live.
"""

import random
from dataclasses import replace

import pytest

from controller.core.coordinator import Coordinator
from controller.core.model import effects as do
from controller.core.model import events as ev
from controller.core.model import facts as f
from experiments.inputs.scenario import Scenario
from experiments.inputs.scenario.demo import demo_scenario
from experiments.inputs.scenario.files import dumps, loads
from experiments.inputs.scenario.parts import LinkEvent, ResearchFlow
from experiments.inputs.traces import generate
from experiments.results.link_rates import LinkRates
from experiments.results.rules.network import grants_stay_within_the_share
from experiments.results.run_context import migration_share
from experiments.worlds.virtual.invariants import Invariants
from experiments.worlds.virtual.run import simulate
from testbed.errors import SpecError
from topologies.spec import DirectedLink


def scenario_with(*events: LinkEvent, seconds: float = 60.0, seed: int = 3) -> Scenario:
    return replace(demo_scenario(hosts=6, seconds=seconds, seed=seed), events=events)


def access(scenario: Scenario, host: str = "h1") -> tuple[str, str]:
    link = scenario.campus.access_link(host)
    return link.a, link.b


def test_events_are_written_and_read_as_they_were() -> None:
    scenario = demo_scenario(hosts=6)
    a, b = access(scenario)
    events = (
        LinkEvent(1.5, (a, b), rate_bytes_per_s=1.25e6),
        LinkEvent(2.0, (b, a), delay_s=0.005, jitter_s=0.001, loss=0.01),
        LinkEvent(2.0, (a, b), up=False),
    )
    scenario = replace(scenario, events=events)
    assert loads(dumps(scenario)) == scenario
    assert 'rate = "10 Mbit/s"' in dumps(scenario)


def test_virtual_campus_says_what_it_cannot_play() -> None:
    scenario = scenario_with(LinkEvent(1.0, access(demo_scenario(hosts=6)), delay_s=0.01))
    with pytest.raises(SpecError, match="rate and up"):
        simulate(scenario, generate(scenario))


def test_coordinator_plans_with_the_rates_that_it_is_told() -> None:
    scenario = demo_scenario(hosts=6)
    played = scenario.played()
    core = Coordinator(played.campus, played.protocol, played.queue, lambda: 0.5)
    link = DirectedLink(*access(scenario))
    before = dict(core.cluster.capacity.spendable)
    effects = core.handle(ev.LinksChanged([(*link, 1e6)]), 1.0)
    assert [e.fact for e in effects if isinstance(e, do.Record)] == [f.LinkChanged(*link, 1e6)]
    share = migration_share(played.campus, 1e6)
    assert core.cluster.capacity.share[link] == pytest.approx(share)
    assert core.cluster.capacity.spendable == {**before, link: pytest.approx(0.99 * share)}
    core.handle(ev.LinksChanged([(*link, 0.0)]), 2.0)
    assert core.cluster.capacity.spendable[link] == core.cluster.capacity.reservable[link] == 0.0


def test_judge_goes_by_the_rate_of_the_time() -> None:
    scenario = demo_scenario(hosts=6)
    run = simulate(scenario, generate(scenario))
    campus = run.context.campus
    link = DirectedLink("h1", next(iter({*access(scenario)} - {"h1"})))
    full, least = campus.capacity_bytes_per_s[link], campus.capacity_bytes_per_s[link] / 10.0
    rate = 0.5 * migration_share(campus, full)
    changed, grant = f.LinkChanged(*link, least), f.Granted("j", "h1", "h2", "CS1", rate, 0.0, "")
    assert list(grants_stay_within_the_share([(1.0, grant), (2.0, changed)], run.context)) == []
    (breach,) = list(grants_stay_within_the_share([(1.0, changed), (2.0, grant)], run.context))
    assert breach.subject == str(link)
    back = f.LinkChanged(*link, full)
    assert list(grants_stay_within_the_share([(1.0, changed), (2.0, back), (3.0, grant)], run.context)) == []
    rates = LinkRates(campus, [(1.0, changed), (2.0, back)])
    assert rates.extremes(link, 0.0, 0.5) == (full, full) and rates.extremes(link, 1.5, 1.6) == (least, least)
    assert rates.extremes(link, 0.5, 2.5) == (least, full)


@pytest.mark.parametrize(("system", "seed"), [("reclaimnet", 5), ("reclaimnet-as-printed", 5), ("share", 5)])
def test_random_changes_break_nothing_in_the_virtual_campus(system: str, seed: int) -> None:
    base = demo_scenario(hosts=8, seconds=60.0, seed=seed)
    draws, events, up = random.Random(seed), [], dict[tuple[str, str], bool]()
    for at_s in sorted(draws.uniform(0.0, 0.9 * base.duration_s) for _ in range(30)):
        link = draws.choice(base.campus.links)
        ends = (link.a, link.b)
        if draws.random() < 0.2 and base.campus.coordinator.name not in ends:
            up[ends] = not up.get(ends, True)
            events.append(LinkEvent(at_s, ends, up=up[ends]))
        else:
            rate = link.rate_bytes_per_s * draws.choice([0.05, 0.3, 1.0, 1.5])
            events.append(LinkEvent(at_s, ends, rate_bytes_per_s=rate))
    scenario = replace(base, events=tuple(events))
    run = simulate(scenario, generate(scenario), system=system, after_each=Invariants())
    assert not run.summary().invariants_broken
    assert sum(isinstance(fact, f.LinkChanged) for _, fact in run.facts) == 2 * len(events)


def test_research_is_judged_on_the_link_that_is_narrowest_then() -> None:
    base = demo_scenario(hosts=6, seconds=60.0, seed=2)
    volunteers = [host.name for host in base.volunteers]
    flows = (ResearchFlow(volunteers[1], volunteers[2]),)
    narrow = base.campus.access_link(volunteers[2])
    event = LinkEvent(base.duration_s / 2.0, (narrow.a, narrow.b), rate_bytes_per_s=narrow.rate_bytes_per_s / 4.0)
    # their owners stay away: a host that is closed cuts its flows
    owners = replace(base.owners, loyal=tuple(volunteers[:3]), script=())
    scenario = replace(base, research=flows, events=(event,), owners=owners)
    run = simulate(scenario, generate(scenario))
    late = [s for s in run.context.research if s.narrowest is not None]
    full = scenario.played().campus.access_link(volunteers[2]).rate_bytes_per_s
    assert full / 4.0 in {s.link_capacity_bytes_per_s for s in late} <= {0.0, full / 4.0}
    assert {s.narrowest.target for s in late if s.narrowest} == {volunteers[2]}
    # not judged: the window of the change itself, of each flow
    assert sum(s.link_capacity_bytes_per_s == 0.0 for s in late) <= len(flows)
    assert not run.summary().invariants_broken
