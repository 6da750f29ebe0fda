"""Play two months of paper A's campus under two systems, and draw where their GPU time went.

It prints the parts of what each lost, and writes `out/two_months.svg`:
`.venv/bin/python -m experiments.examples.two_months [DAYS]`.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from experiments import simulate
from experiments.inputs.scenario import load
from experiments.results.pictures import canvas, dress

SYSTEMS = ("reclaimnet", "slurm-pr")
PARTS = ("emergencies_s", "out_of_reach_s", "notices_s", "pauses_s", "restarts_s", "downtime_s")


def main(days: float) -> None:
    """Play both systems with the same owners and jobs, and draw their losses in stacked bars."""
    paper = load("example:paper-campus")
    share = days * 86_400 / paper.duration_s
    counts = {"jobs": "count", "owners": "count"}  # exactly so many in two months: fewer in fewer days
    parts = {
        of: replace(getattr(paper, of), **{key: round(getattr(getattr(paper, of), key) * share)})
        for of, key in counts.items()
    }
    scenario = replace(paper, duration_s=days * 86_400, **parts)
    lost_h = {}
    for system in SYSTEMS:
        lost = simulate(scenario, policy=system).summary.lost_time
        lost_h[system] = [getattr(lost, part) / 3600 for part in PARTS]
        print(f"{system}: {lost.total_s / 3600:.1f} GPU-hours lost, {lost.useful_s / 3600:.0f} useful")
        print(
            *[f"  {part.removesuffix('_s')}: {hours:.2f}" for part, hours in zip(PARTS, lost_h[system], strict=True)],
            sep="\n",
        )
    out = Path("out/two_months.svg")
    out.parent.mkdir(exist_ok=True)
    with canvas(out, rows=1, columns=1, size=(6, 2.5)) as (_, [[axes]]):
        left = [0.0] * len(SYSTEMS)
        for number, part in enumerate(PARTS):
            widths = [lost_h[system][number] for system in SYSTEMS]
            axes.barh(SYSTEMS, widths, left=left, label=part.removesuffix("_s").replace("_", " "))
            left = [a + b for a, b in zip(left, widths, strict=True)]
        axes.legend(fontsize=7)
        dress(axes, "lost, GPU-hours", "", grid="x")
    print(out)


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 61.0)
