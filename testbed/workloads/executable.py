"""A job that is any program: started, checkpointed, and started again from its checkpoints, in one of three ways.

*It checkpoints itself* (`SelfCheckpointing`), by the convention of `testbed.program`. A checkpoint is what is in its
checkpoint directory when it has exited with its checkpoint exit code: no process of it runs then, so nothing is half
written. It is packed into one file (`archive`), and the program is started again at once. It is asked by its signal,
once it has a handler for that: a program that has just begun is not killed by the question. It has the job's grace to
answer. A running copy that is not there by then has failed, and the program goes on. A final one has failed and the
program is killed. A program without a signal is not asked: the checkpoint is taken when it next exits so of itself.

*CRIU saves it* (`SavedFromOutside`): images of its processes, and its folder, are the checkpoint; it knows nothing of
that.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NoReturn

from testbed.bounds import most_checkpoint_bytes
from testbed.errors import RemoteProtocolError
from testbed.identity import signal_name
from testbed.program import Program
from testbed.workloads import criu
from testbed.workloads.archive import CannotKeep, ProgramProgress, digest, pack, unpack
from testbed.workloads.base import StateMismatch
from testbed.workloads.contained import Contained
from testbed.workloads.criu import SavedProgram
from testbed.workloads.link import RunnerLink
from testbed.workloads.messages import (
    Failed,
    Finished,
    Progress,
    Snapshot,
    SnapshotFailed,
    SnapshotTaken,
    Start,
    Started,
    Stop,
)

LOOK_S: Final = 0.05  # between two looks for a handler that is waited for
TELL_S: Final = 0.5  # between two looks at how far it is
MIN_RUN_S: Final = (
    1.0  # a program that checkpoints of itself is started again this long after its last start at the earliest
)
LAST_LINE_BYTES: Final = 2048
# the environment: where its state is, where it may write how many steps it has done, and what it is
CHECKPOINT_DIRECTORY, STEP_FILE = "RECLAIMNET_CHECKPOINT_DIRECTORY", "RECLAIMNET_STEP_FILE"
STEPS, JOB, ATTEMPT = "RECLAIMNET_STEPS", "RECLAIMNET_JOB", "RECLAIMNET_ATTEMPT"


class CannotRun(Exception):
    """A wrong end of the program, and why."""


class Asked:
    """An order for a checkpoint, until it is carried out."""

    def __init__(self, order: Snapshot, grace_s: float) -> None:
        self.order = order
        self.began_s = time.monotonic()
        self.until_s = self.began_s + grace_s
        self.signalled = False


class ProgramRunner(ABC):
    """An attempt of a program, from its start to its end."""

    _program: Contained | SavedProgram  # that runs, or has just ended

    def __init__(self, link: RunnerLink, start: Start, program: Program, kept: Path, step_file: Path) -> None:
        """Prepare the attempt. `kept`: what a checkpoint is packed from, and unpacked to."""
        self._link, self._order, self._job, self._given = link, start, start.job, program
        self._most_bytes = most_checkpoint_bytes(start.job.payload_bytes)
        self._kept, self._step_file = kept, step_file
        self._asked: Asked | None = None
        self._from = ProgramProgress(0, told=False)  # what it began with
        self._ran_s = 0.0  # before its present start, in this attempt
        self._started_s: float | None = None  # of the program that runs; None: none does
        self._step_now = 0
        self._has_told = False

    def run(self) -> None:
        """Run until it is finished, or ordered to stop. CannotRun, StateMismatch, OSError pass."""
        self._kept.mkdir(parents=True, exist_ok=True)
        if self._order.restore is not None:
            self._from = unpack(Path(self._order.restore), self._kept, self._most_bytes)
        self._step_now = self._from.step
        proof = self._proof()
        self._start()
        self._link.send(Started(self._from.step, proof))
        while True:
            order = self._link.receive(self._wait_s(), also=(self._program.fileno(),))
            if isinstance(order, Stop):
                self._end()
                return
            if isinstance(order, Snapshot):
                self._asked = Asked(order, self._job.grace_s)
            elif order is not None:
                raise RemoteProtocolError(f"not an order for a running job: {order!r}")
            if self._program.poll():
                if self._has_finished():
                    return
                self._start()
            elif self._asked is not None:
                self._answer(self._asked)
            self._tell()

    @abstractmethod
    def _start(self) -> None:
        """Start the program from what is kept."""

    @abstractmethod
    def _answer(self, asked: Asked) -> None:
        """Have a checkpoint of it while it runs."""

    def _end(self) -> None:
        """End when asked; the agent kills what is not gone in time."""
        self._program.kill()

    def _environment(self, directory: Path) -> Mapping[str, str]:
        """Return the environment: what the campus passes on, the job's own, and the attempt's variables."""
        told = {
            CHECKPOINT_DIRECTORY: str(directory),
            STEP_FILE: str(self._step_file),
            STEPS: str(self._job.steps),
            JOB: self._job.name,
            ATTEMPT: str(self._order.attempt),
        }
        return {**os.environ, **self._given.environment, **told}

    def _has_finished(self) -> bool:
        """Return True if the program has finished, False if it is to be started again. CannotRun."""
        ran_s = self._running_s()
        self._ran_s, self._started_s = self._ran_s + ran_s, None
        status = self._program.status
        if status == 0:
            if self._asked is not None:
                self._fail(self._asked, "it has finished")
            self._link.send(Finished(self._job.steps, self._proof()))
            return True
        if status == -signal.SIGKILL:
            _die("the program was killed from outside")
        self._check_end(ran_s)
        return False

    def _running_s(self) -> float:
        """Return the seconds since the program was started; 0 if none runs."""
        return 0.0 if self._started_s is None else time.monotonic() - self._started_s

    def _check_end(self, ran_s: float) -> None:
        """Check that a program that ended in another way, after so long, is to be started again. CannotRun: it is not."""
        raise CannotRun(f"it {_how(self._program.status)}{_last_line()}")

    def _proof(self) -> bytes:
        """Return the digest of its state; empty if that could be no checkpoint.

        That need not trouble a program that has finished.
        """
        try:
            return digest(self._kept, self._most_bytes)
        except (CannotKeep, OSError):
            return b""

    # ------------------------------------------------------------ checkpoints

    def _keep(self, asked: Asked) -> None:
        """Write the kept files as the checkpoint. CannotKeep, OSError: there is none."""
        began_s, path = time.monotonic(), Path(asked.order.path)
        pack(self._kept, path, ProgramProgress(self._step(), self._tells()), self._most_bytes)
        now_s = time.monotonic()
        taken = SnapshotTaken(asked.order.number, self._step(), now_s - asked.began_s, now_s - began_s)
        self._asked = None
        self._link.send(taken)

    def _fail(self, asked: Asked, reason: str) -> None:
        """Report to the agent, and in the job's log, that there is no checkpoint."""
        self._asked = None
        say(f"no checkpoint: {reason}")
        self._link.send(SnapshotFailed(asked.order.number, reason))

    def _wait_for_the_end(self) -> None:
        """Wait for the agent to end this process: nothing runs after a final checkpoint."""
        while True:
            self._link.receive(None)

    # ------------------------------------------------------------ how far it is

    def _tells(self) -> bool:
        """Return True if the program reports its steps; else the clock counts them."""
        return self._from.told or self._step_file.exists()

    def _step(self) -> int:
        """Return the steps done as far as known: never fewer than reported before, and fewer than all until it has finished."""
        if self._tells():
            if not self._has_told:  # what the clock counted until it reported one was a guess
                self._has_told, self._step_now = True, self._from.step
            step = self._read_step()
        else:
            step = self._from.step + int((self._ran_s + self._running_s()) * self._order.speed / self._job.step_s)
        self._step_now = max(self._step_now, min(step, self._job.steps - 1))
        return self._step_now

    def _read_step(self) -> int:
        try:
            # whatever the program put there
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            with os.fdopen(os.open(self._step_file, flags), "rb") as file:
                return int(file.read(32))
        except (OSError, ValueError):
            return 0

    def _tell(self) -> None:
        before = self._step_now
        if (step := self._step()) > before:
            self._link.send(Progress(step))

    def _wait_s(self) -> float:
        """Return the seconds until something is to be looked at."""
        return TELL_S


class SelfCheckpointing(ProgramRunner):
    """Programs with the convention: a signal, an exit code, a directory."""

    _program: Contained

    def __init__(self, link: RunnerLink, start: Start, program: Program) -> None:
        top = Path(start.folder)
        self._work = top / "work"
        self._signal = program.signal
        super().__init__(link, start, program, self._work / program.checkpoint_directory, top / "step")

    def _start(self) -> None:
        given = self._given
        here = Path(given.working_directory) if given.working_directory else self._work
        self._started_s = time.monotonic()
        self._program = Contained(given.command, self._environment(self._kept), here)

    def _end(self) -> None:
        self._program.send(signal.SIGTERM)
        while not self._program.poll():
            self._link.receive(LOOK_S, also=(self._program.fileno(),))

    def _check_end(self, ran_s: float) -> None:
        asked, program = self._asked, self._program
        if program.status == self._given.checkpoint_exit_code and not program.failure:
            if asked is None:
                time.sleep(max(0.0, MIN_RUN_S - ran_s))
                return
            try:
                self._keep(asked)
            except (CannotKeep, OSError) as error:
                self._fail(asked, str(error))
            if asked.order.final:
                self._wait_for_the_end()
            return
        if program.failure:
            raise CannotRun(f"it cannot be executed: {program.failure}")
        if asked is not None and asked.signalled:
            raise CannotRun(
                f"asked for a checkpoint by {self._signal and self._signal.name} it {_how(program.status)}, and not with its "
                f"checkpoint_exit_code {self._given.checkpoint_exit_code}{_last_line()}"
            )
        super()._check_end(ran_s)

    def _answer(self, asked: Asked) -> None:
        """Ask it, once it listens; give up when its time is over."""
        program = self._program
        if self._signal is None:
            return
        if not asked.signalled and program.catches(self._signal):
            asked.signalled, asked.until_s = True, time.monotonic() + self._job.grace_s
            program.send(self._signal)
        if time.monotonic() < asked.until_s:
            return
        if asked.order.final:
            program.kill()
        name, grace_s = self._signal.name, self._job.grace_s
        self._fail(
            asked,
            f"it has not checkpointed within its grace of {grace_s:g} s after {name}"
            if asked.signalled
            else f"it has no handler for {name}, by which it is asked for checkpoints",
        )
        if asked.order.final:
            self._wait_for_the_end()

    def _wait_s(self) -> float:
        if self._asked is None or self._signal is None:
            return TELL_S
        return max(0.0, min(LOOK_S, self._asked.until_s - time.monotonic()))


class SavedFromOutside(ProgramRunner):
    """Programs saved by CRIU: frozen while images are written and packed with the folder."""

    _program: SavedProgram

    def __init__(self, link: RunnerLink, start: Start, program: Program) -> None:
        try:
            self._criu = criu.command()
        except OSError as error:
            raise CannotRun(f"nothing here can checkpoint it: {error}") from error
        kept = Path(start.folder) / "kept"
        self._images, self._work = kept / "images", kept / "work"
        super().__init__(link, start, program, kept, criu.PLACE / "RECLAIMNET_STEP")

    def _start(self) -> None:
        self._work.mkdir(exist_ok=True)
        criu.mount(self._work)
        self._started_s = time.monotonic()
        if self._images.is_dir():
            self._program = SavedProgram.restore(self._criu, self._images)
            shutil.rmtree(self._images)
            return
        given = self._given
        here = Path(given.working_directory) if given.working_directory else criu.PLACE
        try:
            self._program = SavedProgram.start(given.command, self._environment(criu.PLACE), here)
        except OSError as error:
            words = f"{error.filename or given.command[0]}: {error.strerror}"
            raise CannotRun(f"it cannot be executed: {words}") from error

    def _answer(self, asked: Asked) -> None:
        program = self._program
        try:
            program.dump(self._criu, self._images)
            if asked.order.final:
                program.kill()
            self._keep(asked)
        except (CannotKeep, OSError) as error:
            self._fail(asked, str(error))
        if asked.order.final:
            program.kill()
            self._wait_for_the_end()
        program.go_on()
        shutil.rmtree(self._images, ignore_errors=True)


def run_program(link: RunnerLink, start: Start) -> None:
    """Run the whole attempt, and report its failure if it fails."""
    program = start.job.program
    assert program is not None
    kind = SavedFromOutside if program.checkpoint_by == "criu" else SelfCheckpointing
    try:
        kind(link, start, program).run()
    except (CannotRun, StateMismatch, OSError) as error:
        say(str(error))
        link.send(Failed(str(error)[:2000]))


def _die(why: str) -> NoReturn:
    """End this process as its program was ended: no fault of its own, and it goes on from its checkpoint."""
    say(why)
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("killed")


def say(text: str) -> None:
    """Write a line into the job's log that is not the program's."""
    os.write(2, f"[reclaimnet] {text}\n".encode(errors="replace"))


def _how(status: int | None) -> str:
    if status is None or status >= 0:
        return f"ended with exit code {status}"
    return f"was ended by {signal_name(-status)}"


def _last_line() -> str:
    """Return its last line of output, for the reason of its failure."""
    try:
        begin = max(0, os.fstat(2).st_size - LAST_LINE_BYTES)
        lines = [
            line for line in os.pread(2, LAST_LINE_BYTES, begin).decode(errors="replace").splitlines() if line.strip()
        ]
    except OSError:
        return ""
    return f"; its last line: {lines[-1].strip()[:300]}" if lines else ""
