"""Owners: their command, their datagrams, and what they do in a live run."""

import logging
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio

from bpf import switch
from bpf.layout import KillSwitchStruct, Mode
from experiments.cli import owner
from experiments.cli.main import app
from experiments.inputs.scenario import OwnerEvent
from experiments.runtime.exit_status import ExitStatus
from experiments.worlds.live import owners
from experiments.worlds.live.owners import OwnersAtWork
from experiments.worlds.live.world import LiveWorld
from testbed.agent.io.kernel_maps import KernelMaps
from testbed.agent.io.owner_socket import listen_to_owner
from testbed.owner import LOOK

ROOT = Path(__file__).parents[1]

HEAVY = """trio typer rich msgspec numpy logging socket tempfile argparse dataclasses pathlib re json enum typing signal
contextlib collections functools"""


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    made: list[tuple[Any, ...]] = []

    def reclaim(host: str, notice_s: float = 0.0, campus_id: str | None = None) -> str:
        made.append(("reclaim", host, notice_s, campus_id))
        return "closed"

    def lend(host: str, campus_id: str | None = None) -> str:
        made.append(("return", host, campus_id))
        return "lent"

    monkeypatch.setattr(owner, "reclaim", reclaim)
    monkeypatch.setattr(owner, "lend", lend)
    return made


@pytest.mark.parametrize(
    "words",
    [
        "reclaim h1",
        "reclaim --notice 12.5 h1",
        "reclaim h1 --notice=3",
        "reclaim h1 --notice=-4",
        "reclaim h1 --campus c2 --notice 1e3",
        "reclaim h1 --notice 1 --notice 2",
        "return h1",
        "return --campus=c2 h1",
    ],
)
def test_the_short_way_reads_what_the_command_line_reads(words: str, calls: list[tuple[Any, ...]]) -> None:
    wish = owner.read_plain(words.split())
    if wish is not None:
        wish()
    app(words.split(), standalone_mode=False)
    assert calls == ([calls[-1]] * 2 if wish else [calls[-1]])
    assert (wish is None) == ("=-4" in words)


@pytest.mark.parametrize(
    "words",
    [
        "reclaim",
        "reclaim --help",
        "reclaim h1 -h",
        "reclaim h1 h2",
        "reclaim h1 --notice",
        "reclaim h1 --notice soon",
        "reclaim h1 --notice --campus",
        "reclaim h1 --campus=",
        "reclaim -- h1",
        "return h1 --notice 3",
        "return",
    ],
)
def test_other_words_are_left_to_the_command_line(words: str, calls: list[tuple[Any, ...]]) -> None:
    assert owner.read_plain(words.split()) is None
    assert not calls


def test_the_short_way_imports_nothing_that_the_store_does_not_need() -> None:
    program = "import sys, reclaimnet, controller, experiments.cli.start, experiments.cli.owner; print(*sys.modules)"
    bare = f"import sys; sys.path.insert(0, {str(ROOT)!r}); "
    loaded = set(_run("-I", "-S", "-c", bare + program).split())  # -S: without what this machine's `site` imports
    assert "bpf.switch" in loaded
    assert not loaded & set(HEAVY.split())


def test_the_words_that_the_switch_knows_by_heart_are_those_of_the_kernels_header() -> None:
    fields = {name: getattr(KillSwitchStruct, name) for name, *_ in KillSwitchStruct._fields_}
    words = ("set_at_ns", "isolate_at_ns", "first_drop_ns", "dropped_packets", "dropped_bytes")
    numbers = (switch.SET_AT, switch.ISOLATE_AT, switch.FIRST_DROP, switch.DROPPED_PACKETS, switch.DROPPED_BYTES)
    for name, number in zip(words, numbers, strict=True):
        assert (fields[name].offset, fields[name].size) == (8 * number, 8)
    places = {"coordinator": switch.COORDINATOR, "live": switch.LIVE}
    for name, place in places.items():
        assert (fields[name].offset, fields[name].size) == (place.start, place.stop - place.start)
    assert (fields["mode"].offset, fields["mode"].size) == (0, 4)
    assert (switch.OFF, switch.DRAIN, switch.ISOLATE) == (Mode.OFF, Mode.DRAIN, Mode.ISOLATE)


# before the command line is there, a signal has its default action
INTERRUPTS = [
    pytest.param("SIGINT", ExitStatus.INTERRUPTED, "reclaimnet: interrupted\n", id="SIGINT"),
    pytest.param("SIGTERM", -signal.SIGTERM, "", id="SIGTERM"),
    pytest.param("SIGHUP", -signal.SIGHUP, "", id="SIGHUP"),
]


@pytest.mark.parametrize(("name", "status", "says"), INTERRUPTS)
def test_a_signal_on_the_short_way_ends_the_command(name: str, status: int, says: str) -> None:
    program = (
        "import signal, sys; from experiments.cli import owner, start; sys.argv = ['reclaimnet', 'reclaim', 'h1'];"
        f"owner.reclaim = lambda *_: signal.raise_signal(signal.{name}); start.main()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (status, says)


def _run(*arguments: str) -> str:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=True).stdout


INTERRUPTED = """
import signal, sys
from experiments.cli import start
class Finder:
    def find_spec(name, *_):
        if name == "typer":
            sys.meta_path.remove(Finder)
            signal.raise_signal(signal.NAME)
sys.meta_path.insert(0, Finder)
sys.argv = ["reclaimnet", "doctor"]
start.main()
"""


@pytest.mark.parametrize(("name", "status", "says"), INTERRUPTS)
def test_a_signal_while_the_command_line_is_imported_ends_the_command(name: str, status: int, says: str) -> None:
    argv = [sys.executable, "-c", INTERRUPTED.replace("NAME", name)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (status, says)


@pytest.mark.parametrize(
    ("words", "status", "says"),
    [(["--version"], 0, "reclaimnet-testbed"), (["reclaim"], 2, "Missing argument"), (["return", "-h"], 0, "Usage")],
)
def test_command_that_begins_without_site_packages_is_the_same(words: list[str], status: int, says: str) -> None:
    script = Path(owner.__file__).with_name("reclaimnet")
    done = subprocess.run([sys.executable, "-S", script, *words], capture_output=True, text=True, check=False)
    assert done.returncode == status
    assert says in done.stdout + done.stderr


class Switch(KernelMaps):
    """One that nobody has moved; counts how often it was looked at."""

    def __init__(self) -> None:
        self.looks = 0

    def look_at_switch(self, *, grace: bool = False) -> None:
        self.looks += 1


@pytest.mark.parametrize("word", [LOOK[False], b"nonsense"])
async def test_owner_who_never_reads_keeps_no_other_waiting(
    tmp_path: Path, word: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """Behind his tenth unread answer the agent waited for him, and heard nobody."""
    switch, path = Switch(), tmp_path / "owner"
    with caplog.at_level(logging.INFO), trio.fail_after(60.0):
        async with trio.open_nursery() as nursery:
            await nursery.start(listen_to_owner, path, None, switch, lambda event: None)
            assert path.stat().st_mode & 0o777 == 0o600
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as deaf:
                deaf.bind(str(tmp_path / "deaf"))
                deaf.setblocking(False)
                for _ in range(100):
                    try:
                        deaf.sendto(word, str(path))
                    except BlockingIOError:
                        await trio.sleep(0.001)
                with trio.socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as owner:
                    await owner.bind(str(tmp_path / "reads"))
                    await owner.sendto(LOOK[False], str(path))
                    assert await owner.recv(16) == b"done"
            nursery.cancel_scope.cancel()
    assert len(caplog.records) <= 2


async def test_a_host_that_is_reclaimed_while_it_is_lent_again_ends_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two threads the one that lends may come to the switch last: the host stood open though its owner had it."""
    switch: list[str] = []

    def lend(*_: Any) -> None:
        time.sleep(0.2)
        switch.append("open")

    def reclaim(*_: Any, **__: Any) -> SimpleNamespace:
        switch.append("closed")
        return SimpleNamespace(set_s=1e-5, set_at_s=0.0)

    hand = SimpleNamespace(lend=lend, reclaim=reclaim, look=lambda _: SimpleNamespace(first_drop_ns=0))
    monkeypatch.setattr(owners, "owner", hand)
    world = SimpleNamespace(
        switch_pin=Path,
        owner_socket=Path,
        started_s=0.0,
        prober=None,
        prober_host=None,
        habits=SimpleNamespace(states={"h1": 0}),
    )
    at_work = OwnersAtWork(cast(LiveWorld, world))
    events = (OwnerEvent(0.0, "h1"), OwnerEvent(0.1, "h1", "return"), OwnerEvent(0.15, "h1"))
    await at_work.play(events, trio.current_time())
    assert switch == ["closed", "open", "closed"]
    assert at_work.away == {"h1": events[2]}
