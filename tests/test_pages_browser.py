"""Every kind of page in Chromium: nothing breaks WCAG AA, every mark is reached by keyboard, two months open at once."""

import random
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from controller.core.model import facts as f
from experiments.results import accounting
from experiments.results.report import write as write_report
from experiments.results.report.page import page as report
from experiments.results.report.timeline import timeline
from experiments.results.report.times import elapsed
from experiments.results.run_context import Death, RunContext
from experiments.results.runs.index import write_index
from tests import run_story
from tests.test_pages_scripts import CHROMIUM, KINDS, page
from topologies import presets
from topologies.scale import Scale

axe_playwright = pytest.importorskip("axe_playwright_python.sync_playwright", reason="no axe-core")
pytestmark = [pytest.mark.extra, pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")]

WCAG = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
DAY_S = 86400.0
LONGEST_PAGE_BYTES = 1_500_000


def violations(tab: Any, context: Any = None) -> list[tuple[str, str]]:
    """Rules of WCAG AA that a page breaks, with the first element that does; pages in frames are looked at by themselves."""
    looked = axe_playwright.Axe().run(tab, context, {"runOnly": WCAG, "iframes": False})
    return [(each["id"], each["nodes"][0]["html"]) for each in looked.response["violations"]]


@pytest.fixture
def opened(browser: Any) -> Iterator[Any]:
    """Opens a page; whatever it says to the console fails the test."""
    said: list[str] = []
    pages: list[Any] = []

    def open_page(file: Path, width: int = 1300, **context: Any) -> Any:
        tab = browser.new_page(viewport={"width": width, "height": 900}, **context)
        pages.append(tab)
        tab.on("console", lambda message: said.append(message.text))
        tab.on("pageerror", lambda error: said.append(str(error)))
        tab.goto(file.as_uri())
        return tab

    yield open_page
    for tab in pages:
        tab.close()
    assert said == []


def two_months(hosts: int = 53, jobs: int = 300, checkpoints: int = 80) -> tuple[list[run_story.Timed], RunContext]:
    """61 days of a campus: jobs one after another on each host, their checkpoints and transfers, reclaims."""
    campus = presets.three_tier(hosts, 4, 1)
    context = replace(
        run_story.context(campus),
        scale=Scale(),
        research=(),
        switches=(),
        ended_at_s=61 * DAY_S,
        deaths=(Death(DAY_S, "h3", "killed"),),
    )
    rng, facts = random.Random(1), []
    for n in range(jobs):
        job, host, at_s = f"j{n}", f"h{n % hosts + 1}", (n // hosts) * 10 * DAY_S + rng.uniform(0.0, DAY_S)
        facts += [(at_s, f.JobSubmitted(job, 10_000, 60.0, 10**9)), (at_s, f.JobDispatched(job, 1, host))]
        facts.append((at_s + 60.0, f.JobRunning(job, 1, host, 0, "", None, None)))
        for k in range(1, checkpoints + 1):
            here_s, standby = at_s + 600.0 * k, f"h{(n + 7) % hosts + 1}"
            facts.append((here_s, f.CheckpointTaken(job, 1, 10**6 + k, 10 * k, 10**9, False)))
            facts.append((here_s, f.CheckpointCompleted(job, 10**6 + k, 10 * k, standby, 10**9)))
            sent = rng.randint(10**8, 10**9)
            facts.append(
                (
                    here_s,
                    f.TransferFinished(job, 10**6 + k, host, standby, True, sent, 0, 60.0, rng.uniform(0.97, 1.0), 0),
                )
            )
        facts.append((at_s + 5 * DAY_S, f.JobFinished(job, 1, host, 10_000, "")))
        facts += [(at_s + 6 * DAY_S, f.HostReclaimed(host, 0.0, False, [])), (at_s + 7 * DAY_S, f.HostReturned(host))]
    return sorted(facts, key=lambda timed: timed[0]), context


@pytest.fixture(scope="module")
def long_report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    facts, context = two_months()
    file = tmp_path_factory.mktemp("long") / "report.html"
    file.write_text(report(accounting.summarise(facts, context), facts, context), encoding="utf-8")
    return file


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.long) if kind != "report" else kind for kind in KINDS]
)
def test_no_page_breaks_wcag_aa_in_light_or_dark_wide_or_narrow(kind: str, tmp_path: Path, opened: Any) -> None:
    file = page(kind, tmp_path)
    for width, scheme in ((1300, "light"), (400, "dark")):
        tab = opened(file, width, color_scheme=scheme)
        # marks of charts have neither text nor role until they are reached, and there are thousands
        assert violations(tab, {"exclude": [[".marks"]]}) == []
        assert tab.evaluate("document.documentElement.scrollWidth") <= width


def test_arrow_keys_reach_every_bar_and_tell_it(tmp_path: Path, opened: Any) -> None:
    tab = opened(page("report", tmp_path))
    tab.focus("svg.timeline")
    wanted = tab.evaluate("document.querySelectorAll('svg.timeline [data-tip]').length")
    reached = tab.evaluate(
        """(most) => {
        const seen = new Set();
        for (let n = 0; n < most; n++) {
            document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowRight", bubbles: true }));
            const here = document.activeElement;
            if (here.getAttribute("aria-label") === here.dataset.tip && here.getAttribute("role") === "img") seen.add(here);
        }
        return [seen.size, [...seen].filter((e) => e.matches(".bar")).length];
    }""",
        wanted + 5,
    )
    assert reached == [wanted, tab.evaluate("document.querySelectorAll('svg.timeline .bar[data-tip]').length")]
    assert tab.inner_text("#tip") != ""
    tab.keyboard.press("Home")
    tab.keyboard.press("ArrowDown")
    assert tab.evaluate("document.activeElement.matches('svg.timeline [data-tip]')")


def test_arrow_keys_reach_the_marks_of_a_plot_and_enter_enlarges_it(tmp_path: Path, opened: Any) -> None:
    tab = opened(page("claims", tmp_path))
    tab.focus("svg.plot")
    told = []
    for _ in range(2):
        tab.keyboard.press("ArrowRight")
        told.append(tab.text_content("#tip"))
    assert told == ["s: 1.5\nmeasured", "s: 1\nmeasured"]
    width = tab.evaluate("document.querySelector('svg.plot').clientWidth")
    tab.focus("svg.plot")
    tab.keyboard.press("Enter")
    assert tab.evaluate("document.querySelector('svg.plot').clientWidth") > 2 * width


def test_the_index_is_sorted_and_filtered_by_a_run_s_columns(tmp_path: Path, opened: Any) -> None:
    facts, context = run_story.facts(), run_story.context()
    summary = accounting.summarise(facts, context)
    for name, policy, lost_s in (("a", "share", 9.0), ("b", "no-p1", 700.0), ("c", "share", 40.0)):
        lost = structs.replace(summary.lost_time, total_s=lost_s)
        write_report(tmp_path / name, structs.replace(summary, policy=policy, lost_time=lost), facts, context)
    tab = opened(write_index(tmp_path))
    shown = "[...document.querySelectorAll('.runs tbody tr:not([hidden])')].map((tr) => tr.cells[0].innerText).join('')"
    for head, orders in (("GPU time lost in all", ("acb", "bca")), ("policy", ("bca", "cab"))):
        for order in orders:
            tab.click(f".runs th button:text-is('{head}')")
            assert tab.evaluate(shown) == order
    tab.select_option("[data-filter=policy]", "no-p1")
    assert tab.evaluate(shown) == "b"


def test_every_time_size_and_rate_follows_the_switches(tmp_path: Path, opened: Any) -> None:
    tab = opened(page("report", tmp_path))
    before = tab.inner_text("main")
    context = run_story.context()
    shown = re.search(r"([\d.]+) min played", before)  # what is converted has the digits that are shown
    assert shown and 60.0 * float(shown[1]) == pytest.approx(context.ended_at_s, rel=5e-3)
    tab.select_option("#scale", "real")
    duration_s = 60.0 * float(shown[1]) / context.scale.time
    assert f"{float(f'{duration_s / 60.0:.4g}'):g} min played" in tab.inner_text(".about")
    tab.select_option("#unit", "h")
    assert f"{float(f'{duration_s / 3600.0:.4g}'):g} h played" in tab.inner_text(".about")
    told = ["12 d 06:30", "2:30 min", "10.8 GPU-h", "90 s to 3 min", "4 Mbit/s", "h2 5"]
    found = tab.evaluate("(told) => told.map((each) => inUnits(each, document.body))", told)
    time, size = context.scale.time, context.scale.bytes
    hours = [
        float(f"{each / 3600.0 / time:.4g}") for each in (12 * 86400 + 6.5 * 3600, 150.0, 10.8 * 3600, 90.0, 180.0)
    ]
    assert found[:4] == [
        f"{hours[0]:g} h",
        f"{hours[1]:g} h",
        f"{hours[2]:g} GPU-h",
        f"{hours[3]:g} h to {hours[4]:g} h",
    ]
    assert found[4:] == [f"{4.0 * time / size:.4g} Mbit/s", "h2 5"]
    tab.select_option("#scale", "")
    tab.select_option("#unit", "")
    assert tab.inner_text("main") == before


def test_enter_follows_the_job_that_is_reached_and_escape_lets_it_go(tmp_path: Path, opened: Any) -> None:
    tab = opened(page("report", tmp_path))
    tab.evaluate("reach(document.querySelector('svg.timeline .bar[data-tip]'))")
    tab.keyboard.press("Enter")
    job = tab.evaluate("document.activeElement.dataset.job")
    hot = tab.evaluate("[...new Set([...document.querySelectorAll('.hot')].map((e) => e.dataset.job))]")
    assert hot == [job]
    tab.keyboard.press("Escape")
    assert tab.evaluate("document.querySelectorAll('.hot').length") == 0


def test_two_months_of_54_hosts_are_small_and_their_axes_tell_days(long_report: Path, opened: Any) -> None:
    assert long_report.stat().st_size < LONGEST_PAGE_BYTES
    tab = opened(long_report)
    assert tab.evaluate("document.querySelectorAll('svg.timeline .marks > *').length") <= 5000
    ticks = tab.eval_on_selector_all("svg.timeline .tick", "all => all.map((e) => e.textContent)")
    assert {"day 1", "day 11", "10 d", "60 d"} <= set(ticks)
    assert not re.search(r"\de\+", tab.inner_text("body"))


def test_marks_of_the_same_pixel_of_a_lane_are_drawn_once() -> None:
    facts, context = two_months()
    ticks = re.findall(r'<path d="M([\d.]+),([\d.]+)[^"]*" class="checkpoint"', timeline(facts, context))
    places = {(int(float(x)), y) for x, y in ticks}
    assert 1000 < len(ticks) == len(places) < 5000


def test_a_page_on_paper_shows_no_controls_and_light_colours(tmp_path: Path, opened: Any) -> None:
    tab = opened(page("report", tmp_path), color_scheme="dark")
    tab.emulate_media(media="print")
    assert not tab.is_visible(".hint")
    assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert tab.evaluate("getComputedStyle(document.documentElement).getPropertyValue('--ink').trim()") == "#1b2330"


@pytest.mark.parametrize(
    ("at_s", "text"),
    [
        (0.0, "0 s"),
        (0.25, "0.25 s"),
        (59.9, "59.9 s"),
        (150.0, "2:30 min"),
        (3600.0, "1 h"),
        (23400.5, "6:30:00.5 h"),
        (1.5 * DAY_S, "1 d 12:00"),
        (61 * DAY_S, "61 d"),
    ],
)
def test_a_time_is_told_in_days_hours_and_minutes(at_s: float, text: str) -> None:
    assert elapsed(at_s) == text
