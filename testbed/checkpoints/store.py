"""The store: completed checkpoints of many jobs in one directory, found by job and sequence, shared by content.

    ROOT/.lock                    held while the store is open
    ROOT/.scratch/                snapshots before they are taken in; emptied at every start
    ROOT/.spares/                 files of dropped payloads, to be written over (`spares.py`); emptied at every start
    ROOT/.quarantine/             files that were wrong when the store was opened (`recovery.py`); nothing reads them
    ROOT/JOB/SEQUENCE.payload     the bytes
    ROOT/JOB/SEQUENCE.manifest    what they are; this file's name appearing is the moment of completion
    ROOT/JOB/SEQUENCE.partial     the bytes of an attempt that has not completed

Order of a commit: payload on disk, manifest on disk under another name, payload renamed, manifest renamed, directory on
disk. Whatever a crash leaves of that is either a completed checkpoint or a partial one; opening the store sorts it out
(`recovery`). What is wrong is set aside; `damaged` lists what, why and where it is.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import stat
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final, Self

import msgspec

from testbed.checkpoints.errors import (
    BadManifest,
    CheckpointConflict,
    CheckpointDamaged,
    CheckpointError,
    NotStored,
    StoreFull,
    StoreInUse,
)
from testbed.checkpoints.files import NO_ROOM, free_bytes, fsync_directory, hash_span, write_durably
from testbed.checkpoints.index import ChunkIndex
from testbed.checkpoints.manifest import CHUNK_BYTES, Key, Manifest, check_job
from testbed.checkpoints.mapped import MappedFile
from testbed.checkpoints.reception import Finder, Reception
from testbed.checkpoints.recovery import FILE, recover
from testbed.checkpoints.spares import Spares

# of a job, beside those that arrive: the one that the next may go on with. A sender that breaks off each one fills no disk
MAX_GIVEN_UP: Final = 1
MAX_OPEN: Final = 8  # received payloads whose files stay open, to be written over once dropped: the newest


class CheckpointStore:
    """Completed checkpoints under `root`, which is made if missing. Thread-safe; every method may block on the disk.

    `chunk_bytes` is what `ingest` cuts by; received checkpoints keep their own. Raises StoreInUse if another process has
    the store open. Close it, or use it as a context manager.
    """

    def __init__(self, root: Path, *, chunk_bytes: int = CHUNK_BYTES) -> None:
        self.root = root
        self.chunk_bytes = chunk_bytes
        self._index = ChunkIndex()
        self._receiving: set[Key] = set()
        # by receptions, oldest first: files that may be written over
        self._received: dict[Key, MappedFile] = {}
        self._guard = threading.Lock()
        Manifest.of("check", 0, 0, 0, chunk_bytes, ())
        root.mkdir(parents=True, exist_ok=True)
        self._lock_file = _locked(root / ".lock")
        with ExitStack() as undo:
            undo.callback(os.close, self._lock_file)
            self._scratch = root / ".scratch"
            shutil.rmtree(self._scratch, ignore_errors=True)
            # what a job of a killed agent writes meanwhile stays until the next start
            self._scratch.mkdir(exist_ok=True)
            self._spares = Spares(root / ".spares")
            self._manifests, self.damaged = recover(root)
            for manifest in self.manifests():
                self._index.add(manifest)
            undo.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let another process open the store. Receptions still open keep their partial files; spare files go."""
        if self._lock_file >= 0:
            self._spares.close()
            for file in self._received.values():
                file.close()
            self._received.clear()
            os.close(self._lock_file)
            self._lock_file = -1

    @property
    def spare_bytes(self) -> int:
        """Bytes of files kept for the next reception, beside the checkpoints; released when space is short."""
        return self._spares.held_bytes

    def manifests(self) -> list[Manifest]:
        """Return every completed checkpoint, by job and sequence."""
        with self._guard:
            return [self._manifests[key] for key in sorted(self._manifests)]

    def get(self, job: str, sequence: int) -> Manifest:
        """Return a completed checkpoint. Raises NotStored."""
        with self._guard:
            found = self._manifests.get((job, sequence))
        if found is None:
            raise NotStored(f"{self.root}: no completed checkpoint {job}/{sequence}")
        return found

    def holds(self, manifest: Manifest) -> bool:
        """Return True if exactly this checkpoint, to the byte, is completed here."""
        return self.has(*manifest.key, manifest.digest)

    def has(self, job: str, sequence: int, digest: bytes) -> bool:
        """Return True if the checkpoint whose manifest has this digest is stored."""
        with self._guard:
            found = self._manifests.get((job, sequence))
        return found is not None and found.digest == digest

    def payload(self, manifest: Manifest) -> Path:
        """Return the file with the checkpoint's bytes; read only. Raises NotStored."""
        if not self.holds(manifest):
            raise NotStored(
                f"{self.root}: no completed checkpoint {manifest.job}/{manifest.sequence} of that digest"
            )
        return self._path(manifest.key, "payload")

    def scratch(self, job: str, sequence: int = 0) -> Path:
        """Return a path on the store's file system for a snapshot that `ingest` can then take by renaming; gone at next start."""
        check_job(job)
        self._spares.make_room(self._spares.held_bytes)
        return self._scratch / f"{job}.{sequence}"

    def ingest(self, job: str, sequence: int, step: int, source: Path) -> Manifest:
        """Take a snapshot file into the store: hashed, on disk, completed at return; `source` is gone then.

        Raises BadManifest (names, sizes), CheckpointConflict (stored with other content, or arriving now), StoreFull.
        """
        with ExitStack() as held:
            # not to wait for a pipe's writer
            fd = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            held.callback(os.close, fd)
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode):
                raise BadManifest(f"{source}: a snapshot is a regular file")
            chunks = _hashes(fd, status.st_size, self.chunk_bytes)
            manifest = Manifest.of(job, sequence, step, status.st_size, self.chunk_bytes, chunks)
            if self.holds(manifest):
                source.unlink()
                return manifest
            self._claim(manifest)
            held.callback(self._release, manifest.key)
            self._make_directory(job)
            self._take(fd, source, manifest)
        return manifest

    def begin(self, manifest: Manifest) -> Reception:
        """Open the reception of a checkpoint: room reserved, what is here already filled in.

        A first attempt goes on with what arrived of an earlier checkpoint of the job that was given up: where the two are alike
        the bytes are here. Without one it writes over a spare file if one suits. Raises BadManifest, CheckpointConflict
        (completed here, or another reception is open), StoreFull.
        """
        manifest.validate()
        with ExitStack() as undo:
            self._claim(manifest)
            undo.callback(self._release, manifest.key)
            self._make_directory(manifest.job)
            partial = self._path(manifest.key, "partial")
            self._take_over(manifest.key, partial)
            spare = None if partial.exists() else self._spares.take(manifest, partial)
            held, file = spare or (None, MappedFile(partial))
            reception = Reception(
                manifest, partial, file, self._publish_received, lambda: self._release(manifest.key)
            )
            undo.pop_all()
            undo.callback(reception.abandon, keep_partial=held is None)
            self._spares.make_room(manifest.payload_bytes)
            with ExitStack() as files:
                reception.prepare(self._finder(files), held)
            undo.pop_all()
        return reception

    def _take_over(self, key: Key, partial: Path) -> None:
        """Give the newest attempt at an earlier checkpoint of the job, if it is not arriving now, this checkpoint's name.

        Of the others MAX_GIVEN_UP remain.
        """
        job, sequence = key
        with self._guard:
            if partial.exists():
                return
            names = (FILE.fullmatch(path.name) for path in self._directory(job).glob("*.partial"))
            left = (int(name[1]) for name in names if name)
            given_up = sorted(n for n in left if (job, n) not in self._receiving)
            earlier = [n for n in given_up if n < sequence]
            if earlier:
                self._path((job, earlier[-1]), "partial").replace(partial)
                given_up.remove(earlier[-1])
            for n in given_up[:-MAX_GIVEN_UP]:
                self._path((job, n), "partial").unlink(missing_ok=True)

    def verify(self, manifest: Manifest) -> None:
        """Read the payload back and hash every chunk. Raises NotStored, CheckpointDamaged."""
        path = self.payload(manifest)
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            hashes = _hashes(file.fileno(), size, manifest.chunk_bytes)
        if size != manifest.payload_bytes:
            raise CheckpointDamaged(
                path, (), f"{size} bytes long, the manifest says {manifest.payload_bytes}"
            )
        bad = [n for n, (a, b) in enumerate(zip(hashes, manifest.chunks, strict=True)) if a != b]
        if bad:
            raise CheckpointDamaged(path, bad, f"chunks {bad[:8]} of {len(hashes)} do not have their hashes")

    def drop(self, job: str, sequence: int) -> None:
        """Forget a completed checkpoint. Raises NotStored.

        Its room is free, or lent to a spare file until it is needed: only where checkpoints arrive.
        """
        key = job, sequence
        self.get(*key)
        with self._guard:
            manifest = self._manifests.pop(key, None)
            if manifest is None:
                raise NotStored(f"{self.root}: {job}/{sequence} was dropped this moment")
            self._index.discard(manifest)
            file = self._received.pop(key, None)
        self._path(key, "manifest").unlink(missing_ok=True)
        payload, spare = self._path(key, "payload"), None
        if file is not None:
            spare = self._spares.retire(payload, manifest, file)
        else:
            payload.unlink(missing_ok=True)
        fsync_directory(self._directory(job))
        if spare is not None:
            self._spares.offer(spare)

    def keep_latest(self, job: str, count: int) -> list[Manifest]:
        """Drop all but the `count` newest checkpoints of a job, and attempts older than the newest. Returns the dropped."""
        mine = [m for m in self.manifests() if m.job == job]
        dropped = mine[: max(0, len(mine) - count)]
        for manifest in dropped:
            self.drop(job, manifest.sequence)
        if mine:
            self.drop_attempts(job, below=mine[-1].sequence)
        return dropped

    def drop_attempts(self, job: str, below: int) -> None:
        """Remove what arrived of a job's checkpoints below a sequence, but for those that are arriving now."""
        for partial in self._directory(job).glob("*.partial"):
            name = FILE.fullmatch(partial.name)
            with self._guard:
                if name and int(name[1]) < below and (job, int(name[1])) not in self._receiving:
                    partial.unlink(missing_ok=True)

    def collect_attempts(self, keep: set[str], older_than_s: float) -> None:
        """Remove what arrived of checkpoints, of other jobs than these, that was last written to so long ago."""
        oldest_s = time.time() - older_than_s
        for partial in self.root.glob("*/*.partial"):
            name, job = FILE.fullmatch(partial.name), partial.parent.name
            with suppress(FileNotFoundError):  # it was completed this moment, or dropped
                if name and job not in keep and partial.lstat().st_mtime < oldest_s:
                    self.drop_attempts(job, below=int(name[1]) + 1)

    def _claim(self, manifest: Manifest) -> None:
        with self._guard:
            what = f"{manifest.job}/{manifest.sequence}"
            held = self._manifests.get(manifest.key)
            if held is not None:
                same = "with the same" if held.digest == manifest.digest else "with other"
                raise CheckpointConflict(f"{what} is already completed here, {same} content")
            if manifest.key in self._receiving:
                raise CheckpointConflict(f"{what} is being received right now")
            self._receiving.add(manifest.key)

    def _release(self, key: Key) -> None:
        with self._guard:
            self._receiving.discard(key)

    def _finder(self, files: ExitStack) -> Finder:
        """Find stored copies, keeping the payloads it opens in `files`."""
        opened: dict[Key, int] = {}

        def find(digest: bytes) -> tuple[int, int] | None:
            with self._guard:
                place = self._index.find(digest)
                if place is None:
                    return None
                key, chunk = place
                offset = self._manifests[key].span(chunk)[0]
            if key not in opened:
                try:
                    opened[key] = files.enter_context(self._path(key, "payload").open("rb")).fileno()
                except FileNotFoundError:  # dropped this moment
                    return None
            return opened[key], offset

        return find

    def _take(self, fd: int, source: Path, manifest: Manifest) -> None:
        """Publish the snapshot in place if it is on the store's file system, else a copy of it."""
        try:
            if os.fstat(fd).st_dev == self.root.stat().st_dev:
                os.fsync(fd)
                self._publish(manifest, source)
                return
            copy = self._path(manifest.key, "partial")
            with ExitStack() as undo:
                undo.callback(copy.unlink, missing_ok=True)
                self._spares.make_room(manifest.payload_bytes)
                shutil.copyfile(source, copy)
                with copy.open("rb") as file:
                    os.fsync(file.fileno())
                    hashes = _hashes(file.fileno(), manifest.payload_bytes, manifest.chunk_bytes)
                    if hashes != list(manifest.chunks):
                        raise CheckpointError(f"{source}: changed while it was taken in")
                self._publish(manifest, copy)
                undo.pop_all()
            source.unlink()
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            raise StoreFull(self.root, manifest.payload_bytes, free_bytes(self.root)) from error

    def _publish(self, manifest: Manifest, payload: Path) -> None:
        """Complete the checkpoint; `payload` is whole and on disk."""
        aside = self._path(manifest.key, "manifest.new")
        write_durably(aside, msgspec.msgpack.encode(manifest))
        payload.replace(self._path(manifest.key, "payload"))
        aside.replace(self._path(manifest.key, "manifest"))
        fsync_directory(self._directory(manifest.job))
        with self._guard:
            self._manifests[manifest.key] = manifest
            self._index.add(manifest)

    def _publish_received(self, manifest: Manifest, payload: Path, file: MappedFile) -> None:
        self._publish(manifest, payload)
        with self._guard:
            self._received[manifest.key] = file
            surplus = list(self._received)[:-MAX_OPEN]
            closing = [self._received.pop(key) for key in surplus]
        for old in closing:
            old.close()

    def _make_directory(self, job: str) -> None:
        directory = self._directory(job)
        if not directory.is_dir():
            directory.mkdir(exist_ok=True)
            fsync_directory(self.root)

    def _directory(self, job: str) -> Path:
        return self.root / job

    def _path(self, key: Key, kind: str) -> Path:
        return self.root / key[0] / f"{key[1]}.{kind}"


def _hashes(fd: int, size_bytes: int, chunk_bytes: int) -> list[bytes]:
    buffer = memoryview(bytearray(chunk_bytes))
    starts = range(0, size_bytes, chunk_bytes)
    return [hash_span(fd, start, min(chunk_bytes, size_bytes - start), buffer) for start in starts]


def _locked(path: Path) -> int:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(fd)
        if error.errno != errno.EWOULDBLOCK:
            raise
        raise StoreInUse(f"{path.parent}: another process has this store open") from error
    return fd
