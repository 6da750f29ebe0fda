"""The JSON Schemas accept what the readers accept, and refuse wrong keys, kinds of values and units."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from jsonschema import Draft7Validator
from typer.testing import CliRunner

from docs.schemas import KINDS, schema_of
from experiments.cli.main import app
from experiments.inputs import scenario
from experiments.results.graph import drawio, mermaid
from experiments.sweeps.plan import read_plan
from tests.test_wrong_input import rows
from topologies import files
from topologies.presets import three_tier

ROOT = Path(__file__).parents[1]
VALIDATORS = {kind: Draft7Validator(schema_of(kind)) for kind in KINDS}
# these words name a wrong key, kind of value or unit, which a schema sees without other files and keys
SEEN = re.compile(
    r"needed|nearest|there is '|allowed here|no key of this name|with its unit|a table|list of|whole number|true or false"
)
# names that other keys or the program's tables have
OTHERS = {"unknown GPU", "no such policy"}


def kind_of(data: dict[str, Any]) -> str | None:
    found = [kind for key, kind in (("campus", "scenario"), ("buildings", "campus"), ("steps", "job")) if key in data]
    return found[0] if found and "scenario" not in data else None


def files_of_the_tree() -> list[Path]:
    folders = ("docs/examples", "experiments/examples", "topologies/examples")
    return [path for folder in folders for path in sorted((ROOT / folder).glob("*.toml"))]


@pytest.mark.parametrize("path", files_of_the_tree(), ids=lambda path: f"{path.parts[-3]}-{path.stem}")
def test_every_example_is_accepted(path: Path) -> None:
    data = tomllib.loads(path.read_text())
    kind = kind_of(data)
    if kind is None:
        assert read_plan(str(path))  # a sweep
        return
    assert not [error.message for error in VALIDATORS[kind].iter_errors(data)]
    if kind == "scenario":
        long = tomllib.loads(scenario.dumps(scenario.load(path)))
        assert not [error.message for error in VALIDATORS[kind].iter_errors(long)]


def test_the_schemas_are_schemas_and_their_defaults_hold() -> None:
    def parts(schema: Any) -> list[dict[str, Any]]:
        inner = schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ()
        return [part for each in inner for part in parts(each)] + ([schema] if isinstance(schema, dict) else [])

    for kind in KINDS:
        Draft7Validator.check_schema(schema_of(kind))
        with_defaults = [part for part in parts(schema_of(kind)) if "default" in part and "description" in part]
        assert with_defaults or kind == "job"
        for part in with_defaults:
            assert Draft7Validator(part).is_valid(part["default"]), part


@pytest.mark.parametrize("kind", KINDS)
def test_mistakes_of_form_are_refused(kind: str) -> None:
    refused, missed = set(), set()
    for case, (text, _, allowed) in rows(kind).items():
        try:
            data = tomllib.loads(text)
        except (ValueError, RecursionError):
            continue
        if not VALIDATORS[kind].is_valid(data):
            refused.add(case)
        elif SEEN.search(allowed):
            missed.add(case)
    assert len(refused) >= {"campus": 30, "scenario": 40, "job": 8}[kind]
    assert missed <= OTHERS


def test_a_host_needs_its_cables_rate_and_a_volunteer_its_gpus() -> None:
    text = (ROOT / "docs/examples/yard.toml").read_text()
    for key in ("rate", "gpu_model"):
        data = tomllib.loads(text)
        [group, *_] = data["groups"]
        del group[key]
        assert not VALIDATORS["campus"].is_valid(data)


def typed(*words: str) -> str:
    done = CliRunner().invoke(app, list(words), catch_exceptions=False)
    assert done.exit_code == 0
    return done.stdout


@pytest.mark.parametrize("kind", KINDS)
def test_the_command_and_the_docs_have_the_same_schema(kind: str) -> None:
    assert json.loads(typed("schema", kind)) == schema_of(kind)
    assert (ROOT / f"docs/reference/{kind}.schema.json").read_text() == typed("schema", kind)


def test_an_example_names_the_schema_that_it_has(tmp_path: Path) -> None:
    names = sorted(typed("example").split(), key=lambda name: name in ("campuses", "gpu-speeds"))  # which name another
    assert {"lab", "campus/lab", "my_policy.py"} <= set(names)
    for name in names:
        file = tmp_path / (name + ".toml" * (not name.endswith(".py")))
        file.parent.mkdir(exist_ok=True)
        file.write_text(typed("example", name))
        first, _, rest = file.read_text().partition("\n")
        if not first.startswith("#:schema "):
            assert name.endswith(".py") or read_plan(str(file))
            continue
        kind = first.removeprefix("#:schema ./").removesuffix(".schema.json")
        assert VALIDATORS[kind].is_valid(tomllib.loads(rest))
        assert (files.load if name.startswith("campus/") else scenario.load)(file)


@pytest.mark.parametrize("name", files.examples())
def test_a_graph_has_every_node_and_cable(name: str) -> None:
    campus = files.load(f"example:{name}")
    nodes = {node.name for node in (*campus.switches, *campus.hosts)}
    cables = sorted((link.a, link.b) for link in campus.links)
    text = mermaid(campus)
    assert set(re.findall(r"^ +n_(\w+)[(\[]", text, re.MULTILINE)) == nodes
    assert sorted(re.findall(r"^ +n_(\w+) ---.* n_(\w+)$", text, re.MULTILINE)) == cables
    cells = {cell.get("id", ""): cell for cell in ElementTree.fromstring(drawio(campus)).iter("mxCell")}
    drawn = {id: cell for id, cell in cells.items() if cell.get("vertex")}
    assert {id.removeprefix("n-") for id in drawn} == nodes
    lines = [cell for cell in cells.values() if cell.get("edge")]
    assert sorted((str(c.get("source"))[2:], str(c.get("target"))[2:]) for c in lines) == cables
    corners = {(box.get("x"), box.get("y")) for cell in drawn.values() for box in cell.iter("mxGeometry")}
    assert len(corners) == len(nodes)


def test_a_large_campus_is_a_graph_too() -> None:
    campus = three_tier(300, 6, 2)
    assert drawio(campus).count('edge="1"') == mermaid(campus).count(" ---|") == len(campus.links)
