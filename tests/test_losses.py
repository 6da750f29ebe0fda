"""What reclaims cost: every interruption once, with the steps executed that no later attempt kept; summaries say the same."""

from dataclasses import replace

import pytest

from controller.core.model import facts as f
from experiments.inputs.scenario import Scenario
from experiments.inputs.traces import JobArrival, Trace, paper_campus
from experiments.results.history import Timed
from experiments.results.loss_budgets import hours_over_budget
from experiments.results.losses import interruptions, work_lost
from experiments.worlds.virtual import VirtualWorld, simulate
from testbed.messages import SEQUENCES_PER_ATTEMPT, JobSpec
from tests import run_story
from tests.test_oracle_play import half_a_day
from topologies.spec import Role

SUBMITTED = (0.0, f.JobSubmitted("j", 20, 10.0, 1_000))
RUN = [
    SUBMITTED,
    (0.0, f.JobDispatched("j", 1, "h1")),
    (1.0, f.JobRunning("j", 1, "h1", 0, "", None, None)),
    (100.0, f.JobStopped("j", 1, "h1", "emergency", 9)),
    (101.0, f.WorkLost("j", 2, "emergency", 9, 4, 50.0)),
    (101.0, f.JobDispatched("j", 2, "h2", 1, 4)),
    (107.0, f.JobRunning("j", 2, "h2", 4, "", 1, 7.0)),
    (200.0, f.CheckpointTaken("j", 2, 5, 14, 10, True)),
    (205.0, f.JobStopped("j", 2, "h2", "final_checkpoint", 14)),
    (260.0, f.JobDispatched("j", 3, "h3", 5, 14)),
    (261.0, f.JobRunning("j", 3, "h3", 14, "", 5, 61.0)),
    (300.0, f.JobFinished("j", 3, "h3", 20, "")),
]


def test_hours_over_a_loss_budget_are_those_of_intervals_above_twice_it() -> None:
    """Whatever is planned: ten minutes are planned here, and the links carry a checkpoint in twenty."""
    arrivals = [JobArrival(0.0, JobSpec("j", 20, 10.0, 1_000, loss_budget_s=300.0))]
    context = replace(run_story.context(), ended_at_s=9_000.0)
    hosts = {host.role: host.name for host in context.campus.hosts}
    facts: list[Timed] = [(3600.0, f.JobStopped("j", 1, "", "emergency", 9))]
    facts += [(5000.0, f.JobStopped("j", 2, "", "emergency", 9))]
    begun = (
        (0.0, 1, Role.VOLUNTEER),
        (3700.0, 2, Role.ON_DEMAND),
        (5400.0, 3, Role.VOLUNTEER),
        (5400.0, 4, Role.VOLUNTEER),
    )
    facts.append((5400.0, f.ReplicaHeld("j", 4, "h9")))
    for at_s, attempt, role in begun:
        facts.append((at_s, f.JobRunning("j", attempt, hosts[role], 0, "", None, None)))
        facts.append((at_s, f.CheckpointPlanned("j", attempt, "h9", 1e6, 600.0)))
    for at_s in (610.0, 1220.0, 1830.0, 3040.0):  # a snapshot ends its step
        facts.append((at_s, f.CheckpointTaken("j", 1, 0, 0, 10, False)))
    over_h, all_h = hours_over_budget(sorted(facts, key=lambda each: each[0]), arrivals, context)
    assert (over_h, all_h) == pytest.approx(((1210.0 + 3600.0) / 3600.0, 2.0))


def test_an_emergency_loses_what_is_computed_again_and_a_migration_nothing() -> None:
    found = interruptions(RUN)
    assert [(one.at_s, one.cause, one.lost_s, one.downtime_s) for one in found] == [
        (100.0, "emergency", 50.0, 7.0),
        (200.0, "final_checkpoint", 0.0, 61.0),
    ]


@pytest.mark.parametrize("cause", ["superseded", "emergency", "agent_lost"])
def test_what_is_taken_up_later_comes_off_the_loss_however_the_attempt_between_was_ended(cause: str) -> None:
    """20 steps were lost to 0; 3 were done again when the copy of step 18 came back: lost are the 2 after it, and the 3."""
    found = interruptions(
        [
            SUBMITTED,
            (0.0, f.JobDispatched("j", 1, "h1")),
            (200.0, f.JobStopped("j", 1, "h1", "emergency", 20)),
            (200.0, f.JobDispatched("j", 2, "h2")),
            (230.0, f.JobStopped("j", 2, "h2", cause, 3)),
            (230.0, f.JobDispatched("j", 3, "h3", 7, 18)),
        ]
    )
    lost = [(one.at_s, one.cause, one.lost_s) for one in found]
    assert lost[0] == (200.0, "emergency", 50.0)
    assert lost[1:] == ([] if cause == "superseded" else [(230.0, cause, 0.0)])


def test_a_checkpoint_that_is_resumed_from_proves_the_steps_of_the_attempt_that_wrote_it() -> None:
    """The host fell silent at step 10 and had computed up to 14, as its last checkpoint shows: none of that is lost."""
    wrote = 1 * SEQUENCES_PER_ATTEMPT + 3
    [lost] = work_lost(
        [
            SUBMITTED,
            (0.0, f.JobDispatched("j", 1, "h1")),
            (100.0, f.JobStopped("j", 1, "h1", "agent_lost", 10)),
            (150.0, f.JobDispatched("j", 2, "h2", wrote, 14)),
        ]
    )
    assert (lost.steps, lost.work_s) == (0, 0.0)


@pytest.mark.parametrize(("row", "seed"), [("static", 1), ("slurm-pr", 4), ("reclaimnet", 4)])
def test_reported_loss_is_what_the_processes_computed_in_vain(row: str, seed: int) -> None:
    """Many resume from an older and better copy here. A process is looked at after each event: its last step may be missed."""
    reported_is_computed(*half_a_day(seed), row)


def test_all_jobs_of_a_host_that_closes_say_how_far_they_have_come() -> None:
    reported_is_computed(*paper_campus(31, days=4.0), "slurm-pr")


def reported_is_computed(scenario: Scenario, trace: Trace, row: str) -> None:
    computed: dict[tuple[str, int], int] = {}

    def watch(world: VirtualWorld) -> None:
        for machine in world.machines.values():
            for key, process in machine.processes.items():
                if process.alive:
                    computed[key] = process.step(world.now_s) - process.base_step

    run = simulate(scenario, trace, system=row, after_each=watch)
    last = {fact.job: fact for _, fact in run.facts if isinstance(fact, f.JobDispatched)}
    executed = sum(steps for (job, attempt), steps in computed.items() if attempt < last[job].attempt)
    truly = executed - sum(fact.restore_step for fact in last.values())
    lost = work_lost(run.facts)
    assert truly <= sum(one.steps for one in lost) <= truly + len(lost)
    assert sum(one.steps for one in lost) > 0
