"""Completed checkpoints of many jobs in one directory, found by job and sequence, shared by content.

    ROOT/.lock                    held while the store is open
    ROOT/.scratch/                snapshots before they are taken in; emptied at every start
    ROOT/.quarantine/             files that were wrong when the store was opened (`recovery.py`); nothing reads them
    ROOT/JOB/SEQUENCE.payload     the bytes
    ROOT/JOB/SEQUENCE.manifest    what they are; this file's name appearing is the moment of completion
    ROOT/JOB/SEQUENCE.partial     the bytes of an attempt, or of a dropped checkpoint

A job's next checkpoint is received into the newest such file. Two checkpoints of a job often have equal chunks in the same
place. A new file also costs new pages, which may cost more than receiving, copying and hashing what goes into them. Nothing in
the file is believed: only chunks that have the right hash count. A dropped file is not written over while somebody reads it, who
opened it before (`MappedFile.is_ours_alone`). Where the kernel grants no leases dropped files are removed.

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
from collections.abc import Set
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
from testbed.checkpoints.manifest import CHUNK_BYTES, Key, Manifest, check_job
from testbed.checkpoints.mapped import MappedFile
from testbed.checkpoints.reception import Finder, Reception
from testbed.checkpoints.recovery import FILE, recover

# of a job, beside those that arrive: the one that the next may go on with. A sender that breaks off each one fills no disk
MAX_GIVEN_UP: Final = 1
MAX_OPEN: Final = 10  # received payloads whose files stay open, to be written over once dropped: the newest
FREE_SHARE: Final = 0.25  # of the file system's free room, the most that dropped files may hold together


class CheckpointStore:
    """Completed checkpoints under `root`, which is made if missing. Thread-safe; every method may block on the disk.

    `chunk_bytes` is what `ingest` cuts by; received checkpoints keep their own. Raises StoreInUse if another process has
    the store open. Close it, or use it as a context manager.
    """

    def __init__(self, root: Path, *, chunk_bytes: int = CHUNK_BYTES) -> None:
        self.root = root
        self.chunk_bytes = chunk_bytes
        self._receiving: set[Key] = set()
        # files of received checkpoints, oldest first, and what they hold; after a drop a file is a partial one
        self._received: dict[Key, tuple[Manifest, MappedFile]] = {}
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
            self._manifests, self.damaged = recover(root)
            undo.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let another process open the store. Receptions still open keep their partial files; dropped files go."""
        if self._lock_file >= 0:
            with self._guard:
                for key in list(self._received):
                    self._discard(key)
            os.close(self._lock_file)
            self._lock_file = -1

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
        self._make_room(self._dropped_bytes())
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

        A first attempt goes on in the file of an earlier checkpoint of the job that was given up or dropped: where the two are
        alike the bytes are here. Raises BadManifest, CheckpointConflict (completed here, or another reception is open),
        StoreFull.
        """
        manifest.validate()
        with ExitStack() as undo:
            self._claim(manifest)
            undo.callback(self._release, manifest.key)
            self._make_directory(manifest.job)
            partial = self._path(manifest.key, "partial")
            held, file = self._take_over(manifest.key, partial) or (None, MappedFile(partial))
            reception = Reception(
                manifest, partial, file, self._publish_received, lambda: self._release(manifest.key)
            )
            undo.pop_all()
            undo.callback(reception.abandon, keep_partial=held is None)
            self._make_room(manifest.payload_bytes)
            with ExitStack() as files:
                reception.prepare(self._finder(manifest, files), held)
            undo.pop_all()
        return reception

    def _take_over(self, key: Key, partial: Path) -> tuple[Manifest, MappedFile] | None:
        """Rename the newest unused attempt at this checkpoint, or at an earlier one of the job, to this checkpoint.

        If it is the open file of a dropped checkpoint, return that. Of the other attempts MAX_GIVEN_UP remain.
        """
        job, sequence = key
        taken = None
        with self._guard:
            left = self._attempts(job, self._receiving - {key})
            for n in reversed([n for n in left if n <= sequence]):
                taken = self._received.get((job, n))
                if taken is None or taken[1].is_ours_alone():
                    self._path((job, n), "partial").replace(partial)
                    self._received.pop((job, n), None)
                    left.remove(n)
                    break
                if n == sequence:  # its readers go on reading the file, which has no name any more
                    self._discard(key)
                    left.remove(n)
                taken = None
            for n in left[:-MAX_GIVEN_UP]:
                self._discard((job, n))
        return taken

    def _attempts(self, job: str, receiving: Set[Key]) -> list[int]:
        """Return the sequences of a job's partial files, ascending, but for those that are `receiving`."""
        names = (FILE.fullmatch(path.name) for path in self._directory(job).glob("*.partial"))
        found = (int(name[1]) for name in names if name)
        return sorted(n for n in found if (job, n) not in receiving)

    def _discard(self, key: Key) -> None:
        """Remove a partial file, and close it."""
        if key not in self._manifests:
            self._path(key, "partial").unlink(missing_ok=True)
        if key in self._received:
            self._received.pop(key)[1].close()

    def _dropped_bytes(self) -> int:
        """Return the room of the open files of checkpoints that were dropped."""
        received = list(self._received.items())
        return sum(held.payload_bytes for key, (held, _) in received if key not in self._manifests)

    def _make_room(self, needed_bytes: int) -> None:
        """Remove the files of dropped checkpoints if less than this is free beside them."""
        with self._guard:
            if self._dropped_bytes() and free_bytes(self.root) < needed_bytes:
                for key in [key for key in self._received if key not in self._manifests]:
                    self._discard(key)

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

        Its room is free. If it was received, its file may stay for the job's next one until its room is needed.
        """
        key = job, sequence
        payload = self._path(key, "payload")
        with self._guard:
            manifest = self._manifests.pop(key, None)
            if manifest is None:
                raise NotStored(f"{self.root}: no completed checkpoint {job}/{sequence}")
            self._path(key, "manifest").unlink(missing_ok=True)
            has_room = 0 < self._dropped_bytes() <= FREE_SHARE * free_bytes(self.root)
            if key in self._received and has_room and payload.exists():
                payload.replace(self._path(key, "partial"))
            else:
                payload.unlink(missing_ok=True)
                self._discard(key)
            # else a power cut could bring back the manifest over another checkpoint's bytes
            self._receiving.add(key)
        try:
            fsync_directory(self._directory(job))
        finally:
            self._release(key)
        with self._guard:
            for n in self._attempts(job, self._receiving)[:-MAX_GIVEN_UP]:
                self._discard((job, n))

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
        with self._guard:
            for n in self._attempts(job, self._receiving):
                if n < below:
                    self._discard((job, n))

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

    def _finder(self, manifest: Manifest, files: ExitStack) -> Finder:
        """Find stored copies of a manifest's chunks, keeping the payloads it opens in `files`."""
        wanted = set(manifest.chunks)
        opened: dict[Key, int] = {}
        with self._guard:
            places = {
                digest: (stored.key, stored.span(number)[0])
                for stored in self._manifests.values()
                for number, digest in enumerate(stored.chunks)
                if digest in wanted
            }

        def find(digest: bytes) -> tuple[int, int] | None:
            if digest not in places:
                return None
            key, offset = places[digest]
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
                self._make_room(manifest.payload_bytes)
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

    def _publish_received(self, manifest: Manifest, payload: Path, file: MappedFile) -> None:
        stays_open = file.is_ours_alone()  # nobody else has it yet: False where there are no leases
        self._publish(manifest, payload)
        with self._guard:
            self._received[manifest.key] = manifest, file
            surplus = list(self._received)[:-MAX_OPEN] if stays_open else [manifest.key]
            for key in surplus:
                self._discard(key)

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
