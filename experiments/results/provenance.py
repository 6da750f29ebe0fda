"""Origin of a result: what a reader needs to make it again, or to see why it cannot be the same.

It stands in `summary.json` under a key of its own, and at the end of each page: all else in them depends on the
program, the scenario, its seed and (live) the machine alone. So two virtual runs of one seed differ in nothing but
`provenance`.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from controller.user_policies import source_of
from experiments.inputs.scenario import Scenario, dumps
from experiments.runtime.revision import installed_version, revision
from topologies.reading import readable


@dataclass(frozen=True, slots=True)
class Provenance:
    """Origin of a run. `seed` and `scenario_sha256` are None for what is no single run."""

    date: str  # when it was written down, local time with its offset
    version: str  # of this package
    commit: str  # of its source, "-dirty" if files differ from it; unknown where git does not know
    command: str  # as a shell would take it
    kernel: str  # system, release and machine
    processor: str  # model and how many of them
    python: str
    seed: int | None
    # of the scenario in its long form, as `experiments.inputs.scenario.dumps` writes it
    scenario_sha256: str | None
    policy_code: str | None = None  # a fingerprint of the files of a user's policy

    def told(self) -> Iterator[tuple[str, str]]:
        """Yield (what, text) for a page or a terminal."""
        for name in self.__slots__:
            value = getattr(self, name)
            if value is not None:
                yield name.replace("_", " "), str(value)


def processor() -> str:
    """Return the model of this machine's processor."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return "unknown model"  # the kernel names none on some machines (arm64)


def provenance(scenario: Scenario | None = None) -> Provenance:
    """Return the provenance of what this process writes now; `scenario`: as it was played, in real units, with its seed."""
    system = os.uname()
    return Provenance(
        date=time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        version=installed_version(),
        commit=revision(),
        command=readable(shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])),
        kernel=f"{system.sysname} {system.release} {system.machine}",
        processor=f"{processor()}, {os.cpu_count()} logical",
        python=sys.version.split()[0],
        seed=None if scenario is None else scenario.seed,
        scenario_sha256=None if scenario is None else hashlib.sha256(dumps(scenario).encode()).hexdigest(),
        policy_code=None if scenario is None else source_of(scenario.protocol.policy) or None,
    )
