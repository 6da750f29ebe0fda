"""Text of tables as a terminal shows it."""

import re
from collections.abc import Iterable
from io import StringIO

from rich.console import Console
from rich.table import Table


def shown(tables: Iterable[Table | str]) -> str:
    """Return the printed text, with single spaces."""
    console = Console(width=240, file=StringIO(), record=True)
    for each in tables:
        console.print(each, markup=not isinstance(each, str))
    return re.sub(r"[│\s]+", " ", console.export_text())
