"""`measure dashboard` plays: no event is lost on the way from the journal to the readers and to the screen."""

from __future__ import annotations

import shutil
from math import isfinite
from pathlib import Path

import pytest

from experiments.benchmarks.live_page import measure_live_page


@pytest.mark.skipif(
    not any(map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))),
    reason="no chromium on this machine (Debian: apt install chromium)",
)
def test_every_marked_event_comes_to_every_reader_and_to_the_screen(tmp_path: Path) -> None:
    pytest.importorskip("playwright.sync_api", reason="playwright is not installed (pip install playwright)")
    result = measure_live_page(tmp_path, hosts=6, clients=4, seconds=5.0)
    assert result["marked"] == result["shown"] > 2
    assert isfinite(result["on_screen_s"]["most"])
    assert isfinite(result["to_reader_s"]["most"])
    assert result["console"] == []
