"""Rate of a verified checkpoint, beside the least cost of any transfer.

Two processes, each in a network namespace of its own, joined by a veth pair. Every time runs from before the connection is made
to the receiver's last message. The kinds alternate, since a machine's speed changes all the time. The ratio is the median of a
transfer's rate over that of the bare one just before it. Files lie on tmpfs: no disk is waited for.

    bare    sendfile(2) into a socket whose receiver throws the bytes away
    stored  `send_checkpoint` to `CheckpointServer` as on a standby all day: checkpoint n + 1 arrives where n is kept and n - 1
            was dropped, whose file it is written over; dropping n is within the time, as in an agent. No chunk is equal to one
            that the receiver has: every chunk moves, is verified, and the file is synced and renamed before "stored"
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
from testbed.transfer import CheckpointServer, ReceiveCompleted, ReceiveEvent
from testbed.transfer import send_checkpoint as send

GOAL: Final = 0.85
SENDER: Final = "10.255.255.1"
RECEIVER: Final = "10.255.255.2"
PORT: Final = 9000
# memory is touched, and the first file to write over lies ready after two checkpoints
WARM_UP_ROUNDS: Final = 3
CONTENTS: Final = 3  # other bytes than in the checkpoint kept, and than in the file that is written over
KINDS: Final = {"bare": "bare: sendfile, discarded", "stored": "verified and stored, checkpoint n+1"}


def measure(run: Run) -> dict[str, Any]:
    """Run the comparison. SetupError: no root, or no room."""
    size_bytes, rounds = (128 << 20, 3) if run.quick else (512 << 20, 7)
    if os.geteuid() != 0:
        raise SetupError("measuring over a veth pair needs root: it makes two network namespaces")
    rows: list[dict[str, Any]] = []
    with ExitStack() as stack:
        memory = tempfile.TemporaryDirectory(prefix="reclaimnet-", dir="/dev/shm")
        place = Path(stack.enter_context(memory))
        # the sender's contents, and a store of two files; a dropped file needs as much free beside it
        needed = (CONTENTS + 4) * size_bytes
        if (free := shutil.disk_usage(place).free) < needed:
            raise SetupError(f"{place.parent}: {free} bytes free, measuring {size_bytes} bytes needs {needed}")
        sender, receiver = _joined(stack, place)
        sender.order(do="prepare", size_bytes=size_bytes)
        for number in range(WARM_UP_ROUNDS + rounds):
            sender.order(do="snapshot", sequence=number)
            rates = {kind: _transfer(sender, receiver, kind, number) for kind in KINDS}
            rows.append({"round": number, "bytes_per_s": rates, "ratio": rates["stored"] / rates["bare"]})
        receiver.order(do="close")
    kept = rows[WARM_UP_ROUNDS:]
    medians = {kind: float(statistics.median(row["bytes_per_s"][kind] for row in kept)) for kind in KINDS}
    ratio = float(statistics.median(row["ratio"] for row in kept))
    return {"size_bytes": size_bytes, "median_bytes_per_s": medians, "ratio_to_bare": ratio, "rounds": kept}


def goals(result: Result) -> Iterator[Goal]:
    """Yield the rate of checkpoint n + 1 over the bare one."""
    what = "checkpoint n+1, verified and stored, over bare sendfile"
    yield at_least(what, result["ratio_to_bare"], GOAL, "{:.2f}".format)


def tables(result: Result) -> Iterator[Table]:
    """Yield medians of the kinds, and their ratio."""
    yield table_of(
        f"{result['size_bytes'] >> 20} MiB over a veth pair, medians of {len(result['rounds'])} rounds",
        ("", "GB/s", "of bare"),
        (
            (
                label,
                f"{result['median_bytes_per_s'][kind] / 1e9:.2f}",
                f"{1.0 if kind == 'bare' else result['ratio_to_bare']:.2f}",
            )
            for kind, label in KINDS.items()
        ),
    )


def _transfer(sender: Node, receiver: Node, kind: str, sequence: int) -> float:
    """Return the bytes per second of a transfer."""
    receiver.order(do=kind)
    sent = sender.order(do=f"send_{kind}", sequence=sequence)
    receiver.order(do="end")
    return float(sent["bytes"] / sent["duration_s"])


def _joined(stack: ExitStack, place: Path) -> tuple[Node, Node]:
    """Return sender and receiver with a veth pair between their namespaces."""
    sender, receiver = nodes = Node(_Sender(place).serve), Node(_Receiver(place).serve)
    for node in nodes:
        stack.callback(node.close)
    sender.run(*f"ip link add e0 type veth peer name e0 netns {receiver.pid}".split())
    for node, address in zip(nodes, (SENDER, RECEIVER), strict=True):
        node.run("ip", "-batch", "-", text=f"addr add {address}/30 dev e0\nlink set e0 up\nlink set lo up\n")
    return sender, receiver


class _Sender:
    """Actions of the sending process."""

    def __init__(self, place: Path) -> None:
        self._contents = [place / f"content{number}" for number in range(CONTENTS)]
        self._origin = place / "origin"

    def serve(self, order: dict[str, Any]) -> dict[str, Any]:
        """Obey an order."""
        result: dict[str, Any] = getattr(self, order.pop("do"))(**order)
        return result

    def prepare(self, size_bytes: int) -> dict[str, Any]:
        """Make the contents to send: other bytes in each."""
        for path in self._contents:
            with path.open("wb") as file:
                for start in range(0, size_bytes, 1 << 20):
                    file.write(os.urandom(min(1 << 20, size_bytes - start)))
        self._store = CheckpointStore(self._origin)
        return {}

    def snapshot(self, sequence: int) -> dict[str, Any]:
        """Make the next checkpoint of one of the contents, and forget the last."""
        store = self._store
        path = store.scratch("payload")
        path.hardlink_to(self._contents[sequence % CONTENTS])
        store.ingest("measured", sequence, sequence, path)
        store.keep_latest("measured", 1)
        return {}

    def send_bare(self, sequence: int) -> dict[str, Any]:
        """Return bytes and seconds of sendfile."""
        store = self._store
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

    def send_stored(self, sequence: int) -> dict[str, Any]:
        """Return bytes and seconds of one real transfer, in which every byte had to move."""
        store = self._store
        manifest, address = store.get("measured", sequence), (RECEIVER, PORT)
        sending = partial(send, store, *manifest.key, address, on_connected=lambda _: None)
        result = trio.run(sending)
        assert result.bytes_sent == manifest.payload_bytes
        return {"bytes": result.bytes_sent, "duration_s": result.duration_s}


class _Receiver:
    """Actions of the receiving process: a thread receives from one order to the next."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._kept: CheckpointStore | None = None
        self._listening, self._ending = threading.Event(), threading.Event()
        self._received: Future[None] | None = None

    def serve(self, order: dict[str, Any]) -> dict[str, Any]:
        """Obey an order; that to receive is answered when the port is open, `end` when all has come."""
        match order["do"]:
            case "close":
                if self._kept is not None:
                    self._kept.close()
            case "end":
                assert self._received is not None
                self._ending.set()
                self._received.result()
            case kind:
                self._listening.clear()
                self._ending.clear()
                receive = self._receive_bare if kind == "bare" else self._receive_stored
                self._received = ThreadPoolExecutor(1).submit(receive)
                while not self._listening.wait(0.001):
                    if self._received.done():
                        self._received.result()
        return {}

    def _receive_bare(self) -> None:
        buffer = memoryview(bytearray(CHUNK_BYTES))
        with socket.create_server((RECEIVER, PORT)) as listener:
            self._listening.set()
            sock, _ = listener.accept()
            with sock:
                while sock.recv_into(buffer):
                    pass
                sock.sendall(b"x")

    def _receive_stored(self) -> None:
        if self._kept is None:
            self._kept = CheckpointStore(self._place / "store")
        trio.run(self._store, self._kept)

    async def _store(self, store: CheckpointStore) -> None:
        async def completed(event: ReceiveEvent) -> None:
            if isinstance(event, ReceiveCompleted):
                store.drop_older(*event.manifest.key, keep_file=True)

        listeners = await trio.open_tcp_listeners(PORT, host=RECEIVER)
        async with trio.open_nursery() as nursery:
            server = CheckpointServer(store=store, on_event=completed)
            await nursery.start(trio.serve_listeners, server.serve, listeners)
            self._listening.set()
            await trio.to_thread.run_sync(self._ending.wait)
            nursery.cancel_scope.cancel()
