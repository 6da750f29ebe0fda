"""Machine-wide settings that a large campus needs, raised with a record of what they were.

The kernel keeps one neighbour (ARP) table for all namespaces together and refuses new entries above gc_thresh3 (1024 by
default): 54 hosts that all talk to each other need 2862, 2000 hosts and a coordinator need 4000. The values are the
same for every campus, so that the last one to stop can put the machine's own back.

In a network namespace of its own (a container) these files are not there, or cannot be written. Then the machine's
limit holds, a campus starts within it, and `reclaimnet doctor` reports so.
"""

from __future__ import annotations

import os
from pathlib import Path

from testbed.emulation.safety.ledger import Ledger, owner_lives, read_entries

NEIGHBOURS = Path("/proc/sys/net/ipv4/neigh/default")
WANTED = {
    NEIGHBOURS / "gc_thresh3": 65536,  # raised first: the kernel does not check, people do
    NEIGHBOURS / "gc_thresh2": 32768,
    NEIGHBOURS / "gc_thresh1": 16384,
}


def out_of_reach() -> list[Path]:
    """Return settings that this namespace does not have or does not let change."""
    return [path for path in WANTED if not os.access(path, os.W_OK)]


def raise_settings(ledger: Ledger) -> None:
    """Raise what is too low and within reach; removing what the ledger lists puts the machine's own values back."""
    beyond = out_of_reach()
    for path, wanted in WANTED.items():
        if path in beyond:
            continue
        now = path.read_text().strip()
        original = _original(path, ledger) or (now if int(now) < wanted else None)
        if original is None:
            continue
        ledger.record({"kind": "sysctl", "path": str(path), "before": original, "after": str(wanted)})
        path.write_text(str(max(int(now), wanted)))


def _original(path: Path, own: Ledger) -> str | None:
    """Return the machine's own value, if another campus has raised it before us."""
    for other in own.path.parent.glob(f"*{own.path.suffix}"):
        entries = read_entries(other) if other != own.path else []
        if owner_lives(entries):
            for entry in entries:
                if entry["kind"] == "sysctl" and entry["path"] == str(path):
                    return str(entry["before"])
    return None
