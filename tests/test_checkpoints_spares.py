"""Spare files: bounded, out of sight, never written over while somebody reads them, never believed."""

import errno
import fcntl
import mmap
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from testbed.checkpoints import CheckpointStore, ChunkMismatch, NotStored, StoreFull
from testbed.checkpoints import spares as spares_module
from testbed.checkpoints import store as store_module
from testbed.checkpoints.spares import MAX_SPARES, Spare, Spares
from tests.stores import CHUNK, Stores, content, fill, ingest, reopened, stores_in


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[Stores]:
    with stores_in(tmp_path) as opened:
        if not opened.standby._spares.possible:
            pytest.skip("no leases, or blocks that files share: nothing is recycled on this file system")
        yield opened


def spare_of(stores: Stores) -> Path:
    (spare,) = (stores.standby.root / ".spares").glob("*.spare")
    return spare


def files(stores: Stores, folder: str = "job") -> list[str]:
    return sorted(path.name for path in (stores.standby.root / folder).iterdir())


@pytest.mark.parametrize(
    ("before", "chunks", "tail"), [(4, 3, 1), (4, 4, 0), (4, 5, 77), (4, 8, 0), (4, 2, 0), (9, 4, 0)]
)
def test_next_reception_is_written_over_a_spare_of_at_most_twice_its_size(
    stores: Stores, before: int, chunks: int, tail: int
) -> None:
    dropped, data = stores.spare(content(before, 1)), content(chunks, 2, tail)
    assert stores.standby.spare_bytes == before * CHUNK
    reception = stores.begin(data)
    status = os.fstat(reception.fileno())
    assert status.st_blocks * 512 >= len(data)  # room for all of it, before a byte moves
    payload = stores.standby.payload(fill(reception, data))
    assert payload.read_bytes() == data
    is_too_large = before > 2 * chunks
    assert (payload.stat().st_ino != dropped) is is_too_large
    assert stores.standby.spare_bytes == before * CHUNK * is_too_large


def test_chunk_unchanged_in_its_place_is_not_asked_for(stores: Stores) -> None:
    old = content(6, 1, tail=9)
    new = old[:CHUNK] + content(1, 2) + old[2 * CHUNK : 5 * CHUNK] + content(1, 3) + old[6 * CHUNK :]
    stores.spare(old)
    reception = stores.begin(new)
    assert reception.missing == [1, 5]
    assert reception.bytes_found == 4 * CHUNK + 9
    assert stores.standby.payload(fill(reception, new)).read_bytes() == new


def _rot(spare: Path) -> None:
    with spare.open("r+b") as file:
        file.seek(2 * CHUNK + 5)
        file.write(b"rot")


@pytest.mark.parametrize(
    ("harm", "missing"), [(_rot, [2]), (lambda spare: os.truncate(spare, 0), [0, 1, 2, 3])]
)
def test_spare_that_a_stranger_changed_counts_as_far_as_it_hashes_right_and_gets_its_room_back(
    stores: Stores, harm: Callable[[Path], None], missing: list[int]
) -> None:
    data = content(4, 1)
    stores.spare(data)
    harm(spare_of(stores))
    reception = stores.begin(data)
    assert reception.missing == missing
    assert os.fstat(reception.fileno()).st_blocks * 512 >= 4 * CHUNK
    assert stores.standby.payload(fill(reception, data)).read_bytes() == data


def test_old_bytes_left_where_nothing_arrived_are_refused_when_sealed(stores: Stores) -> None:
    stores.spare(content(3, 1))
    reception = stores.begin(content(3, 2))
    assert reception.missing == [0, 1, 2]
    with pytest.raises(ChunkMismatch):
        reception.seal(1)
    reception.abandon()
    with reopened(stores.standby) as again:  # and the attempt it left is believed no further
        later = again.begin(stores.origin.get("job", 2))
        assert later.missing == [0, 1, 2]
        fill(later, content(3, 2))


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
        process.stdout.readline()
        try:
            yield lambda: process.communicate(b"\n")[0]
        finally:
            process.kill()


READERS = [descriptor, mapping, another_process]
Reader = Callable[[Path], AbstractContextManager[Callable[[], bytes]]]


@pytest.mark.parametrize("reader", READERS)
def test_payload_that_somebody_reads_is_not_written_over(stores: Stores, reader: Reader) -> None:
    standby = stores.standby
    first = standby.payload(stores.receive(content(4, 1), 1))
    read_inode = first.stat().st_ino
    with reader(first) as read:
        standby.drop("job", 1)
        second = standby.payload(stores.receive(content(4, 2), 2))
        assert second.stat().st_ino != read_inode
        assert read() == content(4, 1)
    third = standby.payload(stores.receive(content(4, 3), 3))
    assert third.stat().st_ino == read_inode  # nobody reads it any more
    assert second.read_bytes() == content(4, 2)


def test_reader_of_a_payload_dropped_and_removed_reads_on(stores: Stores) -> None:
    with descriptor(stores.standby.payload(stores.receive(content(4, 1), 1))) as read:
        stores.standby.drop("job", 1)
        stores.standby._spares.shed()
        assert read() == content(4, 1)


def test_stranger_who_opens_a_spare_while_it_is_asked_about_ends_nobody(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Breaking a lease sends its holder a signal: the default one, SIGIO, would kill the agent."""
    stores.spare(content(4, 1))
    spare, real = spare_of(stores), fcntl.fcntl

    def intruded(fd: int, command: int, argument: int = 0) -> int:
        result = real(fd, command, argument)
        if command == fcntl.F_SETLEASE and argument == fcntl.F_WRLCK:
            with pytest.raises(BlockingIOError):
                os.open(spare, os.O_RDONLY | os.O_NONBLOCK)
        return result

    monkeypatch.setattr(fcntl, "fcntl", intruded)
    stores.receive(content(4, 2))


def test_spares_are_bounded_in_number(stores: Stores) -> None:
    for sequence in range(1, 6):
        stores.receive(content(2, sequence), sequence)
    assert len(stores.standby.keep_latest("job", 1)) == 4
    assert len(files(stores, ".spares")) == MAX_SPARES
    assert stores.standby.spare_bytes == 2 * CHUNK * MAX_SPARES


def test_spares_hold_no_more_than_their_share_of_the_free_room(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    for sequence in (1, 2):
        stores.receive(content(4, sequence), sequence)
    # a quarter of it: one file of four
    monkeypatch.setattr(spares_module, "free_bytes", lambda _: 4 * 5 * CHUNK)
    stores.standby.drop("job", 1)
    stores.standby.drop("job", 2)
    assert stores.standby.spare_bytes == 4 * CHUNK
    assert files(stores) == []


@pytest.mark.parametrize("by", ["reception", "snapshot"])
def test_spares_give_way_before_the_disk_is_said_to_be_full(
    stores: Stores, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    stores.spare(content(20, 1))
    stores.standby.scratch("snapshot")
    assert stores.standby.spare_bytes == 20 * CHUNK
    monkeypatch.setattr(spares_module, "free_bytes", lambda _: 3 * CHUNK)  # without what the spare holds
    if by == "reception":
        stores.receive(content(4, 2))
    else:
        stores.standby.scratch("snapshot")
    assert stores.standby.spare_bytes == 0
    assert files(stores, ".spares") == []


def test_disk_full_after_taking_a_spare_leaves_no_attempt_behind(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = stores.receive(content(4, 2), 2)
    stores.spare(content(4, 1))

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no room")

    monkeypatch.setattr("os.posix_fallocate", refuse)
    with pytest.raises(StoreFull):
        stores.begin(content(6, 3), 3)
    assert files(stores) == ["2.manifest", "2.payload"]
    assert stores.standby.payload(kept).read_bytes() == content(4, 2)


def test_spares_are_not_stored_checkpoints(stores: Stores) -> None:
    stores.spare(content(2, 1))
    assert stores.standby.manifests() == []
    with pytest.raises(NotStored):
        stores.standby.payload(stores.origin.get("job", 1))
    reception = stores.begin(content(1, 9) + content(2, 1), job="else")
    assert reception.missing == [0, 1, 2]  # nor is their content found at another place
    reception.abandon()


def test_spares_are_gone_once_the_store_is_closed(stores: Stores) -> None:
    stores.receive(content(2, 2), 2)
    stores.spare(content(2, 1))
    stores.standby.close()
    assert not (stores.standby.root / ".spares").exists()
    stores.standby.drop("job", 2)  # late, and keeps nothing
    assert files(stores) == []


def test_spares_that_a_killed_process_left_are_gone_at_the_next_start(tmp_path: Path) -> None:
    left = tmp_path / "store" / ".spares"
    left.mkdir(parents=True)
    (left / "7.spare").write_bytes(bytes(CHUNK))
    with CheckpointStore(tmp_path / "store") as store:
        assert list(left.iterdir()) == []
        assert store.spare_bytes == 0


def test_own_snapshots_become_no_spares(stores: Stores) -> None:
    """Where checkpoints only leave, nothing would ever be written over them."""
    ingest(stores.standby, content(2, 1))
    stores.standby.drop("job", 1)
    assert stores.standby.spare_bytes == 0
    assert files(stores) == []


def test_removal_is_on_the_disk_before_the_file_may_be_written_over(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a power cut could bring back a manifest over another checkpoint's bytes."""
    stores.receive(content(2, 1), 1)
    story: list[str] = []
    offer = stores.standby._spares.offer
    monkeypatch.setattr(store_module, "fsync_directory", lambda path: story.append(f"sync {path.name}"))

    def offering(spare: Spare) -> None:
        story.append("offer")
        offer(spare)

    monkeypatch.setattr(stores.standby._spares, "offer", offering)
    stores.standby.drop("job", 1)
    assert story == ["sync job", "offer"]
    assert files(stores) == []


@pytest.mark.parametrize("lack", ["no leases", "leases ignore readers", "blocks are shared"])
def test_nothing_is_recycled_where_it_would_not_be_safe(tmp_path: Path, lack: str) -> None:
    def refused(*_: object) -> int:
        raise OSError(errno.EINVAL, "leases are not supported here")

    with stores_in(tmp_path) as stores, pytest.MonkeyPatch.context() as patch:
        stores.receive(content(2, 1), 1)
        if lack == "no leases":
            patch.setattr(fcntl, "fcntl", refused)
        elif lack == "leases ignore readers":
            patch.setattr(fcntl, "fcntl", lambda *_: 0)
        else:
            patch.setattr(fcntl, "ioctl", lambda *_: 0)
        stores.standby.drop("job", 1)
        assert stores.standby.spare_bytes == 0
        assert files(stores) == []


def test_payload_removed_by_hand_is_dropped_without_complaint(stores: Stores) -> None:
    stores.standby.payload(stores.receive(content(2, 1), 1)).unlink()
    stores.standby.drop("job", 1)
    assert stores.standby.spare_bytes == 0


def test_spares_of_nothing_close_quietly(tmp_path: Path) -> None:
    spares = Spares(tmp_path / "spares")
    spares.make_room(1 << 60)
    spares.shed()
    spares.close()
    assert not (tmp_path / "spares").exists()
