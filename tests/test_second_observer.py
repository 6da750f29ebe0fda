"""bcc's observer against what was done, and against the other observer; what it says where it cannot count."""

import os
import socket
import subprocess
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from bpf import second_observer
from bpf.errors import BpfError
from bpf.observer import Observer, inode_of
from bpf.second_observer import SecondObserver
from tests.bpf_machine import in_own_namespace

DATAGRAMS, CONNECTIONS = 70, 5
NO_SOCKET = "no socket"


def counting_or_skip() -> SecondObserver:
    """Skips where bcc is not installed, or cannot compile."""
    if os.geteuid() != 0:
        pytest.skip("tracing the kernel needs root")
    try:
        return SecondObserver()
    except BpfError as error:
        pytest.skip(str(error))


@pytest.mark.extra
@pytest.mark.kernel
@pytest.mark.timeout(120)
def test_it_counts_what_was_done_in_each_network_and_the_other_observer_counts_the_same() -> None:
    second = counting_or_skip()

    def body() -> None:
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        inode = inode_of("self")
        with Observer({"here": inode}) as first, ExitStack() as last:
            before = second.read(inode)
            for _ in range(
                DATAGRAMS
            ):  # each meets no socket; a socket of its own is told of no earlier answer
                with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
                    client.sendto(b"?", ("127.0.0.1", 9))
            server = last.enter_context(socket.create_server(("127.0.0.1", 0)))
            for _ in range(CONNECTIONS):
                last.enter_context(socket.create_connection(server.getsockname()))
                last.enter_context(server.accept()[0])
            with suppress(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", 9))
            seen = second.read(inode) - before
            assert seen.dropped[NO_SOCKET] == first.read()["here"].dropped[NO_SOCKET] == DATAGRAMS + 1
            assert seen.established == 2 * CONNECTIONS  # both ends are in this network
            assert seen.changes[second_observer.CLOSED, second_observer.LISTENING] == 1

    with second:
        elsewhere = second.read(inode_of("self"))
        in_own_namespace(body)
        after = second.read(inode_of("self")) - elsewhere
        assert after.dropped.get(NO_SOCKET, 0) < DATAGRAMS  # of other programs here, if any
    with pytest.raises(BpfError, match="does not answer"):
        second.read(inode_of("self"))


def test_a_machine_without_bcc_or_headers_says_which(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(second_observer, "member_offset_bytes", lambda *_: 0)
    monkeypatch.setattr(second_observer, "kernel_headers", lambda: (None, []))
    monkeypatch.setattr(second_observer, "PYTHON", str(tmp_path / "python3"))
    with pytest.raises(BpfError, match="the distribution's Python"):
        SecondObserver()
    (tmp_path / "python3").write_text(
        "#!/bin/sh\necho \"ModuleNotFoundError: No module named 'bcc'\" >&2\nexit 1\n"
    )
    (tmp_path / "python3").chmod(0o755)
    with pytest.raises(BpfError, match=r"bcc does not count here: .*No module named 'bcc'"):
        SecondObserver()


def test_any_kernels_headers_will_do_and_none_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(second_observer, "KERNEL_BRINGS", ())
    monkeypatch.setattr(second_observer, "HEADERS", tmp_path)
    with pytest.raises(BpfError, match="kernel headers, of any kernel"):
        second_observer.kernel_headers()
    for name in ("linux-headers-6.1.0-9-amd64/include/generated", "linux-headers-6.1.0-9-common/include"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "linux-headers-6.1.0-9-amd64/include/generated/autoconf.h").touch()
    source, include = second_observer.kernel_headers()
    assert source == str(tmp_path / "linux-headers-6.1.0-9-amd64")
    assert include[0].startswith(str(tmp_path / "linux-headers-6.1.0-9-common/arch"))
