"""How many migrations each admission rule admits, and whether what it reserved holds (P3).

Three questions: sets of 7 and 15 at one moment on one link of 1 Gbit/s, by the paper campus's notices and by a fitted law;
the same link over time; sets across a campus, next
to the optimum. Laws and judge are in `reclaim_waves`, the link over time in `online_link`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Any

from rich.table import Table

from controller.core.admission import admission as p3
from experiments.benchmarks.online_link import (
    INTERARRIVAL_S,
    NOTED_ADMITTED,
    OnlineLink,
    arrivals,
)
from experiments.benchmarks.reclaim_waves import (
    CAMPUS,
    FITTED,
    LINK,
    NOTED,
    SHARE_BYTES_PER_S,
    WaveLaw,
    across_a_campus,
    most_deliverable,
    on_one_link,
)
from experiments.benchmarks.results import write_result
from experiments.results.pictures import BAD, MUTED, OURS, canvas

RULES: dict[str, p3.Admit] = {
    "EDF, stops": p3.edf_stop,
    "EDF, skips": p3.edf_skip,
    "smallest demand": p3.smallest_demand_first,
    "fluid EDF": p3.fluid_edf,
}
FLOORS_ONLY = "EDF, skips; floors only"
OVER_TIME = (FLOORS_ONLY, *list(RULES)[1:])  # a rule that stops admits one at a time like one that skips
RESAMPLES = 1000
SEEDS = 20


def measure_admission(
    out: Path, *, sets: int = 2000, campus_sets: int = 300, arrivals_a_seed: int = 600
) -> dict[str, Any]:
    """Measure all three; writes admission.json and admission.svg to `out` and returns what the JSON holds. Under a minute."""
    rng = random.Random("admission across a campus")
    waves = [across_a_campus(rng.choice([7, 10, 15]), rng) for _ in range(campus_sets)]
    best = [most_deliverable(requests, share) for requests, share in waves]
    reached = {
        name: [len(admit(requests, 0.0, share, ()).admitted) for requests, share in waves]
        for name, admit in RULES.items()
    }
    result: dict[str, Any] = {
        "law": {**asdict(FITTED), "interarrival_s": INTERARRIVAL_S},
        "law_on_campus": asdict(CAMPUS),
        "link_share_bytes_per_s": SHARE_BYTES_PER_S,
        "at_once": {str(count): _at_once(count, sets, FITTED) for count in NOTED},
        "at_once_on_campus": {str(count): _at_once(count, sets, CAMPUS) for count in NOTED},
        "over_time": {name: _over_time(name, arrivals_a_seed) for name in OVER_TIME},
        "across_campus": {
            "sets": campus_sets,
            "optimum_mean": fmean(best),
            "of_optimum": {name: _ratio(counts, best) for name, counts in reached.items()},
            "optimal_sets": {
                name: fmean(a == b for a, b in zip(n, best, strict=True)) for name, n in reached.items()
            },
        },
    }
    write_result(out / "admission.json", result)
    missed = {name: run["missed"] for name, run in result["over_time"].items()}
    words = ", ".join(f"{name} {count}" for name, count in missed.items())
    title = f"Admission at 87.5 MB/s; deadlines missed over time: {words}"
    with canvas(out / "admission.svg", 1, 5, (18, 4.2), title) as (_, [panels]):
        of_seven = result["at_once_on_campus"]["7"]
        _bars(panels[0], of_seven, "admitted of 7 at once, campus's notices", {})
        for axes, (count, measured) in zip(panels[1:], result["at_once"].items(), strict=False):
            _bars(axes, measured, f"admitted of {count} at once, fitted law", NOTED[int(count)])
        over_time = {name: run["admitted"] for name, run in result["over_time"].items()}
        _bars(panels[3], over_time, "share admitted over time", NOTED_ADMITTED)
        _bars(
            panels[4],
            result["across_campus"]["of_optimum"],
            "share of the optimum (MILP), across a campus",
            {},
        )
    return result


def admission_table(result: dict[str, Any]) -> Table:
    """A rule a row; in brackets the 95 % interval, after it what earlier work found for its own law."""
    title = "Migrations admitted: mean [95 %]; fitted: of a law that was fitted to the figures behind, of earlier work"
    heads = *(f"of {n}, campus's notices" for n in NOTED), *(f"of {n}, fitted" for n in NOTED)
    table = Table("", *heads, "share over time", "missed", "of the optimum", title=title)
    for name in (*list(RULES)[:1], FLOORS_ONLY, *list(RULES)[1:]):
        counts = [
            _words(measured[name], 2, NOTED[int(n)][name]) if name in measured else ""
            for n, measured in result["at_once"].items()
        ]
        of_campus = [
            _words(some[name], 2) if name in some else "" for some in result["at_once_on_campus"].values()
        ]
        online = result["over_time"].get(name)
        over_time = _words(online["admitted"], 3, NOTED_ADMITTED.get(name)) if online else ""
        missed = str(online["missed"]) if online else ""
        reached = result["across_campus"]["of_optimum"].get(name)
        table.add_row(name, *of_campus, *counts, over_time, missed, _words(reached, 3) if reached else "")
    return table


def _words(figure: dict[str, float], digits: int, noted: float | None = None) -> str:
    measured = f"{figure['mean']:.{digits}f} [{figure['low']:.{digits}f}, {figure['high']:.{digits}f}]"
    return measured if noted is None else f"{measured} {noted:.{digits}f}"


# ---------------------------------------------------------------- the three measurements


def _at_once(count: int, sets: int, law: WaveLaw) -> dict[str, Any]:
    rng = random.Random(f"admission at once {count}")
    waves = [on_one_link(count, rng, law) for _ in range(sets)]
    share = {LINK: SHARE_BYTES_PER_S}
    return {
        name: _figure([len(admit(wave, 0.0, share, ()).admitted) for wave in waves])
        for name, admit in RULES.items()
    }


def _over_time(name: str, count: int) -> dict[str, Any]:
    """One rule on the link over time, a run a seed."""
    rule = name.partition(";")[0]
    runs = []
    for seed in range(SEEDS):
        link = OnlineLink(RULES[rule], varies=rule == "fluid EDF", shares_rest=name != FLOORS_ONLY)
        for request in arrivals(count, random.Random(f"admission over time {seed}")):
            link.arrive(request)
        link.finish()
        runs.append(link)
    return {
        "admitted": _figure([run.admitted / count for run in runs]),
        "missed": sum(run.missed for run in runs),
    }


# ---------------------------------------------------------------- intervals


def _figure(values: Sequence[float]) -> dict[str, float]:
    """Mean, and the 95 % percentile bootstrap interval of it."""
    return _bootstrap(len(values), lambda picked: fmean(values[i] for i in picked))


def _ratio(counts: Sequence[int], best: Sequence[int]) -> dict[str, float]:
    return _bootstrap(len(counts), lambda p: sum(counts[i] for i in p) / max(1, sum(best[i] for i in p)))


def _bootstrap(size: int, statistic: Callable[[Sequence[int]], float]) -> dict[str, float]:
    rng = random.Random("bootstrap")
    again = sorted(statistic(rng.choices(range(size), k=size)) for _ in range(RESAMPLES))
    low, high = again[round(0.025 * RESAMPLES)], again[round(0.975 * RESAMPLES) - 1]
    return {"mean": statistic(range(size)), "low": low, "high": high}


# ---------------------------------------------------------------- the picture


def _bars(axes: Any, measured: dict[str, dict[str, float]], title: str, noted: dict[str, float]) -> None:
    names = list(measured)
    means = [measured[name]["mean"] for name in names]
    below = [measured[name]["mean"] - measured[name]["low"] for name in names]
    above = [measured[name]["high"] - measured[name]["mean"] for name in names]
    colors = [OURS if name == "fluid EDF" else MUTED for name in names]
    axes.bar(names, means, yerr=[below, above], color=colors, width=0.65, capsize=3)
    for place, name in enumerate(names):
        axes.annotate(
            f"{means[place]:.3g}",
            (place, measured[name]["high"]),
            xytext=(0, 6),
            textcoords="offset points",
            ha="center",
            fontsize=9,
        )
        if name in noted:
            axes.plot([place - 0.4, place + 0.4], [noted[name]] * 2, color=BAD, linewidth=1.6)
    axes.margins(y=0.22)
    if noted:
        axes.plot([], [], color=BAD, label="earlier work, its own law")
        axes.legend(loc="upper left")
    axes.set_title(title)
    axes.set_xticks(
        range(len(names)), [name.replace("; ", ",\n").replace(" ", "\n", 1) for name in names], fontsize=8
    )
