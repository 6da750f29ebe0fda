"""Ports from which agents connect: root's, as long as one is free."""

import os
import socket

import pytest

from testbed import namespaces
from testbed.namespaces import OWN_NETWORK


@pytest.mark.alone
async def test_a_host_connects_from_a_port_of_roots_that_is_free_and_from_any_other_where_none_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A connection that has ended holds its port to the same peer for a minute: a transfer had failed for it."""
    monkeypatch.setattr(namespaces, "RESERVED_PORTS", range(730, 732))
    monkeypatch.setattr(namespaces, "PORT_TRIES", 2)
    with socket.create_server(("127.0.0.1", 0)) as server:
        made = [await OWN_NETWORK.connect(server.getsockname()) for _ in range(3)]
        ports = [sock.getsockname()[1] for sock in made]
        for sock in made:
            sock.close()
    if os.geteuid() == 0:
        assert sorted(ports[:2]) == [730, 731]
    assert ports[2] >= socket.IPPORT_RESERVED


async def test_a_peer_that_does_not_listen_is_tried_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
    with pytest.raises(ConnectionRefusedError):
        await OWN_NETWORK.connect(address)
