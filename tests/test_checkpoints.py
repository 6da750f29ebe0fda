"""The store: only whole, verified checkpoints are visible, whatever happens."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.bounds import LARGEST_COUNT, LARGEST_SEQUENCE
from testbed.checkpoints import (
    BadManifest,
    CheckpointConflict,
    CheckpointDamaged,
    CheckpointError,
    CheckpointStore,
    ChunkMismatch,
    Manifest,
    NotStored,
    Reception,
    StoreFull,
)
from testbed.checkpoints.manifest import MAX_CHUNKS
from testbed.messages import StoredCheckpoint

CHUNK = 4096


def opened_for_a_test(root: Path) -> Iterator[CheckpointStore]:
    """A store, and the invariant of every test: opened again, it shows whole checkpoints only."""
    opened = CheckpointStore(root, chunk_bytes=CHUNK)
    yield opened
    opened.close()
    with CheckpointStore(root) as again:
        for manifest in again.manifests():
            again.verify(manifest)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[CheckpointStore]:
    yield from opened_for_a_test(tmp_path / "store")


@pytest.fixture
def other(tmp_path: Path) -> Iterator[CheckpointStore]:
    yield from opened_for_a_test(tmp_path / "other")


def put(reception: Reception, chunk: int, data: bytes | bytearray) -> None:
    """Put the bytes of a chunk into its place, and have them counted."""
    os.pwrite(reception.fileno(), data, reception.manifest.span(chunk)[0])
    reception.seal(chunk)


def payload(chunks: int, seed: int = 0, tail: int = 0) -> bytes:
    return random.Random(seed).randbytes(chunks * CHUNK + tail)


def ingest(store: CheckpointStore, data: bytes, job: str = "job", sequence: int = 1) -> Manifest:
    source = store.scratch("snapshot")
    source.write_bytes(data)
    return store.ingest(job, sequence, sequence * 10, source)


def reopened(store: CheckpointStore) -> CheckpointStore:
    store.close()
    return CheckpointStore(store.root, chunk_bytes=CHUNK)


def span(data: bytes, chunk: int) -> bytes:
    return data[chunk * CHUNK : (chunk + 1) * CHUNK]


def forged(manifest: Manifest, **fields: object) -> Manifest:
    """The manifest with other fields and a digest that fits them, as a liar would send it."""
    lie = msgspec.structs.replace(manifest, **fields)
    if min(lie.sequence, lie.step, lie.payload_bytes) < 0:
        return lie  # a negative number has no digest
    return msgspec.structs.replace(lie, digest=lie._computed_digest())


@pytest.mark.parametrize("size", [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 5 * CHUNK + 17])
def test_ingested_snapshot_is_there_to_the_byte_and_its_source_is_gone(
    store: CheckpointStore, size: int
) -> None:
    data = random.Random(1).randbytes(size)
    manifest = ingest(store, data)
    assert store.payload(manifest).read_bytes() == data
    assert not store.scratch("snapshot").exists()
    assert (manifest.step, manifest.payload_bytes, len(manifest.chunks)) == (10, size, -(-size // CHUNK))


def test_checkpoints_survive_reopening(store: CheckpointStore) -> None:
    manifests = [ingest(store, payload(3, n), sequence=n) for n in (1, 2)]
    with reopened(store) as again:
        assert again.manifests() == manifests
        again.verify(manifests[0])


def test_snapshot_from_another_file_system_is_copied(store: CheckpointStore) -> None:
    shm = Path("/dev/shm")
    if not shm.is_dir() or shm.stat().st_dev == store.root.stat().st_dev:
        pytest.skip("no second file system at /dev/shm")
    source = shm / f"reclaim-test-{os.getpid()}"
    try:
        source.write_bytes(payload(3, tail=9))
        manifest = store.ingest("job", 1, 1, source)
        assert store.payload(manifest).read_bytes() == payload(3, tail=9)
        assert not source.exists()
    finally:
        source.unlink(missing_ok=True)


def test_other_content_under_a_used_number_is_refused(store: CheckpointStore) -> None:
    first = ingest(store, payload(2, 1))
    with pytest.raises(CheckpointConflict, match="already completed"):
        ingest(store, payload(2, 2))
    assert store.payload(first).read_bytes() == payload(2, 1)


def test_store_opens_beside_a_process_that_still_writes_into_its_scratch(
    store: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove = shutil.rmtree

    def remove_beside_a_writer(path: Path, **how: bool) -> None:
        remove(path, **how)
        (path / "work").mkdir(parents=True)

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", remove_beside_a_writer)
        again = reopened(store)
    with again:
        ingest(again, payload(1))


@pytest.mark.parametrize("job", ["", "../x", "a/b", ".lock", "-x", "a b", "x" * 65, "a\0b", "job\n"])
def test_job_name_that_is_no_plain_name_is_refused(store: CheckpointStore, job: str) -> None:
    with pytest.raises(BadManifest, match="job"):
        ingest(store, b"x", job=job)
    assert store.manifests() == []


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"job": "../../etc"}, "job"),
        ({"sequence": -1}, "sequence"),
        ({"step": -1}, "step"),
        ({"payload_bytes": -1}, "payload_bytes"),
        ({"payload_bytes": 3 * CHUNK + 1}, "4 hashes"),
        ({"payload_bytes": 2 * CHUNK}, "2 hashes"),
        ({"payload_bytes": 0}, "0 hashes"),
        ({"payload_bytes": 1 << 51}, "from 0 to"),
        ({"payload_bytes": 1 << 50}, f"at most {MAX_CHUNKS * CHUNK}"),
        ({"chunk_bytes": 0}, "power of two"),
        ({"chunk_bytes": 5000}, "power of two"),
        ({"chunk_bytes": 1 << 30}, "power of two"),
        ({"chunks": (b"x" * 32, b"y" * 31, b"z" * 32)}, "32 bytes"),
    ],
)
def test_manifest_that_contradicts_itself_is_refused_by_field(
    store: CheckpointStore, fields: dict[str, object], said: str
) -> None:
    honest = Manifest.of("job", 1, 1, 3 * CHUNK, CHUNK, [bytes([n]) * 32 for n in range(3)])
    honest.validate()
    with pytest.raises(BadManifest, match=said):
        store.begin(forged(honest, **fields))
    assert list(store.root.glob("*/*")) == list(store.root.glob(".scratch/*"))


@given(st.sampled_from(["job", "sequence", "step", "chunks"]), st.integers(1, 1000))
def test_changed_field_no_longer_matches_the_digest(field: str, by: int) -> None:
    honest = Manifest.of("job", 1, 1, CHUNK, CHUNK, [bytes(32)])
    value = {"job": f"j{by}", "chunks": (by.to_bytes(32, "big"),)}.get(field, by + 1)
    with pytest.raises(BadManifest, match="digest"):
        msgspec.structs.replace(honest, **{field: value}).validate()


def test_reception_completes_only_when_whole(store: CheckpointStore, other: CheckpointStore) -> None:
    data = payload(3, tail=5)
    manifest = ingest(store, data)
    reception = other.begin(manifest)
    assert reception.missing == [0, 1, 2, 3]
    for chunk in (2, 0, 3):
        put(reception, chunk, span(data, chunk))
    with pytest.raises(CheckpointError, match="1 chunks are still missing"):
        reception.commit()
    assert other.manifests() == []
    put(reception, 1, span(data, 1))
    assert reception.commit() == manifest
    assert other.payload(manifest).read_bytes() == data
    reception.abandon()
    assert other.holds(manifest)


def test_wrong_bytes_for_a_chunk_are_refused_and_leave_no_trace(
    store: CheckpointStore, other: CheckpointStore
) -> None:
    data = payload(2)
    reception = other.begin(ingest(store, data))
    flipped = bytearray(span(data, 0))
    flipped[100] ^= 1
    for wrong in (flipped, span(data, 1), bytes(CHUNK)):
        with pytest.raises(ChunkMismatch):
            put(reception, 0, wrong)
    assert reception.missing == [0, 1]
    reception.abandon()
    again = other.begin(reception.manifest)
    assert again.missing == [0, 1]
    again.abandon()


def test_abandoned_reception_resumes_with_what_arrived(
    store: CheckpointStore, other: CheckpointStore
) -> None:
    data = payload(6)
    manifest = ingest(store, data)
    first = other.begin(manifest)
    for chunk in (0, 3, 4):
        put(first, chunk, span(data, chunk))
    first.abandon()
    with reopened(other) as again:
        second = again.begin(manifest)
        assert second.missing == [1, 2, 5]
        assert second.bytes_found == 3 * CHUNK
        second.abandon(keep_partial=False)
        third = again.begin(manifest)
        assert third.missing == list(range(6))
        third.abandon()


def test_later_checkpoint_goes_on_with_what_arrived_of_one_that_was_given_up(
    store: CheckpointStore, other: CheckpointStore
) -> None:
    data = payload(6)
    changed = data[: 2 * CHUNK] + payload(1, seed=9) + data[3 * CHUNK : 5 * CHUNK]  # and a chunk shorter
    earlier, later = ingest(store, data), ingest(store, changed, sequence=2)
    first = other.begin(earlier)
    for chunk in (0, 2, 4, 5):
        put(first, chunk, span(data, chunk))
    busy = other.begin(later)
    assert busy.missing == [0, 1, 2, 3, 4]  # somebody is at the earlier one: it is left alone
    busy.abandon(keep_partial=False)
    first.abandon()
    second = other.begin(later)
    assert second.missing == [1, 2, 3]
    assert second.bytes_found == 2 * CHUNK
    for chunk in second.missing:
        put(second, chunk, span(changed, chunk))
    second.commit()
    other.verify(later)
    assert not (other.root / "job" / "1.partial").exists()


def test_partial_file_is_believed_only_as_far_as_it_hashes_right(
    store: CheckpointStore, other: CheckpointStore
) -> None:
    data = payload(4)
    manifest = ingest(store, data)
    first = other.begin(manifest)
    for chunk in range(4):
        put(first, chunk, span(data, chunk))
    first.abandon()
    partial = other.root / "job" / "1.partial"
    raw = bytearray(partial.read_bytes())
    raw[CHUNK + 7] ^= 0x80
    partial.write_bytes(raw[: 3 * CHUNK + 100])  # one chunk rotten, the last one cut short
    second = other.begin(manifest)
    assert second.missing == [1, 3]
    second.abandon()


def test_content_stored_under_any_name_is_copied_not_asked_for(
    store: CheckpointStore, other: CheckpointStore
) -> None:
    a, b = payload(4, 1), payload(4, 2)
    mixed = span(a, 3) + span(b, 0) + payload(1, 3) + span(a, 1)
    ingest(other, a, job="first")
    ingest(other, b, job="second", sequence=7)
    reception = other.begin(ingest(store, mixed, job="third"))
    assert reception.missing == [2]
    put(reception, 2, payload(1, 3))
    assert other.payload(reception.commit()).read_bytes() == mixed


def test_local_copy_that_has_rotted_is_asked_for_again(
    store: CheckpointStore, other: CheckpointStore
) -> None:
    data = payload(3)
    rotten = ingest(other, data, job="old")
    with other.payload(rotten).open("r+b") as file:
        file.seek(CHUNK)
        file.write(b"rot")
    with pytest.raises(CheckpointDamaged) as caught:
        other.verify(rotten)
    assert caught.value.chunks == (1,)
    reception = other.begin(ingest(store, data, job="new"))
    assert reception.missing == [1]
    put(reception, 1, span(data, 1))
    assert other.payload(reception.commit()).read_bytes() == data
    other.drop("old", 1)


def test_payload_larger_than_the_disk_is_refused_before_a_byte_moves(store: CheckpointStore) -> None:
    count = 1 << 17
    huge = Manifest.of("big", 1, 1, count * (16 << 20), 16 << 20, [bytes(32)] * count)  # 2 TiB
    if shutil.disk_usage(store.root).free > huge.payload_bytes:
        pytest.skip("this disk has 2 TiB free")
    with pytest.raises(StoreFull, match="no room") as caught:
        store.begin(huge)
    assert caught.value.needed_bytes == huge.payload_bytes
    assert list((store.root / "big").iterdir()) == []


def test_dropped_checkpoint_frees_its_room_but_not_what_others_share(
    store: CheckpointStore, other: CheckpointStore
) -> None:
    data = payload(3)
    ingest(other, data, sequence=1)
    ingest(other, data, sequence=2)
    other.drop("job", 2)
    assert sorted(p.name for p in (other.root / "job").iterdir()) == ["1.manifest", "1.payload"]
    reception = other.begin(ingest(store, data, sequence=3))
    assert reception.missing == []
    reception.commit()
    other.drop("job", 1)
    other.drop("job", 3)
    with pytest.raises(NotStored):
        other.drop("job", 3)
    with reopened(other) as again:
        assert again.begin(store.get("job", 3)).missing == [0, 1, 2]


def test_keep_latest_drops_older_checkpoints_and_stale_attempts(
    store: CheckpointStore, other: CheckpointStore
) -> None:
    stale = ingest(store, payload(2, 9), sequence=2)
    attempt = other.begin(stale)
    put(attempt, 0, span(payload(2, 9), 0))
    attempt.abandon()
    manifests = [ingest(other, payload(2, n), sequence=n) for n in (3, 4, 5)]
    ingest(other, payload(1), job="else", sequence=1)
    assert other.keep_latest("job", 2) == manifests[:1]
    assert [m.key for m in other.manifests()] == [("else", 1), ("job", 4), ("job", 5)]
    assert not (other.root / "job" / "2.partial").exists()


@pytest.mark.parametrize("harm", ["no payload", "short payload", "garbage manifest", "swapped manifest"])
def test_damage_on_disk_hides_only_the_damaged_checkpoint(store: CheckpointStore, harm: str) -> None:
    good, bad = ingest(store, payload(2, 1), sequence=1), ingest(store, payload(2, 2), sequence=2)
    path = store.root / "job" / "2.payload"
    manifest = path.with_suffix(".manifest")
    if harm == "no payload":
        path.unlink()
    elif harm == "short payload":
        os.truncate(path, 5)
    elif harm == "garbage manifest":
        manifest.write_bytes(b"\x93garbage")
    else:
        shutil.copy(store.root / "job" / "1.manifest", manifest)
    with reopened(store) as again:
        assert again.manifests() == [good]
        assert len(again.damaged) == 1
        assert "2.manifest" in again.damaged[0]
        with pytest.raises(NotStored):
            again.payload(bad)
        assert [path.name for path in (again.root / ".quarantine").iterdir()] == ["job.2.manifest.0"]
    with reopened(again) as clean:
        assert (clean.manifests(), clean.damaged) == ([good], [])


def test_number_that_no_message_can_name_is_set_aside_with_its_payload(store: CheckpointStore) -> None:
    """What an earlier version stored under sequence 2**62 + 5 made its holder unacceptable to the coordinator for ever."""
    good = ingest(store, payload(2, 1), sequence=1)
    beyond = str(2**62 + 5)
    for kind, like in (("manifest", "manifest"), ("payload", "payload"), ("partial", "payload")):
        shutil.copy(store.root / "job" / f"1.{like}", store.root / "job" / f"{beyond}.{kind}")
    with reopened(store) as again:
        assert again.manifests() == [good]
        assert len(again.damaged) == 3
        assert all("a sequence is at most" in line for line in again.damaged)
        assert sorted(path.name for path in (again.root / "job").iterdir()) == ["1.manifest", "1.payload"]
        assert len(list((again.root / ".quarantine").iterdir())) == 3


@pytest.mark.parametrize(("field", "largest"), [("sequence", LARGEST_SEQUENCE), ("step", LARGEST_COUNT)])
def test_manifest_takes_exactly_the_numbers_that_messages_take(field: str, largest: int) -> None:
    numbers = {"sequence": 0, "step": 0, field: largest}
    manifest = Manifest.of("job", payload_bytes=0, chunk_bytes=CHUNK, chunks=(), **numbers)
    packed = msgspec.msgpack.encode(manifest)
    assert msgspec.msgpack.decode(packed, type=Manifest) == manifest
    StoredCheckpoint(job="job", payload_bytes=0, digest="", **numbers)
    with pytest.raises(BadManifest, match=field):
        Manifest.of("job", payload_bytes=0, chunk_bytes=CHUNK, chunks=(), **{**numbers, field: largest + 1})
    with pytest.raises(msgspec.ValidationError):
        beyond = msgspec.msgpack.encode(msgspec.structs.replace(manifest, **{field: largest + 1}))
        msgspec.msgpack.decode(beyond, type=Manifest)


# Runs one operation on the store and dies by SIGKILL at its n-th file operation (an audit event before it is done).
VICTIM = """
import os, signal, sys
from pathlib import Path
from testbed.checkpoints import CheckpointStore
operation, root, countdown = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
store = CheckpointStore(root / "store", chunk_bytes=4096)
with CheckpointStore(root / "origin", chunk_bytes=4096) as origin:
    manifest = max(origin.manifests(), key=lambda m: m.sequence)

def receive():
    reception = store.begin(manifest)
    content = origin.payload(manifest).read_bytes()
    for chunk in reception.missing:
        offset, length = manifest.span(chunk)
        os.pwrite(reception.fileno(), content[offset : offset + length], offset)
        reception.seal(chunk)
    reception.commit()

if operation == "recycle":  # a received checkpoint, a little unlike the one to come
    content = bytearray(origin.payload(manifest).read_bytes())
    content[4096:8192] = b"?" * 4096
    origin.scratch("s").write_bytes(content)
    manifest, last = origin.ingest("job", 3, 30, origin.scratch("s")), manifest
    receive()
    manifest = last

def die(event, args):
    global countdown
    if event in ("open", "os.rename", "os.remove", "os.mkdir", "os.truncate"):
        countdown -= 1
        if countdown == 0:
            os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(die)
if operation == "ingest":
    snapshot = store.scratch("snapshot")
    snapshot.write_bytes(origin.payload(manifest).read_bytes())
    store.ingest("job", 2, 20, snapshot)
elif operation == "receive":
    receive()
elif operation == "recycle":
    store.drop("job", 3)
    assert store.spare_bytes
    receive()
    assert not store.spare_bytes
else:
    store.drop("job", 1)
"""


def prepare(root: Path) -> bytes:
    old = bytes(range(256)) * 32
    new = b"".join(bytes([n]) * CHUNK for n in range(5)) + b"tail"
    with CheckpointStore(root / "store", chunk_bytes=CHUNK) as store:
        store.scratch("s").write_bytes(old)
        store.ingest("job", 1, 10, store.scratch("s"))
    with CheckpointStore(root / "origin", chunk_bytes=CHUNK) as origin:
        origin.scratch("s").write_bytes(new)
        origin.ingest("job", 2, 20, origin.scratch("s"))
    return new


def run_victim(operation: str, root: Path, step: int) -> int:
    argv = [sys.executable, "-c", VICTIM, operation, str(root), str(step)]
    return subprocess.run(argv, check=False, stderr=subprocess.PIPE).returncode


@pytest.mark.parametrize("operation", ["ingest", "receive", "recycle", "drop"])
def test_killed_at_any_step_the_store_opens_with_only_whole_checkpoints(
    tmp_path: Path, operation: str
) -> None:
    deaths = 0
    for step in range(1, 60):
        root = tmp_path / str(step)
        root.mkdir()
        new = prepare(root)
        status = run_victim(operation, root, step)
        assert status in (0, -signal.SIGKILL)
        with CheckpointStore(root / "store", chunk_bytes=CHUNK) as store:
            assert store.damaged == []
            kept = [m.sequence for m in store.manifests()]
            for manifest in store.manifests():
                store.verify(manifest)
            if operation == "drop":
                assert kept in ([1], [])
            else:
                assert kept in ([1], [1, 2], *([[1, 3]] if operation == "recycle" else []))
                if 2 not in kept:
                    complete_by_hand(store, root, new)
        if status == 0:
            break
        deaths += 1
    assert deaths >= (2 if operation == "drop" else 5)
    assert status == 0


def complete_by_hand(store: CheckpointStore, root: Path, new: bytes) -> None:
    """What the crash left does not stand in the way of the next attempt."""
    with CheckpointStore(root / "origin", chunk_bytes=CHUNK) as origin:
        manifest = origin.get("job", 2)
    reception = store.begin(manifest)
    for chunk in reception.missing:
        offset, length = manifest.span(chunk)
        put(reception, chunk, new[offset : offset + length])
    assert store.payload(reception.commit()).read_bytes() == new
