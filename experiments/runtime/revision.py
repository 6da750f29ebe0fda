"""The text of the project: its version, its revision in git, and its fingerprint."""

from __future__ import annotations

import subprocess
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from bpf.caches import fingerprint
from topologies.plugins import PROJECT

PACKAGE = "reclaimnet-testbed"
ROOT = Path(__file__).parents[2]
BUILT_OF = Path(__file__).with_name("commit.txt")  # in wheels and sdists: setup.py


def installed_version() -> str:
    """Return the version of this package, as it is installed."""
    try:
        return version(PACKAGE)
    except PackageNotFoundError:
        return "not installed"


def revision() -> str:
    """Return the commit of this source: as git knows it in a working tree, as it was built of an installed package."""
    if not (ROOT / ".git").exists():
        return BUILT_OF.read_text("utf-8").strip() if BUILT_OF.exists() else "unknown"
    asked = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    try:
        found = subprocess.run(asked, capture_output=True, text=True, timeout=10.0, check=False)
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return found.stdout.strip() or "unknown"


@cache
def program() -> str:
    """Return a fingerprint of the text of the whole program, as it was when this process first asked."""
    return fingerprint(path for package in PROJECT for path in sorted((ROOT / package).rglob("*.py")))
