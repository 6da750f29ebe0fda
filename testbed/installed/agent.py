"""The process of the service: an agent in the machine's own network, which looks whether the machine's owner is there.

`python -m testbed.installed.agent`, by systemd, with what it keeps as the credential `agent`.
"""

from __future__ import annotations

import os
from contextlib import suppress
from functools import partial
from ipaddress import IPv4Address
from math import inf
from pathlib import Path
from typing import Final

import msgspec
import trio

from bpf.layout import Mode
from testbed import owner
from testbed.agent.config import AgentConfig
from testbed.agent.host import AgentHost, watch
from testbed.driver import run_process
from testbed.emulation.safety.living import INSTALLED_PINS, INSTALLED_RUN
from testbed.errors import SetupError
from testbed.installed import edge, machine
from testbed.installed.unit import Service, keep_notified
from testbed.logs import logger
from testbed.namespaces import OWN_NETWORK
from testbed.peers import Occasions
from testbed.trust.channel import Credentials
from testbed.trust.joining import name_in
from testbed.workloads.launch import ForkServer

SERVICE: Final = Service("agent")
# when the switch was set for a sign of its owner: who sets it after did so by hand
BY_PRESENCE: Final = SERVICE.state / "taken"
LOOK_S: Final = 2.0
LOG = logger("agent")


class Lent(msgspec.Struct, kw_only=True):
    """File of an installed agent; the host's name is in its certificate."""

    address: str  # the coordinator's
    key: bytes
    certificate: bytes
    trusted: bytes
    port: int  # the coordinator's, for agents
    gpus: int = 1
    share_bytes_per_s: float | None = None  # that transfers may take of the interface; None: what is granted
    notice_s: float = 0.0  # from a sign of the owner until guests are closed off

    @property
    def credentials(self) -> Credentials:
        """The credentials, of the name in the certificate."""
        return Credentials(name_in(self.certificate), self.key, self.certificate, self.trusted)

    @property
    def host(self) -> str:
        """The host's name in the campus."""
        return self.credentials.name.subject

    @property
    def pins(self) -> Path:
        """The folder of its pinned maps."""
        return Path(INSTALLED_PINS, self.host)

    def save(self) -> None:
        """Write it to its file: all of it, or nothing."""
        SERVICE.save(msgspec.json.encode(self))

    def keep(self, credentials: Credentials) -> None:
        """Save other credentials; on a full disk the last ones stay, which are good for half their life yet."""
        self.key, self.certificate = credentials.key, credentials.certificate
        self.trusted = credentials.trusted
        try:
            self.save()
        except OSError as error:
            LOG.warning("other credentials are not saved: %s", error)


def load(path: Path = SERVICE.kept) -> Lent:
    """Return what an agent keeps. OSError: there is none."""
    return msgspec.json.decode(path.read_bytes(), type=Lent)


async def serve(lent: Lent) -> None:
    """Serve until this process is killed."""
    way, group = machine.way_to(lent.address), edge.enter_group()
    edge.hold(group, way.interface, lent.pins, lent.address)
    edge.fence(lent.address, lent.port)
    config = AgentConfig(
        lent.host,
        IPv4Address(way.source),
        (lent.address, lent.port),
        SERVICE.state,
        gpus=lent.gpus,
        pin_dir=lent.pins,
        owner_socket=Path(INSTALLED_RUN, f"{lent.host}.sock"),
        migration_share_bytes_per_s=inf if lent.share_bytes_per_s is None else lent.share_bytes_per_s,
        checkpoints_apart=True,
        credentials=lent.credentials,
        keep=lent.keep,
        takes_open_jobs=False,
        transfers="sealed",
        group=f"{group}/jobs/{lent.host}",
    )
    with ForkServer() as forks:
        host = AgentHost(config, OWN_NETWORK, forks)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch, [host])
            await nursery.start(host.run)
            nursery.start_soon(follow_owner, lent.pins / "switch", lent.notice_s)
            await keep_notified()


async def follow_owner(switch: Path, notice_s: float) -> None:
    """Reclaim the host when its owner comes, and lend it when the owner has left, for ever: by the owner's own switch.

    What the owner has set by hand stays as it is. An owner who cannot be seen has neither come nor left.
    """
    was_there, taken, occasions = False, "", Occasions(LOG)
    with suppress(OSError):  # it never took the host
        taken = BY_PRESENCE.read_text()
    one = trio.CapacityLimiter(1)  # thread: NVML may never answer
    while True:
        try:
            with trio.fail_after(2.0 * machine.ANSWER_S):
                signs = await trio.to_thread.run_sync(machine.presence, abandon_on_cancel=True, limiter=one)
        except (SetupError, trio.TooSlowError) as error:
            occasions.warn("look", f"the owner cannot be seen: {error!r}")
        else:
            set_now = owner.look(switch)
            if signs and set_now.mode is Mode.OFF and not was_there:
                LOG.warning("the owner is there: %s", ", ".join(signs))
                owner.reclaim(switch, None, notice_s=notice_s)
                taken = str(owner.look(switch).set_at_ns)
                try:
                    BY_PRESENCE.write_text(taken)
                except OSError as error:  # so the next agent takes it for the owner's hand, and leaves it closed
                    occasions.warn("file", f"it is not noted that the owner is there: {error}")
            elif not signs and taken == str(set_now.set_at_ns):
                LOG.warning("the owner has left")
                owner.lend(switch, None)
            was_there = bool(signs)
        await trio.sleep(LOOK_S)


if __name__ == "__main__":
    run_process(partial(serve, load(Path(os.environ["CREDENTIALS_DIRECTORY"], "agent"))))
