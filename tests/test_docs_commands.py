"""Every command, and every snippet of Python, TOML or YAML, that the pages print: played as printed, or at least understood."""

import ast
import contextlib
import inspect
import re
import shlex
import tomllib
from pathlib import Path
from socket import socket

import pytest
import typer
from typer.core import TyperGroup

from experiments import sweep
from experiments.cli.main import app
from experiments.cli.options import console
from experiments.inputs.scenario import loads
from tests.doc_pages import CUTS, PAGES, ROOT, TOO_LONG, Block, Shell, blocks, commands, typed, why_not_played
from topologies import plugins, three_tier
from topologies.files import dumps

# Which tests play the commands, Python and TOML of a page.
PLAYED = {
    "README.md": ("test_docs_live.py",),
    "docs/api.md": ("test_api.py",),
    "docs/dashboard.md": ("test_docs_live.py", "test_docs_commands.py"),
    "docs/how/fabric.md": ("test_docs_commands.py", "test_docs_live.py", "test_as_mininet.py"),
    "docs/how/links.md": ("test_docs_commands.py", "test_docs_live.py"),
    "docs/install.md": ("test_wheel.py",),
    "docs/own_jobs.md": ("test_docs_live.py", "test_own_jobs_scenario.py"),
    "docs/plugins.md": ("test_docs_commands.py",),
    "docs/scripts.md": ("test_docs_commands.py",),
    "docs/several_machines.md": ("test_machines.py",),
    "docs/sweeps.md": ("test_docs_commands.py",),
    "docs/torch.md": ("test_torch_live.py",),
    "docs/traces.md": ("test_docs.py",),
    "docs/tutorial.md": ("test_docs.py",),
}
LANGUAGES = {"sh", "console", "python", "toml", "yaml", "json", "text", "mermaid"}
[UsageError] = typer.BadParameter.__bases__
MissingParameter, NoArgsIsHelpError = (
    next(each for each in UsageError.__subclasses__() + typer.BadParameter.__subclasses__() if each.__name__ == name)
    for name in ("MissingParameter", "NoArgsIsHelpError")
)
AFTERNOON = ROOT / "docs/examples/afternoon.toml"


def test_every_block_says_its_language_and_every_page_that_has_something_to_play_is_played() -> None:
    found = set()
    for page in PAGES:
        for block in blocks(page):
            assert block.language in LANGUAGES, (page, block.line)
            is_played = block.language in ("console", "python", "toml", "yaml") or any(
                why_not_played(command) is None for command in block.commands if block.language == "sh"
            )
            if is_played and not block.is_file:
                found.add(page)
    assert found == set(PLAYED)
    for page, tests in PLAYED.items():
        for test in tests:
            assert page.removeprefix("docs/") in (ROOT / "tests" / test).read_text(), (page, test)


def test_the_tables_of_commands_that_are_cut_or_not_played_name_none_that_is_gone() -> None:
    text = "\n".join(command for page in PAGES for command in commands(page))
    assert [printed for printed in CUTS if printed not in text] == []
    assert [begins for begins in TOO_LONG if not re.search(f"^{re.escape(begins)}", text, re.MULTILINE)] == []


PARSER = typer.main.get_command(app)


def understood(words: list[str]) -> None:
    """Takes the words after `reclaimnet` through the parser that the program has, up to the call."""
    command, name, context = PARSER, "reclaimnet", None
    try:
        while isinstance(command, TyperGroup):
            context = command.make_context(name, words, parent=context)
            name, found, words = command.resolve_command(context, [*context._protected_args, *context.args])
            command = found
        command.make_context(name, words, parent=context).close()
    finally:
        console.quiet = False  # as callbacks of options have left it


@pytest.fixture
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where commands are read: one that the pages call FOLDER lies there."""
    here = tmp_path / "docs" / "examples"  # as deep: pages write to ../../out
    (here / "FOLDER").mkdir(parents=True)
    monkeypatch.chdir(here)


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.usefixtures("in_a_folder")
def test_commands_within_sentences_and_tables_are_those_of_the_program(page: str) -> None:
    text = (ROOT / page).read_text()
    for named in re.findall(r"(?:^|[\s`/])reclaimnet ([a-z][^`|\n]*)", text):
        words = ["3" if word == "S" else word for word in shlex.split(named, comments=True)]
        # what is only named lacks its arguments; `--help` prints it and is over
        with contextlib.suppress(MissingParameter, NoArgsIsHelpError, typer.Exit):
            understood(words)
    targets = re.findall(r"^([\w.$()/-]+):", (ROOT / "Makefile").read_text().replace("$(VENV)", ".venv"), re.MULTILINE)
    assert set(re.findall(r"`make ([^\s`]+)`", text)) <= set(targets)


BEFORE = {  # what the reader of a page has done before
    "docs/dashboard.md": ["reclaimnet simulate example:lab"],
    "docs/scripts.md": ["reclaimnet simulate example:lab --out out/first", "reclaimnet simulate example:lab --out out/second"],
}  # fmt: skip
LEAVES = {
    "docs/dashboard.md": ["out/simulate/campus.toml"],
    "docs/plugins.md": ["out/plugins/report.html"],
    "docs/scripts.md": ["out/index.html"],
    "docs/sweeps.md": ["out/sweep/sweep.html", "out/sweep/runs.csv"],
}


LONG = (pytest.mark.extra, pytest.mark.long)


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=LONG) if page in ("docs/scripts.md", "docs/sweeps.md") else page for page in LEAVES],
)
def test_the_commands_of_a_page_work_as_they_are_printed(page: str, tmp_path: Path) -> None:
    with socket() as unused:
        unused.bind(("127.0.0.1", 0))
        free_port = unused.getsockname()[1]
    with Shell(tmp_path) as shell:
        shell.cuts |= {"8786": str(free_port)}
        shell.environment |= {"PYTEST_ADDOPTS": "-p no:cacheprovider"}
        for command in BEFORE.get(page, []):
            shell.run(command)
        for block in typed(page):
            shell.play(block, as_root=False)
    assert [name for name in LEAVES[page] if not (tmp_path / name).is_file()] == []


def test_the_events_of_the_page_of_links_are_read_in_a_scenario(tmp_path: Path) -> None:
    [block] = blocks("docs/how/links.md", "toml")
    (tmp_path / "campus.toml").write_text(dumps(three_tier(12, 3)))  # that of `demo` and `up`
    slower, cut = loads(f'name = "cut"\nduration = "1 h"\ncampus = "campus.toml"\n{block.text}', folder=tmp_path).events
    assert (slower.at_s, slower.between, slower.rate_bytes_per_s, slower.delay_s) == (1200.0, ("h3", "a1"), 25e6, 0.005)
    assert (cut.at_s, cut.between, cut.up) == (1800.0, ("d1", "core"), False)


def test_the_entry_points_of_the_page_of_plugins_are_groups_that_are_looked_into() -> None:
    [block] = blocks("docs/plugins.md", "toml")
    groups = {plugins.POLICIES, plugins.TOPOLOGIES, plugins.TRACES, plugins.WORKLOADS}
    assert set(tomllib.loads(block.text)["project"]["entry-points"]) == groups


@pytest.mark.parametrize("block", blocks("docs/sweeps.md", "python"), ids=["kubernetes", "slurm"])
def test_sweeps_on_clusters_that_are_not_here_call_it_as_it_may_be_called(block: Block) -> None:
    [call] = [
        node
        for node in ast.walk(ast.parse(block.text))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "sweep"
    ]
    inspect.signature(sweep).bind(*call.args, **{str(word.arg): word.value for word in call.keywords})
    assert (AFTERNOON.parent / ast.literal_eval(call.args[0])).is_file()
