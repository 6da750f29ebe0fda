"""Programs of a real machine: its owner's switch closes the sockets of one control group, and nobody else's."""

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from ipaddress import IPv4Address
from pathlib import Path
from types import SimpleNamespace

import pytest
import trio

from bpf.errors import BpfError
from bpf.layout import Mode
from bpf.maps import HostMaps
from bpf.objects import ensure_bpffs, load_guest_programs
from testbed import owner, peers
from testbed.agent.config import AgentConfig
from testbed.agent.host import AgentHost
from testbed.errors import SetupError
from testbed.installed import agent, edge, machine, service
from testbed.namespaces import OWN_NETWORK
from testbed.workloads.launch import ForkServer
from testbed.workloads.sandbox import Sandbox
from tests.bpf_machine import loaded_or_skip
from tests.patience import until

pytestmark = pytest.mark.kernel
COORDINATOR = IPv4Address("127.0.0.9")
HERE = {socket.AF_INET: "127.0.0.1", socket.AF_INET6: "::1"}
Reaches = Callable[..., bool]


@pytest.fixture
def pins() -> Iterator[Path]:
    loaded_or_skip().close()
    folder = ensure_bpffs() / f"guests-{os.getpid()}"
    yield folder
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()


@pytest.fixture
def group(pins: Path) -> Iterator[Path]:
    """A control group, whose processes are guests."""
    try:
        folder = edge.unified() / f"guests-{os.getpid()}"
        folder.mkdir()
    except (SetupError, OSError) as error:
        pytest.skip(str(error))
    load(pins, folder)
    yield folder
    folder.rmdir()


def load(pins: Path, group: Path) -> None:
    descriptor = os.open(group, os.O_RDONLY)
    load_guest_programs(pins, descriptor, COORDINATOR)
    os.close(descriptor)


def connects(group: Path | None, address: str = "", family: int = socket.AF_INET) -> bool:
    """Whether a process, in that group if there is one, can connect to a socket of its own."""
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    if group is not None:
        (group / "cgroup.procs").write_text("0")
    with socket.socket(family) as listens, socket.socket(family) as calls:
        listens.bind((address or HERE[socket.AddressFamily(family)], 0))
        listens.listen()
        calls.settimeout(0.3)
        try:
            calls.bind((address or HERE[socket.AddressFamily(family)], 0))
            calls.connect(listens.getsockname())
        except OSError:
            os._exit(1)
        os._exit(0)


def test_a_closed_switch_closes_guests_and_no_one_else(pins: Path, group: Path) -> None:
    for close in (
        lambda: owner.reclaim(pins / "switch", None),
        lambda: owner.reclaim(pins / "switch", None, notice_s=60),
    ):
        assert all(connects(group, family=family) for family in HERE)
        close()
        assert not any(connects(group, family=family) for family in HERE)
        assert all(connects(None, family=family) for family in HERE)
        assert owner.look(pins / "switch").dropped_packets >= 2
        owner.lend(pins / "switch", None)


def test_an_isolated_guest_hears_the_coordinator(pins: Path, group: Path) -> None:
    owner.reclaim(pins / "switch", None)
    assert connects(group, str(COORDINATOR))


def test_an_owners_word_outlives_the_agent(pins: Path, group: Path) -> None:
    owner.reclaim(pins / "switch", None)
    load(pins, group)
    assert owner.look(pins / "switch").mode is Mode.ISOLATE
    assert not connects(group)


def test_an_owners_word_outlives_an_agent_that_ends_as_it_begins(
    pins: Path, group: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner.reclaim(pins / "switch", None)

    def end(*_: object) -> None:
        raise BpfError("killed")

    monkeypatch.setattr(HostMaps, "pin", end)
    with pytest.raises(BpfError, match="killed"):
        load(pins, group)
    assert owner.look(pins / "switch").mode is Mode.ISOLATE


def test_a_session_that_logind_does_not_tell_of_is_no_sign_that_nobody_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(*words: str) -> None:
        raise SetupError(f"{words[0]}: no answer")

    monkeypatch.setattr(machine, "ask", silent)
    monkeypatch.setattr(machine, "SESSIONS", tmp_path)
    with pytest.raises(SetupError, match="no answer"):
        machine.presence()
    monkeypatch.setattr(machine, "SESSIONS", tmp_path / "none")
    assert machine.presence() == []


def test_an_agent_whose_python_its_service_cannot_see_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "base_prefix", "/root/.pyenv/versions/3.13")
    with pytest.raises(SetupError, match="service cannot see /root"):
        service.check()


def test_only_what_guests_send_is_counted(pins: Path, group: Path) -> None:
    name = f"g{os.getpid()}"
    ip = ["ip", "link"]
    subprocess.run([*ip, "add", name, "type", "veth", "peer", f"{name}p"], check=True)
    try:
        for each in (name, f"{name}p"):
            subprocess.run([*ip, "set", each, "up"], check=True)
        edge.hold(group.name, name, pins, str(COORDINATOR))
        maps = HostMaps.open_pinned(pins)
        for place, counted in ((None, 0), (group, 1)):
            pid = os.fork()
            if pid == 0:
                if place is not None:
                    (place / "cgroup.procs").write_text("0")
                with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sends:
                    sends.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, name.encode())
                    sends.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
                    sends.sendto(b"x", ("255.255.255.255", 9))
                os._exit(0)
            assert os.waitpid(pid, 0)[1] == 0
            assert maps.counters.read_words()[4 * 3 + 1] == counted, "packets of the research class"
        maps.close()
        edge.let_go(name)
        assert (
            "clsact" not in subprocess.run(["tc", "qdisc", "show", "dev", name], capture_output=True, text=True).stdout
        )
    finally:
        subprocess.run([*ip, "del", name], check=True)


async def test_the_owners_presence_takes_the_host_once_and_gives_back_only_what_it_took(
    pins: Path, group: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    switch, signs, blind, looked = pins / "switch", list[str](), list[SetupError](), list[None]()

    def presence() -> list[str]:
        looked.append(None)
        for error in blind:
            raise error
        return signs

    monkeypatch.setattr(machine, "presence", presence)
    monkeypatch.setattr(agent, "BY_PRESENCE", tmp_path / "taken")
    monkeypatch.setattr(agent, "LOOK_S", 0.01)

    async def becomes(mode: Mode) -> None:
        await until(lambda: owner.look(switch).mode is mode)

    async def seen() -> None:
        """Until what there was to see has been seen."""
        looks = len(looked)
        await until(lambda: len(looked) >= looks + 3)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(agent.follow_owner, switch, 0.0)
        signs.append("a session")
        await becomes(Mode.ISOLATE)
        blind.append(SetupError("no answer"))
        signs.clear()
        await seen()
        assert owner.look(switch).mode is Mode.ISOLATE, "nobody was seen to leave"
        blind.clear()
        await becomes(Mode.OFF)
        signs.append("a session")
        await becomes(Mode.ISOLATE)
        owner.lend(switch, None)  # by hand, though there is a session
        await seen()
        assert owner.look(switch).mode is Mode.OFF
        owner.reclaim(switch, None)  # by hand
        signs.clear()
        await seen()
        assert owner.look(switch).mode is Mode.ISOLATE
        owner.lend(switch, None)
        signs.append("a session")
        await becomes(Mode.ISOLATE)
        await seen()
        owner.reclaim(switch, None)  # by hand, though it is closed already
        signs.clear()
        await seen()
        assert owner.look(switch).mode is Mode.ISOLATE
        nursery.cancel_scope.cancel()


async def test_a_gpu_that_fails_and_a_full_disk_end_no_agent_and_give_no_host_away(
    pins: Path, group: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pynvml = pytest.importorskip("pynvml", reason="needs nvidia-ml-py")
    switch, computing = pins / "switch", [SimpleNamespace(pid=7)]
    failing, failed = dict[str, int](), list[str]()

    def answering(name: str, answer: object) -> None:
        def call(*_: object) -> object:
            if name in failing:
                failed.append(name)
                raise pynvml.NVMLError(failing[name])
            return answer

        monkeypatch.setattr(pynvml, name, call)

    answering("nvmlInit", None)
    answering("nvmlDeviceGetCount", 1)
    answering("nvmlDeviceGetHandleByIndex", 0)
    answering("nvmlDeviceGetComputeRunningProcesses", computing)
    monkeypatch.setattr(machine, "own_group", lambda pid=None: "user" if pid else "lent/agent")
    monkeypatch.setattr(machine, "SESSIONS", tmp_path / "none")
    monkeypatch.setattr(agent, "BY_PRESENCE", tmp_path / "no folder" / "taken")
    monkeypatch.setattr(agent, "LOOK_S", 0.01)

    async def becomes(mode: Mode) -> None:
        await until(lambda: owner.look(switch).mode is mode)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(agent.follow_owner, switch, 0.0)
        await becomes(Mode.ISOLATE)
        for name, code in (
            ("nvmlDeviceGetComputeRunningProcesses", pynvml.NVML_ERROR_GPU_IS_LOST),
            ("nvmlInit", pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH),
        ):
            failing[name] = code
            await until(lambda name=name: failed.count(name) >= 3)
            assert owner.look(switch).mode is Mode.ISOLATE, "nobody was seen to leave"
            failing.clear()
        assert caplog.text.count("the owner cannot be seen") == 1
        assert caplog.text.count("not noted") == 1
        computing.clear()
        await becomes(Mode.OFF)
        nursery.cancel_scope.cancel()


async def test_a_library_of_gpus_that_does_not_answer_keeps_one_thread_and_the_agent_none(
    pins: Path, group: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    answers, asked = threading.Event(), list[None]()

    def presence() -> list[str]:
        asked.append(None)
        answers.wait()
        return ["a process on a GPU"]

    monkeypatch.setattr(machine, "presence", presence)
    monkeypatch.setattr(agent, "BY_PRESENCE", tmp_path / "taken")
    monkeypatch.setattr(agent, "LOOK_S", 0.01)
    monkeypatch.setattr(machine, "ANSWER_S", 0.02)
    monkeypatch.setattr(peers, "WARN_EVERY_S", 0.0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(agent.follow_owner, pins / "switch", 0.0)
        await until(lambda: caplog.text.count("the owner cannot be seen") >= 3)
        assert len(asked) == 1
        answers.set()
        await until(lambda: owner.look(pins / "switch").mode is Mode.ISOLATE)
        nursery.cancel_scope.cancel()


async def test_a_real_machine_takes_no_job_without_a_sandbox(tmp_path: Path) -> None:
    config = AgentConfig("h1", IPv4Address("127.0.0.1"), ("127.0.0.1", 1), tmp_path, takes_open_jobs=False)
    with ForkServer() as forks:
        host = AgentHost(config, OWN_NETWORK, forks)
        for sandbox in (None, Sandbox("none", str(tmp_path))):
            with pytest.raises(OSError, match="no job without a sandbox"):
                await host._launch(0, 0, 0, sandbox, True)
        assert forks.pid is None, "nothing was started"
