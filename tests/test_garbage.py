"""Full collections look at what is new, and at everything once the heap has doubled."""

import gc
import weakref
from collections.abc import Iterator

import pytest

from testbed.garbage import survivors_set_aside


class Node:
    """Part of a cycle."""

    def __init__(self) -> None:
        self.other: Node | None = None


def cycle() -> Node:
    one, other = Node(), Node()
    one.other, other.other = other, one
    return one


@pytest.fixture(autouse=True)
def by_hand() -> Iterator[None]:
    """Nothing is collected but where a test says so."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("before", [True, False])
def test_what_was_there_or_survived_one_is_not_looked_at_by_the_next(before: bool) -> None:
    old = cycle()
    with survivors_set_aside():
        if not before:
            old = cycle()
            gc.collect()
        gone = weakref.ref(old)
        seen = len(gc.get_objects())
        assert seen < gc.get_freeze_count() / 10
        del old
        gc.collect()
        assert gone() is not None
    gc.collect()
    assert gone() is None


def test_what_is_new_is_collected_at_once() -> None:
    with survivors_set_aside():
        gc.collect()
        gone = weakref.ref(cycle())
        assert gone() is not None
        gc.collect()
        assert gone() is None


def test_cycles_that_died_among_it_are_found_once_it_has_doubled() -> None:
    with survivors_set_aside():
        old = cycle()
        gone = weakref.ref(old)
        gc.collect()
        del old
        more: list[list[list[int]]] = []
        whole = gc.get_freeze_count()
        while gone() is not None:
            assert len(more) < 20, "it was not found"
            more.append([[] for _ in range(whole // 4)])
            gc.collect()
        assert 4 <= len(more) <= 6
