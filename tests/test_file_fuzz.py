"""Users' files with a line, a number or some bytes that are wrong, seeded: each is read, or refused in words that name it.

`RECLAIMNET_FUZZ=20 RECLAIMNET_FUZZ_SEED=x` tries twenty times as many, others.
"""

from __future__ import annotations

import os
import random
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from experiments.api import simulate
from experiments.cli.storm import replay as replay_storm
from experiments.inputs.job_file import load_job
from experiments.inputs.scenario import dumps, load
from experiments.inputs.traces import load_trace, trace_of
from experiments.inputs.traces.paper_campus import paper_scenario
from experiments.inputs.traces.trace_file import TRACE, write_trace
from experiments.results.runs.folders import read_summary
from experiments.sweeps.plan import read_plan
from topologies import files, graphml
from topologies.errors import SpecError
from topologies.presets import three_tier

TIMES = int(os.environ.get("RECLAIMNET_FUZZ", "1"))
FUZZ_SEED = os.environ.get("RECLAIMNET_FUZZ_SEED", "14")
A_KIND = 60
EXAMPLES = Path(__file__).parents[1] / "docs" / "examples"
LAB = load("example:lab")

VALUES = (
    *(
        "0",
        "-1",
        "1e400",
        "nan",
        "-inf",
        "true",
        '""',
        '"x"',
        "[]",
        "{}",
        "[1]",
        "99999999999999999999",
        "1e-320",
    ),
    *(
        '"0 s"',
        '"-5 s"',
        '"5 parsec"',
        '"inf"',
        '"\\u0000"',
        '[["a"]]',
        '"desk1"',
        '"coord"',
        '"1e-300 s"',
        "1e300",
    ),
    *('"algorithm1"', "1979-05-27", "null", "1e15", "-0.0", "desk1", "9" * 400, "٣"),
    *(
        '{ law = "exponential" }',
        '{ law = "gamma", mean = "1 s", shape = 0 }',
        '{ law = "uniform", mean = "1 s", spread = 2 }',
    ),
)


def one_line_wrong(text: str, draw: random.Random) -> str:
    """One line of a file with another value, doubled, left out, elsewhere, or with a character that does not belong there."""
    lines = text.splitlines()
    place = draw.choice([number for number, line in enumerate(lines) if line.strip()])
    line = lines[place]
    match draw.randrange(5):
        case 0:
            lines.insert(place, draw.choice(lines))
        case 1:
            del lines[place]
        case 2:
            column = draw.randrange(len(line))
            lines[place] = line[:column] + draw.choice('"[]{}=,\x00é#.<>\ufeff\u2028') + line[column:]
        case 3:
            lines.insert(draw.randrange(len(lines)), lines.pop(place))
        case _:
            found = draw.choice(
                list(re.finditer(r"[0-9.]+|\"[^\"]*\"|[a-z_]+", line)) or [re.match("", line)]
            )
            assert found is not None
            lines[place] = line[: found.start()] + draw.choice(VALUES) + line[found.end() :]
    return "\n".join(lines) + "\n"


def some_bytes_wrong(data: bytes, draw: random.Random) -> bytes:
    """Cut off, flipped, or with bytes that are no text."""
    place = draw.randrange(len(data))
    match draw.randrange(3):
        case 0:
            return data[:place]
        case 1:
            return data[:place] + bytes([data[place] ^ 1 << draw.randrange(8)]) + data[place + 1 :]
        case _:
            return data[:place] + draw.randbytes(3) + data[place:]


Reader = Callable[[Path], Any]


def a_scenario(folder: Path) -> tuple[str, Reader]:
    return dumps(LAB), lambda path: trace_of(load(path), ())


def a_campus(folder: Path) -> tuple[str, Reader]:
    return files.dumps(three_tier(5, 2)), files.load


def a_scenario_by_hand(folder: Path) -> tuple[str, Reader]:
    shutil.copytree(EXAMPLES, folder, dirs_exist_ok=True)
    return (EXAMPLES / "evening.toml").read_text(), load


def a_job(folder: Path) -> tuple[str, Reader]:
    return (EXAMPLES / "counting.toml").read_text(), load_job


def a_program(folder: Path) -> tuple[str, Reader]:
    return (EXAMPLES / "adding.toml").read_text(), load_job


def a_sweep(folder: Path) -> tuple[str, Reader]:
    shutil.copytree(EXAMPLES, folder, dirs_exist_ok=True)
    return (EXAMPLES / "sweep.toml").read_text(), lambda path: read_plan(str(path))


def a_network(folder: Path) -> tuple[str, Reader]:
    nodes = "\n".join(f'<node id="{n}"><data key="d0">town {n}</data></node>' for n in range(4))
    edges = "\n".join(
        f'<edge source="{n}" target="{(n + 1) % 4}"><data key="d1">1e9</data></edge>' for n in range(4)
    )
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n<graphml xmlns="http://graphml.graphdrawing.org/xmlns">\n'
        '<key attr.name="label" attr.type="string" for="node" id="d0" />\n'
        '<key attr.name="LinkSpeedRaw" attr.type="double" for="edge" id="d1" />\n'
        f'<graph edgedefault="undirected">\n{nodes}\n{edges}\n</graph></graphml>\n'
    ), graphml.load


def of_owners(text: str) -> Callable[[Path], tuple[str, Reader]]:
    """A record of owners, on the lab's campus."""
    return lambda folder: (text, lambda path: load_trace(path, LAB))


def a_trace(folder: Path) -> tuple[str, Reader]:
    scenario = replace(LAB, background=paper_scenario(days=0.1).background)
    write_trace(folder, scenario, trace_of(scenario, ()))
    return (folder / TRACE).read_text(), lambda path: load_trace(path, LAB)


def a_storm(folder: Path) -> tuple[str, Reader]:
    text = (
        Path(__file__).parent / "scenarios" / "better_copy_is_taken_up_when_its_holder_returns.txt"
    ).read_text()

    return text, partial(replay_storm, Console(file=StringIO()))


def a_summary(folder: Path) -> tuple[str, Reader]:
    simulate(replace(LAB, duration_s=60.0)).write(folder)
    text = (folder / "summary.json").read_text()
    return text if text.count("\n") > 9 else text.replace(",", ",\n"), read_summary


def counts_csv() -> str:
    return "time,available\n" + "\n".join(f"{600 * n},{n % 4}" for n in range(30)) + "\n"


KINDS: dict[str, Callable[[Path], tuple[str, Reader]]] = {
    "scenario": a_scenario,
    "scenario by hand": a_scenario_by_hand,
    "campus": a_campus,
    "network": a_network,
    "job": a_job,
    "program": a_program,
    "sweep": a_sweep,
    "owners' events": of_owners(
        "time,host,event,notice\n0,desk3,away,\n20 min,desk1,reclaim,3 min\n40 min,desk2,emergency,\n"
    ),
    "counts": of_owners(
        '{"metadata": {"gap_seconds": 600},\n"data": [' + ",\n".join("32131201" * 9) + "]}\n"
    ),
    "counts as CSV": of_owners(counts_csv()),
    "lifetimes": of_owners(
        "started_at,lifetime_h,preempted\n"
        + "".join(f"2019-02-18T{n % 24:02}:00:00Z,{1 + n % 5},{n % 2}\n" for n in range(40))
    ),
    "trace": a_trace,
    "storm": a_storm,
    "summary": a_summary,
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_wrong_file_is_read_or_refused_in_words_that_name_it(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    draw, refused, said = random.Random(f"{FUZZ_SEED} {kind}"), 0, list[str]()
    whole, read = KINDS[kind](tmp_path)
    file = tmp_path / "wrong.toml"

    def put(data: bytes) -> Any:
        file.write_bytes(data)
        return read(file)

    put(whole.encode())  # it is right as it is
    for _ in range(A_KIND * TIMES):
        data = one_line_wrong(whole, draw).encode()
        if not draw.randrange(4):
            data = some_bytes_wrong(data, draw)
        try:
            put(data)
        except SpecError as error:
            refused += 1
            if not (error.allowed and error.key and (error.source or str(tmp_path) in str(error))):
                said.append(f"names not all: {error!r} of {data!r}")
        except Exception as error:  # noqa: BLE001 - which, the test says
            said.append(f"{type(error).__name__} {error} of {data!r}")
    assert not said, "\n\n".join(said[:5])
    assert refused > A_KIND * TIMES // 10
