"""The range of every number and name that crosses a socket, lies in a file or stands in a journal: one type each, here only.

A number that one reader takes and another refuses makes a good machine look broken for ever: for example, a checkpoint
that a store accepts and no frame can name. So messages, manifests, stores and journals are declared with these types
and own no range. A type is checked by msgspec wherever it is decoded; `within` asks the same of a value that was made
here or was read otherwise.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from topologies.keys import MAX_FACTOR
from topologies.units import LARGEST_RATE_BYTES_PER_S

# sums of a few of them stay within what SQLite and MessagePack call an integer (2**63 - 1)
LARGEST_COUNT: Final = 2**62
# one below, so that Forget can name a number above every sequence
LARGEST_SEQUENCE: Final = LARGEST_COUNT - 1
# an attempt's checkpoints are attempt * this + 1, + 2, ...: more than one a second for eleven days
SEQUENCES_PER_ATTEMPT: Final = 1_000_000
# its last sequence is still a sequence
LARGEST_ATTEMPT: Final = LARGEST_COUNT // SEQUENCES_PER_ATTEMPT - 1
# a thousand terabytes: what no disk of a campus holds; a sum of as many as a run has stays below 2**63
LARGEST_PAYLOAD_BYTES: Final = 2**50
# what a job may have; times the longest step it is still a number of seconds that a float holds to the microsecond
LARGEST_STEP: Final = 10**12
# in one heartbeat: seven minutes of them, and the sum of what they count stays below 2**63
MAX_SAMPLES: Final = 4096
# of service, of which there are a handful
MAX_CLASSES: Final = 64
# what a journal takes: the square of it, and the sum of as many as there may be, are finite, so figures made of them are
LARGEST_NUMBER: Final = 1e100
LARGEST_INTEGER: Final = 2**63 - 1
# a flow that is granted nothing sends so much all the same, so that its receiver knows that it lives
TRICKLE_BYTES_PER_S: Final = 8192.0
# shorter than anything that a clock here separates, and long enough that no count divided by it leaves LARGEST_NUMBER
SHORTEST_PERIOD_S: Final = 1e-6
# slower than any disk that is in order, and faster than any memory: what a host reports of its own cannot make its snapshots look
# free, or as long as a run
SLOWEST_BYTES_PER_S: Final = 1e4
FASTEST_BYTES_PER_S: Final = 1e11
# with a sequence of 19 digits and a suffix still a file name (255 bytes)
LONGEST_NAME: Final = 64
# what is quoted of a peer's own words, and of an error that may repeat them
LONGEST_QUOTE: Final = 1000

# jobs of an array
MAX_ARRAY: Final = 10_000

# that a Hello lists, the last by name: a frame has room for so many of the longest
MAX_STORED: Final = 3_000
MAX_ENDED: Final = 64

# of a job as it is submitted, encoded: every frame that carries one has room for what goes with it
LONGEST_JOB_BYTES: Final = 256 << 10

NAME_PATTERN: Final = r"^[A-Za-z0-9][A-Za-z0-9_.-]*\Z"  # \Z, since $ also matches before a newline at the end
NAME_RULE: Final = (
    f"1 to {LONGEST_NAME} letters, digits, dots, dashes and underscores, beginning with a letter or digit"
)

Name = Annotated[str, Meta(min_length=1, max_length=LONGEST_NAME, pattern=NAME_PATTERN)]
Count = Annotated[int, Meta(ge=0, le=LARGEST_COUNT)]
Sequence = Annotated[int, Meta(ge=0, le=LARGEST_SEQUENCE)]
Attempt = Annotated[int, Meta(ge=0, le=LARGEST_ATTEMPT)]
Step = Annotated[int, Meta(ge=0, le=LARGEST_COUNT)]
PayloadBytes = Annotated[int, Meta(ge=0, le=LARGEST_PAYLOAD_BYTES)]
Seconds = Annotated[float, Meta(ge=0.0, le=1e9)]
Period = Annotated[float, Meta(ge=SHORTEST_PERIOD_S, le=1e9)]
Rate = Annotated[float, Meta(ge=0.0, le=LARGEST_RATE_BYTES_PER_S)]
Speed = Annotated[float, Meta(ge=SLOWEST_BYTES_PER_S, le=FASTEST_BYTES_PER_S)]
# of a GPU to the reference
Factor = Annotated[float, Meta(gt=0.0, le=MAX_FACTOR)]
Ratio = Annotated[float, Meta(ge=0.0, le=LARGEST_NUMBER)]
Address = Annotated[str, Meta(max_length=64, pattern=r"^[ -~]*\Z")]
Port = Annotated[int, Meta(ge=1, le=65535)]
# one line of printable characters: what a peer sends is shown in terminals, logs and pages
Text = Annotated[str, Meta(max_length=4096, pattern=r"^[^\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]*\Z")]
Digest = Annotated[str, Meta(max_length=128, pattern=r"^[!-~]*\Z")]
# of a state, as a job's process proves it
StateDigest = Annotated[bytes, Meta(max_length=64)]
# a one-time number of a transfer: what a peer that did not receive it cannot guess
Ticket = Annotated[int, Meta(ge=0, le=LARGEST_INTEGER)]
# bytes or packets since a program was loaded: at 100 Gbit/s, two months; the sum over all classes stays below 2**63
Counted = Annotated[int, Meta(ge=0, le=2**56)]


def most_checkpoint_bytes(payload_bytes: int) -> int:
    """Return the maximum size of a job's checkpoint: its declared size, its workload's overhead, and a margin."""
    return 2 * payload_bytes + (1 << 20)


def within(value: object, kind: Any) -> bool:
    """Return True if `value` is valid for the type: a name or number of this module, or a type composed of them."""
    try:
        msgspec.convert(value, kind, strict=True)
    except msgspec.ValidationError:
        return False
    return True


def quoted(text: str) -> str:
    """Return the words as one line of printable characters, at most LONGEST_QUOTE: a `Text`, whatever they were."""
    words = " ".join(text[: 2 * LONGEST_QUOTE].split())
    if not words.isprintable():
        words = "".join(letter if letter.isprintable() else "?" for letter in words)
    return words if len(words) <= LONGEST_QUOTE else f"{words[: LONGEST_QUOTE - 3]}..."


def suffixed(name: str, suffix: str) -> str:
    """Return the name with a suffix, and without its own end where both would be too long."""
    return name[: LONGEST_NAME - len(suffix)] + suffix


def is_name(text: str) -> bool:
    """Return True if a host, a job or a file of one may have this name."""
    return within(text, Name)
