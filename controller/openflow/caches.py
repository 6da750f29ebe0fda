"""Delay until packets follow the tables.

A switch of Open vSwitch answers a barrier when its tables have changed. Until its revalidator has looked through the
caches, it goes on sending packets as it has cached them.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable
from pathlib import Path

from testbed.logs import logger

log = logger("reclaimnet.openflow")

LOOK_WITHIN_S, AGAIN_S = 2.0, 1.0  # a look takes milliseconds, on a busy machine longer


def wait_until_followed(control: Path, touch: Callable[[], None]) -> None:
    """Wait until the caches of all switches of a daemon follow what their tables were when this was called."""
    looks = 0
    while looks < 2:
        try:
            # JSON-RPC 1.0, as ovs-appctl speaks it; answered when the look ends that is under way, or the next
            with socket.socket(socket.AF_UNIX) as daemon:
                daemon.settimeout(LOOK_WITHIN_S)
                daemon.connect(str(control))
                daemon.sendall(json.dumps({"id": 0, "method": "revalidator/wait", "params": []}).encode())
                touch()
                answer = daemon.recv(4096)
                if json.loads(answer) != {"id": 0, "result": "", "error": None}:
                    raise OSError(f"it answered {answer!r}")
            looks += 1
        except (OSError, ValueError) as error:
            log.warning("%s: the switches' caches were not looked through (%s): again", control, error)
            time.sleep(AGAIN_S)
