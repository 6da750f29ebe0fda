"""An installed coordinator: a service of this machine, for a campus whose agents are installed as well.

`python -m experiments.worlds.live.installed`, by systemd. Its state folder has all that it needs: scenario, authority, journal.
"""

from __future__ import annotations

import secrets
import shutil
import socket
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import msgspec

from controller.numerics import jit
from controller.persistence.etcd import PREFIX, PROGRAM
from controller.process import CoordinatorConfig, run_coordinator
from controller.warm_up import compile_once
from experiments.inputs.scenario import Scenario, dumps, loads
from experiments.worlds.live.operator import JOURNAL, SOCKET
from experiments.worlds.live.world import authority_of, live_row
from testbed.emulation.safety.ledger import Ledger
from testbed.emulation.safety.living import INSTALLED, INSTALLED_COORDINATOR
from testbed.errors import SetupError
from testbed.installed.unit import Service
from testbed.trust.authority import Authority
from testbed.trust.channel import Credentials, Name, PartyRole
from topologies import reading
from topologies.errors import SpecError

SERVICE: Final = Service("coordinator")
AUTHORITY: Final = SERVICE.state / "authority.pem"


class InstalledCoordinator(msgspec.Struct):
    """File of an installed coordinator."""

    scenario: str  # in full
    secret: bytes  # key of transfers' numbers
    members: list[tuple[str, int]]  # of etcd, which holds the log; none: the journal is the log
    proof: list[bytes]  # for those: CA, certificate, key, in PEM


def install(described: Scenario, authority: Path, etcd: Sequence[str], proof: Sequence[Path]) -> None:
    """Make the service of a scenario's coordinator and start it; jobs and owners of the scenario do not come.

    SpecError, SetupError: nothing is installed, or it does not start, and all of it is there for a look.
    """
    scenario, members = described.played(), [_member(each) for each in etcd]
    _check(scenario, with_etcd=bool(etcd))
    SERVICE.check()
    read = [reading.read_text(file, "a PEM file").encode() for file in proof]
    named = replace(scenario, trust=replace(scenario.trust, authority=str(authority)))
    body = authority_of(named).read_bytes()
    compile_once()
    SERVICE.save(msgspec.json.encode(InstalledCoordinator(dumps(scenario), secrets.token_bytes(32), members, read)))
    if jit.FOLDER:
        shutil.copytree(jit.FOLDER, SERVICE.state / Path(jit.FOLDER).name)
    AUTHORITY.touch(mode=0o600)
    AUTHORITY.write_bytes(body)
    SERVICE.start()


def _member(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise SpecError("--etcd", text, "ADDRESS:PORT of a member, such as 10.1.0.9:2379")
    return host, int(port)


def _check(scenario: Scenario, *, with_etcd: bool) -> None:
    """Raise SpecError, SetupError unless it is one that this machine can coordinate."""
    live_row(scenario)
    campus, trust = scenario.campus, scenario.trust
    for host in campus.agents(head_stores=scenario.protocol.head_stores):
        if not host.own_agent:
            raise SpecError(f"hosts.{host.name}.own_agent", False, "true: an installed coordinator starts no agents")
    if trust.standby:
        raise SpecError("trust.standby", True, "false: installed agents know one coordinator")
    if trust.journal == "etcd" and not with_etcd:
        raise SpecError("--etcd", None, "needed: the scenario has trust.journal = etcd")
    with socket.socket() as here:
        try:
            here.bind((str(campus.coordinator.address), 0))
        except OSError as error:
            address = f"{campus.coordinator.address}, the address of {campus.coordinator.name}"
            raise SetupError(f"this machine does not have {address} in the campus: {error.strerror}") from error


def serve() -> None:
    """Coordinate until a signal comes."""
    kept, run = msgspec.json.decode(SERVICE.kept.read_bytes(), type=InstalledCoordinator), Path(INSTALLED_COORDINATOR)
    scenario, authority = loads(kept.scenario), Authority.load(AUTHORITY)
    campus, journal, log = scenario.campus, SERVICE.state / JOURNAL, None
    if kept.members:  # etcd looks at nothing of the name
        trusted, certificate, key = kept.proof
        log = Credentials(Name(PREFIX, PartyRole.COORDINATOR, PROGRAM), key, certificate, trusted)
    (run / JOURNAL).symlink_to(journal)
    Ledger(run, INSTALLED, name=campus.name, run_dir=str(run))
    config = CoordinatorConfig(
        campus,
        scenario.protocol,
        scenario.queue,
        scenario.seed,
        journal,
        run / SOCKET,
        str(campus.coordinator.address),
        secret=kept.secret,
        members=tuple(kept.members),
        log_credentials=log,
        credentials=authority.credentials(Name(authority.campus, PartyRole.COORDINATOR, campus.coordinator.name)),
        authority=AUTHORITY,
        is_service=True,
    )
    run_coordinator(config)


if __name__ == "__main__":
    serve()
