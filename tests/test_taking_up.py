"""A job that had to begin again goes on from a better checkpoint when its holder returns, in rows that do so."""

import pytest

from controller.core.model import facts as f
from controller.core.policies.table import POLICIES
from experiments.inputs.traces import paper_campus
from experiments.inputs.traces.paper_campus import PaperCampus
from experiments.results.losses import work_lost
from experiments.worlds.virtual import VirtualRun, simulate

SEED, DAYS = 2, 10.0
MANY_TOGETHER = PaperCampus(
    burst=20, burst_share=0.6
)  # so that both holders of a job's checkpoints are taken now and then


@pytest.fixture(scope="module")
def run() -> VirtualRun:
    scenario, trace = paper_campus(SEED, days=DAYS, choices=MANY_TOGETHER)
    return simulate(scenario, trace, system="reclaimnet+vault=false")


def test_whoever_takes_up_a_checkpoint_runs_on_from_it(run: VirtualRun) -> None:
    taken_up = [fact for _, fact in run.facts if isinstance(fact, f.WorkTakenUp)]
    assert taken_up
    started = {(fact.job, fact.attempt): fact.step for _, fact in run.facts if isinstance(fact, f.JobRunning)}
    assert all(started[fact.job, fact.attempt] == fact.to_step > fact.from_step for fact in taken_up)


def test_nobody_takes_up_more_than_was_lost(run: VirtualRun) -> None:
    lost = [fact for _, fact in run.facts if isinstance(fact, f.WorkLost)]
    taken_up = [fact for _, fact in run.facts if isinstance(fact, f.WorkTakenUp)]
    left = work_lost(run.facts)
    assert all(one.work_s >= 0.0 for one in left)
    assert sum(one.work_s for one in left) == pytest.approx(
        sum(fact.work_lost_s for fact in lost) - sum(fact.work_s for fact in taken_up)
    )


@pytest.mark.parametrize("row", ["slurm-pr", "no-migration", "static", "bamboo", "reclaimnet-as-printed"])
def test_rows_that_follow_a_paper_do_not(row: str) -> None:
    assert not POLICIES[row].takes_up
