"""A directory as one file, and back: the checkpoint of a program that keeps its state in files.

The file is a tar archive (POSIX pax), so that people can look into it. Stores and transfers send by chunks what has
changed, so what stays the same should lie at the same place in each checkpoint. Large files come first, by name, the
rest behind them; owners and directories' times are left out. Kept are files (contents, permissions, times, names),
directories, and symbolic links that stay within. Anything else, or more than the bounds, is an error and no checkpoint:
a state that does not come back as it was is worse than an older one.

An archive may come from a host whose user is hostile. It is read with the same bounds, and no name or link leads out of
the target. Links are made last, so that nothing is written through one. Names are any bytes: an error quotes them as
Python writes them.
"""

from __future__ import annotations

import os
import stat
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from blake3 import blake3

from testbed.bounds import LARGEST_STEP
from testbed.errors import TestbedError
from testbed.workloads.base import StateMismatch
from topologies.writing import naming

MAX_ENTRIES: Final = 100_000
LONGEST_PATH: Final = 1024
LARGE_BYTES: Final = 1 << 20  # as a chunk of a checkpoint
_PIECE_BYTES: Final = 1 << 20
_STEP: Final = "RECLAIMNET.step"
_TOLD: Final = "RECLAIMNET.told"
# What tarfile raises over bytes that it cannot read, beside errors of a disk: times and sizes beyond what a machine has, headers
# of headers a thousand deep, names that are files and then directories.
_UNREADABLE: Final = (
    *(tarfile.TarError, KeyError, ValueError, OverflowError, RecursionError, MemoryError),
    *(FileExistsError, NotADirectoryError),
)


class CannotKeep(TestbedError):
    """A directory that cannot be a checkpoint, and why."""


@dataclass(frozen=True, slots=True)
class ProgramProgress:
    """Progress of a program: reported by itself, or counted by the clock."""

    step: int
    told: bool


@dataclass(frozen=True, slots=True)
class _Entry:
    path: str  # relative to the directory
    status: os.stat_result
    target: str = ""  # of a symbolic link


def pack(folder: Path, target: Path, progress: ProgramProgress, most_bytes: int) -> None:
    """Write what is in the folder into a new file. CannotKeep, OSError: no file is left.

    Nothing may change meanwhile; what did is noticed.
    """
    # tarfile reads no archive without a member
    entries = list(_entries(folder, most_bytes)) or [_Entry(".", folder.stat())]
    headers = {_STEP: str(progress.step), _TOLD: str(int(progress.told))}
    try:
        with (
            naming(target),
            tarfile.TarFile(
                target, "x", format=tarfile.PAX_FORMAT, pax_headers=headers, copybufsize=_PIECE_BYTES
            ) as archive,
        ):
            for entry in entries:
                _add(archive, folder, entry)
        size_bytes = target.stat().st_size
        if size_bytes > most_bytes:
            raise CannotKeep(_too_large(size_bytes, most_bytes))
    except FileExistsError:
        raise
    except BaseException:
        target.unlink(missing_ok=True)
        raise


def unpack(archive: Path, folder: Path, most_bytes: int, opened: IO[bytes] | None = None) -> ProgramProgress:
    """Make in an empty folder what `pack` read. StateMismatch: this is no archive of `pack`; OSError passes."""
    links: list[tuple[Path, str]] = []
    modes: list[tuple[Path, int]] = []
    left_bytes = most_bytes
    try:
        with tarfile.TarFile(archive, fileobj=opened) as members:
            for number, member in enumerate(members):
                path = folder / _safe(member.name)
                if number >= MAX_ENTRIES:
                    raise StateMismatch(f"{archive}: more than {MAX_ENTRIES} entries")
                path.parent.mkdir(parents=True, exist_ok=True)
                if member.isdir():
                    path.mkdir(exist_ok=True)
                    modes.append((path, member.mode & 0o777))
                elif member.issym():
                    if not _stays_within(member.name, member.linkname):
                        raise StateMismatch(f"{archive}: {member.name!r} links to {member.linkname!r}")
                    links.append((path, member.linkname))
                elif member.isreg():
                    left_bytes -= member.size
                    source = members.extractfile(member)
                    if left_bytes < 0 or source is None:
                        raise StateMismatch(f"{archive}: more than {most_bytes} bytes")
                    _write(source, path, member)
                else:
                    raise StateMismatch(f"{archive}: {member.name!r} is no file, directory or link")
            headers = members.pax_headers
        for path, link in links:
            path.symlink_to(link)
        for path, link in links:
            if not _leads_within(folder, path):
                name = str(path.relative_to(folder))
                raise StateMismatch(f"{archive}: {name!r} leads to {link!r}, out of the directory")
        for path, mode in reversed(modes):
            path.chmod(mode)
        step = int(headers[_STEP])
        if not 0 <= step <= LARGEST_STEP:
            raise StateMismatch(f"{archive}: a state of no step that a job has")
        return ProgramProgress(step, headers[_TOLD] == "1")
    except _UNREADABLE as error:
        raise StateMismatch(f"{archive}: no archive of a program's state ({error})") from error


def digest(folder: Path, most_bytes: int) -> bytes:
    """Return the BLAKE3 of all that `pack` would keep of it, but times. CannotKeep, OSError, as `pack`."""
    whole = blake3()
    for entry in sorted(_entries(folder, most_bytes), key=lambda entry: entry.path):
        kind = stat.S_IFMT(entry.status.st_mode)
        size = entry.status.st_size if stat.S_ISREG(kind) else 0
        head = f"{kind} {entry.status.st_mode & 0o777} {size} {entry.path}\0{entry.target}\0"
        whole.update(head.encode("utf-8", "surrogateescape"))
        if stat.S_ISREG(kind):
            with _opened(folder, entry.path) as file:
                while piece := file.read(_PIECE_BYTES):
                    whole.update(piece)
    return whole.digest()


def _entries(folder: Path, most_bytes: int) -> Iterator[_Entry]:
    """Return the folder's entries, in the order of the archive. CannotKeep: one of them cannot be archived."""
    if folder.is_symlink() or not folder.is_dir():
        raise CannotKeep("it is no directory any more")
    found: list[_Entry] = []
    size_bytes = 0
    for top, directories, files, fd in os.fwalk(folder, follow_symlinks=False, onerror=_raise):
        directories.sort()
        for name in sorted([*directories, *files]):
            status = os.stat(name, dir_fd=fd, follow_symlinks=False)
            path = str(Path(top, name).relative_to(folder))
            kind = stat.S_IFMT(status.st_mode)
            target = os.readlink(name, dir_fd=fd) if kind == stat.S_IFLNK else ""
            if kind not in (stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK):
                raise CannotKeep(f"{path!r} is no file, directory or symbolic link: it would not come back")
            if kind == stat.S_IFREG and status.st_mode & (stat.S_ISUID | stat.S_ISGID):
                raise CannotKeep(f"{path!r} runs as its owner (setuid): it would not come back so")
            if target and not (_stays_within(path, target) and _leads_within(folder, folder / path)):
                raise CannotKeep(f"{path!r} links to {target!r}, out of its directory")
            if len(os.fsencode(path)) > LONGEST_PATH:
                raise CannotKeep(f"{path[:80]!r}...: a path of more than {LONGEST_PATH} bytes")
            size_bytes += status.st_size if kind == stat.S_IFREG else 0
            found.append(_Entry(path, status, target))
            if len(found) > MAX_ENTRIES:
                raise CannotKeep(f"more than {MAX_ENTRIES} entries")
            if size_bytes > most_bytes:
                raise CannotKeep(_too_large(size_bytes, most_bytes))
    return iter(sorted(found, key=_place))


def _place(entry: _Entry) -> tuple[bool, str]:
    is_large = stat.S_ISREG(entry.status.st_mode) and entry.status.st_size >= LARGE_BYTES
    return not is_large, entry.path


def _add(archive: tarfile.TarFile, folder: Path, entry: _Entry) -> None:
    member = tarfile.TarInfo(entry.path)
    member.mode = entry.status.st_mode & 0o777
    if entry.target:
        member.type, member.linkname = tarfile.SYMTYPE, entry.target
        archive.addfile(member)
    elif stat.S_ISDIR(entry.status.st_mode):
        member.type = tarfile.DIRTYPE
        archive.addfile(member)
    else:
        member.size, member.mtime = entry.status.st_size, int(entry.status.st_mtime)
        with _opened(folder, entry.path) as file:
            before = os.fstat(file.fileno())
            if not stat.S_ISREG(before.st_mode):
                raise CannotKeep(f"{entry.path!r} changed while it was read")
            archive.addfile(member, file)
            after = os.fstat(file.fileno())
        if any(_look(status) != _look(entry.status) for status in (before, after)):
            raise CannotKeep(f"{entry.path!r} changed while it was read")


def _look(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_ino, status.st_size, status.st_mtime_ns


def _opened(folder: Path, path: str) -> IO[bytes]:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    return os.fdopen(os.open(folder / path, flags), "rb")


def _write(source: IO[bytes], path: Path, member: tarfile.TarInfo) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
        left = member.size
        while left and (piece := source.read(min(left, _PIECE_BYTES))):
            file.write(piece)
            left -= len(piece)
        if left:
            raise StateMismatch(f"{member.name!r} is cut off")
        file.flush()
        os.fchmod(file.fileno(), member.mode & 0o777)
    os.utime(path, (member.mtime, member.mtime))


def _safe(name: str) -> str:
    """Return the name of a member, if it stays within. StateMismatch."""
    parts = name.split("/")
    if not name or name.startswith("/") or ".." in parts or "\0" in name or len(os.fsencode(name)) > LONGEST_PATH:
        raise StateMismatch(f"an entry of the name {name[:80]!r}")
    return name


def _stays_within(path: str, target: str) -> bool:
    """Return True if a relative link from there stays below the directory's top."""
    if not target or target.startswith("/") or "\0" in target:
        return False
    depth = path.count("/")
    for part in target.split("/"):
        depth += -1 if part == ".." else 1 if part not in ("", ".") else 0
        if depth < 0:
            return False
    return True


def _leads_within(folder: Path, link: Path) -> bool:
    """Return True if an existing link resolves to something in the folder, by way of other links too."""
    return Path(os.path.realpath(link)).is_relative_to(os.path.realpath(folder))


def _too_large(size_bytes: int, most_bytes: int) -> str:
    return f"{size_bytes} bytes, and at most {most_bytes} are allowed"


def _raise(error: OSError) -> None:
    raise error
