"""An executable as a job: after HTCondor's convention for programs that checkpoint themselves, or any, saved by CRIU.

The program keeps its state in a directory of its own. Asked by a signal, or of itself, it writes that, and exits with a code that
means "I have checkpointed, start me again"; it is started again with the same command, and finds its state there or nothing.
Exit code 0: the job is finished. Any other end: it has failed. (HTCondor manual, "Self-Checkpointing Applications":
`checkpoint_exit_code`, `+WantCheckpointSignal`, `+CheckpointSig`.)
"""

from __future__ import annotations

import signal
from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

from topologies import keys

# a command line and an environment that a kernel takes (128 KiB a string, ARG_MAX in all), in a message of some 100 kB
Word = Annotated[str, Meta(max_length=4096, pattern=r"^[^\0]*\Z")]
Variable = Annotated[str, Meta(min_length=1, max_length=256, pattern=r"^[A-Za-z_][A-Za-z0-9_]*\Z")]
MAX_WORDS: Final = 256
WORDS: Final = f"at most {MAX_WORDS} texts of at most 4096 characters, without NUL"
CHECKPOINT_EXIT_CODE: Final = 85  # what HTCondor's manual proposes
GRACE_S: Final = 10.0  # if its job sets no other: a state of some hundred MB is on disk then
NO_SIGNAL: Final = "none"
# SIGKILL and SIGSTOP cannot be caught
SIGNALS: Final = ("SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1", "SIGUSR2")
_COMMAND: Final = keys.texts("a program and its arguments", repeats=True)
WITHIN: Final = "a relative path without `..`"


class Program(Struct, frozen=True, forbid_unknown_fields=True):
    """The command, and how it checkpoints. What has a kind is a key of job files."""

    # the program, found by `PATH` or, with a slash, from the folder of this file, and its arguments
    command: Annotated[list[Word], Meta(min_length=1, max_length=MAX_WORDS), _COMMAND]
    # where it runs; if left out, in a new folder of each attempt, which is gone with it
    working_directory: Annotated[Word, keys.text("a folder")] = ""
    # `itself`, by the convention below; `criu`: from outside, and the other `checkpoint_` keys are not used
    checkpoint_by: Annotated[Literal["itself", "criu"], keys.choice(("itself", "criu"))] = "itself"
    # in that new folder, where its state is; the program is told in `RECLAIMNET_CHECKPOINT_DIRECTORY`
    checkpoint_directory: Annotated[str, Meta(min_length=1, max_length=255), keys.text(WITHIN)] = "checkpoint"
    # asks it for a checkpoint; `none`: it takes them of itself
    checkpoint_signal: Annotated[str, keys.choice((*SIGNALS, NO_SIGNAL))] = "SIGTERM"
    # with which it exits when it has checkpointed, to be started again
    checkpoint_exit_code: Annotated[int, Meta(ge=1, le=255), keys.whole(1, 255)] = CHECKPOINT_EXIT_CODE
    environment: Annotated[dict[Variable, Word], Meta(max_length=MAX_WORDS)] = {}

    @property
    def signal(self) -> signal.Signals | None:
        """The signal that asks it for a checkpoint."""
        return None if self.checkpoint_signal == NO_SIGNAL else signal.Signals[self.checkpoint_signal]


def is_within(path: str) -> bool:
    """Return True if it is WITHIN."""
    parts = path.split("/")
    return "\0" not in path and ".." not in parts and "" not in parts


def wrong(program: Program) -> tuple[str, object, str] | None:
    """Return (key, value, allowed) of the first value that no agent can run; None: there is none."""
    if not program.command[0]:
        return "command", program.command, "a program and its arguments"
    if program.working_directory and not program.working_directory.startswith("/"):
        return "working_directory", program.working_directory, "an absolute path"
    if not is_within(program.checkpoint_directory):
        return "checkpoint_directory", program.checkpoint_directory, WITHIN
    if program.checkpoint_signal not in (*SIGNALS, NO_SIGNAL):
        return "checkpoint_signal", program.checkpoint_signal, f"one of {', '.join((*SIGNALS, NO_SIGNAL))}"
    return None
