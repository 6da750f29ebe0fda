"""The reference pages that follow from the program: keys of files, systems, commands. `python docs/generate.py` writes them."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from controller.core.model import facts
from experiments.inputs.job_file import JOB, PROGRAM
from experiments.inputs.scenario.background import BackgroundLaw
from experiments.inputs.scenario.fields import Perhaps, Random
from experiments.inputs.scenario.own_jobs import AT
from experiments.inputs.scenario.owners import OwnerEvent, Owners, Peak
from experiments.inputs.scenario.parts import Jobs, LinkEvent, Protocol, Queue, ResearchFlow
from experiments.inputs.scenario.trunks import TrunkLaw
from experiments.results import pages
from experiments.results.summary import MEANINGS
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
    "[[events]]": LinkEvent,
    "[background]": BackgroundLaw,
    "[trunks]": TrunkLaw,
}
HEAD = """# Scenario keys

Made by `docs/generate.py` from the declarations that read scenario files. A scenario begins with `name`, `campus` (a
campus file, `"example:NAME"`, or a table), `seed` (a whole number) and `duration` (default `"1 h"`); `[scale]` has
`bytes` and `time`, played over real (default 1). Quantities are texts with a unit: `"3 h"`, `"1.5 GB"`, `"200 Mbit/s"`,
`"0.2 /h"`. A law is a table such as `{ law = "exponential", mean = "10 min" }`; `lognormal` has `median` and `sigma`,
`gamma` has `mean` and `shape`, `uniform` has `mean` and `spread`, `deterministic` has `value`; each may have `minimum` and
`maximum`.
"""


OWN_JOBS_HEAD = """## [[jobs]]

[Jobs of your own](../own_jobs.md), instead of generated ones; `[[jobs.own]]` beside them. Each has the keys of a
[job file](job.md), and `at`. Without `name` they are called own1, own2, ... A live run imports workloads from the folder in
which it is started; what really computes is played at scale 1. In the virtual world a job is its `steps`, its `step` and its
`payload`, whatever it runs.

"""
RESULTS_HEAD = """# Results of a run

Made by `docs/generate.py` from the summary and the facts of the program. `reclaimnet demo`, `reclaimnet run` and
`reclaimnet simulate` write three files into `--out`:

- `report.html`: one page that needs nothing else. It follows light and dark, tells more where the pointer rests, follows a job
  that is clicked through its hosts, and enlarges a picture on a double-click.
- `summary.json`: the figures below; those with a unit stand once more under `real_scale`, and where the run comes from
  under `provenance`.
- `events.jsonl`: every fact that the coordinator wrote, a line each, with `at_s`, the seconds since it started.
"""


TABLES_HEAD = """# Tables of a run

Made by `docs/generate.py` from the rows that `experiments/results/frames.py` declares: what `result.frame(NAME)` gives
([from Python](../api.md)). Times are seconds since the coordinator started, sizes and rates as they were played. `None` is a
missing value.
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

Made by `docs/generate.py` from the tables that read campus files. A campus file is TOML; `topologies/examples` has four. A
wrong file is answered with file, key, value and what is allowed. A switch or a host may say itself where its cable goes
(`link_to`), or the cable stands in `[[links]]`; `[[groups]]` stands for so many identical hosts on one switch. The cables of
a campus of bridges form a tree; with `fabric = "openvswitch"` there may be several paths.

A file that ends in `.graphml` is a campus too, such as those of the Topology Zoo ([several paths](../how/fabric.md)): each
node a switch (`s1`, `s2`, ... in the file's order) in a building of its own (`b1`, `b2`, ...) with one volunteer on it
(`h1`, `h2`, ...: one RTX 3090 of 24 GB, capability 8.6), each edge a trunk of its `LinkSpeedRaw` (bit/s; 1 Gbit/s where it
has none; 1 Mbit/s to 40 Gbit/s). All other attributes are left alone. Other hosts, GPUs and rates:
`topologies.graphml.load(path, hosts_per_switch=, rate_bytes_per_s=, gpu_model=)`.

A whole one, `docs/examples/yard.toml`; `campus = "yard.toml"` in a scenario beside it plays there:

```toml
--8<-- "docs/examples/yard.toml"
```
"""
JOB_HEAD = """# Job keys

Made by `docs/generate.py` from the table that reads job files (`reclaimnet submit`; [your own jobs](../own_jobs.md)). The keys of
`[params]` are handed to the workload as they are: texts, numbers, true and false. All of a job may take 256 KiB. A wrong file is
answered with file, key, value and what is allowed.

"""
PROGRAM_HEAD = """
## A program

With `command` the job is [any executable](../own_jobs.md#any-executable); it has no `workload` and no `[params]`.
`[environment]` has variables of its environment, beside those of the campus: texts and numbers.

"""
POLICY_HEAD = """# What a policy decides by

Made by `docs/generate.py` from `controller/core/policies/table.py` and `controller/core/placement/select.py`. A policy is a
`Policy("what it does", ...)`: what is left out is ReclaimNet's ([tutorial](../tutorial.md), [plug-ins](../plugins.md)). Its
selectors (`select`, `standby`) are functions

```text
def choose(request: PlacementRequest, candidates: Candidates, *, draw: float = 0.0) -> DestinationChoice | NoDestination
```

that are asked whenever a host is chosen. `able_to_run(request, candidates)` gives the candidates that can run the job and be
reached (`.rows`, `.columns`), or a `NoDestination` that says why there is none; its `.choice(number)` makes the answer of
the candidate of that number among `.rows`. `draw`, from 0 to 1, is for rules that choose at random: with any other dice two
runs of one seed would differ.

`plan`, `admit`, `share` and `learner` are functions too: those of `controller/core/checkpointing/planner.py`,
`controller/core/admission/admission.py` and `controller/core/queueing/controllers` are there to be read, and to be set with
other parameters. Your `plan` is given the scenario's `checkpoint_share`, or 0.9, since jobs go on while a checkpoint is sent.
What your `admit` answers are rates that hold from notice to deadline: only `fluid_edf` itself, also as a `functools.partial`, has
its timetable kept, so a function that calls it is another system.
"""
WORKLOAD_HEAD = """# What a workload does

Made by `docs/generate.py` from `testbed/workloads/base.py` ([your own jobs](../own_jobs.md)). `begin`, `step`, `save`, `load`,
`verify` and `steps_total` have to be written, the others may. Each attempt makes one object of it, in a process of its own:
`__init__`, then `begin` or `load`, `verify`, (`meet`), and `step` until `step_number` is `steps_total`.

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
        case Perhaps(of):
            return takes(of)
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
        case Texts(about, _, True):
            return f"list of texts: {about}"
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
    at = row("at", AT.kind, AT.default, AT.meaning)
    parts.append(OWN_JOBS_HEAD + COLUMNS + at + "\n")
    return "\n".join(parts)


def campus_page() -> str:
    """docs/reference/campus.md."""
    parts = [CAMPUS_HEAD]
    for section, keys in CAMPUS_SECTIONS.items():
        lines = (row(name, key.kind, key.default, key.meaning) for name, key in keys.items())
        parts.append(f"## {section}\n\n{COLUMNS}" + "\n".join(lines) + "\n")
    return "\n".join(parts)


def job_page() -> str:
    """docs/reference/job.md."""
    every, programs = (
        "\n".join(row(name, key.kind, key.default, key.meaning) for name, key in section.items()) + "\n"
        for section in (JOB, PROGRAM)
    )
    return JOB_HEAD + COLUMNS + every + PROGRAM_HEAD + COLUMNS + programs


def policy_page() -> str:
    """docs/reference/policy.md."""
    from controller.core.placement import select
    from controller.core.policies.table import Policy

    parts = [POLICY_HEAD]
    for of in (
        Policy,
        select.PlacementRequest,
        select.Candidates,
        select.DestinationChoice,
        select.NoDestination,
    ):
        said = meanings(of)
        lines = []
        for each in fields(of):
            text = str(each.type)
            column = text in ("Floats", "NDArray[np.object_]")
            kind = "a column" if column else f"`{text}`".replace(" | None", "` or `None")
            lines.append(f"| `{each.name}` | {kind} | {said.get(each.name, '')} |")
        about = (inspect.getdoc(of) or "").split("\n\n")[0]
        parts.append(
            f"## {of.__name__}\n\n{about}\n\n| field | type | meaning |\n|---|---|---|\n"
            + "\n".join(lines)
            + "\n"
        )
    reasons = "\n".join(f"| `Missing.{each.name}` | {each.value} |" for each in select.Missing)
    parts.append(f"## Reasons of NoDestination\n\n| reason | what it says |\n|---|---|\n{reasons}\n")
    return "\n".join(parts)


def workload_page() -> str:
    """docs/reference/workload.md."""
    from testbed.workloads import base

    methods = [name for name in vars(base.Workload) if name == "__init__" or not name.startswith("_")]
    parts = []
    for owner, names in ((base.Workload, methods), (base, ("number", "only", "write_parts"))):
        for name in names:
            of = getattr(owner, name)
            of = of.fget if isinstance(of, property) else of
            if callable(of):
                signature = str(inspect.signature(of)).replace("'", "")
                said = " ".join((inspect.getdoc(of) or "").split())
                parts.append(f"| `{name}{signature.replace('|', chr(92) + '|')}` | {said} |")
    about = (inspect.getdoc(base.Workload) or "").partition("\n\n")[2]
    table = "| method or function | what it does |\n|---|---|\n"
    return f"{WORKLOAD_HEAD}{about}\n\n{table}" + "\n".join(parts) + "\n"


def systems_page() -> str:
    """docs/reference/systems.md."""
    from controller.core.policies.table import POLICIES

    lines = [
        "# Systems",
        "",
        "Made by `docs/generate.py` from `controller/core/policies/table.py`: what `policy` in `[protocol]`, `--system`",
        "and `--policy` may name. A row with a label stands in paper A's Table III. Beside them stand your own, as",
        "`module:NAME`, and those of installed packages ([plug-ins](../plugins.md)).",
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


def results_page() -> str:
    """The page of what a run leaves: figures of summary.json, facts of events.jsonl."""
    figures = [f"| `{name}` | {meaning} |" for name, meaning in MEANINGS.items()]
    kinds = {kind for kind in vars(facts).values() if isinstance(kind, type) and issubclass(kind, facts.Fact)}
    told = [
        f"| `{kind.__struct_config__.tag}` | {' '.join((kind.__doc__ or '').split())} | "
        f"{', '.join(f'`{name}`' for name in kind.__struct_fields__)} |"
        for kind in sorted(kinds - {facts.Fact}, key=lambda kind: kind.__name__)
    ]
    return "\n".join(
        [
            RESULTS_HEAD,
            "## summary.json\n",
            "| figure | what it counts |",
            "|---|---|",
            *figures,
            "\n## events.jsonl\n",
            "| type | what happened | fields |",
            "|---|---|---|",
            *told,
            "",
        ]
    )


def tables_page() -> str:
    """docs/reference/tables.md."""
    from experiments.results.frames import described

    parts = [TABLES_HEAD]
    for name, about, declared in described():
        said = meanings(declared)
        lines = (
            f"| `{each.name}` | {each.type.replace(' | ', ' or ')} | {said.get(each.name, '')} |"
            for each in fields(declared)
        )
        parts.append(
            f"## {name}\n\n{about}\n\n| column | type | meaning |\n|---|---|---|\n" + "\n".join(lines) + "\n"
        )
    return "\n".join(parts)


PAGE_STYLE = Path(inspect.getfile(pages)).with_name("page.css").read_text()


def picture() -> str:
    """docs/report.svg: the time line of the demo's first seed, in virtual time, with the report's own style."""
    from experiments.inputs.scenario import demo_scenario
    from experiments.inputs.traces import generate
    from experiments.results.report.timeline import timeline
    from experiments.worlds.virtual import simulate

    scenario = demo_scenario(seed=1)
    run = simulate(scenario, generate(scenario))
    drawn = str(timeline(run.facts, run.context))
    opened = drawn.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    head, rest = opened.split(">", 1)
    background = '<rect width="100%" height="100%" style="fill: var(--card)"/>'
    return f"{head}><style>{PAGE_STYLE} svg {{ font: 12px sans-serif }}</style>{background}{rest}\n"


# where the phases of a job stand in its picture, and by how much the arrow of a transition bends away from a straight line
PHASES = {
    "waiting": (80, 130),
    "fetching": (255, 40),
    "starting": (430, 130),
    "running": (640, 130),
    "moving": (640, 250),
    "finished": (850, 60),
    "failed": (850, 120),
    "cancelling": (430, 250),
    "cancelled": (255, 250),
}
BENDS = {"migrate": 30, "abandoned": 30, "landed": -20}
STATES_STYLE = """
text { font: 13px sans-serif; fill: var(--ink); text-anchor: middle }
rect { fill: var(--lane); stroke: var(--ink) } path { fill: none; stroke: var(--ink) } marker path { fill: var(--ink) }
"""


def states() -> str:
    """docs/states.svg: the transitions of a job. Those that many phases have alike are told below, without arrows."""
    from controller.core.model.entities import TRANSITIONS

    sources: dict[tuple[str, str], list[str]] = {}
    for (phase, trigger), to in TRANSITIONS.items():
        sources.setdefault((trigger, to.value), []).append(phase.value)
    drawn, told = [], []
    for (trigger, to), phases in sources.items():
        if len(phases) > 1:
            told.append(f"{trigger}: from {', '.join(sorted(phases))} to {to}")
            continue
        (x0, y0), (x1, y1) = PHASES[phases[0]], PHASES[to]
        dx, dy = x1 - x0, y1 - y0
        length, bend = (dx * dx + dy * dy) ** 0.5, BENDS.get(trigger, 0)
        ends = [
            at / max(abs(dx) / 48, abs(dy) / 18) for at in (dx, dy)
        ]  # from the centre of a box to its border
        middle = ((x0 + x1) / 2 - bend * dy / length, (y0 + y1) / 2 + bend * dx / length)
        drawn.append(
            f'<path d="M{x0 + ends[0]:.0f} {y0 + ends[1]:.0f} Q{middle[0]:.0f} {middle[1]:.0f} '
            f'{x1 - ends[0]:.0f} {y1 - ends[1]:.0f}" marker-end="url(#to)"/>'
        )
        at_x, at_y = ((x0 + x1) / 4 + middle[0] / 2, (y0 + y1) / 4 + middle[1] / 2)
        if not dx:  # beside an upright arrow, above a level one, on the outer side of one that slopes
            at_x += 42 if dy < 0 else -42
        elif dy:
            at_x, at_y = at_x + (24 if dx * dy > 0 and dx > 0 else -22), at_y + (22 if dx < 0 else 0)
        drawn.append(f'<text x="{at_x:.0f}" y="{at_y - 7:.0f}">{trigger}</text>')
    for phase, (x, y) in PHASES.items():
        drawn.append(f'<rect x="{x - 45}" y="{y - 16}" width="90" height="32" rx="8"/>')
        drawn.append(f'<text x="{x}" y="{y + 5}">{phase}</text>')
    below = [f'<text x="460" y="{320 + 20 * n}">{line}</text>' for n, line in enumerate(told)]
    marker = (
        '<marker id="to" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        '<path d="M0 0 L8 4 L0 8 z"/></marker>'
    )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 920 {330 + 20 * len(told)}">',
            f"<style>{PAGE_STYLE.partition('* {')[0]}{STATES_STYLE}</style><defs>{marker}</defs>",
            *drawn,
            *below,
            "</svg>\n",
        ]
    )


PAGES = {
    "states.svg": states,
    "reference/scenario.md": scenario_page,
    "reference/campus.md": campus_page,
    "reference/job.md": job_page,
    "reference/policy.md": policy_page,
    "reference/workload.md": workload_page,
    "reference/systems.md": systems_page,
    "reference/commands.md": commands_page,
    "reference/results.md": results_page,
    "reference/tables.md": tables_page,
}

if __name__ == "__main__":
    for page, made in PAGES.items():
        (HERE / page).write_text(made())
    (HERE / "report.svg").write_text(picture())
