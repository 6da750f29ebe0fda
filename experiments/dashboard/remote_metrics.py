"""Metrics for a Prometheus of another machine: HTTP over TLS 1.3, for operators of the campus by their certificates."""

from __future__ import annotations

import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

import h11
import trio
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from experiments.dashboard.feed import POLL_S, Feed
from testbed.errors import ProtocolError, SetupError
from testbed.logs import logger
from testbed.trust.authority import AUTHORITY_LIFE_S, Authority
from testbed.trust.channel import Identity, Name, PartyRole
from testbed.trust.door import Door, Refusals, source_of

Remote = tuple[str, int, Path]  # address, port, file of the campus's authority
PATIENCE_S: Final = 5.0  # with one request
ENDS = (ProtocolError, h11.ProtocolError, trio.BrokenResourceError, trio.ClosedResourceError)  # of a conversation


async def serve_metrics(
    remote: Remote, feed: Feed, metrics: CollectorRegistry, task_status: trio.TaskStatus[str]
) -> None:
    """Serve metrics, under a name that the campus's authority gives this process for its address. SetupError."""
    address, port, authority = remote
    issuer = Authority.load(authority)
    name = Name(issuer.campus, PartyRole.OPERATOR, "metrics")
    identity = Identity(issuer.credentials(name, AUTHORITY_LIFE_S, address))
    refusals = Refusals(partial(logger("dashboard").warning, "metrics: %s: %s (%d times)"))
    door = Door(identity, PartyRole.OPERATOR, refusals=refusals)

    async def answer(stream: trio.SocketStream) -> None:
        began_s = time.time() - feed.now_s
        identity.deny({name: began_s + at_s for name, at_s in feed.revoked.items()})
        with suppress(SetupError):  # its file has gone
            if (issuer := Authority.load(authority)).trusted != identity.credentials.trusted:
                identity.renew(issuer.credentials(name, AUTHORITY_LIFE_S, address))
        with suppress(*ENDS):
            async with stream, door.entering(stream, source_of(stream)) as (words, _):
                with trio.move_on_after(PATIENCE_S):
                    await _answer(words, generate_latest(metrics))

    try:
        listeners = await trio.open_tcp_listeners(port, host=address)
    except OSError as error:
        raise SetupError(f"{address}:{port} cannot be taken: {error}") from error
    while not feed.loaded:  # it does not know yet which names were revoked
        await trio.sleep(POLL_S)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(refusals.report)
        task_status.started("https://{}:{}/metrics".format(*listeners[0].socket.getsockname()))
        await trio.serve_listeners(answer, listeners)


async def _answer(words: trio.abc.Stream, body: bytes) -> None:
    """Answer a request, whatever it asks for."""
    http = h11.Connection(h11.SERVER)
    while (request := http.next_event()) is h11.NEED_DATA:
        http.receive_data(bytes(await words.receive_some()))
    if isinstance(request, h11.Request):
        headers = [("Content-Type", CONTENT_TYPE_LATEST), ("Content-Length", str(len(body))), ("Connection", "close")]
        for event in (h11.Response(status_code=200, headers=headers), h11.Data(data=body), h11.EndOfMessage()):
            await words.send_all(http.send(event) or b"")
        await words.aclose()
