"""How fast a verified checkpoint moves, next to the least that any transfer costs.

Two processes, each in a network namespace of its own, joined by a veth pair. Every time runs from before the connection is made
to the receiver's last word; rounds alternate and medians are compared.

    bare      sendfile(2) into a socket whose receiver throws the bytes away
    hashed    the same, and the receiver hashes what it throws away
    written   the same as bare, and the receiver writes a new file: what keeping bytes costs by itself
    tmpfs     `send_checkpoint` to `serve_checkpoints`: every chunk verified, the file synced and renamed before "stored"
    disk      likewise on a disk; the fsync is the disk's own time

Where fresh memory is dear (on a nested virtual machine a new 4 KiB page was seen to cost about 3 us), `written` itself is far
below bare: the goal, set against a receiver that keeps nothing, is then out of reach; `tmpfs_ratio_to_written` says what
verifying adds to keeping.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
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

from testbed.checkpoints import CHUNK_BYTES, CheckpointStore
from testbed.errors import SetupError
from testbed.transfer import send_checkpoint, serve_checkpoints

GOAL: Final = 0.85
SENDER: Final = "10.255.255.1"
RECEIVER: Final = "10.255.255.2"
PORT: Final = 9000
_KINDS: Final = {
    "bare": "bare,\ndiscarded",
    "hashed": "hashed,\ndiscarded",
    "written": "bare,\nwritten (tmpfs)",
    "tmpfs": "verified,\nstored (tmpfs)",
    "disk": "verified, stored\n(disk, fsync)",
}
_CLONE_NEWNET: Final = 0x40000000
_PR_SET_PDEATHSIG: Final = 1


def measure_transfer(
    out: Path, size_bytes: int = 512 << 20, rounds: int = 7, disk: Path | None = None
) -> dict[str, Any]:
    """Runs the comparison; writes `transfer.json` and `transfer.png` into `out` and returns what the JSON holds.

    `disk` is a directory on the disk to report beside tmpfs (default: the temporary directory). Needs root for the two
    namespaces: SetupError says so.
    """
    if os.geteuid() != 0:
        raise SetupError("measuring over a veth pair needs root: it makes two network namespaces")
    rows = []
    with ExitStack() as stack:
        places = {"tmpfs": _directory(stack, Path("/dev/shm")), "disk": _directory(stack, disk)}
        sender, receiver = stack.enter_context(_joined_processes())
        sender.ask("prepare", str(places["tmpfs"]), size_bytes)
        for number in range(rounds + 1):  # the first round warms memory up and is not counted
            row: dict[str, Any] = {"round": number}
            for kind in ("bare", "hashed"):
                row[kind] = _round(sender, receiver, kind, None)
            row["written"] = _round(sender, receiver, "bare", str(places["tmpfs"]))
            for place, path in places.items():
                row[place] = _round(sender, receiver, "ours", str(path))
            rows.append(row)
    result = _summary(rows[1:], size_bytes)
    out.mkdir(parents=True, exist_ok=True)
    (out / "transfer.json").write_text(json.dumps(result, indent=2) + "\n")
    _draw(result, out / "transfer.png")
    return result


def _round(sender: _Child, receiver: _Child, kind: str, place: str | None) -> float:
    """Bytes per second of one transfer: the receiver listens, the sender sends, the receiver forgets."""
    receiver.ask(f"receive_{kind}", place)
    sent_bytes, duration_s = sender.ask("send_ours" if kind == "ours" else "send_bare")
    receiver.ask("")
    return float(sent_bytes / duration_s)


def _summary(rows: list[dict[str, Any]], size_bytes: int) -> dict[str, Any]:
    medians = {kind: statistics.median(row[kind] for row in rows) for kind in _KINDS}
    return {
        "size_bytes": size_bytes,
        "median_bytes_per_s": medians,
        "ratio_to_bare": {kind: medians[kind] / medians["bare"] for kind in _KINDS if kind != "bare"},
        "tmpfs_ratio_to_written": medians["tmpfs"] / medians["written"],
        "goal": GOAL,
        "goal_met": medians["tmpfs"] >= GOAL * medians["bare"],
        "rounds": rows,
    }


def _directory(stack: ExitStack, parent: Path | None) -> Path:
    return Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="reclaimnet-", dir=parent)))


class _Child:
    """A process in its own namespace that obeys one JSON line at a time."""

    def __init__(self, role: str) -> None:
        argv = [sys.executable, "-m", "experiments.measure.transfer", role, str(os.getpid())]
        self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.answer()

    def tell(self, *words: object) -> None:
        """Sends an order."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(words) + "\n")
        self.process.stdin.flush()

    def answer(self) -> Any:
        """Waits for the answer to an order."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SetupError(f"the measuring process ended with status {self.process.wait()}")
        return json.loads(line)

    def ask(self, *words: object) -> Any:
        """Sends an order and waits for its answer."""
        self.tell(*words)
        return self.answer()


@contextmanager
def _joined_processes() -> Iterator[tuple[_Child, _Child]]:
    """Sender and receiver with a veth pair between their namespaces; all of it goes away with them."""
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


def _enter_namespace(parent: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        raise SetupError("the measuring process lost its parent")
    if libc.unshare(_CLONE_NEWNET) != 0:
        raise SetupError(f"unshare(CLONE_NEWNET): {os.strerror(ctypes.get_errno())}")


class _Sender:
    """What the sending process does on request."""

    def __init__(self) -> None:
        self._stores: list[CheckpointStore] = []

    def prepare(self, place: str, size_bytes: int) -> None:
        """Makes the checkpoint to send."""
        store = CheckpointStore(Path(place) / "origin")
        path = store.scratch("payload")
        with path.open("wb") as file:
            for start in range(0, size_bytes, 1 << 20):
                file.write(os.urandom(min(1 << 20, size_bytes - start)))
        store.ingest("measured", 1, 1, path)
        self._stores.append(store)

    def send_bare(self) -> tuple[int, float]:
        """Bytes and seconds of sendfile to a receiver that discards."""
        store = self._stores[0]
        with store.payload(store.get("measured", 1)).open("rb") as file:
            size_bytes = os.fstat(file.fileno()).st_size
            began_s = time.perf_counter()
            with socket.create_connection((RECEIVER, PORT)) as sock:
                sent = 0
                while sent < size_bytes:
                    sent += os.sendfile(sock.fileno(), file.fileno(), sent, size_bytes - sent)
                sock.shutdown(socket.SHUT_WR)
                sock.recv(1)
            return sent, time.perf_counter() - began_s

    def send_ours(self) -> tuple[int, float]:
        """Bytes and seconds of one real transfer."""
        store = self._stores[0]
        manifest = store.get("measured", 1)

        async def send() -> tuple[int, float]:
            address = (RECEIVER, PORT)
            result = await send_checkpoint(
                store, manifest, address, transfer="m", on_connected=lambda _: None
            )
            return result.bytes_sent, result.duration_s

        return trio.run(send)


class _Receiver:
    """What the receiving process does on request; each listens, says so, and ends when told the next line."""

    def receive_bare(self, place: str | None) -> None:
        """Takes one connection's bytes, and throws them away or writes them to a new file."""
        with tempfile.TemporaryFile(dir=place) as file:
            self._take(lambda data: None if place is None else os.write(file.fileno(), data))

    def receive_hashed(self, _: None) -> None:
        """Takes one connection's bytes and hashes them, chunk by chunk."""
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

    def receive_ours(self, place: str) -> None:
        """Receives into a store at `place`, and forgets what it received."""
        with CheckpointStore(Path(place) / "target") as store:
            trio.run(_serve_until_told, store)
            store.drop("measured", 1)


async def _serve_until_told(store: CheckpointStore) -> None:
    listeners = await trio.open_tcp_listeners(PORT, host=RECEIVER)
    async with trio.open_nursery() as nursery:
        serve = partial(serve_checkpoints, accept=lambda _: None, on_event=lambda _: None)
        await nursery.start(serve, store, listeners)
        _reply("listening")
        await trio.to_thread.run_sync(sys.stdin.readline)
        nursery.cancel_scope.cancel()


def _reply(value: object) -> None:
    print(json.dumps(value), flush=True)


def _obey(role: str, parent: int) -> None:
    """The life of a measuring process: a namespace, an address, then order after order."""
    _enter_namespace(parent)
    _reply("in its namespace")
    sys.stdin.readline()
    _configure(SENDER if role == "send" else RECEIVER)
    _reply("has its address")
    worker = _Sender() if role == "send" else _Receiver()
    for line in sys.stdin:
        order, *arguments = json.loads(line)
        _reply(getattr(worker, order)(*arguments))


def _configure(address: str) -> None:
    name = f"rnm{os.getpid()}"
    for arguments in ("link set lo up", f"addr add {address}/30 dev {name}", f"link set {name} up"):
        _ip(arguments)


def _draw(result: dict[str, Any], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6.0, 3.4), layout="constrained")
    for place, kind in enumerate(_KINDS):
        values = [row[kind] / 1e9 for row in result["rounds"]]
        axes.bar(
            place,
            statistics.median(values),
            color="#4878a8" if kind in ("tmpfs", "disk") else "#b0b0b0",
            width=0.6,
        )
        axes.plot([place] * len(values), values, ".", color="black", markersize=4)
    goal = GOAL * result["median_bytes_per_s"]["bare"] / 1e9
    axes.axhline(goal, color="#c44e52", linestyle="--", linewidth=1, label=f"goal: {GOAL} of bare")
    axes.set_xticks(range(len(_KINDS)), list(_KINDS.values()))
    axes.set_ylabel("GB/s over a veth pair")
    axes.legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=150)
    pyplot.close(figure)


if __name__ == "__main__":
    _obey(sys.argv[1], int(sys.argv[2]))
