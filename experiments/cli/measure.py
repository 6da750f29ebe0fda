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
    """Goodput over grant: paced flows, paper A's drop bucket, HTB classes and nothing."""
    from experiments.benchmarks.rates import measure_rates as run
    from experiments.benchmarks.tables import rates_table, rises_table

    result = run(out, quick=quick)
    console.print(rates_table(result))
    console.print(rises_table(result))


@command("transfer")
def measure_transfer(out: Out = Path("out/transfer")) -> None:
    """Checkpoints over a veth pair: verified and stored ones beside bare sendfile."""
    from experiments.benchmarks.transfer import measure_transfer as run

    run(out)


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


@command("snapshots")
def measure_snapshots(
    out: Out = Path("out/snapshots"),
    sizes: Annotated[
        list[int] | None,
        typer.Option(
            "--size",
            min=1,
            max=100_000,
            help="MB of state; may be repeated (1, 10, 100, 1000).",
        ),
    ] = None,
    disk: Annotated[
        Path | None, typer.Option(help="A directory on the disk to write to; the temporary one.", exists=True)
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A tenth of the snapshots.")] = False,
) -> None:
    """Cost of a snapshot to a job that goes on: standing still for the write, a copy in memory, fork(2)."""
    from experiments.benchmarks.snapshots import SIZES_MB, snapshots_table
    from experiments.benchmarks.snapshots import measure_snapshots as run

    result = run(out, sizes or SIZES_MB, disk, quick=quick)
    console.print(snapshots_table(result))


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
