"""The commands that tend this machine: `doctor`, `clean`."""

from __future__ import annotations

from typing import Annotated

import typer

from experiments.cli.options import Json, console, print_json
from experiments.runtime.exit_status import ExitStatus

PANEL = "Tend"
app = typer.Typer()
# what an alarm of etcd means, and what mends it: a campus's own members end with it
ALARMED = "the coordinator whose log it holds cannot go on", "etcdctl compaction, etcdctl defrag, etcdctl alarm disarm"


@app.command(rich_help_panel=PANEL)
def doctor(as_json: Json = False) -> None:
    """Show what this machine can and cannot do, and what each lack means."""
    from controller.persistence.etcd import alarms
    from testbed.emulation.capabilities import Capability, Need, doctor_table, probe

    found = probe()
    if raised := ", ".join(sorted(alarms())):
        found.append(Capability("etcd without an alarm", False, raised, *ALARMED, Need.OPTIONAL))
    if as_json:
        print_json({"capabilities": found})
    else:
        console.print(doctor_table(found))


@app.command(rich_help_panel=PANEL)
def clean(
    running: Annotated[
        bool, typer.Option("--running", help="End running campuses too, instead of leaving them alone.")
    ] = False,
    as_json: Json = False,
) -> ExitStatus:
    """Remove exactly what earlier runs left behind, and nothing else. Exit status 2: something could not be removed."""
    from testbed.emulation.safety.cleaning import clean_up

    report = clean_up(include_running=running)
    for line in report.removed:
        console.print(line)
    for line in report.running:
        console.print(f"left alone, it runs: campus {line}")
    for line in report.failed:
        console.print(f"could not remove {line}", style="red")
    console.print(f"{len(report.cleaned)} campuses cleaned, {len(report.removed)} objects removed")
    if as_json:
        print_json(report)
    return ExitStatus.NOT_RUN if report.failed else ExitStatus.KEPT
