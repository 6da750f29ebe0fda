"""What every benchmark writes: its figures as JSON, and the machine that they are of."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def machine() -> dict[str, Any]:
    """Processors and kernel."""
    return {"cpus": os.cpu_count(), "kernel": os.uname().release}


def write_result(file: Path, result: Mapping[str, Any] | Sequence[Any]) -> None:
    """The figures, in a folder that is made for them."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(result, indent=1) + "\n")
