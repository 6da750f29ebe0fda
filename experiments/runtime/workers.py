"""Processes that play tasks: fresh ones, which end with their parent."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing.context import SpawnContext, SpawnProcess
from types import ModuleType
from typing import Any


class _WithoutMain(SpawnProcess):
    """Start of a process without the user's main program, which `spawn` would run again.

    A script needs no guard, and no task is of it.
    """

    @staticmethod
    def _Popen(process_obj: Any) -> Any:  # noqa: N802 - multiprocessing's hook
        main = sys.modules["__main__"]
        sys.modules["__main__"] = ModuleType("__main__")
        try:
            return SpawnProcess._Popen(process_obj)
        finally:
            sys.modules["__main__"] = main


class _Context(SpawnContext):
    Process = _WithoutMain


@contextmanager
def workers(count: int) -> Iterator[ProcessPoolExecutor]:
    """Open a pool of `count` processes.

    Interrupted, or where the caller fails, it ends at once, and with it tasks that have begun: one may take minutes.
    """
    pool = ProcessPoolExecutor(count, _Context(), initializer=_begin)
    try:
        yield pool
    except BaseException:
        for process in list((pool._processes or {}).values()):
            process.terminate()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _begin() -> None:
    """Prepare a worker before anything that a task needs is imported.

    A worker whose parent was killed would wait for ever for its next task, so it ends with its parent. Signals typed at
    a terminal are for the parent alone, which ends its workers.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()

    def end_with_parent() -> None:
        assert parent is not None
        parent.join()
        os._exit(1)

    if parent is not None:
        threading.Thread(target=end_with_parent, daemon=True).start()
