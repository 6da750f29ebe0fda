"""Where the program starts. An owner who wants the machine back waits for nothing that the store into the kernel does not need:
a plain `reclaim` or `return` goes past the command line of `main`, whose imports take longer than the rest. All other words,
mistakes and `--help` among them, are the command line's."""

from __future__ import annotations

import sys


def main() -> None:
    """Entry point; the exit status is one of `experiments.runtime.ending`."""
    if sys.argv[1:2] in (["reclaim"], ["return"]):
        from experiments.cli import owner

        wish = owner.read_plain(sys.argv[1:])
        if wish is not None:
            try:
                print(wish(), flush=True)
            except BaseException as error:  # noqa: BLE001 - the edge of the program
                from experiments.runtime import ending

                sys.exit(ending.report(error))
            return
    from experiments.cli import main as command_line

    command_line.main()
