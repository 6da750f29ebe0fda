"""The commands that compare worlds, systems and papers: `compare`, `sweep`, `storm`, `reproduce`."""

from __future__ import annotations

import os
from dataclasses import replace as replaced
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from experiments.cli.options import (
    Dask,
    Json,
    Out,
    Overrides,
    PolicyName,
    PolicyNames,
    Records,
    Seed,
    UntilOver,
    Workers,
    console,
    print_json,
)
from experiments.runtime.exit_status import ExitStatus
from topologies.units import format_rate

if TYPE_CHECKING:
    from experiments.compare.comparison import ComparedQuantity
    from experiments.storms.play import StormFailure
    from experiments.storms.script import Script

PANEL = "Compare"
MOST_TOLD = 20  # promises that were broken
STORMS_A_LINE = 400  # where there is no terminal to draw on
app = typer.Typer()


@app.command(rich_help_panel=PANEL)
def compare(
    scenario: Annotated[str, typer.Argument(help="A scenario file (TOML), or example:NAME.")] = "example:two-worlds",
    seed: Seed = None,
    trace: Records = None,
    out: Out = Path("out/compare"),
    as_json: Json = False,
) -> int:
    """Run a scenario live and in virtual time; compare both, with the times of the machinery's own steps.

    Each has its report; `reclaimnet results OUT OUT/virtual` shows all figures that differ.

    Exit status 0: completion times and downtime within 10 %, rates within 5 %; 1: further apart; 2: it could not be run;
    3: not judged, since the machine did not keep up with the live run.
    """
    import msgspec
    from rich.table import Table

    from experiments.cli.run import described_with_trace
    from experiments.compare.comparison import BOUNDARY
    from experiments.compare.comparison import compare as compared
    from experiments.compare.costs import measure_costs
    from experiments.results import report
    from experiments.results.events_file import write_run
    from experiments.results.live_lines import lines_on
    from experiments.results.provenance import provenance
    from experiments.results.run_context import COMPLETED, INTERRUPTED
    from experiments.worlds.live.run import run_live
    from experiments.worlds.virtual import simulate
    from experiments.worlds.virtual.overheads import costs_of
    from topologies.writing import write_whole

    described, drawn = described_with_trace(scenario, seed, trace or ())
    console.print(f"{described.name}: live, then virtual; {drawn.origin}")
    live = run_live(described, drawn, out, lines_on(console))
    assumed = costs_of(described.played().protocol)
    if live.context.ended == INTERRUPTED:
        return ExitStatus.INTERRUPTED
    measured = measure_costs(live.facts, described.scale.apply(drawn), assumed)
    virtual = simulate(described, drawn, costs=measured.costs, quiet=False)
    usual = simulate(described, drawn, quiet=False)
    judged, beside = compared(live, virtual), compared(live, usual)
    origin = provenance(described)
    for folder, played in ((out, live), (out / "virtual", virtual)):
        report.write(folder, played.summary(), played.facts, played.context, origin)
    write_run(out / "virtual", virtual.facts, virtual.context.campus)
    record = {
        "near": judged.is_near,
        "not_to_be_believed": judged.reasons,
        "jobs": len(judged.jobs),
        "journeys": judged.jobs,
        "same_ways": judged.same_ways,
        "quantities": [_row(quantity) for quantity in judged.quantities],
        "at_usual_costs": [_row(quantity) for quantity in beside.quantities],
        "costs": measured.costs,
        "observations": measured.counts,
        "provenance": origin,
    }
    write_whole(out / "compare.json", msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n")
    table = Table(title=f"{judged.same_ways} of {len(judged.jobs)} jobs went the same way")
    for name in ("", "live", "fitted to it", "difference", "at usual costs", "difference", "allowed"):
        table.add_column(name, justify="right" if name else "left")
    for one, other in zip(judged.quantities, beside.quantities, strict=True):
        table.add_row(
            one.name,
            _told(one.live, one.unit),
            _told(one.virtual, one.unit),
            _difference(one),
            _told(other.virtual, other.unit),
            _difference(other),
            f"{one.tolerance:.0%}",
        )
    console.print(table)
    console.print(BOUNDARY)
    for reason in judged.reasons:
        console.print(Text("not judged:", "yellow"), reason)
    console.print(f"{out / 'report.html'}, {out / 'virtual/report.html'}, {out / 'compare.json'}")
    if as_json:
        print_json({"out": str(out), **record})
    if judged.reasons or live.context.ended != COMPLETED:
        return ExitStatus.CUT_SHORT
    return ExitStatus.KEPT if judged.is_near else ExitStatus.BROKEN


def _row(quantity: ComparedQuantity) -> dict[str, object]:
    import msgspec

    return {**msgspec.to_builtins(quantity), "difference": quantity.difference, "near": quantity.is_near}


def _told(value: float | None, unit: str) -> str:
    """Format a figure in its unit; a dash for None."""
    if value is None:
        return "–"
    if unit == "bytes/s":
        return format_rate(value)
    return f"{value:.2f} s" if unit == "s" else f"{value:.3f}"


def _difference(quantity: ComparedQuantity) -> str | Text:
    if quantity.difference is None:
        return "neither" if quantity.is_near else "one only"
    return Text(f"{quantity.difference:+.1%}", "green" if quantity.is_near else "red")


@app.command(rich_help_panel=PANEL)
def sweep(
    what: Annotated[
        str,
        typer.Argument(
            metavar="SCENARIO|SWEEP.toml",
            help="A scenario file (TOML), or example:NAME; or a file that names one, and the options below.",
        ),
    ],
    policy: PolicyNames = None,
    override: Overrides = None,
    seeds: Annotated[
        str | None, typer.Option(help="20 (from 1 to 20), A:B (from A to B - 1), or some with commas.  [default: 1:7]")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=A,B",
            help="Values of a key of the scenario, such as protocol.checkpoint_share=0.1,0.2; again for each further key.",
        ),
    ] = None,
    trace: Records = None,
    until_over: UntilOver = False,
    figures: Annotated[
        str | None, typer.Option(help="Figures of summary.json that are compared and drawn, with commas.")
    ] = None,
    workers: Workers = None,
    dask: Dask = None,
    out: Out = Path("out/sweep"),
    as_json: Json = False,
) -> int:
    """Play a scenario in virtual time under all policies, seeds and values: tables, intervals, a picture, a page.

    A sweep that was stopped goes on where it was. Exit status 0: every promise was kept; 1: one was broken, or a run had two
    results; 2: it could not be run.
    """
    from rich.table import Table

    from experiments.inputs.seeds import seeds_of
    from experiments.runtime.engines import Engine
    from experiments.runtime.progress import progress_bar
    from experiments.sweeps import run_sweep
    from experiments.sweeps.plan import read_plan, value_of_key
    from experiments.sweeps.result import words_of
    from topologies.errors import SpecError

    varied = [value_of_key(text) for text in set_ or []]
    if len({key for key, _ in varied}) < len(varied):
        raise SpecError("--set", ", ".join(key for key, _ in varied), "each key once, its values with commas")
    plan = read_plan(
        what,
        policies=_words("--policy", policy),
        overrides=override or (),
        seeds=seeds_of(seeds) if seeds is not None else None,
        values=dict(varied),
        records=tuple(map(str, trace or ())),
        until_over=until_over,
        figures=_words("--figures", figures),
    )
    processes = workers or os.cpu_count() or 1
    where = f"the workers of {dask}" if dask else f"{processes} processes"
    console.print(f"{plan.scenario.name}: {len(plan)} runs by {where}")
    with progress_bar(console, "runs", len(plan)) as progress:
        result = run_sweep(plan, Engine(processes, dask), out, progress)
    page = result.write(out)
    keys = result.plan.keys
    table = Table(title=repr(result)[1:-1], title_style="bold")
    for name in ("figure", "policy", *keys):
        table.add_column(name)
    for name in ("mean", "95 %", "difference", "95 %"):
        table.add_column(name, justify="right")
    before = None
    for row in result.rows:
        if before not in (None, row.figure):
            table.add_section()
        table.add_row(
            "" if row.figure == before else words_of(row.figure),
            row.policy,
            *(value for _, value in row.values),
            *(_range(row.figure, *ends) for ends in ((row.mean, None), (row.low, row.high))),
            *(
                _range(row.figure, *ends)
                for ends in ((row.difference, None), (row.difference_low, row.difference_high))
            ),
        )
        before = row.figure
    console.print(table)
    for figure, words in result.winners:
        console.print(f"{figure}: {words}")
    broken = list(result.broken)
    for line in broken[:MOST_TOLD]:
        console.print(Text("broken:", "red"), line)
    if len(broken) > MOST_TOLD:
        console.print(f"and {len(broken) - MOST_TOLD} more")
    console.print(f"{page}, {out / 'runs.csv'}, {out / 'intervals.csv'}")
    if as_json:
        tables = {"runs": result.runs.to_dicts(), "intervals": result.intervals.to_dicts()}
        print_json({"out": str(out), **tables, "winners": dict(result.winners), "broken": broken})
    return ExitStatus.BROKEN if broken else ExitStatus.KEPT


def _words(option: str, text: str | None) -> tuple[str, ...] | None:
    from topologies.errors import SpecError

    words = tuple(word.strip() for word in (text or "").split(",") if word.strip())
    if text is not None and not words:
        raise SpecError(option, text, "names, with commas")
    return words or None


def _range(figure: str, low: float | None, high: float | None) -> str:
    from experiments.results.report.tables import written

    return " to ".join(written(figure, end) for end in (low, high) if end is not None)


@app.command(rich_help_panel=PANEL)
def storm(
    seeds: Annotated[str, typer.Option(help="Storms: 20, from 1 to 20; A:B, from A to B - 1.")] = "0:200",
    seed: Annotated[int | None, typer.Option(min=0, help="Play this storm alone; shorten it if it fails.")] = None,
    replay: Annotated[Path | None, typer.Option(help="Play this script again, and print its story.")] = None,
    campus: Annotated[
        str | None, typer.Option("--campus", help="A campus file (TOML), or example:NAME; random ones if left out.")
    ] = None,
    policy: PolicyName = None,
    override: Overrides = None,
    workers: Workers = None,
    out: Out = Path("out/storm"),
    as_json: Json = False,
) -> int:
    """Play random campuses and faults in virtual time, with every promise checked after every event.

    With --seed, a storm that breaks one is shrunk to a script of a few lines. Exit status 0: all were kept; 1: one was
    broken; 2: it could not be run.
    """
    from controller.core.policies.overrides import parse_overrides, with_overrides
    from controller.user_policies import find_policy
    from controller.warm_up import compile_once
    from experiments.inputs.seeds import seeds_of
    from experiments.runtime.progress import progress_bar
    from experiments.storms.campaign import Campaign, run

    if override:
        policy = with_overrides(policy or "reclaimnet", parse_overrides(override))
    if policy is not None:
        find_policy(policy, "--policy")
    compile_once()
    if replay is not None or seed is not None:
        failure = _reproduce(out, seed or 0, campus, policy) if replay is None else _replay(replay)
        if as_json:
            print_json({"storms": 1, "failed": {f"{replay or seed}": f"{failure}"} if failure else {}})
        return ExitStatus.BROKEN if failure else ExitStatus.KEPT
    chosen = seeds_of(seeds)
    printed: set[int] = set()
    with progress_bar(console, "storms", len(chosen), max(1, len(chosen) // STORMS_A_LINE)) as shown:

        def progress(campaign: Campaign) -> None:
            shown(campaign.storms, len(chosen), f"{len(campaign.failed)} failed")
            for seed in campaign.failed.keys() - printed:
                printed.add(seed)
                _print(f"storm {seed}: {campaign.failed[seed]}"[:300])

        processes = workers or os.cpu_count() or 1
        campaign = run(chosen, campus_file=campus, policy=policy, processes=processes, progress=progress)
    for kind, seed in {failure.kind: seed for seed, failure in reversed(campaign.failed.items())}.items():
        _print(f"broken: {kind}\n  shorten it with reclaimnet storm --seed {seed}")
    effects = sorted(key for key in campaign.counts if key.startswith("fault: ") and "upon" not in key)
    faults = ", ".join(f"{key.removeprefix('fault: ')} {campaign.counts[key]}" for key in effects)
    console.print(f"{campaign.events} events; faults that took effect: {faults}")
    console.print(campaign.admissions)
    console.print(f"{campaign.storms} storms, {len(campaign.failed)} failed")
    if as_json:
        failed = {seed: f"{failure}" for seed, failure in campaign.failed.items()}
        print_json({"storms": campaign.storms, "failed": failed, "events": campaign.events, "counts": campaign.counts})
    return ExitStatus.BROKEN if campaign.failed else ExitStatus.KEPT


def _reproduce(out: Path, seed: int, campus: str | None, policy: str | None) -> StormFailure | None:
    """Print one storm's options and lines and play it; if it breaks a promise, write its shortest script."""
    from experiments.storms.generate import options_of, script_of
    from experiments.storms.shrink import shrink
    from topologies.writing import write_whole

    options = options_of(seed, campus_file=campus, policy=policy)
    script = script_of(options)
    _print(f"{options}\n\n{script}")
    failure = _play_once(script, f"storm {seed}")
    if failure is None:
        return None
    remark = f"storm {seed}, shrunk. {failure}".replace("\n", " ")[:240]
    short = replaced(shrink(script, failure, _print), remarks=(remark,))
    _print(f"\nshrunk:\n{short}")
    path = out / f"storm_{seed}.txt"
    write_whole(path, str(short))
    console.print(Text("broken:", "red"), f"replay it with reclaimnet storm --replay {path}")
    return failure


def _replay(file: Path) -> StormFailure | None:
    """Play one script again and print its story. SpecError: it cannot be read."""
    from experiments.storms.script import parse
    from topologies import reading
    from topologies.errors import SpecError

    script = parse(reading.read_text(file, "a script of a storm"), str(file))
    try:
        return _play_once(script, file.name)
    except SpecError as error:
        raise error if error.source else error.within(str(file)) from None


def _play_once(script: Script, name: str) -> StormFailure | None:
    """Play a script, and print the story of its failure."""
    from experiments.storms.play import play

    failure = play(script, tells_story=True).failure
    if failure is not None:
        _print("\n".join([f"{name}: {failure}", *(f"  {line}" for line in failure.story)]))
    console.print(f"1 storm, {int(failure is not None)} failed")
    return failure


def _print(text: str) -> None:
    console.print(text, soft_wrap=True)


@app.command(rich_help_panel=PANEL)
def reproduce(
    claims: Annotated[
        list[str] | None,
        typer.Argument(
            help="Tables and figures of the papers: A-table3 A-table4 A-fig3 A-fig4 A-fig6 A-fig7 A-fig9 A-drift A-gap, "
            "B2 ... B5, AB-queue, traces (with --trace), or all."
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Few seeds, short runs: a few minutes for all.")] = False,
    seeds: Annotated[
        str | None, typer.Option(help="Instead of each claim's own: 20 (from 1 to 20), A:B (from A to B - 1).")
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            "--policy",
            "--system",
            help="A system, or module:NAME of your own, to compare in A-table3 and traces too; may be repeated.",
        ),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(
            "--trace",
            help="A folder of recorded owners (counts or lifetimes: see docs/traces.md), which the claim traces plays.",
            exists=True,
            file_okay=False,
        ),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(help="Of traces, cases whose names hold this text, say 'notice 30 s'; may be repeated."),
    ] = None,
    dask: Dask = None,
    kept: Annotated[
        Path | None,
        typer.Option("--from", help="Play nothing: judge the values files of this folder, such as experiments/values."),
    ] = None,
    out: Out = Path("out/claims"),
    as_json: Json = False,
) -> int:
    """Run tables and figures of the papers again: values beside the printed ones, picture, verdict, one page of all.

    Every core is used; a run goes on where it was stopped. Exit status 0: nothing contradicts the papers;
    1: something was not reproduced; 2: it could not be run; 3: a quick run, which judges nothing.
    """
    from experiments.claims.reproduce import reproduce as run
    from experiments.inputs.seeds import seeds_of

    status, verdicts = run(
        console,
        out,
        claims or [],
        quick=quick,
        seeds=seeds_of(seeds) if seeds is not None else None,
        systems=policy or [],
        records=trace,
        only=only or [],
        kept=kept,
        dask=dask,
    )
    if as_json:
        print_json({"out": str(out), "verdicts": verdicts})
    return status
