"""The reference pages that follow from the program: keys of files, systems, commands. `python docs/generate.py` writes them."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from experiments.inputs.scenario.background import BackgroundLaw
from experiments.inputs.scenario.fields import Random
from experiments.inputs.scenario.owners import OwnerEvent, Owners, Peak
from experiments.inputs.scenario.parts import Jobs, Protocol, Queue, ResearchFlow
from topologies import files
from topologies.keys import Choice, Flag, Kind, Numbers, Quantity, Section, Text, Texts, Whole
from topologies.tables import NOTHING

HERE = Path(__file__).parent
SECTIONS: dict[str, type[Any]] = {
    "[queue]": Queue,
    "[protocol]": Protocol,
    "[jobs]": Jobs,
    "[owners]": Owners,
    "one of `owners.peaks`": Peak,
    "one of `owners.script`": OwnerEvent,
    "[[research]]": ResearchFlow,
    "[background]": BackgroundLaw,
}
HEAD = """# Scenario keys

Made by `docs/generate.py` from the declarations that read scenario files. A scenario begins with `name`, `campus` (a
campus file, `"example:NAME"`, or a table), `seed` (a whole number) and `duration` (default `"1 h"`); `[scale]` has
`bytes` and `time`, played over real (default 1). Quantities are texts with a unit: `"3 h"`, `"1.5 GB"`, `"200 Mbit/s"`,
`"0.2 /h"`. A law is a table such as `{ law = "exponential", mean = "10 min" }`; `lognormal` has `median` and `sigma`,
`gamma` has `mean` and `shape`, `uniform` has `mean` and `spread`; each may have `minimum` and `maximum`.
"""


CAMPUS_SECTIONS: dict[str, Section] = {
    "the file itself": files.CAMPUS,
    "[research_reserve]": files.RESEARCH_RESERVE,
    "[gpu_models.NAME]": files.GPU_MODEL,
    "[[switches]]": files.SWITCH,
    "[[hosts]]": files.HOST,
    "[[groups]]": files.GROUP,
    "[[links]]": files.LINK,
}
CAMPUS_HEAD = """# Campus keys

Made by `docs/generate.py` from the tables that read campus files. A campus file is TOML; `topologies/examples` has three. A
wrong file is answered with file, key, value and what is allowed. A switch or a host may say itself where its cable goes
(`link_to`), or the cable stands in `[[links]]`; `[[groups]]` stands for so many identical hosts on one switch. The cables of
a campus of bridges form a tree; with `fabric = "openvswitch"` there may be several paths.
"""
COLUMNS = "| key | takes | default | meaning |\n|---|---|---|---|\n"


def meanings(of: type[Any]) -> dict[str, str]:
    """Field -> the comment beside its declaration, or on the line above it."""
    source = inspect.getsource(of)
    lines, found = source.splitlines(), {}
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        above = lines[node.lineno - 2].strip()
        inside = lines[node.lineno - 1 : node.end_lineno]
        said = [m[1] for line in inside if (m := re.search(r"  # (.*)$", line))]
        if above.startswith("# "):
            said.insert(0, above[2:])
        found[node.target.id] = "; ".join(said)
    return found


def rows(of: type[Any]) -> Iterator[str]:
    """A table row for each key of a declared dataclass."""
    said = meanings(of)
    for each in fields(of):
        kind = each.metadata["kind"]
        default = NOTHING if each.default is MISSING else each.default
        yield row(kind.key(each.name), kind, default, said.get(each.name, ""))


def row(key: str, kind: Kind, default: object, meaning: str) -> str:
    """A table row."""
    shown = (
        "none"
        if default is None
        else f"`{' '.join(kind.text(default).split())}`"
        if default is not NOTHING
        else "required"
    )
    return f"| `{key}` | {takes(kind)} | {shown} | {meaning} |"


def takes(kind: Kind) -> str:
    """What a key takes."""
    match kind:
        case Quantity(dimension, low, high, above, infinite, about):
            if about:
                return about
            unlimited = f', or `"{infinite}"`' if infinite else ""
            high_text = f" to {high:g}" if high < float("inf") else ""
            limits = f", {'above' if above else 'from'} {low:g}{high_text}" if low or high_text else ""
            return f"{dimension.name.lower().replace('_', ' ')}{limits}{unlimited}"
        case Whole(low, high):
            return f"whole number, {low} to {high}"
        case Choice(options):
            return " or ".join(f'`"{option}"`' for option in options)
        case Random(dimension):
            return f"law of a {dimension.name.lower()}"
        case Text():
            return "text"
        case Flag():
            return "`true` or `false`"
        case Texts(about, single):
            one_or = "text or " if single else ""
            return one_or + ("list of hosts" if "hosts" in about else "list of texts")
        case Numbers():
            return "list of numbers"
    return "list of tables"


def scenario_page() -> str:
    """docs/reference/scenario.md."""
    parts = [HEAD]
    for section, of in SECTIONS.items():
        first = inspect.getdoc(of) or ""
        parts.append(
            f"## {section}\n\n{first.split(chr(10) * 2)[0]}\n\n{COLUMNS}" + "\n".join(rows(of)) + "\n"
        )
    return "\n".join(parts)


def campus_page() -> str:
    """docs/reference/campus.md."""
    parts = [CAMPUS_HEAD]
    for section, keys in CAMPUS_SECTIONS.items():
        lines = (row(name, key.kind, key.default, key.meaning) for name, key in keys.items())
        parts.append(f"## {section}\n\n{COLUMNS}" + "\n".join(lines) + "\n")
    return "\n".join(parts)


def systems_page() -> str:
    """docs/reference/systems.md."""
    from controller.core.policies.table import POLICIES

    lines = [
        "# Systems",
        "",
        "Made by `docs/generate.py` from `controller/core/policies/table.py`: what `policy` in `[protocol]`, `--system`",
        "and `--policy` may name. A row with a label stands in paper A's Table III.",
        "",
        "| row | label | what it does |",
        "|---|---|---|",
    ]
    lines += [f"| `{name}` | {row.label} | {row.about} |" for name, row in POLICIES.items()]
    return "\n".join(lines) + "\n"


def commands_page() -> str:
    """docs/reference/commands.md."""
    import typer
    from typer.core import TyperGroup

    from experiments.cli.main import app

    lines = [
        "# Commands",
        "",
        "Made by `docs/generate.py` from the command line itself; `reclaimnet COMMAND --help` says the same.",
        "",
    ]

    def add(group: TyperGroup, prefix: str) -> None:
        for name, command in sorted(group.commands.items()):
            if isinstance(command, TyperGroup):
                add(command, f"{prefix} {name}")
                continue
            said = " ".join((command.help or "").split())
            lines.extend([f"## {prefix} {name}", "", said, ""])
            options = [p for p in command.params if p.name != "help"]
            if options:
                lines.extend(["| option | meaning |", "|---|---|"])
            for each in options:
                shown = (
                    ", ".join(each.opts) if each.param_type_name == "option" else (each.name or "").upper()
                )
                lines.append(f"| `{shown}` | {' '.join((getattr(each, 'help', '') or '').split())} |")
            lines.append("")

    add(typer.main.get_command(app), "reclaimnet")  # type: ignore[arg-type]
    return "\n".join(lines).rstrip() + "\n"


def picture() -> str:
    """docs/report.svg: the time line of the demo's first seed, in virtual time, with the report's own style."""
    from experiments.inputs.scenario import demo_scenario
    from experiments.inputs.traces import generate
    from experiments.results import pages
    from experiments.results.report.timeline import timeline
    from experiments.worlds.virtual import simulate

    scenario = demo_scenario(seed=1)
    run = simulate(scenario, generate(scenario))
    drawn = timeline(run.facts, run.context)
    style = Path(inspect.getfile(pages)).with_name("page.css").read_text()
    opened = drawn.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    head, rest = opened.split(">", 1)
    background = '<rect width="100%" height="100%" style="fill: var(--card)"/>'
    return f"{head}><style>{style} svg {{ font: 12px sans-serif }}</style>{background}{rest}\n"


PAGES = {
    "reference/scenario.md": scenario_page,
    "reference/campus.md": campus_page,
    "reference/systems.md": systems_page,
    "reference/commands.md": commands_page,
}

if __name__ == "__main__":
    for page, made in PAGES.items():
        (HERE / page).write_text(made())
    (HERE / "report.svg").write_text(picture())
