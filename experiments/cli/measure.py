"""`reclaimnet measure`: a few lines a benchmark; imports are inside, so that `--help` is quick."""

from __future__ import annotations

import inspect
import json
import time
from collections.abc import Callable, Iterable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from experiments.cli.options import MOST_HOSTS, Hosts, Json, Out, console, print_json
from experiments.runtime import native
from experiments.runtime.ending import ExitStatus

app = typer.Typer(help="Benchmarks: figures side by side with a peer in one run.", no_args_is_help=True)
Benchmark = Callable[..., None]


def tell(notes: Iterable[str]) -> None:
    """What a table has no column for."""
    for line in notes:
        console.print(line, markup=False)


def command(name: str) -> Callable[[Benchmark], Benchmark]:
    """Register a benchmark, which writes into `out`, and say what it wrote; with --json its files `*.json` are told on stdout
    instead of tables."""

    def register(measure: Benchmark) -> Benchmark:
        @wraps(measure)
        def run(*, as_json: bool, out: Path, **given: Any) -> None:
            console.quiet |= as_json
            began_ns = time.time_ns()
            ended: typer.Exit | None = None
            try:
                measure(out=out, **given)
            except typer.Exit as end:  # its status, after its results
                ended = end
            files = (each for each in sorted(out.glob("[!.]*.*")) if each.is_file())
            written = [each for each in files if each.stat().st_mtime_ns >= began_ns]
            console.print(", ".join(map(str, written)))
            if as_json:
                results = [each for each in written if each.suffix == ".json"]
                found = {each.stem: json.loads(each.read_bytes()) for each in results}
                print_json({"command": f"measure {name}", "out": str(out), "results": found})
            if ended is not None:
                raise ended

        # typer reads a command's options off its signature, where annotations may not be text
        parameters = list(inspect.signature(measure, eval_str=True).parameters.values())
        option = inspect.Parameter("as_json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Json)
        vars(run)["__signature__"] = inspect.Signature([*parameters, option])
        run.__annotations__ = {**measure.__annotations__, "as_json": Json}
        app.command(name)(run)
        return measure

    return register


@command("all")
def measure_all(
    out: Out = Path("out/measure"),
    only: Annotated[str, typer.Option(help="Parts, with commas between.")] = "",
) -> None:
    """The live measurements, short, one after the other, in under 30 minutes; one page with goals beside figures."""
    from experiments.benchmarks.together import PARTS, together_table
    from experiments.benchmarks.together import measure_all as run

    names = [part.name for part in PARTS]
    chosen = only.split(",") if only else names
    if unknown := [name for name in chosen if name not in names]:
        raise typer.BadParameter(f"--only {unknown[0]}: one or more of {', '.join(names)}")
    with console.status("") as status:
        done = run(out, [part for part in PARTS if part.name in chosen], progress=status.update)
    console.print(together_table(done))
    if any(each.why for each in done):
        raise typer.Exit(ExitStatus.CUT_SHORT)


@command("bringup")
def measure_bringup(hosts: Hosts = 500, out: Out = Path("out/bringup")) -> None:
    """How long a campus takes to stand and to be gone, against stock Mininet."""
    from experiments.benchmarks.bringup import measure_bringup as run
    from experiments.benchmarks.tables import bringup_table

    console.print(bringup_table(run(out, hosts)))


@command("dashboard")
def measure_dashboard(
    hosts: Hosts = 500,
    clients: Annotated[
        int, typer.Option(min=3, max=100, help="A browser, one that stalls, and readers.")
    ] = 50,
    seconds: Annotated[float, typer.Option(min=5.0, help="How long facts are written.")] = 45.0,
    run: Annotated[
        Path | None,
        typer.Option(help="The events.jsonl of a virtual run, instead of one that is played first."),
    ] = None,
    pace: Annotated[
        float,
        typer.Option(min=0.01, max=10.0, help="How many times as fast as they happened facts are written."),
    ] = 1.0,
    out: Out = Path("out/dashboard"),
) -> None:
    """How long an event takes from the journal to the screen of a browser, with other clients and one that stalls."""
    native.prefer()
    from experiments.benchmarks.live_page import live_page_table
    from experiments.benchmarks.live_page import measure_live_page as measure

    console.print(live_page_table(measure(out, hosts, clients, seconds, run, pace)))


@command("scale")
def measure_scale(
    hosts: Annotated[
        str, typer.Option(help="Sizes of campuses, with commas between.")
    ] = "54,100,250,500,1000,2000",
    seconds: Annotated[float, typer.Option(min=20.0, help="Length of each run at work.")] = 90.0,
    pace: Annotated[
        float,
        typer.Option(min=1.0, max=10.0, help="How many times as fast as paper A's payloads and periods are."),
    ] = 1.0,
    busy: Annotated[
        float | None,
        typer.Option(
            min=0.0, max=1.0, help="Share of hosts with a job.", show_default=".5, above 500 hosts .25"
        ),
    ] = None,
    out: Out = Path("out/scale"),
) -> None:
    """Live campuses of growing size, idle and at work: bring-up, memory, processor, decisions, answers, teardown."""
    from experiments.benchmarks.scale import measure_scale as run
    from experiments.benchmarks.scale import scale_table

    words = hosts.split(",")
    if not all(word.isdigit() and 4 <= int(word) <= MOST_HOSTS for word in words):
        raise typer.BadParameter(
            f"--hosts {hosts}: whole numbers from 4 to {MOST_HOSTS}, with commas between"
        )
    result = run(out, [int(word) for word in words], seconds=seconds, pace=pace, busy_share=busy)
    console.print(scale_table(result))
    for each in result["runs"]:
        for reason in (*each["work"]["reasons"], *each["work"]["broken"]):
            console.print(f"{each['hosts']} hosts: {reason}")


@command("fabric")
def measure_fabric(
    out: Out = Path("out/fabric"),
    quick: Annotated[bool, typer.Option("--quick", help="Shorter rounds, 5 cuts.")] = False,
) -> None:
    """Kernel bridges beside Open vSwitch: throughput, round trips, bring-up; then gaps when trunks are cut."""
    from experiments.benchmarks.fabric import fabric_table
    from experiments.benchmarks.fabric import measure_fabric as run

    console.print(fabric_table(run(out, quick=quick)))


@command("links")
def measure_links(
    out: Out = Path("out/links"),
    quick: Annotated[bool, typer.Option("--quick", help="Shorter rounds.")] = False,
) -> None:
    """Links that delay, lose and change: round trips, throughput, lateness of the delay line, beside their goals."""
    from experiments.benchmarks.links import links_table
    from experiments.benchmarks.links import measure_links as run

    console.print(links_table(run(out, quick=quick)))


@command("observer")
def measure_observer(
    rounds: Annotated[int, typer.Option(min=2, max=1000, help="Pairs of flows of a second.")] = 20,
    out: Out = Path("out/observer"),
) -> None:
    """What `observe`, and every live run, pays for being observed: throughput with and without, by turns."""
    from experiments.benchmarks.observer import measure_observer as run
    from experiments.benchmarks.observer import observer_table

    console.print(observer_table(run(out, rounds)))


@command("killswitch")
def measure_killswitch(
    trials: Annotated[int, typer.Option(min=2, max=10_000, help="Acts of the owner, a path.")] = 300,
    hosts: Annotated[int, typer.Option(min=2, max=MOST_HOSTS, help="Of the live campus beside.")] = 4,
    out: Out = Path("out/killswitch"),
) -> None:
    """Time from an owner's act to the last new connection that gets in, by each way to close a host, under a storm of SYNs."""
    from experiments.benchmarks.kill_evaluation import killswitch_notes, killswitch_table
    from experiments.benchmarks.kill_evaluation import measure_killswitch as run

    result = run(out, trials, hosts)
    console.print(killswitch_table(result))
    tell(killswitch_notes(result))


@command("isolation")
def measure_isolation(
    out: Out = Path("out/isolation"),
    quick: Annotated[bool, typer.Option("--quick", help="Fewer rows and seconds: 2 minutes, not 9.")] = False,
) -> None:
    """Paper A's Theorem 4: what research keeps beside granted migrations and hosts that ignore grants, by three systems."""
    from experiments.benchmarks.isolation import isolation_notes, isolation_table
    from experiments.benchmarks.isolation import measure_isolation as run

    with console.status("") as status:
        result = run(out, quick=quick, progress=status.update)
    console.print(isolation_table(result))
    tell(isolation_notes(result))


@command("scavenger")
def measure_scavenger(
    out: Out = Path("out/scavenger"),
    quick: Annotated[
        bool, typer.Option("--quick", help="One round of fewer seconds: 4 minutes, not 14.")
    ] = False,
) -> None:
    """Checkpoints below research: what greedy research loses to them each second, and what they use of what it leaves."""
    from experiments.benchmarks.scavenger import measure_scavenger as run
    from experiments.benchmarks.scavenger import scavenger_notes, scavenger_table

    with console.status("") as status:
        result = run(out, quick=quick, progress=status.update)
    console.print(scavenger_table(result))
    tell(scavenger_notes(result))


@command("migrations")
def measure_migrations(
    out: Out = Path("out/migrations"),
    quick: Annotated[bool, typer.Option("--quick", help="One wave a system: 2 minutes, not 10.")] = False,
) -> None:
    """Paper A's E2 and E3, live: simultaneous notices over one trunk beside greedy research, by every enforcement."""
    from experiments.benchmarks.migrations import measure_migrations as run
    from experiments.benchmarks.migrations import migrations_notes, migrations_table, paper_table

    with console.status("") as status:
        result = run(out, quick=quick, progress=status.update)
    console.print(migrations_table(result))
    console.print(paper_table(result))
    tell(migrations_notes(result))


@command("rates")
def measure_rates(
    out: Out = Path("out/rates"), quick: Annotated[bool, typer.Option(help="Shorter rounds.")] = False
) -> None:
    """Goodput over grant: ours, paper A's drop bucket, HTB classes and nothing; transfer and packet costs too."""
    from experiments.benchmarks.packets import measure_packets
    from experiments.benchmarks.rates import measure_rates as run
    from experiments.benchmarks.tables import packets_table, rates_table, rises_table
    from experiments.benchmarks.transfer import measure_transfer

    console.print(packets_table(measure_packets(out)))
    result = run(out, quick=quick)
    console.print(rates_table(result))
    console.print(rises_table(result))
    measure_transfer(out)


@command("decisions")
def measure_decisions(
    out: Out = Path("out/decisions"),
    quick: Annotated[bool, typer.Option("--quick", help="Without the campus of 50 000 hosts.")] = False,
) -> None:
    """How long the coordinator thinks at 54 to 50 000 hosts, next to paper A's figures."""
    from experiments.benchmarks.decisions import measure_decisions as run
    from experiments.benchmarks.tables import WHY_PAPER_DIFFERS, decisions_table

    console.print(decisions_table(run(out, quick=quick)))
    console.print(WHY_PAPER_DIFFERS)


@command("hazard")
def measure_hazard(
    out: Out = Path("out/hazard"),
    data: Annotated[
        Path | None,
        typer.Option(help="A folder of recorded offers (JSON counts, CSV lifetimes).", exists=True),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the first drawn history.")] = 1,
    quick: Annotated[bool, typer.Option("--quick", help="Two weeks instead of six.")] = False,
) -> None:
    """Which estimate of owners' hazards, chosen on the first half of a history, foretells the second best."""
    from experiments.benchmarks.hazard import measure_hazard as run
    from experiments.benchmarks.tables import ahead_table, hazard_table, pairs_table

    result = run(out, data, seed=seed, quick=quick)
    console.print(hazard_table(result))
    console.print(pairs_table(result))
    console.print(ahead_table(result))


@command("controllers")
def measure_controllers(
    out: Out = Path("out/controllers"),
    quick: Annotated[bool, typer.Option("--quick", help="Shorter runs, few seeds.")] = False,
    seeds: Annotated[int | None, typer.Option(min=2, help="Of each case; 60, or 4 with --quick.")] = None,
    traces: Annotated[
        Path | None,
        typer.Option(help="A folder of recorded offers (JSON counts, CSV lifetimes).", exists=True),
    ] = None,
    laws: Annotated[
        bool,
        typer.Option("--laws", help="Also laws of offers, by day too, and those that break assumptions."),
    ] = False,
) -> None:
    """Which controller keeps the target delay, at what cost: every learner, beside exact targets, on laws and on records."""
    from experiments.benchmarks.controllers import measure_controllers as run
    from experiments.benchmarks.tables import cases_table, laws_table, traces_table

    result = run(out, quick=quick, seeds=seeds, traces=traces, laws=laws)
    console.print(cases_table(result))
    if traces is not None:
        console.print(traces_table(result))
    if laws:
        console.print(laws_table(result))


@command("virtual")
def measure_virtual(
    out: Out = Path("out/virtual"),
    hosts: Annotated[
        list[int] | None, typer.Option("--hosts", min=2, max=20_000, help="Sizes of campus; may be repeated.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Two days instead of 61, and of a week.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="Of everything that is drawn.")] = 1,
) -> None:
    """How quick the virtual world is: 61 days of each system, up to 500 hosts, more and more checkpoint traffic."""
    from experiments.benchmarks.tables import virtual_table
    from experiments.benchmarks.virtual import HOSTS, progress_line
    from experiments.benchmarks.virtual import measure_virtual as run

    if not native.folder().is_dir():
        console.print("the virtual campus is compiled first, a minute or two")
    result = run(
        out,
        hosts=hosts or HOSTS,
        quick=quick,
        seed=seed,
        progress=lambda done: console.print(progress_line(done)),
    )
    console.print(virtual_table(result))


@command("snapshots")
def measure_snapshots(
    out: Out = Path("out/snapshots"),
    sizes: Annotated[
        list[int] | None,
        typer.Option(
            "--size",
            min=1,
            max=100_000,
            help="MB of state; may be repeated (1, 10, 100, 1000; on a GPU 100, 1000, 3200).",
        ),
    ] = None,
    disk: Annotated[
        Path | None, typer.Option(help="A directory on the disk to write to; the temporary one.", exists=True)
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A tenth of the snapshots.")] = False,
) -> None:
    """What a snapshot costs a job that goes on: standing still for the write, a copy in memory, fork(2). On a GPU, too."""
    from experiments.benchmarks.snapshots import GPU_SIZES_MB, SIZES_MB, gpu_table, snapshots_table
    from experiments.benchmarks.snapshots import measure_snapshots as run

    result = run(out, sizes or SIZES_MB, disk, gpu_sizes_mb=sizes or GPU_SIZES_MB, quick=quick)
    console.print(snapshots_table(result))
    console.print(gpu_table(result))


@command("codecs")
def measure_codecs(
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Checkpoints of one job, in their order; none: the example transformer is trained."
        ),
    ] = None,
    out: Out = Path("out/codecs"),
    quick: Annotated[bool, typer.Option("--quick", help="Trained for a few steps, one round.")] = False,
) -> None:
    """What coding saves of checkpoints on their way, what it costs both ends, and up to which rate that pays."""
    from experiments.benchmarks.codecs import codecs_table
    from experiments.benchmarks.codecs import measure_codecs as run

    console.print(codecs_table(run(out, files or (), quick=quick)))


@command("queue")
def measure_queue(
    out: Out = Path("out/queue"), quick: Annotated[bool, typer.Option(help="Fewer jobs.")] = False
) -> None:
    """Paper B's queue simulated: jobs a second beside SimPy and Ciw, and the distance of every case from theory."""
    from experiments.benchmarks.queue import measure_queue as run
    from experiments.benchmarks.tables import queue_table, queue_verdicts

    result = run(out, quick=quick)
    console.print(queue_table(result))
    tell(queue_verdicts(result))


@command("planning")
def measure_planning(
    out: Out = Path("out/planning"),
    quick: Annotated[bool, typer.Option("--quick", help="Fewer epochs and jobs.")] = False,
) -> None:
    """The rows of P1 and P2 side by side: limits broken and work lost, time under way until a job is done."""
    from experiments.benchmarks.planning import measure_planning as run
    from experiments.benchmarks.tables import checkpoints_table, destinations_table

    result = run(out, quick=quick)
    console.print(checkpoints_table(result))
    console.print(destinations_table(result))


@command("deadlines")
def measure_deadlines(
    out: Out = Path("out/deadlines"),
    quick: Annotated[bool, typer.Option("--quick", help="One seed, one day.")] = False,
) -> None:
    """Jobs with deadlines on a loaded campus: how many are late with the rule that keeps them and without, and what it rents."""
    from experiments.benchmarks.job_deadlines import job_deadlines_table
    from experiments.benchmarks.job_deadlines import measure_job_deadlines as run

    console.print(job_deadlines_table(run(out, quick=quick)))


@command("admission")
def measure_admission(out: Out = Path("out/admission")) -> None:
    """How many migrations each admission rule of P3 admits, at once and over time, and how near that is to the optimum."""
    from experiments.benchmarks.admission import admission_table
    from experiments.benchmarks.admission import measure_admission as run

    console.print(admission_table(run(out)))


@command("sweep")
def measure_sweep(
    runs: Annotated[int, typer.Option(min=8, help="Of each engine.")] = 60,
    workers: Annotated[int, typer.Option(min=1, help="Processes of each engine.")] = 2,
    out: Out = Path("out/measure-sweep"),
) -> None:
    """What a sweep adds to its runs: processes here, and Dask's workers on loopback. Exit status 1: above 5 % of a run of 5 s."""
    from experiments.benchmarks.sweep_overhead import MOST_SHARE, measure_sweep_overhead, sweep_table

    told = measure_sweep_overhead(out, runs, workers)
    console.print(sweep_table(told))
    if told["not_measured"]:
        console.print(told["not_measured"])
    raise typer.Exit(any(each["share"] > MOST_SHARE for each in told["engines"]))
