"""Runs for the tests of the live page: a virtual one on disk, and as a coordinator's journal; pages served by a process."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from controller.core.model import events as ev
from controller.persistence.journal import Journal
from controller.persistence.lines import Entry
from controller.persistence.recovery import origin_of
from experiments.inputs.scenario import Scenario, demo_scenario
from experiments.inputs.traces import generate
from experiments.results import events_file
from experiments.results.history import Timed
from experiments.worlds.virtual import simulate
from experiments.worlds.virtual.run import BEGIN_S, make_world
from experiments.worlds.virtual.world import VirtualWorld

SERVER = """
import sys
from contextlib import suppress
from pathlib import Path
from experiments.dashboard import serve
from experiments.dashboard.sources import JournalSource
from testbed.emulation.safety.living import RunningCampus
journal, owner_pid = Path(sys.argv[1]), int(sys.argv[2])
campus = RunningCampus({"id": "test", "name": "test", "pid": owner_pid, "run_dir": str(journal.parent)})
shown = serve.Shown(JournalSource(journal, live=True), campus)
with suppress(KeyboardInterrupt):
    serve.serve(shown, 0, lambda address: print(address, flush=True))
"""


@cache
def scenario() -> Scenario:
    """Half a minute of a small campus: reclaims with notice and without, moves, a queue, on-demand."""
    return demo_scenario(hosts=6, buildings=3, seconds=40.0, seed=3)


@cache
def facts() -> tuple[Timed, ...]:
    """What happens there."""
    return tuple(simulate(scenario(), generate(scenario())).facts)


def write_run(folder: Path) -> Path:
    """The files of that run that its replay needs; returns events.jsonl."""
    folder.mkdir(exist_ok=True)
    events_file.write_run(folder, facts(), scenario().played().campus)
    return folder / "events.jsonl"


class JournalledWorld(VirtualWorld):
    """Writes its coordinator's journal, as `CoordinatorHost.decide` does."""

    written: Journal | None = None

    def decide(self, event: ev.Event) -> None:
        """As the parent's, between two lines of the journal."""
        before, at_s = len(self.facts), self.now_s
        super().decide(event)
        if self.written is None:
            return
        self.written.append([Entry(at_s, event, [fact for _, fact in self.facts[before:]])])


def write_journal(path: Path, seconds: float = 20.0) -> int:
    """The journal of a live coordinator of that scenario, heartbeats and all; the number of its facts."""
    played = scenario().played()
    world = make_world(scenario(), generate(scenario()), kind=JournalledWorld, quiet=False)
    world.written = journal = Journal(path)
    journal.found(origin_of(played.campus, played.protocol, played.queue, played.seed, 0.0))
    world.run(BEGIN_S + seconds)
    journal.close()
    return len(world.facts)


@contextmanager
def served(*argv: str, **environment: str) -> Iterator[str]:
    """The address of a page that is served meanwhile."""
    process = subprocess.Popen(
        [sys.executable, *argv], stdout=subprocess.PIPE, text=True, env={**os.environ, **environment}
    )
    try:
        yield process.stdout.readline().split()[-1]
    finally:
        process.terminate()
        try:
            process.wait(60)
        finally:
            process.kill()
            process.stdout.close()


def replayed(events: Path) -> Any:
    """`reclaimnet dashboard EVENTS`, and the file where it keeps a token."""
    argv = ["-m", "experiments.cli", "dashboard", str(events), "--port", "0"]
    return served(*argv, RECLAIMNET_PAGE_TOKEN=str(token_file(events)))


def token_file(events: Path) -> Path:
    """Where the page of a run keeps a token."""
    return events.with_name("page.token")


def followed(journal: Path, owner_pid: int) -> Any:
    """The page of a journal that is written by a test."""
    return served("-c", SERVER, str(journal), str(owner_pid))
