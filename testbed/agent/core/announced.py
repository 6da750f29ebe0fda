"""The transfers that the coordinator announced to a host: it takes no other.

Without this, any host could push a checkpoint of any job to any other. One of a later sequence makes a receiver drop
the true ones. An announcement outlives the connection that brought it, since transfers go on while a coordinator begins
again. The next Welcome ends all, and those that hold are announced again behind it.
"""

from __future__ import annotations

from collections.abc import Mapping

from testbed.messages import Expect

# an announcement and the order to send take different ways, and a connection may be made again between: a Hello waits so long
ANNOUNCED_WITHIN_S = 2.0
# how often it is looked meanwhile: a fraction of what a handshake across the campus takes
LOOK_AGAIN_S = 0.05


Announced = Mapping[int, Expect]  # those in force, by their one-time number


def refusal(announced: Announced, ticket: int, job: str, sequence: int, payload_bytes: int, sender: str | None) -> str:
    """Return the reason to reject a checkpoint from `sender` under this number; "" to accept it.

    A sender that is None has no name: conversations are without certificates.
    """
    expected = announced.get(ticket)
    if expected is None:
        return "no such transfer is announced"
    if sender not in (None, expected.source):
        return f"it is announced from {expected.source}, and comes from {sender}"
    if job != expected.job:
        return f"a checkpoint of {expected.job} is announced, not of {job}"
    if not expected.first <= sequence <= expected.last:
        return f"sequences {expected.first} to {expected.last} are announced, not {sequence}"
    if payload_bytes > expected.most_bytes:
        return f"at most {expected.most_bytes} bytes are announced, not {payload_bytes}"
    return ""
