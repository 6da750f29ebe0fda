"""Recovery of a coordinator from its journal.

The core is a function of its events. The journal has all of them with their times, each in one transaction with the
facts that followed. So a new core handles the old one's events again. Its messages to peers are dropped, and its
facts must be those of the journal, fact for fact. Anything else means that this program decides differently from the
one that wrote the journal (another version, for example). Then it is refused, for the promises made would be unknown.
If the very same program wrote it, the journal is damaged, and what comes before is saved (`salvage`).
After that the core gets the event of a restart (`controller.core.lifecycle.reconcile`).

Time goes on by CLOCK_MONOTONIC, if the machine has not been booted since, else by the calendar clock; in no case
backwards. Decisions are right for any downtime: leases do not depend on it (see `reconcile`), and an agent's Hello holds
the rest of a notice.

Deciding again costs as much as deciding: some 4 ms for each second of a journal of the demo with 12 hosts, 18 ms with
52, of one core. A long journal is not read from its beginning. The host saves a snapshot of its core whenever it has
spent `host.SAVE_AFTER_S` on decisions. So a restart takes about that long at most, less than a lease.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import asdict
from pathlib import Path

import msgspec

from controller.core.coordinator import Coordinator
from controller.core.model import effects as do
from controller.core.model import events as ev
from controller.core.model.facts import Fact
from controller.core.parameters import Protocol, Queue
from controller.persistence.journal import DamagedJournal, Journal, encoded
from controller.persistence.lines import Entry, LogLine
from controller.persistence.snapshot import program, thaw
from testbed.bounds import quoted
from testbed.errors import SetupError
from testbed.identity import boot_id
from topologies.decoding import UNDECODABLE
from topologies.files import dumps
from topologies.spec import Campus

FORMAT = "4"  # of the journal; another one cannot be read
MAX_TOLD = 4  # differences that are named


def origin_of(campus: Campus, protocol: Protocol, queue: Queue, seed: int, started_s: float) -> dict[str, str]:
    """Return a journal's record of its coordinator. `started_s` (CLOCK_MONOTONIC) is its time 0."""
    return {
        "format": FORMAT,
        "campus": dumps(campus),
        "protocol": _exact(protocol),
        "queue": _exact(queue),
        "seed": str(seed),
        "program": program(),
        "boot": boot_id(),
        "started_monotonic_s": repr(started_s),
        "started_calendar_s": repr(time.time() - (time.monotonic() - started_s)),
    }


def _exact(part: Protocol | Queue) -> str:
    """Return the fields as JSON, numbers as exact text: JSON knows no infinity."""
    return msgspec.json.encode({name: repr(value) for name, value in asdict(part).items()}).decode()


def check_origin(found: dict[str, str], mine: dict[str, str], path: Path) -> None:
    """Raise SetupError if the journal is of another format, campus, seed, or of other parameters; the message names them."""
    try:
        differing = list(_differences(found, mine))
        float(found["started_monotonic_s"]), float(found["started_calendar_s"]), found["boot"]
    except (KeyError, ValueError, TypeError, AttributeError, *UNDECODABLE) as error:
        raise DamagedJournal(
            f"{path}: the table origin cannot be read ({quoted(str(error))}): name a new file"
        ) from error
    if differing:
        told = "; ".join(differing[:MAX_TOLD]) + (" …" if len(differing) > MAX_TOLD else "")
        raise SetupError(f"{path} is the journal of another coordinator: {told}. Start as it was, or name a new file")


class JournalReplay:
    """The core that wrote a journal, as far as it was read: it handles the events again, and records the same facts.

    It begins with the journal's latest snapshot, or else with the new core that is given. `differs`, a SetupError: the core
    records something else than the journal holds.
    """

    def __init__(self, journal: Journal, fresh: Coordinator, differs: type[SetupError] = SetupError) -> None:
        self.core, self.journal, self._differs = fresh, journal, differs
        self.number = self._facts = self.submitted = 0  # the last line, facts until then, jobs (accepted or not)
        self.events = 0  # decided again since the snapshot
        for *counts, by, body in journal.snapshots():
            if (thawed := thaw(by, body, journal.path)) is not None:
                self.core, (self.number, self._facts, self.submitted) = thawed, counts
                self.core.cluster.secret = fresh.cluster.secret
                break

    def advance(self) -> bool:
        """Handle again what the journal has more by now; return whether it has."""
        before = self.number
        with self.journal.at_once():
            recorded = self.journal.facts(self._facts)
            for line in self.journal.follow(self.number):
                for fact in self._handle(line):
                    self._compare((line.at_s, encoded(fact)), next(recorded, None))
            self._compare(None, next(recorded, None))
        return self.number > before

    def copy(self, line: LogLine) -> None:
        """Handle again a line of another log, and record it with what follows in this coordinator's own journal."""
        facts = self._handle(line)
        self.journal.epoch = line.epoch
        number = self.journal.append([] if line.event is None else [Entry(line.at_s, line.event, facts)])
        if number != line.number:
            raise DamagedJournal(f"{self.journal.path}: line {number} is line {line.number} of the log that it copies")

    def _handle(self, line: LogLine) -> list[Fact]:
        """Handle the event of a line; return the facts that follow."""
        self.number = line.number
        if line.event is None:
            return []
        self.events += 1
        self.submitted += isinstance(line.event, ev.SubmitAsked)
        try:
            effects = self.core.handle(line.event, line.at_s)
        except Exception as error:  # it was decided once: what could not be is in no journal
            raise self._differs(
                f"{self.journal.path}: the event of {line.at_s!r} s in it cannot be decided again "
                f"({type(error).__name__}: {quoted(str(error))}): lines before it were changed, or are missing"
            ) from error
        facts = [effect.fact for effect in effects if isinstance(effect, do.Record)]
        self._facts += len(facts)
        return facts

    def _compare(self, again: tuple[float, bytes] | None, before: tuple[float, bytes] | None) -> None:
        if again != before:
            at_s = (before or again or (0.0,))[0]
            raise self._differs(
                f"{self.journal.path}: from the same events, this program decides otherwise at {at_s:.6f} s: "
                f"{_told(again)} where the journal has {_told(before)}. Start the version that wrote it, or name a new file"
            )


def start_after(origin: dict[str, str], last_s: float) -> float:
    """Return the CLOCK_MONOTONIC of the journal's time 0, so that its time goes on, and never back."""
    monotonic_s = time.monotonic()
    if origin["boot"] == boot_id():
        now_s = monotonic_s - float(origin["started_monotonic_s"])
    else:
        now_s = time.time() - float(origin["started_calendar_s"])
    return monotonic_s - max(now_s, last_s)


def salvage(damaged: Path, into: Journal, fresh: Callable[[], Coordinator]) -> int:
    """Write the events of a damaged journal, as far as they can be read and decided again, into a new one; return how many.

    The facts are those that follow from them now.
    """
    most, events = sys.maxsize, 0

    def decided() -> Iterator[Entry]:
        nonlocal events
        core, events = fresh(), 0
        with suppress(DamagedJournal), closing(Journal(damaged)) as journal:
            for _, _, at_s, event in journal.follow():
                if events == most:
                    return
                if event is not None:
                    effects = core.handle(event, at_s)
                    yield Entry(at_s, event, [effect.fact for effect in effects if isinstance(effect, do.Record)])
                    events += 1

    while True:
        try:
            into.append(decided())
        except OSError:
            raise
        except Exception:  # noqa: BLE001 - of damage that can be read there is no limit to what it may cause
            most = events
        else:
            return events


def _told(fact: tuple[float, bytes] | None) -> str:
    return "nothing" if fact is None else quoted(fact[1].decode(errors="replace"))


def _differences(found: dict[str, str], mine: dict[str, str]) -> Iterator[str]:
    if found.get("format") != FORMAT:
        yield f"format {found.get('format', 'unknown')}, here {FORMAT}"
        return
    if found["seed"] != mine["seed"]:
        yield f"seed {found['seed']}, here {mine['seed']}"
    for part in ("protocol", "queue"):
        theirs, here = msgspec.json.decode(found[part]), msgspec.json.decode(mine[part])
        for name in sorted(theirs.keys() | here.keys()):
            if theirs.get(name) != here.get(name):
                yield f"{part}: {name} = {theirs.get(name)}, here {here.get(name)}"
    lines = set(mine["campus"].splitlines())
    for line in found["campus"].splitlines():
        if line not in lines:
            yield f"campus: {line}, which is not so here"
    if found["campus"] != mine["campus"] and lines >= set(found["campus"].splitlines()):
        more = sorted(lines - set(found["campus"].splitlines()))
        yield f"campus: here also {', '.join(more[:MAX_TOLD])}" if more else "campus: in another order"
