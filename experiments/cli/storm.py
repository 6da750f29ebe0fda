"""`reclaimnet storm`: many storms, one by its number, or a kept script, on a terminal."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from controller.user_policies import find_policy
from controller.warm_up import compile_once
from experiments.inputs.seeds import seed_range
from experiments.runtime.exit_status import ExitStatus
from experiments.runtime.progress import progress_bar
from experiments.storms.campaign import Campaign, FailedStorm, run
from experiments.storms.generate import options_of, script_of
from experiments.storms.play import play
from experiments.storms.script import Script, parse
from experiments.storms.shrink import shrink
from topologies import reading
from topologies.errors import SpecError
from topologies.writing import write_whole

LINE_EVERY = 400  # storms, where there is no terminal to draw on


def storm(
    console: Console,
    out: Path,
    seeds: str,
    *,
    campus: str | None = None,
    policy: str | None = None,
    workers: int | None = None,
) -> int:
    """Play the storms of `seeds` (A:B, from A to B - 1); write a script for each kind of failure. Return the exit status.

    SpecError: seeds, campus or policy cannot be read.
    """
    chosen = seed_range(seeds)
    if policy is not None:
        find_policy(policy, "--policy")
    compile_once()
    campaign = _played(console, chosen, campus, policy, workers or os.cpu_count() or 1)
    for failed in campaign.failed:
        if failed.shrunk is not None:
            _print(console, failed.told() + "\n")
            _keep(console, out, failed)
    effects = sorted(key for key in campaign.counts if key.startswith("fault: ") and "upon" not in key)
    faults = ", ".join(f"{key.removeprefix('fault: ')} {campaign.counts[key]}" for key in effects)
    console.print(f"{campaign.events} events; faults that took effect: {faults}", highlight=False)
    console.print(campaign.admissions, highlight=False)
    console.print(f"{campaign.storms} storms, {len(campaign.failed)} failed")
    return ExitStatus.BROKEN if campaign.failed else ExitStatus.KEPT


def reproduce(
    console: Console, out: Path, seed: int, *, campus: str | None = None, policy: str | None = None
) -> int:
    """Print one storm's options and lines, play it, and shrink it if it breaks a promise. Return the exit status."""
    compile_once()
    options = options_of(seed, campus_file=campus, policy=policy)
    script = script_of(options)
    _print(console, f"{options}\n\n{script}")
    failure = _play_once(console, script, seed)
    if failure is None:
        return ExitStatus.KEPT
    short = shrink(script, failure.failure)
    _print(console, f"\nshrunk:\n{short}")
    _keep(console, out, replace(failure, shrunk=short))
    return ExitStatus.BROKEN


def replay(console: Console, file: Path) -> int:
    """Play one script again and print its story. Return the exit status. SpecError: it cannot be read."""
    script = parse(reading.read_text(file, "a script of a storm"), str(file))
    compile_once()
    try:
        failure = _play_once(console, script, int(script.campus.get("seed", 0)))
    except SpecError as error:
        raise error if error.source else error.within(str(file)) from None
    return ExitStatus.KEPT if failure is None else ExitStatus.BROKEN


def _play_once(console: Console, script: Script, seed: int) -> FailedStorm | None:
    failure = play(script, tells_story=True).failure
    failed = None if failure is None else FailedStorm(seed, failure)
    if failed is not None:
        _print(console, failed.told())
    console.print(f"1 storm, {int(failed is not None)} failed")
    return failed


def _keep(console: Console, out: Path, failed: FailedStorm) -> None:
    """Write the shrunk script of a failure, to be replayed and kept."""
    assert failed.shrunk is not None
    path = out / f"storm_{failed.seed}.txt"
    remark = f"storm {failed.seed}, shrunk. {failed.failure.subject}: {failed.failure.rule}"
    write_whole(path, str(replace(failed.shrunk, remarks=(remark.replace("\n", " ")[:240],))))
    console.print(f"[red]broken:[/red] replay it with reclaimnet storm --replay {path}", highlight=False)


def _print(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def _played(
    console: Console, seeds: range, campus: str | None, policy: str | None, processes: int
) -> Campaign:
    with progress_bar(console, "storms", len(seeds), max(1, len(seeds) // LINE_EVERY)) as shown:
        printed: set[int] = set()

        def progress(campaign: Campaign) -> None:
            shown(campaign.storms, len(seeds), f"{len(campaign.failed)} failed")
            for failed in campaign.failed:  # at once: to shrink them takes minutes
                if failed.seed not in printed:
                    printed.add(failed.seed)
                    broken = f"storm {failed.seed}: {failed.failure.subject}: {failed.failure.rule}"
                    _print(console, broken[:300])

        return run(seeds, campus_file=campus, policy=policy, processes=processes, progress=progress)
