"""Engines that play tasks: this process, processes of this machine, or workers of a Dask scheduler.

Each task stands alone, so a result depends neither on the process that plays it nor on the order; nor may code that
collects results. Dask itself handles workers that come and go, and plays tasks of dead workers again. This module makes
other machines' results credible. A worker whose copy of the project has another text is refused. A user's modules
travel with the task. One task in a hundred, at least one, is played twice, by different workers, and both results are
compared.
"""

from __future__ import annotations

import hashlib
import pickle
import re
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import cache_from_source
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from experiments.runtime import revision
from experiments.runtime.tasks import Play, Task
from experiments.runtime.workers import workers
from testbed.errors import InvariantBroken, SetupError
from topologies.errors import SpecError

if TYPE_CHECKING:
    from distributed import Future

CONNECT_S, WORKERS_S = 10.0, 60.0  # until a scheduler answers, and until it has a worker
ONE_IN = 100  # tasks is played twice
MAX_TRIES = 3  # to play a task on a worker that has not played it yet
MAX_BYTES = 8 << 20  # of a user's modules, sent with each task


@dataclass
class Engine:
    """A choice of engine: `workers` processes (1: this one), or those of the Dask scheduler at `dask`.

    `modules`: a user's own that tasks need, as (relative name -> file). `notes`: remarks to print at the end.
    """

    workers: int = 1
    dask: str | None = None
    modules: Mapping[str, Path] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @contextmanager
    def opened(self, tasks: int) -> Iterator[Play]:
        """Open the engine; yield a function that plays tasks. SetupError: workers cannot be had, or were lost."""
        if self.dask is not None:
            with _Dask(self) as dask:
                yield dask.play
        elif self.workers == 1 or tasks == 1:
            yield _here
        else:
            with workers(min(self.workers, tasks)) as pool:

                def play(tasks: Sequence[Task]) -> Iterator[tuple[Task, Any]]:
                    running = {pool.submit(task.function, *task.arguments): task for task in tasks}
                    try:
                        for future in as_completed(running):
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


class _Dask:
    """A connection to a scheduler."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self._address = engine, engine.dask or ""
        if not re.fullmatch(r"[a-z]+://[^/\s]+:\d+", self._address):
            raise SpecError("--dask", self._address, "the address of a scheduler, such as tcp://HOST:8786")
        # tasks that were played twice alike, and those that no second worker could play
        self._same = self._alone = 0
        files = {name: path.read_bytes() for name, path in engine.modules.items()}
        if sum(map(len, files.values())) > MAX_BYTES:
            raise SetupError(
                f"modules of {MAX_BYTES >> 20} MiB at most can be sent: install them on the workers"
            )
        self._frame = (revision.program(), files)

    def __enter__(self) -> _Dask:
        try:
            from distributed import Client
        except ModuleNotFoundError as error:
            raise SetupError(f"--dask needs {error.name}: pip install 'reclaimnet-testbed[dask]'") from None
        try:
            self._client = Client(self._address, timeout=CONNECT_S, set_as_default=False, name="reclaimnet")
        except (OSError, ValueError) as error:  # TimeoutError is an OSError
            raise SetupError(
                f"{self._address}: no Dask scheduler answers there, such as tcp://HOST:8786 ({error})"
            ) from None
        try:
            self._client.wait_for_workers(1, timeout=WORKERS_S)
        except TimeoutError:
            self._client.close()
            raise SetupError(
                f"{self._address}: the scheduler has had no worker for {WORKERS_S:.0f} s"
            ) from None
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()
        if self._same or self._alone:
            note = f"{self._same} played twice, by different workers, with the same result"
            self._engine.notes.append(note + (f"; {self._alone} not: no other worker" if self._alone else ""))

    def play(self, tasks: Sequence[Task]) -> Iterator[tuple[Task, Any]]:
        """Yield results as they come. InvariantBroken: a task had two."""
        from distributed import as_completed as as_they_end

        twice = chosen(tasks)
        running = {self._submit(task): (task, 0) for task in tasks}
        before: dict[str, tuple[str, Any]] = {}
        ending = as_they_end(list(running), loop=self._client.loop)
        for future in ending:
            task, tries = running.pop(future)
            worker, result = self._result(future)
            first = before.setdefault(task.key, (worker, result))
            if task.key in twice:
                others = [each for each in self._client.nthreads() if each != first[0]]
                is_second = tries > 0 and worker != first[0]
                if is_second:
                    hashes = {
                        name: hashlib.sha256(repr(found).encode()).hexdigest()
                        for name, found in (first, (worker, result))
                    }
                    if len(set(hashes.values())) > 1:
                        story = [f"{name}: {found}" for name, found in hashes.items()]
                        raise InvariantBroken(task.key, "played twice, it has two results", story)
                    self._same += 1
                elif others and tries < MAX_TRIES:
                    again = self._submit(task, others)
                    running[again] = (task, tries + 1)
                    ending.add(again)
                    continue
                else:
                    self._alone += 1
            del before[task.key]
            yield task, first[1]

    def _submit(self, task: Task, workers: Sequence[str] | None = None) -> Future:
        inner = pickle.dumps((task.function, task.arguments))
        # loose: a worker that is named may be gone by then, and the task would wait for it for ever
        where = {} if workers is None else {"workers": workers, "allow_other_workers": True}
        key = f"reclaimnet-{uuid4().hex}"
        return self._client.submit(_on_worker, self._frame, inner, key=key, pure=False, **where)

    def _result(self, future: Future) -> tuple[str, Any]:
        from concurrent.futures import CancelledError

        from distributed.comm import CommClosedError
        from distributed.scheduler import KilledWorker

        try:
            found: tuple[str, Any] = future.result()
        except KilledWorker as error:
            raise SetupError(
                f"{self._address}: {error}. Is there memory enough for a run? What was played is kept: run it again"
            ) from None
        except (CancelledError, CommClosedError) as error:
            raise SetupError(
                f"{self._address}: the scheduler was lost ({error}); what was played is kept: run it again"
            ) from None
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] not in revision.PACKAGES:
                raise
            raise SetupError(
                f"{self._address}: its workers have no {error.name}: install reclaimnet-testbed there"
            ) from None
        return found


def chosen(tasks: Sequence[Task]) -> frozenset[str]:
    """Return the keys of the tasks to be played twice: one in ONE_IN, at least one, the same ones whatever their order."""
    keys = sorted((task.key for task in tasks), key=lambda key: hashlib.sha256(key.encode()).digest())
    return frozenset(keys[: -(-len(keys) // ONE_IN)])


# ---------------------------------------------------------------- on a worker

_ONE_AT_A_TIME = threading.Lock()  # runs want a process of their own: a worker's threads wait for each other
_BROUGHT: dict[str, bytes] = {}


def _on_worker(frame: tuple[str, Mapping[str, bytes]], inner: bytes) -> tuple[str, Any]:
    """Play a task on a worker; return (the worker's address, the result)."""
    from distributed import get_worker

    program, files = frame
    with _ONE_AT_A_TIME:
        if program != revision.program():
            raise SetupError(
                f"worker {get_worker().address} has another text of the project: install there what is here, and start it again"
            )
        _bring(files, Path(get_worker().local_directory, "reclaimnet-modules"))
        function, arguments = pickle.loads(inner)
        return get_worker().address, function(*arguments)


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
