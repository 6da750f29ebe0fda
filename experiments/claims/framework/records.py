"""A claim that has been run, on disk: its directory holds the values, the picture and `claim.json`, the verdict.

The page of all claims is made from these files alone, so claims may be run one at a time, in any order.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec

from experiments.claims.framework.claim import Claim, ClaimVerdict
from experiments.claims.framework.values import Values, ValuesError, read
from topologies.decoding import UNDECODABLE
from topologies.writing import write_whole

PICTURE = "figure.svg"


@dataclass(frozen=True, slots=True)
class ClaimRecord:
    """The contents of the page for one claim. `spent_s`: the time that the run took, or its unfinished part."""

    name: str
    paper: str
    title: str
    text: str
    does_not_prove: str
    headline: tuple[str, ...]
    is_quick: bool
    spent_s: float
    verdict: ClaimVerdict

    @classmethod
    def of(cls, claim: Claim, verdict: ClaimVerdict, *, is_quick: bool, spent_s: float) -> ClaimRecord:
        """Return the record of a claim and what came of it."""
        texts = (claim.name, claim.paper, claim.title, claim.text, claim.does_not_prove)
        return cls(*texts, claim.headline, is_quick, spent_s, verdict)


def write_record(record: ClaimRecord, directory: Path) -> None:
    """Write `directory`/claim.json."""
    text = msgspec.json.format(msgspec.json.encode(asdict(record)), indent=2)
    write_whole(directory / "claim.json", text + b"\n")


def read_record(directory: Path) -> tuple[ClaimRecord, Values]:
    """Read a claim's directory. ValuesError: it is none, or a file in it is not as written."""
    path = directory / "claim.json"
    try:
        record = msgspec.json.decode(path.read_bytes(), type=ClaimRecord)
    except OSError as error:
        raise ValuesError(f"{path}: {error.strerror}; run the claim first") from error
    except UNDECODABLE as error:
        raise ValuesError(f"{path}: {error}") from error
    return record, read(directory)


def directories(out: Path) -> list[Path]:
    """Return the folders below `out` that hold a claim that was run to its end, by name."""
    return sorted(path.parent for path in out.glob("*/claim.json"))
