"""Numbers of numpy's in a description become Python's: files and facts are made of those."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from numpy import generic


def make_plain(part: Any) -> None:
    """Call it first in the __post_init__ of a frozen dataclass."""
    for each in fields(part):
        value = getattr(part, each.name)
        if isinstance(value, generic):
            object.__setattr__(part, each.name, value.item())
