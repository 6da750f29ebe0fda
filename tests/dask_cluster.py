"""A Dask scheduler and workers on loopback, each a process of its own, for tests."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.patience import wait_until

ROOT = Path(__file__).parents[1]
QUIET = ["--no-dashboard", "--host", "127.0.0.1"]


@dataclass
class Cluster:
    """Processes that are started and ended by their objects."""

    address: str
    file: Path
    stack: ExitStack
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def add_worker(self) -> subprocess.Popen[bytes]:
        """One more worker, in a folder of its own."""
        folder = self.file.parent / f"worker{len(self.workers)}"
        folder.mkdir()
        words = ["worker", "--scheduler-file", str(self.file), "--nthreads", "1", "--no-nanny", *QUIET]
        self.workers.append(_start(words, folder, self.stack))
        return self.workers[-1]


@contextmanager
def cluster(folder: Path, workers: int) -> Iterator[Cluster]:
    """A scheduler and so many workers; all have ended after."""
    file = folder / "scheduler.json"
    with ExitStack() as stack:
        _start(["scheduler", "--scheduler-file", str(file), "--port", "0", *QUIET], folder, stack)
        wait_until(lambda: file.exists() and file.read_text().strip(), (folder / "log").read_text)
        found = Cluster(json.loads(file.read_text())["address"], file, stack)
        for _ in range(workers):
            found.add_worker()
        yield found


def _start(words: list[str], folder: Path, stack: ExitStack) -> subprocess.Popen[bytes]:
    program = f"import sys; from distributed.cli.dask_{words[0]} import main; sys.argv[1:] = {words[1:]!r}; main()"
    log = stack.enter_context((folder / "log").open("wb"))
    # the tests' own functions are found by their package
    start = f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{program}"
    process = subprocess.Popen([sys.executable, "-c", start], cwd=folder, stdout=log, stderr=log)
    stack.callback(process.wait)
    stack.callback(process.kill)
    return process
