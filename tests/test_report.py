"""The report is one page that needs nothing else, says the verdict, and survives whatever the journal holds."""

import io
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from msgspec import structs
from rich.console import Console

from bpf.observer import Observation
from controller.core.model import facts as f
from experiments.results import accounting, report
from experiments.results.campus_layout import layout
from experiments.results.narration import particulars, sentence
from experiments.results.report import charts, tables
from experiments.results.report.page import page
from experiments.results.report.timeline import queue_lengths, spans
from experiments.results.run_context import Death, FidelityRecord, RunContext
from testbed.emulation.safety.observation import DisturbedWindow
from tests import run_story
from topologies.files import load
from topologies.units import NO_LIMIT, format_duration, format_level

VOID = {"meta", "br", "hr", "img", "input", "link"}


class Page(HTMLParser):
    """Checks that every element is closed in order, and collects what a test asks for."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.words: list[str] = []
        self.urls: list[str] = []
        self.shapes: dict[str, int] = {}
        self.bad_numbers: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.shapes[tag] = self.shapes.get(tag, 0) + 1
        for name, value in attrs:
            if name in ("src", "href", "xlink:href", "action"):
                self.urls.append(value or "")
            if name in ("x", "y", "width", "height", "d", "cx", "cy") and re.search("nan|inf", value or ""):
                self.bad_numbers.append(f"{tag} {name}={value}")
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def written(tmp_path: Path, facts: list[run_story.Timed], context: RunContext) -> tuple[str, Page]:
    summary = accounting.summarise(facts, context)
    text = report.write(tmp_path / "out", summary, facts, context).read_text("utf-8")
    return text, Page(text)


@pytest.mark.parametrize("hosts", [1, 12, pytest.param(60, marks=pytest.mark.long)])
def test_page_is_well_formed_and_needs_nothing_else(tmp_path: Path, hosts: int) -> None:
    campus = run_story.small_campus(hosts)
    facts = run_story.facts(hosts)
    text, page = written(tmp_path, facts, run_story.context(campus))
    assert all(re.fullmatch(r"#[\w-]+", url) and f'id="{url[1:]}"' in text for url in page.urls)
    assert not re.search(r"https?://|@import|url\((?!#)", text)
    assert page.bad_numbers == []


def test_page_of_a_kept_run_says_so_and_shows_every_host_and_job(tmp_path: Path) -> None:
    facts = run_story.facts()
    text, page = written(tmp_path, facts, run_story.context())
    words = " ".join(page.words)
    assert "Every promise kept" in words
    for name in [*(f"h{n}" for n in range(1, 13)), "od1", "od2"]:
        assert name in page.words, name
    shown = set(re.findall(r'data-job="(j\d+)"', text))
    assert shown == {fact.job for _, fact in facts if isinstance(fact, f.JobDispatched)}


def test_page_of_a_broken_run_tells_the_story(tmp_path: Path) -> None:
    facts = [*run_story.facts(), (75.5, f.JobSubmitted("orphan", 10, 0.25, 10))]
    context = replace(
        run_story.context(),
        ended="coordinator died",
        fidelity=FidelityRecord(False, ("CPU 97 % busy",)),
        deaths=(Death(20.0, "h4", "killed"), Death(30.0, "coordinator", "killed")),
    )
    text, page = written(tmp_path, facts, context)
    words = " ".join(page.words)
    for part in ("1 breach of a promise", "orphan", "CPU 97 % busy", "coordinator died", "fidelity: not valid"):
        assert part in words, part
    assert text.count('class="death-mark"') == 2


def test_page_of_an_observed_run_says_what_the_kernel_saw_and_why_a_move_was_late(tmp_path: Path) -> None:
    notice_s, words = 4.0, np.zeros(505, np.uint64)
    words[0], words[1 + 3] = 41, 7  # segments sent again; packets dropped for reason 3, "no socket"
    facts: list[run_story.Timed] = [
        (0.0, f.JobSubmitted("a", 1, 1.0, 1)),
        (0.0, f.JobDispatched("a", 1, "h1")),
        (1.0, f.HostReclaimed("h1", notice_s, False, ["a"])),
        (1.0, f.MigrationAdmitted("a", 1, "h1", "h2", notice_s, 1000, 1e6, 1.0, 1.0)),
        (7.0, f.MigrationFinished("a", "h1", "h2", False, 6.0, 2.0)),
    ]
    verdict = FidelityRecord(
        observed={"h1": Observation(words)}, disturbances=[DisturbedWindow("h2", 2.0, 3.0, 0.08, 0)]
    )
    _, page = written(tmp_path, facts, replace(run_story.context(), fidelity=verdict))
    told = " ".join(page.words)
    assert "What the kernel saw" in told
    assert "7 no socket" in told
    assert "late: a, from h1 to h2, notice at 1.0 s: tasks of h2 waited 80 ms for a processor" in told


def test_text_from_the_journal_is_escaped(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>\"'&"
    facts: list[run_story.Timed] = [
        (0.0, f.JobSubmitted("a", 1, 1.0, 1)),
        (0.0, f.JobDispatched("a", 1, "h1")),
        (1.0, f.HostReclaimed("h1", 2.0, False, ["a"])),
        (1.0, f.MigrationDegraded("a", 1, "h1", 2.0, evil)),
        (2.0, f.JobFailed("a", 1, "h1", evil)),
        (2.0, f.HostLost("h2", evil, [])),
    ]
    text, page = written(tmp_path, facts, run_story.context())
    assert evil not in text
    assert page.shapes["script"] == 1


def test_empty_journal_makes_a_page(tmp_path: Path) -> None:
    context = replace(run_story.context(), research=(), switches=(), ended_at_s=None)
    _, page = written(tmp_path, [], context)
    words = " ".join(page.words)
    for part in (
        "Busiest links",
        "Rates against grants",
        "Lost GPU time",
        "Kill-switch",
        "Migrations",
        "worst goodput",
    ):
        assert part not in words, part


def test_facts_about_unknown_hosts_do_not_stop_the_page(tmp_path: Path) -> None:
    facts: list[run_story.Timed] = [
        (0.0, f.JobDispatched("a", 1, "elsewhere")),
        (0.0, f.Granted("a", "elsewhere", "nowhere", "odd", 1.0, 0.0, "")),
        (1.0, f.TransferFinished("a", 1, "elsewhere", "nowhere", True, 1, 1, 1.0, 3.0, 0)),
        (1.0, f.HostReclaimed("elsewhere", 0.0, False, [])),
    ]
    _, page = written(tmp_path, facts, run_story.context())
    assert page.bad_numbers == []


def test_terminal_table_shows_both_scales() -> None:
    summary = accounting.summarise(run_story.facts(), run_story.context())
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(report.summary_table(summary))
    text = console.export_text()
    assert "Every promise kept" in text
    assert re.search(r"│ target\s+│\s+1.5 s\s+│\s+1 min", text)


def test_figures_at_real_size_are_not_said_twice() -> None:
    context = replace(run_story.context(), scale=replace(run_story.SCALE, bytes=1.0, time=1.0))
    summary = accounting.summarise(run_story.facts(), context)
    assert {row.real for row in tables.figures(summary)} == {""}


def test_a_level_that_no_queue_reaches_is_no_number() -> None:
    queued = f.JobQueued("j1", 2, NO_LIMIT)
    assert sentence(queued) == "j1 joins the queue, 2 ahead (r = no limit)"
    assert ("level", "no limit") in particulars(queued)
    summary = structs.replace(accounting.summarise(run_story.facts(), run_story.context()), level=NO_LIMIT)
    assert {row.name: row.played for row in tables.figures(summary)}["level"] == "no limit"
    assert format_level(1.5) == "1.50"


def test_figures_of_what_did_not_occur_are_left_out() -> None:
    summary = accounting.summarise(run_story.facts(), run_story.context())
    unused = dict.fromkeys(summary.kill_switch.__struct_fields__, 0)
    summary = structs.replace(summary, kill_switch=type(summary.kill_switch)(**unused))
    summary = structs.replace(summary, cost=structs.replace(summary.cost, mean=None))
    shown = {row.name for row in tables.occurred(summary)}
    assert {"jobs.lost", "jobs.finished", "cost.k"} <= shown  # also a zero beside others
    assert not {"cost.mean", "kill_switch.probes"} & shown
    played, real = (
        {tile.label: tile.value for tile in tables.tiles(summary, as_played=each)} for each in (True, False)
    )
    factor = summary.scale["time"]
    assert played["GPU time lost in all"] == format_duration(summary.lost_time.total_s)
    assert real["GPU time lost in all"] == format_duration(summary.lost_time.total_s / factor)


def test_a_page_of_a_run_that_nothing_watched_says_so() -> None:
    context = replace(run_story.context(), fidelity=FidelityRecord(False, ("nothing watched",), watched=False))
    summary = accounting.summarise(run_story.facts(), context)
    assert tables.verdict(summary) == ("invalid", "Every promise kept; fidelity not watched")
    assert "fidelity not watched</span>" in page(summary, run_story.facts(), context)


def test_what_was_rented_is_seen_first() -> None:
    summary = accounting.summarise(run_story.facts(), run_story.context())
    jobs = structs.replace(summary.jobs, on_demand_gpu_s=7200.0 * summary.scale["time"])
    tiles = {tile.label: tile for tile in tables.tiles(structs.replace(summary, jobs=jobs))}
    assert tiles["jobs finished"].more.endswith("2.0 GPU-h rented")


def test_the_distance_from_the_least_stands_beside_what_it_covers_and_what_is_forced() -> None:
    summary = accounting.summarise(run_story.facts(), run_story.context())
    assert tables.least(summary) == ""  # of owners without a law
    hour_s, parts = 3600.0, {"expected_emergencies_s": 4.0, "pauses_s": 7.0}
    bounds = {"over_online_bound": 1.3125, "over_online_bound_unforced": 1.25, "online_bound_covers": 0.55}
    hours = {name: each * hour_s for name, each in (parts | {"online_bound_forced_s": 6.0}).items()}
    found = structs.replace(summary, lost_time=structs.replace(summary.lost_time, **hours, **bounds))
    words = tables.least(found)
    assert "11.0 GPU-h of 20.0 GPU-h that such a run loses, are 1.31 times the least" in words
    assert "without the 6.0 GPU-h of pauses that 2 L_max alone forces on every schedule, they are 1.25" in words
    shown = {row.name: row.played for row in tables.figures(found)}
    assert shown["lost_time.over_online_bound"] == "1.312"  # a ratio is no time


def test_reclaim_shows_as_notice_then_as_closed() -> None:
    facts: list[run_story.Timed] = [
        (1.0, f.HostReclaimed("h1", 2.0, False, [])),
        (3.0, f.HostReclaimed("h1", 0.0, False, [])),
        (7.0, f.HostReturned("h1")),
        (8.0, f.HostLost("h2", "killed", [])),
    ]
    assert [(s.host, s.kind, s.from_s, s.to_s) for s in spans(facts, 10.0)] == [
        ("h1", "notice", 1.0, 3.0),
        ("h1", "closed", 3.0, 7.0),
        ("h2", "silent", 8.0, 10.0),
    ]


def test_queue_length_counts_waiting_jobs_of_all_kinds() -> None:
    facts: list[run_story.Timed] = [
        (1.0, f.JobQueued("a", 0, 1.0)),
        (2.0, f.JobWaits("b", "no on-demand host")),
        (3.0, f.JobDispatched("a", 1, "h1")),
        (4.0, f.JobDispatched("b", 1, "od1")),
    ]
    assert queue_lengths(facts) == [(1.0, 1.0), (2.0, 2.0), (3.0, 1.0), (4.0, 0.0)]


def test_grants_on_a_link_are_those_of_all_flows_that_cross_it() -> None:
    facts: list[run_story.Timed] = [
        (1.0, f.Granted("a", "h1", "h2", "presync", 5.0, 0.0, "")),
        (1.0, f.Granted("b", "h1", "h5", "presync", 7.0, 0.0, "")),
        (2.0, f.GrantEnded("a", "h1", "h2")),
    ]
    history = {str(link): line for link, line in charts.granted_on_links(facts, run_story.context()).items()}
    assert history["h1>a1"] == [(1.0, 12.0), (2.0, 7.0)]
    assert history["a1>h2"] == [(1.0, 5.0), (2.0, 0.0)]
    assert history["d1>core"] == [(1.0, 7.0)]


def test_map_shows_every_core_and_the_trunks_beside_the_tree() -> None:
    drawn = layout(load("example:twocores"))
    tops = {name: drawn["nodes"][name]["y"] for name in ("core1", "core2", "library", "physics")}
    assert tops["core1"] == tops["core2"] < tops["library"] == tops["physics"]
    spare = [{link["a"], link["b"]} for link in drawn["links"] if not link["tree"]]
    assert spare == [{"library", "core2"}, {"physics", "core2"}]
