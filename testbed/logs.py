"""How much the processes of a live campus log: a level in the environment, which they hand on to one another."""

from __future__ import annotations

import logging
import os

VARIABLE = "RECLAIMNET_LOG_LEVEL"
LEVELS = ("debug", "info", "warning", "error")


def log_level() -> int:
    """The level that the environment names; info if it names none that there is."""
    name = os.environ.get(VARIABLE, "info").lower()
    return logging.getLevelNamesMapping()[(name if name in LEVELS else "info").upper()]
