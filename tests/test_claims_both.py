"""The claim in which both papers act: jobs wait, pay and are moved in one run, and its judge can fail."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from experiments.claims.both import queue, queue_runs
from experiments.claims.framework.claim import ClaimKind, ClaimOutcome, Config, Level
from experiments.claims.framework.panels import draw
from experiments.claims.framework.values import Value, Values, read, write
from experiments.claims.framework.verdicts import judge
from experiments.claims.pages import PICTURE
from experiments.claims.registry import CLAIMS

CLAIM = CLAIMS["AB-queue"]


def rows() -> Iterator[Value]:
    for load in queue.LOADS:
        for name in queue.SYSTEMS:
            delay_h = 1.0 if load == queue.LOADS[-1] else 0.1
            for quantity, measured in (("delay", delay_h), ("cost", 1.0 + load), ("in time", 100.0)):
                yield Value(queue.group(load), name, quantity, "", measured, measured, measured, 20)
        pair = f"{queue.LEARNED} - {queue.FIXED}"
        yield Value(queue.group(load), pair, "cost", "", -0.1, -0.1, -0.1, 20)


@pytest.mark.parametrize(
    ("system", "quantity", "measured", "level"),
    [
        (queue.LEARNED, "in time", 100.0, Level.REPRODUCED),
        (queue.LEARNED, "delay", 1.3, Level.NOT_REPRODUCED),
        (queue.LEARNED, "delay", 0.3, Level.ORDERINGS_ONLY),
        (queue.LEARNED, "in time", 90.0, Level.REPRODUCED),  # it holds by construction, and is shown
        (f"{queue.LEARNED} - {queue.FIXED}", "cost", 0.1, Level.NOT_REPRODUCED),
        (queue.CAPPED, "delay", 0.2, Level.REPRODUCED),
    ],
)
def test_one_wrong_number_is_seen(system: str, quantity: str, measured: float, level: Level) -> None:
    most = queue.group(queue.LOADS[-1])
    changed = tuple(
        replace(row, measured=measured, low=measured, high=measured)
        if (row.group, row.system, row.quantity) == (most, system, quantity)
        else row
        for row in rows()
    )
    verdict = judge(CLAIM, Values(changed))
    assert verdict.level is level
    failed = [
        check.text
        for check in verdict.checks
        if check.kind is ClaimKind.BEYOND and check.outcome is ClaimOutcome.FAILS
    ]
    assert ["r_max = 8" in text for text in failed] == ([True] if system == queue.CAPPED else [])


def test_owners_reclaim_while_jobs_are_sent_to_rented_capacity() -> None:
    found = queue_runs.play(queue_runs.LoadedRun("fixed", 2.0, 1, 1.0, 8.0))
    assert found["rented"] > 0.0 and found["cost"] > 1.0 and found["delay_h"] > 0.0
    assert found["reclaims"] + found["admitted"] > 0
    assert found["lost_jobs"] == 0 and found["broken"] == []


def test_the_claim_goes_from_runs_to_values_picture_and_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue, "QUICK_DAYS", 0.15)
    monkeypatch.setattr(queue, "LOADS", (0.3, 0.9))
    place = tmp_path / "AB-queue"
    write(CLAIM.run(Config(place, quick=True, seeds=2)), place)
    draw(read(place), CLAIM.title, CLAIM.panels, place / PICTURE)
    assert (place / PICTURE).read_bytes().startswith(b"<?xml")
    assert judge(CLAIM, read(place)).checks
