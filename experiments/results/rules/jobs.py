"""Rules about jobs and their checkpoints: nothing is lost, nothing runs twice, nothing is restored that was never completed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from controller.core.model import facts as f
from experiments.results.history import Timed, Where, end_of_attempt, end_s, only, whereabouts
from experiments.results.rules.breach import Breach
from experiments.results.run_context import RunContext

OF_CHECKPOINTS = frozenset((f.CheckpointCompleted, f.CheckpointHeld, f.JobDispatched, f.JobRunning))


def no_job_is_lost(facts: Sequence[Timed], context: RunContext) -> Iterator[Breach]:
    """Check that each accepted job has ended, or is on a host, on the way to one, or waiting."""
    where = whereabouts(facts)
    for _, fact in facts:
        if isinstance(fact, f.JobSubmitted):
            place = where.get(fact.job)
            if place in (None, Where.ACCEPTED, Where.INTERRUPTED):
                yield Breach(fact.job, end_s(facts), f"nothing is known of it beyond: {place}")


def one_copy_runs(facts: Sequence[Timed], context: RunContext) -> Iterator[Breach]:
    """Check that no attempt begins before the one before has ended, that attempts grow, and that only the latest runs."""
    alive: dict[str, dict[int, str]] = {}
    latest: dict[str, int] = {}
    for at_s, fact in facts:
        match fact:
            case f.JobDispatched(job=job, attempt=attempt) if attempt <= latest.get(job, 0):
                yield Breach(job, at_s, f"attempt {attempt} dispatched after attempt {latest.get(job, 0)}")
            case f.JobDispatched(job=job, attempt=attempt):
                latest[job] = attempt
            case f.JobRunning(job=job, attempt=attempt) if attempt != latest.get(job):
                yield Breach(job, at_s, f"attempt {attempt} runs, the latest dispatched is {latest.get(job)}")
        if isinstance(fact, f.JobDispatched | f.JobRunning):
            copies, here = alive.setdefault(fact.job, {}), (fact.attempt, fact.host)
            others = [f"attempt {n} on {at}" for n, at in copies.items() if (n, at) != here]
            if others and copies.get(fact.attempt) != fact.host:
                words = f"attempt {fact.attempt} begins on {fact.host} while {', '.join(others)} may run"
                yield Breach(fact.job, at_s, words)
            copies[fact.attempt] = fact.host
        elif ending := end_of_attempt(fact):
            alive.get(ending[0], {}).pop(ending[1], None)


def hosts_have_the_gpus(facts: Sequence[Timed], context: RunContext) -> Iterator[Breach]:
    """Check that the attempts on a host never have more GPUs together than the host has."""
    asked: dict[str, int] = {}
    here: dict[str, tuple[str, int]] = {}  # job -> the host and the number of the attempt that has GPUs
    for at_s, fact in facts:
        match fact:
            case f.JobSubmitted(job=job, gpus=gpus):
                asked[job] = gpus
            case f.JobDispatched(job=job, attempt=attempt, host=host):
                here[job] = (host, attempt)
                jobs = sorted(name for name, (at, _) in here.items() if at == host)
                taken, known = sum(asked.get(name, 1) for name in jobs), context.campus.host_by_name.get(host)
                if known is not None and taken > known.gpus:
                    yield Breach(job, at_s, f"{jobs} have {taken} GPUs of {host}, which has {known.gpus}")
        if (ending := end_of_attempt(fact)) and ending[0] in here and here[ending[0]][1] == ending[1]:
            del here[ending[0]]


def jobs_end_once(facts: Sequence[Timed], context: RunContext) -> Iterator[Breach]:
    """Check that a job ends once, finishes at its last step, and neither begins nor ends again after that or its cancellation."""
    steps: dict[str, int] = {}
    over: dict[str, str] = {}
    for at_s, fact in facts:
        match fact:
            case f.JobSubmitted(job=job):
                steps.setdefault(job, fact.steps)
            case f.JobFinished(job=job, step=step) if step != steps.get(job):
                yield Breach(job, at_s, f"finished at step {step} of {steps.get(job)}")
            case f.JobDispatched(job=job) | f.JobRunning(job=job) if job in over:
                yield Breach(job, at_s, f"attempt {fact.attempt} begins though the job was {over[job]}")
        match fact:
            case f.JobFinished(job=job) | f.JobCancelled(job=job) | f.JobFailed(job=job):
                is_cancelled = isinstance(fact, f.JobCancelled)
                if job in over and not (is_cancelled and over[job] == "ordered to end"):
                    yield Breach(job, at_s, f"{type(fact).__name__}, and it was {over[job]}")
                if not isinstance(fact, f.JobFailed):
                    over[job] = "cancelled" if is_cancelled else "finished"
            case f.CancelOrdered(job=job):
                over.setdefault(job, "ordered to end")


def checkpoints_complete_once_and_restore(facts: Sequence[Timed], context: RunContext) -> Iterator[Breach]:
    """Check that a checkpoint completes once, before others hold it, and that a restore is of a completed one.

    The restore has the step of the checkpoint, or is from nothing at step 0; all restores of one checkpoint have one digest.
    """
    steps: dict[tuple[str, int], int] = {}
    digests: dict[tuple[str, int], str] = {}
    for at_s, fact in only(facts, OF_CHECKPOINTS):
        match fact:
            case f.CheckpointCompleted(job=job, sequence=sequence):
                if (job, sequence) in steps:
                    yield Breach(job, at_s, f"checkpoint {sequence} completed twice")
                steps.setdefault((job, sequence), fact.step)
            case f.CheckpointHeld(job=job, sequence=sequence) if (job, sequence) not in steps:
                yield Breach(job, at_s, f"{fact.holder} holds checkpoint {sequence}, which never completed")
            case f.JobDispatched(job=job):
                yield from _restored(at_s, job, fact.restore_sequence, fact.restore_step, steps)
            case f.JobRunning(job=job, restored_sequence=restored, digest=digest):
                yield from _restored(at_s, job, restored, fact.step, steps)
                if restored is not None and digest:
                    first = digests.setdefault((job, restored), digest)
                    if first != digest:
                        yield Breach(job, at_s, f"checkpoint {restored} restored as {digest}, before as {first}")


def _restored(
    at_s: float, job: str, sequence: int | None, step: int, steps: dict[tuple[str, int], int]
) -> Iterator[Breach]:
    if sequence is None:
        if step != 0:
            yield Breach(job, at_s, f"begins at step {step} without a checkpoint")
    elif (job, sequence) not in steps:
        yield Breach(job, at_s, f"resumes from checkpoint {sequence}, which never completed")
    elif step != (held := steps[job, sequence]):
        yield Breach(job, at_s, f"resumes at step {step} from checkpoint {sequence} of step {held}")
