"""Waiting for the caches of a switch daemon: its control socket is played, its answers are what Open vSwitch's are."""

import contextlib
import json
import socket
import threading
from pathlib import Path

import pytest

from controller.openflow import caches
from controller.openflow.caches import wait_until_followed


class Daemon:
    """Answers each request with the next of `answers` once it has been touched; None closes the connection."""

    def __init__(self, path: Path, answers: list[bytes | None]) -> None:
        self.requests: list[dict[str, object]] = []
        self.touched = threading.Semaphore(0)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        threading.Thread(target=self._answer, args=(answers,), daemon=True).start()

    def _answer(self, answers: list[bytes | None]) -> None:
        for answer in answers:
            connection, _ = self._listener.accept()
            with connection:
                self.requests.append(json.loads(connection.recv(4096)))
                self.touched.acquire()
                if answer is not None:
                    with contextlib.suppress(BrokenPipeError):  # it was not waited for
                        connection.sendall(answer)


LOOKED = b'{"id":0,"result":"","error":null}'


def test_two_looks_are_waited_for_each_begun_by_a_touch(tmp_path: Path) -> None:
    daemon, touches = Daemon(tmp_path / "ctl", [LOOKED, LOOKED]), []

    def touch() -> None:
        touches.append(True)
        daemon.touched.release()

    wait_until_followed(tmp_path / "ctl", touch)
    assert len(touches) == 2
    assert [request["method"] for request in daemon.requests] == ["revalidator/wait"] * 2


@pytest.mark.parametrize("bad", [None, b'{"id":0,"result":null,"error":"can\'t wait"}', b"{}", b"[]", b"nonsense"])
def test_a_look_that_did_not_end_is_not_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bad: bytes | None
) -> None:
    monkeypatch.setattr(caches, "AGAIN_S", 0.0)
    daemon = Daemon(tmp_path / "ctl", [LOOKED, bad, LOOKED])
    wait_until_followed(tmp_path / "ctl", daemon.touched.release)
    assert len(daemon.requests) == 3


def test_a_daemon_that_does_not_answer_is_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caches, "AGAIN_S", 0.0)
    monkeypatch.setattr(caches, "LOOK_WITHIN_S", 0.05)
    daemon, touches = Daemon(tmp_path / "ctl", [LOOKED] * 3), []

    def touch() -> None:
        touches.append(True)
        if len(touches) > 1:
            daemon.touched.release(2 if len(touches) == 2 else 1)

    wait_until_followed(tmp_path / "ctl", touch)
    assert len(touches) == 3
