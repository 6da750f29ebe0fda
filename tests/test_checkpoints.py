"""The store: only whole, verified checkpoints are visible, whatever happens."""

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
    StoreFull,
)
from testbed.checkpoints.manifest import MAX_CHUNKS
from testbed.messages import StoredCheckpoint
from tests.stores import CHUNK, Stores, content, fill, ingest, put, reopened, span, stores_in


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[Stores]:
    with stores_in(tmp_path) as opened:
        yield opened


@pytest.fixture
def store(stores: Stores) -> CheckpointStore:
    """The one of a host with jobs."""
    return stores.origin


def forged(manifest: Manifest, **fields: object) -> Manifest:
    """The manifest with other fields and a digest that fits them, as a liar would send it."""
    lie = msgspec.structs.replace(manifest, **fields)
    if min(lie.sequence, lie.step, lie.payload_bytes) < 0:
        return lie  # a negative number has no digest
    return msgspec.structs.replace(lie, digest=lie._computed_digest())


@pytest.mark.parametrize("size", [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 5 * CHUNK + 17])
def test_ingested_snapshot_is_there_to_the_byte_and_its_source_is_gone(store: CheckpointStore, size: int) -> None:
    data = random.Random(1).randbytes(size)
    manifest = ingest(store, data)
    assert store.payload(manifest).read_bytes() == data
    assert not store.scratch("snapshot").exists()
    assert (manifest.step, manifest.payload_bytes, len(manifest.chunks)) == (10, size, -(-size // CHUNK))


def test_checkpoints_survive_reopening(store: CheckpointStore) -> None:
    manifests = [ingest(store, content(3, n), sequence=n) for n in (1, 2)]
    with reopened(store) as again:
        assert again.manifests() == manifests
        again.verify(manifests[0])


def test_other_content_under_a_used_number_is_refused(store: CheckpointStore) -> None:
    first = ingest(store, content(2, 1))
    with pytest.raises(CheckpointConflict, match="already completed"):
        ingest(store, content(2, 2))
    assert store.payload(first).read_bytes() == content(2, 1)


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
        ingest(again, content(1))


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
        ({"payload_bytes": 1 << 51}, f"<= {1 << 50} - at .*payload_bytes"),
        ({"payload_bytes": 1 << 50}, f"at most {MAX_CHUNKS * CHUNK}"),
        ({"chunk_bytes": 0}, ">= 4096 - at .*chunk_bytes"),
        ({"chunk_bytes": 5000}, "power of two"),
        ({"chunk_bytes": 1 << 30}, "<= 16777216 - at .*chunk_bytes"),
        ({"chunks": (b"x" * 32, b"y" * 31, b"z" * 32)}, r">= 32 - at .*chunks"),
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


def test_reception_completes_only_when_whole(stores: Stores) -> None:
    data = content(3, tail=5)
    manifest = ingest(stores.origin, data)
    reception = stores.standby.begin(manifest)
    assert reception.missing == [0, 1, 2, 3]
    put(reception, data, 2, 0, 3)
    with pytest.raises(CheckpointError, match="1 chunks are still missing"):
        reception.commit()
    assert stores.standby.manifests() == []
    put(reception, data, 1)
    assert reception.commit() == manifest
    assert stores.standby.payload(manifest).read_bytes() == data
    reception.abandon()
    assert stores.standby.manifests() == [manifest]


def test_wrong_bytes_for_a_chunk_are_refused_and_leave_no_trace(stores: Stores) -> None:
    data = content(2)
    reception = stores.begin(data)
    flipped = bytearray(data)
    flipped[100] ^= 1
    for wrong in (bytes(flipped), span(data, 1), bytes(CHUNK)):
        with pytest.raises(ChunkMismatch):
            put(reception, wrong, 0)
    assert reception.missing == [0, 1]
    reception.abandon()
    again = stores.standby.begin(reception.manifest)
    assert again.missing == [0, 1]
    again.abandon()


def test_abandoned_reception_resumes_with_what_arrived(stores: Stores) -> None:
    data = content(6)
    manifest = ingest(stores.origin, data)
    first = stores.standby.begin(manifest)
    put(first, data, 0, 3, 4)
    first.abandon()
    with reopened(stores.standby) as again:
        second = again.begin(manifest)
        assert second.missing == [1, 2, 5]
        second.abandon(keep_partial=False)
        third = again.begin(manifest)
        assert third.missing == list(range(6))
        third.abandon()


def test_equal_chunks_are_asked_for_once_and_all_is_on_disk_before_the_checkpoint_is_visible(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, fsync, synced = content(1) * 2 + content(1, seed=5), os.fsync, list[str]()

    def noted(fd: int) -> None:
        synced.append(Path(f"/proc/self/fd/{fd}").readlink().name)
        fsync(fd)

    reception = stores.begin(data)
    assert reception.missing == [0, 2]
    put(reception, data, 0, 2)
    monkeypatch.setattr(os, "fsync", noted)
    stores.standby.verify(reception.commit())
    assert synced == ["2.partial", "2.manifest.new", "job"]


def test_checkpoint_goes_on_with_no_later_one_that_was_given_up(stores: Stores) -> None:
    data = content(4)
    earlier, later = (ingest(stores.origin, data, n) for n in (1, 2))
    given_up = stores.standby.begin(later)
    put(given_up, data, 0, 1)
    given_up.abandon()
    first = stores.standby.begin(earlier)
    assert first.missing == [0, 1, 2, 3]
    first.abandon()


def test_later_checkpoint_goes_on_with_what_arrived_of_the_newest_that_was_given_up(stores: Stores) -> None:
    data, other = content(6), content(6, seed=3)
    changed = data[: 2 * CHUNK] + content(1, seed=9) + data[3 * CHUNK : 5 * CHUNK]  # and a chunk shorter
    oldest, earlier, later = (ingest(stores.origin, each, n) for n, each in enumerate((other, data, changed), 1))
    unlike, first = stores.standby.begin(oldest), stores.standby.begin(earlier)
    put(unlike, other, *range(5))
    put(first, data, 0, 2, 4, 5)
    busy = stores.standby.begin(later)
    assert busy.missing == [0, 1, 2, 3, 4]  # somebody is at the earlier one: it is left alone
    busy.abandon(keep_partial=False)
    unlike.abandon()
    first.abandon()
    second = stores.standby.begin(later)
    assert second.missing == [1, 2, 3]
    fill(second, changed)
    stores.standby.verify(later)
    assert not (stores.standby.root / "job" / "2.partial").exists()


def test_partial_file_is_believed_only_as_far_as_it_hashes_right(stores: Stores) -> None:
    data = content(4)
    manifest = ingest(stores.origin, data)
    first = stores.standby.begin(manifest)
    put(first, data, *range(4))
    first.abandon()
    partial = stores.standby.root / "job" / "1.partial"
    raw = bytearray(partial.read_bytes())
    raw[CHUNK + 7] ^= 0x80
    partial.write_bytes(raw[: 3 * CHUNK + 100])  # one chunk rotten, the last one cut short
    second = stores.standby.begin(manifest)
    assert second.missing == [1, 3]
    second.abandon()


def test_content_stored_under_any_name_is_copied_not_asked_for(stores: Stores) -> None:
    a, b = content(4, 1), content(4, 2)
    mixed = span(a, 3) + span(b, 0) + content(1, 3) + span(a, 1)
    ingest(stores.standby, a, job="first")
    ingest(stores.standby, b, job="second", sequence=7)
    reception = stores.begin(mixed, job="third")
    assert reception.missing == [2]
    assert stores.standby.payload(fill(reception, mixed)).read_bytes() == mixed


def test_local_copy_that_has_rotted_is_asked_for_again(stores: Stores) -> None:
    data = content(3)
    rotten = ingest(stores.standby, data, job="old")
    with stores.standby.payload(rotten).open("r+b") as file:
        file.seek(CHUNK)
        file.write(b"rot")
    with pytest.raises(CheckpointDamaged, match=r"chunks \[1\] of 3"):
        stores.standby.verify(rotten)
    reception = stores.begin(data, job="new")
    assert reception.missing == [1]
    assert stores.standby.payload(fill(reception, data)).read_bytes() == data
    stores.standby.drop("old", 1)


def test_payload_larger_than_the_disk_is_refused_before_a_byte_moves(store: CheckpointStore) -> None:
    count = 1 << 17
    huge = Manifest.of("big", 1, 1, count * (16 << 20), 16 << 20, [bytes(32)] * count)  # 2 TiB
    if shutil.disk_usage(store.root).free > huge.payload_bytes:
        pytest.skip("this disk has 2 TiB free")
    with pytest.raises(StoreFull, match=f"no room for {huge.payload_bytes} bytes"):
        store.begin(huge)
    assert list((store.root / "big").iterdir()) == []


def test_dropped_checkpoint_frees_its_room_but_not_what_others_share(stores: Stores) -> None:
    data = content(3)
    ingest(stores.standby, data, sequence=1)
    ingest(stores.standby, data, sequence=2)
    stores.standby.drop("job", 2)
    assert sorted(p.name for p in (stores.standby.root / "job").iterdir()) == ["1.manifest", "1.payload"]
    reception = stores.begin(data, sequence=3)
    assert reception.missing == []
    reception.commit()
    stores.standby.drop("job", 1)
    stores.standby.drop("job", 3)
    with pytest.raises(NotStored):
        stores.standby.drop("job", 3)
    with reopened(stores.standby) as again:
        assert again.begin(stores.origin.get("job", 3)).missing == [0, 1, 2]


def test_keep_latest_drops_older_checkpoints_and_stale_attempts(stores: Stores) -> None:
    stale = ingest(stores.origin, content(2, 9), sequence=2)
    attempt = stores.standby.begin(stale)
    put(attempt, content(2, 9), 0)
    attempt.abandon()
    for n in (3, 4, 5):
        ingest(stores.standby, content(2, n), sequence=n)
    ingest(stores.standby, content(1), job="else", sequence=1)
    stores.standby.keep_latest("job", 2)
    assert [m.key for m in stores.standby.manifests()] == [("else", 1), ("job", 4), ("job", 5)]
    assert not (stores.standby.root / "job" / "2.partial").exists()


@pytest.mark.parametrize("harm", ["no payload", "short payload", "garbage manifest", "swapped manifest"])
def test_damage_on_disk_hides_only_the_damaged_checkpoint(store: CheckpointStore, harm: str) -> None:
    good, bad = ingest(store, content(2, 1), sequence=1), ingest(store, content(2, 2), sequence=2)
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


def test_number_that_no_message_can_name_is_set_aside_with_its_content(store: CheckpointStore) -> None:
    """What an earlier version stored under sequence 2**62 + 5 made its holder unacceptable to the coordinator for ever."""
    good = ingest(store, content(2, 1), sequence=1)
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
from tests.stores import fill, ingest
operation, root, countdown = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
store = CheckpointStore(root / "store", chunk_bytes=4096)
with CheckpointStore(root / "origin", chunk_bytes=4096) as origin:
    manifest = max(origin.manifests(), key=lambda m: m.sequence)

def receive():
    fill(store.begin(manifest), origin.payload(manifest).read_bytes())

if operation == "recycle":  # a received checkpoint, a little unlike the one to come
    content = bytearray(origin.payload(manifest).read_bytes())
    content[4096:8192] = b"?" * 4096
    manifest, last = ingest(origin, content, 0), manifest
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
    ingest(store, origin.payload(manifest).read_bytes(), 2)
elif operation == "receive":
    receive()
elif operation == "recycle":
    store.drop("job", 0, keep_file=True)
    assert (root / "store/job/0.partial").exists()
    receive()
    assert not (root / "store/job/0.partial").exists()
else:
    store.drop("job", 1)
"""


def prepare(root: Path) -> bytes:
    new = b"".join(bytes([n]) * CHUNK for n in range(5)) + b"tail"
    for name, data, sequence in (("store", bytes(range(256)) * 32, 1), ("origin", new, 2)):
        with CheckpointStore(root / name, chunk_bytes=CHUNK) as store:
            ingest(store, data, sequence)
    return new


@pytest.mark.parametrize("operation", ["ingest", "receive", "recycle", "drop"])
def test_killed_at_any_step_the_store_opens_with_only_whole_checkpoints(tmp_path: Path, operation: str) -> None:
    deaths = 0
    for step in range(1, 60):
        root = tmp_path / str(step)
        root.mkdir()
        new = prepare(root)
        argv = [sys.executable, "-c", VICTIM, operation, str(root), str(step)]
        status = subprocess.run(argv, check=False, stderr=subprocess.PIPE).returncode
        assert status in (0, -signal.SIGKILL)
        with CheckpointStore(root / "store", chunk_bytes=CHUNK) as store:
            assert store.damaged == []
            kept = [m.sequence for m in store.manifests()]
            for manifest in store.manifests():
                store.verify(manifest)
            if operation == "drop":
                assert kept in ([1], [])
            else:
                assert kept in ([1], [1, 2], *([[0, 1]] if operation == "recycle" else []))
                if 2 not in kept:  # what the crash left does not stand in the way of the next attempt
                    with CheckpointStore(root / "origin", chunk_bytes=CHUNK) as origin:
                        manifest = origin.get("job", 2)
                    assert store.payload(fill(store.begin(manifest), new)).read_bytes() == new
        if status == 0:
            break
        deaths += 1
    assert deaths >= (2 if operation == "drop" else 5)
    assert status == 0
