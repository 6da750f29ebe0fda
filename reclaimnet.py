"""The program, as `reclaimnet` or `python -m reclaimnet`: standard streams and packages are checked before it begins."""

import os
import sys

PACKAGES = ("bpf", "controller", "experiments", "testbed", "topologies")


def main() -> None:
    """Open the standard streams that are closed, ensure that the project's packages are the first on the path, and begin."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:  # else the next file that is opened would be what is printed to
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    sys.stdin, sys.stdout, sys.stderr = sys.stdin or open(0), sys.stdout or open(1, "w"), sys.stderr or open(2, "w")
    sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]
    for name in PACKAGES:
        found = os.path.dirname(os.path.abspath(__import__(name).__file__ or ""))
        if os.path.dirname(found) != os.path.dirname(os.path.abspath(__file__)):
            print(f"reclaimnet: another package named {name} comes first on Python's path: {found}", file=sys.stderr)
            sys.exit(2)
    from experiments.cli.start import main as begin

    begin()


if __name__ == "__main__":
    main()
