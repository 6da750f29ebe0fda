"""Two summaries side by side: `python plot.py A/summary.json B/summary.json out.svg`."""

import json
import sys
from pathlib import Path

from experiments.results.pictures import canvas, dress

names, lost_h = [], []
for file in map(Path, sys.argv[1:-1]):
    summary = json.loads(file.read_text())
    names.append(file.parent.name)
    lost_h.append(summary["interruptions"]["lost_gpu_s"] / 3600)
# matplotlib's axes; the SVG file is dark where the reader's screen is
with canvas(Path(sys.argv[-1]), rows=1, columns=1, size=(5, 2.5)) as (_, [[axes]]):
    axes.barh(names, lost_h)
    dress(axes, "work lost, GPU-hours", "", grid="x")
