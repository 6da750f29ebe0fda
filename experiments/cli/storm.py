"""`reclaimnet storm`: many storms, or one again, on a terminal."""

from __future__ import annotations

import os
import time
from pathlib import Path

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from controller.own_policies import find_policy
from controller.warm_up import compile_once
from experiments.inputs.seeds import seed_range
from experiments.runtime.ending import ExitStatus
from experiments.runtime.engines import Engine
from experiments.runtime.revision import revision
from experiments.storms import mutation
from experiments.storms.campaign import CHUNK, Campaign, CampaignPlan, FailedStorm, one_of_each, run
from experiments.storms.play import play
from experiments.storms.results import admissions_told, page, story, write_failures
from experiments.storms.script import parse
from topologies import plugins, toml
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
    result: Path | None = None,
    dask: str | None = None,
    trunks: bool = False,
) -> int:
    """Play the storms of `seeds` (A:B, from A to B - 1) and write what they reached. Returns 0, or 1 if one broke a promise.

    `trunks`: campuses have several paths, and trunks die. `result` gets the
    Markdown page too (for the docs); `dask` is a scheduler whose workers play. SpecError: seeds, campus or policy cannot be read.
    """
    chosen = seed_range(seeds)
    plan = CampaignPlan(chosen.start, chosen.stop, campus, policy, trunks)
    if policy is not None:
        find_policy(policy, "--policy")
    compile_once()
    modules = plugins.sources(policy or "", plugins.POLICIES)
    engine = Engine(workers or os.cpu_count() or 1, dask, modules=modules)
    campaign = _played(console, plan, engine)
    text = page(campaign, date=time.strftime("%Y-%m-%d"), commit=revision())
    for path in (out / "storms.md", *([result] if result else [])):
        write_whole(path, text)
    for failed in one_of_each(campaign.failed):
        console.print(story(failed), markup=False, highlight=False, soft_wrap=True)
        console.print()
    for path in write_failures(campaign, out):
        console.print(f"[red]broken:[/red] replay it with reclaimnet storm --replay {path}", highlight=False)
    counts = campaign.counts
    kinds = sorted(key for key in counts if key.startswith("fault: ") and "upon" not in key)
    faults = ", ".join(f"{key.removeprefix('fault: ')} {counts[key]}" for key in kinds)
    console.print(f"{campaign.events} events; faults that took effect: {faults}", highlight=False)
    names = ("coordinator", "agent", "fact")
    cases = ", ".join(f"{sum(key.startswith(name) for key in counts)} of {name}" for name in names)
    console.print(f"cases reached: {cases}; all of them in {out / 'storms.md'}", highlight=False)
    console.print(admissions_told(campaign.counts), highlight=False)
    for note in engine.notes:
        console.print(note)
    console.print(f"{campaign.storms} storms, {len(campaign.failed)} failed")
    return ExitStatus.BROKEN if campaign.failed else ExitStatus.KEPT


def replay(console: Console, file: Path) -> int:
    """Play one script again and tell its story. Returns 0, or 1 if it breaks a promise. SpecError: it cannot be read."""
    script = parse(toml.read_text(file, "a script of a storm"), str(file))
    compile_once()
    try:
        outcome = play(script, tells_story=True)
    except SpecError as error:
        raise error if error.source else error.within(str(file)) from None
    if outcome.failure is not None:
        console.print(
            story(FailedStorm(int(script.campus.get("seed", 0)), outcome.failure)),
            markup=False,
            highlight=False,
        )
    console.print(f"1 storms, {int(outcome.failure is not None)} failed")
    return ExitStatus.BROKEN if outcome.failure is not None else ExitStatus.KEPT


def mutate(console: Console, names: str, seeds: str, *, workers: int | None = None) -> int:
    """Play storms against the program with one rule broken, rule by rule. Returns 0, or 1 if a storm fails without a mutant.

    SpecError: the names or seeds cannot be read.
    """
    chosen, storms = mutation.named(names), seed_range(seeds)
    if (failure := mutation.unmutated(chosen, storms)) is not None:
        console.print(f"without any mutant: {failure.subject}: {failure.rule}", markup=False, highlight=False)
        return ExitStatus.BROKEN

    def heard(tried: mutation.Tried) -> None:
        found = f"storm {tried.seed}: {tried.failure.rule}" if tried.failure else "NOT NOTICED"
        console.print(f"{tried.mutant}: {found[:150]}", markup=False, highlight=False)

    tried = mutation.attempt_all(chosen, storms, count=workers or os.cpu_count() or 1, heard=heard)
    caught = sum(each.failure is not None for each in tried)
    console.print(
        f"{caught} of {len(tried)} mutants ({caught / len(tried):.0%}) are noticed by storms {seeds}"
    )
    return ExitStatus.KEPT


def _played(console: Console, plan: CampaignPlan, engine: Engine) -> Campaign:
    columns = (
        TextColumn("storms"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[failed]} failed"),
    )
    with Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=console) as shown:
        task, said = shown.add_task("storms", total=plan.last - plan.first, failed=0), 0

        def progress(campaign: Campaign) -> None:
            nonlocal said
            shown.update(task, completed=campaign.storms, failed=len(campaign.failed))
            for failed in campaign.failed[said:]:  # to shrink them takes minutes
                said += 1
                broken = f"storm {failed.seed}: {failed.failure.subject}: {failed.failure.rule}"
                console.print(broken[:300], markup=False, highlight=False, soft_wrap=True)
            if not console.is_terminal and campaign.storms % LINE_EVERY < CHUNK:
                console.print(f"{campaign.storms} storms, {len(campaign.failed)} failed so far")

        return run(plan, engine, progress=progress)
