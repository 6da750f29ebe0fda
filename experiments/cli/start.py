"""Start of the program.

A plain `reclaim` or `return` goes past the command line of `main`, whose imports take longer than all the rest: a host
is closed before anything is imported that the store into the kernel does not need. Other words, mistakes and `--help`
among them, are the command line's.
"""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Entry point; the exit status is one of `experiments.runtime.exit_status`."""
    try:
        if sys.argv[1:2] in (["reclaim"], ["return"]):
            from experiments.cli import owner

            act = owner.read_plain(sys.argv[1:])
            if act is not None:
                print(act(), flush=True)
                return
        if sys.flags.no_site:
            # begun without what the machine's site-packages bring, which the command line needs; an interrupt waits for it
            import signal

            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
            os.execv(sys.executable, [sys.executable, *sys.argv])
        from experiments.cli import main as command_line
    except BaseException as error:  # noqa: BLE001 - the edge of the program
        from experiments.runtime import exit_status

        sys.exit(exit_status.report(error))
    command_line.main()
