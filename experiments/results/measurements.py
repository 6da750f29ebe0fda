"""Measurements of jobs while they ran, from the lines of JSON on their output: `{"step": 12, "loss": 0.25}`.

Output is a user's and may hold anything: a line that is no such object is passed over, and what is read of a file, and of its
names, is bounded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import msgspec

from testbed.bounds import LARGEST_NUMBER
from topologies.decoding import UNDECODABLE

MOST_BYTES: Final = 16 << 20  # of all attempts' output: of short lines three seconds
MOST_NAMES: Final = 8  # of one job
LONGEST_NAME: Final = 40
LARGEST_STEP: Final = 10**12


@dataclass(frozen=True, slots=True)
class MeasuredCurve:
    """A measured quantity of a job: (step, value) of each of its attempts that printed any, by attempt.

    `unread_bytes`: in the middle of the job's output, which may have had more.
    """

    job: str
    name: str
    attempts: dict[int, list[tuple[int, float]]]
    unread_bytes: int = 0

    def repeated(self) -> tuple[int, int]:
        """Return how many values two attempts in a row printed of the same step, and how many of those differ in any bit."""
        twice = differ = 0
        for (_, before), (_, after) in pairwise(sorted(self.attempts.items())):
            known = dict(before)
            again = [(known[step], value) for step, value in after if step in known]
            twice += len(again)
            differ += sum(old != new for old, new in again)
        return twice, differ


def measured_curves(folder: Path) -> Sequence[MeasuredCurve]:
    """Read the curves of all attempts whose output lies in a folder (`testbed.workloads.output`), by job and name."""
    found: dict[str, dict[str, MeasuredCurve]] = {}
    paths = [path for path in sorted(folder.glob("*.*.log")) if path.name.rsplit(".", 2)[1].isdecimal()]
    unread_bytes = Counter[str]()
    for path in paths:
        job, attempt, _ = path.name.rsplit(".", 2)
        named, half_bytes = found.setdefault(job, {}), MOST_BYTES // len(paths) // 2
        unread_bytes[job] += max(0, path.stat().st_size - 2 * half_bytes)
        for step, values in _lines(path, half_bytes):
            for name, value in values.items():
                if name not in named and len(named) < MOST_NAMES and 0 < len(name) <= LONGEST_NAME:
                    named[name] = MeasuredCurve(job, name, {})
                if name in named:
                    named[name].attempts.setdefault(int(attempt), []).append((step, value))
    curves = (curve for _, named in sorted(found.items()) for _, curve in sorted(named.items()))
    return [replace(curve, unread_bytes=unread_bytes[curve.job]) for curve in curves]


def _lines(path: Path, half_bytes: int) -> Iterator[tuple[int, dict[str, float]]]:
    """Yield steps with their values from the first and the last bytes of an output."""
    with path.open("rb") as file:
        head = file.read(half_bytes)
        is_cut = file.seek(max(len(head), path.stat().st_size - half_bytes)) > len(head)
        for line in (head + b"\n" * is_cut + file.read(half_bytes)).splitlines():
            if not line.startswith(b"{"):
                continue
            try:
                told: Any = msgspec.json.decode(line)
            except UNDECODABLE:
                continue
            step = told.pop("step", None)
            if isinstance(step, int) and not isinstance(step, bool) and 0 <= step <= LARGEST_STEP:
                yield step, {name: float(value) for name, value in told.items() if _is_number(value)}


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return -LARGEST_NUMBER <= value <= LARGEST_NUMBER
