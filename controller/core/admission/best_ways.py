"""Admission (P3) on campuses with several ways between hosts: a way for each migration, then P3 as on a tree.

With k ways for each of n migrations there are k^n choices, and which of them admits most is NP-hard already for migrations that
all have the same deadline (a payload goes over one trunk or the other: partition). So:

1. **Spread.** Pairs of hosts, earliest deadline first, take the first of their ways on which every link stays half empty, each
   migration counted at its minimum rate; if there is none, the way whose fullest link is least full. Half, because a migration
   would rather start half-way through its notice (`migration`), which doubles the rate that it needs. The first way is the
   tree's, so what fits there goes there.
2. **The first ways of all**, if a migration was refused: never fewer are admitted than where there is one path.

What two migrations send from one host to another goes the same way, because a switch tells pairs of hosts apart and not jobs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf

from controller.core.admission.admission import (
    Admission,
    Admit,
    Commitments,
    LinkShares,
    Reason,
    committed_rates,
    minimum_rate,
)
from controller.core.admission.schedule import MigrationRequest
from topologies.paths import Way

Pair = tuple[str, str]  # source, destination
COMFORTABLE = 0.5  # of a link's share: up to here no other way is looked for

Asked = dict[str, MigrationRequest]


def admit_best(
    admit: Admit,
    asked: Mapping[str, MigrationRequest],
    pairs: Mapping[str, Pair],
    ways: Mapping[Pair, Sequence[Way]],
    now_s: float,
    share: LinkShares,
    committed: Commitments,
) -> tuple[Asked, Admission]:
    """Return the requests with the links of their ways, and P3's answer to them. `asked`: requests by key, which is in `pairs`.

    Where no pair has more than one way, which is that of its requests, this is `admit`, asked once.
    """

    def answer(chosen: Mapping[Pair, int]) -> tuple[Asked, Admission]:
        requests = {
            key: replace(request, links=ways[pairs[key]][chosen[pairs[key]]])
            for key, request in asked.items()
        }
        return requests, admit(list(requests.values()), now_s, share, committed)

    if all(len(ways[pair]) == 1 for pair in pairs.values()):
        return dict(asked), admit(list(asked.values()), now_s, share, committed)
    best = answer(spread(asked, pairs, ways, now_s, share, committed))
    if any(refusal.reason is not Reason.NO_TIME for refusal in best[1].refused.values()):
        plain = answer(dict.fromkeys(ways, 0))
        if len(plain[1].admitted) > len(best[1].admitted):
            return plain
    return best


def spread(
    asked: Mapping[str, MigrationRequest],
    pairs: Mapping[str, Pair],
    ways: Mapping[Pair, Sequence[Way]],
    now_s: float,
    share: LinkShares,
    committed: Commitments,
) -> dict[Pair, int]:
    """The place of each pair's way among its ways, by what links carry (see the module)."""
    taken = committed_rates(committed, now_s)
    needed: dict[Pair, float] = {}
    due: dict[Pair, float] = {}
    for key, request in asked.items():
        rate = minimum_rate(
            request.payload_bytes, request.deadline_s - max(now_s, request.start_s), request.restart_s
        )
        pair = pairs[key]
        needed[pair] = needed.get(pair, 0.0) + (rate if rate < inf else 0.0)
        due[pair] = min(due.get(pair, inf), request.deadline_s)

    def fullest(way: Way, rate: float) -> float:
        carried = ((taken.get(link, 0.0) + rate, share[link]) for link in way)
        return max((load / of if of > 0.0 else inf for load, of in carried if load > 0.0), default=0.0)

    chosen = dict.fromkeys(ways, 0)
    for pair in sorted(needed, key=lambda pair: (due[pair], pair)):
        full = [fullest(way, needed[pair]) for way in ways[pair]]
        place = next((n for n, each in enumerate(full) if each <= COMFORTABLE), full.index(min(full)))
        chosen[pair] = place
        for link in ways[pair][place]:
            taken[link] = taken.get(link, 0.0) + needed[pair]
    return chosen
