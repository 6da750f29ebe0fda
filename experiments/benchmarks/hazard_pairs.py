"""Hosts that leave together: how well `placement.joint_departures` foretells it, by class of the pair, on histories of owners.

At each midnight the estimator says with which probability q another host leaves together with one that is taken back, for each
class of pairs. The day then has n pairs of a class (a departure, another host that was lent just before) of which k leave
together, and the log-likelihood k log q + (n - k) log (1 - q). It is compared with *one number* for all pairs, and with
owners that are taken for *independent*: q = 1 - exp(-2 w h), w being `together_s` and h the rate of departures. Given are
nats a departure more than one number, over the second half of each history.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from controller.core.placement.exposure import EMERGENCY, LEND
from controller.core.placement.hazard import Experience, HazardWindow
from controller.core.placement.joint_departures import CLASSES, TOGETHER, JointWindow
from experiments.benchmarks.hazard_ahead import LEAST
from experiments.benchmarks.hazard_records import DAY_S, HazardRecord

KINDS = ("same switch", "same building", "elsewhere")
INDEPENDENT, ONE, BY_CLASS = "independent", "one number", "by class"
TOGETHER_S = TOGETHER * DAY_S
EVER_S = 1e12  # a window that forgets nothing


def judge_pairs(record: HazardRecord, window_s: float, prior: Experience) -> dict[str, Any]:
    """Judge the second half: departures, what each forecast gains on one number, and by class (pairs, q foretold, q seen)."""
    seen, ever = (JointWindow(w, TOGETHER_S, record.places) for w in (window_s, EVER_S))
    rates = HazardWindow(window_s, prior)
    middle, place, departures = record.days // 2, 0, 0
    nats = dict.fromkeys((INDEPENDENT, ONE, BY_CLASS), 0.0)
    pairs, foretold, joint = (np.zeros(CLASSES) for _ in range(3))
    for day in range(record.days):
        now_s = day * DAY_S
        said = np.array(seen.together(now_s))
        # the share of all pairs that left together, with Jeffreys' prior
        trials, left = (float(sum(of)) for of in seen.counts(now_s))
        one = np.full(CLASSES, (min(left, trials) + 0.5) / (trials + 1.0))
        alone = np.full(CLASSES, -math.expm1(-2.0 * TOGETHER_S * rates.campus(now_s).rate_per_s))
        before = np.array(ever.counts(now_s))
        while place < len(record.events) and record.events[place][0] < now_s + DAY_S:
            at_s, host, what = record.events[place]
            place += 1
            for window in (seen, ever):
                tell = (
                    window.lend if what == LEND else window.depart if what == EMERGENCY else window.withdraw
                )
                tell(host, at_s)
            tell = rates.lend if what == LEND else rates.emergency if what == EMERGENCY else rates.withdraw
            tell(host, at_s)
            departures += what == EMERGENCY and day >= middle
        if day >= middle:
            n, k = np.array(ever.counts(now_s + DAY_S)) - before
            k = np.minimum(n, k)
            for name, q in ((INDEPENDENT, alone), (ONE, one), (BY_CLASS, said)):
                held = np.clip(q, LEAST, 1.0 - LEAST)
                nats[name] += float((k * np.log(held) + (n - k) * np.log1p(-held)).sum())
            pairs, foretold, joint = pairs + n, foretold + said * n, joint + k
    return {
        "departures": departures,
        "gains": {name: (of - nats[ONE]) / max(1, departures) for name, of in nats.items()},
        "classes": {
            kind: {"pairs": int(n), "foretold": float(said / n), "seen": float(k / n)}
            for kind, n, said, k in zip(KINDS, pairs, foretold, joint, strict=True)
            if n > 0
        },
    }
