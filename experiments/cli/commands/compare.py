"""The commands that compare worlds, systems and papers: `compare`, `sweep`, `storm`, `reproduce`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from experiments.cli.options import (
    Dask,
    Out,
    Overrides,
    PolicyName,
    PolicyNames,
    Records,
    ResultPage,
    Seed,
    UntilOver,
    Workers,
    console,
)

PANEL = "Compare"
app = typer.Typer()


@app.command(rich_help_panel=PANEL)
def compare(
    scenario: Annotated[
        str, typer.Argument(help="A scenario file (TOML), or example:NAME.")
    ] = "example:two-worlds",
    seed: Seed = None,
    trace: Records = None,
    out: Out = Path("out/compare"),
) -> None:
    """Run a scenario live and in virtual time; show both side by side, with the times of the machinery's own steps.

    Exit status 0: completion times and downtime within 10 %, rates within 5 %; 1: further apart; 2: it could not be run;
    3: not judged, since the machine did not keep up with the live run, or it was cut short.
    """
    from experiments.cli.compare import compare_file

    raise typer.Exit(compare_file(console, out, scenario, seed=seed, records=trace or ()))


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
        str | None,
        typer.Option(help="20: from 1 to 20; A:B: from A to B - 1; or some with commas.  [default: 1:6]"),
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
) -> None:
    """Play a scenario in virtual time under all policies, seeds and values: tables, intervals, a picture, a page.

    A sweep that was stopped goes on where it was. Exit status 0: every promise was kept; 1: one was broken, or a run had two
    results; 2: it could not be run.
    """
    from experiments.cli.sweep import sweep_file as run

    raise typer.Exit(
        run(
            console,
            out,
            what,
            policies=policy,
            overrides=override or (),
            seeds=seeds,
            values=set_ or [],
            records=trace or [],
            until_over=until_over,
            figures=figures,
            workers=workers,
            dask=dask,
        )
    )


@app.command(rich_help_panel=PANEL)
def storm(
    seeds: Annotated[str, typer.Option(help="Storms: 20, from 1 to 20; A:B, from A to B - 1.")] = "0:200",
    seed: Annotated[
        int | None, typer.Option(min=0, help="Play this storm alone; shorten it if it fails.")
    ] = None,
    replay: Annotated[Path | None, typer.Option(help="Play this script again, and print its story.")] = None,
    campus: Annotated[
        str | None,
        typer.Option("--campus", help="A campus file (TOML), or example:NAME; random ones if left out."),
    ] = None,
    policy: PolicyName = None,
    override: Overrides = None,
    workers: Workers = None,
    out: Out = Path("out/storm"),
) -> None:
    """Play random campuses and faults in virtual time, with every promise checked after every event.

    With --seed, a storm that breaks one is shrunk to a script of a few lines. Exit status 0: all were kept; 1: one was
    broken; 2: it could not be run.
    """
    from controller.core.policies.overrides import parse_overrides, with_overrides
    from experiments.cli import storm as command

    if replay is not None:
        raise typer.Exit(command.replay(console, replay))
    if override:
        policy = with_overrides(policy or "reclaimnet", parse_overrides(override))
    if seed is not None:
        raise typer.Exit(command.reproduce(console, out, seed, campus=campus, policy=policy))
    raise typer.Exit(command.storm(console, seeds, campus=campus, policy=policy, workers=workers))


@app.command(rich_help_panel=PANEL)
def reproduce(
    claims: Annotated[
        list[str] | None,
        typer.Argument(
            help="Tables and figures of the papers: A-table3 A-table4 A-fig3 A-fig4 A-fig6 A-fig7 A-fig9 A-drift A-gap, "
            "B2 ... B5, AB-queue, traces (with --trace), or all."
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Few seeds, short runs: a few minutes for all.")
    ] = False,
    seeds: Annotated[int | None, typer.Option(min=2, help="Instead of each claim's own number.")] = None,
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
    result: ResultPage = None,
    out: Out = Path("out/claims"),
) -> None:
    """Run tables and figures of the papers again: values beside the printed ones, picture, verdict, one page of all.

    Every core is used; a run goes on where it was stopped. Exit status 0: nothing contradicts the papers;
    1: something was not reproduced; 2: it could not be run.
    """
    from experiments.claims.reproduce import reproduce as run

    raise typer.Exit(
        run(
            console,
            out,
            claims or [],
            quick=quick,
            seeds=seeds,
            systems=policy or [],
            records=trace,
            only=only or [],
            result=result,
            dask=dask,
        )
    )
