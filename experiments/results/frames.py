"""Tables of a run: a row a job, a checkpoint, a notice and so on, each column declared once, with its meaning.

Each kind of fact is a table, too, by its name: its fields, and `at_s`. Times are seconds since the coordinator started,
sizes and rates as they were played. A row is a dataclass; `frame` makes a table a polars frame. Polars, not pandas: its
columns keep whole numbers beside missing values, it writes Parquet by itself, and it is one package.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import astuple

from controller.core.model import facts as f
from experiments.results.history import Attempt, Notice, Timed, attempts, notices, only, tries_of, whereabouts
from experiments.results.link_rates import WAYS, RoutesThen
from experiments.results.losses import InterruptedAttempt, interruptions, work_lost
from experiments.results.lost_time import LostPart, balances
from experiments.results.run_context import RunContext
from topologies.errors import SpecError
from topologies.spec import DirectedLink

if TYPE_CHECKING:
    import polars


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job, in order of submission."""

    job: str  # its name
    submitted_s: float  # when it was accepted
    started_s: float | None  # its first dispatch
    ended_s: float | None  # finished or failed
    state: str  # at the end: finished, failed, waiting, on a host, on the way, interrupted, accepted
    host: str | None  # of its latest attempt
    attempts: int  # dispatches so far
    on_demand: bool  # whether the queue sent it there
    cost: float | None  # paper B's, of its first dispatch
    delay_s: float | None  # until its first dispatch
    steps: int  # that it has to compute
    step_s: float  # how long a step takes on a reference GPU
    payload_bytes: int  # of a checkpoint
    work_lost_s: float  # steps computed and not kept
    lost_gpu_s: float  # that, and pauses, restarts and downtime: see docs/how/lost_time.md
    lost_reference_s: float  # the same in seconds of a reference GPU


@dataclass(frozen=True, slots=True)
class CheckpointRow:
    """A snapshot, in the order in which they were taken."""

    job: str  # its name
    attempt: int  # that took it
    sequence: int  # number; later ones are higher
    step: int  # whose state it is
    taken_s: float  # when its agent reported it
    final: bool  # the job was stopped with it, to move
    payload_bytes: int  # of the whole state
    pause_s: float | None  # for which the job stood still; none: not measured
    completed_s: float | None  # when the first host had verified and stored it
    holder: str | None  # that host
    copies: int  # hosts that held it, completed


@dataclass(frozen=True, slots=True)
class LinkRow:
    """A cable in one direction, and the checkpoints that crossed it: with several paths, by the tree that P3 plans on."""

    source: str  # end that sends
    target: str  # end that receives
    rate_bytes_per_s: float  # as described, on the wire
    migration_bytes_per_s: float  # what research leaves to migrations, payload
    transfers: int  # that crossed it and ended
    bytes_sent: int  # of those, TCP payload
    changes: int  # of its rate during the run


class RunTable(NamedTuple):
    """Declaration of the rows, the function that makes them, and the columns in order; all of the row's if none is named."""

    row: type[Any]
    make: Callable[[Sequence[Timed], RunContext], Iterable[Any]]
    names: tuple[str, ...] = ()


def columns(table: str) -> dict[str, str]:
    """Return column -> its type as it is declared. SpecError: no such table."""
    if table in FACTS:
        return {"at_s": "float"} | {name: FACTS[table].__annotations__[name] for name in FACTS[table].__struct_fields__}
    if table not in TABLES:
        raise SpecError("table", table, f"one of {', '.join(TABLES)}, or a kind of fact such as TransferFinished")
    kinds = {column.name: str(column.type) for column in fields(TABLES[table].row)}
    return {name: kinds[name] for name in TABLES[table].names or kinds}


def frame(table: str, facts: Sequence[Timed], context: RunContext) -> polars.DataFrame:
    """Return the table as a polars frame. SpecError: no such table."""
    import polars

    kinds: dict[str, Any] = {"str": polars.String, "int": polars.Int64, "float": polars.Float64, "bool": polars.Boolean}
    kinds |= {"list[str]": polars.List(polars.String), "list[list[str]]": polars.List(polars.List(polars.String))}
    named = columns(table)
    if table in FACTS:
        found = [(at_s, *astuple(fact)) for at_s, fact in only(facts, (FACTS[table],))]
    else:
        found = list(map(attrgetter(*named), TABLES[table].make(facts, context)))
    schema = {name: kinds[kind.removesuffix(" | None")] for name, kind in named.items()}
    return polars.DataFrame(found, schema, orient="row")


def described() -> Iterator[tuple[str, str, type[Any]]]:
    """Yield (table, description of a row, its declaration) of each table."""
    for name, table in TABLES.items():
        yield name, (inspect.getdoc(table.row) or "").partition("\n\n")[0], table.row


def _jobs(facts: Sequence[Timed], context: RunContext) -> Iterator[JobRow]:
    places, lost_s = whereabouts(facts), Counter[str]()
    for lost in work_lost(facts):
        lost_s[lost.job] += lost.work_s  # type: ignore[assignment]
    accounts, tries = balances(facts, context), tries_of(facts)
    submitted: dict[str, tuple[float, f.JobSubmitted]] = {}
    first: dict[str, f.JobDispatched] = {}
    ended_s: dict[str, float] = {}
    on_demand = set[str]()
    for at_s, fact in only(facts, (f.JobSubmitted, f.JobRedirected, f.JobDispatched, f.JobFinished, f.JobFailed)):
        match fact:
            case f.JobSubmitted():
                submitted.setdefault(fact.job, (at_s, fact))
            case f.JobRedirected():
                on_demand.add(fact.job)
            case f.JobDispatched():
                first.setdefault(fact.job, fact)
            case f.JobFinished() | f.JobFailed():
                ended_s[fact.job] = at_s
    for job, (at_s, fact) in submitted.items():
        began, some = first.get(job), tries.get(job, [])
        account = accounts.get(job)
        yield JobRow(
            job=job,
            submitted_s=at_s,
            started_s=some[0].dispatched_s if some else None,
            ended_s=ended_s.get(job),
            state=str(places.get(job, "accepted")),
            host=some[-1].host if some else None,
            attempts=len(some),
            on_demand=job in on_demand,
            cost=began.cost if began else None,
            delay_s=began.delay_s if began else None,
            steps=fact.steps,
            step_s=fact.step_s,
            payload_bytes=fact.payload_bytes,
            work_lost_s=float(lost_s[job]),
            lost_gpu_s=account.lost_s(*LostPart) if account else 0.0,
            lost_reference_s=account.reference_lost_s(*LostPart) if account else 0.0,
        )


def _checkpoints(facts: Sequence[Timed], _: RunContext) -> Iterator[CheckpointRow]:
    completed: dict[tuple[str, int], tuple[float, str]] = {}
    copies = Counter[tuple[str, int]]()
    for at_s, fact in facts:
        if isinstance(fact, f.CheckpointCompleted):
            completed[fact.job, fact.sequence] = (at_s, fact.holder)
        if isinstance(fact, f.CheckpointCompleted | f.CheckpointHeld):
            copies[fact.job, fact.sequence] += 1
    for at_s, fact in facts:
        if isinstance(fact, f.CheckpointTaken):
            done_s, holder = completed.get((fact.job, fact.sequence), (None, None))
            yield CheckpointRow(
                job=fact.job,
                attempt=fact.attempt,
                sequence=fact.sequence,
                step=fact.step,
                taken_s=at_s,
                final=fact.final,
                payload_bytes=fact.payload_bytes,
                pause_s=fact.pause_s,
                completed_s=done_s,
                holder=holder,
                copies=copies[fact.job, fact.sequence],
            )


def _links(facts: Sequence[Timed], context: RunContext) -> Iterator[LinkRow]:
    campus, routes = context.campus, RoutesThen(context.campus)
    nodes = {node.name for node in campus.nodes}
    transfers, carried, changes = Counter[DirectedLink](), Counter[DirectedLink](), Counter[DirectedLink]()
    for at_s, fact in only(facts, (f.TransferFinished, *WAYS)):
        routes.note(at_s, fact)
        match fact:
            case f.LinkChanged():
                changes[DirectedLink(fact.source, fact.target)] += 1
            case f.TransferFinished(source=source, destination=to) if {source, to} <= nodes:
                for link in routes.history.latest.way(source, to):  # that it ended on
                    transfers[link] += 1
                    carried[link] += fact.bytes_sent
    for cable in campus.links:
        for link in cable.directions():
            yield LinkRow(
                link.source,
                link.target,
                cable.rate_bytes_per_s,
                context.share[link],
                transfers[link],
                carried[link],
                changes[link],
            )


FACTS: dict[str, type[f.Fact]] = {kind.__name__: kind for kind in f.Fact.__subclasses__()}
OF_ATTEMPTS = "job attempt host dispatched_s running_s ended_s how from_step to_step speed"
OF_MIGRATIONS = (
    "at_s job source destination notice_s payload_bytes admitted_s floor_bytes_per_s degraded finished_s in_time took_s "
    "downtime_s"
)
TABLES: dict[str, RunTable] = {
    "jobs": RunTable(JobRow, _jobs),
    "attempts": RunTable(Attempt, lambda facts, _: attempts(facts), tuple(OF_ATTEMPTS.split())),
    "checkpoints": RunTable(CheckpointRow, _checkpoints),
    "migrations": RunTable(Notice, lambda facts, _: notices(facts), tuple(OF_MIGRATIONS.split())),
    "losses": RunTable(InterruptedAttempt, lambda facts, _: interruptions(facts)),
    "links": RunTable(LinkRow, _links),
}
