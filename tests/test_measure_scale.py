"""`reclaimnet measure` of scale, bring-up and snapshots: scenarios, figures, and a small run of each."""

import json
import signal
import time
from pathlib import Path

import pytest

from controller.load import Durations, Load
from experiments.benchmarks import bringup, scale, snapshots, trust
from experiments.benchmarks.frame import Run, goals_table, in_fresh_process
from experiments.benchmarks.snapshots import WAYS
from experiments.inputs.scenario.scenario import heartbeat_s
from experiments.inputs.traces.generated import generate
from experiments.machines.rehearsal import spread
from experiments.machines.trunks import crossings
from testbed.emulation.safety.ledger import PIN_ROOT
from testbed.errors import SetupError
from tests.live_campus import leftovers, needs_root, running
from tests.shown import shown
from topologies.units import GBIT_PER_S


@pytest.mark.parametrize("hosts", [54, 500, 1000])
def test_half_of_the_hosts_have_a_job_and_above_five_hundred_a_quarter(hosts: int) -> None:
    work = scale.scale_scenario(hosts, 60.0, idle=False)
    share = 0.5 if hosts <= 500 else 0.25
    assert work.jobs.initial == round(share * hosts)
    trace = generate(work.played())
    assert len(trace.arrivals) >= work.jobs.initial
    burst = [event for event in work.owners.script if event.kind == "reclaim"]
    assert len({event.at_s for event in burst}) == 1
    assert len(burst) == pytest.approx(0.05 * hosts, abs=2)
    idle = generate(scale.scale_scenario(hosts, 20.0, idle=True).played())
    assert (idle.arrivals, idle.owner_events) == ((), ())


@pytest.mark.parametrize("machines", [2, 4])
def test_four_machines_share_the_smallest_campus_and_each_trunk_between_them_is_measured_at_2_gbit_per_s(
    machines: int,
) -> None:
    campus = spread(scale.scale_scenario(min(scale.QUICK_SIZES), 30.0, idle=False).campus, machines)
    measured = crossings(campus)
    assert len(measured) >= machines - 1
    assert {crossing.rate_bytes_per_s for crossing in measured} == {2 * GBIT_PER_S}


@pytest.mark.parametrize(
    ("hosts", "lease_s", "pause_s"), [(12, 30.0, 1.0), (12, 1.5, 0.5), (500, 30.0, 2.0), (5000, 30.0, 10.0)]
)
def test_large_campuses_have_longer_pauses_between_heartbeats_within_the_lease(
    hosts: int, lease_s: float, pause_s: float
) -> None:
    assert heartbeat_s(hosts, lease_s) == pause_s


def test_durations_have_quantiles_within_a_bin() -> None:
    durations = Durations()
    assert durations.quantile_s(0.99) == 0.0
    for milliseconds in range(1, 101):
        durations.add(milliseconds / 1e3)
    figures = durations.figures()
    assert figures["count"] == 100
    assert 0.05 <= figures["p50_s"] <= 0.05 * 1.048
    assert 0.099 <= figures["p99_s"] <= 0.1
    assert figures["max_s"] == 0.1
    durations.add(1e6)
    assert durations.quantile_s(1.0) <= 1e6


def test_load_is_written_as_json(tmp_path: Path) -> None:
    load = Load()
    load.decisions.add(0.002)
    load.write(tmp_path / "load.json")
    told = json.loads((tmp_path / "load.json").read_text())
    assert told["decisions"]["count"] == 1
    assert set(told) == {"decisions", "writes", "reports"}


def run(hosts: int) -> dict[str, object]:
    figures = {"up_s": hosts / 100, "agents_registered_s": hosts / 200, "decisions_p99_s": 1e-4 * hosts**0.5}
    figures |= {"cpu_coordinator": 0.1, "cpu_agents": hosts / 1e3, "down_s": 0.5, "reports_p99_s": 0.01}
    work = {**figures, "busy_share": 0.5, "cpu_jobs": 0.1, "valid": True, "broken": [], "reasons": []}
    idle = {"cpu_agents": 0.1, "memory_bytes": 1e8}
    return {"hosts": hosts, "idle": idle, "work": work}


def test_the_table_shows_every_size_and_goals_are_judged_at_500_hosts_alone() -> None:
    runs = [run(hosts) for hosts in (50, 100, 400)]
    result = {"seconds": 60.0, "runs": runs}
    text = shown(scale.tables(result))
    assert all(f" {hosts} {hosts / 100:.2f} s" in text for hosts in (50, 100, 400))
    goals = {goal.what: goal.met for goal in scale.goals(result)}
    assert goals["400 hosts: busy share (goal for 500)"] is goals["400 hosts: teardown (goal for 500)"] is None
    goals = {goal.what: goal.met for goal in scale.goals(result | {"runs": [*runs, run(500), run(2000)]})}
    assert goals["500 hosts: busy share"] is goals["500 hosts: agents registered"] is True
    tries = [{"hosts": n, "times_faster": {"up": 3.0, "down": 9.0}} for n in (54, 500)]
    assert [goal.met for goal in bringup.goals({"runs": tries})] == [None, None, False, True]
    assert "not judged" in shown([goals_table([("bringup", bringup.goals({"runs": tries[:1]}))])])


@pytest.mark.parametrize(("coordinator", "hosts", "ends"), [(0.1, 3000, "coordinator"), (0.001, 6300, "processors")])
def test_what_machines_should_carry_is_computed_from_the_costs_of_one(
    coordinator: float, hosts: int, ends: str
) -> None:
    one = run(500)
    one["work"] |= {"cpu_coordinator": coordinator, "cpu_machine": coordinator + 3.0}
    apart = {
        **one["work"],
        "machines": 2,
        "trunk_rate_c_n": 0.95,
        "trunk_rate_c_s": 0.97,
        "trunk_round_trip_c_n_s": 2e-4,
    }
    apart |= {"processors_m1": 0.7, "processors_m2": 0.4, "valid": False, "reasons": ["slow"]}
    result = {"seconds": 60.0, "runs": [one | {"spread": [apart]}], "trunks": [{**apart, "round_trip_p99_s": 2.0}]}
    text = shown(scale.tables(result))
    assert " 0.70, 0.40 0.950 0.2 ms " in text
    assert [(goal.measured, goal.met) for goal in scale.goals(result)][-2:] == [("0.950", True), ("0.2 ms", True)]
    assert "500 hosts on 2 machines: slow" in text
    assert f" {hosts} " in text
    assert f"{ends}" in text.partition("Computed")[2].partition(f" {hosts} ")[2]


def test_each_size_is_played_plain_and_with_names_and_judged_beside_its_own_goal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    played = list[tuple[object, ...]]()

    def play(module: str, hosts: int, seconds: float, kind: str, folder: Path, *ways: str) -> dict[str, object]:
        played.append((hosts, kind, *ways))
        slow = 1.0 if ways == ("plain", "sqlite") else 3.0
        figures = {
            "agents_registered_s": slow,
            "memory_bytes": 1e8 * slow,
            "cpu_agents": 0.08,
            "decisions_p99_s": 0.001,
            "writes_p99_s": 0.02,
        }
        return {**figures, "valid": True, "broken": [], "reasons": []}

    monkeypatch.setattr(trust, "in_fresh_process", play)
    result = trust.measure(Run(tmp_path, quick=True, hosts=(54, 500)))
    assert len(set(played)) == 6
    assert [each for each in played if each[1] == "work"] == [
        (500, "work", "plain", "sqlite"),
        (500, "work", "sealed", "etcd"),
    ]
    goals = {goal.what: goal.met for goal in trust.goals(result)}
    assert goals["54 hosts: registered"] is goals["500 hosts: memory of idle agents"] is False
    assert goals["500 hosts: registered"] is goals["500 hosts: decision, p99"] is True
    assert goals["500 hosts: effect after commit, p99"] is False
    assert "500, work, all 0 0.0010 s 0.0200 s" in shown(trust.tables(result))
    assert json.loads((tmp_path / "trust.json").read_text()) == result


def test_what_fails_leaves_the_other_figures_and_gives_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def play(module: str, hosts: int, seconds: float, kind: str, folder: Path, *ways: str) -> dict[str, object]:
        if kind == "work":
            raise SetupError("etcd is missing")
        late = ["p99 of timer lateness"] if hosts == 500 else []
        return {"agents_registered_s": 1.0, "valid": not late, "broken": [], "reasons": late}

    monkeypatch.setattr(trust, "in_fresh_process", play)
    goals = {goal.what: goal for goal in trust.goals(trust.measure(Run(tmp_path)))}
    assert goals["54 hosts: registered"].met is True
    late = goals["500 hosts: registered"]
    assert (late.met, late.measured) == (None, "1.00 s; p99 of timer lateness")
    assert goals["500 hosts: reasons why the run at work is invalid"].met is False
    assert goals["500 hosts: decision, p99"].measured == "etcd is missing"


@pytest.mark.kernel
@pytest.mark.campus
@needs_root
def test_small_run_says_what_each_part_took(tmp_path: Path) -> None:
    figures = in_fresh_process(scale.__name__, 8, 3.0, "idle", tmp_path)
    assert 0.0 <= figures["cpu_agents"] <= figures["cpu_machine"]
    assert figures["broken"] == []
    assert figures["decisions_count"] > 8
    assert figures["cpu_jobs"] == 0.0


@pytest.mark.kernel
@pytest.mark.campus
@needs_root
@pytest.mark.parametrize("name", ["SIGTERM", pytest.param("SIGINT", marks=pytest.mark.long)])
def test_its_process_takes_its_campus_down_when_it_is_interrupted(tmp_path: Path, name: str) -> None:
    before = {*PIN_ROOT.glob("*")}
    with running(tmp_path, "measure", "bringup", "--hosts", "40") as run:
        run.wait_until(lambda: {*PIN_ROOT.glob("*")} - before)
        time.sleep(0.1)
        run.process.send_signal(signal.Signals[name])
        assert run.finish() == 130
        assert leftovers() == []


@pytest.mark.alone
@pytest.mark.long
def test_each_way_is_measured_at_each_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "GOAL_MB", 1)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    result = snapshots.measure(Run(tmp_path, quick=True))
    assert [(row["dirty_share"], row["way"]) for row in result["rows"]] == [
        (share, way) for share in snapshots.DIRTY_SHARES for way in WAYS
    ]
    for row in result["rows"]:
        assert 0.0 < row["pause_p50_s"] <= row["pause_p99_s"]
        assert row["lost_s"] > 0.0
    assert list(tmp_path.iterdir()) == []
    [goal] = snapshots.goals(result)
    longest_s = max(row["pause_p99_s"] for row in result["rows"] if row["way"] == "copy")
    assert goal.met is (longest_s <= snapshots.GOAL_S)
    assert "1 MB 100% copy" in shown(snapshots.tables(result))


@pytest.mark.alone
def test_a_state_for_which_there_is_no_room_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "available_bytes", lambda: 2_000_000.0)
    with pytest.raises(SetupError, match="1000000 bytes of state"):
        snapshots.measure(Run(tmp_path))
