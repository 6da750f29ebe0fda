"""An operator's connection to a running coordinator: submit and cancel jobs, ask for the status, watch facts.

`ask` is for programs that are not asynchronous.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import msgspec
import trio

from controller.core.model.facts import AnyFact
from testbed import messages as m
from testbed.bounds import suffixed
from testbed.clock import MonotonicClock
from testbed.errors import RemoteProtocolError, SetupError
from testbed.wire import Channel, Codec

OUT: Codec[m.FromOperator] = Codec(m.FromOperator)
IN: Codec[m.ToOperator] = Codec(m.ToOperator)
SOCKET = "coordinator.sock"  # in the run directory of a campus
JOINED = "coordinator.address"  # in place of that: what an operator of another machine keeps
LOGS = "logs"  # there: a link to the logs of its processes
AGAIN_S, STARTS_WITHIN_S = 0.1, 5.0  # looks for a coordinator that is not there yet, and for how long
PATIENCE_S = 10.0  # for a coordinator that does not answer
JOURNAL = "journal.sqlite"  # there: a link to the coordinator's journal
JOB_LOGS = "jobs"  # in those: what jobs wrote, a file an attempt
T = TypeVar("T")
_FACTS: msgspec.json.Decoder[AnyFact] = msgspec.json.Decoder(AnyFact)


class Operator:
    """A connection of an operator: one request at a time, or a watch."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self._out, self._in = Channel(stream, OUT), Channel(stream, IN)

    async def submit(self, job: m.JobSpec) -> m.Accepted | m.Rejected:
        """Submit a job; return when it is in the coordinator's journal, or is refused."""
        return await self.ask(m.Submit(job), m.Accepted, m.Rejected)

    async def cancel(self, job: str) -> m.Cancelled | m.Rejected:
        """Cancel a job; return when that is in the coordinator's journal, or the reason why it cannot be cancelled."""
        return await self.ask(m.Cancel(job), m.Cancelled, m.Rejected)

    async def describe(self, job: str) -> m.SubmittedJob | None:
        """Return a job as it was submitted, and its phase; None: no job has this name."""
        answer = await self.ask(m.JobRequest(job), m.SubmittedJob, m.Rejected)
        return answer if isinstance(answer, m.SubmittedJob) else None

    async def submit_new(self, job: m.JobSpec) -> m.Accepted | m.Rejected:
        """Submit a job as a new one: where its name is taken, under the first of NAME_2, NAME_3, ... that is not."""
        name, number = job.name, 1
        while True:
            if await self.describe(name) is None:
                answer = await self.submit(msgspec.structs.replace(job, name=name))
                if isinstance(answer, m.Rejected) or not answer.before:
                    return answer
            number += 1
            name = suffixed(job.name, f"_{number}")

    async def status(self) -> m.Status:
        """Return the coordinator's view, now."""
        return await self.ask(m.StatusRequest(), m.Status)

    async def change_links(self, rates: list[tuple[str, str, float]]) -> None:
        """Send rates of links, (source, target, wire bytes/s) of each direction; return when the coordinator plans with them."""
        await self.ask(m.ChangeLinks(rates), m.Noted)

    async def watch(self) -> AsyncIterator[tuple[float, AnyFact]]:
        """Yield (seconds since the coordinator started, fact), as they are recorded; ends with the coordinator."""
        await self._out.send(m.Watch())
        while (message := await self._in.receive()) is not None:
            if isinstance(message, m.Observed):
                yield message.at_s, _FACTS.decode(message.fact)

    async def ask(self, request: m.FromOperator, *answers: type[T]) -> T:
        """Return the answer to a request. RemoteProtocolError: it was refused, or answered by something else."""
        await self._out.send(request)
        answer = await self._in.receive()
        if answer is None:
            raise trio.BrokenResourceError("the coordinator closed the connection")
        if isinstance(answer, m.Refused):
            raise RemoteProtocolError(answer.reason)
        if not isinstance(answer, answers):
            raise RemoteProtocolError(f"{type(request).__name__} was answered by {type(answer).__name__}")
        return answer


@asynccontextmanager
async def connected(path: Path) -> AsyncIterator[Operator]:
    """Connect to the coordinator at `path`, or to that of another machine that was joined there; OSError if there is none."""
    stream: trio.abc.Stream
    if (joined := path.with_name(JOINED)).exists():
        from experiments.worlds.live.joined import conversation

        stream = await conversation(joined)
    else:
        stream = await trio.open_unix_socket(str(path))
    try:
        yield Operator(stream)
    finally:
        await trio.aclose_forcefully(stream)


def ask(run_dir: Path, what: Callable[[Operator], Awaitable[T]], patience_s: float) -> T:
    """Return the answer of the coordinator of the campus in `run_dir`.

    SetupError: access is denied, or no answer came in time.
    """

    async def conversation() -> T:
        with trio.fail_after(patience_s):
            begun_within_s = trio.current_time() + STARTS_WITHIN_S
            while True:
                try:
                    async with connected(run_dir / SOCKET) as operator:
                        return await what(operator)
                except (FileNotFoundError, ConnectionRefusedError):  # it is being started, or started again
                    if trio.current_time() >= begun_within_s:
                        raise
                await trio.sleep(AGAIN_S)

    try:
        return trio.run(conversation, clock=MonotonicClock())
    except PermissionError as error:
        raise SetupError("only root may ask the coordinator") from error
    except (OSError, trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError) as error:
        raise SetupError("the coordinator does not answer") from error
