"""Scenarios in tests/scenarios/*.txt, each a story that a storm found or that a reader should know, played over the cores.

A line is `TIME VERB ARGUMENTS`; `#` begins a remark. Hosts: a name, or `@job` (where the job is), `>job` (where it moves to),
`^job` (its standby) at that moment. Verbs:

    campus hosts=3 on_demand=1 spare=0     (no time; first line) leave=SECONDS: the age of the gap at which jobs leave
    start | start HOST                     agents start
    submit JOB steps=100 payload=2000000 budget=900 draw=0.0
    reclaim HOST [NOTICE_S]                the owner; without notice at once
    return HOST
    kill HOST [COORDINATOR_NOTICES_S]      SIGKILL of the agent;   pause HOST FOR_S;   cut HOST AGENT_S COORDINATOR_S
    spoil HOST JOB                         its disk loses the job's checkpoints, and nobody is told
    expect JOB PHASE [attempt=N]           what the coordinator believes
    expect FACT JOB COUNT                  how often a fact was recorded of the job

Every invariant is checked after every event; at the end faults stop, everything finishes, and all promises were kept.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from controller.core.levels.fixed import Fixed
from testbed.messages import JobSpec
from tests.cores_storm import calm_and_finish
from tests.cores_world import COSTS, SETTINGS, CoresWorld, small_campus

PROMPT = replace(COSTS, switch_s=(0.0, 0.015))  # owners' words are heard in the order of the lines
FOLDER = Path(__file__).parent / "scenarios"


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.txt")), ids=lambda path: path.stem)
def test_scenario(path: Path) -> None:
    lines = [line.split("#")[0].split() for line in path.read_text().splitlines()]
    first, *script = [words for words in lines if words]
    assert first[0] == "campus"
    world = _world(_options(first[1:]))
    for when, verb, *arguments in script:
        world.run(float(when))
        _do(world, verb, arguments)
    calm_and_finish(world)


def test_there_are_scenarios() -> None:
    assert len(list(FOLDER.glob("*.txt"))) >= 10


def _world(options: dict[str, str]) -> CoresWorld:
    campus = small_campus(int(options.get("hosts", 3)), int(options.get("on_demand", 1)))
    settings = replace(SETTINGS, spare_gpus=int(options.get("spare", 0)), level_start=3.0)
    world = CoresWorld(campus, settings, costs=PROMPT)
    if "leave" in options:
        world.coordinator.world.queue.controller = Fixed(3.0, leave_at_age_s=float(options["leave"]))
    return world


def _options(words: list[str]) -> dict[str, str]:
    return dict(word.split("=", 1) for word in words if "=" in word)


def _host(world: CoresWorld, name: str) -> str:
    if name[0] not in "@>^":
        return name
    job = world.jobs[name[1:]]
    found = {"@": job.host, ">": job.move.destination if job.move else None, "^": job.standby}[name[0]]
    if found is None:
        raise world.broken(name, f"there is none: {job}")
    return found


def _do(world: CoresWorld, verb: str, words: list[str]) -> None:
    options = _options(words)
    match verb, words:
        case "submit", [name, *_]:
            size, budget = int(options.get("payload", 2_000_000)), float(options.get("budget", 900))
            spec = JobSpec(name, int(options.get("steps", 100)), 0.1, size, loss_budget_s=budget)
            world.submit(spec, float(options.get("draw", 0.0)))
        case "start", hosts:
            world.start(*hosts)
        case "reclaim", [host, *notice]:
            world.reclaim(_host(world, host), float(notice[0]) if notice else 0.0)
        case "return", [host]:
            world.give_back(host)
        case "kill", [host, *late]:
            world.kill(_host(world, host), float(late[0]) if late else 0.004)
        case "pause", [host, for_s]:
            world.pause(_host(world, host), float(for_s))
        case "cut", [host, agent_s, coordinator_s]:
            world.cut(_host(world, host), float(agent_s), float(coordinator_s))
        case "spoil", [host, job]:
            store = world.machines[_host(world, host)].store
            for key in [key for key in store if key[0] == job]:
                del store[key]
        case "expect", _:
            _expect(world, words)
        case _:
            raise ValueError(f"no such line: {verb} {' '.join(words)}")


def _expect(world: CoresWorld, words: list[str]) -> None:
    if words[0] in world.jobs:
        job, phase = world.jobs[words[0]], words[1]
        attempt = int(_options(words).get("attempt", job.attempt))
        if (job.phase.value, job.attempt) != (phase, attempt):
            raise world.broken(job.name, f"{job.phase} in attempt {job.attempt}, not {' '.join(words[1:])}")
        return
    kind, name, count = words
    found = [fact for _, fact in world.facts if type(fact).__name__ == kind and fact.job == name]
    if len(found) != int(count):
        raise world.broken(name, f"{len(found)} facts {kind}, not {count}: {found}")
