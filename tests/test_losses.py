"""What reclaims cost: every interruption once, with what the next attempt computes again; summaries say the same."""

import pytest

from controller.core import facts as f
from experiments.history import Timed
from experiments.losses import interruptions, losses
from experiments.traces import paper_campus
from experiments.virtual import simulate


def story(*facts: Timed) -> list[Timed]:
    return list(facts)


RUN = story(
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
)


def test_an_emergency_loses_what_is_computed_again_and_a_migration_nothing() -> None:
    found = interruptions(RUN)
    assert [(one.at_s, one.cause, one.lost_s, one.downtime_s) for one in found] == [
        (100.0, "emergency", 50.0, 7.0),
        (200.0, "final_checkpoint", 0.0, 61.0),
    ]


def test_loss_per_event_counts_events_that_lost_nothing() -> None:
    total = losses(interruptions(RUN))
    assert (total.events, total.gpu_h, total.per_event_s) == (2, pytest.approx(50.0 / 3600.0), 25.0)


def test_who_is_not_dispatched_again_is_open_and_has_lost_nothing_yet() -> None:
    [one] = interruptions(RUN[:3])
    assert (one.is_open, one.lost_s, one.downtime_s) == (True, 0.0, None)
    assert not any(one.is_open for one in interruptions(RUN))


def test_what_is_taken_up_later_comes_off_the_loss_and_the_attempt_that_was_stopped_for_it_is_no_event() -> (
    None
):
    """20 steps were lost to 0; 3 were done again when the copy of step 18 came back: lost are the 2 after it, and the 3."""
    found = interruptions(
        story(
            (0.0, f.JobDispatched("j", 1, "h1")),
            (200.0, f.JobStopped("j", 1, "h1", "emergency", 20)),
            (200.0, f.WorkLost("other", 2, "emergency", 9, 0, 90.0)),
            (200.0, f.WorkLost("j", 2, "emergency", 20, 0, 200.0)),
            (200.0, f.JobDispatched("j", 2, "h2")),
            (230.0, f.JobStopped("j", 2, "h2", "superseded", 3)),
            (230.0, f.WorkTakenUp("j", 3, 3, 18, 150.0)),
            (230.0, f.JobDispatched("j", 3, "h3", 7, 18)),
        )
    )
    assert [(one.at_s, one.cause, one.lost_s) for one in found] == [(200.0, "emergency", 50.0)]


def test_nothing_interrupted_has_no_loss_per_event() -> None:
    assert losses(interruptions(RUN[:2])).per_event_s is None


def test_a_summary_has_the_same_losses() -> None:
    scenario, trace = paper_campus(3, days=3.0)
    run = simulate(scenario, trace, system="static")
    total, told = losses(interruptions(run.facts)), run.summary().interruptions
    assert total.events == told.events > 0
    assert (
        told.lost_gpu_s
        == pytest.approx(3600.0 * total.gpu_h)
        == pytest.approx(sum(told.work_lost_s.values()))
    )
    assert told.lost_per_event_s == total.per_event_s
