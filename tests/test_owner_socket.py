"""Owners' datagrams: one who does not read, or says nonsense, keeps no other waiting."""

from __future__ import annotations

import logging
import socket
from pathlib import Path

import pytest
import trio

from testbed.agent.io.kernel_maps import KernelMaps
from testbed.agent.io.owner_socket import OWNER, listen_to_owner
from testbed.messages import LookAtSwitch

pytestmark = [pytest.mark.trio]


class Switch(KernelMaps):
    """One that nobody has moved; counts how often it was looked at."""

    def __init__(self) -> None:
        self.looks = 0

    def look_at_switch(self, *, grace: bool = False) -> None:
        self.looks += 1


@pytest.mark.parametrize("word", [OWNER.encode(LookAtSwitch()), b"nonsense"])
async def test_owner_who_never_reads_keeps_no_other_waiting(
    tmp_path: Path, word: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """Behind his tenth unread answer the agent waited for him, and heard nobody."""
    switch, path = Switch(), tmp_path / "owner"
    with caplog.at_level(logging.INFO), trio.fail_after(20.0):
        async with trio.open_nursery() as nursery:
            await nursery.start(listen_to_owner, path, None, switch, lambda event: None)
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
                    await owner.sendto(OWNER.encode(LookAtSwitch()), str(path))
                    assert await owner.recv(16) == b"done"
            nursery.cancel_scope.cancel()
    assert len(caplog.records) <= 2
