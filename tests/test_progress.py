"""The live display fits the terminal it is given, and says plain lines where there is none."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from controller.core.model import facts as f
from experiments.inputs.scenario import demo_scenario
from experiments.results import live_display, narration
from testbed.messages import HostStatus, Status, TransferStatus
from tests import run_story
from topologies.spec import Campus, Role
from topologies.units import format_duration


def terminal(width: int, height: int) -> tuple[Console, io.StringIO]:
    out = io.StringIO()
    kind = {"TERM": "xterm"}  # whatever this process runs in
    console = Console(file=out, width=width, height=height, force_terminal=True, color_system=None, _environ=kind)
    return console, out


def status(campus: Campus, **changes: object) -> Status:
    states = ("idle", "busy", "noticed", "reclaimed", "lost", "absent")
    hosts = [
        HostStatus(
            h.name,
            h.building,
            h.role.value,
            states[n % 6] if h.role is Role.VOLUNTEER else "busy",
            h.gpus,
            ["job7"] if n % 6 in (1, 2) else [],
            3.4 if n % 6 == 2 else None,
        )
        for n, h in enumerate(campus.hosts)
        if h.role is not Role.COORDINATOR
    ]
    transfers = [
        TransferStatus(f"job{n}:1000001>h{n + 1}", f"h{n}", f"h{n + 1}", "planned", 4e6, 3e6, 5) for n in range(1, 30)
    ]
    values = {
        "now_s": 12.5,
        "hosts": hosts,
        "jobs": [],
        "ended": [],
        "transfers": transfers,
        "waiting": ["job3", "job4"],
        "level": 1.62,
    }
    known = {"mean_cost": 1.9, "mean_delay_s": 0.8, "counts": {"running": 4, "finished": 2}}
    return Status(**{**values, **known, **changes})


def drawn(width: int, height: int, campus: Campus, **changes: object) -> list[str]:
    console, out = terminal(width, height)
    live = live_display.Live(demo_scenario(), console)
    notice = (12.5, f.HostReclaimed("h3", 3.4, False, ["job7"]))
    for at_s, fact in [*run_story.facts()[:700], notice]:
        live.event(at_s, fact)
    out.seek(0)
    out.truncate()
    console.print(live.picture(status(campus, **changes)))
    return out.getvalue().splitlines()


@pytest.mark.parametrize(("width", "height"), [(100, 40), (80, 24), (60, 24), (40, 12), (20, 6), (200, 60)])
@pytest.mark.parametrize("hosts", [1, 12, 60, 300])
def test_picture_fits_the_terminal(width: int, height: int, hosts: int) -> None:
    lines = drawn(width, height, run_story.small_campus(hosts, min(hosts, 3)))
    assert max(len(line) for line in lines) <= width
    if height >= 12:
        assert len(lines) < height


def test_picture_shows_hosts_queue_transfers_and_events() -> None:
    text = "\n".join(drawn(100, 40, run_story.small_campus()))
    for part in (
        "r = 1.62",
        "12.5 s of 75 s",
        f"target {format_duration(demo_scenario().played().queue.target_delay_s)}",
        "h3 3.4s job7",
        "job3 job4",
        "24 Mbit/s of 32 Mbit/s",
        "owner reclaims in",
    ):
        assert part in text, part


def test_figures_that_are_not_known_yet_are_dashes() -> None:
    text = "\n".join(drawn(100, 40, run_story.small_campus(), mean_cost=float("nan"), mean_delay_s=float("inf")))
    assert "mean cost - (k = 10)   mean delay - (target" in text


def test_without_a_terminal_each_notable_event_is_one_plain_line() -> None:
    out = io.StringIO()
    with live_display.Live(demo_scenario(), Console(file=out, width=40)) as live:
        live.update(status(run_story.small_campus()))
        live.event(1.0, f.JobQueued("a", 0, 1.0))
        live.event(2.0, f.HostReclaimed("h3", 4.0, False, ["job7"]))
        live.event(2.0, f.MigrationAdmitted("job7", 1, "h3", "h1", 4.0, 20_000_000, 5e6, 1.0, 0.9))
        live.event(2.0, f.Granted("job7", "h3", "h1", "planned", 7.625e6, 5e6, "a1>d1"))
    assert out.getvalue().splitlines() == [
        "    2.0 s  h3: owner reclaims in 4 s, job7 there",
        "    2.0 s  job7 moves h3 -> h1: 20 MB admitted at 40 Mbit/s on average",
    ]


def test_text_of_a_reason_is_never_read_as_markup() -> None:
    out = io.StringIO()
    live = live_display.Live(demo_scenario(), Console(file=out, width=200))
    live.event(1.0, f.JobFailed("a", 1, "h1", "[/bold] [red]x"))
    assert "[/bold] [red]x" in out.getvalue()
    console, out = terminal(200, 40)
    console.print(
        live_display.Live(replace(demo_scenario(), name="[/b] x"), console).picture(status(run_story.small_campus()))
    )
    assert "[/b] x, seed 1" in out.getvalue()


def test_sentences_name_job_host_and_cause() -> None:
    assert (
        narration.sentence(f.JobStopped("a", 1, "h1", "deadline", 9)) == "a stopped on h1 at step 9: the notice ran out"
    )
    assert narration.sentence(f.EgressMeasured("h1", 1.0, 1, 1, 0, 1.0, 1, 1.0)) is None
