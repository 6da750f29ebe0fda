"""Rate of a verified checkpoint, beside the least cost of any transfer.

Two processes, each in a network namespace of its own, joined by a veth pair. Every time runs from before the connection is made
to the receiver's last message. The kinds alternate, since a machine's speed changes all the time. The ratio is the median of a
transfer's rate over that of the bare one just before it. Files lie on tmpfs: no disk is waited for.

    bare    sendfile(2) into a socket whose receiver throws the bytes away
    stored  `send_checkpoint` to `CheckpointServer` as on a standby all day: checkpoint n + 1 arrives where n is kept and n - 1
            was dropped, whose file it is written over; dropping n is within the time, as in an agent. No chunk is equal to one
            that the receiver has: every chunk moves, is verified, and the file is synced and renamed before "stored"

Pairs of the stored kind follow, chunks sealed and not: as fast as they go, then paced at 1 Gbit/s. The
processor time of both ends is from the connection's beginning to its end.
"""

from __future__ import annotations

import os
import shutil
import socket
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final

import trio
from rich.table import Table

from experiments.benchmarks.frame import Goal, Result, Run, at_least, at_most, table_of
from experiments.benchmarks.nodes import Node
from testbed.checkpoints import CHUNK_BYTES, CheckpointStore
from testbed.enforcement import SO_MAX_PACING_RATE, payload_rate
from testbed.errors import SetupError
from testbed.transfer import CheckpointServer, ReceiveCompleted, ReceiveEvent
from testbed.transfer import send_checkpoint as send
from topologies.units import MBIT_PER_S

GOAL: Final = 0.85
SENDER: Final = "10.255.255.1"
RECEIVER: Final = "10.255.255.2"
PORT: Final = 9000
# memory is touched, and the first file to write over lies ready after two checkpoints
WARM_UP_ROUNDS: Final = 3
CONTENTS: Final = 3  # other bytes than in the checkpoint kept, and than in the file that is written over
KINDS: Final = {"bare": "bare: sendfile, discarded", "stored": "verified and stored, checkpoint n+1"}
PACE_BYTES_PER_S: Final = payload_rate(1000 * MBIT_PER_S)
PACED_ROUNDS: Final = 3
SEALED_GOAL, PACED_GOAL, PROCESSOR_GOAL = 0.75, 0.98, 1.3


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
        for number in run.each(range(WARM_UP_ROUNDS + rounds)):
            sender.order(do="snapshot", sequence=number)
            rates = {kind: _transfer(sender, receiver, kind, number)["bytes_per_s"] for kind in KINDS}
            rows.append({"round": number, "bytes_per_s": rates, "ratio": rates["stored"] / rates["bare"]})
        sealed = _sealed_beside_plain(sender, receiver, len(rows), rounds)
        receiver.order(do="close")
    kept = rows[WARM_UP_ROUNDS:]
    medians = {kind: float(statistics.median(row["bytes_per_s"][kind] for row in kept)) for kind in KINDS}
    ratio = float(statistics.median(row["ratio"] for row in kept))
    return {"size_bytes": size_bytes, "median_bytes_per_s": medians, "ratio_to_bare": ratio, "rounds": kept, **sealed}


def _sealed_beside_plain(sender: Node, receiver: Node, first: int, rounds: int) -> dict[str, Any]:
    """Return pairs of transfers that follow checkpoint `first`, and the median ratios of sealed over plain."""
    pairs: list[dict[str, Any]] = []
    for pace in [None] * rounds + [PACE_BYTES_PER_S] * PACED_ROUNDS:
        pair: dict[str, Any] = {"pace_bytes_per_s": pace}
        for kind, is_sealed in ("plain", False), ("sealed", True):
            sender.order(do="snapshot", sequence=first)
            pair[kind] = _transfer(sender, receiver, "stored", first, is_sealed=is_sealed, pace_bytes_per_s=pace)
            first += 1
        pairs.append(pair)

    def ratio(figure: Callable[[dict[str, float]], float], *, paced: bool) -> float:
        chosen = [pair for pair in pairs if (pair["pace_bytes_per_s"] is not None) is paced]
        return float(statistics.median(figure(pair["sealed"]) / figure(pair["plain"]) for pair in chosen))

    return {
        "sealed": {
            "pairs": pairs,
            "rate": ratio(lambda each: each["bytes_per_s"], paced=False),
            "rate_paced": ratio(lambda each: each["bytes_per_s"], paced=True),
            "processor": ratio(lambda each: each["sender_s_per_gib"] + each["receiver_s_per_gib"], paced=False),
        }
    }


def goals(result: Result) -> Iterator[Goal]:
    """Yield the rate of checkpoint n + 1 over the bare one."""
    what = "checkpoint n+1, verified and stored, over bare sendfile"
    yield at_least(what, result["ratio_to_bare"], GOAL, "{:.2f}".format)
    if sealed := result.get("sealed"):
        yield at_least("sealed over plain, both ends on two cores", sealed["rate"], SEALED_GOAL, "{:.2f}".format)
        yield at_least("sealed over plain, paced at 1 Gbit/s", sealed["rate_paced"], PACED_GOAL, "{:.3f}".format)
        yield at_most("processor time of both ends", sealed["processor"], PROCESSOR_GOAL, "{:.2f}".format)


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
    if sealed := result.get("sealed"):
        yield table_of(
            f"sealed beside plain, medians of {len(sealed['pairs'])} pairs",
            ("", "GB/s", "sender, CPU s a GiB", "receiver, CPU s a GiB"),
            (
                (f"{kind}, {'paced' if paced else 'as fast as it goes'}", *_figures(sealed["pairs"], kind, paced))
                for paced in (False, True)
                for kind in ("plain", "sealed")
            ),
        )


def _figures(pairs: list[dict[str, Any]], kind: str, paced: bool) -> Iterator[str]:
    chosen = [pair[kind] for pair in pairs if (pair["pace_bytes_per_s"] is not None) is paced]
    for figure, unit in ("bytes_per_s", 1e9), ("sender_s_per_gib", 1.0), ("receiver_s_per_gib", 1.0):
        yield f"{statistics.median(each[figure] for each in chosen) / unit:.2f}"


def _transfer(sender: Node, receiver: Node, kind: str, sequence: int, **how: Any) -> dict[str, float]:
    """Return the bytes per second of a transfer, and the processor's seconds a GiB of both ends."""
    receiver.order(do=kind, **how)
    sent = sender.order(do=f"send_{kind}", sequence=sequence, **how)
    received = receiver.order(do="end")
    gib = sent["bytes"] / (1 << 30)
    return {
        "bytes_per_s": sent["bytes"] / sent["duration_s"],
        "sender_s_per_gib": sent["processor_s"] / gib,
        "receiver_s_per_gib": received["processor_s"] / gib,
    }


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
        began_s = time.process_time()
        result: dict[str, Any] = getattr(self, order.pop("do"))(**order)
        return result | {"processor_s": time.process_time() - began_s}

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

    def send_stored(
        self, sequence: int, is_sealed: bool = False, pace_bytes_per_s: float | None = None
    ) -> dict[str, Any]:
        """Return bytes and seconds of one real transfer, in which every byte had to move."""
        store = self._store
        manifest, address = store.get("measured", sequence), (RECEIVER, PORT)

        def connected(sock: socket.socket) -> None:
            if pace_bytes_per_s is not None:
                sock.setsockopt(socket.SOL_SOCKET, SO_MAX_PACING_RATE, round(pace_bytes_per_s))

        sending = partial(send, store, *manifest.key, address, on_connected=connected, is_sealed=is_sealed)
        result = trio.run(sending)
        assert result.bytes_sent >= manifest.payload_bytes
        return {"bytes": result.bytes_sent, "duration_s": result.duration_s}


class _Receiver:
    """Actions of the receiving process: a thread receives from one order to the next."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._kept: CheckpointStore | None = None
        self._listening, self._ending = threading.Event(), threading.Event()
        self._received: Future[None] | None = None
        self._began_s = 0.0  # processor time at the last order to receive

    def serve(self, order: dict[str, Any]) -> dict[str, Any]:
        """Obey an order; that to receive is answered when the port is open, `end` when all has come."""
        spent: dict[str, Any] = {}
        match order["do"]:
            case "close":
                if self._kept is not None:
                    self._kept.close()
            case "end":
                assert self._received is not None
                self._ending.set()
                self._received.result()
                spent["processor_s"] = time.process_time() - self._began_s
            case kind:
                self._began_s = time.process_time()
                self._listening.clear()
                self._ending.clear()
                stored = partial(self._receive_stored, bool(order.get("is_sealed")))
                self._received = ThreadPoolExecutor(1).submit(self._receive_bare if kind == "bare" else stored)
                while not self._listening.wait(0.001):
                    if self._received.done():
                        self._received.result()
        return spent

    def _receive_bare(self) -> None:
        buffer = memoryview(bytearray(CHUNK_BYTES))
        with socket.create_server((RECEIVER, PORT)) as listener:
            self._listening.set()
            sock, _ = listener.accept()
            with sock:
                while sock.recv_into(buffer):
                    pass
                sock.sendall(b"x")

    def _receive_stored(self, is_sealed: bool) -> None:
        if self._kept is None:
            self._kept = CheckpointStore(self._place / "store")
        trio.run(self._store, self._kept, is_sealed)

    async def _store(self, store: CheckpointStore, is_sealed: bool) -> None:
        async def completed(event: ReceiveEvent) -> None:
            if isinstance(event, ReceiveCompleted):
                store.drop_older(*event.manifest.key, keep_file=True)

        listeners = await trio.open_tcp_listeners(PORT, host=RECEIVER)
        async with trio.open_nursery() as nursery:
            server = CheckpointServer(store=store, on_event=completed, is_sealed=is_sealed)
            await nursery.start(trio.serve_listeners, server.serve, listeners)
            self._listening.set()
            await trio.to_thread.run_sync(self._ending.wait)
            nursery.cancel_scope.cancel()
