"""Level of the logs of a live campus's processes: a level in the environment, which they hand on to one another."""

from __future__ import annotations

import logging
import os

VARIABLE = "RECLAIMNET_LOG_LEVEL"
LEVELS = ("debug", "info", "warning", "error")


def log_level() -> int:
    """Return the level that the environment names; info if it names none that there is."""
    name = os.environ.get(VARIABLE, "info").lower()
    return logging.getLevelNamesMapping()[(name if name in LEVELS else "info").upper()]


def logger(name: str) -> logging.Logger:
    """Return the logger of this name, of Python's own kind.

    Mininet sets a class of loggers that write for themselves, without ends of lines, from a level of its own: every line would be
    there twice.
    """
    logging.setLoggerClass(logging.Logger)
    return logging.getLogger(name)
