"""An oracle at play in the virtual world: its losses, accounted like everybody's, are what it planned and nobody's are less."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from math import inf
from pathlib import Path

import pytest

from controller.core.admission.admission import Admission, Held
from controller.core.admission.schedule import MigrationRequest
from controller.core.model import facts as f
from controller.core.policies.table import SYSTEMS
from experiments.cli.run import simulate as simulate_command
from experiments.inputs.scenario import InverseLaw, OwnerEvent, ResearchFlow, Scenario, demo_scenario
from experiments.inputs.traces import JobArrival, JobDraw, Trace, generate
from experiments.inputs.traces.paper_campus import paper_campus
from experiments.results.summary import Summary
from experiments.worlds.oracle import OracleRun, run_oracle
from experiments.worlds.oracle.adapters import Columns
from experiments.worlds.oracle.future import ClassBudgets, Future, LinkBudgets, Stay
from experiments.worlds.oracle.problem import Booking, Handover, SchedulePlan
from experiments.worlds.oracle.run import VALID
from experiments.worlds.oracle.transfer_times import TransferTimes
from experiments.worlds.virtual import simulate
from topologies.paths import Routes
from topologies.scale import Scale
from topologies.spec import DirectedLink, Role
from topologies.units import GBIT_PER_S, PAYLOAD_SHARE

HOUR_S = 3600.0
STEP_S = 10.0


def half_a_day(seed: int, *, notice: InverseLaw | None = None) -> tuple[Scenario, Trace]:
    """The demo's campus at real scale, with owners who come and go often, and room for everybody."""
    small = demo_scenario(hosts=9, seed=seed)
    jobs = replace(
        small.jobs,
        initial=0,
        interarrival=InverseLaw("exponential", 3600.0),
        run_time=InverseLaw("lognormal", 2 * HOUR_S, 0.5, 600.0, 5 * HOUR_S),
        payload=InverseLaw("lognormal", 3.2e9, 0.8, 120e6, 20e9),
        step_s=STEP_S,
        dirty_fraction=0.3,
        loss_budget_s=300.0,
    )
    often = notice or InverseLaw("exponential", 120.0, minimum=10.0)
    owners = replace(small.owners, script=(), hazard_per_s=0.6 / HOUR_S, notice=often)
    scenario = replace(
        small, duration_s=12 * HOUR_S, jobs=jobs, owners=owners, scale=Scale(), research=small.research[:1]
    )
    return scenario, generate(scenario)


def lost_s(summary: Summary) -> float:
    return sum(summary.interruptions.work_lost_s.values())


def planned_losses(played: OracleRun) -> list[tuple[str, float | None]]:
    """Return the job of each attempt that an owner ended, and its loss by the plan in force (None: none foresaw it)."""
    found: list[tuple[str, float | None]] = []
    for at_s, fact in played.run.facts:
        if isinstance(fact, f.JobStopped) and fact.cause in ("emergency", "deadline"):
            plan = [window for window in played.windows if window.from_s <= at_s][-1]
            ways = [
                way
                for way in plan.chosen
                if (way.job, way.stay.host) == (fact.job, fact.host) and way.stay.from_s <= at_s
            ]
            last = max(ways, key=lambda way: way.stay.from_s, default=None)
            found.append((fact.job, None if last is None else last.loss_s))
    return found


@pytest.mark.parametrize("seed", [1, 2])
def test_what_is_lost_is_what_was_planned(seed: int) -> None:
    """Work is lost in whole steps, so an end may cost a step more or less than its checkpoint's time."""
    scenario, trace = half_a_day(seed, notice=InverseLaw("deterministic", 15.0))
    played = run_oracle(scenario, trace, until_over=True, against=())
    lost = [(fact.job, fact.work_lost_s) for _, fact in played.run.facts if isinstance(fact, f.WorkLost)]
    ends = planned_losses(played)
    assert len(ends) >= 3
    for job in {name for name, _ in ends}:
        planned = [planned_s for name, planned_s in ends if name == job]
        assert None not in planned
        played_s = sum(each_s for name, each_s in lost if name == job)
        assert played_s == pytest.approx(sum(each for each in planned if each), abs=STEP_S * len(planned))


@pytest.mark.parametrize("seed", [707, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 3, 709))])
def test_what_is_planned_where_others_send_too_is_what_is_played(seed: int) -> None:
    """Background by the hour; jobs that end together, of which one is moved and late for its turn."""
    scenario, trace = paper_campus(seed)
    played = run_oracle(scenario, trace, seed, against=())
    assert played.summary().invariants_broken == []
    planned_s = [loss_s or 0.0 for _, loss_s in planned_losses(played)]
    assert len(planned_s) >= 5
    assert played.lost_s == pytest.approx(sum(planned_s), abs=STEP_S * len(planned_s))
    assert max(planned_s) < 1000.0


def test_a_checkpoint_borrows_what_research_does_not_ask_for() -> None:
    """Alone on its way a state has the whole link; beside flows that ask for all they get, what the reserve leaves."""
    scenario, trace = half_a_day(2)
    hosts = [host.name for host in scenario.campus.hosts_of(Role.VOLUNTEER)]
    ring = tuple(ResearchFlow(*ends) for ends in pairwise([*hosts, hosts[0]]))
    reserve = scenario.campus.research_reserve.beta
    for research, part in (((), 1.0), (ring, 1.0 - reserve)):
        played = run_oracle(replace(scenario, research=research), trace, against=())
        most = max(fact.floor_bytes_per_s for _, fact in played.run.facts if isinstance(fact, f.Granted))
        assert most == pytest.approx(0.99 * part * PAYLOAD_SHARE * GBIT_PER_S)
        assert played.summary().invariants_broken == []


def test_every_promise_is_kept_and_every_window_reports_its_gap() -> None:
    scenario, trace = paper_campus(3, days=2)
    played = run_oracle(scenario, trace)
    assert played.summary().invariants_broken == []
    whole = [window for window in played.windows if not window.amends]
    assert [window.from_s for window in whole] == [0.5 + day * 86_400.0 for day in range(3)]
    assert max(window.gap for window in played.windows) <= 1e-4
    assert all(window.status == "optimal" and window.bound_s <= window.objective_s for window in played.windows)


def test_windows_that_a_time_limit_cuts_off_are_played_all_the_same() -> None:
    scenario, trace = half_a_day(2)
    played = run_oracle(scenario, trace, time_limit_s=1e-6, against=())
    assert played.summary().invariants_broken == []
    assert played.summary().jobs.finished > 0


def test_the_command_prints_the_largest_gap(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate_command("example:lab", policy="oracle", out=tmp_path) == 0
    assert "the largest gap of a window is 0.00%" in " ".join(capsys.readouterr().out.split())
    assert (tmp_path / "summary.json").exists()


LINK, SHARE = DirectedLink("a", "b"), 100.0
STAY, TO = Stay("a", 0.0, 500.0, 500.0), Stay("b", 0.0, inf, inf)
BUDGETS = ClassBudgets(_whole := LinkBudgets([{LINK: SHARE}]), _whole)


def admit_of(plan: SchedulePlan, budgets: ClassBudgets) -> Callable[..., Admission]:
    """P3 of an oracle with this plan."""
    routes = Routes(paper_campus(1, days=0.1)[0].campus)
    return Columns(plan, TransferTimes(routes, budgets, 0.2, 10.0, lambda _: 0.15), lambda: 0.0).admit


def test_checkpoints_are_promises_for_their_time_and_migrations_keep_theirs() -> None:
    """P3 beside a checkpoint that has the link for a while, and a migration that was admitted before."""
    booked = Booking((LINK,), 10.0, 20.0, SHARE)
    plan = SchedulePlan(Future({"a": (STAY,), "b": (TO,)}))
    checkpoint = Handover("j1", STAY, TO, "b", False, (10.0,), 10.0, 10.0, (booked,))
    plan.enter((), [checkpoint, Handover("j2", STAY, TO, "b", True, (), 0.0, 0.0, (booked,))])
    before = [Held("j1:a>b", (LINK,), SHARE), MigrationRequest("j2:a>b", 500.0, 10.0, 0.0, (LINK,))]
    asked = [MigrationRequest("j3", 490.0, 15.0, 0.0, (LINK,)), MigrationRequest("j4", 600.0, 19.0, 0.0, (LINK,))]
    answer = admit_of(plan, BUDGETS)(asked, 0.0, {LINK: SHARE}, before)
    assert set(answer.admitted) == {"j3"}
    assert answer.timetable.spans["j2:a>b"][-1].until_s <= 10.0


def test_checkpoints_take_what_is_lent_before_what_migrations_share() -> None:
    """Two that overlap: of 150 that are lent beside a share of 100 there is enough for one of 120, not for both."""
    link, other, share = DirectedLink("a", "b"), DirectedLink("b", "c"), 100.0
    budgets = ClassBudgets(
        LinkBudgets([dict.fromkeys((link, other), share)]), LinkBudgets([{link: 250.0, other: share}])
    )
    plan, ways = SchedulePlan(Future({})), list[Handover]()
    for job, from_s in (("j1", 0.0), ("j2", 10.0)):
        stay = Stay(job, 0.0, 500.0, 500.0)
        booked = Booking((link,), from_s, from_s + 20.0, 120.0)
        ways.append(Handover(job, stay, None, "b", False, (from_s,), 10.0, 10.0, (booked,)))
    plan.enter((), ways)
    admit = admit_of(plan, budgets)
    # alone 100 for 10 s, beside both 10, beside one 100 again
    for size, due_s, fits in ((990.0, 10.0, True), (1090.0, 20.0, True), (1110.0, 20.0, False), (2090.0, 30.0, True)):
        asked = [MigrationRequest("j3", size, due_s, 0.0, (link, other))]
        assert (set(admit(asked, 0.0, {link: share, other: share}).admitted) == {"j3"}) is fits


def test_a_job_that_is_planned_to_go_by_checkpoint_does_not_take_the_time_of_others() -> None:
    """It could be moved, and is refused: what is planned for others would not fit any more."""
    plan = SchedulePlan(Future({"a": (STAY,), "b": (TO,)}), where={"j1": STAY, "j2": STAY})
    plan.enter(
        (), [Handover("j1", STAY, TO, "b", False, (), 10.0, 10.0), Handover("j2", STAY, TO, "b", True, (), 0.0, 0.0)]
    )
    requests = [MigrationRequest(job, 500.0, 10.0, 0.0, (LINK,)) for job in ("j1", "j2", "j3")]
    answer = admit_of(plan, BUDGETS)(requests, 0.0, {LINK: SHARE})
    assert (set(answer.admitted), set(answer.refused)) == ({"j2", "j3"}, {"j1"})


# ---------------------------------------------------------------- by hand
def one_job(*events: OwnerEvent, payload_bytes: float = 2e9, dirty: float = 0.3) -> tuple[OracleRun, str]:
    """One job of an hour on a campus of nine hosts, whose owners do as told. HOST is the host that it begins on, OTHER0 to OTHER7
    are the others."""
    scenario, _ = half_a_day(1)
    scenario = replace(scenario, duration_s=2 * HOUR_S, research=())
    job = JobDraw("j1", round(payload_bytes), 360, STEP_S, dirty, 2e9, 0.0, 300.0)
    arrivals = (JobArrival(5.0, job),)
    begins = next(
        fact.host
        for _, fact in simulate(scenario, Trace("by hand", arrivals, ())).facts
        if isinstance(fact, f.JobDispatched)
    )
    others = [host.name for host in scenario.campus.hosts_of(Role.VOLUNTEER) if host.name != begins]
    hosts = {"HOST": begins} | {f"OTHER{n}": name for n, name in enumerate(others)}
    events = tuple(replace(event, host=hosts[event.host]) for event in events)
    return run_oracle(scenario, Trace("by hand", arrivals, events), against=()), begins


def of_kind(played: OracleRun, kind: type) -> list[object]:
    return [fact for _, fact in played.run.facts if isinstance(fact, kind)]


@pytest.mark.parametrize(("dirty", "early_s"), [(1.0, 0.5), (0.3, 8.0)])
def test_a_checkpoint_is_complete_just_before_an_emergency(dirty: float, early_s: float) -> None:
    """Of a chain, earlier by a step's bytes (7.3 s): the bound counts the most steps that may be rewritten."""
    played, _ = one_job(OwnerEvent(1800.0, "HOST"), dirty=dirty)
    completed_s = [at_s for at_s, fact in played.run.facts if isinstance(fact, f.CheckpointCompleted)]
    assert 0.0 < 1800.5 - completed_s[-1] < early_s
    (lost,) = of_kind(played, f.WorkLost)
    ((_, planned_s),) = planned_losses(played)
    assert lost.work_lost_s == pytest.approx(planned_s, abs=STEP_S)  # type: ignore[attr-defined]
    assert len(of_kind(played, f.JobFinished)) == 1


def test_a_notice_that_is_long_enough_loses_nothing() -> None:
    played, _ = one_job(OwnerEvent(1800.0, "HOST", "reclaim", 90.0))
    assert lost_s(played.summary()) == 0.0
    assert played.summary().migrations.in_time == 1


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 7))])
def test_a_schedule_keeps_every_promise_and_no_row_that_makes_them_all_loses_less(seed: int) -> None:
    scenario, trace = half_a_day(seed)
    played = run_oracle(scenario, trace)
    assert {"reclaimnet", "random-dst"} <= set(VALID) < set(SYSTEMS) - {"bamboo", "no-tc-bpf", "slurm-pr"}
    assert played.lost_s <= min(
        lost_s(simulate(scenario, trace, system=row).summary()) for row in ("reclaimnet", "random-dst")
    )
    summary = played.summary()
    assert (summary.invariants_broken, summary.not_promised) == ([], {})
