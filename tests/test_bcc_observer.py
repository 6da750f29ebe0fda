"""bcc's observer against what was done, and against the CO-RE observer; its reason where it cannot count."""

import os
import socket
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path

import pytest

from bpf.errors import BpfError
from bpf.observer import Observer, inode_of
from experiments.benchmarks import bcc_observer
from experiments.benchmarks.bcc_observer import BccObserver
from testbed.linux import CLONE_NEWNET, unshare
from tests.bpf_machine import in_own_namespace

DATAGRAMS = 70
NO_SOCKET = "no socket"


def counting_or_skip() -> BccObserver:
    """Skips where bcc is not installed, or cannot compile."""
    if os.geteuid() != 0:
        pytest.skip("tracing the kernel needs root")
    try:
        return BccObserver()
    except BpfError as error:
        pytest.skip(str(error))


@pytest.mark.extra
@pytest.mark.kernel
@pytest.mark.timeout(120)
def test_it_counts_what_was_done_in_each_network_and_the_other_observer_counts_the_same() -> None:
    second = counting_or_skip()

    def body() -> None:
        there = os.open("/proc/self/ns/net", os.O_RDONLY)  # this child's: in the machine's, others may be talking
        unshare(CLONE_NEWNET)
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        inode = inode_of("self")
        with Observer({"here": inode}) as first:
            before = second.read(inode)
            for _ in range(DATAGRAMS):  # each meets no socket; a socket of its own is told of no earlier answer
                with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
                    client.sendto(b"?", ("127.0.0.1", 9))
            with suppress(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", 9))
            seen = second.read(inode) - before
            assert seen[NO_SOCKET] == first.read()["here"].dropped[NO_SOCKET] == DATAGRAMS + 1
            assert second.read(os.fstat(there).st_ino)[NO_SOCKET] == 0

    with closing(second):
        in_own_namespace(body)


def test_a_machine_without_bcc_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bcc_observer, "member_offset_bytes", lambda *_: 0)
    monkeypatch.setattr(bcc_observer, "kernel_headers", lambda: (None, []))
    monkeypatch.setitem(sys.modules, "bcc", None)
    with pytest.raises(BpfError, match=r"bcc does not count here: .*bcc"):
        BccObserver()


def test_any_kernels_headers_will_do_and_none_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(bcc_observer, "KERNEL_BRINGS", ())
    monkeypatch.setattr(bcc_observer, "HEADERS", tmp_path)
    with pytest.raises(BpfError, match="kernel headers, of any kernel"):
        bcc_observer.kernel_headers()
    for name in ("linux-headers-6.1.0-9-amd64/include/generated", "linux-headers-6.1.0-9-common/include"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "linux-headers-6.1.0-9-amd64/include/generated/autoconf.h").touch()
    source, include = bcc_observer.kernel_headers()
    assert source == str(tmp_path / "linux-headers-6.1.0-9-amd64")
    assert include[0].startswith(str(tmp_path / "linux-headers-6.1.0-9-common/arch"))
