"""Spare files: bounded, out of sight, never written over while somebody reads them, never believed."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from testbed.checkpoints import CheckpointStore, ChunkMismatch, Manifest, NotStored, Reception, StoreFull
from testbed.checkpoints import spares as spares_module
from testbed.checkpoints import store as store_module
from testbed.checkpoints.spares import MAX_SPARES, Spare, Spares

CHUNK = 4096


@pytest.fixture
def origin(tmp_path: Path) -> Iterator[CheckpointStore]:
    with CheckpointStore(tmp_path / "origin", chunk_bytes=CHUNK) as opened:
        yield opened


@pytest.fixture
def standby(tmp_path: Path) -> Iterator[CheckpointStore]:
    """A store that receives, and the invariant of every test: what it shows is whole, before and after a restart."""
    with CheckpointStore(tmp_path / "standby", chunk_bytes=CHUNK) as opened:
        if not opened._spares.possible:
            pytest.skip(
                "this file system grants no leases, or shares blocks between files: nothing is recycled"
            )
        yield opened
        for manifest in opened.manifests():
            opened.verify(manifest)
    with CheckpointStore(tmp_path / "standby") as again:
        assert again.spare_bytes == 0
        for manifest in again.manifests():
            again.verify(manifest)


def content(chunks: int, seed: int, tail: int = 0) -> bytes:
    return random.Random(seed).randbytes(chunks * CHUNK + tail)


def offered(origin: CheckpointStore, data: bytes, sequence: int, job: str = "job") -> Manifest:
    origin.scratch("s").write_bytes(data)
    return origin.ingest(job, sequence, sequence, origin.scratch("s"))


def fill(reception: Reception, data: bytes) -> Manifest:
    for chunk in reception.missing:
        offset, length = reception.manifest.span(chunk)
        os.pwrite(reception.fileno(), data[offset : offset + length], offset)
        reception.seal(chunk)
    return reception.commit()


def receive(
    origin: CheckpointStore, standby: CheckpointStore, data: bytes, sequence: int, job: str = "job"
) -> Manifest:
    return fill(standby.begin(offered(origin, data, sequence, job)), data)


def inode(path: Path) -> int:
    return path.stat().st_ino


def test_next_reception_is_written_over_the_dropped_payload(
    origin: CheckpointStore, standby: CheckpointStore
) -> None:
    dropped = inode(standby.payload(receive(origin, standby, content(4, 1), 1)))
    standby.drop("job", 1)
    assert standby.spare_bytes == 4 * CHUNK
    second = receive(origin, standby, content(4, 2), 2)
    assert inode(standby.payload(second)) == dropped
    assert standby.payload(second).read_bytes() == content(4, 2)
    assert standby.spare_bytes == 0


@pytest.mark.parametrize(("chunks", "tail"), [(3, 1), (4, 0), (5, 77), (8, 0), (2, 0)])
def test_spare_of_another_size_gets_exactly_the_new_size(
    origin: CheckpointStore, standby: CheckpointStore, chunks: int, tail: int
) -> None:
    dropped = inode(standby.payload(receive(origin, standby, content(4, 1), 1)))
    standby.drop("job", 1)
    reception = standby.begin(offered(origin, content(chunks, 2, tail), 2))
    status = os.fstat(reception.fileno())
    assert status.st_blocks * 512 >= chunks * CHUNK + tail  # room for all of it, before a byte moves
    second = fill(reception, content(chunks, 2, tail))
    assert inode(standby.payload(second)) == dropped
    assert standby.payload(second).read_bytes() == content(chunks, 2, tail)


def test_spare_more_than_twice_as_large_is_left_for_another(
    origin: CheckpointStore, standby: CheckpointStore
) -> None:
    receive(origin, standby, content(9, 1), 1)
    standby.drop("job", 1)
    receive(origin, standby, content(4, 2), 2)
    assert standby.spare_bytes == 9 * CHUNK


def test_chunk_unchanged_in_its_place_is_not_asked_for(
    origin: CheckpointStore, standby: CheckpointStore
) -> None:
    old = content(6, 1, tail=9)
    new = old[:CHUNK] + content(1, 2) + old[2 * CHUNK : 5 * CHUNK] + content(1, 3) + old[6 * CHUNK :]
    receive(origin, standby, old, 1)
    standby.drop("job", 1)
    reception = standby.begin(offered(origin, new, 2))
    assert reception.missing == [1, 5]
    assert reception.bytes_found == 4 * CHUNK + 9
    assert standby.payload(fill(reception, new)).read_bytes() == new


def test_stale_bytes_in_a_spare_never_count_as_their_manifest_says(
    origin: CheckpointStore, standby: CheckpointStore
) -> None:
    data = content(4, 1)
    receive(origin, standby, data, 1)
    standby.drop("job", 1)
    (spare,) = (standby.root / ".spares").glob("*.spare")
    with spare.open("r+b") as file:  # rotten since it was verified
        file.seek(2 * CHUNK + 5)
        file.write(b"rot")
    reception = standby.begin(offered(origin, data, 2))
    assert reception.missing == [2]
    assert standby.payload(fill(reception, data)).read_bytes() == data


def test_spare_cut_short_by_a_stranger_gets_its_room_back(
    origin: CheckpointStore, standby: CheckpointStore
) -> None:
    receive(origin, standby, content(4, 1), 1)
    standby.drop("job", 1)
    (spare,) = (standby.root / ".spares").glob("*.spare")
    os.truncate(spare, 0)
    reception = standby.begin(offered(origin, content(4, 1), 2))
    assert reception.missing == [0, 1, 2, 3]
    assert os.fstat(reception.fileno()).st_blocks * 512 >= 4 * CHUNK
    fill(reception, content(4, 1))


def test_old_bytes_left_where_nothing_arrived_are_refused_when_sealed(
    origin: CheckpointStore, standby: CheckpointStore
) -> None:
    receive(origin, standby, content(3, 1), 1)
    standby.drop("job", 1)
    reception = standby.begin(offered(origin, content(3, 2), 2))
    assert reception.missing == [0, 1, 2]
    with pytest.raises(ChunkMismatch):
        reception.seal(1)
    reception.abandon()
    with reopened(standby) as again:  # and the attempt it left is believed no further
        later = again.begin(origin.get("job", 2))
        assert later.missing == [0, 1, 2]
        fill(later, content(3, 2))


def reopened(store: CheckpointStore) -> CheckpointStore:
    store.close()
    return CheckpointStore(store.root, chunk_bytes=CHUNK)


@contextmanager
def descriptor(path: Path) -> Iterator[Callable[[], bytes]]:
    with path.open("rb") as file:
        yield lambda: os.pread(file.fileno(), 1 << 20, 0)


@contextmanager
def mapping(path: Path) -> Iterator[Callable[[], bytes]]:
    """The descriptor is closed, as PyTorch does when it maps a checkpoint."""
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    with mapped:
        yield lambda: mapped[:]


@contextmanager
def another_process(path: Path) -> Iterator[Callable[[], bytes]]:
    program = "import sys; f = open(sys.argv[1], 'rb'); print(flush=True); input(); sys.stdout.buffer.write(f.read())"
    argv = [sys.executable, "-c", program, str(path)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield lambda: process.communicate(b"\n")[0]
        finally:
            process.kill()


READERS = [descriptor, mapping, another_process]
Reader = Callable[[Path], AbstractContextManager[Callable[[], bytes]]]


@pytest.mark.parametrize("reader", READERS)
def test_payload_that_somebody_reads_is_not_written_over(
    origin: CheckpointStore, standby: CheckpointStore, reader: Reader
) -> None:
    first = receive(origin, standby, content(4, 1), 1)
    read_inode = inode(standby.payload(first))
    with reader(standby.payload(first)) as read:
        standby.drop("job", 1)
        second = receive(origin, standby, content(4, 2), 2)
        assert inode(standby.payload(second)) != read_inode
        assert read() == content(4, 1)
    third = receive(origin, standby, content(4, 3), 3)
    assert inode(standby.payload(third)) == read_inode  # nobody reads it any more
    assert standby.payload(second).read_bytes() == content(4, 2)


def test_reader_of_a_payload_dropped_and_removed_reads_on(
    origin: CheckpointStore, standby: CheckpointStore
) -> None:
    first = receive(origin, standby, content(4, 1), 1)
    with descriptor(standby.payload(first)) as read:
        standby.drop("job", 1)
        standby._spares.shed()
        assert read() == content(4, 1)


def test_stranger_who_opens_a_spare_while_it_is_asked_about_ends_nobody(
    origin: CheckpointStore, standby: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Breaking a lease sends its holder a signal: the default one, SIGIO, would kill the agent."""
    receive(origin, standby, content(4, 1), 1)
    standby.drop("job", 1)
    (spare,) = (standby.root / ".spares").glob("*.spare")
    real = fcntl.fcntl

    def intruded(fd: int, command: int, argument: int = 0) -> int:
        result = real(fd, command, argument)
        if command == fcntl.F_SETLEASE and argument == fcntl.F_WRLCK:
            with pytest.raises(BlockingIOError):
                os.open(spare, os.O_RDONLY | os.O_NONBLOCK)
        return result

    monkeypatch.setattr(fcntl, "fcntl", intruded)
    receive(origin, standby, content(4, 2), 2)


def test_spares_are_bounded_in_number(origin: CheckpointStore, standby: CheckpointStore) -> None:
    for sequence in range(1, 6):
        receive(origin, standby, content(2, sequence), sequence)
    assert len(standby.keep_latest("job", 1)) == 4
    assert len(list((standby.root / ".spares").iterdir())) == MAX_SPARES
    assert standby.spare_bytes == 2 * CHUNK * MAX_SPARES


def test_spares_hold_no_more_than_their_share_of_the_free_room(
    origin: CheckpointStore, standby: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for sequence in (1, 2):
        receive(origin, standby, content(4, sequence), sequence)
    monkeypatch.setattr(
        spares_module, "free_bytes", lambda _: 4 * 5 * CHUNK
    )  # a quarter of it: one file of four
    standby.drop("job", 1)
    standby.drop("job", 2)
    assert standby.spare_bytes == 4 * CHUNK
    assert list((standby.root / "job").iterdir()) == []


def test_spares_give_way_before_a_reception_is_told_the_disk_is_full(
    origin: CheckpointStore, standby: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    receive(origin, standby, content(20, 1), 1)
    standby.drop("job", 1)
    assert standby.spare_bytes == 20 * CHUNK
    monkeypatch.setattr(spares_module, "free_bytes", lambda _: 3 * CHUNK)  # without what the spare holds
    receive(origin, standby, content(4, 2), 2)
    assert standby.spare_bytes == 0
    assert list((standby.root / ".spares").iterdir()) == []


def test_spares_give_way_before_a_snapshot_is_written(
    origin: CheckpointStore, standby: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    receive(origin, standby, content(4, 1), 1)
    standby.drop("job", 1)
    standby.scratch("snapshot")
    assert standby.spare_bytes == 4 * CHUNK
    monkeypatch.setattr(spares_module, "free_bytes", lambda _: 3 * CHUNK)
    standby.scratch("snapshot")
    assert standby.spare_bytes == 0


def test_disk_full_after_taking_a_spare_leaves_no_attempt_behind(
    origin: CheckpointStore, standby: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = receive(origin, standby, content(4, 1), 1)
    receive(origin, standby, content(4, 2), 2)
    standby.drop("job", 2)

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no room")

    monkeypatch.setattr("os.posix_fallocate", refuse)
    with pytest.raises(StoreFull):
        standby.begin(offered(origin, content(6, 3), 3))
    assert sorted(path.name for path in (standby.root / "job").iterdir()) == ["1.manifest", "1.payload"]
    assert standby.payload(kept).read_bytes() == content(4, 1)


def test_spares_are_not_stored_checkpoints(origin: CheckpointStore, standby: CheckpointStore) -> None:
    first = receive(origin, standby, content(2, 1), 1)
    standby.drop("job", 1)
    assert standby.manifests() == []
    with pytest.raises(NotStored):
        standby.payload(first)
    reception = standby.begin(offered(origin, content(1, 9) + content(2, 1), 2, job="else"))
    assert reception.missing == [0, 1, 2]  # nor is their content found at another place
    reception.abandon()


def test_spares_are_gone_once_the_store_is_closed(origin: CheckpointStore, standby: CheckpointStore) -> None:
    receive(origin, standby, content(2, 1), 1)
    receive(origin, standby, content(2, 2), 2)
    standby.drop("job", 1)
    standby.close()
    assert not (standby.root / ".spares").exists()
    standby.drop("job", 2)  # late, and keeps nothing
    assert list((standby.root / "job").iterdir()) == []


def test_spares_that_a_killed_process_left_are_gone_at_the_next_start(tmp_path: Path) -> None:
    left = tmp_path / "store" / ".spares"
    left.mkdir(parents=True)
    (left / "7.spare").write_bytes(bytes(CHUNK))
    with CheckpointStore(tmp_path / "store") as store:
        assert list(left.iterdir()) == []
        assert store.spare_bytes == 0


def test_own_snapshots_become_no_spares(origin: CheckpointStore) -> None:
    """Where checkpoints only leave, nothing would ever be written over them."""
    offered(origin, content(2, 1), 1)
    origin.drop("job", 1)
    assert origin.spare_bytes == 0
    assert list((origin.root / "job").iterdir()) == []


def test_removal_is_on_the_disk_before_the_file_may_be_written_over(
    origin: CheckpointStore, standby: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a power cut could bring back a manifest over another checkpoint's bytes."""
    receive(origin, standby, content(2, 1), 1)
    story: list[str] = []
    offer = standby._spares.offer
    monkeypatch.setattr(store_module, "fsync_directory", lambda path: story.append(f"sync {path.name}"))

    def offering(spare: Spare) -> None:
        story.append("offer")
        offer(spare)

    monkeypatch.setattr(standby._spares, "offer", offering)
    standby.drop("job", 1)
    assert story == ["sync job", "offer"]
    assert not (standby.root / "job" / "1.manifest").exists()


@pytest.mark.parametrize("lack", ["no leases", "leases ignore readers", "blocks are shared"])
def test_nothing_is_recycled_where_it_would_not_be_safe(
    origin: CheckpointStore, tmp_path: Path, lack: str
) -> None:
    def refused(*_: object) -> int:
        raise OSError(errno.EINVAL, "leases are not supported here")

    with CheckpointStore(tmp_path / "limited", chunk_bytes=CHUNK) as store:
        receive(origin, store, content(2, 1), 1)
        with pytest.MonkeyPatch.context() as patch:
            if lack == "no leases":
                patch.setattr(fcntl, "fcntl", refused)
            elif lack == "leases ignore readers":
                patch.setattr(fcntl, "fcntl", lambda *_: 0)
            else:
                patch.setattr(fcntl, "ioctl", lambda *_: 0)
            store.drop("job", 1)
        assert store.spare_bytes == 0
        assert list((store.root / "job").iterdir()) == []


def test_payload_removed_by_hand_is_dropped_without_complaint(
    origin: CheckpointStore, standby: CheckpointStore
) -> None:
    standby.payload(receive(origin, standby, content(2, 1), 1)).unlink()
    standby.drop("job", 1)
    assert standby.spare_bytes == 0


def test_spares_of_nothing_close_quietly(tmp_path: Path) -> None:
    spares = Spares(tmp_path / "spares")
    spares.make_room(1 << 60)
    spares.shed()
    spares.close()
    assert not (tmp_path / "spares").exists()
