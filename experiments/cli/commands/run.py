"""The commands that play a scenario or build a campus: `demo`, `run`, `simulate`, `up`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from experiments.cli.options import (
    AgentsPerProcess,
    Hosts,
    Out,
    Overrides,
    Owners,
    Records,
    Seed,
    SystemName,
    UntilOver,
    Web,
    WithWeb,
    console,
)
from topologies.spec import Fabric

PANEL = "Run"
app = typer.Typer()


@app.command(cls=WithWeb, rich_help_panel=PANEL)
def demo(
    hosts: Hosts = 12,
    seconds: Annotated[float, typer.Option(help="How long jobs arrive and owners reclaim.")] = 75.0,
    seed: Annotated[int, typer.Option(help="Of everything that is drawn.")] = 1,
    trace: Records = None,
    group: Owners = None,
    agents_per_process: AgentsPerProcess = None,
    web: Web = None,
    out: Out = Path("out/demo"),
) -> None:
    """Build a campus, let jobs run and owners reclaim, and report.

    Exit status 0: every promise was kept; 1: one was broken; 2: it could not be run; 3: it was cut short.
    """
    from experiments.cli.demo import play
    from experiments.inputs.scenario import demo_scenario
    from experiments.inputs.traces import trace_of

    scenario = demo_scenario(hosts=hosts, buildings=3, on_demand=2, seconds=seconds, seed=seed)
    drawn = trace_of(scenario, trace or ())
    raise typer.Exit(play(console, out, scenario, drawn, group, agents_per_process, web))


@app.command(cls=WithWeb, rich_help_panel=PANEL)
def run(
    scenario: Annotated[Path, typer.Argument(help="A scenario file (TOML).")],
    override: Overrides = None,
    seed: Seed = None,
    trace: Records = None,
    group: Owners = None,
    agents_per_process: AgentsPerProcess = None,
    web: Web = None,
    out: Out = Path("out/run"),
) -> None:
    """Run a scenario of your own, live."""
    from experiments.cli.demo import play
    from experiments.cli.simulate import described_with_trace

    played = described_with_trace(str(scenario), seed, trace or (), override or ())
    raise typer.Exit(play(console, out, *played, group, agents_per_process, web))


@app.command(rich_help_panel=PANEL)
def simulate(
    scenario: Annotated[str, typer.Argument(help="A scenario file (TOML), or example:NAME.")],
    policy: SystemName = None,
    override: Overrides = None,
    seed: Seed = None,
    trace: Records = None,
    until_over: UntilOver = False,
    draw_only: Annotated[
        bool,
        typer.Option(
            "--draw-only",
            help="Play nothing: write the trace as a file to change and play.",
        ),
    ] = False,
    out: Out = Path("out/simulate"),
) -> None:
    """Run a scenario in virtual time: the same decisions over a simulated network, deterministic, nothing needed.

    Exit status 0: every promise was kept; 1: one was broken; 2: it could not be run.
    """
    from experiments.cli import oracle
    from experiments.cli.simulate import simulate_file as play

    if draw_only:
        from experiments.cli.simulate import described_with_trace
        from experiments.inputs.traces.trace_file import write_trace
        from experiments.inputs.traces.trace_warnings import tell

        described, drawn = described_with_trace(scenario, seed, trace or ())
        tell(console, drawn.warnings)
        for file in write_trace(out, described, drawn):
            console.print(file, highlight=False)
        return
    if policy == oracle.SYSTEM:
        raise typer.Exit(
            oracle.play_file(console, out, scenario, seed=seed, records=trace or (), until_over=until_over)
        )
    raise typer.Exit(
        play(
            console,
            out,
            scenario,
            system=policy,
            overrides=override or (),
            seed=seed,
            records=trace or (),
            until_over=until_over,
        )
    )


@app.command(cls=WithWeb, rich_help_panel=PANEL)
def up(
    campus: Annotated[
        str | None,
        typer.Option("--campus", help="A campus file (TOML), example:NAME, or module:NAME of your own."),
    ] = None,
    hosts: Hosts = 12,
    buildings: Annotated[
        int | None, typer.Option(help="Buildings, if no campus is named; 3, if there are as many hosts.")
    ] = None,
    agents: Annotated[bool, typer.Option(help="Start the coordinator and the agents too.")] = True,
    fabric: Annotated[
        Fabric | None, typer.Option("--fabric", help="Switches of another kind than the campus file says.")
    ] = None,
    controller: Annotated[
        str | None,
        typer.Option(
            "--controller",
            metavar="tcp:ADDRESS:PORT|unix:PATH",
            help="An OpenFlow controller instead of the campus's own; tcp: inside the switches' namespace.",
        ),
    ] = None,
    script: Annotated[
        Path | None, typer.Option(help="A file of Mininet commands, instead of a prompt.")
    ] = None,
    group: Owners = None,
    agents_per_process: AgentsPerProcess = None,
    web: Web = None,
    out: Out = Path("out/up"),
) -> None:
    """Build a campus and give Mininet's command line on it."""
    from experiments.cli.up import up as run

    run(
        console,
        out,
        campus,
        hosts=hosts,
        buildings=min(3, hosts) if buildings is None else buildings,
        agents=agents,
        fabric=fabric,
        controller=controller,
        script=script,
        owners_gid=group,
        agents_per_process=agents_per_process,
        web=web,
    )
