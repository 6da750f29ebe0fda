"""A live run over several machines: what is measured before it, what it brings back, and machines that die meanwhile."""

from __future__ import annotations

import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from experiments.inputs.scenario import demo_scenario
from experiments.inputs.traces import generate
from experiments.machines import clocks
from experiments.machines.actor import PartActor
from experiments.machines.clocks import Offset
from experiments.machines.conductor import Conductor, Machine, connected, found_workers, run_on_machines, together
from experiments.machines.part import Order
from experiments.machines.rehearsal import certified, spread, variables
from experiments.machines.trunks import crossings
from experiments.worlds.live.run import prepared
from testbed.emulation.fidelity import judge
from testbed.errors import SetupError, SpecError
from tests.emulation_campuses import kernel
from tests.test_machines import TWO
from topologies import files, presets
from topologies.units import GBIT_PER_S, MBIT_PER_S

ROOT = Path(__file__).parents[1]
PLACES = ("b1", "b2", "b3", "room")
CLI = [sys.executable, "-m", "experiments.cli"]


def test_hosts_that_measure_a_trunk_fill_it_up_to_2_gbit_per_s() -> None:
    [crossing] = crossings(files.loads(TWO))
    assert {crossing.link.a, crossing.link.b} == {"s1", "core"}
    assert crossing.rate_bytes_per_s == 200 * MBIT_PER_S  # of two hosts of 1 Gbit/s each, one is enough
    assert len(crossing.pairs) == 1
    [fast] = crossings(spread(presets.three_tier(8, 2, 0), 2))  # 10 Gbit/s, of hosts of 1 Gbit/s
    assert fast.rate_bytes_per_s == 2 * GBIT_PER_S
    place = spread(presets.three_tier(8, 2, 0), 2).machine_of
    assert [(place[source] == place[target]) for source, target in fast.pairs] == [False, False]
    assert fast.rate(1e12).ratio == 1.0  # it is not said how much faster it is
    assert crossing.rate(0.8 * 200 * MBIT_PER_S).ratio < 0.9


def test_a_campus_is_dealt_to_as_many_machines_as_it_has_buildings() -> None:
    campus = presets.three_tier(9, 3, 1)
    assert [machine.buildings for machine in spread(campus, 2).machines] == [("room", "b1", "b3"), ("b2",)]
    assert len(spread(campus, 3).machines) == 3
    for wrong in (1, 4):
        with pytest.raises(SpecError, match="2 to 3"):
            spread(campus, wrong)


def test_clocks_that_differ_are_no_fault_but_not_knowing_by_how_much_is() -> None:
    before = {"m1": Offset(0.0, 0.001, 0.0), "m2": Offset(5000.0, 0.002, 3.0)}
    same = clocks.figures(before, before, "m1")
    assert same["clock_m2_offset_s"] == 5000.0
    assert same["clock_m2_error_s"] == pytest.approx(0.003)
    assert judge(clocks.judged(same)) == []
    drifted = clocks.figures(before, {**before, "m2": Offset(5000.04, 0.002, 3.04)}, "m1")
    [reason] = judge(clocks.judged(drifted))
    assert "machine m2, by how much its clock is not known, in seconds: 0.04, allowed 0.025" in reason
    late = clocks.figures({**before, "m2": Offset(0.0, 0.2, -400.0)}, {}, "m1")
    assert ["clock" in reason for reason in judge(clocks.judged(late))] == [True, True]


def test_the_best_reading_of_a_clock_counts() -> None:
    pauses = iter([0.03, 0.0, *[0.02] * clocks.READINGS])

    def there() -> tuple[float, float]:
        time.sleep(next(pauses))
        return time.monotonic() + 7.0, time.time() - 2.0

    offset = clocks.read_offset(there)
    assert abs(offset.monotonic_s - 7.0) <= offset.error_s + 1e-3
    assert offset.error_s < 0.01
    assert offset.wall_s == pytest.approx(-2.0, abs=0.05)


def test_figures_of_machines_are_added_where_they_are_amounts() -> None:
    parts = [{"cpu_agents": 0.2, "lag_p99_s": 0.01}, {"cpu_agents": 0.3, "lag_p99_s": 0.03, "rate_a_b": 1.0}]
    assert together(parts) == {"cpu_agents": 0.5, "lag_p99_s": 0.03, "rate_a_b": 1.0}


def test_what_cannot_be_run_by_dask_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="tls://HOST:PORT"), connected("tcp://127.0.0.1:8786"):
        pass
    scenario = demo_scenario(hosts=4, seconds=6.0)
    with pytest.raises(SpecError, match=r"\[machines\]"):
        run_on_machines(scenario, generate(scenario), tmp_path, lambda: None, address="tls://127.0.0.1:1")  # type: ignore[arg-type,return-value]


@contextmanager
def on_loopback(folder: Path) -> Iterator[tuple[Conductor, subprocess.Popen[bytes], subprocess.Popen[bytes]]]:
    """A scheduler and a worker over TLS, and a run's side of a part that has yet to be built: on a machine that is not there."""
    dask = pytest.importorskip("dask")
    settings, program = certified(folder), "from distributed.cli.dask_{} import main; main({!r})"
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"tls://127.0.0.1:{unused.getsockname()[1]}"
    common = ["--no-dashboard", "--host", "127.0.0.1"]
    worker = [address, *common, "--no-nanny", "--nthreads", "1", "--local-directory", str(folder)]
    with ExitStack() as stack:
        started = []
        for kind, words in (("scheduler", [*common, "--protocol", "tls", "--port", address[-5:]]), ("worker", worker)):
            start = f"import sys; sys.path.insert(0, {str(ROOT)!r}); {program.format(kind, words)}"
            log = stack.enter_context((folder / f"{kind}.log").open("wb"))
            env = {**os.environ, **variables(settings)}
            started.append(subprocess.Popen([sys.executable, "-c", start], cwd=folder, stderr=log, env=env))
            stack.callback(started[-1].wait)
            stack.callback(started[-1].kill)
        scenario = demo_scenario(hosts=4, seconds=6.0)
        played, trace, _ = prepared(replace(scenario, campus=spread(scenario.campus, 2)), generate(scenario))
        order = pickle.dumps(Order("m9", played, trace, b"", {}, None, ()))
        with dask.config.set(settings), connected(address) as client:
            [here] = played.campus.machines[:1]
            alone = replace(played.campus, machines=(replace(here, address="127.0.0.1", buildings=PLACES),))
            [found] = found_workers(client, alone).values()
            actor = client.submit(PartActor, order, workers=[found], actor=True, pure=False).result()
            yield Conductor(client, [Machine("m9", actor)]), *started


@pytest.mark.extra  # Dask, and a child that imports all of the program
def test_a_part_that_cannot_be_built_says_why_and_a_lost_worker_or_scheduler_has_an_end(tmp_path: Path) -> None:
    with on_loopback(tmp_path) as (conductor, scheduler, worker):
        [machine] = conductor.machines
        assert clocks.read_offset(lambda: machine.actor.clocks().result(20)).error_s < 1.0
        with pytest.raises(SetupError, match=r"machine m9.*'m1', 'm2'"):
            conductor.wait([machine], "stands", 100.0)
        again = Machine("m9", machine.actor)
        worker.kill()
        with pytest.raises(SetupError, match="its worker was lost"):
            Conductor(conductor.client, [again]).wait([again], "more", 100.0)
        scheduler.kill()
        with pytest.raises(SetupError, match="the Dask scheduler was lost"):
            Conductor(conductor.client, [again]).wait([Machine("m1", None)], "more", 100.0)
        assert conductor.end() == 0.0


@contextmanager
def demo(out: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    """A demo on two machines of two hosts each; it is ended if the test does not."""
    words = ("demo", "--machines", "2", "--hosts", "2", "--out", str(out), *words)
    with subprocess.Popen([*CLI, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            yield process
        finally:
            process.terminate()
            process.communicate(timeout=60)


def workers(process: subprocess.Popen[str]) -> dict[str, int]:
    """The processes that a demo has started, by name of the machine; the scheduler's too."""
    found = {}
    for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
        with suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
            if "--name" in words:
                found[words[words.index("--name") + 1]] = int(pid)
            elif "scheduler" in words:
                found["scheduler"] = int(pid)
    return found


def left() -> list[str]:
    """What campuses leave on this machine, as far as it is seen from outside."""
    places = ("/run/reclaimnet", "/sys/fs/bpf/reclaimnet", "/var/tmp/reclaimnet")
    return [str(path) for place in places if Path(place).exists() for path in Path(place).iterdir()]


class TestKernel:
    pytestmark = [*kernel, pytest.mark.extra, pytest.mark.long, pytest.mark.campus, pytest.mark.timeout(300)]

    def test_a_run_on_two_machines_is_measured_and_judged_like_any(self, tmp_path: Path) -> None:
        pytest.importorskip("distributed")
        before = left()
        with demo(tmp_path, "--seconds", "8") as process:
            said, _ = process.communicate(timeout=250)
        assert process.returncode in (0, 3), said
        summary = json.loads((tmp_path / "summary.json").read_text())
        assert summary["jobs"]["finished"] > 0
        assert summary["invariants_broken"] == []
        figures = summary["fidelity"]["figures"]
        assert {"rate_d2_core", "round_trip_d2_core_s", "clock_m1_error_s", "clock_m2_error_s"} <= figures.keys()
        logs = {path.name for path in (tmp_path / "logs").iterdir()}
        assert {"coordinator.log", "agent-h1.log", "agent-h4.log"} <= logs
        assert list(tmp_path.glob("machines-*")) == []
        assert left() == before

    def test_a_killed_machine_is_a_fault_with_an_end(self, tmp_path: Path) -> None:
        pytest.importorskip("distributed")
        before = left()
        with demo(tmp_path, "--seconds", "25") as process:
            lines: list[str] = []
            for line in process.stdout:
                lines.append(line)
                if " starts on " in line or " runs on " in line:
                    break
            time.sleep(5.0)
            killed = workers(process)["m2"]
            os.kill(killed, signal.SIGKILL)
            said, _ = process.communicate(timeout=250)
        said = "".join(lines) + said
        assert process.returncode in (0, 3), said
        assert "machine m2 was lost" in said
        summary = json.loads((tmp_path / "summary.json").read_text())
        assert summary["invariants_broken"] == []
        subprocess.run([*CLI, "clean"], check=True, timeout=60)
        assert left() == before
