"""README.md, CONTRIBUTING.md and docs as a reader follows them: their fenced blocks, and a shell to type their commands into."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.live_campus import end

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
)
# Commands that are not played in full, by how they begin, and why: their words go through the program's own parser.
TOO_LONG = {
    "make ": "it is what these tests are part of, or takes minutes to hours; `make -n` knows the target",
    "sudo .venv/bin/reclaimnet measure ": "nine minutes; tests/test_measure_*.py play its parts",
    "reclaimnet reproduce traces ": "hours, with records of others; tests/test_claims_traces.py plays one",
    "sudo apt-get install ": "it would change the machine; apt-get simulates it",
    "sudo lab/bin/reclaimnet demo": "a minute of compiling; the same demo is played from the tree, the wheel's programs compiled",
    "lab/bin/reclaimnet simulate ": "half a minute of compiling; what needs none of it is played by tests/test_wheel.py",
    "reclaimnet token create --host h3": "it asks the campus of a real machine; tests/test_installed.py does",
    "reclaimnet agent ": "it would change the machine; tests/test_installed.py installs it in a container",
    "reclaimnet coordinator ": "it would change the machine; tests/test_installed.py installs it in a container",
    "docker ": "it needs an engine, and the network; tests/test_docs.py compares the Dockerfile's steps with the Makefile's",
}
# What stands for so many seeds, hosts or names of the reader's own, here.
CUTS = {
    "--seeds 1:21": "--seeds 1:2",
    "--dask tcp://SCHEDULER:8786": "--dask tcp://SCHEDULER:8786 --seeds 1:2 --policy reclaimnet,static",
    "--nworkers 16": "--nworkers 2",
    "SCHEDULER": "127.0.0.1",
    "FOLDER": "out",
    "up --hosts 4": "up --hosts 5",  # one campus for the commands of all pages, some of which name h5
    "reclaimnet dashboard": "reclaimnet dashboard --port 0",  # another page may stand at 8080
}
# Commands that end when they are interrupted, and what they say when they stand.
STANDS = {
    r"reclaimnet up": "mininet>",
    r"reclaimnet demo$": "volunteer hosts",
    r"reclaimnet dashboard": r"http://127\.0\.0\.1:\d+/",
    r"dask scheduler": "Scheduler at:",
    r"dask worker": "Registered to:",
}


@dataclass(frozen=True)
class Block:
    """A fenced block of a page, with the files that it includes."""

    page: str
    line: int
    language: str
    text: str
    is_file: bool  # the text of a file, included

    @property
    def commands(self) -> list[str]:
        """Its lines without their comments."""
        return [re.sub(r"\s+# .*", "", line) for line in self.text.splitlines()]


def blocks(page: str, *languages: str) -> list[Block]:
    """Those of a page, in order; of these languages, if some are named."""
    found, text, begins = [], (ROOT / page).read_text(), 0
    for number, line in enumerate(text.splitlines(), 1):
        if not re.match(r" *```", line):
            continue
        if not begins:
            begins, language = number, line.strip(" `")
            continue
        inside = "\n".join(text.splitlines()[begins : number - 1])
        included = re.sub(r'^--8<-- "(.+)"$', lambda m: (ROOT / m[1]).read_text(), inside, flags=re.MULTILINE)
        found.append(Block(page, begins, language, included, included != inside))
        begins = 0
    return [block for block in found if block.language in languages or not languages]


def commands(page: str) -> list[str]:
    """All commands of a page."""
    return [line for block in typed(page) for line in block.commands]


def typed(page: str) -> list[Block]:
    """The blocks of a page that a reader types into a shell."""
    return [block for block in blocks(page, "sh") if not block.is_file]


def functions(page: str) -> list[list[str]]:
    """Each table of functions of a page: `file name` of its rows, in order. A row without a file is of the one before."""
    found, file = list[list[str]](), ""
    for table in (ROOT / page).read_text().split("| function | of |")[1:]:
        found.append([])
        for name, of in re.findall(r"^\| `([\w.]+)` \| (?:`(\S+\.py)`)?", table.split("\n\n")[0], re.MULTILINE):
            file = of or file
            found[-1].append(f"{file} {name}")
    return found


def why_not_played(command: str) -> str | None:
    """Why it is not played in full; None if it is."""
    return next((why for begins, why in TOO_LONG.items() if command.startswith(begins)), None)


@dataclass
class Shell:
    """Where a reader types: a folder like the tree's root, in which nothing of the tree can be changed."""

    folder: Path
    stack: ExitStack = field(default_factory=ExitStack)
    cuts: dict[str, str] = field(default_factory=lambda: dict(CUTS))
    environment: dict[str, str] = field(default_factory=dict)
    standing: dict[str, subprocess.Popen[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        shutil.copytree(ROOT / "docs/examples", self.folder / "docs/examples")
        (self.folder / ".venv").symlink_to(sys.prefix)
        (self.folder / "tests").symlink_to(ROOT / "tests")
        sudo = self.folder / "bin/sudo"  # live tests are root already
        sudo.parent.mkdir()
        sudo.write_text('#!/bin/sh\nexec "$@"\n')
        sudo.chmod(0o755)

    def __enter__(self) -> "Shell":
        return self

    def __exit__(self, *_: object) -> None:
        self.stack.close()

    def play(self, block: Block, *, as_root: bool = True) -> str:
        """Its commands, in order, but for those that are too long or need root; what they printed."""
        here, said = self.folder, []
        for command in block.commands:
            if command.startswith("cd "):
                here /= command.removeprefix("cd ")
            elif why_not_played(command) is None and (as_root or not command.startswith("sudo ")):
                said.append(self.run(command, here))
        return "".join(said)

    def run(self, command: str, here: Path | None = None) -> str:
        """What it printed; one that stands is left standing."""
        for printed, ours in self.cuts.items():
            command = command.replace(printed, ours)
        log = self.folder / f"said{len(list(self.folder.glob('said*')))}"
        path = f"{self.folder / 'bin'}:{sys.prefix}/bin:{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path, "PYTHONUNBUFFERED": "1", **self.environment}
        with log.open("w") as out:
            process = subprocess.Popen(
                ["bash", "-c", command if ";" in command else f"exec {command}"],
                cwd=here or self.folder,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=subprocess.STDOUT,
                text=True,
            )
        self.stack.callback(end, process)
        says = next((says for stands, says in STANDS.items() if re.search(stands, command)), None)
        end_s = time.monotonic() + 100.0
        while process.poll() is None and not (says and re.search(says, log.read_text())):
            if time.monotonic() > end_s:
                pytest.fail(f"{command}: still there, or silent\n{log.read_text()}")
            time.sleep(0.02)
        if says:
            assert process.poll() is None, f"{command}: {log.read_text()}"
            self.standing[command] = process
        else:
            assert process.returncode == 0, f"{command}: {log.read_text()}"
        return log.read_text()

    def interrupt(self, part: str) -> set[int]:
        """Ctrl-C for what stands and has this in its command; how they ended."""
        found = [command for command in self.standing if part in command]
        assert found
        for command in found:
            self.standing[command].send_signal(signal.SIGINT)
        return {self.standing.pop(command).wait(30) for command in found}
