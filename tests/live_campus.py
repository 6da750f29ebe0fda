"""A live run in a process of its own, for tests: started, disturbed, read."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from controller.core.model import facts as f
from controller.persistence.journal import NoJournal, read_facts
from experiments.worlds.live.operator import SOCKET
from testbed.emulation.safety.cleaning import clean_up
from testbed.emulation.safety.ledger import PIN_ROOT, read_entries
from testbed.emulation.safety.living import RunningCampus, default_root, running_campuses

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason=f"needs root: the user id is {os.geteuid()}")
live = [pytest.mark.kernel, pytest.mark.campus, needs_root]
CLI = [sys.executable, "-m", "experiments.cli"]


@dataclass
class Run:
    """`reclaimnet demo` (or another command), running."""

    process: subprocess.Popen[str]
    out: Path

    def ledger(self) -> list[dict[str, Any]]:
        """What this run's campus has recorded; empty before it stands."""
        for path in Path(default_root()).glob("*.ledger"):
            entries = read_entries(path)
            if entries and entries[0]["pid"] == self.process.pid:
                return entries
        return []

    def networks(self) -> dict[str, int]:
        """A process in the network of each host, by its name, and of the switches, by ""."""
        return {each["namespace"]: each["pid"] for each in self.ledger() if "namespace" in each}

    def pids(self, label: str) -> list[int]:
        """Living processes of that label, oldest first."""
        pids = [e["pid"] for e in self.ledger() if e["kind"] == "process" and e.get("label") == label]
        return [pid for pid in pids if Path(f"/proc/{pid}").exists()]

    def wait_until(self, holds: Any, timeout_s: float = 30.0) -> None:
        """Poll until `holds()`; fails the test with the output if the run ends first, or time does."""
        end_s = time.monotonic() + timeout_s
        while not holds():
            if self.process.poll() is not None or time.monotonic() > end_s:
                pytest.fail(f"waited in vain; status {self.process.poll()}:\n{self.finish_text()}")
            time.sleep(0.05)

    def facts(self, kind: type) -> list[Any]:
        """Those of that kind that its journal holds so far."""
        with suppress(NoJournal):  # not begun
            return [fact for _, fact in read_facts(self.out / "journal.sqlite") if isinstance(fact, kind)]
        return []

    def count(self, kind: type) -> int:
        """How many of them there are."""
        return len(self.facts(kind))

    def wait_for(self, kind: type, least: int = 1, **named: Any) -> Any:
        """The last of the facts of the kind that have these fields, as soon as there are so many."""

        def found() -> list[Any]:
            return [
                fact for fact in self.facts(kind) if all(getattr(fact, key) == value for key, value in named.items())
            ]

        self.wait_until(lambda: len(found()) >= least, timeout_s=60.0)
        return found()[-1]

    def log_of(self, job: str) -> str:
        """What the first attempt of a job has printed so far: without a command, which takes as long as some steps."""
        path = self.out / f"logs/jobs/{job}.1.log"
        return path.read_text() if path.exists() else ""

    def wait_until_it_answers(self) -> None:
        """Until its coordinator says which jobs there are; before it listens no command is started to ask."""
        self.wait_until(lambda: self.ledger() and self.campus.run_dir.joinpath(SOCKET).exists(), timeout_s=60.0)
        self.wait_until(lambda: self.command("jobs").returncode == 0)

    @property
    def campus(self) -> RunningCampus:
        """Its campus, as commands find it."""
        return RunningCampus(self.ledger()[0])

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A command about its campus, whatever others run on this machine."""
        return command(*words, "--campus", self.campus.id)

    def done(self, *words: str) -> str:
        """What such a command prints, which must not fail."""
        answer = self.command(*words)
        assert answer.returncode == 0, answer.stderr
        return answer.stdout.strip()

    def wait_until_jobs_run(self) -> None:
        """Until its journal says that two jobs compute."""
        self.wait_until(lambda: self.count(f.JobRunning) >= 2)

    def finish(self, timeout_s: float = 60.0) -> int:
        """Its exit status, when it has ended by itself."""
        return self.process.wait(timeout_s)

    def finish_text(self) -> str:
        """What it printed."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.communicate(timeout=60)[0]

    def summary(self) -> Any:
        """Its summary.json."""
        return json.loads((self.out / "summary.json").read_text())


def _on_this_machine() -> set[Path]:
    """What campuses have on this machine, but for those of this process and of others, which stand."""
    roots = [Path("/run/reclaimnet"), PIN_ROOT, Path("/var/tmp/reclaimnet")]
    found = {path for root in roots if root.exists() for path in root.iterdir()}
    stand = {campus.id for campus in running_campuses()}
    return {path for path in found if not path.match(f"{os.getpid():x}????????") and path.stem not in stand}


# of tests that were killed, say: no command finds their ledgers
BEFORE = _on_this_machine()


def leftovers() -> list[Path]:
    """What runs could have left on this machine since these tests began."""
    return sorted(_on_this_machine() - BEFORE)


def end(process: subprocess.Popen[str]) -> None:
    """End it with SIGTERM, then SIGKILL, if it still runs."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()


@contextmanager
def running(out: Path, *arguments: str) -> Iterator[Run]:
    """A command line running; ended with SIGTERM, then SIGKILL, if it still is."""
    process = subprocess.Popen(
        [*CLI, *arguments, "--out", str(out)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    run = Run(process, out)
    try:
        yield run
    finally:
        end(process)
        assert clean_up().failed == []


LASTING_JOB = 'steps = 100000\nstep = "50 ms"\npayload = "4 MB"\n'


@contextmanager
def standing(folder: Path, *options: str, out: str = "out") -> Iterator[Run]:
    """A campus that `up` makes, until the block is over; what is to be submitted to it lies in `folder`."""
    end, script = folder / "end", folder / "commands"
    script.write_text(f"sh until [ -e {end} ]; do sleep 0.1; done\n")
    (folder / "job.toml").write_text(LASTING_JOB)
    with running(folder / out, "up", *options, "--script", str(script)) as run:
        yield run
        end.touch()


def command(*arguments: str, **how: Any) -> subprocess.CompletedProcess[str]:
    """A command line that ends by itself; `how`: more arguments of subprocess.run."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.run([*CLI, *arguments], **{**pipes, "text": True, "timeout": 100, **how})
