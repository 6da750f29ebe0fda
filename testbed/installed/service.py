"""Installing an agent as a service, and taking it away again until nothing of it is left."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path
from typing import Final

from bpf.build import built
from bpf.objects import ensure_bpffs
from testbed import control_groups
from testbed.emulation.safety.living import INSTALLED_PINS
from testbed.errors import SetupError
from testbed.installed import edge, machine
from testbed.installed.agent import SERVICE, Lent, load
from testbed.workloads.sandbox import lacks

NEEDED: Final = {"tc": "iproute2", "nft": "nftables", "busctl": "systemd"}  # program, and its package


def check() -> None:
    """Raise SetupError unless an agent can be installed here."""
    SERVICE.check()
    if missing := [package for program, package in NEEDED.items() if shutil.which(program) is None]:
        raise SetupError(f"missing; mend it with: apt-get install {' '.join(missing)}")
    if lacking := {part: why for part, why in lacks().items() if part != "groups"}:
        raise SetupError("; ".join(f"no {part} for the sandbox of jobs: {why}" for part, why in lacking.items()))
    edge.unified()
    ensure_bpffs()
    for name in ("edge", "guests"):
        built(name)


def install(lent: Lent) -> None:
    """Make the service and start it. SetupError: it does not start, and all of it is there for a look."""
    lent.save()
    SERVICE.start()


def uninstall() -> None:
    """Stop the service, and remove all that it and `install` have made. SetupError: there is none."""
    SERVICE.stop()
    with suppress(OSError, SetupError):  # it was never whole, or the way is gone and with it the interface
        edge.let_go(machine.way_to(load().address).interface)
    edge.open_fence()
    for folder in control_groups.folders(f"system.slice/{SERVICE.unit}"):
        control_groups.remove(folder)
    shutil.rmtree(INSTALLED_PINS, ignore_errors=True)
    SERVICE.forget()
    with suppress(OSError):  # campuses have pins there
        Path(INSTALLED_PINS).parent.rmdir()
