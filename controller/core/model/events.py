"""Events that the coordinator decides on.

The journal keeps every event, and nothing else is needed to come to the same decisions again. So an event carries all
that a decision may depend on, chance included, and is a message that can be written and read.
"""

from __future__ import annotations

from msgspec import Struct

from testbed.messages import FromAgent, JobSpec


class AgentSaid(Struct, frozen=True, tag=True):
    """A message from the agent of `host` (the first on a connection is Hello)."""

    host: str
    message: FromAgent


class AgentGone(Struct, frozen=True, tag=True):
    """The end of the connection to the agent of `host`; its jobs may still run until their lease lapses."""

    host: str
    reason: str


class SubmitAsked(Struct, frozen=True, tag=True):
    """A user's submission of a job. `draw` in [0, 1) decides if the queue admits with probability p."""

    job: JobSpec
    draw: float
    operator: int = 0  # who gets the answer


class CancelAsked(Struct, frozen=True, tag=True):
    """A user's request to cancel a job."""

    job: str
    operator: int = 0  # who gets the answer


class Woke(Struct, frozen=True, tag=True):
    """The passing of time alone: `next_deadline_s()` is due. The agent's core has the same event under the same name."""


class LinksMeasured(Struct, frozen=True, tag=True):
    """New rates of the traffic of others: (source, target, wire bytes/s), of each link where they changed."""

    research: list[tuple[str, str, float]]


class LinksChanged(Struct, frozen=True, tag=True):
    """New rates of cables: (source, target, wire bytes/s; 0: down), of each direction that has changed."""

    rates: list[tuple[str, str, float]]


class WaysSet(Struct, frozen=True, tag=True):
    """The network's confirmation that it has what `SetWays` of that number ordered."""

    number: int


class DrainAsked(Struct, frozen=True, tag=True):
    """The trunks, each by its two switches, that are to go down soon, and no others: what goes over them is to leave."""

    trunks: list[tuple[str, str]]


class StrangersRefused(Struct, frozen=True, tag=True):
    """Peers from one source that the coordinator's door turned away, and the reason that the first of them got."""

    source: str
    reason: str
    times: int


class TokenMade(Struct, frozen=True, tag=True):
    """A token, by its number, with which a party of this name may join once."""

    number: str
    name: str


class TokenSpent(Struct, frozen=True, tag=True):
    """The use of a token: a certificate goes out now, and never again for it."""

    number: str


class NameRevoked(Struct, frozen=True, tag=True):
    """The end of all certificates of a name that were issued until then, in seconds of the epoch."""

    name: str
    at_unix_s: float


class Restarted(Struct, frozen=True, tag=True):
    """A new start of the coordinator's process from its journal, whose last event is `silent_s` older: no connection is left."""

    silent_s: float


Event = (
    AgentSaid
    | AgentGone
    | SubmitAsked
    | CancelAsked
    | Woke
    | LinksMeasured
    | LinksChanged
    | WaysSet
    | DrainAsked
    | StrangersRefused
    | TokenMade
    | TokenSpent
    | NameRevoked
    | Restarted
)
