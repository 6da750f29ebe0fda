"""kill -9 at every step of a commit: old checkpoints stay, no half one is ever visible, and the attempt can be resumed."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.checkpoints import CheckpointStore

CHUNK = 4096

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
        reception.write(chunk, content[offset : offset + length])
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
        reception.write(chunk, new[offset : offset + length])
    assert store.payload(reception.commit()).read_bytes() == new
