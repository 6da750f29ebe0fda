"""What the benchmarks say on a terminal, a table each. The JSON beside has everything."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rich.table import Table

from experiments.benchmarks.goals import in_ms
from topologies.units import MBIT_PER_S

BASE = "age"  # the controller that others are set beside

VIRTUAL = (
    "jobs",
    "reclaims",
    "flows",
    "processor",
    "of it the run",
    "events/s",
    "memory",
    "sha256 of events.jsonl",
)
WHY_PAPER_DIFFERS = (
    "Paper A's 3 ms and 18 ms are its Fig. 8, whose coordinator, machine and load are not described; its text has Algorithm 1 "
    "at less than 0.1 ms a node, so most of it is likely to be one Python call a node. Here decisions are made on columns, and "
    "nothing that did not change is computed again."
)
DECISIONS = ("tick", "periodic_tick", "ten_reclaims", "p1", "p2", "p2_ten", "p3")
LOST = ("lost_per_s", "lost_to_first", "lost_to_first_where_kept", "stopped_per_s", "stopped_to_second")


def bringup_table(result: Mapping[str, Any]) -> Table:
    """Up and down of ours, of stock Mininet, and of bare namespaces and veths; then where our time goes."""
    table = Table(
        "", "up", "down", "memory of processes", title=f"{result['hosts']} hosts, {result['cpus']} cores"
    )
    for name in ("ours", "stock", "floor"):
        if measured := result.get(name):
            memory = measured.get("process_memory_bytes")
            size = f"{memory / 1e6:.0f} MB" if memory else ""
            table.add_row(name, f"{measured['up_s']:.2f} s", f"{measured['down_s']:.2f} s", size)
    if faster := result.get("times_faster"):
        goal = result["targets"]
        table.add_section()
        table.add_row(
            "stock / ours",
            f"{faster['up']:.1f} (goal {goal['up']:g})",
            f"{faster['down']:.1f} (goal {goal['down']:g})",
        )
    table.add_section()
    for phase, spent_s in sorted(result["ours"]["up_phases_s"].items(), key=lambda item: -item[1]):
        table.add_row(f"  {phase}", f"{spent_s:.3f} s")
    return table


def rates_table(result: Mapping[str, Any]) -> Table:
    """Goodput over grant, least and greatest of the flows, drops, and research's part of what the grants leave."""
    table = Table("setting", "system", "goodput / grant", "bucket drops", "research / rest", "goal")
    for setting, systems in result["settings"].items():
        label = setting
        for name, measured in systems.items():
            ratios = [flow["goodput_over_grant"] for flow in measured["flows"]]
            research = measured.get("research")
            rest = f"{research['goodput_over_rest']:.2f}" if research else ""
            met = "met" if result["verdict"][setting][name] else ""
            spread = f"{min(ratios):.3f}" if len(ratios) == 1 else f"{min(ratios):.3f} - {max(ratios):.3f}"
            table.add_row(label, name, spread, str(measured["bucket_drops"]), rest, met)
            label = ""
        table.add_section()
    return table


def rises_table(result: Mapping[str, Any]) -> Table:
    """How far a flow is behind a grant that follows one of nothing: parked, as ours are, and paced to (almost) nothing."""
    title = f"A grant, nothing for {result['nothing_s']:g} s, the grant again: by how much it is behind half a second's bytes"
    ways = list(result["rises"][0]["behind_s"])
    table = Table("grant", "congestion control", *ways, title=title)
    for rise in result["rises"]:
        grant = f"{rise['grant_bytes_per_s'] / MBIT_PER_S:g} Mbit/s"
        spans = [f"{in_ms(min(rise['behind_s'][way]))} - {in_ms(max(rise['behind_s'][way]))}" for way in ways]
        table.add_row(grant, rise["congestion"], *spans)
    return table


def packets_table(result: Mapping[str, Any]) -> Table:
    """Nanoseconds a packet, the harness taken off."""
    title = f"ns a packet in the kernel; {result['harness_ns']} ns of test harness taken off"
    table = Table("program", "ns", "goal", title=title)
    for name, cost_ns in result["packet_ns"].items():
        table.add_row(name, str(cost_ns), f"< {result['targets_ns'][name.split()[0]]}")
    return table


def decisions_table(result: Mapping[str, Any]) -> Table:
    """Medians and 99th percentiles in ms, a row a size; the published tick and the target beside ours."""
    growth = f"size^{result['growth_exponent']:.2f}, paper A size^{result['paper']['growth_exponent']:.2f}"
    missed = [name for name, met in result["verdict"].items() if not met]
    heads = ("tick", "paper A", "goal", "periodic tick", "10 reclaims", "P1", "P2", "10 x P2", "P3")
    title = f"ms: median (p99). Growth: {growth}"
    caption = "all goals met" if not missed else f"missed: {', '.join(missed)}"
    table = Table("hosts", "jobs", *heads, title=title, caption=caption)
    for hosts, figures in result["sizes"].items():
        spreads = [figures[name] for name in DECISIONS]
        tick, *others = (f"{_ms(spread['median_s'])} ({_ms(spread['p99_s'])})" for spread in spreads)
        paper, goal = (_ms(result[of]["tick_s"].get(hosts)) for of in ("paper", "targets"))
        table.add_row(str(hosts), str(figures["jobs"]), tick, paper, goal, *others)
    return table


def _ms(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1e3:.3g}"


def hazard_table(result: Mapping[str, Any]) -> Table:
    """A row a history, a column a forecast: nats a departure more than the present one on the second half."""
    names = [name for name in result["second"] if name != result["present"]]
    title = (
        f"Second halves: nats a departure more than '{result['present']}' [90 %]; window {result['window_days']:g} days; "
        "chosen: on the first half"
    )
    halves = [
        f"{half} halves: " + ", ".join(f"{name} {result[half][name]:+.0f}" for name in names)
        for half in ("first", "second")
    ]
    is_default = result["best"] == result["default"]
    same = "as the coordinator's" if is_default else f"the coordinator's is {result['default']}"
    caption = "nats, " + "; ".join(halves) + f". Best on the first halves: {result['best']}, {same}"
    table = Table(
        "history", "days", "departures", *names, "chosen", "the truth", title=title, caption=caption
    )
    for record, of in result["records"].items():
        second, chosen = of["second"], of["chosen"]
        cells = [f"{second[name]['each']:+.2f}" for name in names]
        best = second[result["default"]]
        cells[names.index(result["default"])] += f" [{best['low']:+.2f}, {best['high']:+.2f}]"
        truth = f"{second['the truth']['each']:+.2f}" if "the truth" in second else ""
        chose = f"{chosen} {second[chosen]['each']:+.2f}"
        table.add_row(record, str(of["days"]), str(second["departures"]), *cells, chose, truth)
    return table


def pairs_table(result: Mapping[str, Any]) -> Table:
    """A row a history: how likely hosts are to leave together, foretold and seen, by class of the pair."""
    title = "Second halves: P(another host leaves within 300 s of a departure), foretold / seen (pairs)"
    caption = "gains: nats a departure more than one number for all pairs"
    heads = ("same switch", "same building", "elsewhere")
    table = Table(
        "history", "departures", *heads, "by class gains", "independent gains", title=title, caption=caption
    )
    for record, of in result["records"].items():
        pairs = of["pairs"]
        cells = [
            f"{seen['foretold']:.3f} / {seen['seen']:.3f} ({seen['pairs']})" if seen else ""
            for seen in map(pairs["classes"].get, heads)
        ]
        gains = [f"{pairs['gains'][name]:+.2f}" for name in ("by class", "independent")]
        table.add_row(record, str(pairs["departures"]), *cells, *gains)
    return table


def ahead_table(result: Mapping[str, Any]) -> Table:
    """A row a history: what states gain where the question is whether a host is taken back within some hours."""
    records = result["records"]
    hours = list(next(iter(records.values()))["ahead"])
    title = (
        "Second halves: taken back within so many hours? Nats a departure more than level and hour: "
        "states ahead (state now)"
    )
    table = Table("history", *(f"{each} h" for each in hours), title=title)
    for record, of in records.items():
        gains = [of["ahead"][each] for each in hours]
        table.add_row(record, *(f"{g['states ahead']:+.2f} ({g['state now']:+.2f})" for g in gains))
    return table


def cases_table(result: Mapping[str, Any]) -> Table:
    """A row a case and controller: all jobs from a cold start on, then the last half of them."""
    low, high = result["starts"]
    title = (
        f"{result['seeds']} seeds, from r = {low:g} and {high:g}; within: share of seeds at most "
        f"{result['tolerance']:.0%} off; saving: share of what knowing the gap's age can save"
    )
    delay, cost = "delay / delta (within)", "cost (within cost*)"
    heads = (
        delay,
        cost,
        "saving",
        f"last half: {delay}",
        cost,
        "saving",
        f"r learned, for ever: {delay}",
        cost,
    )
    table = Table("case", "controller", *heads, title=title)
    for name, case in result["cases"].items():
        label = f"{name}, {case['jobs']:,} jobs\ndelta {case['delta_h']:g} h, cost* {case['cost_star']:.4g}"
        for controller, of in case["controllers"].items():
            cells = [*_cells(case, of, ""), *_cells(case, of, "last_")]
            if of["learned_cost_within"] is not None:  # else the rule is more than a level
                cells += _cells(case, of, "learned_")
            table.add_row(label, controller, *cells)
            label = ""
        table.add_section()
    return table


def traces_table(result: Mapping[str, Any]) -> Table:
    """A row a record, target delay and controller; intervals are 90 % of the replicates."""
    table = Table(
        *("record", "delta / time between jobs", "controller", "delay / delta", "cost", "cost against fixed"),
        f"mean against {BASE} [95 %]",
        title="Recorded offers, resampled in blocks; `fixed` knows the best r of each replicate in hindsight",
    )
    for name, record in result["traces"].items():
        label = short(name)
        if "left_out" in record:
            table.add_row(label, "", "left out", record["left_out"])
        for share, controllers in record.get("deltas", {}).items():
            for controller, of in controllers.items():
                delay, cost, against = (of[key] for key in ("delay_over_delta", "cost", "cost_against_fixed"))
                over = of["cost_against_age"]
                table.add_row(
                    label,
                    share,
                    controller,
                    f"{delay['mean']:.2f} [{delay['low']:.2f}, {delay['high']:.2f}]",
                    f"{cost['mean']:.2f} [{cost['low']:.2f}, {cost['high']:.2f}]",
                    f"{against['mean']:+.1%} [{against['low']:+.1%}, {against['high']:+.1%}]",
                    f"{over['mean']:+.2%} [{over['low']:+.2%}, {over['high']:+.2%}]",
                )
                label = share = ""
        table.add_section()
    return table


def laws_table(result: Mapping[str, Any]) -> Table:
    """A row a law of offers, target delay and controller; costs of the second half of the jobs."""
    laws = result["laws"]
    prices = list(next(iter(next(iter(laws["laws"].values())).values()))[BASE]["last_costs"])
    table = Table(
        *("offers", "delta", "controller", "delay / delta (worst)", *(f"cost, k = {k}" for k in prices)),
        *("over the bound", f"k = {prices[1]}: more than {BASE} [95 %]"),
        title=f"Laws of offers: {laws['seeds']} seeds, {laws['jobs']:,} jobs; costs of the second half of them",
        caption=f"more than 5 % off delta on average: {'; '.join(laws['beyond']) or 'none'}\n"
        f"dearer than {BASE} for sure: {'; '.join(laws['dearer']) or 'none'}",
    )
    for law, deltas in laws["laws"].items():
        for delta, figures in deltas.items():
            label, words, least = law, f"{delta} h", figures["bound"]
            for name, of in figures.items():
                if name == "bound":
                    continue
                over = of["over_age"]
                table.add_row(
                    label,
                    words,
                    name,
                    f"{of['delay_over_delta']:.3f} ({of['worst_off']:.1%})",
                    *(f"{cost:.3f}" for cost in of["last_costs"].values()),
                    "" if least is None else f"{of['last_costs'][prices[1]] / least - 1.0:+.1%}",
                    "" if name == BASE else f"{over['mean']:+.3f} [{over['low']:+.3f}, {over['high']:+.3f}]",
                )
                label = words = ""
        table.add_section()
    return table


def short(record: str) -> str:
    """Day and place of a record's file: the rest of its path is the same for all, or long."""
    path = Path(record)
    return f"{path.parent.name} {path.stem}".strip()


def _cells(case: Mapping[str, Any], of: Mapping[str, Any], part: str) -> Iterator[str]:
    """Delay over delta and cost, with the share of seeds within tolerance of them, and what of a saving is saved."""
    yield f"{of[f'{part}delay_h']['mean'] / case['delta_h']:.3f} ({of[f'{part}delay_within']:.0%})"
    yield f"{of[f'{part}cost']['mean']:.3f} ({of[f'{part}cost_within']:.0%})"
    if f"{part}saving" in of:
        yield "" if of[f"{part}saving"] is None else f"{of[f'{part}saving']:.0%}"


def virtual_table(result: Mapping[str, Any]) -> Table:
    """A row a run, the goals in the caption."""
    goals = result["targets"]
    lines = [
        f"goals: one system {goals['one_system_cpu_s']:g} s, all {goals['all_systems_cpu_s']:g} s, "
        f"500 hosts for a week {goals['week_of_500_hosts_cpu_s']:g} s, {goals['memory_bytes'] / 1e6:g} MB, "
        f"large campuses at most hosts^{goals['exponent_of_large']:g}"
    ]
    lines.append(f"one system, run by run: {', '.join(f'{s:.1f}' for s in result['one_system_cpu_s'])} s")
    lines.append(f"the same as Python: {result['one_system_as_python']['cpu_s']:.1f} s")
    if result["not_native"] is not None:
        lines.append(f"all as Python, since the machine code could not be built: {result['not_native']}")
    lines += [
        f"grows like {size}^{growth['exponent']:.2f} (R2 {growth['determination']:.3f})"
        for size, growth in result["growth"].items()
        if growth is not None
    ]
    if verdict := result["verdict"]:
        missed = [name for name, met in verdict.items() if not met]
        lines.append("all goals met" if not missed else f"missed: {', '.join(missed)}")
    table = Table("", *VIRTUAL, title="the virtual world", caption="\n".join(lines))
    for name, run in result["systems"].items():
        table.add_row(f"{name}, {run['case']['days']:g} days", *_virtual_cells(run))
    table.add_row("the last with its facts on disk", *_virtual_cells(result["facts_on_disk"]))
    all_s = result["all_systems_cpu_s"]
    table.add_row(f"all {len(result['systems'])} systems", "", "", "", f"{all_s:.1f} s")
    table.add_section()
    for size in ("by_hosts", "by_large"):
        for run in result[size]:
            table.add_row(f"{run['case']['hosts']} hosts, {run['case']['days']:g} days", *_virtual_cells(run))
        table.add_section()
    for run in result["by_flows"]:
        table.add_row(f"{run['case']['jobs']:g} x jobs, {run['case']['days']:g} days", *_virtual_cells(run))
    return table


def _virtual_cells(run: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        str(run["jobs"]),
        str(run["reclaims"]),
        str(run["flows"]),
        f"{run['cpu_s']:.1f} s",
        f"{run['run_s']:.1f} s",
        f"{run['events_per_s']:,.0f}",
        f"{run['memory_bytes'] / 1e6:.0f} MB",
        run["sha256"][:16],
    )


def queue_table(result: Mapping[str, Any]) -> Table:
    """Jobs a second of each simulator, how many jobs it decided otherwise, and how far each mean is from theory."""
    title = f"Paper B's queue, {result['machine']['processor']}, one core, best of {result['rounds']}"
    table = Table(
        "case",
        "simulator",
        "jobs",
        "jobs/s, processor",
        "jobs/s, wall",
        "otherwise",
        "from theory",
        title=title,
    )
    for case, rows in result["speed"].items():
        for place, (name, row) in enumerate(rows.items()):
            rates = (f"{row[key]:,.0f}" for key in ("jobs_per_cpu_s", "jobs_per_s"))
            otherwise = str(row.get("differing_jobs", ""))
            table.add_row(
                case if place == 0 else "",
                name,
                f"{row['jobs']:,}",
                *rates,
                otherwise,
                f"{row['errors']:.2f} SE",
            )
        table.add_section()
    return table


def queue_verdicts(result: Mapping[str, Any]) -> Iterator[str]:
    """One line a goal, one a thing left out."""
    met, goal, worst = result["met"], result["targets"], result["worst"]
    said = {True: "met", False: "missed"}
    yield (
        f"paper's policy, draws included: at least {result['slowest_jobs_per_cpu_s'] / 1e6:.1f} M jobs/s "
        f"(goal {goal['jobs_per_cpu_s'] / 1e6:g} M): {said[met['speed']]}"
    )
    yield (
        f"theory, {len(result['agreement'])} cases: at most {worst['errors']:.2f} SE away, at {worst['family']}, "
        f"{worst['case']} (goal {goal['errors']:g} SE): {said[met['agreement']]}"
    )
    yield from (f"{name} cannot say: {what}" for name, what in result["cannot_say"].items())
    yield from (f"left out, not installed: {name}" for name in result["not_installed"])


def checkpoints_table(result: Mapping[str, Any]) -> Table:
    """P1: a row a setting and planner."""
    heads = (
        "setting",
        "planner",
        "epochs with a broken limit",
        "jobs with one",
        "lost, s/s",
        "to the first",
        "where all is kept",
        "if writes stopped jobs",
        "to the second",
    )
    table = Table(*heads, title=f"P1 on {result['epochs']} random epochs; the default is the first")
    for setting, planners in result["checkpoints"].items():
        label = setting
        for name, of in planners.items():
            shares = (f"{of['epochs_broken']:.0%}", f"{of['jobs_broken']:.0%}")
            lost = (of[key] for key in LOST)
            table.add_row(label, name, *shares, *(f"{value:.3f}" for value in lost))
            label = ""
        table.add_section()
    return table


def destinations_table(result: Mapping[str, Any]) -> Table:
    """P2: a row a rule."""
    heads = ("rule", "under way a job", "moves a job", "more than the first [90 %]")
    table = Table(
        *heads, title=f"P2 on {result['jobs']} random jobs until they are done; the default is the first"
    )
    for name, of in result["destinations"].items():
        more = f"{of['more']:+.1%} [{of['low']:+.1%}, {of['high']:+.1%}]"
        table.add_row(name, f"{of['under_way_s']:.1f} s", f"{of['moves']:.2f}", more)
    return table
