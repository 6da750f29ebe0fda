"""How well the state of a host foretells that it will be taken back within the next hours: what P2 asks of a destination.

At each hour of the second half of a history, every host that is lent is taken back within `ahead_s` with probability
1 - exp(-H), H being the expected departures of its level and the hours ahead, times a factor: 1 (`PLAIN`), that of its state at
the moment (`NOW`), or the mean of the states that it passes through (`AHEAD`, `StateFactors.column` with `ahead_s`). What then
happens has the log-likelihood of a coin; a spell that ends otherwise is left out. Given are nats more than `PLAIN`, a spell that
ends so.
"""

from __future__ import annotations

import numpy as np

from controller.core.placement.exposure import EMERGENCY, HOURS, LEND
from controller.core.placement.hazard import Experience, HazardWindow, expected_reclaims
from controller.core.placement.hazard_states import StateFactors
from controller.numerics.jit import survivals
from experiments.benchmarks.hazard_records import DAY_S, HazardRecord

HOURS_AHEAD = (1, 4, 12)  # a short job, the mean spell of a spot zone, most of a day
PLAIN, NOW, AHEAD = "level and hour", "state now", "states ahead"
HOUR_S = DAY_S / HOURS
LEAST = 1e-9  # of a probability: a forecast of never does not lose for ever


def judge_ahead(record: HazardRecord, window_s: float, prior: Experience) -> dict[int, dict[str, float]]:
    """Hours ahead -> nats a departure more than `PLAIN`, on the second half; and the number of departures."""
    window, states = HazardWindow(window_s, prior), StateFactors(window_s, prior, places=record.places)
    # (host, when it was lent) -> (when that ended, how)
    lent_since: dict[str, float] = {}
    ends = {}
    for at_s, host, what in record.events:
        if what == LEND:
            lent_since.setdefault(host, at_s)
        elif host in lent_since:
            ends[host, lent_since.pop(host)] = (at_s, what)
    nats = {hours: dict.fromkeys((PLAIN, NOW, AHEAD), 0.0) for hours in HOURS_AHEAD}
    departures = dict.fromkeys(HOURS_AHEAD, 0)
    since: dict[str, float] = {}
    place = 0
    for hour in range(record.days * HOURS):
        now_s = hour * HOUR_S
        while place < len(record.events) and record.events[place][0] < now_s:
            at_s, host, what = record.events[place]
            place += 1
            if what == LEND:
                window.lend(host, at_s)
                states.lend(host, at_s)
                since.setdefault(host, at_s)
                continue
            (window.emergency if what == EMERGENCY else window.withdraw)(host, at_s)
            (states.depart if what == EMERGENCY else states.withdraw)(host, at_s)
            since.pop(host, None)
        if now_s < record.days // 2 * DAY_S or not since:
            continue
        hosts = list(since)
        levels, profile = window.likely_by_hour(hosts, now_s)
        ended = [ends.get((host, since[host]), (np.inf, EMERGENCY)) for host in hosts]
        end_s, is_departure = (np.array(column) for column in zip(*ended, strict=True))
        for hours in HOURS_AHEAD:
            ahead_s = hours * HOUR_S
            if now_s + ahead_s > record.days * DAY_S:
                continue
            within = end_s < now_s + ahead_s
            taken, known = within & (is_departure == EMERGENCY), ~within | (is_departure == EMERGENCY)
            departures[hours] += int(taken.sum())
            expected = levels * expected_reclaims(profile, now_s % DAY_S, ahead_s)
            for name, factors in (
                (PLAIN, np.ones(len(hosts))),
                (NOW, states.column(hosts, now_s)),
                (AHEAD, states.column(hosts, now_s, ahead_s)),
            ):
                stays = np.clip(survivals(expected * factors), LEAST, 1.0 - LEAST)
                nats[hours][name] += float(np.where(taken, np.log1p(-stays), np.log(stays))[known].sum())
    return {
        hours: {name: (found - of[PLAIN]) / max(1, departures[hours]) for name, found in of.items()}
        | {"departures": departures[hours]}
        for hours, of in nats.items()
    }
