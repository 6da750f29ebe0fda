"""Installing an agent as a service, and taking it away again until nothing of it is left."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

from bpf.build import built
from bpf.objects import ensure_bpffs
from testbed import control_groups
from testbed.emulation.safety.living import INSTALLED_PINS
from testbed.errors import SetupError
from testbed.installed import edge, machine
from testbed.installed.agent import KEPT, STATE, Lent, load
from testbed.own_programs import ROOT

UNIT: Final = "reclaimnet-agent.service"
UNIT_FILE: Final = Path("/etc/systemd/system", UNIT)
NEEDED: Final = {"tc": "iproute2", "nft": "nftables", "busctl": "systemd"}  # program, and its package
# out of the service's sight (ProtectHome, PrivateTmp)
HIDDEN: Final = ("/home", "/root", "/run/user", "/tmp", "/var/tmp")


def unit() -> str:
    """Return the text of the unit."""
    return Path(__file__).with_name(UNIT).read_text().replace("@PYTHON@", sys.executable)


def check() -> None:
    """Raise SetupError unless an agent can be installed here."""
    if os.geteuid() != 0:
        raise SetupError("only root may install an agent")
    for place in (ROOT, sys.prefix, sys.base_prefix):
        if any(Path(place).resolve().is_relative_to(each) for each in HIDDEN):
            raise SetupError(f"the service cannot see {place}: install reclaimnet outside of {', '.join(HIDDEN)}")
    if not Path("/run/systemd/system").is_dir():
        raise SetupError("this machine is not run by systemd, of which the agent would be a service")
    if UNIT_FILE.exists() or KEPT.exists():
        raise SetupError("an agent is installed here already: `reclaimnet agent uninstall` takes it away")
    if missing := [package for program, package in NEEDED.items() if shutil.which(program) is None]:
        raise SetupError(f"missing; mend it with: apt-get install {' '.join(missing)}")
    edge.unified()
    ensure_bpffs()
    for name in ("edge", "guests"):
        built(name)


def install(lent: Lent) -> None:
    """Make the service and start it. SetupError: it does not start, and all of it is there for a look."""
    STATE.mkdir(mode=0o700, parents=True, exist_ok=True)
    STATE.chmod(0o700)
    lent.save()
    UNIT_FILE.write_text(unit())
    _systemctl("daemon-reload")
    _systemctl("enable", "--now", UNIT)


def uninstall() -> None:
    """Stop the service, and remove all that it and `install` have made. SetupError: there is none."""
    if not UNIT_FILE.exists() and not KEPT.exists():
        raise SetupError("no agent is installed here")
    if UNIT_FILE.exists():
        _systemctl("disable", "--now", UNIT)
        UNIT_FILE.unlink()
        _systemctl("daemon-reload")
    with suppress(OSError, SetupError):  # it was never whole, or the way is gone and with it the interface
        edge.let_go(machine.way_to(load().address).interface)
    edge.open_fence()
    for folder in control_groups.folders(f"system.slice/{UNIT}"):
        control_groups.remove(folder)
    for folder in (Path(INSTALLED_PINS), STATE):
        shutil.rmtree(folder, ignore_errors=True)
    with suppress(OSError):  # campuses have pins there
        Path(INSTALLED_PINS).parent.rmdir()


def _systemctl(*words: str) -> None:
    done = subprocess.run(["systemctl", "--quiet", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SetupError(f"systemctl {' '.join(words)}: {done.stderr.strip()} (journalctl -u {UNIT})")
