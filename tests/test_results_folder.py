"""The index of a folder of results, and two runs side by side: whatever lies there, they say what it is."""

import json
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import typer
from msgspec import structs

from experiments.cli.main import app
from experiments.cli.options import put_away
from experiments.results import accounting, report
from experiments.results.events_file import EVENTS, write_events
from experiments.results.provenance import provenance
from experiments.results.report import tables
from experiments.results.runs.diff import differences, differing
from experiments.results.runs.folders import read_summary, result_folders
from experiments.results.runs.index import INDEX, is_index, update_index, write_index
from tests import run_story
from topologies.errors import SpecError


@cache
def results(seed: int) -> dict[str, bytes]:
    """Files of a run, by name."""
    facts, context = run_story.facts(seed=seed), run_story.context(seed=seed)
    summary = accounting.summarise(facts, context)
    with TemporaryDirectory() as folder:
        report.write(Path(folder), summary, facts, context, provenance())
        write_events(Path(folder) / EVENTS, facts)
        return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


def written(folder: Path, seed: int = 1) -> Path:
    folder.mkdir(parents=True)
    for name, content in results(seed).items():
        (folder / name).write_bytes(content)
    return folder


def test_the_index_lists_runs_pages_and_what_is_torn_or_of_another_version(tmp_path: Path) -> None:
    written(tmp_path / "good <run>")
    written(tmp_path / "group/inner")
    for name, text in (
        ("torn", '{"jobs": {'),
        ("old", '{"jobs": {"submitted": 3}}'),
        ("list", "[1]"),
        ("deep", "[" * 100_000),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "summary.json").write_text(text)
    (tmp_path / "foreign/deep/deeper").mkdir(parents=True)
    (tmp_path / "claims").mkdir()
    (tmp_path / "claims/index.html").write_text("<html>claims</html>")
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "fifo").mkdir()
    (tmp_path / "fifo/summary.json").symlink_to("/dev/zero")
    found = {each.name: (each.summary is not None, bool(each.fault)) for each in result_folders(tmp_path)}
    unreadable = dict.fromkeys(("torn", "old", "list", "deep"), (False, True))
    runs = dict.fromkeys(("good <run>", "group/inner"), (True, False))
    assert found == {**runs, **unreadable, "claims": (False, False)}
    text = write_index(tmp_path).read_text()
    assert 'href="good%20%3Crun%3E/report.html"' in text
    assert "good &lt;run&gt;" in text
    assert 'href="claims/index.html"' in text
    assert text.count("Every promise kept") == 2


def test_an_index_of_runs_that_measured_other_things_has_all_columns(tmp_path: Path) -> None:
    facts, context = run_story.facts(), run_story.context()
    summary = accounting.summarise(facts, context)
    for name, guaranteed in (("live", 0.9), ("virtual", None)):
        rates = structs.replace(summary.rates, worst_goodput_over_guarantee=guaranteed)
        report.write(tmp_path / name, structs.replace(summary, rates=rates), facts, context)
    text = write_index(tmp_path).read_text()
    assert text.count('<th class="n">worst goodput / ') == 2


def test_an_index_is_kept_where_one_belongs_and_no_other_page_is_touched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    update_index(written(tmp_path / "elsewhere/run"))
    assert not (tmp_path / "elsewhere" / INDEX).exists()
    update_index(written(Path("out/run")))
    assert is_index(tmp_path / "out" / INDEX)
    write_index(tmp_path / "elsewhere")
    written(tmp_path / "elsewhere/second", seed=2)
    update_index(tmp_path / "elsewhere/second")
    assert "elsewhere" in (text := (tmp_path / "elsewhere" / INDEX).read_text())
    assert "second/report.html" in text
    (tmp_path / "out" / INDEX).write_text("of claims")
    update_index(Path("out/run"))
    assert (tmp_path / "out" / INDEX).read_text() == "of claims"


def test_two_to_six_runs_are_compared_by_what_differs(tmp_path: Path) -> None:
    first, second = written(tmp_path / "first"), written(tmp_path / "second run", seed=2)
    here, there = (read_summary(folder / "summary.json")[0] for folder in (first, second))
    all_rows = {(row.section, row.label): row for row in differences((here, there))}
    rows = {(row.section, row.label): row for row in differing([first, second, first])}
    assert (
        rows.items()
        <= {
            key: row._replace(cells=(*row.cells, row.cells[0]), parts=(*row.parts, row.parts[0]))
            for key, row in all_rows.items()
        }.items()
    )
    assert ("cost", "k") not in rows
    assert {key for key, row in all_rows.items() if row.differs} == rows.keys() != set()
    total = rows["lost time", "total"]
    real_s = [each.lost_time.total_s / each.scale["time"] for each in (here, there)]
    assert total.cells[:2] == tuple(map(tables.gpu_time, real_s))
    assert total.parts[1] == pytest.approx(real_s[1] / real_s[0] - 1.0)
    for wrong in ([first], [first] * 7):
        with pytest.raises(SpecError, match="two to 6 folders"):
            differing(wrong)
    (unreadable := tmp_path / "unreadable").mkdir()
    (unreadable / "summary.json").write_text(json.dumps({"jobs": {}}))
    with pytest.raises(SpecError, match=r"unreadable/summary\.json.*this version"):
        differing([first, unreadable])
    with pytest.raises(SpecError, match=r"RUN = .*third"):
        differing([first, tmp_path / "third"])


def test_commands_keep_the_index_of_out_and_results_shows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def told(*words: str) -> str:
        assert not app(list(words), standalone_mode=False)
        put_away(in_index=True)
        return capsys.readouterr().out

    monkeypatch.chdir(tmp_path)
    Path("short.toml").write_text('name = "short [/b]"\ncampus = "example:lab"\nduration = "5 min"\n')
    for seed in ("1", "2"):
        assert "short [/b]: 5 volunteer" in told("simulate", "short.toml", "--seed", seed, "--out", f"out/s{seed}")
    index = Path("out/index.html").read_text()
    assert all(f'href="s{seed}/report.html"' in index for seed in "12")
    assert "Every promise kept" in told("results")
    assert "at real scale" in told("results", "out/s1", "out/s2")
    for wrong in (["nowhere"], ["a", "b", "c"]):
        with pytest.raises((SpecError, typer.BadParameter)):
            app(["results", *wrong], standalone_mode=False)
