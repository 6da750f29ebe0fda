"""Files of dropped checkpoints: bounded, never written over while somebody reads them, never believed."""

import errno
import fcntl
import mmap
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import IO

import pytest

from testbed.checkpoints import ChunkMismatch, NotStored, Reception, StoreFull
from testbed.checkpoints import reception as reception_module
from testbed.checkpoints import store as store_module
from testbed.checkpoints.files import fsync_directory
from tests.stores import CHUNK, Stores, content, fill, grants_leases, reopened, stores_in


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[Stores]:
    with stores_in(tmp_path) as opened:
        if not grants_leases(tmp_path):
            pytest.skip("no leases: no dropped file is kept on this file system")
        yield opened


def spare_of(stores: Stores) -> Path:
    return stores.standby.root / "job" / "1.partial"


def files(stores: Stores, folder: str = "job") -> list[str]:
    return sorted(path.name for path in (stores.standby.root / folder).iterdir())


@pytest.mark.parametrize(("before", "chunks", "tail"), [(4, 3, 1), (4, 4, 0), (4, 5, 77), (4, 8, 0), (9, 2, 0)])
def test_next_reception_is_written_over_the_dropped_file(stores: Stores, before: int, chunks: int, tail: int) -> None:
    dropped, data = stores.spare(content(before, 1)), content(chunks, 2, tail)
    assert files(stores) == ["1.partial"]
    reception = stores.begin(data)
    payload = stores.standby.payload(fill(reception, data))
    assert payload.read_bytes() == data
    assert payload.stat().st_ino == dropped
    assert files(stores) == ["2.manifest", "2.payload"]


def test_checkpoint_that_is_offered_again_after_its_drop_lacks_what_has_rotted(stores: Stores) -> None:
    data = content(4, 1)
    stores.spare(data)
    _rot(spare_of(stores))
    reception = stores.begin(data, 1)
    assert reception.missing == [2]
    assert stores.standby.payload(fill(reception, data)).read_bytes() == data


def test_chunk_unchanged_in_its_place_is_not_asked_for(stores: Stores) -> None:
    old = content(6, 1, tail=9)
    new = old[:CHUNK] + content(1, 2) + old[2 * CHUNK : 5 * CHUNK] + content(1, 3) + old[6 * CHUNK :]
    stores.spare(old)
    reception = stores.begin(new)
    assert reception.missing == [1, 5]
    assert stores.standby.payload(fill(reception, new)).read_bytes() == new


def _rot(spare: Path) -> None:
    with spare.open("r+b") as file:
        file.seek(2 * CHUNK + 5)
        file.write(b"rot")


@pytest.mark.parametrize(("harm", "missing"), [(_rot, [2]), (lambda spare: os.truncate(spare, 0), [0, 1, 2, 3])])
def test_spare_that_a_stranger_changed_counts_as_far_as_it_hashes_right(
    stores: Stores, harm: Callable[[Path], None], missing: list[int]
) -> None:
    data = content(4, 1)
    stores.spare(data)
    harm(spare_of(stores))
    reception = stores.begin(data)
    assert reception.missing == missing
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


@pytest.mark.parametrize("reader", [descriptor, mapping, another_process])
def test_payload_that_somebody_reads_is_not_written_over(
    stores: Stores, reader: Callable[[Path], AbstractContextManager[Callable[[], bytes]]]
) -> None:
    standby = stores.standby
    first = standby.payload(stores.receive(content(4, 1), 1))
    read_inode = first.stat().st_ino
    with reader(first) as read:
        standby.drop("job", 1, keep_file=True)
        assert files(stores) == []
        second = standby.payload(stores.receive(content(4, 2), 2))
        assert second.stat().st_ino != read_inode
        assert read() == content(4, 1)


def test_stranger_who_opens_a_spare_while_it_is_asked_about_ends_nobody(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Breaking a lease sends its holder a signal: the default one, SIGIO, would kill the agent."""
    real = fcntl.fcntl

    def intruded(fd: IO[bytes], command: int, argument: int = 0) -> int:
        result = real(fd, command, argument)
        if command == fcntl.F_SETLEASE and argument == fcntl.F_WRLCK:
            with pytest.raises(BlockingIOError):
                os.open(spare_of(stores), os.O_RDONLY | os.O_NONBLOCK)
        return result

    monkeypatch.setattr(fcntl, "fcntl", intruded)
    stores.spare(content(4, 1))
    assert files(stores) == ["1.partial"]


def test_one_dropped_file_of_a_job_is_left_by_the_next_reception(stores: Stores) -> None:
    for sequence in range(1, 5):
        stores.receive(content(2, sequence), sequence)
    stores.standby.drop_older("job", 4, keep_file=True)
    stores.receive(content(2, 5), 5)
    assert files(stores) == ["2.partial", "4.manifest", "4.payload", "5.manifest", "5.payload"]


@pytest.mark.parametrize("by", ["reception", "snapshot"])
def test_dropped_files_give_way_before_the_disk_is_said_to_be_full(
    stores: Stores, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    stores.spare(content(20, 1))
    stores.standby.scratch("snapshot")
    assert files(stores) == ["1.partial"]
    monkeypatch.setattr(store_module, "free_bytes", lambda _: 3 * CHUNK)  # without what the file holds
    if by == "reception":
        fill(stores.begin(content(4, 2), job="other"), content(4, 2))
    else:
        stores.standby.scratch("snapshot")
    assert files(stores) == []


def test_disk_full_after_taking_a_dropped_file_leaves_no_attempt_behind(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    stores.spare(content(4, 1))
    kept = stores.receive(content(4, 2), 2)
    stores.receive(content(4, 3), 3)
    stores.standby.drop("job", 3, keep_file=True)

    monkeypatch.setattr(reception_module, "free_bytes", lambda _: CHUNK)
    with pytest.raises(StoreFull):
        stores.begin(content(6, 3), 4)
    assert files(stores) == ["2.manifest", "2.payload"]
    assert stores.standby.payload(kept).read_bytes() == content(4, 2)


def test_only_the_newest_received_payloads_stay_open(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "MAX_OPEN", 2)
    for number in (1, 2, 3):
        stores.receive(content(2, seed=number), number)
    assert [number for _, number in stores.standby._files] == [2, 3]


def test_old_attempts_go_unless_their_job_is_announced_or_they_are_being_received(stores: Stores) -> None:
    root, arriving = stores.standby.root, stores.begin(content(2), 2)
    for name in ("gone/1", "gone/2", "kept/1"):
        (root / f"{name}.partial").parent.mkdir(exist_ok=True)
        (root / f"{name}.partial").touch()
    for name in ("gone/1", "kept/1", "job/2"):
        os.utime(root / f"{name}.partial", (0, 0))
    stores.standby.collect_attempts({"kept"}, 60.0)
    left = sorted(str(path.relative_to(root)) for path in root.glob("*/*.partial"))
    assert left == ["gone/2.partial", "job/2.partial", "kept/1.partial"]
    arriving.abandon()


def test_dropped_files_are_no_checkpoints(stores: Stores) -> None:
    stores.spare(content(2, 1))
    assert stores.standby.manifests() == []
    with pytest.raises(NotStored):
        stores.standby.payload(stores.origin.get("job", 1))
    reception = stores.begin(content(1, 9) + content(2, 1), job="else")
    assert reception.missing == [0, 1, 2]  # nor is their content found at another place
    reception.abandon()


def test_removal_is_on_the_disk_before_the_file_may_be_written_over(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a power cut could bring back a manifest over another checkpoint's bytes."""
    dropped = stores.standby.payload(stores.receive(content(2, 1), 1)).stat().st_ino
    later: list[Reception] = []

    def sync(path: Path) -> None:
        if path == stores.standby.root / "job" and not later:
            assert files(stores) == ["1.partial"]
            later.append(stores.begin(content(2, 2)))
        fsync_directory(path)

    monkeypatch.setattr(store_module, "fsync_directory", sync)
    stores.standby.drop("job", 1, keep_file=True)
    (during,) = later
    assert os.fstat(during.fileno()).st_ino != dropped
    during.abandon()
    assert os.fstat(stores.begin(content(2, 3), 3).fileno()).st_ino == dropped


def test_no_file_is_kept_where_the_kernel_grants_no_leases(tmp_path: Path) -> None:
    def refused(*_: object) -> int:
        raise OSError(errno.EINVAL, "leases are not supported here")

    with stores_in(tmp_path) as stores, pytest.MonkeyPatch.context() as patch:
        patch.setattr(fcntl, "fcntl", refused)
        stores.spare(content(2, 1))
        assert files(stores) == []


def test_payload_removed_by_hand_is_dropped_without_complaint(stores: Stores) -> None:
    stores.standby.payload(stores.receive(content(2, 1), 1)).unlink()
    stores.standby.drop("job", 1, keep_file=True)
    assert files(stores) == []
