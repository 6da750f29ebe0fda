"""The documentation says what the program does: pages are current, links lead somewhere, commands run."""

import ast
import csv
import importlib.util
import json
import re
import sys
from pathlib import Path
from types import FrameType, ModuleType

import pytest
from typer.testing import CliRunner

from controller.core.coordinator import Coordinator
from controller.core.model.effects import Effect
from controller.core.model.events import AgentSaid, Event
from experiments.claims.framework.values import ValuesError
from experiments.cli.main import app
from experiments.inputs.scenario import demo_scenario
from experiments.inputs.traces import generate
from experiments.worlds.virtual import simulate
from testbed.messages import OwnerReclaims
from tests.doc_pages import Shell, functions, typed
from topologies.files import load

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", DOCS / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_reference_pages_are_those_that_the_program_makes_today() -> None:
    for page, made in generator().PAGES.items():
        assert (DOCS / page).read_text() == made(), f"{page}: run `python docs/generate.py`"


def test_a_figure_between_marks_is_that_of_its_values_file() -> None:
    made = generator()
    [row] = [row for row in made.values_of("B4").rows if (row.system, row.quantity) == ("Algorithm 1 from 6", "cost")]
    key = "B4/Poisson_jobs_and_spots/Algorithm_1_from_6/cost:~.3f"
    shown = f"{row.measured:.3f} [{row.low:.3f}, {row.high:.3f}]"
    assert made.filled(f"It costs <!--={key}-->8.0<!--=--> h.") == f"It costs <!--={key}-->{shown}<!--=--> h."
    with pytest.raises(ValuesError, match="there are fixed"):
        made.filled("<!--=B4/Poisson_jobs_and_spots/nothing/cost-->8.0<!--=-->")


@pytest.mark.parametrize("page", sorted((DOCS / "reference").glob("*.md")), ids=lambda page: page.stem)
def test_every_key_field_and_column_says_what_it_means_in_a_whole_row(page: Path) -> None:
    cells = 0
    for line in page.read_text().splitlines():
        assert not line.endswith(":") or "Options" in line or not line.startswith("- "), line
        if not line.startswith("|"):
            cells = 0
            continue
        assert not line.endswith("|  |"), line
        count = len(re.sub(r"\\\||`[^`]*`", "", line).split("|"))
        cells = cells or count
        assert count == cells, line


def without_blocks(page: Path) -> str:
    return re.sub(r"```.*?```", "", page.read_text(), flags=re.S)


def headings(page: Path) -> set[str]:
    """The anchors of a page's headings, as mkdocs makes them: a second one of a name ends in `_1`."""
    found = list[str]()
    for title in re.findall(r"^#+ (.+)$", without_blocks(page), re.MULTILINE):
        words = re.sub(r"[^\w\s-]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title)).strip().lower()
        found.append(re.sub(r"[-\s]+", "-", words))
    return {f"{each}_{found[:n].count(each)}" if each in found[:n] else each for n, each in enumerate(found)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_to_files_and_headings_that_exist(page: Path) -> None:
    for target, heading in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]+))?", without_blocks(page)):
        if not target.startswith("https://"):
            linked = page.parent / target if target else page
            assert linked.exists(), target
            assert not heading or heading in headings(linked), (target, heading)


def test_every_example_of_the_docs_is_shown_on_a_page() -> None:
    shown = {name for page in PAGES for name in re.findall(r'^--8<-- "(.+)"$', page.read_text(), re.MULTILINE)}
    named = "".join(page.read_text() for page in PAGES)
    for path in (ROOT / "docs/examples").iterdir():
        if path.is_file():  # a notebook is named: as text it would be its JSON
            name = str(path.relative_to(ROOT))
            assert name in shown or (path.suffix == ".ipynb" and f"`{name}`" in named), name
    assert all((ROOT / name).is_file() for name in shown)


def test_every_adversary_is_held_by_a_test_that_exists() -> None:
    rows = [line for line in (ROOT / "SECURITY.md").read_text().splitlines() if line.startswith("|")][2:]
    tests = "".join(path.read_text() for path in (ROOT / "tests").glob("test_*.py"))
    named = [re.findall(r"`(test_\w+)`", row) for row in rows]
    assert all(named)
    assert {name for each in named for name in each if f"def {name}(" not in tests} == set()


def test_every_page_is_in_the_navigation() -> None:
    listed = set(re.findall(r"[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text()))
    assert listed == {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")}


def test_the_campus_of_the_reference_page_is_one() -> None:
    campus = load(DOCS / "examples/yard.toml")
    assert (len(campus.hosts), campus.name) == (11, "yard")


def test_the_dockerfile_and_the_public_checks_do_what_the_makefile_does() -> None:
    """Neither is run by the tests: their steps are the Makefile's own, and their Debian has a Python that setup.cfg allows."""
    made, image = (ROOT / "Makefile").read_text(), (ROOT / "Dockerfile").read_text()
    steps = re.findall(r"^RUN (.+)$", image, re.MULTILINE)
    assert len(steps) == 5
    for step in steps:
        words = (
            re.sub(r" && .*| --no-cache-dir|'|\[[a-z,]+\]", "", step)
            .replace(".venv/bin", "$(BIN)")
            .replace(".venv", "$(VENV)")
        )
        words = words.replace("/usr/bin/python3", "$(PYTHON)")
        known = [
            re.sub(r" --quiet --disable-pip-version-check( --no-compile)?|'|\[dev\]|\$\(SUDO\) ", "", line)
            for line in made.splitlines()
        ]
        assert f"\t{words}" in known, step
    pythons = {"bookworm": (3, 11), "trixie": (3, 13)}
    [debian] = re.findall(r"^FROM debian:(\w+)", image, re.MULTILINE)
    settings = (ROOT / "setup.cfg").read_text()
    needed = re.search(r"python_requires = >=(\d+)\.(\d+)", settings)
    assert pythons[debian] >= (int(needed[1]), int(needed[2]))
    [extras] = re.findall(r"editable '\.\[(.+)\]'", image)
    assert all(re.search(rf"^{extra} =$", settings, re.MULTILINE) for extra in extras.split(","))
    checks = (ROOT / ".github/workflows/ci.yml").read_text()
    targets = set(re.findall(r"^([\w-]+):", made, re.MULTILINE))
    asked = re.findall(r"run: make (\S+)", checks)
    assert asked
    assert set(asked) <= targets
    assert "docker build" in checks
    lines = dict(line.split(" ", 1) for line in image.splitlines() if line.startswith(("CMD", "ENTRYPOINT")))
    assert json.loads(lines["ENTRYPOINT"]) == ["reclaimnet"]
    assert CliRunner().invoke(app, [*json.loads(lines["CMD"]), "--help"]).exit_code == 0


def test_the_readme_is_at_most_900_words() -> None:
    assert len((ROOT / "README.md").read_text().split()) <= 900


def test_the_tutorial_runs_as_it_is_written(tmp_path: Path) -> None:
    *blocks, _ = typed("docs/tutorial.md")
    with Shell(tmp_path) as shell:
        for block in blocks:
            shell.play(block)
    out = tmp_path / "out/tutorial"
    assert (out / "lost.svg").read_text().count("<path") > 5
    [told] = re.findall(
        r"the new rule loses (\d+) minutes of work, the project's (\d+)", (DOCS / "tutorial.md").read_text()
    )
    lost_s = [
        json.loads((out / name / "summary.json").read_text())["interruptions"]["lost_gpu_s"]
        for name in ("stable-first", "reclaimnet")
    ]
    assert [int(minutes) for minutes in told] == [round(lost / 60) for lost in lost_s]


@pytest.mark.long
def test_the_sweep_of_the_tutorial_does_not_tell_its_rules_apart(tmp_path: Path) -> None:
    with Shell(tmp_path) as shell:
        shell.play(typed("docs/tutorial.md")[-1])
    with (tmp_path / "out/tutorial/sweep/intervals.csv").open() as file:
        [row] = [
            row for row in csv.DictReader(file) if row["figure"] == "interruptions.lost_gpu_s" and row["difference"]
        ]
    assert float(row["difference_low"]) <= 0.0 <= float(row["difference_high"])


@pytest.mark.long
def test_the_page_of_traces_runs_as_it_is_written(tmp_path: Path) -> None:
    with Shell(tmp_path) as shell:
        for block in typed("docs/traces.md"):
            shell.play(block)
    told = {
        name: json.loads((tmp_path / "out/traces" / name / "summary.json").read_text()) for name in ("file", "function")
    }
    assert told["file"]["emergencies"]["reclaims"] == 1  # as owners.csv has it
    assert told["function"]["emergencies"]["reclaims"] == 0


@pytest.mark.parametrize("page", ["docs/one_reclaim.md", "docs/one_checkpoint.md"])
def test_the_functions_that_a_page_follows_are_there(page: str) -> None:
    tables = functions(page)
    assert len(tables) >= 5
    for name in (name for table in tables for name in table):
        file, qualified = name.split()
        body: list[ast.stmt] = ast.parse((ROOT / file).read_text()).body
        for part in qualified.split("."):
            found = [each for each in body if getattr(each, "name", "") == part]
            assert found, name
            body = getattr(found[0], "body", [])


def test_the_page_of_one_reclaim_follows_an_owners_notice_through_the_coordinator(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    way = functions("docs/one_reclaim.md")[2]
    handle, taken = Coordinator.handle, set[tuple[str, ...]]()

    def watched(self: Coordinator, event: Event, now_s: float) -> list[Effect]:
        if not (isinstance(event, AgentSaid) and isinstance(event.message, OwnerReclaims)):
            return handle(self, event, now_s)
        met = dict[str, None]()

        def calls(frame: FrameType, what: str, _: object) -> None:
            if what == "call":
                met[f"{frame.f_code.co_filename.removeprefix(f'{ROOT}/')} {frame.f_code.co_qualname}"] = None

        sys.setprofile(calls)
        try:
            return handle(self, event, now_s)
        finally:
            sys.setprofile(None)
            taken.add(tuple(name for name in met if name in way))

    monkeypatch.setattr(Coordinator, "handle", watched)
    scenario = demo_scenario(seed=1)
    simulate(scenario, generate(scenario))
    assert len(way) == 10
    assert tuple(way) in taken


def test_the_comparison_gives_a_reason_where_something_is_missing() -> None:
    [_, table] = (DOCS / "boundaries.md").read_text().split("## Compared with")
    rows = [line[1:-1].split("|") for line in table.splitlines() if line.startswith("|")][2:]
    assert len(rows) == len({what for what, *_ in rows}) == 95
    assert sum(here == "yes" for _, here, _ in rows) >= 69
    for what, here, others in rows:
        assert here in ("yes", "not yet") or re.match(r"no: .|not yet: .", here), what
        assert set(others) <= set("MSHKG"), what


def test_the_picture_of_the_live_page_is_small_and_there() -> None:
    picture = DOCS / "live.webp"
    assert picture.read_bytes()[8:12] == b"WEBP" and 20_000 < picture.stat().st_size < 150_000
    assert "docs/live.webp" in (ROOT / "README.md").read_text()
