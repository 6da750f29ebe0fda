"""The socket on which an owner's command reports that it has written the kill-switch.

A datagram here only means "look now": the map is what counts, and it is looked at ten times a second anyway. An owner
that does not read the answers, or sends nonsense, keeps no other owner waiting, and fills no log.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import trio

from testbed.agent.core import events as ev
from testbed.agent.io.kernel_maps import KernelMaps
from testbed.logs import logger
from testbed.owner import LOOK
from testbed.peers import Occasions

LOG = logger("agent")


async def listen_to_owner(
    path: Path,
    group: int | None,
    kernel: KernelMaps,
    handle: Callable[[ev.Event], None],
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Listen to root, and the members of `group` if there is one, until cancelled; each is answered once the agent has obeyed."""
    path.unlink(missing_ok=True)
    occasions = Occasions(LOG)
    with (
        trio.socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as answers,
    ):
        answers.setblocking(False)
        await sock.bind(str(path))
        if group is not None:
            os.chown(path, -1, group)
        path.chmod(0o600 if group is None else 0o660)
        task_status.started()
        while True:
            data, sender = await sock.recvfrom(4096)
            if data not in LOOK.values():
                occasions.warn("word", f"owner's socket: {len(data)} bytes that no owner's command sends")
                continue
            if (switch := kernel.look_at_switch(grace=data == LOOK[True])) is not None:
                handle(switch)
            if sender:  # the owner waits until it is done
                try:
                    answers.sendto(b"done", sender)
                except OSError as error:
                    occasions.warn("answer", f"an owner did not wait: {error}")
