"""`python -m controller`: start a coordinator by hand, to debug one; on a journal that exists, it goes on with it.

.venv/bin/python -m controller CAMPUS.toml --listen 10.3.0.1:7100 --journal /tmp/journal.sqlite --operator /tmp/coordinator.sock
"""

from __future__ import annotations

import argparse
from pathlib import Path

from controller.core.parameters import Protocol, Queue
from controller.host import AGENT_PORT
from controller.process import CoordinatorConfig, run_coordinator
from controller.user_policies import find_policy
from testbed.errors import SetupError
from topologies.errors import SpecError
from topologies.files import load


def main() -> None:
    """Parse, and run until interrupted."""
    parser = argparse.ArgumentParser(prog="python -m controller", description=__doc__.splitlines()[0])
    parser.add_argument("campus", help="a campus file (TOML), or example:NAME")
    parser.add_argument(
        "--listen", help="ADDRESS[:PORT] for agents; default: the coordinator's of the campus"
    )
    parser.add_argument(
        "--journal",
        type=Path,
        required=True,
        help="SQLite file; created if missing, gone on with if it holds a run",
    )
    parser.add_argument("--operator", type=Path, required=True, help="UNIX socket for operators")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--policy", default="reclaimnet", help="a system whose jobs run once, or module:NAME of your own"
    )
    given = parser.parse_args()
    try:
        campus = load(given.campus)
        if find_policy(given.policy, "--policy").replication is not None:
            raise SpecError("--policy", given.policy, "a system whose jobs run once")
    except SpecError as error:
        parser.exit(2, f"{parser.prog}: {error}\n")
    address, _, port = (given.listen or str(campus.coordinator.address)).partition(":")
    config = CoordinatorConfig(
        campus,
        Protocol(policy=given.policy, paths=1, lease_s=3.0),  # heartbeats come every second
        Queue(),
        given.seed,
        given.journal,
        given.operator,
        address,
        int(port or AGENT_PORT),
    )
    try:
        run_coordinator(config)
    except SetupError as error:
        parser.exit(2, f"{parser.prog}: {error}\n")


if __name__ == "__main__":
    main()
