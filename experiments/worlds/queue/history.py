"""Arrivals drawn piece by piece, so that a run of any length fits in memory and keeps its precision.

Each piece has its own origin: the last job of the one before. Jobs, spots and admission draws have a stream of
random numbers each, so a change of one law leaves the others as they were. SFC64 is numpy's quickest generator.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
from numpy.random import SFC64, Generator, SeedSequence

from controller.numerics.arrays import Floats
from experiments.theory.laws import Law

PIECE: Final = 1 << 14  # arrivals: six arrays of them stay in a core's own cache


class Piece(NamedTuple):
    """Jobs and spots up to the last of the jobs, in hours after the end of the piece before."""

    job_times_h: Floats
    spot_times_h: Floats
    draws: Floats

    @property
    def end_h(self) -> float:
        """The beginning of the next piece."""
        return float(self.job_times_h[-1])

    def first(self, jobs: int) -> Piece:
        """Return the first so many of its jobs (at least one), with the spots up to the last of them."""
        times_h = self.job_times_h[:jobs]
        spots = int(np.searchsorted(self.spot_times_h, times_h[-1], side="right"))
        return Piece(times_h, self.spot_times_h[:spots], self.draws[:jobs])


class DrawnHistory:
    """Jobs, spots and draws of one seed, in order; the origin moves on with every piece."""

    def __init__(self, jobs: Law, spots: Law, seed: int) -> None:
        self._jobs, self._spots = jobs, spots
        self._of_jobs, self._of_spots, self._of_draws = (Generator(SFC64(part)) for part in SeedSequence(seed).spawn(3))
        self._drawn_h: Floats = np.zeros(0)  # spots that are not yet part of a piece
        self._latest_h = 0.0
        self._largest = max(1, int(PIECE * min(1.0, spots.mean / jobs.mean)))

    def pieces(self, jobs: int) -> Iterator[Piece]:
        """Yield the next so many jobs, in pieces of bounded size."""
        for begin in range(0, jobs, self._largest):
            yield self.piece(min(self._largest, jobs - begin))

    def piece(self, jobs: int) -> Piece:
        """Return the next `jobs` jobs (at least one), the spots up to the last of them, and a draw in [0, 1) for each job.

        The time of the last job becomes the origin.
        """
        job_times_h = np.cumsum(self._jobs.sample(self._of_jobs, jobs))
        end_h = float(job_times_h[-1])
        blocks = [self._drawn_h]
        while self._latest_h <= end_h:
            missing = math.ceil(1.02 * (end_h - self._latest_h) / self._spots.mean) + 64
            blocks.append(self._latest_h + np.cumsum(self._spots.sample(self._of_spots, missing)))
            self._latest_h = float(blocks[-1][-1])
        drawn_h = np.concatenate(blocks)
        asked = int(np.searchsorted(drawn_h, end_h, side="right"))
        self._drawn_h, self._latest_h = drawn_h[asked:] - end_h, self._latest_h - end_h
        return Piece(job_times_h, drawn_h[:asked], self._of_draws.random(jobs))
