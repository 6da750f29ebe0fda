"""The live page in a browser: its console stays empty, it follows and replays runs, shows events, and owners' switches act."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from bpf.layout import Mode
from controller.core.model import facts as f
from controller.core.model.events import Woke
from controller.persistence.journal import Journal
from controller.persistence.lines import Entry
from testbed import owner
from testbed.emulation.safety.living import RunningCampus, running_campuses
from tests import dashboard_runs as runs
from tests.emulation_campuses import kernel
from tests.live_campus import running
from tests.patience import wait_until
from tests.test_dashboard import get
from tests.test_pages_browser import CHROMIUM, violations

pytestmark = [pytest.mark.extra, pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")]
WAIT_S = 60.0


@pytest.fixture(scope="module")
def replay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with runs.replayed(runs.write_run(tmp_path_factory.mktemp("run"))) as address:
        yield address


class Page:
    """A page that keeps what its console said; all of it is in view, for what is not is not drawn."""

    def __init__(self, browser: Any, address: str, width: int = 1300, state: str = "replay") -> None:
        self.said: list[str] = []
        self.page = browser.new_page(viewport={"width": width, "height": 2800})
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.goto(address)
        self.until(f"document.getElementById('state').textContent === {state!r}")

    def until(self, holds: str) -> None:
        """Wait until an expression is true on the page (playwright's own wait would need eval, which the page forbids)."""
        end_s = time.monotonic() + WAIT_S
        while not self.page.evaluate(holds):
            assert time.monotonic() < end_s, f"waited in vain: {holds}; the console: {self.said}"
            self.page.wait_for_timeout(30)

    def close(self) -> None:
        """The console must have stayed empty."""
        self.page.close()
        assert self.said == []


def test_a_replay_moves_by_slider_and_keys_and_plays(browser: Any, replay: str) -> None:
    shown = Page(browser, replay)
    page = shown.page
    shown.until("document.querySelectorAll('.node').length === 9")
    end_s = page.evaluate("Number(document.getElementById('time').max)")
    assert page.locator("#clock").inner_text() == f"{end_s:.1f} s"
    assert page.evaluate("document.querySelector('#map svg').clientWidth <= document.getElementById('map').clientWidth")
    page.locator("#time").evaluate("(t) => { t.value = 12; t.dispatchEvent(new Event('input')); }")
    shown.until("document.querySelectorAll('.node.busy').length > 3")
    assert page.locator("#clock").inner_text() == "12.0 s"
    page.locator("#unit").select_option("min")
    shown.until("document.getElementById('clock').textContent === '0.2 min'")
    shown.until("document.querySelector('#story time').textContent.endsWith(' min')")
    page.locator("#unit").select_option("")
    shown.until("document.getElementById('clock').textContent === '12.0 s'")
    page.locator("#time").focus()
    page.keyboard.press("ArrowRight")
    shown.until("document.getElementById('clock').textContent !== '12.0 s'")
    page.locator("#speed").select_option("2")
    page.locator("#play").click()
    shown.until("parseFloat(document.getElementById('clock').textContent) > 14")
    page.locator("#play").click()  # pause
    at = page.locator("#clock").inner_text()
    page.wait_for_timeout(400)
    assert page.locator("#clock").inner_text() == at
    told_s = page.locator("#story time").evaluate_all("(all) => all.map((t) => parseFloat(t.textContent))")
    assert told_s == sorted(told_s, reverse=True)
    assert told_s[0] <= float(at.split()[0])
    shown.close()


def test_an_event_shows_what_it_carries(browser: Any, replay: str) -> None:
    shown = Page(browser, replay)
    page = shown.page
    last = runs.facts()[-1][0]
    page.locator("#time").evaluate("(t, s) => { t.value = s; t.dispatchEvent(new Event('input')); }", last)
    number = next(n for n, (_, fact) in enumerate(runs.facts(), 1) if isinstance(fact, f.MigrationAdmitted))
    fact: Any = runs.facts()[number - 1][1]
    page.locator("input[value=decided]").check()
    page.locator(f"#fact-{number}").click()
    shown.until("document.querySelector('#fact dd') !== null")
    assert fact.destination in page.locator("#fact").inner_text()
    page.locator("#story").focus()
    page.keyboard.press("ArrowDown")
    shown.until(f"!document.querySelector('#fact-{number}').matches('[aria-selected=true]')")
    shown.close()


def test_all_of_it_fits_a_narrow_screen_and_is_reached_by_keys(browser: Any, replay: str) -> None:
    shown = Page(browser, replay, width=400)
    page = shown.page
    shown.until("document.querySelectorAll('.node').length === 9")
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    reached = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.id || document.activeElement.dataset.host || ''"))
    assert {"play", "time", "speed", "line-scroll", "find-job", "story", "h1"} <= reached
    page.locator(".node[tabindex='0']").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    shown.until("document.getElementById('host-title').textContent === 'h2'")
    shown.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_can_be_read_by_everybody(browser: Any, replay: str, scheme: str) -> None:
    shown = Page(browser, replay)
    shown.page.emulate_media(color_scheme=scheme)
    shown.page.locator("#time").evaluate("(t) => { t.value = 12; t.dispatchEvent(new Event('input')); }")
    shown.until("document.querySelectorAll('.node.busy').length > 3")
    shown.page.locator("[data-host=h1]").click()
    assert violations(shown.page) == []
    # on a telephone a list scrolls sideways also when nothing is in it
    shown.page.set_viewport_size({"width": 400, "height": 900})
    shown.page.locator("#find-job").fill("no such job")
    shown.until("document.querySelectorAll('#jobs tr').length === 0")
    assert violations(shown.page) == []
    shown.close()


def test_a_page_follows_a_journal_that_is_written(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    runs.write_journal(path, seconds=12.0)
    writer = Journal(path)
    assert [line.number for line in writer.follow()][-1] == writer.number
    with runs.followed(path, os.getpid()) as address:
        shown = Page(browser, address, state="the coordinator does not answer")  # there is none
        page = shown.page
        page.locator("input[value=all]").check()

        def record(*facts: f.AnyFact) -> None:
            writer.append([Entry(13.0, Woke(), facts)])

        record(f.HostReclaimed("h2", 0.0, False, []), f.JobSubmitted("fresh<b>", 10, 1.0, 100))
        shown.until("document.querySelector('[data-host=h2]').matches('.reclaimed')")
        shown.until("document.getElementById('story').textContent.includes('fresh<b> submitted')")
        record(f.LinkChanged("a1", "d1", 0.0), f.HostReturned("h2"))
        shown.until("document.querySelector('[data-host=h2]').matches('.lent, .busy')")
        shown.until("document.querySelector('.cable.bad') !== null")
        page.locator("#time").evaluate("(t) => { t.value = 5; t.dispatchEvent(new Event('input')); }")
        shown.until("document.getElementById('clock').textContent === '5.00 s'")
        assert page.locator(".cable.bad").count() == 0
        page.locator("#now").click()
        shown.until("document.querySelector('.cable.bad') !== null")
        page.wait_for_timeout(200)
        shown.close()
    writer.close()


def campus_of(pid: int) -> RunningCampus:
    return next(campus for campus in running_campuses() if campus.owner_pid == pid)


@pytest.mark.parametrize("unused", [pytest.param(0, marks=[*kernel, pytest.mark.campus])])
def test_an_owners_switch_acts_on_the_kernel_and_a_coordinator_that_stands_still_is_told(
    browser: Any, tmp_path: Path, unused: int
) -> None:
    script = tmp_path / "commands"
    script.write_text("sh sleep 100\n")
    out = tmp_path / "out"
    with ExitStack() as opened:
        run = opened.enter_context(running(out, "up", "--hosts", "2", "--script", str(script)))
        said: list[str] = []
        while " stands: " not in (said or [""])[-1]:
            said.append(run.process.stdout.readline())
            assert said[-1], said
        address = opened.enter_context(runs.served("-m", "experiments.cli", "dashboard", "--port", "0"))
        root, _, token = address.partition("/#token=")
        shown = Page(browser, address, state="live")
        page, campus = shown.page, campus_of(run.process.pid)
        assert "token" not in page.url
        page.locator("[data-host=h1]").click()
        page.locator("button[value=now]").click()
        shown.until("document.querySelector('[data-host=h1]').matches('.reclaimed')")
        assert owner.look(Path(campus.switch_pin("h1"))).mode is Mode.ISOLATE
        assert "its agent has obeyed" in page.locator("#answer").inner_text()
        page.locator("button[value=return]").click()
        shown.until("document.querySelector('[data-host=h1]').matches('.lent')")
        assert owner.look(Path(campus.switch_pin("h1"))).mode is Mode.OFF
        page.locator("#notice").fill("300")
        page.locator("button[value=notice]").click()
        shown.until("document.querySelector('[data-host=h1]').matches('.noticed')")
        assert owner.look(Path(campus.switch_pin("h1"))).mode is Mode.DRAIN
        for headers in (
            {},
            {"Authorization": "Bearer x"},
            {"Authorization": f"Bearer {token}", "Origin": "http://x.example"},
        ):
            told = page.request.post(f"{root}/api/switch", data={"host": "h2", "do": "reclaim"}, headers=headers)
            assert told.status in (401, 403)
        assert owner.look(Path(campus.switch_pin("h2"))).mode is Mode.OFF
        shown.close()
        [coordinator] = run.pids("coordinator")
        os.kill(coordinator, signal.SIGSTOP)
        try:
            wait_until(lambda: b"does not answer" in get(f"{root}/healthz")[2])
        finally:
            os.kill(coordinator, signal.SIGCONT)
