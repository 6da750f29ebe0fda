"""Inputs of a decision, shown to a witness at the moment it is made.

A coordinator has none (`Cluster.witness`), and pays one comparison a decision. A replay has one: the core that is handed a
journal's events decides as the one that wrote it did, and its witness records why. A witness changes nothing that it is shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from controller.core.admission.admission import Admission, Commitment
from controller.core.admission.schedule import MigrationRequest
from controller.core.model.entities import JobState
from controller.core.placement.select import (
    Candidates,
    DestinationChoice,
    NoDestination,
    PlacementRequest,
)
from controller.numerics.arrays import Floats, Mask
from topologies.spec import DirectedLink


class Witness(Protocol):
    """Each method is called when its decision has been made, before anything follows from it."""

    def chose_host(
        self,
        purpose: str,
        job: JobState,
        wanted: PlacementRequest,
        found: Candidates,
        choice: DestinationChoice | NoDestination,
    ) -> None:
        """P2, for a `purpose`: destination (of a move), rescue (of its state alone), host (to start or resume on), store
        (of its checkpoints)."""

    def admitted(
        self,
        asked: Sequence[MigrationRequest],
        share: Mapping[DirectedLink, float],
        commitments: Sequence[Commitment],
        answer: Admission,
    ) -> None:
        """P3, of a round of moves; `share` is what may be given out of each link, payload bytes/s."""

    def planned(
        self,
        jobs: Sequence[JobState],
        rates_bytes_per_s: Floats,
        intervals_s: Floats,
        hazards_per_s: Floats,
        infeasible: Mask,
    ) -> None:
        """P1, of all protected jobs."""

    def arrived(self, job: JobState, draw: float, ahead: int, chance: float, age_s: float) -> None:
        """The queue is about to be asked: so many wait, it would be joined with this chance, the last offer was so long ago."""
