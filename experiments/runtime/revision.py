"""The revision of the project that made a written result."""

from __future__ import annotations

import subprocess
from pathlib import Path


def revision() -> str:
    """Return the commit of this source, if git knows; an installed package is in no working tree, whatever lies around it."""
    if not (Path(__file__).parents[2] / ".git").exists():
        return "unknown"
    asked = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    try:
        found = subprocess.run(asked, capture_output=True, text=True, timeout=10.0, check=False)
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return found.stdout.strip() or "unknown"
