"""Any program at all as a job: CRIU writes its processes to files, and brings them back on another host.

    starter ── program (process 1 of a namespace of its own) ── whatever it starts

The program knows nothing of checkpoints. For each, its whole namespace is stopped, its memory and descriptors are written
(`criu dump`), its folder is packed beside them, and it goes on. On the next host it continues in the middle of what it did (`criu
restore`), with the same process ids, the same folder and the same environment. So that the folder has the same path everywhere,
it is mounted at `PLACE` in a mount namespace of the starter. What it says goes to the log of the present attempt.

What CRIU cannot save (a GPU, a socket file in its folder) is no checkpoint, and the reason is said; TCP connections are
closed. An image is code: who may write one decides what the next host runs. CRIU: https://criu.org; new kernels need 4.0.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from testbed.workloads.archive import CannotKeep
from testbed.workloads.base import StateMismatch

COMMAND: Final = "RECLAIMNET_CRIU"  # environment: which `criu`, if not that of PATH
PLACE: Final = Path("/media")  # a folder that is there, and that nothing here uses
LONGEST_S: Final = 600.0  # for one image
_LOG_OF: Final = "output"  # beside the images: where the output went
_CLONE_NEWNS, _CLONE_NEWPID = 0x20000, 0x20000000
_MS_BIND, _MS_REC, _MS_PRIVATE = 0x1000, 0x4000, 0x40000
_PR_SET_PDEATHSIG: Final = 1
_LIBC: Final = ctypes.CDLL(None, use_errno=True)


def command() -> str:
    """Where CRIU is. OSError: it is not there, or cannot work on this machine, and why."""
    found = os.environ.get(COMMAND) or shutil.which(
        "criu", path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
    )
    if not found:
        raise FileNotFoundError("no criu: apt-get install criu (4.0 or newer)")
    checked = subprocess.run([found, "check"], capture_output=True, text=True, timeout=60, check=False)
    if checked.returncode != 0:
        raise OSError(f"{found} check: {_errors(checked.stderr) or 'it cannot work here'}")
    return found


def version(criu: str) -> str:
    """Of that command."""
    said = subprocess.run([criu, "--version"], capture_output=True, text=True, timeout=60, check=False).stdout
    return said.partition("\n")[0].removeprefix("Version:").strip()


def mount(folder: Path) -> None:
    """From now on `PLACE` is this folder, for this process and its children. OSError."""
    if folder.is_relative_to(PLACE):
        raise OSError(
            f"programs saved by CRIU see their folder as {PLACE}, so a campus cannot keep its files below it: {folder}"
        )
    _call(_LIBC.unshare(_CLONE_NEWNS), "a mount namespace")
    _call(_LIBC.mount(None, b"/", None, _MS_REC | _MS_PRIVATE, None), "private mounts")
    _call(_LIBC.mount(os.fsencode(folder), os.fsencode(PLACE), None, _MS_BIND, None), str(PLACE))


def _output() -> int:
    """This process's output, opened anew: CRIU cannot tell what was opened before `mount`, in another namespace."""
    return os.open(_log(), os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)


def _log() -> Path:
    return Path("/proc/self/fd/1").readlink()


class SavedProgram:
    """A program that runs in `PLACE`, its output this process's. `fileno()` is readable once it is over."""

    def __init__(self, pid: int) -> None:
        self.status: int | None = None  # once it is over: its exit status, or minus the signal that ended it
        self._pid, self._pidfd = pid, os.pidfd_open(pid)

    @classmethod
    def start(cls, argv: Sequence[str], environment: Mapping[str, str], folder: Path) -> SavedProgram:
        """Starts it. OSError: it cannot be executed, or has no namespace."""
        home, output = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC), _output()
        try:
            _call(_LIBC.unshare(_CLONE_NEWPID), "a process-ID namespace")
            try:
                started = subprocess.Popen(
                    argv,
                    env=dict(environment),
                    cwd=folder,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                    preexec_fn=_end_with_parent,
                )
            finally:
                _LIBC.setns(home, _CLONE_NEWPID)  # of the children to come
        finally:
            os.close(home)
            os.close(output)
        started.returncode = 0  # it is waited for here
        return cls(started.pid)

    @classmethod
    def restore(cls, criu: str, images: Path) -> SavedProgram:
        """Goes on with what `dump` wrote there. StateMismatch: that cannot be brought back, and why."""
        pid_file, log = images / "pid", images / "restore.log"
        output = (images / _LOG_OF).read_text().lstrip("/")
        own = _output()
        try:
            words = [
                criu,
                "restore",
                "-D",
                str(images),
                "-o",
                log.name,
                "-v1",
                "-d",
                "-S",
                "--tcp-close",
                "--file-locks",
            ]
            words += ["--pidfile", str(pid_file), "--inherit-fd", f"fd[{own}]:{output}"]
            done = subprocess.run(
                words, pass_fds=(own,), stdin=subprocess.DEVNULL, timeout=LONGEST_S, check=False
            )
        finally:
            os.close(own)
        if done.returncode != 0:
            raise StateMismatch(f"criu cannot restore it: {_errors(log.read_text(errors='replace'))}")
        return cls(int(pid_file.read_text()))

    def dump(self, criu: str, images: Path) -> None:
        """Writes it into a new folder. It stands still then, until `go_on`. CannotKeep: it goes on, and there is no image."""
        images.mkdir()
        words = [criu, "dump", "-t", str(self._pid), "-D", str(images), "-o", "dump.log", "-v1"]
        words += ["--leave-stopped", "--tcp-close", "--file-locks"]
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, timeout=LONGEST_S, check=False
        )
        if done.returncode != 0:
            self.go_on()
            raise CannotKeep(
                f"criu cannot save it: {_errors((images / 'dump.log').read_text(errors='replace'))}"
            )
        (images / _LOG_OF).write_text(str(_log()))

    def go_on(self) -> None:
        """All of it runs again."""
        stopped = [self._pid]
        while stopped:
            pid = stopped.pop()
            with suppress(OSError):  # it has gone
                os.kill(pid, signal.SIGCONT)
                for thread in Path(f"/proc/{pid}/task").iterdir():
                    stopped += map(int, (thread / "children").read_text().split())

    def fileno(self) -> int:
        """For select."""
        return self._pidfd

    def poll(self) -> bool:
        """Whether it is over: nothing of it runs any more."""
        return self.status is not None or self._wait(os.WNOHANG)

    def kill(self) -> None:
        """SIGKILL to all of it, and until it is gone."""
        if self.status is None:
            os.kill(self._pid, signal.SIGKILL)
            self._wait(0)

    def _wait(self, options: int) -> bool:
        pid, how = os.waitpid(self._pid, options)
        if pid:
            self.status = os.waitstatus_to_exitcode(how)
        return pid != 0


def _end_with_parent() -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _call(result: int, what: str) -> None:
    if result != 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")


def _errors(log: str) -> str:
    """What CRIU says of its failure: its first error, which later ones follow from."""
    lines = [line.partition("Error ")[2] for line in log.splitlines() if "Error " in line]
    return next((line.partition(": ")[2].strip() for line in lines if "RLIMIT_NOFILE" not in line), "")[:300]
