"""Rate of a verified checkpoint, beside the least cost of any transfer.

Two processes, each in a network namespace of its own, joined by a veth pair. Every time runs from before the connection is made
to the receiver's last message. The kinds alternate in every round, and each has a bare transfer of its own just before it: a
ratio is the median over the rounds of a transfer's rate over its own bare one's, since a machine's speed changes all the time.

    bare    sendfile(2) into a socket whose receiver throws the bytes away
    tmpfs   `send_checkpoint` to `serve_checkpoints` as on a standby all day: checkpoint n + 1 arrives where n is kept and n - 1
            was dropped, whose file it is written over; dropping n is within the time, as in an agent. No chunk is equal to one
            that the receiver has: every chunk moves, is verified, and the file is synced and renamed before "stored"
    disk    likewise, on a disk

The disk's own time is in its commit (fsync, renames), which a third figure leaves out. On tmpfs that time is 0, so the goal
compares `tmpfs` with `bare`.
"""

from __future__ import annotations

import os
import shutil
import socket
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final

import trio
from rich.table import Table

from experiments.benchmarks.frame import Goal, Result, Run, at_least, table_of
from experiments.benchmarks.nodes import Node
from testbed.checkpoints import CHUNK_BYTES, CheckpointStore
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
UNSYNCED: Final = "disk, less its commit"
KINDS: Final = {
    "bare": "bare: sendfile, discarded",
    "tmpfs": "verified and stored on tmpfs, checkpoint n+1",
    "disk": "verified and stored on a disk, checkpoint n+1",
    UNSYNCED: "  the same less its commit",
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
            # the sender's contents and a store of two files lie on tmpfs; a dropped file needs as much free beside it
            needed = (CONTENTS + 4 if place == "tmpfs" else 4) * size_bytes
            if (free := shutil.disk_usage(path).free) < needed:
                raise SetupError(
                    f"{path.parent}: {free} bytes free, measuring {size_bytes} bytes needs {needed}"
                )
        sender, receiver = _joined(stack)
        sender.order(do="prepare", place=str(places["tmpfs"]), size_bytes=size_bytes)
        for number in range(WARM_UP_ROUNDS + rounds):
            # bytes per second of one transfer of each kind, and its ratio to the bare one before it
            sender.order(do="snapshot", sequence=number)
            rates, ratios = dict[str, float](), {"bare": 1.0}
            for name, path in places.items():
                bare, _ = _transfer(sender, receiver, None, number)
                rates["bare"] = max(bare, rates.get("bare", 0.0))
                rates[name], unsynced = _transfer(sender, receiver, path, number)
                ratios[name] = rates[name] / bare
            rates[UNSYNCED], ratios[UNSYNCED] = unsynced, unsynced / bare
            rows.append({"round": number, "bytes_per_s": rates, "ratio_to_bare": ratios})
        receiver.order(do="close_stores")
    kept = rows[WARM_UP_ROUNDS:]
    medians, ratios = (
        {kind: float(statistics.median(row[what][kind] for row in kept)) for kind in KINDS}
        for what in ("bytes_per_s", "ratio_to_bare")
    )
    return {"size_bytes": size_bytes, "median_bytes_per_s": medians, "ratio_to_bare": ratios, "rounds": kept}


def goals(result: Result) -> Iterator[Goal]:
    """Yield the rate of checkpoint n + 1 on tmpfs over the bare one."""
    ratio = result["ratio_to_bare"]["tmpfs"]
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


def _transfer(sender: Node, receiver: Node, place: Path | None, sequence: int) -> tuple[float, float]:
    """Return bytes per second with and without the commit; `place` None: of a bare transfer."""
    receiver.order(do="receive", place=None if place is None else str(place))
    sent = sender.order(do="send_bare" if place is None else "send_checkpoint", sequence=sequence)
    commit_s = receiver.order(do="end")["commit_s"]
    return sent["bytes"] / sent["duration_s"], sent["bytes"] / (sent["duration_s"] - commit_s)


def _directory(stack: ExitStack, parent: Path | None) -> Path:
    return Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="reclaimnet-", dir=parent)))


def _joined(stack: ExitStack) -> tuple[Node, Node]:
    """Return sender and receiver with a veth pair between their namespaces."""
    sender, receiver = nodes = Node(_Sender().serve), Node(_Receiver().serve)
    for node in nodes:
        stack.callback(node.close)
    sender.run(*f"ip link add e0 type veth peer name e0 netns {receiver.pid}".split())
    for node, address in zip(nodes, (SENDER, RECEIVER), strict=True):
        node.run("ip", "-batch", "-", text=f"addr add {address}/30 dev e0\nlink set e0 up\nlink set lo up\n")
    return sender, receiver


class _Sender:
    """Actions of the sending process."""

    def __init__(self) -> None:
        self._stores: list[CheckpointStore] = []

    def serve(self, order: dict[str, Any]) -> dict[str, Any]:
        """Obey an order."""
        result: dict[str, Any] = getattr(self, order.pop("do"))(**order)
        return result

    def prepare(self, place: str, size_bytes: int) -> dict[str, Any]:
        """Make the contents to send: other bytes in each."""
        self._contents = [Path(place) / f"content{number}" for number in range(CONTENTS)]
        for path in self._contents:
            with path.open("wb") as file:
                for start in range(0, size_bytes, 1 << 20):
                    file.write(os.urandom(min(1 << 20, size_bytes - start)))
        self._stores.append(CheckpointStore(Path(place) / "origin"))
        return {}

    def snapshot(self, sequence: int) -> dict[str, Any]:
        """Make the next checkpoint of one of the contents, and forget the last."""
        store = self._stores[0]
        path = store.scratch("payload")
        path.hardlink_to(self._contents[sequence % CONTENTS])
        store.ingest("measured", sequence, sequence, path)
        store.keep_latest("measured", 1)
        return {}

    def send_bare(self, sequence: int) -> dict[str, Any]:
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
            return {"bytes": sent, "duration_s": time.perf_counter() - began_s}

    def send_checkpoint(self, sequence: int) -> dict[str, Any]:
        """Return bytes and seconds of one real transfer, in which every byte had to move."""
        store = self._stores[0]
        manifest, address = store.get("measured", sequence), (RECEIVER, PORT)
        sending = partial(send, store, manifest, address, transfer="m", on_connected=lambda _: None)
        result = trio.run(sending)
        assert result.bytes_sent == manifest.payload_bytes
        return {"bytes": result.bytes_sent, "duration_s": result.duration_s}


class _Receiver:
    """Actions of the receiving process: a thread receives from one order to the next."""

    def __init__(self) -> None:
        self._stores: dict[str, CheckpointStore] = {}
        self._listening, self._ending = threading.Event(), threading.Event()
        self._received: Future[float] | None = None

    def serve(self, order: dict[str, Any]) -> dict[str, Any]:
        """Obey an order; `receive` is answered when the port is open, `end` when all has come."""
        match order["do"]:
            case "receive":
                self._listening.clear()
                self._ending.clear()
                self._received = ThreadPoolExecutor(1).submit(self._receive, order["place"])
                while not self._listening.wait(0.001):
                    if self._received.done():
                        self._received.result()
            case "end":
                assert self._received is not None
                self._ending.set()
                return {"commit_s": self._received.result()}
            case _:
                for store in self._stores.values():
                    store.close()
        return {}

    def _receive(self, place: str | None) -> float:
        """Return the commit's seconds: 0 of bytes that are discarded."""
        if place is not None:
            if place not in self._stores:
                self._stores[place] = CheckpointStore(Path(place) / "store")
            return trio.run(self._store, self._stores[place])
        buffer = memoryview(bytearray(CHUNK_BYTES))
        with socket.create_server((RECEIVER, PORT)) as listener:
            self._listening.set()
            sock, _ = listener.accept()
            with sock:
                while sock.recv_into(buffer):
                    pass
                sock.sendall(b"x")
        return 0.0

    async def _store(self, store: CheckpointStore) -> float:
        commits_s: list[float] = []

        def completed(event: ReceiveEvent) -> None:
            if isinstance(event, ReceiveCompleted):
                commits_s.append(event.commit_s)
                for manifest in store.manifests():
                    if manifest.key != event.manifest.key:
                        store.drop(*manifest.key, keep_file=True)

        listeners = await trio.open_tcp_listeners(PORT, host=RECEIVER)
        async with trio.open_nursery() as nursery:
            await nursery.start(partial(serve_checkpoints, on_event=completed), store, listeners)
            self._listening.set()
            await trio.to_thread.run_sync(self._ending.wait)
            nursery.cancel_scope.cancel()
        return sum(commits_s)
