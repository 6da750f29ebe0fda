"""The figures of a run follow from its journal, and from nothing else."""

import json
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from msgspec import structs

from controller.core.model import facts as f
from experiments.cli.results import status_of
from experiments.results.accounting import quantile, summarise
from experiments.results.rules import Broken
from experiments.results.run_context import ResearchSample, RunContext, SwitchProbe, research_shares
from experiments.results.summary import DIMENSIONS, RunVerdict, Summary, value_of
from experiments.runtime.exit_status import ExitStatus
from tests import run_story
from tests.summary_keys import REQUIRED
from topologies.spec import DirectedLink
from topologies.units import WIRE_PER_PAYLOAD

CONTEXT = run_story.context()


def told(*some: tuple[float, f.AnyFact], context: RunContext = CONTEXT) -> Summary:
    return summarise(some, context)


def submitted(job: str, at_s: float = 0.0) -> tuple[float, f.AnyFact]:
    return at_s, f.JobSubmitted(job, 100, 0.25, 1_000_000)


def dispatched(job: str, attempt: int, host: str, at_s: float, **more: object) -> tuple[float, f.AnyFact]:
    return at_s, f.JobDispatched(job, attempt, host, **more)  # type: ignore[arg-type]


def test_summary_has_every_key_that_is_promised() -> None:
    summary = json.loads(msgspec.json.encode(summarise(run_story.facts(), CONTEXT)))
    for section, keys in REQUIRED.items():
        assert keys <= set(summary[section]), section
    assert summary["invariants_broken"] == []
    assert (summary["world"], summary["scale"], summary["seed"]) == ("live", {"bytes": 1 / 250, "time": 1 / 40}, 1)


@pytest.mark.parametrize(("level", "waited_s", "binds"), [(8.0, 0.2, True), (7.0, 0.2, False), (8.0, 2.9, False)])
def test_a_limit_of_r_that_keeps_jobs_from_waiting_is_said(level: float, waited_s: float, binds: bool) -> None:
    """The target is 1.5 s; one job waits, the other is sent to on-demand at once."""
    facts = (
        submitted("waits"),
        dispatched("waits", 1, "h1", waited_s, cost=1.0, delay_s=waited_s),
        submitted("pays", 5.0),
        (5.0, f.JobRedirected("pays", 8, level)),
        dispatched("pays", 1, "od1", 5.0, cost=10.0, delay_s=0.0),
    )
    said = told(*facts, context=replace(CONTEXT, level_max=8.0)).warnings
    assert any("r_max = 8" in words and "level_max" in words for words in said) == binds


def test_empty_journal_has_figures_without_means() -> None:
    summary = told()
    assert summary.jobs.submitted == 0
    assert summary.cost.mean is None
    assert summary.delay.mean_s is None
    assert summary.rates.worst_goodput_over_grant is None
    assert summary.level is None


def test_job_that_was_stopped_and_forgotten_is_lost() -> None:
    stopped = (2.0, f.JobStopped("a", 1, "h1", "emergency", 5))
    assert told(submitted("a"), dispatched("a", 1, "h1", 1.0), stopped).jobs.lost == 1
    assert told(submitted("a"), dispatched("a", 1, "h1", 1.0), stopped, (2.0, f.JobWaits("a", "full"))).jobs.lost == 0


def test_cost_and_delay_are_means_over_first_dispatches() -> None:
    summary = told(
        dispatched("a", 1, "h1", 1.0, cost=1.0, delay_s=2.0),
        dispatched("b", 1, "od1", 1.0, cost=10.0, delay_s=0.0),
        dispatched("a", 2, "h2", 5.0),
    )
    assert summary.cost.mean == 5.5
    assert summary.delay.mean_s == 1.0
    assert summary.jobs.restarts == 1
    assert summary.jobs.restarts_of == {"a": 1}


def admitted(at_s: float, destination: str = "h2") -> tuple[float, f.AnyFact]:
    return at_s, f.MigrationAdmitted("a", 1, "h1", destination, 4.0, 1_000, 1e6, 1.0, 0.9)


def test_migration_planned_twice_under_one_notice_counts_once() -> None:
    found = told(
        (1.0, f.HostReclaimed("h1", 4.0, False, ["a"])),
        admitted(1.0),
        admitted(2.0, "h3"),
        (4.0, f.MigrationFinished("a", "h1", "h3", True, 3.0, 0.5)),
    ).migrations
    assert (found.planned, found.admitted, found.in_time, found.degraded) == (1, 1, 1, 0)
    assert found.downtime_median_s == 0.5


def emergency(restored: int | None, step: int) -> Summary:
    return told(
        submitted("a"),
        dispatched("a", 1, "h1", 0.0),
        (1.0, f.CheckpointCompleted("a", 7, 4, "h2", 10)),
        (2.0, f.HostReclaimed("h1", 0.0, False, ["a"])),
        (2.0, f.JobStopped("a", 1, "h1", "emergency", 9)),
        (2.0, f.WorkLost("a", 2, "emergency", 9, step, (9 - step) * 0.25)),
        dispatched("a", 2, "h2", 2.0, restore_sequence=restored, restore_step=step),
        (2.5, f.JobRunning("a", 2, "h2", step, "x", restored, 0.5)),
    )


def test_emergency_is_restored_and_verified_only_from_a_completed_checkpoint() -> None:
    good = emergency(7, 4).emergencies
    assert (good.count, good.restored_verified, good.restarted, good.pending) == (1, 1, 0, 0)
    assert good.work_lost_s == 1.25
    assert emergency(7, 5).emergencies.restored_verified == 0
    again = emergency(None, 0).emergencies
    assert (again.restored_verified, again.restarted) == (0, 1)


def test_bytes_and_ratios_come_from_the_senders_accounts() -> None:
    summary = told(
        (1.0, f.TransferFinished("a", 1, "h1", "h2", True, 100, 50, 1.0, 0.98, 0)),
        (2.0, f.TransferFinished("a", 2, "h1", "h2", False, 10, 0, 1.0, None, 3, "cut")),
        (3.0, f.TransferFinished("a", 3, "h1", "h2", True, 30, 70, 1.0, 0.90, 1)),
    )
    assert (summary.checkpoints.bytes_sent, summary.checkpoints.bytes_deduplicated) == (140, 120)
    rates = summary.rates
    assert (rates.flows, rates.worst_goodput_over_grant, rates.bucket_drops) == (2, 0.90, 4)
    assert rates.median_goodput_over_grant == pytest.approx(0.94)


def test_a_transfer_is_held_to_what_was_not_lent_to_it_of_the_reserve() -> None:
    """A stream alone may have all of its link; of two each has half, and research may take its reserve of it at any time."""
    access = CONTEXT.campus.access_link("h1")
    share = CONTEXT.share[DirectedLink("h1", access.b if access.a == "h1" else access.a)]

    def granted(at_s: float, job: str, times: float, kind: str = "presync") -> tuple[float, f.AnyFact]:
        return at_s, f.Granted(job, "h1", "h2", kind, times * share, 0.0, "")

    def sent(at_s: float, job: str, lasted_s: float, ratio: float) -> tuple[float, f.AnyFact]:
        return at_s, f.TransferFinished(job, 1, "h1", "h2", True, 100, 0, lasted_s, ratio, 0)

    alone = granted(0.0, "a", 1.25), sent(2.0, "a", 2.0, 0.72)
    assert told(*alone).rates.worst_goodput_over_guarantee == pytest.approx(0.72 * 1.25)
    # lent a quarter of the first second alone, then half of each grant
    beside = granted(0.0, "a", 1.25), granted(1.0, "b", 0.75), sent(2.0, "a", 2.0, 0.6)
    assert told(*beside).rates.worst_goodput_over_guarantee == pytest.approx(0.6 * 2.5 / 1.625)
    moved = granted(0.0, "a", 1.0), granted(0.0, "b", 0.5, "planned"), sent(1.0, "a", 1.0, 0.4)
    assert told(*moved).rates.worst_goodput_over_guarantee == pytest.approx(0.8)
    assert told(sent(1.0, "a", 1.0, 0.9)).rates.worst_goodput_over_guarantee == pytest.approx(0.9)


def sample(at_s: float, source: str, target: str, wire_bytes_per_s: float) -> ResearchSample:
    return ResearchSample(at_s, 1.0, source, target, 20e6, 6e6, wire_bytes_per_s / WIRE_PER_PAYLOAD)


def test_research_of_one_link_is_added_up_over_its_flows() -> None:
    both = replace(CONTEXT, research=[sample(1.0, "h1", "h2", 4e6), sample(1.0, "h1", "h3", 4e6)])
    assert [s.share for s in research_shares(both)] == pytest.approx([0.4, 0.4])
    apart = replace(CONTEXT, research=[sample(1.0, "h1", "h2", 4e6), sample(2.0, "h1", "h3", 4e6)])
    assert [s.share for s in research_shares(apart)] == pytest.approx([0.2, 0.2])
    assert told(context=both).research.lowest_share == pytest.approx(0.4)


def test_kill_switch_figures_are_those_of_the_probes() -> None:
    probes = (SwitchProbe("h1", 1.0, "isolate", 2e-6, None, 5, 0), SwitchProbe("h2", 2.0, "drain", 4e-6, 0.01, 7, 1))
    found = told(context=replace(CONTEXT, switches=probes)).kill_switch
    assert (found.probes, found.connections_tried, found.connections_admitted) == (2, 12, 1)
    assert (found.set_to_closed_worst_s, found.first_drop_median_s) == (4e-6, 0.01)


def test_real_scale_is_the_played_value_scaled_back_once() -> None:
    summary = summarise(run_story.facts(), CONTEXT)
    assert summary.real_scale["duration_s"] == pytest.approx(75.5 * 40)
    assert summary.real_scale["checkpoints.bytes_sent"] == pytest.approx(summary.checkpoints.bytes_sent * 250)
    assert summary.real_scale["research.reserve_bytes_per_s"] == pytest.approx(6e6 * 250 / 40)
    assert all(value_of(summary, name) is not None for name in summary.real_scale)
    assert set(summary.real_scale) <= set(DIMENSIONS)


@pytest.mark.parametrize(("q", "expected"), [(0.0, 1.0), (0.5, 2.5), (0.9, 3.7), (1.0, 4.0)])
def test_quantiles_interpolate_between_order_statistics(q: float, expected: float) -> None:
    assert quantile([4.0, 1.0, 3.0, 2.0], q) == pytest.approx(expected)
    assert quantile([], q) is None


@pytest.mark.parametrize(
    ("changed", "status"),
    [
        ({}, ExitStatus.KEPT),
        ({"ended": "interrupted"}, ExitStatus.INTERRUPTED),
        ({"fidelity": RunVerdict(False, ["busy"], {})}, ExitStatus.CUT_SHORT),
        ({"fidelity": RunVerdict(False, ["busy"], {}), "invariants_broken": [Broken("a", "b", [])]}, ExitStatus.BROKEN),
    ],
)
def test_the_exit_status_says_whether_a_run_is_to_be_believed(changed: dict[str, Any], status: ExitStatus) -> None:
    kept = summarise([], run_story.context())
    assert status_of(structs.replace(kept, **changed)) is status
