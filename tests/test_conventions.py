"""The conventions of a good command: its version, JSON for scripts, quiet, levels of logs, completion, files under sudo."""

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.main import get_command

from controller.core.policies.table import POLICIES
from experiments.cli import status
from experiments.cli.main import app
from experiments.runtime.sudo_ownership import hand_over
from testbed import logs
from testbed import messages as m
from testbed.emulation.capabilities import Capability
from tests.live_campus import CLI, command, needs_root
from tests.sizes import PRODUCTION, headless, nodes, wordy

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs/scripts.md"
USER = "1234"


def asked(*words: str) -> dict[str, str]:
    """What bash asks by, about words of a command line, the last of them begun."""
    line = " ".join(["reclaimnet", *words])
    return {"_RECLAIMNET_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words))}


def completed(*words: str) -> list[str]:
    """What bash is told."""
    program = "import sys; sys.argv = ['reclaimnet']; from experiments.cli import start; start.main()"
    done = subprocess.run(
        [CLI[0], "-c", program],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env={**os.environ, **asked(*words)},
    )
    return done.stdout.split()


def test_what_others_wrote_is_decoded_by_those_who_know_all_that_this_raises() -> None:
    """`except msgspec.MsgspecError` lets one wrong byte of a text through (`topologies.decoding`)."""
    alone = []
    for folder in PRODUCTION:
        for path in sorted((DOCS.parents[1] / folder).rglob("*.py")):
            for caught in nodes(path):
                if isinstance(caught, ast.ExceptHandler) and caught.type is not None:
                    names = {each.attr for each in ast.walk(caught.type) if isinstance(each, ast.Attribute)}
                    if names & {"MsgspecError", "DecodeError"}:
                        alone.append(f"{path}:{caught.lineno}")
    assert not alone


def test_docstrings_begin_with_a_verb_or_a_head_and_are_plain() -> None:
    """pydocstyle (ruff) holds the rest: a summary of one line, in the imperative."""
    paths = [path for name in PRODUCTION for path in sorted((ROOT / name).rglob("*.py"))]
    assert headless(paths) == []
    assert wordy(paths) == []


def test_a_level_of_logs_reaches_the_processes_of_a_campus_and_a_wrong_one_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done = command("--log-level", "loud", "doctor")
    assert done.returncode == 2
    assert "debug, info, warning, error" in re.sub(r"\s+", " ", done.stderr.replace("│", ""))
    for named, level in (("debug", 10), ("ERROR", 40), ("loud", 20)):
        monkeypatch.setenv(logs.VARIABLE, named)
        assert logs.log_level() == level


def test_a_line_of_a_log_is_written_once_though_mininet_was_imported_first() -> None:
    program = """
import logging, mininet.log
from controller import host
from testbed.agent import host
from testbed.logs import log_level
logging.basicConfig(level=log_level(), format="%(name)s: %(message)s")
for name in ("agent", "controller"):
    logging.getLogger(name).info("said")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr == "agent: said\ncontroller: said\n"


def test_json_of_the_doctor_is_what_its_table_tells() -> None:
    done = command("doctor", "--json")
    [(key, found)] = json.loads(done.stdout).items()
    assert key == "capabilities"
    assert {"root", "BPF programs"} <= {each["name"] for each in found}
    assert all(set(each) == {"name", "present", "detail", "meaning", "mend", "need"} for each in found)


def test_every_key_of_json_is_documented() -> None:
    text = DOCS.read_text()
    structs = (status.CampusStatus, status.HostAndSwitch, status.OwnerSwitch, m.JobStatus, m.EndedJob, m.Status)
    keys = {field.name for each in structs for field in msgspec.structs.fields(each)}
    keys |= set(Capability.__dataclass_fields__)
    assert {key for key in keys if f"`{key}`" not in text} == set()


def test_options_of_the_command_line_stay_few_and_every_command_is_in_a_group() -> None:
    root: Any = get_command(app)
    assert len(root.commands) <= 32
    params = [each.name for command in (root, *root.commands.values()) for each in command.params]
    assert len(params) - params.count("as_json") <= 128  # which is the same of every command that has a result
    for name, each in root.commands.items():
        assert each.rich_help_panel in ("Run", "Look", "Change", "Compare", "Measure", "Write", "Tend"), name


def test_a_shell_completes_commands_and_policies(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def offered(*words: str) -> list[str]:
        for name, value in asked(*words).items():
            monkeypatch.setenv(name, value)
        with pytest.raises(SystemExit):
            app(prog_name="reclaimnet")
        return capsys.readouterr().out.split()

    assert "simulate" in completed("simu")
    assert {*POLICIES, "oracle"} == set(offered("simulate", "example:lab", "--system", ""))
    assert offered("storm", "--policy", "slurm") == [name for name in POLICIES if name.startswith("slurm")]
    assert offered("sweep", "example:lab", "--policy", "static,slurm-") == ["static,slurm-pr"]


@needs_root
@pytest.mark.parametrize("words", [("simulate", "example:lab"), ("simulate", "example:none")])
def test_a_quiet_command_under_sudo_prints_only_faults_and_its_files_are_its_callers_also_when_it_fails(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    tmp_path.chmod(0o755)
    caller = {**os.environ, "SUDO_UID": USER, "SUDO_GID": USER}
    done = command("--quiet", *words, "--out", str(tmp_path / "made/run"), env=caller)
    fails = "example:none" in words
    assert (done.returncode, done.stdout, "none" in done.stderr) == (2 if fails else 0, "", fails)
    assert (tmp_path / "made/run/report.html").exists() != fails
    found = [tmp_path / "made", *(tmp_path / "made").rglob("*")]
    assert len(found) > 1
    assert {(each.stat().st_uid, each.stat().st_gid) for each in found} == {(1234, 1234)}
    assert tmp_path.stat().st_uid == 0


@needs_root
def test_what_a_sudo_script_writes_belongs_to_its_caller(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    script = (
        "from experiments import demo_scenario, simulate, sweep; short = demo_scenario(3, 1, seconds=5.0); "
        "result = simulate(short); result.write('made/run'); result.report('pages/lab.html'); "
        "sweep(short, seeds=[1], out='swept', workers=1)"
    )
    environment = os.environ | {"SUDO_UID": USER, "SUDO_GID": USER}
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, env=environment, check=True, timeout=100)
    found = list(tmp_path.rglob("*"))
    assert {"report.html", "lab.html", "sweep.html"} <= {each.name for each in found}
    assert {(each.stat().st_uid, each.stat().st_gid) for each in found} == {(1234, 1234)}


@needs_root
def test_nothing_is_given_away_through_links(tmp_path: Path) -> None:
    secret, folder = tmp_path / "secret", tmp_path / "out"
    secret.write_text("root's")
    folder.mkdir()
    (folder / "soft").symlink_to(secret)
    (folder / "above").symlink_to(tmp_path)
    os.link(secret, folder / "hard")
    (folder / "own").write_text("")
    hand_over(folder, (1234, 1234))
    assert (folder / "own").stat().st_uid == 1234
    assert (folder / "soft").lstat().st_uid == 1234
    assert secret.stat().st_uid == tmp_path.stat().st_uid == 0
