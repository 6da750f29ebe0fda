"""Campuses that run on this machine: the first lines of their ledgers, and whether the processes that wrote them still run.

An owner's command reads this before it closes a host. So all it imports is the interpreter's own, paths are texts, and of `json`
it takes the scanner in C: the one in Python has regular expressions, which take longer to compile than a host to close.
"""

from __future__ import annotations

import os

from testbed import identity
from testbed.errors import SetupError

try:
    from _json import make_scanner
except ImportError:  # an interpreter without it
    from json.scanner import make_scanner

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

SUFFIX = ".ledger"
PIN_ROOT = "/sys/fs/bpf/reclaimnet"
INSTALLED = "installed"  # in place of a campus's id: the agent that lends this machine itself
INSTALLED_PINS, INSTALLED_RUN = f"{PIN_ROOT}/{INSTALLED}", "/run/reclaimnet-agent"
INSTALLED_COORDINATOR = "/run/reclaimnet-coordinator"  # has a ledger as of a campus
ROOTS = ("/run/reclaimnet", "/tmp/reclaimnet")  # of root's campuses, and of others'
MAX_LINE_BYTES = 1 << 24  # of a first line: ten thousand hosts have half a megabyte


class _PlainJson:
    """Settings that `json.JSONDecoder` would give the scanner."""

    strict, object_hook, object_pairs_hook = True, None, None
    parse_float, parse_int, parse_constant = float, int, float


_scan = make_scanner(_PlainJson)  # type: ignore[arg-type]


def default_root() -> str:
    """Return /run/reclaimnet, or /tmp/reclaimnet where /run cannot be written."""
    for root in ROOTS:
        if os.access(os.path.dirname(root), os.W_OK):
            return root
    raise SetupError("neither /run nor /tmp can be written: run as root, or give root=")


def ledgers(root: str) -> list[str]:
    """Return the ledgers of a folder, oldest first; none if there is no such folder."""
    found = []
    try:
        entries = [entry for entry in os.scandir(root) if entry.name.endswith(SUFFIX)]
    except OSError:  # there is none, or another user's that nobody else may read
        return []
    for entry in entries:
        try:
            found.append((entry.stat().st_mtime, entry.path))
        except FileNotFoundError:  # it was put away this moment
            pass
    return [path for _, path in sorted(found)]


def owner_of(ledger: str) -> dict[str, Any]:
    """Return the first entry of a ledger, which names the campus and its process; empty if it is gone or foreign.

    A ledger of a third user, who may write what he likes into /tmp, is foreign to all but root.
    """
    try:
        with open(os.open(ledger, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            if os.fstat(file.fileno()).st_uid not in (0, os.geteuid()):
                return {}
            line = file.readline(MAX_LINE_BYTES)
        found, _ = _scan(line.decode(), 0)
    except (OSError, ValueError, StopIteration, RecursionError):
        return {}
    return found if line.endswith(b"\n") and isinstance(found, dict) else {}


def lives(owner: dict[str, Any]) -> bool:
    """Return True while the process that begins the ledger runs."""
    if owner.get("kind") != "owner" or owner.get("boot") != identity.boot_id():
        return False
    return identity.is_alive(int(owner["pid"]), int(owner["start"]))


class RunningCampus:
    """A campus on this machine, as its owner wrote it into the first line of its ledger."""

    def __init__(self, owner: dict[str, Any]) -> None:
        self.id: str = owner["id"]
        self.name: str = owner.get("name", "")  # of its description
        self.owner_pid: int = owner["pid"]  # the process that made it
        self.hosts: list[str] = owner.get("hosts", [])
        self.volunteers: list[str] = owner.get("volunteers", [])  # the hosts that have an owner
        self.run_folder: str = owner.get("run_dir", "")
        self._pin_folder = owner.get("pin_dir", f"{PIN_ROOT}/{self.id}")

    @property
    def run_dir(self) -> Path:
        """The folder of its sockets and logs."""
        from pathlib import Path

        return Path(self.run_folder)

    def switch_pin(self, host: str) -> str:
        """Return the pinned map of a host's kill-switch."""
        return f"{self._pin_folder}/{host}/switch"

    def agent_socket(self, host: str) -> str:
        """Return the socket at which the agent of a host listens to its owner."""
        return f"{self.run_folder}/{host}.sock"


def running_campuses(root: str = "") -> list[RunningCampus]:
    """Return campuses whose owner lives, oldest ledger first: those of `root`, or all that this user may know of."""
    # root does not learn where things are from what other users write
    made = ROOTS if os.geteuid() else (default_root(),)
    roots = (root,) if root else (*made, INSTALLED_COORDINATOR)
    found = [owner_of(ledger) for each in roots for ledger in ledgers(each)]
    return [RunningCampus(owner) for owner in found if lives(owner)]


def installed_agents() -> list[RunningCampus]:
    """Return the installed agent of this machine, as a campus with its host alone; none if there is none."""
    try:
        hosts = os.listdir(INSTALLED_PINS)
    except OSError:
        return []
    return [RunningCampus({"id": INSTALLED, "pid": 0, "hosts": hosts, "volunteers": hosts, "run_dir": INSTALLED_RUN})]


def named_campuses(campus_id: str | None) -> list[RunningCampus]:
    """Return the running campus of that id, or all of them; SetupError if there is none."""
    found = [campus for campus in running_campuses() if campus_id in (None, campus.id)]
    if not found:
        raise SetupError(
            "no campus is running on this machine" if campus_id is None else f"no campus {campus_id} is running"
        )
    return found


def only_campus(campus_id: str | None) -> RunningCampus:
    """Return the running campus of that id, or the only one; SetupError if there is none, or several and none is named.

    A folder in place of the id: the campus of another machine that was joined there (`reclaimnet join`).
    """
    if campus_id is not None and "/" in campus_id:
        return RunningCampus({"id": campus_id, "pid": 0, "run_dir": campus_id})
    found = named_campuses(campus_id)
    if len(found) > 1:
        raise SetupError(f"several campuses are running: add --campus, one of {[c.id for c in found]}")
    return found[0]
