"""A service of systemd on this machine: made and started, and taken away again until nothing of it is left."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

import trio

from testbed.checkpoints.files import replace_durably
from testbed.errors import SetupError
from testbed.own_programs import ROOT

# out of a service's sight (ProtectHome, PrivateTmp)
HIDDEN: Final = ("/home", "/root", "/run/user", "/tmp", "/var/tmp")


class Service:
    """The service of a role, "agent" or "coordinator". Its unit is a file beside this one."""

    def __init__(self, role: str) -> None:
        self.role, self.unit = role, f"reclaimnet-{role}.service"
        self.state = Path("/var/lib", f"reclaimnet-{role}")  # all that it keeps
        self.kept = self.state / f"{role}.json"  # what it was installed with
        self._file = Path("/etc/systemd/system", self.unit)

    @property
    def is_here(self) -> bool:
        """True if it, or a part of it, is installed."""
        return self._file.exists() or self.state.exists()

    def text(self) -> str:
        """Return the text of its unit, where % begins what systemd fills in."""
        return Path(__file__).with_name(self.unit).read_text().replace("@PYTHON@", sys.executable.replace("%", "%%"))

    def check(self) -> None:
        """Raise SetupError unless it can be installed here."""
        if os.geteuid() != 0:
            raise SetupError(f"only root may install a service, which the {self.role} would be")
        for place in (ROOT, sys.prefix, sys.base_prefix):
            if any(Path(place).resolve().is_relative_to(each) for each in HIDDEN):
                raise SetupError(f"the service cannot see {place}: install reclaimnet outside of {', '.join(HIDDEN)}")
            if (seen := Path(place).stat()).st_uid != 0 or seen.st_mode & 0o022:
                raise SetupError(f"others than root can write in {place}, and would be root by the service")
        if not Path("/run/systemd/system").is_dir():
            raise SetupError(f"this machine is not run by systemd, of which the {self.role} would be a service")
        if self.is_here:
            raise SetupError(f"it is installed here already: `reclaimnet {self.role} uninstall` takes it away")

    def save(self, content: bytes) -> None:
        """Write what it keeps: all of it, or nothing."""
        self.state.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.state.chmod(0o700)
        replace_durably(self.kept, content)

    def start(self) -> None:
        """Make the unit and start it. SetupError: it does not start, and all of it is there for a look."""
        self._file.write_text(self.text())
        self._systemctl("daemon-reload")
        self._systemctl("enable", "--now", self.unit)

    def stop(self) -> None:
        """Stop it, and remove the unit. SetupError: it is not installed."""
        if not self.is_here:
            raise SetupError(f"no {self.role} is installed here")
        if self._file.exists():
            self._systemctl("disable", "--now", self.unit)
            self._file.unlink()
            self._systemctl("daemon-reload")

    def _systemctl(self, *words: str) -> None:
        done = subprocess.run(["systemctl", "--quiet", *words], capture_output=True, text=True, check=False)
        if done.returncode:
            raise SetupError(f"systemctl {' '.join(words)}: {done.stderr.strip()} (journalctl -u {self.unit})")

    def forget(self) -> None:
        """Remove all that it keeps."""
        shutil.rmtree(self.state, ignore_errors=True)


async def keep_notified() -> None:
    """Notify systemd that this service has begun, and goes on, for ever."""
    period_s = int(os.environ.get("WATCHDOG_USEC", 30_000_000)) / 3e6
    _notify("READY=1")
    while True:
        await trio.sleep(period_s)
        _notify("WATCHDOG=1")


def _notify(state: str) -> None:
    with suppress(KeyError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.sendto(state.encode(), os.environ["NOTIFY_SOCKET"].replace("@", "\0", 1))
