"""The journal: what was committed survives, what was not does not appear."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

from controller.core import events as ev
from controller.core import facts
from controller.journal import Journal, export_jsonl, read_facts


def test_facts_come_back_in_order_with_their_times(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.sqlite")
    for number in range(3):
        journal.begin()
        journal.append_input(float(number), "clock", ev.Woke())
        journal.append_fact(float(number), facts.JobQueued(f"j{number}", number, 1.5))
        journal.commit()
    journal.close()
    assert list(read_facts(tmp_path / "j.sqlite")) == [
        (float(n), facts.JobQueued(f"j{n}", n, 1.5)) for n in range(3)
    ]


def test_open_transaction_of_a_killed_writer_is_undone(tmp_path: Path) -> None:
    path = tmp_path / "j.sqlite"
    child = os.fork()
    if child == 0:
        journal = Journal(path)
        journal.begin()
        journal.append_fact(1.0, facts.HostReturned("h1"))
        journal.commit()
        journal.begin()
        journal.append_fact(2.0, facts.HostReturned("h2"))
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    assert [fact for _, fact in read_facts(path)] == [facts.HostReturned("h1")]


def test_exported_lines_name_the_fact_and_its_time(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.sqlite")
    journal.begin()
    journal.append_fact(0.25, facts.HostReturned("h1"))
    journal.commit()
    journal.close()
    assert export_jsonl(tmp_path / "j.sqlite", tmp_path / "e.jsonl") == 1
    assert json.loads((tmp_path / "e.jsonl").read_text()) == {
        "at_s": 0.25,
        "fact": "HostReturned",
        "host": "h1",
    }
