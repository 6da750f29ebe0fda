"""The end of a command: the table of exit statuses, and the status of each error.

Every command ends through `run`. A script must be able to distinguish a wrong file, an unsuitable machine, a fault of
this program and a broken promise.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from enum import IntEnum
from math import inf
from types import FrameType
from typing import Any, NoReturn

import typer
from rich.console import Console

from bpf.errors import BpfError
from testbed.errors import InvariantBroken, LocalProtocolError, TestbedError
from topologies.plugins import PROJECT

# Errors of a command line; typer brings a copy of click or uses the installed one.
_UsageError: Any = next(each for each in typer.BadParameter.__mro__ if each.__name__ == "ClickException")
# What the machine refuses, rather than this program: full or read-only disks, names, rights, descriptors, processes, memory.
_MACHINE = frozenset(
    (
        *(errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EFBIG),
        *(errno.ENAMETOOLONG, errno.ELOOP),
        *(errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM),
    )
)
# of an installed package that is not there: the extra that brings it
_EXTRAS = {
    **dict.fromkeys(("polars", "scipy"), "analysis"),
    **dict.fromkeys(("hypercorn", "prometheus_client", "starlette"), "web"),
    **dict.fromkeys(("cryptography", "jwt", "os_ken", "pyseccomp"), "live"),
    **dict.fromkeys(("safetensors", "torch"), "torch"),
    "distributed": "dask",
}
_INTERRUPTS = (KeyboardInterrupt, SystemExit)
_RAISES = signal.default_int_handler
# what a library raises that was interrupted while it was imported; so soon after an interrupt it is one
_HALF_IMPORTED = (ImportError, AttributeError, SystemError)
SOON_S = 5.0
_typed_s = -inf


class ExitStatus(IntEnum):
    """Exit statuses, for scripts; the README has the same table."""

    KEPT = 0  # it ran to its end, and all that it judges holds
    BROKEN = 1  # what it judges does not hold: a promise was broken, a comparison or a claim failed
    NOT_RUN = 2  # it could not be run: wrong arguments or files, or the machine lacks or lost what is needed
    # nothing is judged (a journal that was damaged, a comparison with a run on a machine that did not
    # keep up); nothing that was judged is broken
    CUT_SHORT = 3
    INTERNAL = 70  # a fault of this program (EX_SOFTWARE); a traceback shows where
    INTERRUPTED = 128 + signal.SIGINT  # by Ctrl-C, SIGTERM or SIGHUP


# Of several errors at once, the first of these is what the command ends with.
_WORST_FIRST = (
    ExitStatus.INTERNAL,
    ExitStatus.BROKEN,
    ExitStatus.NOT_RUN,
    ExitStatus.INTERRUPTED,
    ExitStatus.CUT_SHORT,
)


def run(command: Callable[[], int | None]) -> int:
    """Run a command; return its exit status (None: 0).

    Errors are printed on stderr.

    SIGTERM and SIGHUP end it as SIGINT does: its work is put away, and the status is INTERRUPTED. SIGHUP that is ignored
    (nohup) stays ignored.
    """
    # a script's shell has SIGINT ignored in what it starts with `&`
    if signal.getsignal(signal.SIGINT) in (signal.SIG_IGN, _RAISES):
        signal.default_int_handler = _typed  # with which trio compares
        signal.signal(signal.SIGINT, _typed)
    for signum in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(signum) == signal.SIG_DFL:
            signal.signal(signum, _interrupt)
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
        ended = command()
        sys.stdout.flush()
    except BaseException as error:  # noqa: BLE001 - the edge of the program: nothing above could report it
        return report(error)
    # typer makes a 130 of an interrupt, and prints nothing
    return report(KeyboardInterrupt()) if ended == ExitStatus.INTERRUPTED else ended or ExitStatus.KEPT


def stands() -> None:
    """Let the status stand: all is put away, and a signal while the interpreter ends changes nothing any more."""
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, signal.SIG_IGN)


def _end_of(error: BaseException) -> tuple[int, str | None]:
    """Return the exit status of one error, which is no group, and its line on stderr, if it has one."""
    match error:
        case BrokenPipeError() | SystemExit(__context__=BrokenPipeError()):  # rich and typer make a 1 of it
            return ExitStatus.CUT_SHORT, None
        case SystemExit(code=str()):
            return ExitStatus.NOT_RUN, f"{error.code}"
        case SystemExit():
            return int(error.code or 0), "interrupted" if error.code is ExitStatus.INTERRUPTED else None
        case KeyboardInterrupt() | typer.Abort():
            return ExitStatus.INTERRUPTED, "interrupted"
        case InvariantBroken():
            return ExitStatus.BROKEN, f"{error}"
        case MemoryError():
            return ExitStatus.NOT_RUN, "there is not enough memory"
        case _ if isinstance(error, _UsageError):  # typer has its own form of these
            return ExitStatus.NOT_RUN, None
        case ModuleNotFoundError(name="mininet"):
            return ExitStatus.NOT_RUN, (
                "Mininet is needed: apt install mininet, and a virtual environment of Debian's own python3 "
                "(/usr/bin/python3 -m venv --system-site-packages)"
            )
        case ModuleNotFoundError() if extra := _EXTRAS.get((error.name or "").partition(".")[0]):
            return ExitStatus.NOT_RUN, f"{error.name} is needed: pip install 'reclaimnet-testbed[{extra}]'"
        case _ if _is_expected(error):
            return ExitStatus.NOT_RUN, f"{error}"
        case _ if _is_of_an_interrupt(error):
            return ExitStatus.INTERRUPTED, "interrupted"
        case _ if isinstance(error, _HALF_IMPORTED) and time.monotonic() - _typed_s < SOON_S:
            return ExitStatus.INTERRUPTED, "interrupted"
    return (ExitStatus.INTERNAL, f"an internal error, a fault of this program: {type(error).__name__}: {error}")


def _is_expected(error: BaseException) -> bool:
    """Return whether a user's file, a package or the machine is to blame, rather than this program."""
    match error:
        case LocalProtocolError():
            return False
        case ModuleNotFoundError():
            return (error.name or "").partition(".")[0] not in PROJECT
        case OSError():
            return error.errno in _MACHINE
    return isinstance(error, TestbedError | BpfError)


def _is_of_an_interrupt(error: BaseException) -> bool:
    """Return whether an interrupt came first, and what it cut short then failed."""
    earlier = error.__cause__ or error.__context__
    return earlier is not None and (isinstance(earlier, _INTERRUPTS) or _is_of_an_interrupt(earlier))


def leaves(error: BaseException) -> Iterator[BaseException]:
    """Yield the errors of a group and of the groups in it; of any other error, itself."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from leaves(inner)
    else:
        yield error


def report(error: BaseException) -> int:
    """Print an error and return its exit status: a line for each expected error, a traceback for others."""
    errors = list(leaves(error))
    ends = [_end_of(each) for each in errors]
    statuses = [status for status, _ in ends]
    status = next((each for each in _WORST_FIRST if each in statuses), statuses[0])
    with suppress(OSError):  # stderr may be full or closed
        if status == ExitStatus.INTERNAL:
            traceback.print_exception(error)
        for each in errors:
            if isinstance(each, _UsageError):
                from typer import rich_utils  # a fifth of the time that a command takes to start

                rich_utils.rich_format_error(each)
        for text in dict.fromkeys(text for _, text in ends if text is not None):  # a nursery may bring one many times
            console = Console(stderr=True, highlight=False)
            console.print(f"reclaimnet: {text}", markup=False, soft_wrap=True)
    if any(isinstance(each, BrokenPipeError) for each in errors):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # or the interpreter fails at its last flush
    return status


def _typed(signum: int, frame: FrameType | None) -> NoReturn:
    """Handle SIGINT as Python does, and note when it came."""
    global _typed_s
    _typed_s = time.monotonic()
    raise KeyboardInterrupt


def _interrupt(signum: int, frame: FrameType | None) -> None:
    """Handle SIGTERM and SIGHUP.

    trio handles an interrupt where it does no harm. Outside of it nothing may catch it as a typed one, as Mininet's
    command line does.
    """
    trio = sys.modules.get("trio")
    if trio is not None and trio.lowlevel.in_trio_run():
        signal.raise_signal(signal.SIGINT)
    else:
        raise SystemExit(ExitStatus.INTERRUPTED)
