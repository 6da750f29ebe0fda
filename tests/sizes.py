"""Print the sizes that this project keeps an eye on, beside the most that each should be: `make sizes`.

Production lines may grow only together with a line of README's "what it is for".
"""

import ast
import re
import subprocess
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import typer

from controller.core.model.cluster import Cluster
from controller.core.model.entities import JobState
from controller.core.policies.table import POLICIES, Policy
from experiments.cli.main import app

HEADLESS = re.compile(r"(What|Whose|Which|One|Of|How|Why|Whether|Where|When|Those|All|Who)\b")
# messages are sent and received, state is recorded; systems have names
BANNED = re.compile(r"\b(ours|theirs|says?|said|tells?|told|hears?|heard|anew|whoever)\b", re.IGNORECASE)
SENTENCE = re.compile(r"(?<=[.:;?!])\s+|\n\s*\n|\n\s*[-*] ")
MAX_WORDS = 25  # in a sentence
PRODUCTION = ("bpf", "topologies", "testbed", "controller", "experiments")


def tracked(*patterns: str) -> list[Path]:
    """Return the files that git tracks under these patterns."""
    listed = subprocess.run(["git", "ls-files", *patterns], capture_output=True, text=True, check=True)
    return [path for name in listed.stdout.split() if (path := Path(name)).exists()]


def lines(*folders: str) -> int:
    """Count the lines of Python in these folders."""
    return sum(path.read_text().count("\n") for path in tracked(*(f"{folder}/*.py" for folder in folders)))


@cache
def nodes(path: Path) -> list[ast.AST]:
    """Return the syntax tree of a file, flat."""
    return list(ast.walk(ast.parse(path.read_text())))


def docstrings(paths: Iterable[Path]) -> Iterator[tuple[str, str]]:
    """Yield every docstring, after its "path:line"."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for path in paths:
        for node in nodes(path):
            if isinstance(node, kinds) and (text := ast.get_docstring(node)):
                yield f"{path}:{getattr(node, 'lineno', 1)}", text


def headless(paths: Iterable[Path]) -> list[str]:
    """Find the docstrings that begin with a relative or interrogative word, as "path:line first words"."""
    return [f"{place} {text[:40]}" for place, text in docstrings(paths) if HEADLESS.match(text)]


def wordy(paths: Iterable[Path]) -> list[str]:
    """Find the banned words and the long sentences of docstrings, each after its "path:line"."""
    found = []
    for place, text in docstrings(paths):
        found += [f"{place} {word}" for word in BANNED.findall(text)]
        found += [f"{place} {each[:60]}" for each in SENTENCE.split(text) if len(each.split()) > MAX_WORDS]
    return found


def fields(record: type) -> int:
    """Count what an instance holds: annotated fields, and attributes that `__init__` sets."""
    path = Path(str(import_module(record.__module__).__file__))
    [body] = [
        node
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef) and node.name == record.__name__
    ]
    names = {
        node.target.id for node in body.body if isinstance(node, ast.AnnAssign) if isinstance(node.target, ast.Name)
    }
    for method in body.body:
        if isinstance(method, ast.FunctionDef) and method.name == "__init__":
            names |= {
                node.attr
                for node in ast.walk(method)
                if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
                if isinstance(node.value, ast.Name) and node.value.id == "self"
            }
    return len(names)


def commands(group: Any) -> Iterator[Any]:
    """Yield every command that can be called, those of sub-groups included."""
    for command in group.commands.values():
        if hasattr(command, "commands"):
            yield from commands(command)
        else:
            yield command


def main() -> None:
    """Print the table."""
    callable_ones = list(commands(typer.main.get_command(app)))
    words = sum(len(path.read_text().split()) for path in tracked("docs/*.md"))
    rows = {
        "production Python, lines": (lines(*PRODUCTION), 63_000),
        "of it controller/core": (lines("controller/core"), 9_500),
        "of it experiments": (lines("experiments"), 33_000),
        "tests, lines": (lines("tests"), 32_000),
        "docs, words": (words, 32_000),
        "fields of Cluster": (fields(Cluster), 45),
        "fields of JobState": (fields(JobState), 38),
        "fields of Policy": (fields(Policy), 15),
        "docstrings without a head": (len(headless(tracked(*(f"{folder}/*.py" for folder in PRODUCTION)))), 60),
        "policy rows": (len(POLICIES), 19),
        "commands": (len(callable_ones), 30),
        "options and arguments": (sum(p.name != "as_json" for each in callable_ones for p in each.params), 126),
    }
    for name, (now, limit) in rows.items():
        print(f"{name:28} {now:>8,} of {limit:>7,}{'' if now <= limit else '  over'}")


if __name__ == "__main__":
    main()
