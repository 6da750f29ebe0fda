"""The command that runs claims one after the other: run, write, draw and judge each, and write the page of all.

Values that are there already are judged without a run.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from controller.user_policies import files_of, find_policy
from controller.warm_up import compile_once
from experiments.claims.framework.claim import Claim, ClaimKind, ClaimOutcome, ClaimVerdict, Config, Level
from experiments.claims.framework.panels import draw
from experiments.claims.framework.values import Values, file_of, read, write
from experiments.claims.framework.verdicts import judge, who_wins
from experiments.claims.pages import PICTURE, TONES, write_index
from experiments.claims.registry import CLAIMS, COMPARING, OF_CASES, OF_RECORDS, chosen
from experiments.results.provenance import provenance
from experiments.runtime.exit_status import ExitStatus
from experiments.runtime.progress import progress_bar
from topologies.errors import SpecError

COLOURS = {"good": "green", "warn": "yellow", "bad": "red"}

# checks of a claim on the terminal; the page has all
MAX_SAID = 4


def reproduce(
    console: Console,
    out: Path,
    names: Sequence[str],
    *,
    quick: bool,
    seeds: tuple[int, ...] | None,
    systems: Sequence[str] = (),
    records: Path | None = None,
    only: Sequence[str] = (),
    kept: Path | None = None,
    dask: str | None = None,
) -> tuple[ExitStatus, dict[str, ClaimVerdict]]:
    """Run the claims named, all if none is; return verdicts, and 1: one was not reproduced, 3: one is quick, not judged, or 0.

    Every core is used, or the workers of the Dask scheduler at `dask`; a run goes on where it was stopped. `systems`:
    rows of the policies that Table III and recorded owners are to compare beside their own. `records`: a folder of
    recorded owners; `only`: their cases to play. With `kept`, a folder of values files, nothing is played: all of these
    are judged if no claim is named. SpecError: no such claim, system, record or case. ValuesError: no such file.
    """
    if kept is not None and not names:
        names = [name for name in CLAIMS if file_of(kept, name).exists()]
    claims = chosen(names, has_records=records is not None or kept is not None)
    of_options = {"--policy": (systems, COMPARING), "--trace": (records, OF_RECORDS), "--only": (only, OF_CASES)}
    for option, (given, known) in of_options.items():
        if given and not any(claim.name in known for claim in claims):
            named = " or ".join(known)
            raise SpecError(option, str(given), f"nothing, without the claim {named}, which alone looks at it")
    for system in systems:
        find_policy(system, "--policy")
    compile_once()
    told, statuses = [], [ExitStatus.KEPT]
    for claim in claims:
        config = Config(
            out,
            quick=quick,
            seeds=seeds,
            workers=os.cpu_count() or 1,
            systems=tuple(systems),
            records=records,
            only=tuple(only),
            dask=dask,
            modules={name: path for system in systems for name, path in files_of(system).items()},
        )
        if kept is None:
            values = _played(console, claim, config)
        else:
            values = read(file_of(kept, claim.name))
            write(values, file_of(out, claim.name))
        draw(values, claim.title, claim.panels, file_of(out, claim.name).with_suffix(PICTURE))
        verdict, status = judge(claim, values), ExitStatus.KEPT
        level = Text(f"{verdict}", COLOURS[TONES[verdict.level]])
        if values.is_quick:
            level, status = Text("no verdict: a quick run", "yellow"), ExitStatus.CUT_SHORT
        elif verdict.level is Level.NOT_REPRODUCED:
            status = ExitStatus.BROKEN
        statuses.append(status)
        told.append((verdict, level))
        console.print(f"{claim.name} {claim.title}:", level)
        open_checks = [check for check in verdict.checks if check.outcome is not ClaimOutcome.HOLDS]
        for check in open_checks[:MAX_SAID]:
            console.print(f"   {check.outcome} ({check.kind}): {check.text}: {check.detail}")
        if (more := len(open_checks) - MAX_SAID) > 0:
            console.print(f"   and {more} more that do not hold or cannot be told, see the page")
        if words := who_wins(verdict):
            console.print(f"   {words}")
        console.print(f"   {file_of(out, claim.name)}")
        page = write_index(out)
    table = Table("claim", "what", "verdict", *(f"{kind}" for kind in ClaimKind), title="held / judged")
    for claim, (verdict, level) in zip(claims, told, strict=True):
        held = ("{} / {}".format(*verdict.held(kind)) for kind in ClaimKind)
        table.add_row(claim.name, claim.paper, level, *held)
    console.print(table)
    console.print(f"{page}: all claims run so far")
    worst = next(each for each in (ExitStatus.BROKEN, ExitStatus.CUT_SHORT, ExitStatus.KEPT) if each in statuses)
    return worst, {claim.name: verdict for claim, (verdict, _) in zip(claims, told, strict=True)}


def _played(console: Console, claim: Claim, config: Config) -> Values:
    """Run one claim and write its values. Picture and verdict are of what is written, not of what was in memory."""
    began_s, origin = time.monotonic(), provenance()
    with progress_bar(console, f"runs of {claim.name}", lines=0, transient=True) as progress:
        found = claim.run(replace(config, progress=progress))
    most = max((row.seeds for row in found.rows), default=0)
    found = replace(
        found,
        is_quick=config.quick,
        seeds=config.seeds_of(most, most),
        spent_s=time.monotonic() - began_s,
        origin=origin,
    )
    write(found, file_of(config.folder, claim.name))
    return read(file_of(config.folder, claim.name))
