"""Waiting for what other processes and tasks bring about, for as long as a machine may take that many tests share."""

import time
from collections.abc import Callable
from typing import TypeVar

import trio

PATIENCE_S = 90.0  # a test has 120 s
T = TypeVar("T")


def wait_until(holds: Callable[[], T], why: str | Callable[[], object] = "", within_s: float = PATIENCE_S) -> T:
    """What `holds()` is as soon as it is true; else the test fails, and says why."""
    end_s = time.monotonic() + within_s
    while not (found := holds()):
        assert time.monotonic() < end_s, f"waited in vain: {why() if callable(why) else why}"
        time.sleep(0.02)
    return found


async def until(holds: Callable[[], T]) -> T:
    """What `holds()` is as soon as it is true, while other tasks go on."""
    with trio.fail_after(PATIENCE_S):
        while not (found := holds()):
            await trio.sleep(0.005)
    return found
