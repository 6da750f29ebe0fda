"""Results of every played run, live or virtual: its files, and the terminal's table of it; `reclaimnet results`: several."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from experiments.cli.options import print_json
from experiments.results import report
from experiments.results.provenance import Provenance
from experiments.results.report import tables
from experiments.results.rules import TIMED
from experiments.results.run_context import COMPLETED, INTERRUPTED
from experiments.results.runs.diff import differing
from experiments.results.runs.folders import ResultFolder, result_folders
from experiments.results.runs.index import INDEX, is_index, write_index
from experiments.results.summary import Summary
from experiments.runtime.exit_status import ExitStatus
from experiments.runtime.sudo_ownership import caller, hand_over
from experiments.worlds.played import Played
from topologies.errors import SpecError


def write_results(console: Console, out: Path, run: Played, origin: Provenance, said: str, as_json: bool) -> ExitStatus:
    """Write summary.json and report.html into `out`; print all that speaks against the run; return its exit status."""
    summary = run.summary()
    page = report.write(out, summary, run.facts, run.context, origin)
    console.print(report.summary_table(summary))
    console.print(said)
    for rule, why in summary.not_promised.items():
        console.print(Text("not promised:", "yellow"), f"{rule}: {why}")
    for warning in summary.warnings:
        console.print(Text("little is shown:", "yellow"), warning)
    for broken in summary.invariants_broken:
        console.print(Text("broken:", "red"), f"{broken.rule}: {broken.subject}")
        for line in broken.story:
            console.print(f"    {line}")
    for reason in summary.fidelity.reasons:
        console.print(Text("not to be believed:", "yellow"), reason)
    if not summary.fidelity.valid:
        console.print(f"not judged, since the machine did not keep up: {'; '.join(sorted(TIMED))}")
    console.print(f"{page}, {out / 'summary.json'}, {out / 'events.jsonl'}")
    if as_json:
        print_json({"out": str(out), "summary": json.loads((out / "summary.json").read_bytes())})
    return status_of(summary)


def status_of(summary: Summary) -> ExitStatus:
    """Return the exit status of a run: a broken promise outranks figures that are not to be used."""
    if summary.invariants_broken:
        return ExitStatus.BROKEN
    if summary.ended == INTERRUPTED:
        return ExitStatus.INTERRUPTED
    return ExitStatus.KEPT if summary.fidelity.valid and summary.ended == COMPLETED else ExitStatus.CUT_SHORT


def show_index(console: Console, folder: Path) -> list[ResultFolder]:
    """List every result in a folder, and write its index.html. SpecError: it is no folder, or another page has that name."""
    if not folder.is_dir():
        raise SpecError("FOLDER", str(folder), "a folder that runs were written to")
    index = folder / INDEX
    if index.exists() and not is_index(index):
        raise SpecError("FOLDER", str(folder), f"a folder of runs: {index} is a page of something else")
    found = result_folders(folder)
    shown = ("jobs finished", "GPU time lost in all", "admitted moves in time")
    table = Table(
        "run", "scenario", "policy", "world", "seed", Column("verdict", no_wrap=True), *shown, title=str(folder)
    )
    for each in found:
        if s := each.summary:
            told = {tile.label: tile.value for tile in tables.tiles(s)}
            named = (each.name, s.scenario, s.policy, s.world, str(s.seed), tables.verdict(s)[1])
            table.add_row(*named, *(told[label] for label in shown))
        else:
            table.add_row(each.name, "", "", "", "", each.fault)
    console.print(table)
    console.print(f"{write_index(folder, found)}")
    if user := caller():
        hand_over(index, user)
    return found


def show_differences(console: Console, folders: Sequence[Path]) -> list[dict[str, object]]:
    """Compare two to six runs: figures that differ, at real scale."""
    found = differing(folders)
    table = Table("", "", *(Column(str(folder), justify="right") for folder in folders), title="at real scale")
    for row in found:
        table.add_row(
            row.section,
            row.label,
            *(f"{cell} ({note})" if note else cell for cell, note in zip(row.cells, row.notes, strict=True)),
        )
    console.print(table)
    return [row._asdict() for row in found]
