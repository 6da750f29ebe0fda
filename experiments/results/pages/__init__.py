"""Pages that need nothing else: `base.html`, one style that follows light and dark, one script, and templates that extend them.

A template lies beside the code that fills it. What an HTML page is given is escaped, but for the pictures that `drawing` and
`pictures` mark as safe; pages for the docs (Markdown) are templates too.
"""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from topologies.units import format_duration, format_rate, format_size


def render(template: Path, **values: Any) -> str:
    """Return the page that `template` makes of the values.

    Filters beside jinja's own: `duration`, `rate`, `size` (a dash for None); `number` (four digits, nothing for None);
    `xy` (a coordinate); and `line` (a text in one line, which does not end a table's cell).
    """
    return _environment(template.parent).get_template(template.name).render(values)


def short(value: float) -> str:
    """Write a coordinate without useless zeros; 0 for one that is not finite."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if math.isfinite(value) else "0"


@cache
def _environment(folder: Path) -> Environment:
    loader = FileSystemLoader([folder, Path(__file__).parent])
    made = Environment(
        loader=loader,
        autoescape=lambda name: name is None or name.endswith(".html"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    for name, write in (("duration", format_duration), ("rate", format_rate), ("size", format_size)):
        made.filters[name] = lambda value, write=write: "-" if value is None else write(value)
    made.filters["xy"] = short
    made.filters["number"] = lambda value: "" if value is None else f"{value:.4g}"
    made.filters["line"] = lambda text: " ".join(text.split()).replace("|", "\\|")
    return made
