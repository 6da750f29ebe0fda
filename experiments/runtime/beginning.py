"""A command's first second: while its modules are imported, a signal ends it where it stands.

An exception that a handler raises would be lost wherever Python drops errors: importlib's own locks have weakref callbacks, numpy
catches what its imports raise. Nothing has been begun that would have to be put away, so none is raised. `ending.run` takes over
from here. Imported before all else: it needs nothing itself.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from types import FrameType
from typing import Never

CUT_SHORT = 3  # of `ending.ExitStatus`


def leave_on_signals() -> None:
    """From here on SIGINT, SIGTERM and SIGHUP end the process at once, with the words and the status of an interrupted command.

    SIGHUP that is ignored (nohup) stays ignored; SIGINT that a script's shell has ignored is heard, as in `ending.run`.
    """
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signum == signal.SIGINT or signal.getsignal(signum) == signal.SIG_DFL:
            signal.signal(signum, leave)


def leave(signum: int, frame: FrameType | None) -> Never:
    """The handler."""
    with suppress(OSError):  # stderr may be full or closed
        os.write(2, b"reclaimnet: interrupted\n")
    os._exit(CUT_SHORT)
