"""A command's first second: while its modules are imported, a signal ends it where it stands.

An exception that a handler raises would be lost wherever Python drops errors: importlib's own locks have weakref callbacks, numpy
catches what its imports raise. Nothing has been begun that would have to be put away, so none is raised. `exit_status.run` takes
over from here. Imported before all else: it needs nothing itself, not even `signal`, which gives numbers names for as long as an
owner's command takes to close a host.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Never

CUT_SHORT = 3  # of `exit_status.ExitStatus`


def leave_on_signals() -> None:
    """Let SIGINT, SIGTERM and SIGHUP end the process at once, with the message and status of an interrupted command.

    SIGHUP that is ignored (nohup) stays ignored; SIGINT that a script's shell has ignored is handled, as in
    `exit_status.run`.
    """
    for signum in (_signal.SIGINT, _signal.SIGTERM, _signal.SIGHUP):
        if signum == _signal.SIGINT or _signal.getsignal(signum) == _signal.SIG_DFL:
            _signal.signal(signum, leave)


def leave(signum: int, frame: FrameType | None) -> Never:
    """Handle a signal: end the process at once."""
    try:
        os.write(2, b"reclaimnet: interrupted\n")
    except OSError:  # stderr is full or closed
        pass
    os._exit(CUT_SHORT)
