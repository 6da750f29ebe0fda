"""Signals that end the program wait while a campus is half made or half gone, and never miss one that stands.

A handler may raise between any two instructions of the main thread. It may come after an object was made and before it
is remembered, or in the middle of taking it down. Or it comes inside a callback whose errors Python drops (os.fork's
hooks, finalizers, importlib's weak references), where an interrupt is lost. So what makes, forks and removes runs with
the signals held: they are noted, and delivered to the program's own handlers at the end. Only the main thread runs
handlers; elsewhere there is nothing to hold.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, NoReturn

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
KILLED_BY = 128  # added to the number of the signal, as shells do


class Interrupted(KeyboardInterrupt):
    """Arrival of a signal that is held: what was begun is to be undone."""


@contextlib.contextmanager
def signals_held() -> Iterator[Callable[[], None]]:
    """Hold ending signals that arrive in the block: they are delivered, once each, at its end.

    Yields a function that raises Interrupted if one has arrived, for places where what was done so far can be undone.
    """
    arrived: dict[int, None] = {}

    def note(signum: int, _frame: FrameType | None) -> None:
        arrived[signum] = None

    def check() -> None:
        if arrived:
            raise Interrupted

    own: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        own = {s: h for s in ENDING if (h := signal.getsignal(s)) not in (signal.SIG_IGN, None)}
    try:
        _set_handlers(dict.fromkeys(own, note))
        yield check
    finally:
        _set_handlers(own)
        for signum in arrived:
            signal.raise_signal(signum)


def end_by_exit() -> Callable[[], None]:
    """Let SIGTERM and SIGHUP raise SystemExit (143, 129) where they would kill, so that what stands is taken down.

    Returns the function that puts it back.
    """
    if threading.current_thread() is not threading.main_thread():
        return lambda: None
    ours = [s for s in ENDING if signal.getsignal(s) == signal.SIG_DFL]
    _set_handlers(dict.fromkeys(ours, _exit))

    def put_back() -> None:
        if threading.current_thread() is threading.main_thread():
            _set_handlers({s: signal.SIG_DFL for s in ours if signal.getsignal(s) is _exit})

    return put_back


def _exit(signum: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(KILLED_BY + signum)


def _set_handlers(handlers: dict[int, Any]) -> None:
    """Set every handler while signals of this thread are blocked."""
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, handlers)
    try:
        for signum, handler in handlers.items():
            signal.signal(signum, handler)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
