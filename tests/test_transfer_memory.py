"""Receiving straight into a mapped file: only where files live in memory, only over a file mapped before, never unverified."""

from __future__ import annotations

import os
import random
import shutil
import socket
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.checkpoints import CheckpointStore, ChunkMismatch, Manifest, Reception
from testbed.checkpoints.mapped import MappedFile
from testbed.checkpoints.store import MAX_OPEN
from testbed.transfer.errors import TransferFailed
from testbed.transfer.intake import Intake

CHUNK = 4096
MEMORY = Path("/dev/shm")


@pytest.fixture
def memory() -> Iterator[Path]:
    """A directory on tmpfs."""
    if not MEMORY.is_dir():
        pytest.skip(f"{MEMORY} is not there: no file system in memory")
    directory = Path(tempfile.mkdtemp(prefix="reclaimnet-test-", dir=MEMORY))
    try:
        yield directory
    finally:
        shutil.rmtree(directory)


@pytest.fixture
def stores(memory: Path) -> Iterator[tuple[CheckpointStore, CheckpointStore]]:
    with (
        CheckpointStore(memory / "origin", chunk_bytes=CHUNK) as origin,
        CheckpointStore(memory / "standby", chunk_bytes=CHUNK) as standby,
    ):
        if not standby._spares.possible:
            pytest.skip("this file system grants no leases: nothing is written over")
        yield origin, standby


def content(seed: int, chunks: int = 5, tail: int = 99) -> bytes:
    return random.Random(seed).randbytes(chunks * CHUNK + tail)


def ingest(origin: CheckpointStore, data: bytes, sequence: int) -> Manifest:
    origin.scratch("s").write_bytes(data)
    return origin.ingest("job", sequence, sequence, origin.scratch("s"))


def take(reception: Reception, data: bytes) -> None:
    """All of `data` over a socket into the reception."""
    ours, theirs = socket.socketpair()
    stop = os.eventfd(0)
    ours.setblocking(False)
    sender = threading.Thread(target=_send, args=(theirs, data))
    sender.start()
    try:
        Intake(ours, stop, reception, 5.0).take(reception.missing)
    finally:
        ours.close()
        sender.join()
        os.close(stop)


def _send(sock: socket.socket, data: bytes) -> None:
    with sock:
        try:
            sock.sendall(data)
        except OSError:
            return


def receive(stores: tuple[CheckpointStore, CheckpointStore], data: bytes, sequence: int) -> bool:
    """One checkpoint, and the one before it dropped; whether it came straight into memory."""
    origin, standby = stores
    reception = standby.begin(ingest(origin, data, sequence))
    with reception.memory() as view:
        direct = view is not None
    take(reception, data)
    manifest = reception.commit()
    assert standby.payload(manifest).read_bytes() == data
    if sequence > 1:
        standby.drop("job", sequence - 1)
    return direct


def test_file_written_before_takes_the_bytes_in_memory(
    stores: tuple[CheckpointStore, CheckpointStore],
) -> None:
    assert [receive(stores, content(n), n) for n in (1, 2, 3, 4)] == [False, False, True, True]


def test_payload_of_another_size_is_mapped_anew(stores: tuple[CheckpointStore, CheckpointStore]) -> None:
    sizes = (5, 5, 6, 6, 4, 4, 6)
    direct = [receive(stores, content(n, chunks), n) for n, chunks in enumerate(sizes, start=1)]
    assert direct == [False, False, False, False, False, False, False]
    assert receive(stores, content(8, 4), 8)


def test_wrong_byte_in_memory_does_not_count(stores: tuple[CheckpointStore, CheckpointStore]) -> None:
    for sequence in (1, 2):
        receive(stores, content(sequence), sequence)
    origin, standby = stores
    data = content(3)
    reception = standby.begin(ingest(origin, data, 3))
    with pytest.raises(ChunkMismatch) as wrong:
        take(reception, data[: 2 * CHUNK] + bytes([data[2 * CHUNK] ^ 1]) + data[2 * CHUNK + 1 :])
    assert wrong.value.chunk == 2
    assert reception.missing == [2, 3, 4, 5]
    take(reception, data[2 * CHUNK :])
    assert standby.payload(reception.commit()).read_bytes() == data


def test_sender_that_leaves_half_way_leaves_a_partial_checkpoint(
    stores: tuple[CheckpointStore, CheckpointStore],
) -> None:
    for sequence in (1, 2):
        receive(stores, content(sequence), sequence)
    origin, standby = stores
    data = content(3)
    manifest = ingest(origin, data, 3)
    reception = standby.begin(manifest)
    with pytest.raises(TransferFailed, match="closed the connection before the end"):
        take(reception, data[: 3 * CHUNK + 7])
    reception.abandon()
    again = standby.begin(manifest)
    assert again.missing == [3, 4, 5]
    take(again, data[3 * CHUNK :])
    assert standby.payload(again.commit()).read_bytes() == data


def test_reader_of_a_dropped_payload_goes_on_reading_its_bytes(
    stores: tuple[CheckpointStore, CheckpointStore],
) -> None:
    _, standby = stores
    for sequence in (1, 2):
        receive(stores, content(sequence), sequence)
    with standby.payload(standby.get("job", 2)).open("rb") as reader:
        assert receive(stores, content(3), 3)  # over the file of 1; drops 2, which somebody reads
        assert not receive(stores, content(4), 4)  # not over the file of 2
        assert reader.read() == content(2)


def test_files_of_checkpoints_that_are_kept_do_not_stay_open_for_ever(
    stores: tuple[CheckpointStore, CheckpointStore],
) -> None:
    origin, standby = stores
    before = _descriptors()
    for sequence in range(1, 2 * MAX_OPEN):
        reception = standby.begin(ingest(origin, content(sequence, 1), sequence))
        take(reception, content(sequence, 1))
        reception.commit()
    assert _descriptors() <= before + 2 * MAX_OPEN  # a mapping has a descriptor of its own
    standby.close()
    assert _descriptors() <= before


def test_memory_is_what_the_mounts_say_it_is(tmp_path: Path) -> None:
    file = MappedFile(tmp_path / "file")
    os.truncate(file.fd, CHUNK)
    try:
        file.map(CHUNK)
        assert file.is_mapped_memory(CHUNK) is _is_tmpfs(tmp_path)
    finally:
        file.close()


def _descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def _is_tmpfs(path: Path) -> bool:
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    inside = [(len(mount[1]), mount[2]) for mount in mounts if path.is_relative_to(mount[1])]
    return max(inside)[1] == "tmpfs"
