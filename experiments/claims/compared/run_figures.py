"""Figures kept of each compared run. Runs are played again when this module changes, but not when the judging does."""

from __future__ import annotations

from typing import Any

from experiments.claims.paper_a.campus_result import online_of
from experiments.inputs.scenario.owners import HOUR_S
from experiments.inputs.traces import Trace
from experiments.results.loss_budgets import hours_over_budget
from experiments.results.lost_time import LostPart
from experiments.worlds.virtual import VirtualRun

GB = 1e9


def figures_of(run: VirtualRun, trace: Trace, days: float) -> dict[str, Any]:
    """Return a run's figures for JSON; seconds of a GPU become hours."""
    summary = run.summary()
    lost = summary.lost_time
    assert run.background is not None
    return {
        "work_lost_h": lost.work_lost_s / HOUR_S,
        "expected_emergencies_h": None
        if lost.expected_emergencies_s is None
        else lost.expected_emergencies_s / HOUR_S,
        "online_h": None if (online_s := online_of(lost)) is None else [each / HOUR_S for each in online_s],
        "lost_h": lost.total_s / HOUR_S,
        "parts_h": {part: getattr(lost, f"{part}_s") / HOUR_S for part in LostPart},
        "useful_h": lost.useful_s / HOUR_S,
        "moved_gb": summary.checkpoints.bytes_sent / GB,
        "submitted": summary.jobs.submitted,
        "finished": summary.jobs.finished,
        "interruptions": summary.interruptions.events,
        "over_budget": hours_over_budget(run.facts, trace.arrivals, run.context.ended_at_s or 0.0),
        "research": run.background.figures(),
        "days": days,
        "broken": sorted({broken.rule for broken in summary.invariants_broken}),
    }
