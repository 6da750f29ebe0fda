"""The cost of sharing an uplink: the work that one more job on a host would lose, and make its neighbours lose, at a reclaim.

The checkpoints of all jobs on a host leave over its uplink. If they share its budget B so that all take equally long, one
takes s = (sum of their payloads)/B, and a reclaim of the host costs job j

    w_j(s) = s + max(A_j, s/beta)/2:

the checkpoint on its way, and half of the interval, which is the one that P1 aims at, A_j = min(sqrt(2 p/lambda), 2 L_max),
unless sending would take more than beta of it (paper A, eq. 9). A job i that comes makes s longer by C_i/B for all, so what it
adds to the loss of one departure, in seconds of work, is

    P_i w_i(s + C_i/B) + sum over j of P_j (T_ij/T_i) (w_j(s + C_i/B) - w_j(s)),      T_ij = min(T_i, T_j)

with P the probability that the notice is too short for what the job needs, so that the departure hurts it, and T the time that
a job still runs: its neighbour is in the way no longer than both are there. For n equal jobs that is P
((n + 1) w(n + 1) - n w(n)), the marginal congestion that Pigou would have each pay. Jobs that count only their own w crowd, since
the least estimated hazard attracts all until its GPUs are full.

Equal times are near P1's allocation (`checkpointing.planner`), which for a single binding link gives b_j in proportion to
sqrt(lambda_j C_j). Further on the job's own times are those of its best way; what it costs others beyond the uplink is left out.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from controller.numerics.arrays import Floats, Mask, Numbers
from controller.numerics.jit import compiled


class Streams(NamedTuple):
    """The jobs whose checkpoints may leave some hosts, a row a job."""

    counts: Mask  # whether they do
    host: Numbers  # its number
    payload_bytes: Floats
    aim_s: Floats  # A_j
    remaining_s: Floats  # T_j
    hurt: Floats  # P_j


def loss_at_reclaim_s(sending_s: Floats, aim_s: Floats | float, beta: float) -> Floats:
    """w: mean work lost at a reclaim, seconds, by a job whose checkpoints take `sending_s` to send."""
    lost: Floats = sending_s + np.maximum(aim_s, sending_s / beta) / 2.0
    return lost


def added_loss_s(
    uplink_bytes_per_s: Floats,
    own_bytes_per_s: Floats,
    streams: Streams,
    payload_bytes: float,
    aim_s: Floats,
    remaining_s: float,
    hurt: Floats,
    beta: float,
) -> Floats:
    """Work, seconds, that one more job would add to the loss of a departure of each host; infinite without an uplink.

    `uplink_bytes_per_s`: each host's budget for checkpoints; `own_bytes_per_s`: what the job would get from there of the way to
    its best standby; `aim_s` and `hurt`: A and P of the job on each host.
    """
    return _added_loss_s(
        uplink_bytes_per_s, own_bytes_per_s, *streams, payload_bytes, aim_s, remaining_s, hurt, beta
    )


@compiled
def aims_s(pauses_s: Floats | float, loss_budget_s: Floats | float, hazard_per_s: Floats) -> Floats:
    """A: the best interval of jobs that a snapshot stops for so long, bandwidth being no matter, within their loss budgets."""
    return np.minimum(np.sqrt(2.0 * pauses_s / hazard_per_s), 2.0 * loss_budget_s)


@compiled
def _lost_s(sending_s: float, aim_s: float, beta: float) -> float:
    """`loss_at_reclaim_s` of one."""
    return sending_s + max(aim_s, sending_s / beta) / 2.0


@compiled
def _added_loss_s(
    uplink_bytes_per_s: Floats,
    own_bytes_per_s: Floats,
    counts: Mask,
    host: Numbers,
    stream_bytes: Floats,
    stream_aim_s: Floats,
    stream_remaining_s: Floats,
    stream_hurt: Floats,
    payload_bytes: float,
    aim_s: Floats,
    remaining_s: float,
    hurt: Floats,
    beta: float,
) -> Floats:
    slowness, streams = 1.0 / uplink_bytes_per_s, np.flatnonzero(counts)
    carried, others_s = np.zeros(len(slowness)), np.zeros(len(slowness))
    for stream in streams:
        carried[host[stream]] += stream_bytes[stream]
    before_s, after_s = carried * slowness, (carried + payload_bytes) * slowness
    for stream in streams:
        there, aim = host[stream], stream_aim_s[stream]
        together = min(1.0, stream_remaining_s[stream] / remaining_s) if remaining_s > 0.0 else 0.0
        more_s = _lost_s(after_s[there], aim, beta) - _lost_s(before_s[there], aim, beta)
        others_s[there] += stream_hurt[stream] * together * more_s
    added = np.full(len(slowness), np.inf)
    for there in range(len(slowness)):
        if own_bytes_per_s[there] > 0.0:
            sending_s = max(after_s[there], payload_bytes / own_bytes_per_s[there])
            added[there] = hurt[there] * _lost_s(sending_s, aim_s[there], beta) + others_s[there]
    return added
