"""Engines that play tasks: this process, processes of this machine, or workers of a Dask scheduler.

Each task stands alone, so a result depends neither on the process that plays it nor on the order; nor may code that
collects results. Dask itself handles workers that come and go, and plays tasks of dead workers again. This module makes
other machines' results credible. A worker whose copy of the project has another text is refused. A user's modules
travel with the task.
"""

from __future__ import annotations

import pickle
import re
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from concurrent.futures import as_completed as as_they_end
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import cache_from_source
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.runtime import revision
from experiments.runtime.tasks import Play, Task
from experiments.runtime.workers import workers
from testbed.errors import SetupError
from topologies.errors import SpecError
from topologies.plugins import PROJECT

if TYPE_CHECKING:
    from distributed import Client
    from distributed.security import Security

CONNECT_S, WORKERS_S = 10.0, 60.0  # until a scheduler answers, and until it has a worker
MAX_BYTES = 8 << 20  # of a user's modules, sent with each task


@dataclass
class Engine:
    """A choice of engine: `workers` processes (1: this one), or those of the Dask scheduler at `dask`.

    `modules`: a user's own that tasks need, as (relative name -> file).
    """

    workers: int = 1
    dask: str | None = None
    modules: Mapping[str, Path] = field(default_factory=dict)

    @contextmanager
    def opened(self, tasks: int) -> Iterator[Play]:
        """Open the engine; yield a function that plays tasks. SetupError: workers cannot be had, or were lost."""
        if self.dask is not None:
            with _on_dask(self) as play_there:
                yield play_there
        elif self.workers == 1 or tasks == 1:
            yield _here
        else:
            with workers(min(self.workers, tasks)) as pool:

                def play(tasks: Sequence[Task]) -> Iterator[tuple[Task, Any]]:
                    running = {pool.submit(task.function, *task.arguments): task for task in tasks}
                    try:
                        for future in as_they_end(running):
                            yield running[future], future.result()
                    except BrokenProcessPool:
                        raise SetupError(
                            "a worker process was killed, most often for want of memory; what was played is kept: run it again, "
                            "with fewer workers if need be"
                        ) from None

                yield play


def _here(tasks: Sequence[Task]) -> Iterator[tuple[Task, Any]]:
    for task in tasks:
        yield task, task.function(*task.arguments)


@contextmanager
def _on_dask(engine: Engine) -> Iterator[Play]:
    """Connect to the engine's scheduler; yield a function that plays tasks on its workers."""
    address = engine.dask or ""
    if not re.fullmatch(r"[a-z]+://[^/\s]+:\d+", address):
        raise SpecError("--dask", address, "the address of a scheduler, such as tcp://HOST:8786")
    files = {name: path.read_bytes() for name, path in engine.modules.items()}
    if sum(map(len, files.values())) > MAX_BYTES:
        raise SetupError(f"modules of {MAX_BYTES >> 20} MiB at most can be sent: install them on the workers")
    frame = (revision.program(), files)
    from distributed import as_completed
    from distributed.comm import CommClosedError
    from distributed.scheduler import KilledWorker

    def play(tasks: Sequence[Task]) -> Iterator[tuple[Task, Any]]:
        running = {
            client.submit(_on_worker, frame, pickle.dumps((task.function, task.arguments)), pure=False): task
            for task in tasks
        }
        for future in as_completed(list(running), loop=client.loop):
            yield running.pop(future), future.result()

    with scheduler(address) as client:
        try:
            client.wait_for_workers(1, timeout=WORKERS_S)
        except TimeoutError:
            raise SetupError(f"{address}: the scheduler has had no worker for {WORKERS_S:.0f} s") from None
        try:
            yield play
        except KilledWorker as error:
            raise SetupError(
                f"{address}: {error}. Is there memory enough for a run? What was played is kept: run it again"
            ) from None
        except (CancelledError, CommClosedError) as error:
            raise SetupError(
                f"{address}: the scheduler was lost ({error}); what was played is kept: run it again"
            ) from None


@contextmanager
def scheduler(address: str, security: Security | None = None, limit_s: float = CONNECT_S) -> Iterator[Client]:
    """Connect to the Dask scheduler at an address; `security` None: as Dask's configuration has it. SetupError: none answers."""
    from distributed import Client

    try:
        client = Client(address, timeout=limit_s, set_as_default=False, security=security, name="reclaimnet")
    except (OSError, ValueError, RuntimeError) as error:  # TimeoutError is an OSError
        secure = ", by these certificates" if security else ", such as tcp://HOST:8786"
        raise SetupError(f"{address}: no Dask scheduler answers there{secure} ({error.__cause__ or error})") from None
    with client:
        try:
            yield client
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] not in PROJECT:
                raise
            raise SetupError(f"{address}: its workers have no {error.name}: install reclaimnet-testbed there") from None


# ---------------------------------------------------------------- on a worker

_ONE_AT_A_TIME = threading.Lock()  # runs want a process of their own: a worker's threads wait for each other
_BROUGHT: dict[str, bytes] = {}


def _on_worker(frame: tuple[str, Mapping[str, bytes]], inner: bytes) -> Any:
    """Play a task on a worker; return its result."""
    from distributed import get_worker

    program, files = frame
    with _ONE_AT_A_TIME:
        if program != revision.program():
            raise SetupError(
                f"worker {get_worker().address} has another text of the project: install there what is here, and start it again"
            )
        _bring(files, Path(get_worker().local_directory, "reclaimnet-modules"))
        function, arguments = pickle.loads(inner)
        return function(*arguments)


def _bring(files: Mapping[str, bytes], folder: Path) -> None:
    """Write a user's modules to this folder, where this process finds them; changed ones are imported again.

    Dask takes it away with its worker, or when the next worker begins there if it was killed.
    """
    changed = {name: text for name, text in files.items() if _BROUGHT.get(name) != text}
    if not changed:
        return
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    for name, text in changed.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text)
        # byte code of another text that is as long and was written in the same second would count as this one's
        Path(cache_from_source(str(path))).unlink(missing_ok=True)
    from controller.user_policies import forget

    tops = {name.partition("/")[0].removesuffix(".py") for name in files}
    for module in [each for each in sys.modules if each.partition(".")[0] in tops]:
        del sys.modules[module]
    forget(tops)
    _BROUGHT.update(changed)
