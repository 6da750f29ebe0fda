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
from testbed.workloads.messages import Finished, Progress, SnapshotTaken, Started

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


@pytest.mark.parametrize(
    "words",
    [
        "",
        "plain",
        "\x1b[2J\n\tx",
        "\u202egnp.exe",
        "\udcff",
        "x" * 5000,
        "\N{SNOWMAN} " * 900,
        "a\x00b",
        "\x85",
    ],
)
def test_whatever_is_quoted_is_one_line_that_a_message_carries(words: str) -> None:
    said = bounds.quoted(words)
    assert len(said) <= bounds.LONGEST_QUOTE
    assert not refused(m.JobEnded("a", 1, "failed", 1, reason=said))


@pytest.mark.parametrize("words", ["\x1b[2J", "two\nlines", "\u202egnp.exe", "x" * 4097])
def test_words_that_a_terminal_would_obey_are_no_words_of_an_agent(words: str) -> None:
    assert refused(m.JobEnded("a", 1, "failed", 1, reason=words))


def test_every_report_of_a_job_fits_what_its_agent_says_of_it() -> None:
    """Each number that a job's process says has the range of the message that carries it on."""
    for kind in (Started, Progress, Finished, SnapshotTaken):
        for name, hint in get_type_hints(kind, include_extras=True).items():
            if hint in (bool, str) or name == "number":  # quoted; its agent's own
                continue
            assert not bounds.within(
                hint.__origin__(2**63 if hint.__origin__ is not bytes else 10_000), hint
            ), name
