"""Every kind of decision once, on a small campus that is nowhere: what of it is machine code is compiled, or read from disk.

A coordinator rehearses before it serves, so that no owner waits for a compiler. `make setup` runs `python -m
controller.warm_up`, which leaves the compiled code beside the source (half a minute); later processes read it from there (a
third of a second).
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from random import Random

from controller.core.admission.schedule import MigrationRequest
from controller.core.coordinator import Coordinator
from controller.core.model import effects as do
from controller.core.model import events as ev
from controller.core.parameters import Protocol, Queue
from controller.core.queueing.replay import Rule, replay
from controller.numerics.jit import FOLDER, SOURCES
from testbed.messages import Hello, JobSpec, JobStarted, OwnerReclaims, StartJob
from testbed.own_programs import own_program
from topologies.presets import three_tier

HOSTS, JOBS, NOTICE_S = 8, 4, 60.0
DIGEST = "0" * 64


def rehearse(policy: str = Protocol().policy) -> None:
    """Play a short run: hosts join, jobs start, links are measured, an owner gives notice, another does not."""
    core = Coordinator(three_tier(HOSTS, 2, 1), Protocol(policy=policy), Queue(), Random(0).random)
    for name in core.cluster.hosts:
        core.handle(ev.AgentSaid(name, Hello(name, 1, 7200, [], [], [], True)), 0.0)
    for number in range(JOBS):
        spec = JobSpec(f"job{number}", 1000, 1.0, 10**9)
        for effect in core.handle(ev.SubmitAsked(spec, 0.0), 1.0):
            if isinstance(effect, do.Tell) and isinstance(effect.message, StartJob):  # it runs at once
                started = JobStarted(spec.name, effect.message.attempt, 0, DIGEST)
                core.handle(ev.AgentSaid(effect.host, started), 1.0)
    links = [(link.source, link.target, 1e6) for link in core.cluster.network.links]
    core.handle(ev.LinksMeasured(links), 2.0)
    for at_s, (number, notice_s) in enumerate(((0, NOTICE_S), (1, 0.0)), 3):
        host = core.cluster.jobs[f"job{number}"].host
        if host is not None:
            core.handle(ev.AgentSaid(host, OwnerReclaims(notice_s, False, [])), float(at_s))
    # more migrations than a link can carry ask P3, so that it has to choose
    cluster = core.cluster
    way = cluster.routes.way(*list(cluster.hosts)[:2])
    asked = [MigrationRequest(f"job{n}", cluster.capacity.share[way[0]], 1.5, 0.0, way) for n in range(2)]
    cluster.policy.admit(asked, 0.0, cluster.capacity.share, ())
    replay(Rule(1.0), [1.0], [2.0], [0.0])  # what learners of the queue's level ask


def compile_once() -> None:
    """Rehearse, unless this interpreter has done so with this program; all later processes read the compiled code.

    A line on stderr announces it, since it takes half a minute. Commands do it before any limit of time counts.
    """
    if not FOLDER:
        hint = "with numba long runs take a third of the time: pip install 'reclaimnet-testbed[fast]'"
        print(hint, file=sys.stderr, flush=True)
        return
    # numba compiles again what has another time of change, though its text, which names the folder, is the same
    times = hash(tuple(source.stat().st_mtime_ns for source in SOURCES)) % 2**64
    done = Path(FOLDER) / f"rehearsed-{sys.implementation.cache_tag}-{times:x}"
    if done.exists():
        return
    if __name__ != "__main__":  # in a process that an interrupt ends: a compiler may swallow it
        print(f"compiling once, about half a minute (kept in {FOLDER})", file=sys.stderr, flush=True)
        subprocess.run(own_program(__name__), stderr=subprocess.DEVNULL, check=False)
    if not done.exists():
        rehearse()
        done.parent.mkdir(parents=True, exist_ok=True)
        done.touch()


if __name__ == "__main__":
    compile_once()
