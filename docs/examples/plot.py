"""Two summaries side by side: `python plot.py A/summary.json B/summary.json out.svg`."""

import json
import sys
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt

names, lost_h = [], []
for file in map(Path, sys.argv[1:-1]):
    summary = json.loads(file.read_text())
    names.append(file.parent.name)
    lost_h.append(summary["interruptions"]["lost_gpu_s"] / 3600)
figure, axes = plt.subplots(figsize=(5, 2.5), layout="constrained")
axes.barh(names, lost_h)
axes.set_xlabel("work lost, GPU-hours")
figure.savefig(sys.argv[-1])
