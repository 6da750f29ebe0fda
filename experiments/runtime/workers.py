"""Processes that play tasks: fresh ones, which end with their parent."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager

from experiments.runtime import native


@contextmanager
def workers(count: int, *, prefer_native: bool) -> Iterator[ProcessPoolExecutor]:
    """A pool of so many; `prefer_native`: where they play virtually, in machine code if it is built.

    Interrupted, it leaves tasks that have not begun.
    """
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(count, context, initializer=_begin, initargs=(prefer_native,))
    try:
        yield pool
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _begin(prefer_native: bool) -> None:
    """Before anything that a task needs is imported. A worker whose parent was killed would wait for ever for its next task, so
    it ends with its parent."""
    if prefer_native:
        native.prefer()
    parent = multiprocessing.parent_process()

    def end_with_parent() -> None:
        assert parent is not None
        parent.join()
        os._exit(1)

    if parent is not None:
        threading.Thread(target=end_with_parent, daemon=True).start()
