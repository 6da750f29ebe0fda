"""Damaged frames and well-formed lies, seeded: what is wrong costs one connection, and what is a lie ends no core.

`RECLAIMNET_LIES=50` plays fifty times as many, `RECLAIMNET_LIES_SEED` others.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from controller import host
from controller.core.lifecycle.reconcile import not_yet
from controller.core.model import events as cev
from controller.persistence.journal import encoded
from experiments.storms.play import run_until_over
from testbed import messages as m
from testbed.agent.core import effects as do
from testbed.agent.core import events as ev
from testbed.agent.core.agent import AgentCore
from testbed.agent.io.owner_socket import OWNER
from testbed.bounds import LONGEST_QUOTE
from testbed.errors import LocalProtocolError, RemoteProtocolError
from testbed.framing import Codec
from testbed.transfer.messages import ANSWER, CONTENTS, HELLO, Message
from testbed.workloads import messages as w
from tests.lies import Liar, damaged
from tests.world import World, small_campus

TIMES = int(os.environ.get("RECLAIMNET_LIES", "1"))
SEED = os.environ.get("RECLAIMNET_LIES_SEED", "14")
CODECS: dict[str, tuple[Codec[Any], Any]] = {
    "from agents": (host.AGENT_IN, m.FromAgent),
    "to agents": (host.AGENT_OUT, m.ToAgent),
    "from operators": (host.OPERATOR_IN, m.FromOperator),
    "to operators": (host.OPERATOR_OUT, m.ToOperator),
    "of owners": (OWNER, m.FromOwner),
    "of jobs": (w.CODEC, w.Order | w.Report),
    "hellos": (HELLO, Message),
    "manifests": (CONTENTS, Message),
    "answers": (ANSWER, Message),
}


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
                decoder.feed(data[:cut])
                decoder.feed(data[cut:])
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
        case do.TakeSnapshot(job, attempt, sequence, final):
            return ev.SnapshotFailed(job, attempt, sequence, final, "no room")
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
                    host.AGENT_IN.decoder().feed(host.AGENT_IN.encode(effect.message))
                elif isinstance(effect, do.KillWorkload):  # nothing more is heard of it
                    begun = [
                        one for one in begun if effect.job not in (getattr(one, "job", ""), _started(one))
                    ]
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
        "step": [
            step for job in jobs for step in (0, job.step, job.step + 1, job.spec.steps, job.spec.steps + 1)
        ],
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
