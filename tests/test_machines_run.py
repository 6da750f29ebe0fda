"""A live run over several machines: what is measured before it, what it brings back, and machines that die meanwhile."""

from __future__ import annotations

import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from controller.core.model import facts as f
from controller.core.parameters import Protocol
from experiments.inputs.scenario import OwnerEvent, Scenario, demo_scenario
from experiments.inputs.traces import JobArrival, JobDraw, Trace, generate
from experiments.machines import clocks
from experiments.machines.actor import PartActor
from experiments.machines.clocks import Offset
from experiments.machines.conductor import (
    Conductor,
    RemoteMachine,
    connected,
    found_workers,
    join_records,
    run_on_machines,
    together,
)
from experiments.machines.part import Order
from experiments.machines.rehearsal import certified, rehearsed, spread, variables
from experiments.machines.trunks import crossings
from experiments.results.history import Timed
from experiments.results.live_lines import unseen
from experiments.worlds.live.run import LiveRecord, prepared, run_live
from experiments.worlds.played import Played
from testbed import linux
from testbed.emulation.fidelity import Fidelity, judge
from testbed.errors import SetupError, SpecError
from tests.emulation_campuses import kernel
from tests.patience import wait_until
from tests.test_machines import TWO
from topologies import files, presets
from topologies.units import GBIT_PER_S, MBIT_PER_S

ROOT = Path(__file__).parents[1]
PLACES = ("b1", "b2", "b3", "room")


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
    same, judged = clocks.figures(before, before, "m1")
    assert same["clock_m2_offset_s"] == 5000.0
    assert same["clock_m2_error_s"] == pytest.approx(0.003)
    assert judge(judged) == []
    _, judged = clocks.figures(before, {**before, "m2": Offset(5000.04, 0.002, 3.04)}, "m1")
    [reason] = judge(judged)
    assert "machine m2, by how much its clock is not known, in seconds: 0.04, allowed 0.025" in reason
    _, judged = clocks.figures({**before, "m2": Offset(0.0, 0.2, -400.0)}, {}, "m1")
    assert ["clock" in reason for reason in judge(judged)] == [True, True]


def test_the_best_reading_of_a_clock_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s, pauses = 5.0, iter([0.03, 0.01, *[0.02] * clocks.READINGS])
    monkeypatch.setattr(clocks, "time", SimpleNamespace(monotonic=lambda: now_s, time=lambda: now_s + 900.0))

    def there() -> tuple[float, float]:
        nonlocal now_s
        now_s += next(pauses)
        return now_s + 7.0, now_s + 898.0

    offset = clocks.read_offset(there)
    assert offset == pytest.approx((7.005, 0.005, -1.995))


def test_figures_of_machines_are_added_where_they_are_amounts() -> None:
    parts = [{"cpu_agents": 0.2, "lag_p99_s": 0.01}, {"cpu_agents": 0.3, "lag_p99_s": 0.03, "rate_a_b": 1.0}]
    assert together(parts) == {"cpu_agents": 0.5, "lag_p99_s": 0.03, "rate_a_b": 1.0}


def test_what_cannot_be_run_by_dask_is_refused(tmp_path: Path) -> None:
    for wrong in ("tcp://127.0.0.1:8786", "tls://127.0.0.1", "127.0.0.1:8786"):
        with pytest.raises(SpecError, match="tls://HOST:PORT"), connected(wrong):
            pass
    scenario = demo_scenario(hosts=4, seconds=6.0)
    with pytest.raises(SpecError, match=r"\[machines\]"):
        run_on_machines(scenario, generate(scenario), tmp_path, unseen, address="tls://127.0.0.1:1")


@contextmanager
def on_loopback(folder: Path) -> Iterator[tuple[Conductor, subprocess.Popen[bytes], subprocess.Popen[bytes]]]:
    """A scheduler and a worker over TLS, and a run's side of a part that has yet to be built: on a machine that is not there."""
    pytest.importorskip("distributed")  # its defaults come before what is set and unset again
    import dask

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
        order = pickle.dumps(Order(played, trace, {}, machine="m9"))
        with dask.config.set(settings), connected(address) as client:
            [here] = played.campus.machines[:1]
            alone = replace(played.campus, machines=(replace(here, address="127.0.0.1", buildings=PLACES),))
            [found] = found_workers(client, alone).values()
            actor = client.submit(PartActor, order, workers=[found], actor=True, pure=False).result()
            yield Conductor(client, played.campus, [RemoteMachine("m9", actor)]), *started


class Answer:
    """An answer of an actor, which comes when it is let."""

    def __init__(self, value: object, *, is_late: bool = False) -> None:
        self.value, self.is_late = value, is_late

    def done(self) -> bool:
        return not self.is_late

    def result(self, limit_s: float = 0.0) -> object:
        return self.value


class Gone:
    """An actor whose worker was killed."""

    def __getattr__(self, name: str) -> object:
        raise RuntimeError("Worker holding Actor was lost")


def test_a_command_to_a_worker_that_was_just_lost_is_no_fault_of_the_operators() -> None:
    machine = RemoteMachine("m9", Gone())
    machine.tell("begin", 1.0)
    assert machine.look() == []
    assert "was lost" in machine.lost


def test_commands_wait_for_the_exchange_under_way_so_that_none_overtakes_another() -> None:
    sent: list[list[object]] = []
    answer = Answer([pickle.dumps(("event", 1.0, "fact")), pickle.dumps(("run", 0))], is_late=True)

    class Slow:
        def exchange(self, commands: list[bytes]) -> Answer:
            sent.append([pickle.loads(each)[1] for each in commands])
            return answer

    machine = RemoteMachine("m9", Slow())
    for number in range(4):
        machine.tell("rates", number)
        assert machine.look() == []
    assert sent == [[0]]
    answer.is_late = False
    assert machine.look() == [("event", 1.0, "fact")]
    machine.look()
    assert sent == [[0], [1, 2, 3]]
    assert machine.answers == {"run": [0, 0], "ended": []}  # what passes is not kept


def test_a_machine_that_is_lost_before_its_files_are_here_is_a_fault_of_the_run_and_judged(tmp_path: Path) -> None:
    class There:
        def files(self) -> Answer:
            return Answer([("logs/coordinator.log", 4)])

        def piece(self, name: str, offset: int) -> Answer:
            return Answer(b"text")

        def clocks(self) -> Answer:
            return Answer((time.monotonic(), time.time()))

    class GoneAfterOneFile(There):
        def piece(self, name: str, offset: int) -> Answer:
            raise OSError("connection reset")

    machines = [RemoteMachine("m1", There()), RemoteMachine("m2", GoneAfterOneFile())]
    for number, machine in enumerate(machines):
        verdict = Fidelity(True, (), {"cpu_agents": 0.1 + number})
        machine.answers["play"].append(LiveRecord(frozenset(), 0.0, "", 9.0, [], [], verdict, {}, []))
    offsets = dict.fromkeys(("m1", "m2"), Offset(0.0, 0.0, 0.0))
    conductor = Conductor(SimpleNamespace(status="running"), SCENARIO.campus, machines, clocks=offsets)
    parts = conductor.collect("play", tmp_path)
    assert (tmp_path / "logs/coordinator.log").read_text() == "text"
    join_records(conductor, parts, time.monotonic() - 9.0)
    [reason] = parts[0].fidelity.reasons
    assert "machine m2 was lost after 9.0 s, with some of its files" in reason
    assert parts[0].fidelity.figures["cpu_agents"] == pytest.approx(1.2)  # of both
    assert [death.subject for death in parts[0].deaths] == ["machine m2"]
    machines[0].actor = Gone()
    with pytest.raises(SetupError, match="machine m1"):  # where the journal is
        conductor.collect("play", tmp_path)


def parts_of(worker: int) -> list[int]:
    """The parts that a worker has started and that have not ended."""
    name = b"experiments.machines.part"
    return [pid for pid in linux.children_of(worker) if name in Path(f"/proc/{pid}/cmdline").read_bytes()]


@pytest.mark.long
@pytest.mark.extra  # Dask, and a child that imports all of the program
def test_a_part_that_cannot_be_built_says_why_and_a_lost_worker_or_scheduler_has_an_end(tmp_path: Path) -> None:
    with on_loopback(tmp_path) as (conductor, scheduler, worker):
        [machine] = conductor.machines
        assert clocks.read_offset(lambda: machine.actor.clocks().result(20)).error_s < 1.0
        with pytest.raises(SetupError, match=r"machine m9.*'m1', 'm2'"):
            conductor.wait([machine], "stands")
        with connected(conductor.client.scheduler.address) as gone:  # of an operator who is killed
            gone.submit(PartActor, b"", 1.0, actor=True, pure=False).result()
            assert len(parts_of(worker.pid)) == 1  # it waits for its order
        wait_until(lambda: not parts_of(worker.pid))
        again = RemoteMachine("m9", machine.actor)
        worker.kill()
        with pytest.raises(SetupError, match="its worker was lost"):
            Conductor(conductor.client, conductor.campus, [again]).wait([again], "more")
        scheduler.kill()
        with pytest.raises(SetupError, match="the Dask scheduler was lost"):
            Conductor(conductor.client, conductor.campus, [again]).wait([RemoteMachine("m1", None)], "more")
        conductor.end()
        assert conductor.down_s == 0.0


JOB = JobDraw("mine", 4_000_000, 150, 0.1, 0.2, 8e9, 0.0, 20.0)
SCENARIO = Scenario(
    "two",
    spread(presets.three_tier(4, 2, 0, access_bytes_per_s=0.2 * GBIT_PER_S, core_bytes_per_s=0.2 * GBIT_PER_S), 2),
    duration_s=24.0,
    protocol=Protocol(restart_s=0.5, control_period_s=1.0, lease_s=3.0, snapshots="copy", prior_hazard_per_s=0.02),
)
# the job begins on h3, of m2, and there is one place to go to: among several, measured rates would choose
TRACE = Trace("by hand", (JobArrival(0.5, JOB),), (OwnerEvent(2.0, "h1", "return"),), away=("h1", "h2", "h4"))
RECLAIM = OwnerEvent(4.0, "h3", notice_s=5.0)
DECISIONS = (f.JobSubmitted, f.JobDispatched, f.MigrationAdmitted, f.MigrationFinished, f.JobFinished, f.HostLost)


def decisions(facts: Sequence[Timed]) -> list[tuple[object, ...]]:
    """What was decided, without the moments and the rates."""
    names = ("job", "attempt", "host", "source", "destination", "step", "digest", "restored_step")
    found = [fact for _, fact in facts if isinstance(fact, DECISIONS)]
    return [(type(fact).__name__, *(getattr(fact, name) for name in names if hasattr(fact, name))) for fact in found]


def on_two(out: Path, trace: Trace) -> Played:
    """The scenario on two machines."""
    out.mkdir()
    with rehearsed(SCENARIO.campus, out) as address:
        return run_on_machines(SCENARIO, trace, out, unseen, address=address)


def workers() -> dict[str, int]:
    """The workers that this process has started, by name of the machine."""
    found = {}
    for pid in linux.children_of(os.getpid()):
        words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
        if "--name" in words:
            found[words[words.index("--name") + 1]] = pid
    return found


def left() -> list[str]:
    """What campuses leave on this machine, as far as it is seen from outside."""
    places = ("/run/reclaimnet", "/sys/fs/bpf/reclaimnet", "/var/tmp/reclaimnet")
    return [str(path) for place in places if Path(place).exists() for path in Path(place).iterdir()]


class TestKernel:
    pytestmark = [*kernel, pytest.mark.extra, pytest.mark.long, pytest.mark.campus, pytest.mark.timeout(400)]

    def test_two_machines_decide_what_one_decides_and_measure_trunks_and_clocks(self, tmp_path: Path) -> None:
        pytest.importorskip("distributed")
        before = left()
        trace = replace(TRACE, owner_events=(*TRACE.owner_events, RECLAIM))
        alone = run_live(
            replace(SCENARIO, campus=replace(SCENARIO.campus, machines=())), trace, tmp_path / "one", unseen
        )
        both = on_two(tmp_path / "two", trace)
        assert decisions(both.facts) == decisions(alone.facts)
        moves = [fact for _, fact in both.facts if isinstance(fact, f.MigrationFinished)]
        place = SCENARIO.campus.machine_of
        assert [place[move.source] != place[move.destination] for move in moves] == [True]  # else nothing is shown
        assert [type(fact) for _, fact in both.facts].count(f.JobFinished) == 1
        assert both.summary().invariants_broken == []
        figures = both.context.fidelity.figures
        reasons = both.context.fidelity.reasons
        is_blamed = any(reason.startswith("trunk d2 to core between machines") for reason in reasons)
        # of a busy machine less gets through
        assert is_blamed != (0.9 <= figures["trunk_rate_d2_core"] <= 1.02), reasons
        assert 0.0 < figures["trunk_round_trip_d2_core_s"] < 0.1
        assert figures["clock_m2_offset_s"] == pytest.approx(0.0, abs=figures["clock_m2_error_s"])
        assert any("clock" in reason for reason in reasons) == (figures["clock_m2_error_s"] > clocks.MAX_ERROR_S)
        logs = {path.name for path in (tmp_path / "two/logs").iterdir()}
        assert {"coordinator.log", "agent-h1.log", "agent-h4.log"} <= logs
        assert list((tmp_path / "two").glob("machines-*")) == []  # keys
        assert left() == before

    def test_a_killed_machine_is_a_fault_with_an_end(self, tmp_path: Path) -> None:
        pytest.importorskip("distributed")
        before = left()

        def kill(at_s: float, fact: f.Fact) -> None:
            if isinstance(fact, f.JobRunning) and fact.host == "h3":
                threading.Timer(3.0, os.kill, (workers()["m2"], signal.SIGKILL)).start()

        with rehearsed(SCENARIO.campus, tmp_path) as address:
            played = run_on_machines(SCENARIO, TRACE, tmp_path, kill, address=address)
        [reason] = [each for each in played.context.fidelity.reasons if "was lost" in each]
        assert "machine m2 was lost after" in reason
        [death] = [each for each in played.context.deaths if each.subject == "machine m2"]
        lost = {fact.host: at_s for at_s, fact in played.facts if isinstance(fact, f.HostLost)}
        assert set(lost) == {"h3", "h4"}
        assert max(lost.values()) - death.at_s <= SCENARIO.protocol.lease_s + 1.0
        again = [(at_s, fact) for at_s, fact in played.facts if isinstance(fact, f.JobRunning) and at_s > death.at_s]
        assert SCENARIO.campus.machine_of[again[0][1].host] == "m1"
        assert again[0][0] - death.at_s <= 10.0
        assert played.summary().invariants_broken == []
        subprocess.run([sys.executable, "-m", "experiments.cli", "clean"], check=True, timeout=60)
        assert left() == before
