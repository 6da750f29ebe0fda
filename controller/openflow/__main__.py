"""`python -m controller.openflow TOPOLOGY.json --listen ADDRESS:PORT --events FILE`: the controller as a process of its own."""

from __future__ import annotations

import argparse
import gc
import sys
from pathlib import Path

from controller.openflow import runner
from topologies.openflow import read


def main() -> None:
    """Run until a signal ends it. Exit status 2: the topology cannot be read."""
    parser = argparse.ArgumentParser(prog="controller.openflow", description=__doc__)
    parser.add_argument("topology", type=Path)
    parser.add_argument("--listen", default="127.0.0.1:6653", metavar="ADDRESS:PORT")
    parser.add_argument("--socket", type=Path, help="UNIX socket of clients (`topologies.openflow`)")
    parser.add_argument("--control", type=Path, help="control socket of the switch daemon")
    parser.add_argument("--events", type=Path, help="a line of JSON for all that happens is appended there")
    options = parser.parse_args()
    try:
        topology = read(options.topology.read_bytes(), str(options.topology))
    except (OSError, ValueError) as error:
        parser.exit(2, f"{error}\n")
    runner.prepare()
    gc.disable()  # a seventh of the time that the import takes, which bring-up waits for
    from controller.openflow.app import FabricController

    gc.enable()
    events = options.events.open("a", buffering=1, encoding="utf-8") if options.events else sys.stdout
    FabricController.topology = topology
    FabricController.socket, FabricController.control = options.socket, options.control
    FabricController.tell = staticmethod(lambda line: events.write(line + "\n"))
    runner.run(FabricController, options.listen)


if __name__ == "__main__":
    main()
