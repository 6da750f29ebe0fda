"""`python -m controller.openflow TOPOLOGY.json --listen ADDRESS:PORT --events FILE`: the controller as a process of its own."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from pathlib import Path

from controller.openflow.topology import read


def main() -> None:
    """Run until a signal ends it. Exit status 2: the topology cannot be read."""
    parser = argparse.ArgumentParser(prog="controller.openflow", description=__doc__)
    parser.add_argument("topology", type=Path)
    parser.add_argument("--listen", default="127.0.0.1:6653", metavar="ADDRESS:PORT")
    parser.add_argument("--events", type=Path, help="a line of JSON for all that happens is appended there")
    options = parser.parse_args()
    try:
        topology = read(options.topology.read_bytes(), str(options.topology))
    except (OSError, ValueError) as error:
        parser.exit(2, f"{error}\n")
    address, _, port = options.listen.rpartition(":")

    # os-ken chooses its kind of threads when it is imported; without a logger it swallows what handlers raise
    os.environ["OSKEN_HUB_TYPE"] = "native"
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    from os_ken import cfg
    from os_ken.base.app_manager import AppManager
    from os_ken.lib import hub

    from controller.openflow.app import FabricController

    cfg.CONF(
        ["--ofp-listen-host", address, "--ofp-tcp-listen-port", port],
        project="os_ken",
        version="reclaimnet",
        default_config_files=[],
    )
    events = options.events.open("a", buffering=1) if options.events else sys.stdout
    FabricController.topology = topology
    FabricController.tell = staticmethod(lambda line: events.write(line + "\n"))  # type: ignore[assignment]
    manager = AppManager.get_instance()
    manager.load_apps(["os_ken.controller.ofp_handler"])
    manager.applications_cls[FabricController.__module__] = FabricController
    contexts = manager.create_contexts()
    hub.joinall(manager.instantiate_apps(**contexts))


if __name__ == "__main__":
    main()
