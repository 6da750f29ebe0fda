"""GPUs of different speed: what decisions, worlds and accounts make of it, against values by hand."""

from dataclasses import replace

import pytest

from controller.core.checkpointing.planner import plan_alike, plan_each
from controller.core.model import facts as f
from controller.core.placement.select import PlacementRequest, select
from experiments.inputs.scenario import dumps, loads
from experiments.inputs.traces import generate, paper_campus
from experiments.inputs.traces.generated import job_specs
from experiments.results import rules
from experiments.results.history import Timed, attempts
from experiments.results.losses import work_lost
from experiments.worlds.oracle.run import run_oracle
from experiments.worlds.virtual import VirtualRun, simulate
from testbed.messages import SEQUENCES_PER_ATTEMPT
from tests import lives
from tests.checkpoint_jobs import TRUNK, job, plan
from tests.offered_hosts import Candidate, over_hosts
from tests.run_story import star
from topologies.errors import SpecError
from topologies.files import campus54

MODELS = """slow = { memory = "24 GB", compute_capability = 8, speed = 0.5 }
fast = { memory = "24 GB", compute_capability = 8, speed = 4, speeds = { language = 2 } }"""
# h1 is slow, h2 fast; the owner of h2 takes it back after ten minutes, with five minutes of notice
TEXT = f"""
name = "two speeds"
duration = "4 h"
[protocol]
restart = "1 s"
[queue]
level_start = 8
learner = "fixed"
[owners]
script = [{{ at = "600 s", host = "h2", kind = "reclaim", notice = "300 s" }}]
loyal = ["h1"]
[[jobs]]
name = "j"
steps = 400
step = "10 s"
payload = "100 MB"
loss_budget = "60 s"
{star("h1 slow", "h2 fast", models=MODELS)}"""
HOST = Candidate("slow", "b", 1, 24e9, 8.0, 0.0, 1e8, 1.0, mean_migration_s=20.0, expected_reclaims=0.5)
REQUEST = PlacementRequest(None, 1e9, 0.0, 0.0, 3600.0, None, 5.0)


def played(text: str = TEXT, system: str = "reclaimnet") -> VirtualRun:
    scenario = loads(text)
    return simulate(scenario, generate(scenario), system=system)


def test_p1_gives_bandwidth_by_the_root_of_speed() -> None:
    jobs = [replace(job("a"), speed=4.0), job("b")]
    assert plan(plan_each, jobs, {TRUNK: 90.0}).rates_bytes_per_s == pytest.approx([60.0, 30.0])
    assert plan(plan_alike, jobs, {TRUNK: 90.0}).rates_bytes_per_s == pytest.approx([45.0, 45.0])


def test_p2_adds_the_time_by_which_the_rest_takes_longer() -> None:
    """Eq. (11): 1e9/1e8 + 5 s there, 0.5 reclaims of 20 s each; an hour of work is 30 min on the fast GPU, 2 h on the slow."""
    choose = over_hosts(select)
    fast, slow = replace(HOST, host="fast", speed=2.0), replace(HOST, speed=0.5)
    assert choose(REQUEST, [slow]).score_s == pytest.approx(15.0 + 10.0)
    assert choose(REQUEST, [slow, replace(fast, bandwidth_bytes_per_s=1e6)]).score_s == pytest.approx(1005.0 + 10.0)
    near = choose(replace(REQUEST, remaining_s=60.0), [slow, replace(fast, bandwidth_bytes_per_s=1e6)])
    assert (near.host, near.score_s) == ("slow", pytest.approx(15.0 + 10.0 + 60.0 * (2.0 - 0.5)))
    assert choose(REQUEST, [slow, fast], as_printed=True).host == "fast"  # a tie: the first name


def test_a_job_that_moves_from_a_fast_to_a_slow_gpu_ends_when_it_should() -> None:
    run = played()
    first, second = attempts(run.facts)
    [(ended_s, _)] = [timed for timed in run.facts if isinstance(timed[1], f.JobFinished)]
    assert ((first.host, first.speed), (second.host, second.speed)) == (("h2", 4.0), ("h1", 0.5))
    stopped_s, began_s = (first.ended_s or 0.0) - (first.running_s or 0.0), second.running_s or 0.0
    pauses_s = sum(fact.pause_s or 0.0 for _, fact in run.facts if isinstance(fact, f.CheckpointTaken))
    assert first.to_step == pytest.approx(stopped_s / 2.5, abs=2.0)
    assert ended_s - began_s == pytest.approx((400 - first.to_step) * 20.0, abs=2.0 + pauses_s)
    planned_s = [fact.interval_s for _, fact in run.facts if isinstance(fact, f.CheckpointPlanned)]
    assert planned_s[0] == pytest.approx(2 * 60.0)  # a loss budget is seconds of whatever GPU the job has
    summary = run.summary()
    assert not summary.invariants_broken
    assert summary.lost_time.useful_s == pytest.approx(first.to_step * 2.5 + (400 - first.to_step) * 20.0)


def test_who_ignores_speed_starts_on_the_first_host_and_ends_hours_later() -> None:
    blind = played(system="reclaimnet+weighs_speed=false")
    [only] = attempts(blind.facts)
    assert (only.host, only.speed) == ("h1", 0.5)
    of_class = played(TEXT.replace("[campus]", 'workload_class = "language"\n[campus]', 1))
    assert [(each.host, each.speed) for each in attempts(of_class.facts)] == [("h2", 2.0), ("h1", 0.5)]


def test_lost_work_is_counted_in_seconds_of_the_gpus_that_computed_it() -> None:
    """Attempt 2 goes on from step 8 of attempt 1, a GPU of speed 4; 3 begins again from step 4 of attempt 1."""
    first = SEQUENCES_PER_ATTEMPT + 1
    facts: list[Timed] = [
        (0.0, f.JobSubmitted("j", 20, 10.0, 1_000)),
        (0.0, f.JobDispatched("j", 1, "h1", speed=4.0)),
        (0.0, f.JobStopped("j", 1, "h1", "emergency", 10)),
        (0.0, f.JobDispatched("j", 2, "h2", first + 1, 8, speed=0.5)),
        (0.0, f.JobStopped("j", 2, "h2", "emergency", 11)),
        (0.0, f.JobDispatched("j", 3, "h1", first, 4)),
    ]
    assert [each.work_s for each in work_lost(facts)] == [2 * 10.0 / 4.0, 3 * 10.0 / 0.5 + 4 * 10.0 / 4.0]


@pytest.mark.parametrize("system", ["reclaimnet", "reclaimnet+weighs_speed=false", "static"])
def test_accounts_add_up_on_a_campus_of_published_speeds(monkeypatch: pytest.MonkeyPatch, system: str) -> None:
    monkeypatch.setitem(rules.RULES, "lives", lives.RULE)
    scenario, trace = paper_campus(3, days=1.5)
    assert {gpu.speed for gpu in scenario.campus.gpu_models} == {1.0}  # the paper's assumption, by its key
    summary = simulate(replace(scenario, campus=campus54()), trace, system=system).summary()
    assert not summary.invariants_broken
    assert summary.lost_time.reference_total_s != pytest.approx(summary.lost_time.total_s)


def test_speeds_are_written_read_and_checked() -> None:
    read = loads(TEXT)
    assert loads(dumps(read)) == read
    assert loads("equal_speeds = true\n" + TEXT).campus == read.campus.of_equal_speeds
    drawn = job_specs(replace(read.jobs, workload_classes=("language",)), seed=1)
    assert next(drawn).spec().workload_class == "language"
    for key, wrong in (("speed", "speed = 0"), ("speeds", "speeds = { a = 0 }"), ("speeds", "speeds = 2")):
        with pytest.raises(SpecError, match=key):
            loads(TEXT.replace("speed = 0.5", wrong))
    with pytest.raises(SpecError, match="workload_classes"):
        loads(TEXT.replace("[campus]", 'workload_class = "langage"\n[campus]', 1))
    with pytest.raises(SpecError, match="equal_speeds"):
        run_oracle(read, generate(read))
