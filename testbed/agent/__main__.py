"""`python -m testbed.agent`: start one agent by hand, to debug one host.

    sudo nsenter --net=/proc/PID/ns/net .venv/bin/python -m testbed.agent h1 --address 10.1.0.1 --coordinator 10.3.0.1:7100 \\
        --directory /var/tmp/h1 --pins /sys/fs/bpf/reclaimnet/CAMPUS/h1

Without `--pins` there is no kill-switch, and nothing is counted or guarded in the kernel: rates are paced only.
"""

from __future__ import annotations

import argparse
from ipaddress import IPv4Address
from pathlib import Path

from testbed.agent.config import DATA_PORT, AgentConfig
from testbed.agent.host import run_agent
from testbed.enforcement import Enforcement


def main() -> None:
    """Parse, and run until interrupted."""
    parser = argparse.ArgumentParser(prog="python -m testbed.agent", description=__doc__.splitlines()[0])
    parser.add_argument("host", help="its name in the campus")
    parser.add_argument("--address", type=IPv4Address, required=True, help="its IPv4 address")
    parser.add_argument("--coordinator", type=_endpoint, required=True, metavar="ADDRESS:PORT")
    parser.add_argument("--directory", type=Path, required=True, help="for checkpoints and logs")
    parser.add_argument("--data-port", type=int, default=DATA_PORT)
    parser.add_argument("--gpus", type=int, default=1, help="of this host")
    parser.add_argument("--pins", type=Path, help="directory of the host's pinned BPF maps")
    parser.add_argument("--owner-socket", type=Path, help="where the owner's datagrams arrive")
    parser.add_argument(
        "--enforcement", type=Enforcement, choices=list(Enforcement), default=Enforcement.PACE
    )
    parser.add_argument("--congestion", default="bbr", help="TCP congestion control of transfers")
    given = parser.parse_args()
    config = AgentConfig(
        given.host,
        given.address,
        given.coordinator,
        given.directory,
        data_port=given.data_port,
        gpus=given.gpus,
        pin_dir=given.pins,
        owner_socket=given.owner_socket,
        enforcement=given.enforcement,
        congestion=given.congestion,
    )
    try:
        run_agent(config)
    except KeyboardInterrupt:
        parser.exit(130, "interrupted\n")


def _endpoint(text: str) -> tuple[str, int]:
    address, colon, port = text.rpartition(":")
    if not colon or not port.isdigit() or not 0 < int(port) < 65536:
        raise argparse.ArgumentTypeError(f"{text!r}: ADDRESS:PORT, such as 10.0.0.1:7100")
    return address, int(port)


if __name__ == "__main__":
    main()
