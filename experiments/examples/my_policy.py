"""Write a rule for destinations, and play it beside the default under the same owners and jobs.

It prints the work that each loses on some demo campuses, and the paired difference:
`.venv/bin/python -m experiments.examples.my_policy [SEEDS]`.
"""

from __future__ import annotations

import sys
from statistics import mean, stdev

from controller.core.placement.select import Candidates, DestinationChoice, NoDestination, PlacementRequest, able_to_run
from controller.core.policies.table import Policy
from experiments import demo_scenario, simulate


def select_nearest(
    request: PlacementRequest, candidates: Candidates, *, draw: float = 0.0
) -> DestinationChoice | NoDestination:
    """Choose the host with the most bandwidth from the source, however soon its owner may return."""
    able = able_to_run(request, candidates)  # hosts with the GPU, the memory and a path
    if isinstance(able, NoDestination):
        return able
    return able.choice(int(able.columns.bandwidth_bytes_per_s[able.rows].argmax()))


NEAREST = Policy("the host that is reached fastest", select=select_nearest)


def main(seeds: int) -> None:
    """Play both rules with each seed, and compare seed by seed."""
    more = []
    for seed in range(1, seeds + 1):
        lost_s = [
            simulate(demo_scenario(seconds=600.0), policy=policy, seed=seed).summary.interruptions.lost_gpu_s
            for policy in ("reclaimnet", NEAREST)
        ]
        print(f"seed {seed}: reclaimnet loses {lost_s[0]:.1f} s of work, nearest {lost_s[1]:.1f} s")
        more.append(lost_s[1] - lost_s[0])
    spread = 2 * stdev(more) / seeds**0.5 if seeds > 1 else float("nan")
    print(f"nearest loses {mean(more):+.1f} s more, give or take {spread:.1f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
