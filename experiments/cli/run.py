"""The commands that play a scenario or build a campus: `demo`, `run`, `simulate`, `up`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from experiments.cli.options import (
    ORACLE,
    AgentsPerProcess,
    Dask,
    Hosts,
    Json,
    Out,
    Overrides,
    Owners,
    PolicyName,
    Records,
    Seed,
    Settings,
    SystemName,
    UntilOver,
    console,
)
from experiments.runtime.exit_status import ExitStatus
from topologies.spec import Fabric
from topologies.units import format_duration

if TYPE_CHECKING:
    from experiments.inputs.scenario import Scenario
    from experiments.inputs.traces import Trace
    from experiments.machines.conductor import Conductor
    from experiments.worlds.live.world import LiveWorld
    from experiments.worlds.played import Played

PANEL = "Run"
ASKED_ABOVE_S = 1800.0  # of a live run
app = typer.Typer()


@app.command(rich_help_panel=PANEL)
def demo(
    hosts: Hosts = 12,
    machines: Annotated[
        int | None,
        typer.Option(help="Spread it over so many, of --hosts each: Dask's workers, in namespaces of this one."),
    ] = None,
    seconds: Annotated[float, typer.Option(help="How long jobs arrive and owners reclaim.")] = 75.0,
    seed: Annotated[int, typer.Option(help="Of everything that is drawn.")] = 1,
    standby: Annotated[
        bool, typer.Option("--standby", help="Have two coordinators, and kill the one that leads, twice.")
    ] = False,
    trace: Records = None,
    group: Owners = None,
    agents_per_process: AgentsPerProcess = None,
    out: Out = Path("out/demo"),
    as_json: Json = False,
) -> int:
    """Build a campus, let jobs run and owners reclaim, and report.

    Exit status 0: every promise was kept; 1: one was broken; 2: it could not be run; 3: it was cut short, or the
    machine did not keep up.
    """
    from experiments.inputs.scenario import demo_scenario
    from experiments.inputs.traces import trace_of

    parts = machines or 1
    scenario = demo_scenario(hosts=hosts * parts, buildings=max(3, parts), on_demand=2, seconds=seconds, seed=seed)
    scenario = replace(scenario, trust=replace(scenario.trust, standby=standby))
    kills = (False, False) if standby else ()
    drawn = trace_of(scenario, trace or ())
    if machines is None:
        return _play_live(scenario, drawn, group, agents_per_process, out, as_json, kills)
    from experiments.machines.rehearsal import rehearsed, spread

    scenario = replace(scenario, campus=spread(scenario.campus, machines))
    with rehearsed(scenario.campus, out) as dask:
        return _play_live(scenario, drawn, group, agents_per_process, out, as_json, kills, dask)


@app.command(rich_help_panel=PANEL)
def run(
    scenario: Annotated[str, typer.Argument(help="A scenario file (TOML), or example:NAME.")],
    policy: PolicyName = None,
    settings: Settings = None,
    override: Overrides = None,
    seed: Seed = None,
    trace: Records = None,
    group: Owners = None,
    agents_per_process: AgentsPerProcess = None,
    dask: Dask = None,
    yes: Annotated[bool, typer.Option("--yes", help="Without a question, also for more than half an hour.")] = False,
    out: Out = Path("out/run"),
    as_json: Json = False,
) -> int:
    """Run a scenario of your own, live; with --dask, on the machines of its campus."""
    described, drawn = described_with_trace(
        scenario, seed, trace or (), policy=policy, overrides=override or (), settings=settings or ()
    )
    if (length_s := described.played().duration_s) > ASKED_ABOVE_S and not yes:
        takes = f"{described.name} takes {format_duration(length_s)} of real time ([scale] shortens it, simulate needs seconds)"
        if not sys.stdin.isatty():
            raise typer.BadParameter(f"{takes}; --yes plays it all the same")
        if not typer.confirm(f"{takes}. Begin?", err=True):
            return ExitStatus.NOT_RUN
    return _play_live(described, drawn, group, agents_per_process, out, as_json, dask=dask)


def _play_live(
    scenario: Scenario,
    trace: Trace,
    group: Owners,
    agents_per_process: int | None,
    out: Path,
    as_json: bool,
    kills: Sequence[bool] = (),
    dask: str | None = None,
) -> ExitStatus:
    """Run a scenario live, write the report into `out`, print the table.

    `kills`: see `run_live`; `dask`: a scheduler whose workers are the machines of the campus.
    """
    from experiments.cli.results import write_results
    from experiments.results.live_lines import lines_on
    from experiments.results.provenance import provenance
    from experiments.results.takeovers import take_overs
    from experiments.worlds.live.run import run_live

    console.print(f"{scenario.name}: {len(scenario.volunteers)} volunteer hosts, {trace.origin}")
    play: Callable[..., Played] = run_live
    if dask is not None:
        from experiments.machines.conductor import run_on_machines

        play = partial(run_on_machines, address=dask)
    outcome = play(
        scenario, trace, out, lines_on(console), owners=group or {}, agents_per_process=agents_per_process, kills=kills
    )
    registered_s = outcome.context.fidelity.figures["agents_registered_s"]
    said = f"all agents had registered {registered_s:.2f} s after the campus stood"
    said = "\n".join([said, *map(str, take_overs(outcome.facts, outcome.context.deaths))])
    return write_results(console, out, outcome, provenance(scenario), said, as_json)


@app.command(rich_help_panel=PANEL)
def simulate(
    scenario: Annotated[str, typer.Argument(help="A scenario file (TOML), or example:NAME.")],
    policy: SystemName = None,
    settings: Settings = None,
    override: Overrides = None,
    seed: Seed = None,
    trace: Records = None,
    until_over: UntilOver = False,
    out: Out = Path("out/simulate"),
    as_json: Json = False,
) -> int:
    """Run a scenario in virtual time: the same decisions over a simulated network, deterministic, nothing needed.

    Exit status 0: every promise was kept; 1: one was broken; 2: it could not be run.
    """
    from controller.warm_up import compile_once
    from experiments.cli.results import write_results
    from experiments.results.events_file import digest, write_run
    from experiments.results.provenance import provenance
    from experiments.runtime.progress import progress_bar
    from experiments.worlds.virtual.run import simulate as play

    row = None if policy == ORACLE else policy
    described, drawn = described_with_trace(
        scenario, seed, trace or (), policy=row, overrides=override or (), settings=settings or ()
    )
    size = f"{len(described.volunteers)} volunteer hosts, {format_duration(described.duration_s)} of virtual time"
    console.print(f"{described.name}: {size}, {drawn.origin}")
    compile_once()
    if policy == ORACLE:
        from experiments.worlds.oracle import run_oracle

        planned = run_oracle(described, drawn, until_over=until_over)
        gap = max((window.gap for window in planned.windows), default=0.0)
        lost = f"lost {format_duration(planned.lost_s)} of a GPU"
        console.print(f"the schedule ({planned.schedule}) {lost}; the largest gap of a window is {gap:.2%}")
        run = planned.run
    else:
        with progress_bar(console, "% of simulated time", lines=0, transient=True) as progress:
            run = play(described, drawn, until_over=until_over, progress=progress)
    write_run(out, run.facts, run.context.campus)
    said = f"{run.events} events, {len(run.facts)} facts, sha256 of events.jsonl {digest(run.facts)}"
    return write_results(console, out, run, provenance(described), said, as_json)


def described_with_trace(
    scenario: str,
    seed: int | None,
    records: Sequence[Path],
    *,
    policy: str | None = None,
    overrides: Sequence[str] = (),
    settings: Sequence[str] = (),
) -> tuple[Scenario, Trace]:
    """Load a scenario (a file or `example:NAME`), changed by the options, and its owners, recorded or drawn."""
    from controller.core.policies.overrides import parse_overrides
    from controller.user_policies import find_policy
    from experiments.inputs.scenario import load
    from experiments.inputs.scenario.files import EXAMPLES
    from experiments.inputs.traces import trace_of
    from topologies.files import find

    described = load(scenario)
    if settings:
        from experiments.sweeps.plan import with_settings

        described = with_settings(described, settings, find(scenario, EXAMPLES).parent)
    protocol = described.protocol
    if policy is not None:
        find_policy(policy, "--policy")
        protocol = replace(protocol, policy=policy)
    if overrides:
        protocol = replace(protocol, override=parse_overrides(overrides))
    described = replace(described, protocol=protocol, seed=described.seed if seed is None else seed)
    return described, trace_of(described, records)


@app.command(rich_help_panel=PANEL)
def up(
    campus: Annotated[
        str | None, typer.Option("--campus", help="A campus file (TOML), example:NAME, or module:NAME of your own.")
    ] = None,
    scenario: Annotated[
        str | None,
        typer.Option(
            help="A scenario (TOML, or example:NAME) whose campus, protocol and scale hold; its jobs and owners do not come."
        ),
    ] = None,
    hosts: Hosts = 12,
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
    script: Annotated[Path | None, typer.Option(help="A file of Mininet commands, instead of a prompt.")] = None,
    group: Owners = None,
    agents_per_process: AgentsPerProcess = None,
    dask: Dask = None,
    out: Out = Path("out/up"),
) -> int:
    """Build a campus and give Mininet's command line on it.

    Exit status 0: no job was submitted; 1: a promise to one was broken; 3: there is a report, which judges nothing.
    """
    from experiments.cli.up import by_hand, command_line, command_line_of_machines, report_of_jobs
    from experiments.inputs.scenario import load
    from experiments.inputs.traces import Trace
    from experiments.machines.conductor import conducted
    from experiments.machines.part import Order
    from experiments.worlds.live.world import let_owners, live_world, owners_of
    from testbed.emulation.campus import LiveCampus
    from topologies import files, presets, reading
    from topologies.errors import SpecError

    if script is not None:
        reading.read_text(script, "a file of Mininet commands")
    if scenario is not None:
        if campus is not None:
            raise SpecError("--campus", campus, "nothing, with --scenario, which has a campus")
        described = load(scenario)
    elif campus is not None:
        described = by_hand(files.load(campus))
    else:
        described = by_hand(presets.three_tier(hosts, min(3, hosts), 1))
    if fabric is not None:
        described = replace(described, campus=replace(described.campus, fabric=fabric))
    played = described.played()
    if dask is not None and (controller or not agents):
        raise SpecError("--dask", dask, "nothing, with --controller or --no-agents")
    if not agents:
        with LiveCampus(played.campus, controller=controller) as net:
            let_owners(net, owners_of(net.spec, group or {}))
            command_line(console, net, script)
        return ExitStatus.KEPT
    stood: LiveWorld | Conductor | None = None
    status = ExitStatus.KEPT
    try:
        if dask is not None:
            order = Order(played, Trace("by hand", (), ()), group or {}, agents_per_process)
            with conducted(order, out, dask) as stood, stood.attended(out):
                command_line_of_machines(console, stood, script)
        else:
            with (
                live_world(
                    played, out, owners=group or {}, controller=controller, agents_per_process=agents_per_process
                ) as stood,
                stood.watched_by_a_thread(),
            ):
                command_line(console, stood.campus, script)
    finally:
        if stood is not None:
            status = report_of_jobs(console, out, stood.deaths, described)
    return status
