"""The process of the page: a socket on loopback, the feed, and the coordinator's health."""

from __future__ import annotations

import os
import resource
import signal
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import trio
from hypercorn.config import Config
from hypercorn.trio import serve as serve_asgi

from experiments.dashboard.application import Application
from experiments.dashboard.feed import Feed
from experiments.dashboard.health import Health
from experiments.dashboard.remote_metrics import Remote, serve_metrics
from experiments.dashboard.sources import EventsFile, JournalSource
from experiments.worlds.live.operator import JOURNAL
from testbed import identity
from testbed.checkpoints.files import replace_durably
from testbed.clock import MonotonicClock
from testbed.emulation.safety.living import RunningCampus
from testbed.errors import SetupError
from testbed.trust.authority import LIFE_S

TOKEN = "RECLAIMNET_PAGE_TOKEN"  # environment: a file that always holds a good token, for programs
ADDRESS = "127.0.0.1"
UNREAD_MS = 5_000  # until a client that reads nothing is given up; the page could not end beside one
BEGUN_S = 5.0  # within which a coordinator that was started has begun its journal


@dataclass(frozen=True)
class Shown:
    """A run and, if it goes on, its campus; `remote`: where other machines read its metrics."""

    source: JournalSource | EventsFile
    campus: RunningCampus | None = None
    remote: Remote | None = None


def of_campus(campus: RunningCampus) -> Shown:
    """Return a campus that stands; a coordinator that has just been started is waited for until it has begun its journal.

    SetupError: it has none (no coordinator), or this user may not read it.
    """
    link, end_s = campus.run_dir / JOURNAL, time.monotonic() + BEGUN_S
    try:
        if not link.is_symlink():
            raise SetupError(f"campus {campus.id} has no journal: it was built without agents")
        path = link.resolve()
        while time.monotonic() < end_s:
            if path.exists():
                with suppress(SetupError):  # its tables are being made
                    return Shown(JournalSource(path, live=True), campus)
            time.sleep(0.05)
        return Shown(JournalSource(path, live=True), campus)
    except PermissionError as error:
        raise SetupError("only root may read the journal of a campus") from error


def serve(shown: Shown, port: int, tell: Callable[[str], None]) -> None:
    """Serve until interrupted. The callback gets each address once it is served. SetupError: a port is taken."""
    sock = listening(port)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[
        1
    ]  # connections of strangers wait out their time without using it up
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    trio.run(_main, shown, sock, tell, clock=MonotonicClock())


def listening(port: int) -> socket.socket:
    """Return a socket on loopback."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNREAD_MS)
    try:
        sock.bind((ADDRESS, port))
    except OSError as error:
        sock.close()
        raise SetupError(f"port {port} cannot be taken ({error.strerror}): another one, or --port 0 for any") from error
    return sock


async def _main(shown: Shown, sock: socket.socket, tell: Callable[[str], None]) -> None:
    campus = shown.campus
    feed = Feed(shown.source, _ended(campus))
    health = Health(campus is not None)
    application = Application(feed, health, campus)
    asgi: Any = application.asgi  # of Starlette's types, which are not hypercorn's
    config = Config()
    config.bind = [f"fd://{sock.detach()}"]
    config.errorlog = None
    config.include_server_header = False
    config.graceful_timeout = 0.5
    async with trio.open_nursery() as nursery:
        nursery.start_soon(feed.run)
        if shown.remote is not None:
            tell(await nursery.start(partial(serve_metrics, shown.remote, feed, application.registry)))
        if file := os.environ.get(TOKEN):
            nursery.start_soon(_keep_token, Path(file), application)
        if campus is not None:
            nursery.start_soon(health.watch, campus.run_dir)
        [address] = await nursery.start(partial(serve_asgi, asgi, config, shutdown_trigger=trio.sleep_forever))
        tell(f"{address}/#token={application.token}")
        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
            await anext(signals)
            raise KeyboardInterrupt


async def _keep_token(file: Path, application: Application) -> None:
    while True:
        replace_durably(file, application.token.encode())
        await trio.sleep(LIFE_S / 2)


def _ended(campus: RunningCampus | None) -> Callable[[], bool]:
    if campus is None:
        return lambda: True
    started = identity.start_time(campus.owner_pid)
    return lambda: started is None or not identity.is_alive(campus.owner_pid, started)
