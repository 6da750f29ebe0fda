"""The controller as it runs, with switches that are played."""

import contextlib
import json
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
from os_ken.ofproto import ofproto_v1_3 as protocol

from controller.core.model.events import DrainAsked
from controller.network_link import NetworkLink
from controller.openflow import wire
from controller.openflow.routes import tables
from tests.patience import wait_until
from topologies.openflow import Station, Topology, Trunk

REPOSITORY = Path(__file__).parents[1]
LIMIT_S = 30.0
HEADER = struct.Struct("!BBHI")
HELLO, ECHO, ECHO_REPLY, FEATURES, FEATURES_REPLY = 0, 2, 3, 5, 6
MULTIPART, MULTIPART_REPLY, BARRIER_REPLY = 18, 19, 21
TOPOLOGY = Topology(
    {"a": 1, "b": 2},
    (Trunk("a", 1, "b", 1, 1e9),),
    (
        Station("h1", "a", 1024, "02:00:0a:00:00:01", "10.0.0.1"),
        Station("h2", "b", 1024, "02:00:0a:00:00:02", "10.0.0.2"),
    ),
    "a",
)


class PlayedSwitch:
    """An OpenFlow 1.3 switch that has nothing, takes what it is told, and writes down what that was."""

    def __init__(self, port: int, number: int) -> None:
        self._number = number
        self.heard: list[tuple[int, bytes]] = []
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=LIMIT_S)
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def taken(self, kind: int) -> int:
        """How many messages of this type came, outside of bundles."""
        return sum(heard == kind for heard, _ in self.heard)

    def bundle_messages(self) -> list[int]:
        """Kinds of control messages of bundles (open, commit, discard), and -1 for each message that was added."""
        found = []
        for kind, body in self.heard:
            if kind == protocol.OFPT_EXPERIMENTER:
                _, subtype, _, control, _ = struct.unpack_from("!IIIHH", body)
                found.append(control if subtype == protocol.ONF_ET_BUNDLE_CONTROL else -1)
        return found

    def _say(self, kind: int, xid: int, body: bytes = b"") -> None:
        self._socket.sendall(HEADER.pack(protocol.OFP_VERSION, kind, 8 + len(body), xid) + body)

    def _serve(self) -> None:
        with contextlib.suppress(OSError, ValueError), self._socket.makefile("rb") as read:
            self._say(HELLO, 1)
            while header := read.read(8):
                _, kind, length, xid = HEADER.unpack(header)
                body = read.read(length - 8)
                self.heard.append((kind, body))
                self._answer(kind, xid, body)

    def _answer(self, kind: int, xid: int, body: bytes) -> None:
        if kind == ECHO:
            self._say(ECHO_REPLY, xid, body)
        elif kind == FEATURES:
            self._say(FEATURES_REPLY, xid, struct.pack("!QIBBxxII", self._number, 0, 254, 0, 0, 0))
        elif kind == MULTIPART:
            (what,) = struct.unpack_from("!H", body)
            self._say(MULTIPART_REPLY, xid, struct.pack("!HH4x", what, 0))
        elif kind == protocol.OFPT_BARRIER_REQUEST:
            self._say(BARRIER_REPLY, xid)


class Controller:
    """The controller's process."""

    def __init__(self, folder: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.socket, self._events = folder / "c.sock", folder / "events"
        (folder / "topology.json").write_bytes(msgspec.json.encode(TOPOLOGY))
        options = [str(folder / "topology.json"), "--listen", f"127.0.0.1:{self.port}"]
        options += ["--events", str(self._events), "--socket", str(self.socket)]
        self.process = subprocess.Popen([sys.executable, "-m", "controller.openflow", *options], cwd=REPOSITORY)
        wait_until(self.listens, "the controller listens")

    def listens(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
            return True
        return False

    def events(self, kind: str) -> list[dict[str, Any]]:
        lines = self._events.read_text().splitlines() if self._events.exists() else []
        return [event for event in map(json.loads, lines) if event["event"] == kind]


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[Controller]:
    made = Controller(tmp_path)
    try:
        yield made
    finally:
        made.process.kill()
        made.process.wait()


@contextlib.contextmanager
def switches(controller: Controller) -> Iterator[tuple[PlayedSwitch, PlayedSwitch]]:
    """Switches a and b."""
    a, b = PlayedSwitch(controller.port, 1), PlayedSwitch(controller.port, 2)
    try:
        yield a, b
    finally:
        a.close()
        b.close()


def test_a_switch_gets_its_rules_and_groups_in_one_bundle(controller: Controller) -> None:
    wanted = tables(TOPOLOGY)
    with switches(controller) as played:
        wait_until(lambda: controller.events("programmed"), "both are programmed")
        for name, switch in zip("ab", played, strict=True):
            assert switch.taken(protocol.OFPT_FLOW_MOD) == switch.taken(protocol.OFPT_GROUP_MOD) == 0
            adds = [-1] * (len(wanted[name].rules) + len(wanted[name].groups))
            whole = [wire.OPEN, *adds, wire.COMMIT]
            wait_until(lambda s=switch, w=whole: s.bundle_messages() == w, "the bundle is committed")
        assert not controller.events("refused")


WRONG = [
    b'{"type":"drain","a":"\xff","b":"b"}\n',
    b'{"type":"drain","a":"a","b":"b","c":' + b"[" * 100_000 + b"}\n",
    b'{"type":"loads","loads":[["a","b",1e999]]}\n',
    b'{"type": "ways", "pins": 3}\n',
    b"{",
    b"x" * (1 << 20),
]


def test_a_client_that_says_what_cannot_be_read_loses_its_connection_and_no_other_does(
    controller: Controller, capfd: pytest.CaptureFixture[str]
) -> None:
    wait_until(controller.socket.exists, "it listens")
    for _ in range(8):  # more than there may be at a time
        for words in WRONG:
            with socket.socket(socket.AF_UNIX) as client:
                client.settimeout(LIMIT_S)
                client.connect(str(controller.socket))
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    client.sendall(words)
                    client.shutdown(socket.SHUT_WR)
                    assert client.recv(1) == b""
    with switches(controller):
        wait_until(lambda: controller.events("programmed"), "both are programmed")
    assert "Traceback" not in capfd.readouterr().err


def test_a_controller_whose_kept_ways_cannot_be_read_begins_without(tmp_path: Path) -> None:
    (tmp_path / "ways.json").write_bytes(b'{"type":"ways","number":1,"draining":[["\xff","b"]]}')
    made = Controller(tmp_path)
    try:
        with switches(made):
            wait_until(lambda: made.events("programmed"), "both are programmed")
    finally:
        made.process.kill()
        made.process.wait()


@pytest.mark.parametrize(
    "word", [b'{"type":"to_drain","trunks":[["\xff","b"]]}', WRONG[1].strip(), b'{"type":"in_force"}']
)
async def test_a_controller_that_says_what_cannot_be_read_is_asked_again_and_ends_no_coordinator(
    tmp_path: Path, word: bytes
) -> None:
    path, heard = tmp_path / "c.sock", []
    listener = trio.socket.socket(socket.AF_UNIX)
    with listener:
        await listener.bind(str(path))
        listener.listen()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(NetworkLink(path, heard.append, lambda a, b: True).serve)
            for said in (word, b'{"type":"to_drain","trunks":[["a","b"]]}'):
                with trio.fail_after(LIMIT_S):
                    connection, _ = await listener.accept()
                    with connection:
                        await connection.send(said + b"\n")
                        assert await connection.recv(1) == b"" if said is word else True
                        while said is not word and not heard:
                            await trio.sleep(0.01)
            nursery.cancel_scope.cancel()
    assert heard == [DrainAsked([("a", "b")])]
