"""Completed checkpoints of many jobs in one directory, found by job and sequence, shared by content.

    ROOT/                         locked while the store is open
    ROOT/.scratch/                snapshots before they are taken in; gone at every start
    ROOT/.quarantine/             files that were wrong when the store was opened (`recovery.py`); nothing reads them
    ROOT/JOB/SEQUENCE.payload     the bytes
    ROOT/JOB/SEQUENCE.manifest    what they are; this file's name appearing is the moment of completion
    ROOT/JOB/SEQUENCE.partial     the bytes of an attempt, or of a dropped checkpoint

A job's next checkpoint is received into the newest such file. Two checkpoints of a job often have equal chunks in the same
place. A new file also costs new pages, which may cost more than receiving, copying and hashing what goes into them. Nothing in
the file is believed: only chunks that have the right hash count.

Order of a commit: payload on disk, manifest on disk under another name, payload renamed, manifest renamed, directory on
disk. Whatever a crash leaves of that is either a completed checkpoint or a partial one; opening the store sorts it out
(`recovery`). What is wrong is set aside; `damaged` lists what, why and where it is.
"""

from __future__ import annotations

import errno
import fcntl
import functools
import os
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
    NotStored,
    StoreFull,
    StoreInUse,
)
from testbed.checkpoints.files import NO_ROOM, PayloadFile, free_bytes, fsync_directory, hash_span, write_durably
from testbed.checkpoints.manifest import CHUNK_BYTES, Key, Manifest, check_job
from testbed.checkpoints.reception import Finder, Reception
from testbed.checkpoints.recovery import FILE, recover
from testbed.linux import remove_folder

# of a job, beside those that arrive: the one that the next may go on with. A sender that breaks off each one fills no disk
MAX_GIVEN_UP: Final = 1
# received payloads, and dropped ones, whose files stay open: the newest; a job that is kept has two
MAX_OPEN: Final = 32


class CheckpointStore:
    """Completed checkpoints under `root`, which is made if missing. Thread-safe; every method may block on the disk.

    `chunk_bytes` is what `ingest` cuts by; received checkpoints keep their own. Raises StoreInUse if another process has
    the store open. Close it, or use it as a context manager.
    """

    def __init__(self, root: Path, *, chunk_bytes: int = CHUNK_BYTES) -> None:
        self.root = root
        self.chunk_bytes = chunk_bytes
        self._receiving: set[Key] = set()
        self._files: dict[Key, PayloadFile] = {}  # open: of payloads that were received, and of such that were dropped
        self._guard = threading.Lock()
        Manifest.of("check", 0, 0, 0, chunk_bytes, ())
        root.mkdir(parents=True, exist_ok=True)
        self._lock_file = _locked(root)
        with ExitStack() as undo:
            undo.callback(os.close, self._lock_file)
            self._scratch = root / ".scratch"
            # what a job of a killed agent writes meanwhile stays until the next start
            remove_folder(self._scratch)
            self._manifests, self.damaged = recover(root)
            undo.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let another process open the store. Receptions still open keep their partial files."""
        if self._lock_file >= 0:
            os.close(self._lock_file)
            self._lock_file = -1
        while self._files:
            self._files.popitem()[1].close()

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

    def has(self, job: str, sequence: int, digest: bytes) -> bool:
        """Return True if exactly this checkpoint, whose manifest has this digest, is completed here."""
        with self._guard:
            found = self._manifests.get((job, sequence))
        return found is not None and found.digest == digest

    def payload(self, manifest: Manifest) -> Path:
        """Return the file with the checkpoint's bytes; read only. Raises NotStored."""
        if not self.has(*manifest.key, manifest.digest):
            raise NotStored(f"{self.root}: no completed checkpoint {manifest.job}/{manifest.sequence} of that digest")
        return self._path(manifest.key, "payload")

    def scratch(self, job: str, sequence: int = 0) -> Path:
        """Return a path on the store's file system for a snapshot that `ingest` can then take by renaming; gone at next start."""
        check_job(job)
        self._make_room()
        self._scratch.mkdir(exist_ok=True)
        return self._scratch / f"{job}.{sequence}"

    def ingest(self, job: str, sequence: int, step: int, source: Path) -> Manifest:
        """Take a snapshot from `scratch` into the store: hashed, on disk, completed at return; `source` is gone then.

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
            if self.has(job, sequence, manifest.digest):
                source.unlink()
                return manifest
            self._claim(manifest)
            held.callback(self._release, manifest.key)
            self._make_directory(job)
            try:
                os.fsync(fd)
                self._publish(manifest, source)
            except OSError as error:
                if error.errno not in NO_ROOM:
                    raise
                raise StoreFull(self.root, manifest.payload_bytes, free_bytes(self.root)) from error
        return manifest

    def begin(self, manifest: Manifest) -> Reception:
        """Open the reception of a checkpoint: room looked for, what is here already filled in.

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
            file = self._take_over(manifest.key, partial) or PayloadFile(partial)
            release = functools.partial(self._release, manifest.key)
            reception = Reception(manifest, partial, file, self._publish, release)
            undo.pop_all()
            undo.callback(reception.abandon, keep_partial=file.held is None)
            self._make_room(manifest.payload_bytes)
            with ExitStack() as files:
                reception.prepare(self._finder(manifest, files))
            undo.pop_all()
        return reception

    def _take_over(self, key: Key, partial: Path) -> PayloadFile | None:
        """Rename the newest unused attempt at this checkpoint, or at an earlier one of the job, to this checkpoint.

        Return its file if it was a payload. Of the other attempts MAX_GIVEN_UP remain.
        """
        job, sequence = key
        file = None
        with self._guard:
            left = self._attempts(job, self._receiving - {key})
            if earlier := [n for n in left if n <= sequence]:
                self._path((job, earlier[-1]), "partial").replace(partial)
                file = self._files.pop((job, earlier[-1]), None)
                left.remove(earlier[-1])
            for n in left[:-MAX_GIVEN_UP]:
                self._discard((job, n))
        return file

    def _attempts(self, job: str, receiving: Set[Key]) -> list[int]:
        """Return the sequences of a job's partial files, ascending, but for those that are `receiving`."""
        names = (FILE.fullmatch(path.name) for path in self._directory(job).glob("*.partial"))
        found = (int(name[1]) for name in names if name)
        return sorted(n for n in found if (job, n) not in receiving)

    def _discard(self, key: Key) -> None:
        """Remove a partial file, and close what is open of this key."""
        self._path(key, "partial").unlink(missing_ok=True)
        if key in self._files:
            self._files.pop(key).close()

    def _make_room(self, needed_bytes: int = 0) -> None:
        """Remove the files of dropped checkpoints if less than this, or than they hold, is free beside them."""
        with self._guard:
            dropped = [key for key in self._files if key not in self._manifests]
            held_bytes = sum(os.fstat(self._files[key].fd).st_size for key in dropped)
            if held_bytes and free_bytes(self.root) < max(needed_bytes, held_bytes):
                for key in dropped:
                    self._discard(key)

    def verify(self, manifest: Manifest) -> None:
        """Read the payload back and hash every chunk. Raises NotStored, CheckpointDamaged."""
        path = self.payload(manifest)
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            hashes = _hashes(file.fileno(), size, manifest.chunk_bytes)
        if size != manifest.payload_bytes:
            raise CheckpointDamaged(f"{path}: {size} bytes, the manifest says {manifest.payload_bytes}")
        bad = [n for n, (a, b) in enumerate(zip(hashes, manifest.chunks, strict=True)) if a != b]
        if bad:
            raise CheckpointDamaged(f"{path}: chunks {bad[:8]} of {len(hashes)} do not have their hashes")

    def drop(self, job: str, sequence: int, *, keep_file: bool = False) -> None:
        """Delete a completed checkpoint; raise NotStored if there is none.

        `keep_file`: its file stays for the job's next reception, until its room is needed. That is not so while somebody reads
        it, nor where the kernel does not know.
        """
        key = job, sequence
        spare = self._path(key, "partial")
        with self._guard:
            manifest = self._manifests.pop(key, None)
            if manifest is None:
                raise NotStored(f"{self.root}: no completed checkpoint {job}/{sequence}")
            self._path(key, "manifest").unlink(missing_ok=True)
            with suppress(FileNotFoundError):  # a hand removed it
                self._path(key, "payload").replace(spare)  # from now on nobody else opens it
            if not (keep_file and key in self._files and spare.exists() and self._files[key].is_unread()):
                self._discard(key)
            # else a power cut could bring back the manifest over another checkpoint's bytes
            self._receiving.add(key)
        try:
            fsync_directory(self._directory(job))
        finally:
            self._release(key)

    def drop_older(self, job: str, before: int, but: Set[int] = frozenset(), *, keep_file: bool = False) -> None:
        """Drop the job's checkpoints with a sequence below `before`, `but` for these; without `keep_file` attempts, too."""
        for manifest in self.manifests():
            if manifest.job == job and manifest.sequence < before and manifest.sequence not in but:
                with suppress(NotStored):  # another order dropped it first
                    self.drop(job, manifest.sequence, keep_file=keep_file)
        if not keep_file:
            with self._guard:
                for n in self._attempts(job, self._receiving):
                    if n < before:
                        self._discard((job, n))

    def keep_latest(self, job: str, count: int) -> None:
        """Drop all but the `count` newest checkpoints of a job, and older attempts."""
        mine = [manifest.sequence for manifest in self.manifests() if manifest.job == job]
        if mine:
            self.drop_older(job, mine[-count:][0])

    def collect_attempts(self, keep: set[str], older_than_s: float) -> None:
        """Remove what arrived of checkpoints, of other jobs than these, that was last written to so long ago."""
        oldest_s = time.time() - older_than_s
        for partial in self.root.glob("*/*.partial"):
            name, job = FILE.fullmatch(partial.name), partial.parent.name
            with self._guard, suppress(FileNotFoundError):  # it was completed this moment, or dropped
                if not name or job in keep or (job, int(name[1])) in self._receiving:
                    continue
                if partial.lstat().st_mtime < oldest_s:
                    self._discard((job, int(name[1])))

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

    def _publish(self, manifest: Manifest, payload: Path, file: PayloadFile | None = None) -> None:
        """Complete the checkpoint; `payload` is whole and on disk, and open as `file` if it was received."""
        aside = self._path(manifest.key, "manifest.new")
        write_durably(aside, msgspec.msgpack.encode(manifest))
        payload.replace(self._path(manifest.key, "payload"))
        aside.replace(self._path(manifest.key, "manifest"))
        fsync_directory(self._directory(manifest.job))
        with self._guard:
            self._manifests[manifest.key] = manifest
            if file is not None:
                self._discard(manifest.key)  # of an earlier one of this name, whose file a hand removed
                file.hold(manifest)
                self._files[manifest.key] = file
                for key in list(self._files)[:-MAX_OPEN]:
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


def _locked(folder: Path) -> int:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(fd)
        if error.errno != errno.EWOULDBLOCK:
            raise
        raise StoreInUse(f"{folder}: another process has this store open") from error
    return fd
