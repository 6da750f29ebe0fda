"""Baselines of paper A in place of P1, P2 and P3 (section IX-A, Appendix C), as far as they are more than a parameter.

**Slurm-PR** (B1'). `--requeue` and a DMTCP image every 10 minutes. In Slurm a job whose node is taken runs until it
is killed. It goes back to the queue in its old place (priority ties go to the lower job id, so before all that were
submitted later). It may not start again for `cred_expire` (slurm.conf: 120 s, "this also controls how long a requeued
job must wait before starting again"). Then it is given the first nodes, in the order of the node table, that can run
it. Images lie on storage that all nodes share: on the best connected host that no owner can reclaim. That is one of
the server room or, in virtual time, the head node, the coordinator's own machine. (Live that machine has no agent:
without a server room it is another node.)

**No-Migration** (B2). Table III gives it no traffic, no downtime, and twice the work loss of the following system. It
checkpoints as rarely as the naive one of Table IV but moves jobs at a notice. So No-Migration's checkpoints exist and
do not travel: a job leaves its state on its host's disk and waits until the owner lends that host again. (To begin
again elsewhere from nothing was tried: it loses a hundred times as much.) The period is Table IV's 30 minutes; the
paper names none.

**Bamboo** (B1; Thorpe et al., NSDI '23). Each stage of a training pipeline is held twice: the node before it has its
weights and computes it as well, in the pipeline's bubbles. If the node is taken, its shadow goes on with both stages
after a short pause; nothing is read from a disk. Modelled here, for jobs of one GPU:

- a *replica* on another host, which costs a second GPU for as long as it is kept. (Bamboo asks for 1.5 times the
  nodes of a pipeline without redundancy; a pipeline of one stage cannot have half a shadow.) It is in another
  building if possible, as Bamboo puts neighbours into different zones;
- every step takes `SLOWDOWN` more: forward computation twice, backward only at a recovery (its EFLB mode; about 20 %
  for BERT, 10 % for ResNet). A job that has no replica yet computes at the same rate: the pipeline is laid out for
  it;
- the state is sent to a new replica once, as a checkpoint; from then on the replica is in step, because it computes.
  Gradients and activations are not modelled, in any system;
- when the host closes or dies, the replica goes on with the last whole step after `TAKEOVER_S`, and a new replica is
  sought;
- beside that a checkpoint every 10 minutes to the replica's disk, for the case that it can no longer take over. A
  copy of it goes to a third host now and then, as ReclaimNet has (`second_copy`): Bamboo's own lie on remote storage,
  for when both neighbours go. A notice is not used: "provider departure mapped to a preemption event".

**Static** (B3) has that copy, too: the paper does not state where its checkpoints lie, and no row is to lose by less
storage. (To write to the storage alone, as Slurm's row does, was tried: on four seeds of 20 days it lost 11.4
GPU-hours, with copies 9.9.)

Not modelled: pipelines of several stages. So it is open what happens when two neighbours are taken together. It is
also open how a shadow slows later stages down until a new node has joined. A replica keeps up with its job whatever the speed
of its GPU.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from controller.core.placement.select import Candidates, DestinationChoice, NoDestination, PlacementRequest, able_to_run

SLURM_CHECKPOINT_S = 600.0  # DMTCP, every 10 min (paper A, Appendix C)
SLURM_REQUEUE_WAIT_S = 120.0  # slurm.conf(5), AuthInfo=cred_expire
NAIVE_CHECKPOINT_S = 1800.0  # the all-off row of Table IV: "fixed 30-min checkpoint interval"
SLOWDOWN = 0.2  # of a step, by redundant computation (Bamboo's evaluation, BERT; read, not measured)
# to find out, to rerun the backward pass of one step, to connect again: seconds; an assumption
TAKEOVER_S = 5.0


@dataclass(frozen=True, slots=True)
class Replication:
    """Pipeline redundancy: each step takes (1 + `slowdown`) times as long.

    A replica goes on `takeover_s` after the end of its job's host.
    """

    slowdown: float = SLOWDOWN
    takeover_s: float = TAKEOVER_S


@dataclass(frozen=True, slots=True)
class Interruption:
    """The end of an attempt. A job that is not moved at a notice runs until its host closes, and then starts again.

    By default at once, wherever P2 chooses. ValueError: a replica for a job that waits for its own host.
    """

    migrates: bool = False  # P2 and P3 move jobs at a notice
    wait_s: float = 0.0  # for which it may not start again
    stays: bool = False  # it waits for its own host, which alone keeps its checkpoints
    central_store: bool = False  # checkpoints go to a host that no owner can take, where the campus has one
    replication: Replication | None = None  # the standby holds a GPU and computes too, and takes over

    def __post_init__(self) -> None:
        if self.stays and self.replication is not None:
            raise ValueError("stays: without replication")

    def scaled(self, time_scale: float) -> Interruption:
        """Return the same for a scenario whose durations are `time_scale` times the real ones."""
        copy = self.replication
        if copy is not None:
            copy = replace(copy, takeover_s=copy.takeover_s * time_scale)
        return replace(self, wait_s=self.wait_s * time_scale, replication=copy)


def select_first(
    request: PlacementRequest, candidates: Candidates, *, draw: float = 0.0
) -> DestinationChoice | NoDestination:
    """Return the first, in the order of their names, that can run the job: Slurm's node table knows no bandwidths."""
    found = able_to_run(request, candidates)
    return found if isinstance(found, NoDestination) else found.choice(0)


def select_elsewhere(
    request: PlacementRequest, candidates: Candidates, *, draw: float = 0.0
) -> DestinationChoice | NoDestination:
    """Choose uniformly among those in other buildings than the source, if there are any, else among all that can run the job."""
    found = able_to_run(request, candidates)
    if isinstance(found, NoDestination):
        return found
    elsewhere = np.flatnonzero(found.buildings != request.source_building)
    places = elsewhere if len(elsewhere) else np.arange(len(found))
    return found.choice(int(places[int(draw * len(places))]))
