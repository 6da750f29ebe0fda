"""How the processes of a gang's ranks find one another, and agree before each step.

A star of TCP connections over the campus's network: rank 0 listens at its host's address, the others connect. At the meeting each
says which attempt of which gang it is, at which step, with which digest; rank 0 tells all digests to all. It is refused when
not all are at one step: what was restored would be no checkpoint of the gang.

Then, before each step, each rank says whether its agent wants a snapshot and rank 0 answers for all (`agree`). So no rank
begins a step before all have done the last one, and a snapshot that any agent asks for is taken by every rank at the same step
under the same number. It costs a round trip to rank 0 a step; training frameworks agree in this way too, by a flag that is
reduced over all ranks.

A rank whose process has gone is known by its connection's end; one whose host is closed, or cut off, by its silence (TCP's
keep-alives) after some seconds.
"""

from __future__ import annotations

import selectors
import socket
import struct
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from typing import Final, Self
from zlib import crc32

import msgspec

from testbed.bounds import sequences_of
from testbed.errors import TestbedError
from testbed.workloads.base import StateMismatch
from testbed.workloads.messages import Place
from topologies.decoding import UNDECODABLE

FIRST_PORT: Final = 20_000
PORTS: Final = 5_000  # pairs of them: a workload has the one above for connections of its own
RETRY_S: Final = 0.05
PATIENCE_S: Final = 2.0  # for the first word on a connection
BACKLOG: Final = 1024  # connections that wait to be accepted: strangers' are turned away as they come
MOST_WORDS: Final = 1 << 15  # bytes of what is said at the meeting: 64 times 300, and more
SILENT_S: Final = 10  # a peer that answers no keep-alive for so long is gone
_LENGTH: Final = struct.Struct("!I")
_WISH: Final = struct.Struct("!q?")


class PeerLost(TestbedError):
    """Another rank of the gang is gone: this one can do nothing more."""


class Presence(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a rank says first."""

    gang: str
    attempt: int
    number: int
    step: int
    digest: bytes


class SnapshotWish(msgspec.Struct, frozen=True):
    """A snapshot of that number (0: none), and whether all are to stand still with it."""

    sequence: int = 0
    halts: bool = False


def rendezvous_port(place: Place) -> int:
    """Where rank 0 of this attempt listens."""
    return FIRST_PORT + 2 * (crc32(f"{place.gang} {place.attempt}".encode()) % PORTS)


def own_port(place: Place) -> int:
    """A port of rank 0's host that is this attempt's workload's own."""
    return rendezvous_port(place) + 1


class Rendezvous:
    """One rank's connections: rank 0's to all others, each other's to rank 0."""

    def __init__(self, place: Place, peers: Sequence[socket.socket], states: Sequence[bytes]) -> None:
        self._place = place
        self.peers = peers  # of rank 0 those to ranks 1, 2, ...; of another that to rank 0
        self.states = states  # digests of all ranks' states, by number

    @classmethod
    def meet(cls, place: Place, step: int, digest: bytes) -> Self:
        """Returns when all ranks of the attempt are there. Raises PeerLost, StateMismatch (not all are at this step)."""
        own = Presence(place.gang, place.attempt, place.number, step, digest)
        try:
            if place.number:
                hub = _connect(place, own)
                present = msgspec.msgpack.decode(_receive(hub), type=list[Presence])
                peers = [hub]
            else:
                found = _gather(place)
                present = [own, *(found[number][1] for number in range(1, len(place.addresses)))]
                peers = [found[number][0] for number in range(1, len(place.addresses))]
                for peer in peers:
                    _send(peer, msgspec.msgpack.encode(present))
        except (OSError, *UNDECODABLE) as error:
            raise PeerLost(f"{place.gang}: the ranks did not meet: {error}") from error
        if len({each.step for each in present}) > 1:
            steps = [each.step for each in present]
            raise StateMismatch(f"{place.gang}: ranks are at steps {steps}, which is no state of the gang")
        return cls(place, peers, [each.digest for each in present])

    def agree(self, wish: SnapshotWish) -> SnapshotWish:
        """What all ranks do before the next step: the highest number that any wishes for; it halts all if one wish does."""
        try:
            if self._place.number:
                [hub] = self.peers
                hub.sendall(_WISH.pack(wish.sequence, wish.halts))
                agreed = SnapshotWish(*_WISH.unpack(_exactly(hub, _WISH.size)))
            else:
                wishes = [
                    wish,
                    *(SnapshotWish(*_WISH.unpack(_exactly(peer, _WISH.size))) for peer in self.peers),
                ]
                agreed = SnapshotWish(
                    max(each.sequence for each in wishes), any(each.halts for each in wishes)
                )
                for peer in self.peers:
                    peer.sendall(_WISH.pack(agreed.sequence, agreed.halts))
        except OSError as error:
            raise PeerLost(f"{self._place.gang}: a rank has gone: {error}") from error
        # what a rank took under another number would be no snapshot to its agent
        if agreed.sequence and agreed.sequence not in sequences_of(self._place.attempt):
            raise PeerLost(
                f"{self._place.gang}: a rank wants a snapshot {agreed.sequence}, none of this attempt"
            )
        return agreed


def _gather(place: Place) -> dict[int, tuple[socket.socket, Presence]]:
    """Rank 0 waits for all others, and turns strangers away: one that connects and says nothing keeps none of them waiting."""
    found: dict[int, tuple[socket.socket, Presence]] = {}
    address = place.addresses[0]
    # of each host with ranks, as many connections as it has ranks, and as many that were tried again
    room = Counter(place.addresses[1:] * 2)
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with ExitStack() as held:
        waiting = held.enter_context(selectors.DefaultSelector())
        listener = held.enter_context(socket.socket(family, socket.SOCK_STREAM))
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, rendezvous_port(place)))
        listener.listen(BACKLOG)
        listener.setblocking(False)
        waiting.register(listener, selectors.EVENT_READ)
        guests: list[_Guest] = []
        while len(found) < len(place.addresses) - 1:
            ready = [key.data for key, _ in waiting.select(PATIENCE_S / 4)]
            if None in ready:
                with suppress(OSError):  # it has gone already
                    peer, source = listener.accept()
                    if room[source[0]] > sum(guest.address == source[0] for guest in guests):
                        guest = _Guest(peer, source[0], time.monotonic() + PATIENCE_S)
                        guests.append(guest)
                        waiting.register(peer, selectors.EVENT_READ, guest)
                    else:
                        peer.close()
            for guest in list(guests):
                said: Presence | None = None
                try:
                    if guest in ready:
                        said = guest.hear(place)
                    elif time.monotonic() > guest.until_s:
                        raise TimeoutError("it says nothing")
                except (OSError, LookupError, *UNDECODABLE):
                    waiting.unregister(guest.peer)
                    guest.peer.close()
                    guests.remove(guest)
                if said is not None:
                    waiting.unregister(guest.peer)
                    guests.remove(guest)
                    if said.number in found:  # it has tried again
                        found[said.number][0].close()
                    _watched(guest.peer)
                    found[said.number] = (guest.peer, said)
        for guest in guests:
            guest.peer.close()
    return found


class _Guest:
    """A connection that has not said yet which rank it is."""

    def __init__(self, peer: socket.socket, address: str, until_s: float) -> None:
        self.peer, self.address, self.until_s = peer, address, until_s
        self._words = bytearray()
        peer.setblocking(False)

    def hear(self, place: Place) -> Presence | None:
        """What it says, once that is whole. OSError, LookupError, UNDECODABLE: it is none of the ranks that are expected."""
        length = _LENGTH.size
        if len(self._words) >= length:
            length += _LENGTH.unpack_from(self._words)[0]
        if length > MOST_WORDS:
            raise OSError(f"a word of {length} bytes; at most {MOST_WORDS}")
        try:
            more = self.peer.recv(length - len(self._words))
        except BlockingIOError:
            return None
        if not more:
            raise ConnectionResetError("the connection has ended")
        self._words += more
        if len(self._words) == _LENGTH.size or len(self._words) < length:
            return None
        said = msgspec.msgpack.decode(self._words[_LENGTH.size :], type=Presence)
        expected = (place.gang, place.attempt)
        if (said.gang, said.attempt) != expected or self.address != place.addresses[said.number]:
            raise OSError(f"{self.address} is none of the ranks that are expected")
        if not said.number > 0:
            raise OSError(f"{self.address} says that it is rank {said.number}")
        return said


def _connect(place: Place, own: Presence) -> socket.socket:
    """Connect to rank 0, as soon as it listens; its host's address is the source, also where both are on one host."""
    while True:
        try:
            hub = socket.create_connection(
                (place.addresses[0], rendezvous_port(place)),
                timeout=PATIENCE_S,
                source_address=(place.addresses[place.number], 0),
            )
        except OSError:
            time.sleep(RETRY_S)  # until the agent, or the lease, ends this process
            continue
        _watched(hub)
        _send(hub, msgspec.msgpack.encode(own))
        return hub


def _watched(peer: socket.socket) -> None:
    peer.settimeout(None)
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 1)
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1)
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, SILENT_S)
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, SILENT_S * 1000)


def _send(peer: socket.socket, words: bytes) -> None:
    peer.sendall(_LENGTH.pack(len(words)) + words)


def _receive(peer: socket.socket) -> bytes:
    [length] = _LENGTH.unpack(_exactly(peer, _LENGTH.size))
    if length > MOST_WORDS:
        raise OSError(f"a word of {length} bytes; at most {MOST_WORDS}")
    return _exactly(peer, length)


def _exactly(peer: socket.socket, count: int) -> bytes:
    found = bytearray()
    while len(found) < count:
        more = peer.recv(count - len(found))
        if not more:
            raise ConnectionResetError("the connection has ended")
        found += more
    return bytes(found)
