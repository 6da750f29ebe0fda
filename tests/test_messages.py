"""Messages: the range of each number and name; damaged frames and well-formed lies, which cost one connection and end no core.

`RECLAIMNET_LIES=50` plays fifty times as many, `RECLAIMNET_LIES_SEED` others.
"""

import os
import random
import struct
import types
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
import pytest

from controller import host
from controller.core.lifecycle.reconcile import not_yet
from controller.core.model import events as cev
from controller.persistence.journal import encoded
from experiments.storms.play import run_until_over
from testbed import bounds
from testbed import messages as m
from testbed.agent.core import effects as do
from testbed.agent.core import events as ev
from testbed.agent.core.agent import AgentCore
from testbed.bounds import LONGEST_QUOTE
from testbed.errors import LocalProtocolError, RemoteProtocolError
from testbed.framing import Codec
from testbed.transfer.messages import ANSWER, CONTENTS, HELLO, Message
from testbed.workloads import messages as w
from testbed.workloads.messages import Finished, Progress, SnapshotTaken, Started
from tests.world import World, small_campus

TIMES = int(os.environ.get("RECLAIMNET_LIES", "1"))
SEED = os.environ.get("RECLAIMNET_LIES_SEED", "14")
CODECS: dict[str, tuple[Codec[Any], Any]] = {
    "from agents": (host.AGENT_IN, m.FromAgent),
    "to agents": (host.AGENT_OUT, m.ToAgent),
    "from operators": (host.OPERATOR_IN, m.FromOperator),
    "to operators": (host.OPERATOR_OUT, m.ToOperator),
    "of jobs": (w.CODEC, w.Order | w.Report),
    "hellos": (HELLO, Message),
    "manifests": (CONTENTS, Message),
    "answers": (ANSWER, Message),
}

NAMES = ("a", "b", "x" * bounds.LONGEST_NAME, "nobody", "a.0of2", "a.1of2", "g.0of3")
WORDS = ("", "why", "w" * 4096, "\x1b[2J<script>alert(1)</script>\n", "10.0.1.1", "127.0.0.1", "f" * 64)
# of each type: usual values, and those at the ends of what is allowed
SAMPLES: dict[Any, tuple[Any, ...]] = {
    int: (0, 1, 2, 100, 999_999, 1_000_000, 1_000_001, 2**31, 2**50, 2**56, 2**62 - 1, 2**62, 2**63 - 1),
    float: (0.0, 5e-324, 1e-6, 0.05, 1.0, 3.0, 100.0, 1e6, 1e9, 1e12, 1e100),
    str: (*NAMES, *WORDS),
    bytes: (b"", b"x" * 32, b"x" * 64, b"x" * 5000),
    bool: (False, True),
    type(None): (None,),
    Any: (0, "x", 1.5, None),
}


@dataclass
class Liar:
    """Draws values of declared types. `known` has what is true of names, numbers and words: half of what is drawn is of them."""

    draw: random.Random
    known: dict[str, Sequence[Any]] = field(default_factory=dict)

    def message(self, union: Any) -> Any:
        """One of the messages of a union."""
        return self.value(self.draw.choice(get_args(union) or (union,)))

    def value(self, kind: Any, name: str = "") -> Any:
        """Something that the type of a field of that name takes."""
        true, origin, of = self.known.get(name), get_origin(kind), get_args(kind)
        if true and self.draw.random() < 0.5 and bounds.within(one := self.draw.choice(true), kind):
            return one
        if origin is Annotated:
            some = SAMPLES.get(of[0]) or [self.value(of[0]) for _ in range(20)]
            return self.draw.choice([value for value in some if bounds.within(value, kind)])
        if origin is Literal:
            return self.draw.choice(of)
        if origin in (Union, types.UnionType):
            return self.value(self.draw.choice(of), name)
        if origin is dict:
            return {self.value(of[0], "job"): self.value(of[1], name) for _ in range(self.draw.randrange(3))}
        if origin is tuple and of[-1] is not ...:
            return tuple(self.value(each, name) for each in of)
        if origin in (list, tuple):
            return [self.value(of[0], name) for _ in range(self.draw.choice((0, 1, 1, 2, 5)))]
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            hints = get_type_hints(kind, include_extras=True)
            return kind(**{each: self.value(hints[each], each) for each in kind.__struct_fields__})
        return self.draw.choice(SAMPLES[kind])


def damaged(frame: bytes, draw: random.Random) -> bytes:
    """A frame with some of its bytes changed, left out, doubled, or with another length in its header."""
    data = bytearray(frame)
    for _ in range(draw.choice((1, 1, 1, 2, 5))):
        place = draw.randrange(len(data)) if data else 0
        match draw.randrange(6):
            case 0:
                data[place : place + 1] = bytes([draw.randrange(256)])
            case 1:
                del data[place : place + draw.choice((1, 1, 4, 40))]
            case 2:
                data[place:place] = draw.randbytes(draw.choice((1, 1, 4, 40)))
            case 3:
                data[place:place] = data[place : place + draw.choice((1, 8, 80))]
            case 4:
                data[6:10] = struct.pack(">I", draw.choice((0, 1, len(data) - 10 & 0xFFFFFFFF, 1 << 20, 2**32 - 1)))
            case _:
                data[place : place + 1] = bytes([data[place] ^ 1 << draw.randrange(8)]) if data else b""
    return bytes(data)


@pytest.mark.parametrize("name", CODECS)
def test_a_damaged_frame_is_a_message_or_an_error_of_that_peer_in_few_words(name: str) -> None:
    draw, (codec, union), refused = random.Random(f"{SEED} {name}"), CODECS[name], 0
    for _ in range(60 * TIMES):
        try:
            frame = codec.encode(Liar(draw).message(union))
        except LocalProtocolError:  # too long for this codec
            continue
        for _ in range(5):
            data = damaged(frame, draw)
            decoder, cut = codec.decoder(), draw.randrange(len(data) + 1)
            try:
                for part in (data[:cut], data[cut:]):
                    decoder.feed(part)
                    while decoder.next() is not None:
                        pass
                decoder.eof()
            except RemoteProtocolError as error:
                refused += 1
                assert len(str(error)) < LONGEST_QUOTE + 100
                assert str(error).isprintable()
    assert refused > 100


# ---------------------------------------------------------------- a hostile coordinator
def orders(core: AgentCore, draw: random.Random) -> Iterator[m.ToAgent]:
    """Whatever a coordinator may say, most of it about what is there."""
    while True:
        known: dict[str, Any] = {
            "job": [*core.running, "a", "b"],
            "name": [*core.running, "a", "b"],
            "attempt": [*(job.attempt for job in core.running.values()), 1, 2, 3],
            "host": ["h1", "h2", "h3"],
            "grace_s": [0.0, 2.0],
            "closures": [0],
            "interval_s": [0.5, 5.0],
            "final_within_s": [0.0, 1.0, 5.0],
            "sequence": [sequence for _, sequence in core.stored],
        }
        yield Liar(draw, known).message(m.ToAgent)


def outcome_of(order: do.Effect, draw: random.Random) -> ev.Event | None:
    """How something that an agent began ends."""
    match order:
        case do.StartWorkload(spec, attempt):
            return ev.WorkloadStarted(spec.name, attempt, 0, "")
        case do.TakeSnapshot(job, attempt, sequence, final) if draw.random() < 0.8:
            taken = m.StoredCheckpoint(job, sequence, 1, 1, "")
            return ev.SnapshotDone(attempt, taken, final)
        case do.TakeSnapshot(job, attempt, _, final):
            return ev.SnapshotFailed(job, attempt, final, "no room")
        case do.StartSending(job, sequence, destination):
            ok = draw.random() < 0.5
            account = m.TransferEnded("t", job, sequence, destination.host, ok, 1, 0, 1.0)
            return ev.SendEnded(account, retryable=draw.random() < 0.5)
        case do.EndWorkload(job, attempt):
            return ev.WorkloadEnded(m.JobEnded(job, attempt, "failed", 1))
    return None


@pytest.mark.parametrize("part", range(4))
def test_no_order_of_a_coordinator_ends_an_agent(part: int) -> None:
    draw = random.Random(f"{SEED} orders {part}")
    for _ in range(10 * TIMES):
        core, now_s, begun = AgentCore("h1", 1, 7200), 0.0, list[do.Effect]()
        for event in (ev.Connected(), ev.Received(m.Welcome(1e9, 1e6))):
            core.handle(event, now_s)
        said = orders(core, draw)
        for _ in range(80):
            event: ev.Event | None = ev.Woke()
            if draw.random() < 0.6:
                event = ev.Received(next(said))
            elif begun:
                event = outcome_of(begun.pop(draw.randrange(len(begun))), draw)
            now_s += draw.choice((0.0, 0.01, 0.3, 2.0))
            for effect in core.handle(event or ev.Woke(), now_s):
                if isinstance(effect, do.Send):
                    host.AGENT_IN.decode(host.AGENT_IN.encode(effect.message))
                elif isinstance(effect, do.KillWorkload):  # nothing more is heard of it
                    begun = [one for one in begun if effect.job not in (getattr(one, "job", ""), _started(one))]
                else:
                    begun.append(effect)
            assert core.next_deadline_s() >= 0.0


def _started(effect: do.Effect) -> str:
    return effect.spec.name if isinstance(effect, do.StartWorkload) else ""


# ---------------------------------------------------------------- hostile agents
def truths(world: World) -> dict[str, Any]:
    """What is so of jobs and hosts, or nearly."""
    cluster = world.coordinator.cluster
    jobs = list(cluster.jobs.values())
    stored = [known.stored for job in jobs for known in job.checkpoints.values()]
    near = [job.attempt * m.SEQUENCES_PER_ATTEMPT + n for job in jobs for n in (0, 1, 2, 7, 999_999)]
    sequences = [*(each.sequence for each in stored), *(n for job in jobs for n in job.taken), *near]
    return {
        "job": [job.name for job in jobs],
        "destination": list(world.machines),
        "attempt": [job.attempt + n for job in jobs for n in (0, 1)],
        "sequence": sequences,
        "restored_sequence": sequences,
        "step": [step for job in jobs for step in (0, job.step, job.step + 1, job.spec.steps, job.spec.steps + 1)],
        "digest": [each.digest for each in stored],
        "payload_bytes": [job.spec.payload_bytes for job in jobs],
        "checkpoint": stored,
        "incarnation": [each.incarnation for each in cluster.hosts.values() if each.incarnation >= 0],
        "closures": [0, 1, 2],
        "notice_s": [0.0, 1.0, 5.0, 20.0],
        "reclaim_in_s": [None, 3.0],
    }


@pytest.mark.parametrize("part", range(2))
def test_no_word_of_an_agent_ends_the_coordinator_or_keeps_a_job_from_its_end(part: int) -> None:
    """Two of eight hosts say anything at all beside what is so; then their agents are started anew."""
    draw = random.Random(f"{SEED} words {part}")
    for _ in range(TIMES):
        world = World(small_campus(6, 2), seed=draw.randrange(1000), checks=False)
        world.start()
        for number in range(6):
            payload = draw.choice((1000, 200_000, 2_000_000))
            world.submit(m.JobSpec(f"j{number}", 300, 0.1, payload))
        world.run(4.0)
        liars, read = draw.sample(sorted(world.machines), 2), 0
        for _ in range(40):
            world.run(world.now_s + draw.choice((0.01, 0.05, 0.3, 1.0)))
            liar = Liar(draw, truths(world))
            for _ in range(10):
                tell_a_lie(world, liar, draw.choice(liars))
            for _, fact in world.facts[read:]:
                encoded(fact)
            read = len(world.facts)
        for name in liars:
            world.kill(name)
        world.run(world.now_s + 30.0)
        for name in world.machines:
            world.start(name)
            world.give_back(name)
        left = run_until_over(world, 600.0)
        assert not left


def tell_a_lie(world: World, liar: Liar, name: str) -> None:
    """Whatever an agent of that host may say; a Hello as its host takes it."""
    cluster = world.coordinator.cluster
    word = liar.message(m.FromAgent)
    if isinstance(word, m.Hello):
        word = msgspec.structs.replace(word, host=name)
        if not_yet(cluster, cluster.hosts[name], word, world.now_s):
            return
    elif not cluster.hosts[name].connected:
        return
    world.decide(cev.AgentSaid(name, word))
    if liar.draw.random() < 0.02:
        world.decide(cev.AgentGone(name, "it hung up"))


# ---------------------------------------------------------------- ranges
CODEC: Codec[m.FromAgent] = Codec(m.FromAgent)


def refused(message: Any) -> bool:
    """Whether a frame that holds the message is refused where it arrives."""
    try:
        CODEC.decode(CODEC.encode(message))
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
    ["", "plain", "\x1b[2J\n\tx", "\u202egnp.exe", "\udcff", "x" * 5000, "\N{SNOWMAN} " * 900, "a\x00b", "\x85"],
)
def test_whatever_is_quoted_is_one_line_that_a_message_carries(words: str) -> None:
    said = bounds.quoted(words)
    assert len(said) <= bounds.LONGEST_QUOTE
    assert not refused(m.JobEnded("a", 1, "failed", 1, reason=said))


@pytest.mark.parametrize("words", ["\x1b[2J", "two\nlines", "\u202egnp.exe", "x" * 4097])
def test_words_that_a_terminal_would_obey_are_no_words_of_an_agent(words: str) -> None:
    assert refused(m.JobEnded("a", 1, "failed", 1, reason=words))
    assert refused(m.RefusedPeers(words, "", 1))


def test_every_report_of_a_job_fits_what_its_agent_says_of_it() -> None:
    """Each number that a job's process says has the range of the message that carries it on."""
    for kind in (Started, Progress, Finished, SnapshotTaken):
        for name, hint in get_type_hints(kind, include_extras=True).items():
            if hint in (bool, str) or name == "number":  # quoted; its agent's own
                continue
            assert not bounds.within(hint.__origin__(2**63 if hint.__origin__ is not bytes else 10_000), hint), name
