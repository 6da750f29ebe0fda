"""Stores of checkpoints for tests: a host's own, and that of a standby that receives from it."""

import os
import random
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from testbed.checkpoints import CheckpointStore, Manifest, Reception
from testbed.checkpoints.files import PayloadFile
from testbed.transfer.intake import Intake
from testbed.trust.sealing import Opener

CHUNK = 4096


def content(chunks: int, seed: int = 0, tail: int = 0, chunk_bytes: int = CHUNK) -> bytes:
    return random.Random(seed).randbytes(chunks * chunk_bytes + tail)


def ingest(store: CheckpointStore, data: bytes, sequence: int = 1, job: str = "job") -> Manifest:
    store.scratch("snapshot").write_bytes(data)
    return store.ingest(job, sequence, sequence * 10, store.scratch("snapshot"))


def span(data: bytes, chunk: int) -> bytes:
    return data[chunk * CHUNK : (chunk + 1) * CHUNK]


def put(reception: Reception, data: bytes, *chunks: int) -> None:
    """Put these chunks of a payload into their places, and have them counted."""
    for chunk in chunks:
        os.pwrite(reception.fileno(), span(data, chunk), chunk * CHUNK)
        reception.seal(chunk)


def fill(reception: Reception, data: bytes) -> Manifest:
    """Complete a checkpoint with what it lacks."""
    put(reception, data, *reception.missing)
    return reception.commit()


def take(reception: Reception, data: bytes, opener: Opener | None = None) -> None:
    """Send all of `data` over a socket into the reception."""
    ours, theirs = socket.socketpair()
    stop = os.eventfd(0)
    ours.setblocking(False)

    def send() -> None:
        with theirs, suppress(OSError):
            theirs.sendall(data)

    sender = threading.Thread(target=send)
    sender.start()
    try:
        Intake(ours, stop, reception, 5.0, opener=opener).take(reception.missing)
    finally:
        ours.close()
        sender.join()
        os.close(stop)


def grants_leases(folder: Path) -> bool:
    """Whether the kernel can tell here that nobody else has a file open."""
    return PayloadFile(folder / "probe").is_unread()


def reopened(store: CheckpointStore) -> CheckpointStore:
    store.close()
    return CheckpointStore(store.root, chunk_bytes=CHUNK)


@dataclass
class Stores:
    """The store of a host with jobs, and the one of a host that receives."""

    origin: CheckpointStore
    standby: CheckpointStore

    def begin(self, data: bytes, sequence: int = 2, job: str = "job") -> Reception:
        """Begin to receive what the origin has ingested."""
        return self.standby.begin(ingest(self.origin, data, sequence, job))

    def receive(self, data: bytes, sequence: int = 2) -> Manifest:
        return fill(self.begin(data, sequence), data)

    def spare(self, data: bytes) -> int:
        """Receive a first checkpoint and drop it: its file waits for the next; return its inode."""
        number = self.standby.payload(self.receive(data, 1)).stat().st_ino
        self.standby.drop("job", 1, keep_file=True)
        return number


@contextmanager
def stores_in(path: Path) -> Iterator[Stores]:
    """The invariant of every test: each store shows whole checkpoints only, before and after it is opened again."""
    with (
        CheckpointStore(path / "origin", chunk_bytes=CHUNK) as origin,
        CheckpointStore(path / "standby", chunk_bytes=CHUNK) as standby,
    ):
        yield Stores(origin, standby)
        for manifest in standby.manifests():
            standby.verify(manifest)
    for root in (origin.root, standby.root):
        with CheckpointStore(root) as again:
            for manifest in again.manifests():
                again.verify(manifest)
