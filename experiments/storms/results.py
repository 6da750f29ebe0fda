"""What a campaign says: a table for the terminal, a Markdown page for the docs, a text file for each kind of failure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from experiments.storms.admissions import JUDGED
from experiments.storms.campaign import Campaign, FailedStorm, one_of_each
from topologies.writing import write_whole

SECTIONS = {
    "fault": "Faults that took effect",
    "policy": "Rows of the policies",
    "admission": "Admitted migrations: judged, or what kept them from being judged",
    "job": "Phases of jobs, from one event to the next",
    "fact": "Facts recorded",
    "coordinator": "What the coordinator heard, and the phase of the job that it was about",
    "agent": "What agents met, and the phase of the job there",
}


def page(campaign: Campaign, *, date: str, commit: str) -> str:
    """The written result, Markdown: one line that sums it up, then how often everything happened."""
    plan = campaign.plan
    where = plan.campus_file or "random campuses"
    kinds = Counter(failed.failure.kind for failed in campaign.failed)
    failures = [
        f"- storm {failed.seed} (and {kinds[failed.failure.kind] - 1} more of its kind): {failed.failure.subject}: "
        f"{failed.failure.rule}"
        for failed in one_of_each(campaign.failed)
    ]
    lines = [
        "# Fault storms",
        "",
        "Made by `make storm` (`reclaimnet storm`): random campuses, jobs, owners and faults; every promise of the design is",
        "checked after every event and over the whole journal. The same seed is the same storm. A failure is shrunk to a",
        "few lines that `reclaimnet storm --replay FILE` plays; those of bugs that were found are in `tests/scenarios`.",
        "",
        "| date | commit | seeds | where | policies | storms | events | failed |",
        "|---|---|---|---|---|---|---|---|",
        f"| {date} | {commit} | {plan.first}:{plan.last} | {where} | {plan.policy or 'all rows'} | {campaign.storms} "
        f"| {campaign.events} | {len(campaign.failed)} |",
        "",
        *failures,
        *([""] if failures else []),
        f"{admissions_told(campaign.counts)} The others met a fault that no admission could foresee, or their system promises",
        "no rate; the table of admissions below counts each by its cause.",
        "",
        "A storm that never exercises a thing proves nothing about it. So often did these happen, in so many storms:",
        *(line for section in SECTIONS for line in _section(campaign, section)),
    ]
    return "\n".join(lines).rstrip() + "\n"


def admissions_told(counts: Counter[str]) -> str:
    """How many migrations were admitted, and of how many it was judged whether they were in time."""
    admitted = sum(count for key, count in counts.items() if key.startswith("admission: "))
    judged = counts[f"admission: {JUDGED}"]
    share = f" ({judged / admitted:.0%})" if admitted else ""
    return f"Of {admitted} admitted migrations {judged}{share} were judged to be in time or late."


def story(failed: FailedStorm) -> str:
    """A failure: what was broken, the shrunk script, and what happened to whom it concerns."""
    failure = failed.failure
    told = [f"storm {failed.seed}: {failure.subject}: {failure.rule}"]
    if failed.shrunk is not None:
        told += ["", *(f"    {line}" for line in str(failed.shrunk).splitlines()), ""]
    return "\n".join([*told, *(f"  {line}" for line in failure.story)])


def write_failures(campaign: Campaign, out: Path) -> list[Path]:
    """One script a kind of failure, to be replayed and kept."""
    paths = []
    for failed in one_of_each(campaign.failed):
        if failed.shrunk is not None:
            path = out / f"storm_{failed.seed}.txt"
            remark = f"storm {failed.seed}, shrunk. {failed.failure.subject}: {failed.failure.rule}"
            write_whole(path, str(replace(failed.shrunk, remarks=(remark.replace("\n", " ")[:240],))))
            paths.append(path)
    return paths


def _section(campaign: Campaign, section: str) -> Iterator[str]:
    found = {k.partition(": ")[2]: k for k in sorted(campaign.counts) if k.startswith(f"{section}: ")}
    yield from ["", f"## {SECTIONS[section]}", "", "| what | times | storms |", "|---|---|---|"]
    for what, key in found.items():
        yield f"| {what.replace('|', '/')} | {campaign.counts[key]} | {campaign.storms_with[key]} |"
