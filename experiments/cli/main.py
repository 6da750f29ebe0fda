"""The command line. Each command is a few lines here and a module elsewhere; imports are inside, so that `--help` is quick."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from experiments.cli.measure import ABOUT as ABOUT_MEASURE
from experiments.cli.measure import measure
from experiments.cli.options import (
    AgentsPerProcess,
    CampusId,
    HostName,
    Hosts,
    JobName,
    JobNames,
    Json,
    OfJob,
    Out,
    Overrides,
    Owners,
    PolicyName,
    PolicyNames,
    ResultPage,
    SystemName,
    Web,
    WithWeb,
    console,
    print_json,
    put_away,
)
from experiments.runtime import ending, native
from testbed.logs import LEVELS, VARIABLE
from topologies.spec import Fabric

app = typer.Typer(
    name="reclaimnet",
    help="A live campus of reclaimable GPUs on one machine: real sockets, real bytes, real kernel enforcement.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("measure", help=ABOUT_MEASURE)(measure)

Seed = Annotated[
    int | None,
    typer.Option(
        min=0,
        help="Instead of the scenario's: of jobs, owners, and which part of a record falls on which hosts.",
    ),
]
Records = Annotated[
    list[Path] | None,
    typer.Option(
        help="Recorded owners instead of generated ones: a file (or folder), again for each further one, say of another zone; "
        "or module:NAME of a function of your own."
    ),
]
OwnPolicies = Annotated[
    Path | None,
    typer.Option(
        "--policies", help="A Python file with POLICIES: rows of your own, which scenarios may name."
    ),
]
Dask = Annotated[
    str | None,
    typer.Option(
        "--dask",
        metavar="ADDRESS",
        help="A Dask scheduler, such as tcp://HOST:8786, whose workers play instead.",
    ),
]


def _version(wanted: bool) -> None:
    if wanted:
        from experiments.results.provenance import PACKAGE, installed_version
        from experiments.runtime.revision import revision

        typer.echo(f"{PACKAGE} {installed_version()} (commit {revision()}, Python {sys.version.split()[0]})")
        raise typer.Exit


@app.callback()
def reclaimnet(
    version: Annotated[
        bool,
        typer.Option("--version", help="Which version and commit this is.", callback=_version, is_eager=True),
    ] = False,
    quiet: Annotated[
        bool,
        typer.Option(
            "--quiet", "-q", help="Before the command: nothing on stdout but what was asked for; errors stay."
        ),
    ] = False,
    log_level: Annotated[
        str | None,
        typer.Option(
            envvar=VARIABLE,
            metavar="|".join(LEVELS),
            help="Before the command: how much coordinator and agents write to their logs.",
            autocompletion=lambda: list(LEVELS),
        ),
    ] = None,
) -> None:
    """A live campus of reclaimable GPUs on one machine: real sockets, real bytes, real kernel enforcement."""
    console.quiet = quiet
    if log_level is not None:
        if log_level.lower() not in LEVELS:
            raise typer.BadParameter(f"--log-level {log_level}: one of {', '.join(LEVELS)}")
        os.environ[VARIABLE] = log_level.lower()


@app.command(cls=WithWeb)
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
    from experiments.cli.demo import demo as run

    raise typer.Exit(
        run(
            console,
            out,
            hosts=hosts,
            seconds=seconds,
            seed=seed,
            records=trace or (),
            owners_gid=group,
            agents_per_process=agents_per_process,
            web=web,
        )
    )


@app.command(cls=WithWeb)
def run(
    scenario: Annotated[Path, typer.Argument(help="A scenario file (TOML).")],
    override: Overrides = None,
    seed: Seed = None,
    trace: Records = None,
    group: Owners = None,
    agents_per_process: AgentsPerProcess = None,
    policies: OwnPolicies = None,
    web: Web = None,
    out: Out = Path("out/run"),
) -> None:
    """Run a scenario of your own, live."""
    from experiments.cli.demo import play
    from experiments.cli.simulate import described_with_trace

    _add(policies)
    raise typer.Exit(
        play(
            console,
            out,
            *described_with_trace(str(scenario), seed, trace or (), override or ()),
            owners_gid=group,
            agents_per_process=agents_per_process,
            web=web,
        )
    )


@app.command()
def simulate(
    scenario: Annotated[str, typer.Argument(help="A scenario file (TOML), or example:NAME.")],
    system: SystemName = None,
    override: Overrides = None,
    seed: Seed = None,
    trace: Records = None,
    until_over: Annotated[
        bool, typer.Option("--until-over", help="Go on after the scenario's end until every job is over.")
    ] = False,
    policies: OwnPolicies = None,
    out: Out = Path("out/simulate"),
) -> None:
    """Run a scenario in virtual time: the same decisions over a simulated network, deterministic, nothing needed.

    Exit status 0: every promise was kept; 1: one was broken; 2: it could not be run.
    """
    native.prefer()
    _add(policies)
    from experiments.cli import oracle
    from experiments.cli.simulate import simulate_file as play

    if system == oracle.SYSTEM:
        raise typer.Exit(
            oracle.play_file(console, out, scenario, seed=seed, records=trace or (), until_over=until_over)
        )
    raise typer.Exit(
        play(
            console,
            out,
            scenario,
            system=system,
            overrides=override or (),
            seed=seed,
            records=trace or (),
            until_over=until_over,
            policies=policies,
        )
    )


@app.command()
def compare(
    scenario: Annotated[
        str, typer.Argument(help="A scenario file (TOML), or example:NAME.")
    ] = "example:two-worlds",
    seed: Seed = None,
    trace: Records = None,
    out: Out = Path("out/compare"),
) -> None:
    """Run a scenario live and in virtual time, and show both side by side, with what the machinery's own steps took.

    Exit status 0: completion times and downtime within 10 %, rates within 5 %; 1: further apart; 2: it could not be run;
    3: not judged, since the machine did not keep up with the live run, or it was cut short.
    """
    from experiments.cli.compare import compare_file

    raise typer.Exit(compare_file(console, out, scenario, seed=seed, records=trace or ()))


@app.command()
def storm(
    seeds: Annotated[str, typer.Option(help="A:B, the storms from A to B - 1.")] = "0:200",
    seed: Annotated[
        int | None, typer.Option(min=0, help="Play this storm alone, and print its story.")
    ] = None,
    replay: Annotated[Path | None, typer.Option(help="Play this script again, and print its story.")] = None,
    campus: Annotated[
        str | None,
        typer.Option("--campus", help="A campus file (TOML), or example:NAME; random ones if left out."),
    ] = None,
    policy: PolicyName = None,
    override: Overrides = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes; as many as there are cores.")] = None,
    out: Out = Path("out/storm"),
) -> None:
    """Random campuses and faults in virtual time; every promise is checked after every event.

    A storm that breaks one is shrunk to a script of a few lines. Exit status 0: all were kept; 1: one was broken; 2: it
    could not be run.
    """
    native.prefer()
    from controller.core.policies.overrides import parse_overrides, with_overrides
    from experiments.cli import storm as command

    if replay is not None:
        raise typer.Exit(command.replay(console, replay))
    if override:
        policy = with_overrides(policy or "reclaimnet", parse_overrides(override))
    if seed is not None:
        raise typer.Exit(command.reproduce(console, out, seed, campus=campus, policy=policy))
    raise typer.Exit(command.storm(console, out, seeds, campus=campus, policy=policy, workers=workers))


@app.command()
def sweep(
    what: Annotated[
        str,
        typer.Argument(
            metavar="SCENARIO|SWEEP.toml",
            help="A scenario file (TOML), or example:NAME; or a file that names one, and the options below.",
        ),
    ],
    policies: PolicyNames = None,
    override: Overrides = None,
    seeds: Annotated[
        str | None, typer.Option(help="A:B, from A to B - 1, or some with commas.  [default: 1:6]")
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
    until_over: Annotated[
        bool, typer.Option("--until-over", help="Each run goes on until every job is over.")
    ] = False,
    figures: Annotated[
        str | None, typer.Option(help="Figures of summary.json that are compared and drawn, with commas.")
    ] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes; as many as there are cores.")] = None,
    dask: Dask = None,
    out: Out = Path("out/sweep"),
) -> None:
    """Play a scenario in virtual time under all policies, seeds and values: tables, intervals, a picture, a page.

    A sweep that was stopped goes on where it was. Exit status 0: every promise was kept; 1: one was broken, or a run had two
    results; 2: it could not be run.
    """
    native.prefer()
    from experiments.cli.sweep import sweep_file as run

    raise typer.Exit(
        run(
            console,
            out,
            what,
            policies=policies,
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


@app.command()
def traces(
    seed: Annotated[int | None, typer.Option(min=0, help="Of everything that is drawn.")] = None,
    days: Annotated[float, typer.Option(help="Of paper A's campus; rates stay, counts shrink.")] = 61.0,
    scenario: Annotated[
        str | None, typer.Option(help="A scenario file, or example:NAME, instead of paper A's campus.")
    ] = None,
    trace: Records = None,
    out: Out = Path("out/traces"),
) -> None:
    """Make a trace, print what it achieved of paper A's measurements, and write it as a file to change and play."""
    from experiments.cli.traces import make_traces as run

    run(console, out, seed=seed, days=days, scenario=scenario, records=trace or ())


@app.command()
def reproduce(
    claims: Annotated[
        list[str] | None,
        typer.Argument(
            help="Tables and figures of the papers: A-table3 A-table4 A-fig3 A-fig4 A-fig6 ... A-fig9 A-drift A-gap A-kill, "
            "B2 ... B5, AB-queue, traces (with --traces), or all."
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Few seeds, short runs: a few minutes for all.")
    ] = False,
    seeds: Annotated[int | None, typer.Option(min=2, help="Instead of each claim's own number.")] = None,
    system: Annotated[
        list[str] | None,
        typer.Option(
            help="A system, or module:NAME of your own, to compare in A-table3 and traces too; may be repeated."
        ),
    ] = None,
    traces: Annotated[
        Path | None,
        typer.Option(
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
    """Run tables and figures of the papers again: values beside theirs, picture, verdict, one page of all.

    Every core is used; a run goes on where it was stopped. Exit status 0: nothing contradicts the papers;
    1: something was not reproduced; 2: it could not be run.
    """
    native.prefer()
    from experiments.claims.reproduce import reproduce as run

    raise typer.Exit(
        run(
            console,
            out,
            claims or [],
            quick=quick,
            seeds=seeds,
            systems=system or [],
            records=traces,
            only=only or [],
            result=result,
            dask=dask,
        )
    )


@app.command(cls=WithWeb)
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


@app.command()
def reclaim(
    host: HostName,
    notice: Annotated[float, typer.Option(help="Seconds until the host is closed; 0: now.")] = 0.0,
    grace: Annotated[
        bool, typer.Option("--grace", help="Let transfers under way go on for a moment.")
    ] = False,
    campus: CampusId = None,
) -> None:
    """The owner's switch: take a host back. Works with the agent and the coordinator dead."""
    from experiments.cli.owner import reclaim as run

    typer.echo(run(host, notice, grace, campus))


@app.command("return")
def lend(host: HostName, campus: CampusId = None) -> None:
    """The owner's switch: lend a host again."""
    from experiments.cli.owner import lend as run

    typer.echo(run(host, campus))


@app.command()
def status(campus: CampusId = None, as_json: Json = False) -> None:
    """Running campuses: hosts, switches, jobs, queue."""
    from experiments.cli.status import campus_status, status_table

    for each in (found := campus_status(campus)):
        if not as_json:
            console.print(*status_table(each), sep="\n")
    if as_json:
        print_json({"campuses": found})


@app.command()
def dashboard(
    run: Annotated[
        Path | None,
        typer.Argument(
            help="The events.jsonl of a run that is over; left out: the campus that runs.", metavar="[EVENTS]"
        ),
    ] = None,
    campus: CampusId = None,
    topology: Annotated[
        str | None,
        typer.Option(help="Campus file of a run that does not say which campus it is of; or example:NAME."),
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="On 127.0.0.1; 0: any that is free.")] = 8080,
    until_eof: Annotated[
        bool, typer.Option("--until-eof", hidden=True, help="End with standard input.")
    ] = False,
) -> None:
    """A live page of a running campus, or the replay of a run: map, jobs, time line, why each decision was made."""
    from experiments.cli.dashboard import dashboard as show

    show(console, run, campus, topology, port, until_eof=until_eof)


@app.command()
def submit(
    files: Annotated[list[Path], typer.Argument(help="Job files (TOML).", metavar="JOB.toml...")],
    campus: CampusId = None,
) -> None:
    """Hand jobs of your own to a running campus."""
    from experiments.cli.jobs import submit as run

    run(console, files, campus)


@app.command()
def cancel(
    jobs: JobNames,
    campus: CampusId = None,
) -> None:
    """End jobs of a running campus for good, whatever they are doing: their processes end, their checkpoints are dropped."""
    from experiments.cli.jobs import cancel as run

    run(console, jobs, campus)


@app.command()
def jobs(campus: CampusId = None, as_json: Json = False) -> None:
    """Jobs of a running campus: where they are, and why those that failed did."""
    from experiments.cli.jobs import jobs as run

    run(console, campus, as_json=as_json)


@app.command()
def logs(
    job: JobName,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job is over.")] = False,
    campus: CampusId = None,
) -> None:
    """What a job wrote to stdout and stderr, attempt by attempt."""
    from experiments.cli.jobs import logs as run

    run(job, follow, campus)


@app.command()
def events(
    job: OfJob = None,
    campus: CampusId = None,
) -> None:
    """What happens on a running campus, as it happens: a line of JSON for each fact."""
    from experiments.cli.jobs import events as run

    run(job, campus)


@app.command()
def observe(
    seconds: Annotated[
        float | None, typer.Option(min=0.1, help="How long; until the campus is gone if left out.")
    ] = None,
    every: Annotated[float, typer.Option(min=0.1, help="Seconds between two looks.")] = 1.0,
    campus: CampusId = None,
) -> None:
    """What the kernel does to a running campus: segments sent again, packets dropped and why, round trips, waiting tasks."""
    from experiments.cli.observe import observe as run

    run(console, campus, seconds, every)


@app.command()
def capture(
    host: HostName,
    filter_: Annotated[
        list[str] | None, typer.Argument(metavar="[FILTER]...", help="Tcpdump's filter, say: tcp port 7070.")
    ] = None,
    files: Annotated[int, typer.Option(min=1, max=1000, help="How many files; then the oldest goes.")] = 4,
    megabytes: Annotated[int, typer.Option(min=1, max=10_000, help="Size of each.")] = 16,
    campus: CampusId = None,
    out: Out = Path("out/capture"),
) -> None:
    """Packets of a host's cable into a ring of pcap files, by tcpdump, until interrupted."""
    from experiments.cli.observe import capture as run

    run(host, campus, out, files, megabytes, filter_ or [])


@app.command()
def doctor(as_json: Json = False) -> None:
    """What this machine can and cannot do, and what each lack means."""
    from testbed.emulation.capabilities import doctor_table, probe

    found = probe()
    if as_json:
        print_json({"capabilities": found})
    else:
        console.print(doctor_table(found))


@app.command()
def results(
    folders: Annotated[
        list[Path] | None,
        typer.Argument(
            help="A folder of runs (out, if none is named): its index. Two runs: both side by side."
        ),
    ] = None,
    out: Annotated[Path, typer.Option("--out", help="Where the page of two runs goes.")] = Path("out/beside"),
) -> None:
    """An index.html of all runs in a folder, or one page of two runs: every figure's difference, pictures beside each other."""
    from experiments.cli.results import show_beside, show_index

    match folders or [Path("out")]:
        case [folder]:
            show_index(console, folder)
        case [first, second]:
            show_beside(console, out, first, second)
        case _:
            raise typer.BadParameter("one folder of runs, or two runs")


@app.command()
def clean(
    running: Annotated[
        bool, typer.Option("--running", help="End running campuses too, instead of leaving them alone.")
    ] = False,
) -> None:
    """Remove exactly what earlier runs left behind, and nothing else. Exit status 2: something could not be removed."""
    from testbed.emulation.safety.cleaning import clean_up

    report = clean_up(include_running=running)
    for line in report.removed:
        console.print(line, markup=False)
    for line in report.running:
        console.print(f"left alone, it runs: campus {line}", markup=False)
    for line in report.failed:
        console.print(f"[red]could not remove[/red] {line}")
    console.print(f"{len(report.cleaned)} campuses cleaned, {len(report.removed)} objects removed")
    raise typer.Exit(2 if report.failed else 0)


def _add(policies: Path | None) -> None:
    if policies is not None:
        from controller.own_policies import add_policies

        add_policies(policies)


def main() -> None:
    """The command line; the exit status is one of `experiments.runtime.ending`."""
    status = ending.run(_command)
    ending.stands()
    sys.exit(status)


def _command() -> int | None:
    try:
        return app(standalone_mode=False)  # type: ignore[no-any-return]
    finally:
        put_away()


if __name__ == "__main__":
    main()
