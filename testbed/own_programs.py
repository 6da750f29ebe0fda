"""Programs of the project's own, whatever lies in the folder of start or is first on Python's path.

`python -m NAME` looks in the folder of start first, and in PYTHONPATH next. There a user may well have a `controller.py`,
which would run as root in place of the project's.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

ROOT: Final = str(Path(__file__).parents[1])
_START: Final = "import runpy, sys; root, name = sys.argv[1:3]; del sys.argv[1:3]; sys.path.insert(0, root); "
_RUN: Final = "runpy.run_module(name, run_name='__main__', alter_sys=True)"


def own_program(module: str) -> list[str]:
    """Return the words that run a module of the project as `python -m` does, with the project's packages first."""
    return [sys.executable, "-P", "-c", _START + _RUN, ROOT, module]
