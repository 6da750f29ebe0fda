"""Functions forked into hosts: they run where they should, their end is known, and they never outlive the campus."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

import trio

from testbed.emulation.campus import LiveCampus
from testbed.emulation.processes import ForkRequest
from testbed.errors import SetupError
from tests.emulation_campuses import kernel

pytestmark = kernel


def show_links() -> None:
    print(subprocess.run(["ip", "-br", "link"], check=True, capture_output=True, text=True).stdout)


def test_target_runs_inside_the_hosts_network(campus: LiveCampus, tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert campus.fork("h2", show_links, label="links", log=log).wait(10) == 0
    assert "h2-eth0" in log.read_text() and "h1-eth0" not in log.read_text()


def test_failure_is_reported_with_its_traceback(campus: LiveCampus, tmp_path: Path) -> None:
    def fail() -> None:
        raise ValueError("the disk is made of cheese")

    log = tmp_path / "log"
    process = campus.fork("h1", fail, label="agent h1", log=log)
    assert process.wait(10) == 1
    text = log.read_text()
    assert "agent h1 on h1" in text and "ValueError: the disk is made of cheese" in text and "in fail" in text


def test_terminate_ends_a_target_with_the_default_action(campus: LiveCampus) -> None:
    previous = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        process = campus.fork("h1", lambda: time.sleep(60), label="sleeper")
        time.sleep(0.05)
        process.terminate()
        assert process.wait(10) == -signal.SIGTERM
    finally:
        signal.signal(signal.SIGTERM, previous)


def test_descriptors_are_closed_except_those_kept(campus: LiveCampus, tmp_path: Path) -> None:
    kept_fd, kept_other = os.pipe()
    dropped_fd, dropped_other = os.pipe()
    log = tmp_path / "log"

    def show() -> None:
        print(sorted(os.listdir("/proc/self/fd")), os.fstat(kept_other).st_ino)  # noqa: PTH208

    try:
        assert campus.fork("h1", show, label="fds", log=log, keep=[kept_other]).wait(10) == 0
        text = log.read_text()
        assert (
            f"'{kept_other}'" in text and f"'{dropped_other}'" not in text and f"'{dropped_fd}'" not in text
        )
    finally:
        for fd in (kept_fd, kept_other, dropped_fd, dropped_other):
            os.close(fd)


def test_forked_processes_talk_over_the_campus(campus: LiveCampus, tmp_path: Path) -> None:
    def serve() -> None:
        with socket.create_server(("10.0.1.1", 7000)) as server:
            ready, _ = server.accept()
            ready.sendall(b"hello from " + ready.getpeername()[0].encode())
            ready.close()

    def ask() -> None:
        for _ in range(100):
            try:
                with socket.create_connection(("10.0.1.1", 7000), timeout=5) as connection:
                    print(connection.recv(100).decode())
                    return
            except ConnectionRefusedError:
                time.sleep(0.05)

    log = tmp_path / "log"
    server, client = campus.fork_all(
        [ForkRequest("h1", serve, "server"), ForkRequest("h3", ask, "client", log)]
    )
    assert client.wait(20) == 0 and server.wait(20) == 0
    assert log.read_text() == "hello from 10.0.1.3\n"


def test_trio_runs_in_a_child_forked_while_trio_runs(campus: LiveCampus, tmp_path: Path) -> None:
    log = tmp_path / "log"

    async def child() -> None:
        with trio.fail_after(5):
            await trio.sleep(0.01)
        print("trio ran")

    async def parent() -> int:
        process = campus.fork("h2", lambda: trio.run(child), label="agent", log=log)
        with trio.fail_after(10):
            await trio.lowlevel.wait_readable(process)
        return process.wait(0)

    assert trio.run(parent) == 0, log.read_text()
    assert log.read_text() == "trio ran\n"


def test_fork_outside_the_main_thread_is_refused(campus: LiveCampus) -> None:
    seen: list[Exception] = []

    def attempt() -> None:
        try:
            campus.fork("h1", lambda: None, label="x")
        except SetupError as error:
            seen.append(error)

    thread = threading.Thread(target=attempt)
    thread.start()
    thread.join()
    assert "main thread" in str(seen[0])
