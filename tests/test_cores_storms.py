"""Seeded fault storms: agents killed, paused and cut off, owners flapping, snapshots, transfers and workloads failing."""

from __future__ import annotations

import pytest

from tests.cores_storm import storm

SEEDS_A_TEST = 10


@pytest.mark.parametrize("first", range(0, 120, SEEDS_A_TEST))
def test_every_job_survives_the_storm_and_every_promise_holds(first: int) -> None:
    for seed in range(first, first + SEEDS_A_TEST):
        storm(seed)


@pytest.mark.parametrize("policy", ["constant-rates", "no-admission", "reclaimnet-as-printed"])
def test_rows_that_differ_in_admission_survive_storms_too(policy: str) -> None:
    for seed in range(200, 208):
        storm(seed, policy)


def test_a_storm_is_the_same_run_for_the_same_seed() -> None:
    assert storm(7).facts == storm(7).facts
