"""Programs that are the ranks of a gang: they checkpoint all or none, and begin again when all have ended.

The programs know one another (their environment says where all are), and agree among themselves on the step after which they
checkpoint, as they agree on all else: the signal comes to each at about the same moment. What is here is between the processes
that run them, over the connections of `rendezvous`: rank 0's hears all and decides for all (`Verdicts`, without a clock).

    any rank's agent wants one       all programs are asked by their signal
    all exited to be started again   what is in their directories is the gang's checkpoint, if the steps that they told are one;
                                     then all are started again
    none did within the grace        no checkpoint; they run on
    some did, the others not in a    no rank can use what those have computed: they are killed, and all come back from the last
    further grace                    checkpoint of the gang (five times, as after any kill)
    one ended wrongly                the job has failed, unless another rank is gone: then that is why, and all come back
    all finished                     the job is finished
"""

from __future__ import annotations

import socket
import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from math import inf
from typing import Final, Literal, Self

import msgspec

from testbed.bounds import Sequence, Step, sequences_of
from testbed.errors import RemoteProtocolError
from testbed.framing import Codec
from testbed.workloads.messages import Place
from testbed.workloads.rendezvous import PeerLost, Rendezvous, own_port

# a program may end because another is gone, before the connection of that one's process has ended: so long is waited for that
SETTLE_S: Final = 1.0
MOST_BYTES: Final = 1 << 14
_PIECE_BYTES: Final = 1 << 16


class CheckpointWanted(msgspec.Struct, tag="wanted", frozen=True):
    """A rank's agent wants a checkpoint of that number; `halts`: the gang leaves with it."""

    sequence: Sequence
    halts: bool


class Ended(msgspec.Struct, tag="ended", frozen=True):
    """A rank's program ended as it may: to be started again, or for good. `told`: by itself, not counted by the clock."""

    how: Literal["checkpointed", "finished"]
    step: Step
    told: bool


class Fell(msgspec.Struct, tag="fell", frozen=True):
    """A rank's program ended as it should not have."""

    reason: str


class Alive(msgspec.Struct, tag="alive", frozen=True):
    """A rank's process is there: the answer to `AreYouThere`."""


class Ask(msgspec.Struct, tag="ask", frozen=True):
    """All programs are to be asked for a checkpoint."""

    sequence: Sequence
    halts: bool


class Keep(msgspec.Struct, tag="keep", frozen=True):
    """What the directories hold is the gang's checkpoint."""

    sequence: Sequence
    halts: bool
    step: Step


class Again(msgspec.Struct, tag="again", frozen=True):
    """All programs ended to be started again, and no agent wants that checkpoint."""


class NoCheckpoint(msgspec.Struct, tag="none", frozen=True):
    """No checkpoint of that number; the programs run on."""

    sequence: Sequence
    reason: str


class LeftBehind(msgspec.Struct, tag="left", frozen=True):
    """Some ranks ended to be started again, and these did not follow."""

    late: list[int]
    reason: str


class GangFailed(msgspec.Struct, tag="failed", frozen=True):
    """The job cannot go on."""

    reason: str


class AreYouThere(msgspec.Struct, tag="there", frozen=True):
    """Is asked before a failure is believed."""


class Over(msgspec.Struct, tag="over", frozen=True):
    """All programs have finished."""


Said = CheckpointWanted | Ended | Fell | Alive
Verdict = Ask | Keep | Again | NoCheckpoint | LeftBehind | GangFailed | AreYouThere | Over
CODEC: Final[Codec[Said | Verdict]] = Codec(Said | Verdict, MOST_BYTES)


class Verdicts:
    """What rank 0's process decides for all, from what each says."""

    def __init__(self, ranks: int, grace_s: float, *, asks: bool) -> None:
        """`asks`: the programs have a signal by which they are asked, so that there is a time in which they answer."""
        self._ranks, self._grace_s, self._asks = ranks, grace_s, asks
        self._asked: Ask | None = None
        self._ended: dict[int, Ended] = {}
        self._until_s = inf  # for all to have ended
        self._fell = ""  # why the first one did
        self._believed_s = inf  # when the others are asked whether they are there
        self._alive: set[int] = set()

    @property
    def next_s(self) -> float:
        """When `wake` has something to do."""
        return min(self._until_s, self._believed_s)

    def hear(self, rank: int, said: Said, now_s: float) -> list[Verdict]:
        """What all are to be told now that this rank has said that."""
        match said:
            case CheckpointWanted(sequence, halts):
                return self._wished(sequence, halts, now_s)
            case Ended(how):
                self._ended[rank] = said
                if how == "checkpointed" and sum(e.how == how for e in self._ended.values()) == 1:
                    self._until_s = now_s + self._grace_s
                return self._all_ended() if len(self._ended) == self._ranks else []
            case Fell(reason):
                if not self._fell:
                    self._fell, self._believed_s = f"rank {rank}: {reason}", now_s + SETTLE_S
                return []
            case Alive():
                self._alive.add(rank)
                return [GangFailed(self._fell)] if len(self._alive) == self._ranks else []

    def wake(self, now_s: float) -> list[Verdict]:
        """What the time asks for."""
        told: list[Verdict] = []
        if now_s >= self._believed_s:
            self._believed_s = inf
            told.append(AreYouThere())
        if now_s >= self._until_s:
            self._until_s = inf
            late = [rank for rank in range(self._ranks) if rank not in self._ended]
            if any(ended.how == "checkpointed" for ended in self._ended.values()):
                those = f"ranks {sorted(self._ended)} have exited for a checkpoint"
                told.append(LeftBehind(late, f"{those}, ranks {late} had not {self._grace_s:g} s later"))
            elif self._asked is not None:
                told.append(
                    NoCheckpoint(
                        self._asked.sequence,
                        f"no rank has checkpointed within the grace of {self._grace_s:g} s",
                    )
                )
                self._asked = None
        return told

    def _wished(self, sequence: int, halts: bool, now_s: float) -> list[Verdict]:
        before = self._asked
        if before is not None:
            sequence, halts = max(sequence, before.sequence), halts or before.halts
        asked = Ask(sequence, halts)
        if asked == before:
            return []
        urgent = halts and not (before is not None and before.halts)
        if self._asks and not self._ended and (before is None or urgent):
            self._until_s = now_s + self._grace_s
        self._asked = asked
        return [asked]

    def _all_ended(self) -> list[Verdict]:
        ended, asked = self._ended, self._asked
        self._ended, self._asked, self._until_s = {}, None, inf
        done = sorted(rank for rank, each in ended.items() if each.how == "finished")
        if len(done) == self._ranks:
            return [Over()]
        if done:
            others = sorted(set(ended) - set(done))
            return [GangFailed(f"ranks {done} have finished, and ranks {others} ask to be started again")]
        told = {rank: each.step for rank, each in sorted(ended.items()) if each.told}
        if len(set(told.values())) > 1:
            at = ", ".join(f"rank {rank} at step {step}" for rank, step in told.items())
            return [GangFailed(f"the ranks' checkpoints are no state of the gang: {at}")]
        if asked is None:
            return [Again()]
        step = max(told.values()) if told else max(each.step for each in ended.values())
        return [Keep(asked.sequence, asked.halts, step)]


class ProgramGang:
    """One rank's process among those of its gang."""

    def __init__(self, place: Place, rendezvous: Rendezvous, grace_s: float, *, asks: bool) -> None:
        self._place, self._rendezvous = place, rendezvous
        self._peers = list(rendezvous.peers)  # of rank 0 those of ranks 1, 2, ...; of another rank 0's
        self._decoders = [CODEC.decoder() for _ in self._peers]
        self._own: deque[Verdict] = deque()
        self._verdicts = None if place.number else Verdicts(len(place.addresses), grace_s, asks=asks)
        self._last = 0  # the number of the last checkpoint of all

    @classmethod
    def meet(cls, place: Place, step: int, digest: bytes, grace_s: float, *, asks: bool) -> Self:
        """Returns when all ranks are there. Raises PeerLost, StateMismatch (not all are at this step)."""
        return cls(place, Rendezvous.meet(place, step, digest), grace_s, asks=asks)

    @property
    def watched(self) -> list[int]:
        """Descriptors that are readable when there is something for `hear`."""
        return [peer.fileno() for peer in self._peers]

    @property
    def environment(self) -> Mapping[str, str]:
        """Which rank a program is, where the others are: as torch's launcher says it, and all addresses."""
        place, here = self._place, self._place.addresses[self._place.number]
        return {
            "RANK": str(place.number),
            "WORLD_SIZE": str(len(place.addresses)),
            "LOCAL_RANK": str(place.addresses[: place.number].count(here)),
            "LOCAL_WORLD_SIZE": str(place.addresses.count(here)),
            "MASTER_ADDR": place.addresses[0],
            "MASTER_PORT": str(own_port(place)),
            "RECLAIMNET_GANG": place.gang,
            "RECLAIMNET_ADDRESSES": " ".join(place.addresses),
        }

    def wait_s(self, now_s: float) -> float:
        """Seconds until `hear` has something to do whatever is said."""
        if self._own:
            return 0.0
        return inf if self._verdicts is None else max(0.0, self._verdicts.next_s - now_s)

    def wish(self, sequence: int, *, halts: bool) -> None:
        """This rank's agent wants one; that of this number may be there already, and is its answer, but for a last one."""
        if halts:
            self.say(CheckpointWanted(max(sequence, self._last + 1), halts=True))
        elif sequence > self._last:
            self.say(CheckpointWanted(sequence, halts=False))

    def say(self, said: Said) -> None:
        """Tells rank 0. Raises PeerLost."""
        if self._verdicts is not None:
            self._spread(self._verdicts.hear(0, said, time.monotonic()))
        else:
            self._send(self._peers[0], said)

    def hear(self) -> list[Verdict]:
        """What has been decided. Raises PeerLost: a rank's process is gone, or says what it may not."""
        # what has been decided is obeyed before anything more is heard: others that have been told that all is over are gone
        said = [] if self._own else [self._read(place, peer) for place, peer in enumerate(self._peers)]
        for number, words in enumerate(said, 1):
            for word in words:
                if self._verdicts is None and isinstance(word, Verdict):
                    self._own.append(word)
                elif self._verdicts is not None and isinstance(word, Said):
                    self._spread(self._verdicts.hear(number, word, time.monotonic()))
                else:
                    raise PeerLost(f"{self._place.gang}: a rank says what is not for it to say")
        if self._verdicts is not None and not self._own:
            self._spread(self._verdicts.wake(time.monotonic()))
        heard, numbers = list(self._own), sequences_of(self._place.attempt)
        self._own.clear()
        for word in heard:
            if isinstance(word, Ask | Keep | NoCheckpoint) and word.sequence not in numbers:
                raise PeerLost(
                    f"{self._place.gang}: a rank speaks of {word.sequence}, no checkpoint of this attempt"
                )
            if isinstance(word, Keep):
                self._last = max(self._last, word.sequence)
        return heard

    def close(self, within_s: float) -> None:
        """The attempt is over here; the others hear of it by the last verdict, which rank 0 waits to see arrive (words that it
        has not read would reset their connections), or by the connections' end."""
        until_s = time.monotonic() + within_s
        for peer in self._peers:
            with suppress(OSError):
                peer.shutdown(socket.SHUT_WR)
        for peer in self._peers:
            with peer, suppress(OSError):
                peer.settimeout(max(0.01, until_s - time.monotonic()))
                while self._verdicts is not None and peer.recv(_PIECE_BYTES):
                    pass

    def _spread(self, verdicts: list[Verdict]) -> None:
        for verdict in verdicts:
            self._own.append(verdict)
            for peer in self._peers:
                self._send(peer, verdict)

    def _send(self, peer: socket.socket, word: Said | Verdict) -> None:
        try:
            peer.sendall(CODEC.encode(word))
        except OSError as error:
            raise PeerLost(f"{self._place.gang}: a rank has gone: {error}") from error

    def _read(self, place: int, peer: socket.socket) -> list[Said | Verdict]:
        try:
            data = peer.recv(_PIECE_BYTES, socket.MSG_DONTWAIT)
            if not data:
                raise ConnectionResetError("its connection has ended")
            return self._decoders[place].feed(data)
        except BlockingIOError:
            return []
        except (OSError, RemoteProtocolError) as error:
            raise PeerLost(f"{self._place.gang}: a rank has gone: {error}") from error
