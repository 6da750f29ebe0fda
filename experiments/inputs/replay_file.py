"""replay.json: what a virtual run needs to be played again, beside its events.jsonl."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from experiments.inputs.scenario import Scenario, dumps
from experiments.inputs.scenario.files import loads
from topologies.decoding import UNDECODABLE
from topologies.errors import SpecError
from topologies.writing import write_whole

REPLAY = "replay.json"


@dataclass(frozen=True)
class ReplaySpec:
    """A scenario in real units, with the seed that was played, and how it was played."""

    scenario: Scenario
    system: str | None = None  # a row, instead of the scenario's
    records: tuple[Path, ...] = ()  # of owners
    until_over: bool = False


class _File(msgspec.Struct, forbid_unknown_fields=True):
    scenario: str
    system: str | None
    records: list[str]
    until_over: bool


def write_replay(folder: Path, replay: ReplaySpec) -> None:
    """Write `folder`/replay.json."""
    # a record that is no file is the name of a function
    records = [str(path.resolve() if path.exists() else path) for path in replay.records]
    told = _File(dumps(replay.scenario), replay.system, records, replay.until_over)
    write_whole(folder / REPLAY, msgspec.json.encode(told))


def read_replay(folder: Path) -> ReplaySpec:
    """Return the replay written there. SpecError: there is none."""
    path = folder / REPLAY
    try:
        told = msgspec.json.decode(path.read_bytes(), type=_File)
    except (OSError, *UNDECODABLE) as error:
        raise SpecError(
            "replay", path.name, f"as `reclaimnet simulate` writes it ({error})", str(folder)
        ) from None
    records = tuple(Path(name) for name in told.records)
    return ReplaySpec(loads(told.scenario, str(path)), told.system, records, told.until_over)
