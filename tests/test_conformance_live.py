"""A scenario live and in virtual time: near enough, where the machine kept up; and the page that shows both."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.live_campus import live, running

pytestmark = [*live, pytest.mark.timeout(150)]


def test_live_and_virtual_agree_within_a_tenth_on_times_and_a_twentieth_on_rates(tmp_path: Path) -> None:
    with running(tmp_path, "compare", "example:two-worlds") as run:
        status = run.finish(110)
        text = run.finish_text()
    record = json.loads((tmp_path / "compare.json").read_text())
    assert record["jobs"] == 5, text
    assert (
        '"holder":"server"' in (tmp_path / "events.jsonl").read_text()
    )  # the head node has an agent of its own
    page = (tmp_path / "compare.html").read_text()
    assert page.count('class="timeline"') == 2
    assert all(quantity["name"] in page for quantity in record["quantities"])
    if record["not_to_be_believed"]:
        assert status == 3
        pytest.skip("; ".join(record["not_to_be_believed"]))
    assert status == 0, text
    assert record["near"]
    assert record["same_ways"] == record["jobs"]
