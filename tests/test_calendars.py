"""Calendars of owners: the notation, the week of a run, what worlds play, and what decisions make of it."""

import math
import os
import time
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from controller.core.model import facts as f
from experiments.inputs.scenario import Scenario, dumps, loads
from experiments.inputs.traces import announced, generate
from experiments.results.history import attempts
from experiments.worlds.live import habits
from experiments.worlds.live.habits import Habits
from experiments.worlds.live.world import live_world
from experiments.worlds.oracle.run import run_oracle
from experiments.worlds.virtual import VirtualRun, simulate
from experiments.worlds.virtual.world import VirtualWorld
from testbed import owner
from testbed.emulation.campus import LiveCampus
from tests.live_campus import live
from tests.patience import wait_until
from tests.run_story import star
from topologies.calendars import Week, windows
from topologies.errors import SpecError

HOUR_S, DAY_S = 3600.0, 86_400.0
# h1 is lent for twenty minutes more, h2 always; the run begins at 7:40 on a Monday
TEXT = f"""
name = "calendars"
duration = "5 h"
[protocol]
restart = "1 s"
[queue]
level_start = 8
learner = "fixed"
[owners]
day_start = "7.66666666666666666 h"
hazard = "0 /h"
emergency_share = 1
grace_share = 0
[lent]
h1 = "18:00-08:00"
[[jobs]]
name = "j"
steps = 360
step = "10 s"
payload = "1 GB"
loss_budget = "1 h"
{star("h1", "h2")}"""


def played(text: str = TEXT, system: str = "reclaimnet") -> VirtualRun:
    scenario = loads(text)
    return simulate(scenario, generate(scenario), system=system)


@pytest.mark.parametrize(
    ("calendar", "expected"),
    [
        ("Mon 08:00-12:00, mon 12:00-13:30", [(480, 810)]),
        ("Sun 18:00-08:00, Mon 06:00-09:00", [(6 * 1440 + 1080, 7 * 1440 + 540)]),
        ("weekends", [(5 * 1440, 7 * 1440)]),
        ("Fri 18:00-08:00, weekends", [(4 * 1440 + 1080, 7 * 1440)]),
        ("Fri-Sun 00:00-24:00", [(4 * 1440, 7 * 1440)]),
        ("Sat-Mon", [(5 * 1440, 8 * 1440)]),
        ("18:00-08:00", [(day * 1440 + 1080, day * 1440 + 1920) for day in range(7)]),
    ],
)
def test_windows_of_a_calendar_that_meet_are_one(calendar: str, expected: list[tuple[int, int]]) -> None:
    assert list(windows(calendar)) == expected


@pytest.mark.parametrize(
    "wrong", ["", "18:00", "Mo 18:00-08:00", "18:00-18:00", "18:60-08:00", "24:00-08:00", "Mon-", "weekdays-Fri", "a,"]
)
def test_a_calendar_that_is_none_is_refused_with_what_is_allowed(wrong: str) -> None:
    with pytest.raises(SpecError, match=r"hosts\.h1\.lent.*windows such as|lent.*text"):
        loads(TEXT.replace('"18:00-08:00"', f'"{wrong}"'))


def test_a_week_begins_where_the_run_does_and_goes_on_for_ever() -> None:
    week = Week(DAY_S, 7.0 * HOUR_S, 4)  # Friday, 7:00
    assert week.end_s("18:00-08:00", 0.0) == HOUR_S
    assert week.end_s("18:00-08:00", HOUR_S) == 25.0 * HOUR_S  # that one is over
    lent = [*takewhile(lambda window: window[0] < 15 * DAY_S, week.windows_s("weekends", 0.0))]
    assert lent == [((1 + 7 * n) * DAY_S - 7 * HOUR_S, (3 + 7 * n) * DAY_S - 7 * HOUR_S) for n in range(3)]
    assert week.end_s(None, 0.0) == week.end_s("weekdays, weekends", 0.0) == week.end_s("Mon-Sun", 1e9) == math.inf
    short = Week(DAY_S / 100.0, 0.07 * HOUR_S, 4)
    assert short.end_s("18:00-08:00", 0.0) == pytest.approx(0.01 * HOUR_S)


def test_calendars_are_written_read_and_checked() -> None:
    read = loads(TEXT)
    assert [host.lent for host in read.volunteers] == ["18:00-08:00", None]
    assert loads(dumps(read)) == read
    both = loads(TEXT.replace("[[jobs]]", 'b = "weekends"\n[[jobs]]', 1))
    assert [host.lent for host in both.volunteers] == ["18:00-08:00", "weekends"]
    for key, old, new in (
        ("lent.h3", "h1 = ", "h3 = "),
        ("lent.coord", "h1 = ", "coord = "),
        ("owners.loyal", "[lent]", 'loyal = ["h1"]\n[lent]'),
        ("owners.count", "[lent]", "count = 3\n[lent]"),
        ("lent", "[lent]\nh1 =", "[lent]\nh1 = 3\nh2 ="),
        ("hosts.coord.lent", 'role = "coordinator"', 'role = "coordinator", lent = "weekends"'),
    ):
        with pytest.raises(SpecError, match=key):
            loads(TEXT.replace(old, new, 1))
    with pytest.raises(SpecError, match="lent"):
        run_oracle(read, generate(read))


def test_owners_come_at_the_end_of_each_window_and_leave_at_its_beginning() -> None:
    scenario = replace(loads(TEXT), duration_s=9 * DAY_S)
    trace = generate(scenario)
    end_s, back_s = 20 * 60.0, (10 * 60 + 20) * 60.0
    assert trace.away == ()
    assert [(e.kind, e.host) for e in trace.owner_events[:2]] == [("reclaim", "h1"), ("return", "h1")]
    assert [e.gone_s for e in trace.owner_events[:4]] == pytest.approx([end_s, back_s, end_s + DAY_S, back_s + DAY_S])
    assert len(trace.owner_events) == 18
    assert {e.notice_s for e in trace.owner_events} == {0.0}
    told = announced(trace, scenario)
    assert [e.gone_s for e in told] == pytest.approx([e.gone_s for e in trace.owner_events])
    assert {round(e.notice_s, 3) for e in told} == {0.0, scenario.protocol.calendar_notice_s}
    late = replace(scenario, owners=replace(scenario.owners, day_start_s=9 * HOUR_S))
    assert generate(late).away == ("h1",)
    assert generate(late).owner_events[0].at_s == pytest.approx(9 * HOUR_S)


def busy(days: float, hazard_per_h: float = 0.5) -> Scenario:
    scenario = loads(
        TEXT.replace('hazard = "0 /h"', f'hazard = "{hazard_per_h} /h"').replace("emergency_share = 1", "")
    )
    return replace(scenario, duration_s=days * DAY_S)


def test_reclaims_within_windows_end_with_them_at_the_latest() -> None:
    scenario = busy(30)
    week, host = scenario.protocol.week, "h1"
    events = [e for e in generate(scenario).owner_events if e.host == host]
    assert len(events) > 80
    for event in events:
        [begin_s, end_s] = next(week.windows_s("18:00-08:00", event.at_s - 1e-6))
        assert begin_s - 1e-6 <= event.at_s <= event.gone_s <= end_s + 1e-6
    told = announced(generate(scenario), scenario)
    assert [e.gone_s for e in told] == pytest.approx([e.gone_s for e in generate(scenario).owner_events])


def test_hosts_without_calendar_have_the_owners_that_they_had() -> None:
    scenario = busy(30)
    plain = replace(scenario, campus=loads(TEXT.replace('h1 = "18:00-08:00"', "")).campus)
    of_h2 = [e for e in generate(scenario).owner_events if e.host == "h2"]
    assert of_h2 == [e for e in generate(plain).owner_events if e.host == "h2"]
    assert len(of_h2) > 80


def test_a_job_of_an_hour_avoids_the_host_that_has_twenty_minutes() -> None:
    assert [each.host for each in attempts(played().facts)] == ["h2"]
    blind = attempts(played(system="reclaimnet+weighs_calendars=false").facts)
    assert [each.host for each in blind] == ["h1", "h2"]
    short = played(TEXT.replace("steps = 360", "steps = 30"))
    assert [each.host for each in attempts(short.facts)] == ["h1"]


def test_a_job_leaves_before_its_host_s_window_ends_and_loses_nothing() -> None:
    script = '[{ at = "0 s", host = "h2" }, { at = "600 s", host = "h2", kind = "return" }]'
    alone = TEXT.replace("[owners]", f"[owners]\nscript = {script}").replace("steps", 'at = "60 s"\nsteps')
    run, blind = played(alone), played(alone, "reclaimnet+weighs_calendars=false")
    for each in (run, blind):
        assert not each.summary().invariants_broken
        assert [a.host for a in attempts(each.facts)] == ["h1", "h2"]
    assert run.summary().lost_time.work_lost_s == 0.0
    assert blind.summary().lost_time.work_lost_s > 60.0
    reclaim, _ = [(at_s, fact) for at_s, fact in run.facts if isinstance(fact, f.HostReclaimed) and fact.host == "h1"]
    assert reclaim[1].notice_s == pytest.approx(120.0, abs=1.0)
    assert reclaim[0] + reclaim[1].notice_s == pytest.approx(1200.0, abs=2.0)


def test_a_job_with_nowhere_to_go_is_checkpointed_before_its_host_s_window_ends() -> None:
    """Only the coordinator's machine keeps checkpoints; the host is lent again at 18:00."""
    h2 = next(line for line in TEXT.splitlines(keepends=True) if 'name = "h2"' in line)
    text = TEXT.replace(h2, "").replace("[protocol]", "[protocol]\nhead_stores = true").replace('"5 h"', '"12 h"')
    first, second = attempts(played(text).facts)
    assert (first.host, second.host) == ("h1", "h1")
    assert 1080.0 / 10.0 - 2 <= (first.to_step or 0) <= 120
    assert played(text).summary().lost_time.work_lost_s == 0.0
    assert played(text, "reclaimnet+weighs_calendars=false").summary().lost_time.work_lost_s > 60.0


def test_ends_of_windows_are_no_part_of_the_hazard_that_was_seen() -> None:
    nights = TEXT.replace("5 h", "9 d").replace("steps = 360", "steps = 6")
    seen: list[float] = []

    def look(world: VirtualWorld) -> None:
        cluster = world.coordinator.cluster
        seen.append(cluster.hazards.seen(cluster.now_s)[0][0])

    scenario = loads(nights)
    for system in ("reclaimnet", "reclaimnet+weighs_calendars=false"):
        seen.clear()
        run = simulate(scenario, generate(scenario), system=system, after_each=look)
        assert sum(isinstance(fact, f.HostReturned) for _, fact in run.facts) == 9
        assert max(seen) == (0.0 if system == "reclaimnet" else 9.0)


def by_the_clock() -> Scenario:
    """A campus whose days last 240 s; h1's window ends in three seconds, of which its calendar announces two."""
    scenario = loads(TEXT)
    played = replace(scenario.owners, day_s=240.0, day_start_s=80.0 - 3.0, peaks=(), idle_s=1.0)
    return replace(scenario, owners=played, protocol=replace(scenario.protocol, calendar_notice_s=2.0))


def test_owners_come_by_the_clock_and_by_their_keyboards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    acts: list[tuple[str, str, float]] = []

    def act(kind: str, pin: Path, notice_s: float = 0.0) -> None:
        acts.append((kind, pin.parent.name, notice_s))

    hand = SimpleNamespace(
        reclaim=lambda pin, _, *, notice_s: act("reclaim", pin, notice_s), lend=lambda pin, _: act("lend", pin)
    )
    monkeypatch.setattr(habits, "owner", hand)
    now = SimpleNamespace(monotonic=lambda: 0.0, time=lambda: 1000.0)
    monkeypatch.setattr(habits, "time", now)
    campus = cast(
        LiveCampus, SimpleNamespace(run_dir=tmp_path, pin_dir=tmp_path, plan=SimpleNamespace(guarded={"h1", "h2"}))
    )
    seen = Habits(by_the_clock(), campus, {}, 0.0)
    seen.look(calendars=True)
    assert acts == []
    now.monotonic = lambda: 1.5
    seen.look()
    assert acts == []  # a trace plays calendars
    seen.look(calendars=True)
    seen.look(calendars=True)
    assert acts.pop() == ("reclaim", "h1", pytest.approx(1.5))
    assert acts == []
    for host in ("h1", "h2"):
        os.utime(tmp_path / f"{host}.present", (1000.0, 1000.0))
    seen.look(calendars=True)
    assert [acts.pop(0) for _ in range(2)] == [("reclaim", "h1", 0.0), ("reclaim", "h2", 0.0)]
    now.time = lambda: 1001.5
    seen.look(calendars=True)
    assert acts.pop() == ("lend", "h2", 0.0)  # h1 has its calendar
    now.monotonic = lambda: 103.5  # 18:00
    seen.look(calendars=True)
    assert acts == [("lend", "h1", 0.0)]
    seen.held = {"h2": None}
    os.utime(tmp_path / "h2.present", (1001.5, 1001.5))
    seen.look()
    now.time = lambda: 1010.0
    seen.look()
    assert acts[1:] == [("reclaim", "h2", 0.0)]  # whoever else has it gives it back


@pytest.mark.parametrize("host", [pytest.param("h1", marks=live)])
def test_a_campus_by_hand_closes_hosts_by_calendar_and_presence(host: str, tmp_path: Path) -> None:
    with live_world(by_the_clock(), tmp_path) as world, world.watched_by_a_thread():

        def wait_for(name: str, mode: str) -> float:
            wait_until(lambda: owner.look(world.switch_pin(name)).mode.name == mode, lambda: (name, mode))
            return time.monotonic() - world.started_s

        wait_for(host, "DRAIN")
        status = owner.look(world.switch_pin(host))
        assert status.isolate_at_ns / 1e9 - world.started_s == pytest.approx(3.0, abs=0.5)
        (world.campus.run_dir / "h2.present").touch()
        wait_for("h2", "ISOLATE")
        wait_for("h2", "OFF")
