"""Each number and name has one range, whatever carries it."""

from __future__ import annotations

from types import UnionType
from typing import Any, get_args, get_type_hints

import msgspec
import pytest

from testbed import bounds
from testbed import messages as m
from testbed.errors import RemoteProtocolError
from testbed.framing import Codec

CODEC: Codec[m.FromAgent] = Codec(m.FromAgent)


def refused(message: Any) -> bool:
    """Whether a frame that holds the message is refused where it arrives."""
    try:
        CODEC.decoder().feed(CODEC.encode(message))
    except RemoteProtocolError:
        return True
    return False


@pytest.mark.parametrize("name", ["job\n", "", "-job", "a" * 65, "job/1", "jöb"])
def test_a_name_ends_where_it_ends(name: str) -> None:
    assert not bounds.is_name(name)
    assert not bounds.within(name, bounds.Name)
    assert refused(m.CheckpointStored(m.StoredCheckpoint(name, 1, 1, 1, "")))


@pytest.mark.parametrize("name", ["a", "job-1.b_c", "a" * bounds.LONGEST_NAME])
def test_plain_names_are_names(name: str) -> None:
    assert bounds.is_name(name)
    assert not refused(m.CheckpointStored(m.StoredCheckpoint(name, 1, 1, 1, "")))


def test_every_sequence_can_be_forgotten() -> None:
    last = bounds.LARGEST_SEQUENCE
    assert not refused(m.CheckpointStored(m.StoredCheckpoint("a", last, 1, 1, "")))
    assert refused(m.CheckpointStored(m.StoredCheckpoint("a", last + 1, 1, 1, "")))
    assert bounds.within(last + 1, bounds.Count)
    assert last + 1 >= bounds.LARGEST_ATTEMPT * bounds.SEQUENCES_PER_ATTEMPT + bounds.SEQUENCES_PER_ATTEMPT


def test_a_period_is_one_that_a_clock_can_measure() -> None:
    assert refused(m.Heartbeat(1, [], samples=[m.EgressSample(0.0, 5e-324, 1, 1)]))
    assert refused(m.Heartbeat(1, [], samples=[m.EgressSample(0.0, 0.0, 1, 1)]))
    assert not refused(m.Heartbeat(1, [], samples=[m.EgressSample(0.0, 0.1, 2**50, 1)]))


def test_no_number_of_an_agent_is_without_an_end() -> None:
    """A field that any float or integer fits is one whose sum, quotient or square nothing can hold."""
    seen: set[type] = set()

    def look_into(kind: Any, at: str) -> None:
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            if kind not in seen:
                seen.add(kind)
                for name, each in get_type_hints(kind, include_extras=True).items():
                    look_into(each, f"{kind.__name__}.{name}")
        elif hasattr(kind, "__metadata__"):
            pass  # has a range; that it has an upper end, the value below says
        elif isinstance(kind, UnionType) or get_args(kind):
            for each in get_args(kind):
                look_into(each, at)
        else:
            assert kind not in (int, float), f"{at} has no range"
        if hasattr(kind, "__metadata__") and kind.__origin__ in (int, float):
            assert not bounds.within(kind.__origin__(1e200), kind), f"{at} has no upper end"

    look_into(m.FromAgent, "")
    assert len(seen) > 10
