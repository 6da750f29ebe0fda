"""Rate of a verified checkpoint, beside the least cost of any transfer.

Two processes, each in a network namespace of its own, joined by a veth pair. Every time runs from before the connection is made
to the receiver's last message. The kinds alternate in every round, and each has a bare transfer of its own just before it: a
ratio is the median over the rounds of a transfer's rate over its own bare one's, since a machine's speed changes all the time.

    bare            sendfile(2) into a socket whose receiver throws the bytes away
    hashed          the same, and the receiver hashes what it throws away
    written tmpfs   the same as bare, and the receiver writes a new file: the cost of keeping bytes by itself
    written disk    likewise on a disk, not synced
    cold ...        `send_checkpoint` to `serve_checkpoints` into a store just opened: every chunk verified, the file synced and
                    renamed before "stored". All of its pages are new.
    steady ...      likewise, as on a standby all day: checkpoint n + 1 arrives where n is kept and n - 1 was dropped, whose
                    file it is written over; dropping n is within the time, as in an agent. No chunk is equal to one that the
                    receiver has: all bytes move.

Of the transfers into a disk's store a second figure leaves out the commit (fsync, renames): the disk's own time. On tmpfs that
time is 0, so the goal compares `steady tmpfs` with `bare`; the disk's figure without its commit is judged apart.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import trio
from blake3 import blake3
from rich.table import Table

from experiments.benchmarks.frame import Goal, Result, Run, at_least, table_of
from testbed.checkpoints import CHUNK_BYTES, CheckpointStore
from testbed.emulation.kernel.linux import die_with_parent, unshare_network
from testbed.errors import SetupError
from testbed.transfer import ReceiveCompleted, ReceiveEvent, serve_checkpoints
from testbed.transfer import send_checkpoint as send

GOAL: Final = 0.85
SENDER: Final = "10.255.255.1"
RECEIVER: Final = "10.255.255.2"
PORT: Final = 9000
# memory is touched, and the first file to write over lies ready after two checkpoints
WARM_UP_ROUNDS: Final = 3
CONTENTS: Final = 3  # other bytes than in the checkpoint kept, and than in the file that is written over
KINDS: Final = {
    "bare": "bare: sendfile, discarded",
    "hashed": "bare, hashed, discarded",
    "written_tmpfs": "bare, written to a new file (tmpfs)",
    "cold_tmpfs": "verified, stored, new store (tmpfs)",
    "steady_tmpfs": "verified, stored, checkpoint n+1 (tmpfs)",
    "written_disk": "bare, written to a new file (disk, no fsync)",
    "cold_disk": "verified, stored, new store (disk, fsync)",
    "cold_disk_unsynced": "  the same less its commit",
    "steady_disk": "verified, stored, checkpoint n+1 (disk, fsync)",
    "steady_disk_unsynced": "  the same less its commit",
}


def measure(run: Run) -> dict[str, Any]:
    """Run the comparison on tmpfs and on the disk of the temporary directory. SetupError: no root, or no room."""
    size_bytes, rounds = (128 << 20, 3) if run.quick else (512 << 20, 7)
    if os.geteuid() != 0:
        raise SetupError("measuring over a veth pair needs root: it makes two network namespaces")
    rows: list[dict[str, Any]] = []
    with ExitStack() as stack:
        places = {"tmpfs": _directory(stack, Path("/dev/shm")), "disk": _directory(stack, None)}
        for place, path in places.items():
            # the sender's contents and two stores of two files lie on tmpfs; spare files may hold a quarter of what is free
            needed = (CONTENTS + 8 if place == "tmpfs" else 8) * size_bytes
            if (free := shutil.disk_usage(path).free) < needed:
                raise SetupError(
                    f"{path.parent}: {free} bytes free, measuring {size_bytes} bytes needs {needed}"
                )
        sender, receiver = stack.enter_context(_joined_processes())
        sender.ask("prepare", str(places["tmpfs"]), size_bytes)
        kinds: list[tuple[str, str, Path | None]] = [("hashed", "hashed", None)]
        for place, path in places.items():
            kinds += [(f"written_{place}", "bare", path)]
            kinds += [(f"{way}_{place}", way, path) for way in ("cold", "steady")]
        for number in range(WARM_UP_ROUNDS + rounds):
            # bytes per second of one transfer of each kind, and its ratio to the bare one before it
            content, rates, ratios = number % CONTENTS, dict[str, float](), dict[str, float]()
            for name, way, where in kinds:
                bare, _ = _transfer(sender, receiver, "bare", None, content)
                rates["bare"] = max(bare, rates.get("bare", 0.0))
                rates[name], unsynced = _transfer(sender, receiver, way, where, content)
                if name.endswith("_disk") and way != "bare":
                    rates[f"{name}_unsynced"] = unsynced
                ratios |= {key: rates[key] / bare for key in (name, f"{name}_unsynced") if key in rates}
            rows.append({"round": number, "bytes_per_s": rates, "ratio_to_bare": {"bare": 1.0, **ratios}})
        receiver.ask("close_stores")
    kept = rows[WARM_UP_ROUNDS:]
    medians, ratios = (
        {kind: float(statistics.median(row[what][kind] for row in kept)) for kind in KINDS}
        for what in ("bytes_per_s", "ratio_to_bare")
    )
    return {"size_bytes": size_bytes, "median_bytes_per_s": medians, "ratio_to_bare": ratios, "rounds": kept}


def goals(result: Result) -> Iterator[Goal]:
    """Yield the rate of checkpoint n + 1 on tmpfs over the bare one."""
    ratio = result["ratio_to_bare"]["steady_tmpfs"]
    yield at_least("checkpoint n+1, verified and stored, over bare sendfile", ratio, GOAL, "{:.2f}".format)


def tables(result: Result) -> Iterator[Table]:
    """Yield medians of the kinds, and their ratios to the bare transfer."""
    count = len(result["rounds"])
    yield table_of(
        f"{result['size_bytes'] >> 20} MiB over a veth pair, medians of {count} rounds (bare: the best of each)",
        ("", "GB/s", "of bare"),
        (
            (label, f"{result['median_bytes_per_s'][kind] / 1e9:.2f}", f"{result['ratio_to_bare'][kind]:.2f}")
            for kind, label in KINDS.items()
        ),
    )


def _transfer(
    sender: _Child, receiver: _Child, kind: str, place: Path | None, content: int
) -> tuple[float, float]:
    """Return bytes per second with and without the commit."""
    receiver.ask(f"receive_{kind}", None if place is None else str(place))
    how = "send_checkpoint" if kind in ("cold", "steady") else "send_bare"
    sent_bytes, duration_s = sender.ask(how, content + 1)
    commit_s = receiver.ask("") or 0.0
    return sent_bytes / duration_s, sent_bytes / (duration_s - commit_s)


def _directory(stack: ExitStack, parent: Path | None) -> Path:
    return Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="reclaimnet-", dir=parent)))


class _Child:
    """Process in its own namespace that obeys one JSON line at a time."""

    def __init__(self, role: str) -> None:
        argv = [sys.executable, "-m", "experiments.benchmarks.transfer", role, str(os.getpid())]
        self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.answer()

    def tell(self, *words: object) -> None:
        """Send an order."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(words) + "\n")
        self.process.stdin.flush()

    def answer(self) -> Any:
        """Wait for the answer to an order."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SetupError(f"the measuring process ended with status {self.process.wait()}")
        return json.loads(line)

    def ask(self, *words: object) -> Any:
        """Send an order and wait for its answer."""
        self.tell(*words)
        return self.answer()


@contextmanager
def _joined_processes() -> Iterator[tuple[_Child, _Child]]:
    """Yield sender and receiver with a veth pair between their namespaces; the pair ends with them."""
    children: list[_Child] = []
    try:
        children += [_Child("send")]
        children += [_Child("receive")]
        pids = [child.process.pid for child in children]
        _ip(f"link add rnm{pids[0]} netns {pids[0]} type veth peer name rnm{pids[1]} netns {pids[1]}")
        for child in children:
            child.ask("address")
        yield children[0], children[1]
    finally:
        for child in children:
            child.process.kill()
            child.process.communicate()


def _ip(arguments: str) -> None:
    done = subprocess.run(["ip", *arguments.split()], check=False, capture_output=True, text=True)
    if done.returncode:
        raise SetupError(f"ip {arguments}: {done.stderr.strip()} (needs root, veth and iproute2)")


class _Sender:
    """Actions of the sending process."""

    def __init__(self) -> None:
        self._stores: list[CheckpointStore] = []

    def prepare(self, place: str, size_bytes: int) -> None:
        """Make the checkpoints to send: other bytes in each."""
        store = CheckpointStore(Path(place) / "origin")
        for sequence in range(1, CONTENTS + 1):
            path = store.scratch("payload")
            with path.open("wb") as file:
                for start in range(0, size_bytes, 1 << 20):
                    file.write(os.urandom(min(1 << 20, size_bytes - start)))
            store.ingest("measured", sequence, sequence, path)
        self._stores.append(store)

    def send_bare(self, sequence: int) -> tuple[int, float]:
        """Return bytes and seconds of sendfile."""
        store = self._stores[0]
        with store.payload(store.get("measured", sequence)).open("rb") as file:
            size_bytes = os.fstat(file.fileno()).st_size
            began_s = time.perf_counter()
            with socket.create_connection((RECEIVER, PORT)) as sock:
                sent = 0
                while sent < size_bytes:
                    sent += os.sendfile(sock.fileno(), file.fileno(), sent, size_bytes - sent)
                sock.shutdown(socket.SHUT_WR)
                sock.recv(1)
            return sent, time.perf_counter() - began_s

    def send_checkpoint(self, sequence: int) -> tuple[int, float]:
        """Return bytes and seconds of one real transfer, in which every byte had to move."""
        store = self._stores[0]
        manifest = store.get("measured", sequence)

        async def moved() -> tuple[int, float]:
            address = (RECEIVER, PORT)
            result = await send(store, manifest, address, transfer="m", on_connected=lambda _: None)
            assert result.bytes_sent == manifest.payload_bytes
            return result.bytes_sent, result.duration_s

        return trio.run(moved)


class _Receiver:
    """Actions of the receiving process; each reports that it listens, and ends with the next line."""

    def __init__(self) -> None:
        self._stores: dict[str, CheckpointStore] = {}

    def receive_bare(self, place: str | None) -> None:
        """Receive one connection's bytes, and discard them or write them to a new file."""
        with tempfile.TemporaryFile(dir=place) as file:
            self._take(lambda data: None if place is None else os.write(file.fileno(), data))

    def receive_hashed(self, _: None) -> None:
        """Receive one connection's bytes and hash them, chunk by chunk."""
        self._take(lambda data: blake3(data).digest())

    @staticmethod
    def _take(use: Callable[[memoryview], object]) -> None:
        buffer = memoryview(bytearray(CHUNK_BYTES))
        with socket.create_server((RECEIVER, PORT)) as listener:
            _reply("listening")
            sock, _ = listener.accept()
            with sock:
                while count := sock.recv_into(buffer):
                    use(buffer[:count])
                sock.sendall(b"x")
        sys.stdin.readline()

    def receive_cold(self, place: str) -> float:
        """Receive into a store just opened, which is emptied after. Return the commit's seconds."""
        with CheckpointStore(Path(place) / "cold") as store:
            commit_s = trio.run(_serve_until_told, store)
            store.forget("measured")
        return commit_s

    def receive_steady(self, place: str) -> float:
        """Receive into the store that has the last checkpoint. Return the commit's seconds."""
        if place not in self._stores:
            self._stores[place] = CheckpointStore(Path(place) / "steady")
        return trio.run(_serve_until_told, self._stores[place])

    def close_stores(self) -> None:
        """Close every store."""
        for store in self._stores.values():
            store.close()


async def _serve_until_told(store: CheckpointStore) -> float:
    commits_s: list[float] = []

    def completed(event: ReceiveEvent) -> None:
        if isinstance(event, ReceiveCompleted):
            commits_s.append(event.commit_s)
            for manifest in store.manifests():
                if manifest.key != event.manifest.key:
                    store.drop(*manifest.key)

    listeners = await trio.open_tcp_listeners(PORT, host=RECEIVER)
    async with trio.open_nursery() as nursery:
        serve = partial(serve_checkpoints, on_event=completed)
        await nursery.start(serve, store, listeners)
        _reply("listening")
        await trio.to_thread.run_sync(sys.stdin.readline)
        nursery.cancel_scope.cancel()
    return sum(commits_s)


def _reply(value: object) -> None:
    print(json.dumps(value), flush=True)


def _obey(role: str, parent: int) -> None:
    """Live as a measuring process: a namespace, an address, then order after order."""
    die_with_parent(parent)
    unshare_network()
    _reply("in its namespace")
    sys.stdin.readline()
    name, address = f"rnm{os.getpid()}", SENDER if role == "send" else RECEIVER
    for arguments in ("link set lo up", f"addr add {address}/30 dev {name}", f"link set {name} up"):
        _ip(arguments)
    _reply("has its address")
    worker = _Sender() if role == "send" else _Receiver()
    for line in sys.stdin:
        order, *arguments = json.loads(line)
        _reply(getattr(worker, order)(*arguments))


if __name__ == "__main__":
    _obey(sys.argv[1], int(sys.argv[2]))
