"""The command that runs claims one after the other: run, write, draw and judge each, and write the page of all."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from controller.user_policies import files_of, find_policy
from controller.warm_up import compile_once
from experiments.claims.framework.claim import Claim, ClaimKind, ClaimOutcome, ClaimVerdict, Config, Level
from experiments.claims.framework.panels import draw
from experiments.claims.framework.values import FILE, read, write
from experiments.claims.framework.verdicts import judge
from experiments.claims.pages import PICTURE, results_page, write_index
from experiments.claims.registry import COMPARING, OF_CASES, OF_RECORDS, chosen
from experiments.runtime.progress import progress_bar
from experiments.runtime.revision import revision
from topologies.errors import SpecError
from topologies.writing import write_whole

COLOURS = {
    Level.REPRODUCED: "green",
    Level.ORDERING: "yellow",
    Level.ORDERINGS_ONLY: "yellow",
    Level.UNDECIDED: "yellow",
    Level.NOT_REPRODUCED: "red",
}

# checks of a claim on the terminal; the page has all
MAX_SAID = 4


def reproduce(
    console: Console,
    out: Path,
    names: Sequence[str],
    *,
    quick: bool,
    seeds: int | None,
    systems: Sequence[str] = (),
    records: Path | None = None,
    only: Sequence[str] = (),
    result: Path | None = None,
    dask: str | None = None,
) -> int:
    """Run the claims named, all if none is; return 1 if one of them was not reproduced, else 0.

    Every core is used, or the workers of the Dask scheduler at `dask`; a run goes on where it was stopped. `systems`:
    rows of the policies that Table III and recorded owners are to compare beside their own. `records`: a folder of
    recorded owners; `only`: their cases to play. `result` gets the verdicts and headlines of all claims below `out`, as
    Markdown. SpecError: no such claim, system, record or case.
    """
    claims = chosen(names, has_records=records is not None)
    of_options = {
        "--policy": (systems, COMPARING),
        "--trace": (records, OF_RECORDS),
        "--only": (only, OF_CASES),
    }
    for option, (given, known) in of_options.items():
        if given and not any(claim.name in known for claim in claims):
            named = " or ".join(known)
            raise SpecError(
                option, str(given), f"nothing, without the claim {named}, which alone looks at it"
            )
    for system in systems:
        find_policy(system, "--policy")
    compile_once()
    verdicts = []
    for claim in claims:
        workers = os.cpu_count() or 1
        place = out / claim.name
        config = Config(
            place,
            quick=quick,
            seeds=seeds,
            workers=workers,
            systems=tuple(systems),
            records=records,
            only=tuple(only),
            dask=dask,
            modules={name: path for system in systems for name, path in files_of(system).items()},
        )
        verdicts.append(verdict := _one(console, claim, config))
        console.print(
            f"[bold]{claim.name}[/bold] {claim.title}: [{COLOURS[verdict.level]}]{verdict.level}[/{COLOURS[verdict.level]}]"
        )
        open_checks = [check for check in verdict.checks if check.outcome is not ClaimOutcome.HOLDS]
        for check in open_checks[:MAX_SAID]:
            console.print(f"   {check.outcome} ({check.kind}): {check.text}: {check.detail}", markup=False)
        if (more := len(open_checks) - MAX_SAID) > 0:
            console.print(f"   and {more} more that do not hold or cannot be told, see the page")
        console.print(f"   {place}: {FILE}, {PICTURE}", markup=False)
        page = write_index(out)
    if result is not None:
        write_whole(result, results_page(out, date=time.strftime("%Y-%m-%d"), commit=revision()))
    table = Table("claim", "what", "verdict", *(f"{kind}" for kind in ClaimKind), title="held / judged")
    for claim, verdict in zip(claims, verdicts, strict=True):
        colour = COLOURS[verdict.level]
        held = ("{} / {}".format(*verdict.held(kind)) for kind in ClaimKind)
        table.add_row(claim.name, claim.paper, f"[{colour}]{verdict.level}[/{colour}]", *held)
    console.print(table)
    console.print(f"{page}: all claims run so far")
    return int(any(verdict.level is Level.NOT_REPRODUCED for verdict in verdicts))


def _one(console: Console, claim: Claim, config: Config) -> ClaimVerdict:
    """Run, write, draw and judge one claim. Picture and verdict are of what is written, not of what was in memory."""
    began_s = time.monotonic()
    with progress_bar(console, f"runs of {claim.name}", lines=0, transient=True) as progress:
        found = claim.run(replace(config, progress=progress))
    spent_s = time.monotonic() - began_s
    write(replace(found, is_quick=config.quick, spent_s=spent_s), config.directory)
    values = read(config.directory)
    draw(values, claim.title, claim.panels, config.directory / PICTURE)
    return judge(claim, values)
