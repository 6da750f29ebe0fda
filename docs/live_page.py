"""The picture of the live page: `python docs/live_page.py [EVENTS.jsonl]`, by default of the demo's first seed in virtual time.

It needs Chromium and the extras `web` and `test-extras` of setup.cfg.
"""

from __future__ import annotations

import io
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

from experiments import demo_scenario, simulate
from experiments.results.events_file import write_run

PICTURE = Path(__file__).with_name("live.webp")
WIDTH, HEIGHT, SCALE = 1180, 1100, 1.25  # in pixels of the page, and the picture's over those
PART, HOST = 0.165, "h2"  # of the run that is over, and the host that is chosen: its owner gave notice, its job moves


def demo(folder: Path) -> Path:
    """Return the events of the demo, played in virtual time."""
    played = simulate(demo_scenario(seed=1)).played
    write_run(folder, played.facts, played.context.campus)
    return folder / "events.jsonl"


def photograph(events: Path) -> bytes:
    """Return the page of a run as PNG, light, at a moment within the run."""
    command = [sys.executable, "-m", "reclaimnet", "dashboard", str(events), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server, sync_playwright() as tools:
        assert server.stdout is not None
        address = server.stdout.readline().split()[-1]
        browser = tools.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        page = browser.new_page(
            viewport={"width": WIDTH, "height": HEIGHT}, device_scale_factor=SCALE, color_scheme="light"
        )
        page.goto(address)
        slider = page.locator("input[type=range]").first
        slider.wait_for()
        page.wait_for_timeout(2000)
        slider.evaluate(
            "(it, part) => { it.value = +it.min + part * (it.max - it.min);"
            " for (const kind of ['input', 'change']) it.dispatchEvent(new Event(kind, { bubbles: true })); }",
            PART,
        )
        page.get_by_text(HOST, exact=True).first.click()
        page.mouse.move(0, 0)  # away from its tip
        page.wait_for_timeout(1500)
        found: bytes = page.screenshot()
        browser.close()
        server.terminate()
    return found


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        taken = photograph(Path(sys.argv[1]) if sys.argv[1:] else demo(Path(folder)))
    Image.open(io.BytesIO(taken)).convert("RGB").save(PICTURE, quality=80, method=6)
    print(PICTURE, PICTURE.stat().st_size)
