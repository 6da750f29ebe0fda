"""Receiving straight into a mapped file: only where files live in memory, only over a file mapped before, never unverified."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from testbed.checkpoints import ChunkMismatch, Manifest
from testbed.checkpoints.files import PayloadFile
from testbed.checkpoints.store import MAX_OPEN
from testbed.transfer.messages import TransferFailed
from tests.stores import CHUNK, Stores, content, grants_leases, stores_in, take

MEMORY = Path("/dev/shm")


@pytest.fixture
def stores() -> Iterator[Stores]:
    """On tmpfs."""
    if not MEMORY.is_dir():
        pytest.skip(f"{MEMORY} is not there: no file system in memory")
    with TemporaryDirectory(prefix="reclaimnet-test-", dir=MEMORY) as memory, stores_in(Path(memory)) as opened:
        if not grants_leases(Path(memory)):
            pytest.skip("this file system grants no leases: nothing is written over")
        yield opened


def payload(seed: int, chunks: int = 5) -> bytes:
    return content(chunks, seed, tail=99)


def receive(stores: Stores, data: bytes, sequence: int) -> bool:
    """One checkpoint, and the one before it dropped; whether it came straight into memory."""
    reception = stores.begin(data, sequence)
    direct = reception.memory is not None
    take(reception, data)
    assert stores.standby.payload(reception.commit()).read_bytes() == data
    if sequence > 1:
        stores.standby.drop("job", sequence - 1, keep_file=True)
    return direct


@pytest.mark.parametrize(
    ("sizes", "direct"), [((5, 5, 5, 5), (0, 0, 1, 1)), ((5, 5, 6, 6, 4, 4, 6, 4), (0, 0, 0, 0, 0, 0, 0, 1))]
)
def test_file_written_before_takes_bytes_of_its_size_in_memory(
    stores: Stores, sizes: tuple[int, ...], direct: tuple[int, ...]
) -> None:
    came = [receive(stores, payload(n, chunks), n) for n, chunks in enumerate(sizes, start=1)]
    assert came == [bool(each) for each in direct]


@pytest.mark.parametrize("goes_wrong", [True, False])
def test_what_came_before_a_wrong_byte_or_the_end_is_not_asked_for_again(stores: Stores, goes_wrong: bool) -> None:
    for sequence in (1, 2):
        receive(stores, payload(sequence), sequence)
    data, cut = payload(3), 2 * CHUNK + 7
    reception = stores.begin(data, 3)
    with pytest.raises(ChunkMismatch if goes_wrong else TransferFailed, match=r"chunk 2|before the end"):
        take(reception, data[:cut] + (bytes([data[cut] ^ 1]) + data[cut + 1 :] if goes_wrong else b""))
    reception.abandon()
    again = stores.standby.begin(reception.manifest)
    assert again.missing == ([2] if goes_wrong else [2, 3, 4, 5])
    take(again, data[2 * CHUNK : 3 * CHUNK if goes_wrong else None])
    assert stores.standby.payload(again.commit()).read_bytes() == data


def test_reader_of_a_dropped_payload_goes_on_reading_its_bytes(stores: Stores) -> None:
    for sequence in (1, 2):
        receive(stores, payload(sequence), sequence)
    with stores.standby.payload(stores.standby.get("job", 2)).open("rb") as reader:
        assert receive(stores, payload(3), 3)  # over the file of 1; drops 2, which somebody reads
        assert not receive(stores, payload(4), 4)  # not over the file of 2
        assert reader.read() == payload(2)


def test_files_of_checkpoints_that_are_kept_do_not_stay_open_for_ever(stores: Stores) -> None:
    before = _descriptors(stores.standby.root)
    for sequence in range(1, 2 * MAX_OPEN):
        data = payload(sequence, 1)
        reception = stores.begin(data, sequence)
        take(reception, data)
        reception.commit()
    assert before < _descriptors(stores.standby.root) <= before + 2 * MAX_OPEN  # a mapping has a descriptor of its own
    stores.standby.close()
    assert _descriptors(stores.standby.root) <= before


@pytest.mark.parametrize("place", ["memory", "disk"])
def test_a_file_is_mapped_where_the_mounts_say_tmpfs(stores: Stores, tmp_path: Path, place: str) -> None:
    folder = stores.standby.root if place == "memory" else tmp_path
    file = PayloadFile(folder / "file")
    try:
        file.resize(CHUNK)
        file.hold(Manifest.of("job", 0, 0, CHUNK, CHUNK, [bytes(32)]))
        assert (file.memory is not None) is _is_tmpfs(folder)
    finally:
        file.close()


def _is_tmpfs(path: Path) -> bool:
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    inside = [(len(mount[1]), mount[2]) for mount in mounts if path.is_relative_to(mount[1])]
    return max(inside)[1] == "tmpfs"


def _descriptors(folder: Path) -> int:
    opened = 0
    for each in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            opened += each.readlink().is_relative_to(folder)
    return opened
