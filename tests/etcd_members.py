"""Three members of etcd on the loopback, for tests."""

import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from controller.persistence.etcd import ADDRESS, PROGRAM, EtcdLog, leading, log_credentials, member, member_files

needs_etcd = pytest.mark.skipif(shutil.which(PROGRAM) is None, reason="needs etcd (Debian: etcd-server)")


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on."""
    taken = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in taken]
    for each in taken:
        each.close()
    return ports


class Members:
    """Processes, by number."""

    def __init__(self, folder: Path, count: int = 3) -> None:
        self.folder, self.ports = folder, free_ports(2 * count)
        self.credentials = log_credentials()
        self.files = member_files(self.credentials)
        self.addresses = [(ADDRESS, port) for port in self.ports[::2]]
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        self.logs: list[EtcdLog] = []
        for number in range(count):
            self.start(number)

    def start(self, number: int) -> None:
        log = (self.folder / f"etcd-{number}.log").open("ab")
        self.processes[number] = subprocess.Popen(
            member(number, self.ports, self.folder, self.files), stdout=log, stderr=log
        )

    def kill(self, number: int) -> None:
        self.processes[number].send_signal(signal.SIGKILL)
        self.processes[number].wait(10)

    def log(self, name: str) -> EtcdLog:
        """The log of the coordinator of this name, open until they are closed."""
        self.logs.append(EtcdLog(self.addresses, name, self.credentials, patience_s=10.0))
        return self.logs[-1]

    def leader(self) -> int:
        """The number of the member that leads the others."""
        ends = time.monotonic() + 60.0
        while True:
            try:
                return leading(self.addresses, self.credentials)
            except OSError:
                assert time.monotonic() < ends
                time.sleep(0.02)

    def close_logs(self) -> None:
        while self.logs:
            self.logs.pop().close()

    def close(self) -> None:
        self.close_logs()
        for process in self.processes.values():
            process.kill()
            process.wait(10)


@contextmanager
def etcd_members(folder: Path, count: int = 3) -> Iterator[Members]:
    """Members that have a leader."""
    members = Members(folder, count)
    try:
        members.leader()
        yield members
    finally:
        members.close()
