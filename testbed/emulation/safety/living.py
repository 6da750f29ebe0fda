"""Campuses that live on this machine: the first lines of their ledgers, and whether the processes that wrote them still run.

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
    from collections.abc import Iterable
    from typing import Any

SUFFIX = ".ledger"
PIN_ROOT = "/sys/fs/bpf/reclaimnet"
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
    except FileNotFoundError:
        return []
    for entry in entries:
        try:
            found.append((entry.stat().st_mtime, entry.path))
        except FileNotFoundError:  # it was put away this moment
            pass
    return [path for _, path in sorted(found)]


def owner_of(ledger: str) -> dict[str, Any]:
    """Return the first entry of a ledger, which names the campus and its process; empty if it is gone or foreign."""
    try:
        with open(ledger, "rb") as file:
            line = file.readline(MAX_LINE_BYTES)
        found, _ = _scan(line.decode(), 0)
    except (FileNotFoundError, ValueError, StopIteration, RecursionError):
        return {}
    return found if line.endswith(b"\n") and isinstance(found, dict) else {}


def lives(owner: dict[str, Any]) -> bool:
    """Return True while the process that begins the ledger runs."""
    if owner.get("kind") != "owner" or owner.get("boot") != identity.boot_id():
        return False
    return identity.is_alive(int(owner["pid"]), int(owner["start"]))


def owners(roots: Iterable[str] = ()) -> list[dict[str, Any]]:
    """Return the first entries of living campuses' ledgers, oldest first: those of `roots`, or all that this user may know of."""
    # root does not learn where things are from what other users write
    roots = roots or (ROOTS if os.geteuid() else (default_root(),))
    return [owner for root in roots for ledger in ledgers(root) if lives(owner := owner_of(ledger))]


def named_owners(campus_id: str | None) -> list[dict[str, Any]]:
    """Return the owner of the campus of that id, or all of them; SetupError if there is none."""
    found = [owner for owner in owners() if campus_id in (None, owner["id"])]
    if not found:
        raise SetupError(
            "no campus is running on this machine"
            if campus_id is None
            else f"no campus {campus_id} is running"
        )
    return found


def pin_folder(owner: dict[str, Any]) -> str:
    """Return the folder of a campus's pinned maps; a host's are in a folder of its name."""
    return str(owner.get("pin_dir", f"{PIN_ROOT}/{owner['id']}"))


def switch_pin(owner: dict[str, Any], host: str) -> str:
    """Return the pinned map of a host's kill-switch."""
    return f"{pin_folder(owner)}/{host}/switch"
