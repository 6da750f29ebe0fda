"""A Dask actor on each machine: it starts the machine's part, passes commands to it, and keeps its answers until it is asked.

It imports little, and does not unpickle what only its part needs: a worker that imports is deaf meanwhile.
Its methods are short: a worker whose methods are not is as good as gone.
"""

from __future__ import annotations

import pickle
import queue
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path

from experiments.runtime import revision
from testbed.own_programs import own_program

SIZE = struct.Struct("<Q")  # before each answer of a part
PIECE_BYTES = 8 << 20
ALONE_S, LOOK_S = 60.0, 0.2  # without an operator, and between two looks for one
END_S = 60.0  # how long a part may take to end


def machine_facts() -> tuple[str, set[str]]:
    """Return a worker's fingerprint of the project, and the IPv4 addresses of its machine."""
    import psutil

    addresses = {each.address for ends in psutil.net_if_addrs().values() for each in ends}
    return revision.program(), addresses


class PartActor:
    """The keeper of a part, which ends with it."""

    def __init__(self, order: bytes, alone_s: float = ALONE_S) -> None:
        from distributed import get_worker

        # Dask takes it away with its worker, or when the next worker begins there if it was killed
        self._folder = tempfile.TemporaryDirectory(prefix="part-", dir=get_worker().local_directory)
        self._answers: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        program = [*own_program("experiments.machines.part"), self._folder.name]
        self._child = subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0)
        self._asked_s = time.monotonic()
        for task in (self._listen, partial(self._watch, alone_s)):
            threading.Thread(target=task, daemon=True).start()
        self.exchange([order])

    def _listen(self) -> None:
        output = self._child.stdout
        assert output
        with suppress(OSError, struct.error):
            while size := output.read(SIZE.size):
                self._answers.put(output.read(*SIZE.unpack(size)))
        self._answers.put(pickle.dumps(("ended", self._child.wait())))

    def _watch(self, alone_s: float) -> None:
        """End the part after `alone_s` without a question: Dask keeps the actors of an operator that is gone."""
        while self._child.poll() is None and time.monotonic() - self._asked_s < alone_s:
            time.sleep(LOOK_S)
        self.end()

    def exchange(self, commands: Iterable[bytes]) -> list[bytes]:
        """Pass commands to the part, in their order; return its answers since the last time. All are pickled."""
        self._asked_s = time.monotonic()
        assert self._child.stdin
        with suppress(OSError, ValueError):  # it has ended, or is to: which is an answer
            self._child.stdin.write(b"".join(commands))
            self._child.stdin.flush()
        return [self._answers.get() for _ in range(self._answers.qsize())]

    def clocks(self) -> tuple[float, float]:
        """Return CLOCK_MONOTONIC and CLOCK_REALTIME."""
        return time.monotonic(), time.time()

    def files(self) -> list[tuple[str, int]]:
        """Return names, in its folder, and sizes of the part's files."""
        root = Path(self._folder.name)
        found = [path for path in sorted(root.rglob("*")) if path.is_file() and not path.is_symlink()]
        return [(str(path.relative_to(root)), path.stat().st_size) for path in found]

    def piece(self, name: str, offset: int) -> bytes:
        """Return a piece of a file, from an offset on."""
        with Path(self._folder.name, name).open("rb") as file:
            self._asked_s = time.monotonic()
            file.seek(offset)
            return file.read(PIECE_BYTES)

    def end(self) -> None:
        """Let the part end."""
        assert self._child.stdin
        with suppress(OSError):
            self._child.stdin.close()

    def remove(self) -> None:
        """Remove its files, once it has ended."""
        self._folder.cleanup()
