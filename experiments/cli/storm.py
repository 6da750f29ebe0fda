"""`reclaimnet storm`: many storms, one by its number, or a kept script, on a terminal."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from controller.user_policies import find_policy
from controller.warm_up import compile_once
from experiments.inputs.seeds import seeds_of
from experiments.runtime.exit_status import ExitStatus
from experiments.runtime.progress import progress_bar
from experiments.storms.campaign import Campaign, run
from experiments.storms.generate import options_of, script_of
from experiments.storms.play import StormFailure, play
from experiments.storms.script import Script, parse
from experiments.storms.shrink import shrink
from topologies import reading
from topologies.errors import SpecError
from topologies.writing import write_whole

LINE_EVERY = 400  # storms, where there is no terminal to draw on


def storm(
    console: Console,
    seeds: str,
    *,
    campus: str | None = None,
    policy: str | None = None,
    workers: int | None = None,
) -> int:
    """Play the storms of `seeds` (see `seeds_of`), and name those that fail. Return the exit status.

    SpecError: seeds, campus or policy cannot be read.
    """
    chosen = seeds_of(seeds)
    if policy is not None:
        find_policy(policy, "--policy")
    compile_once()
    printed: set[int] = set()
    with progress_bar(console, "storms", len(chosen), max(1, len(chosen) // LINE_EVERY)) as shown:

        def progress(campaign: Campaign) -> None:
            shown(campaign.storms, len(chosen), f"{len(campaign.failed)} failed")
            for seed in campaign.failed.keys() - printed:
                printed.add(seed)
                _print(console, f"storm {seed}: {campaign.failed[seed]}"[:300])

        processes = workers or os.cpu_count() or 1
        campaign = run(chosen, campus_file=campus, policy=policy, processes=processes, progress=progress)
    for kind, seed in {failure.kind: seed for seed, failure in reversed(campaign.failed.items())}.items():
        _print(console, f"broken: {kind}\n  shorten it with reclaimnet storm --seed {seed}")
    effects = sorted(key for key in campaign.counts if key.startswith("fault: ") and "upon" not in key)
    faults = ", ".join(f"{key.removeprefix('fault: ')} {campaign.counts[key]}" for key in effects)
    console.print(f"{campaign.events} events; faults that took effect: {faults}", highlight=False)
    console.print(campaign.admissions, highlight=False)
    console.print(f"{campaign.storms} storms, {len(campaign.failed)} failed")
    return ExitStatus.BROKEN if campaign.failed else ExitStatus.KEPT


def reproduce(
    console: Console, out: Path, seed: int, *, campus: str | None = None, policy: str | None = None
) -> int:
    """Print one storm's options and lines and play it; if it breaks a promise, write its shortest script.

    Return the exit status.
    """
    compile_once()
    options = options_of(seed, campus_file=campus, policy=policy)
    script = script_of(options)
    _print(console, f"{options}\n\n{script}")
    failure = _play_once(console, script, f"storm {seed}")
    if failure is None:
        return ExitStatus.KEPT
    remark = f"storm {seed}, shrunk. {failure}".replace("\n", " ")[:240]
    short = replace(shrink(script, failure), remarks=(remark,))
    _print(console, f"\nshrunk:\n{short}")
    path = out / f"storm_{seed}.txt"
    write_whole(path, str(short))
    console.print(f"[red]broken:[/red] replay it with reclaimnet storm --replay {path}", highlight=False)
    return ExitStatus.BROKEN


def replay(console: Console, file: Path) -> int:
    """Play one script again and print its story. Return the exit status. SpecError: it cannot be read."""
    script = parse(reading.read_text(file, "a script of a storm"), str(file))
    compile_once()
    try:
        failure = _play_once(console, script, file.name)
    except SpecError as error:
        raise error if error.source else error.within(str(file)) from None
    return ExitStatus.KEPT if failure is None else ExitStatus.BROKEN


def _play_once(console: Console, script: Script, name: str) -> StormFailure | None:
    """Play a script, and print the story of its failure."""
    failure = play(script, tells_story=True).failure
    if failure is not None:
        _print(console, "\n".join([f"{name}: {failure}", *(f"  {line}" for line in failure.story)]))
    console.print(f"1 storm, {int(failure is not None)} failed")
    return failure


def _print(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)
