"""Keeps Python's collector of cycles from looking through a large heap again and again.

A full collection looks at every container of the process: with 500 hosts for 60 to 120 ms in the coordinator, several times a
minute, in which no agent is answered; it finds next to nothing. Here what there is at first, and what has survived one, is set
aside (`gc.freeze`), so that the next looks only at what is newer. A cycle among what was set aside is not found when it dies;
once twice as much is set aside as there was at first, or when all was looked through last, all is looked through again. So
garbage is at most half of the heap.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

OLDEST = 2  # the generation of full collections


class _Survivors:
    """Callback at the end of a collection; `whole` is the number of survivors of the last full one, or of the start."""

    def __init__(self) -> None:
        gc.freeze()
        self.whole: int | None = gc.get_freeze_count()

    def __call__(self, phase: str, info: dict[str, int]) -> None:
        if phase != "stop" or info["generation"] != OLDEST:
            return
        gc.freeze()
        count = gc.get_freeze_count()
        if self.whole is None:
            self.whole = count
        elif count > 2 * self.whole:
            self.whole = None
            gc.unfreeze()  # the next full collection looks at all


@contextmanager
def survivors_set_aside() -> Iterator[None]:
    """Restrict full collections to new objects, and make them rare, until the context ends."""
    survivors = _Survivors()
    gc.callbacks.append(survivors)
    try:
        yield
    finally:
        gc.callbacks.remove(survivors)
        gc.unfreeze()
