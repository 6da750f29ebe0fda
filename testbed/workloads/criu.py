"""A program that checkpoints nothing, as a job: CRIU writes its processes to files, and brings them back on another host.

    starter ── program (process 1 of a namespace of its own) ── whatever it starts

For each checkpoint the program's whole namespace is stopped. Its memory and descriptors are written (`criu dump`), its
folder is packed beside them, and it goes on. On the next host it continues in the middle of what it did (`criu
restore`). Process ids, folder and environment are the same. So that the folder has the same path everywhere, it is
mounted at `PLACE` in a mount namespace of the starter. Its output goes to the log of the present attempt.

What CRIU cannot save (a GPU, a socket file in its folder) is no checkpoint, and the reason is reported; TCP connections
are closed. An image is code: its writer decides what the next host runs. CRIU: https://criu.org; new kernels need 4.0.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

from testbed import linux
from testbed.workloads.archive import CannotKeep
from testbed.workloads.base import StateMismatch

COMMAND: Final = "RECLAIMNET_CRIU"  # environment: which `criu`, if not that of PATH
PLACE: Final = Path("/media")  # a folder that is there, and that nothing here uses
LONGEST_S: Final = 600.0  # for one image
_LOG_OF: Final = "output"  # beside the images: where the output went


def command() -> str:
    """Return CRIU's path. OSError: it is not installed, or cannot work on this machine, and the reason."""
    found = os.environ.get(COMMAND) or linux.find_program("criu")
    if not found:
        raise FileNotFoundError("no criu: apt-get install criu (4.0 or newer)")
    checked = _run([found, "check"])
    if checked.returncode != 0:
        raise OSError(f"{found} check: {_error(checked.stderr) or 'it cannot work here'}")
    return found


def version(criu: str) -> str:
    """Return the version of that command. OSError."""
    return _run([criu, "--version"]).stdout.partition("\n")[0].removeprefix("Version:").strip()


def mount(folder: Path) -> None:
    """Make `PLACE` this folder, for this process and its children. OSError."""
    if folder.is_relative_to(PLACE):
        raise OSError(
            f"programs saved by CRIU see their folder as {PLACE}, so a campus cannot keep its files below it: {folder}"
        )
    linux.unshare(linux.CLONE_NEWNS)
    linux.mount(None, b"/", linux.MS_REC | linux.MS_PRIVATE)
    linux.mount(os.fsencode(folder), os.fsencode(PLACE), linux.MS_BIND)


class SavedProgram:
    """A program that runs in `PLACE`, its output this process's. `fileno()` is readable once it is over."""

    def __init__(self, pid: int) -> None:
        self.status: int | None = None  # once it is over: its exit status, or minus the signal that ended it
        self._pid, self._pidfd = pid, os.pidfd_open(pid)

    @classmethod
    def start(cls, argv: Sequence[str], environment: Mapping[str, str], folder: Path) -> SavedProgram:
        """Start it. OSError: it cannot be executed, or has no namespace."""
        with _output() as output, linux.first_child_apart() as is_apart:
            if not is_apart:
                raise PermissionError("a process-ID namespace needs CAP_SYS_ADMIN")
            started = subprocess.Popen(
                argv,
                env=dict(environment),
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                preexec_fn=linux.end_with_parent,
            )
        started.returncode = 0  # not Popen waits for it, but this object
        return cls(started.pid)

    @classmethod
    def restore(cls, criu: str, images: Path) -> SavedProgram:
        """Go on with what `dump` wrote there. StateMismatch: that cannot be brought back, and why."""
        pid_file = images / "pid"
        before = (images / _LOG_OF).read_text().lstrip("/")
        with _output() as output:
            # detached, as a child of this process; what it had open as its output is the present one
            words = [criu, "restore", "-d", "-S", "--pidfile", str(pid_file)]
            words += ["--inherit-fd", f"fd[{output.fileno()}]:{before}"]
            if why := _failure(words, images, pass_fds=(output.fileno(),)):
                raise StateMismatch(f"criu cannot restore it: {why}")
        return cls(int(pid_file.read_text()))

    def dump(self, criu: str, images: Path) -> None:
        """Write it into a new folder. It stands still from then on, until `go_on`. CannotKeep: there is no image."""
        images.mkdir()
        if why := _failure([criu, "dump", "-t", str(self._pid), "--leave-stopped"], images):
            raise CannotKeep(f"criu cannot save it: {why}")
        (images / _LOG_OF).write_text(str(_log()))

    def go_on(self) -> None:
        """Let every process of it run again."""
        stopped = [self._pid]
        while stopped:
            pid = stopped.pop()
            with suppress(OSError):  # it has gone
                os.kill(pid, signal.SIGCONT)
                stopped += linux.children_of(pid)

    def fileno(self) -> int:
        """Return the descriptor to select."""
        return self._pidfd

    def poll(self) -> bool:
        """Return True if it is over: none of its processes runs any more."""
        return self.status is not None or self._wait(os.WNOHANG)

    def kill(self) -> None:
        """Send SIGKILL to all of it, and wait until it is gone."""
        if self.status is None:
            os.kill(self._pid, signal.SIGKILL)
            self._wait(0)

    def _wait(self, options: int) -> bool:
        pid, how = os.waitpid(self._pid, options)
        if pid:
            self.status = os.waitstatus_to_exitcode(how)
        return pid != 0


def _log() -> Path:
    return Path("/proc/self/fd/1").readlink()


def _output() -> IO[bytes]:
    """Return this process's output, reopened: CRIU cannot identify a file opened in another namespace, before `mount`."""
    return _log().open("ab", buffering=0)


def _failure(words: Sequence[str], images: Path, pass_fds: Sequence[int] = ()) -> str:
    """Return the reason why CRIU failed with these images; "" if it succeeded. OSError: it cannot be run."""
    log = images / f"{words[1]}.log"
    words = [*words, "-D", str(images), "-o", log.name, "-v1", "--tcp-close", "--file-locks"]
    done = _run(words, pass_fds)
    if done.returncode == 0:
        return ""
    said = log.read_text(errors="replace") if log.exists() else done.stderr
    return _error(said) or f"exit {done.returncode}"


def _run(words: Sequence[str], pass_fds: Sequence[int] = ()) -> subprocess.CompletedProcess[str]:
    """Run a command that ends by itself. OSError: it cannot be executed, or does not end."""
    try:
        return subprocess.run(
            words,
            pass_fds=pass_fds,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=LONGEST_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise TimeoutError(f"{words[0]} {words[1]} has not ended within {LONGEST_S:g} s") from error


def _error(log: str) -> str:
    """Return CRIU's first error, which later ones follow from."""
    lines = [line.partition("Error ")[2] for line in log.splitlines() if "Error " in line]
    return next((line.partition(": ")[2].strip() for line in lines if "RLIMIT_NOFILE" not in line), "")[:300]
