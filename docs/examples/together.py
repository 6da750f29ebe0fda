#!/usr/bin/env python3
"""Several programs that compute together, as ranks of a gang: each step, every rank hears the sum of what all of them have.

With its number a rank says whether it was asked (SIGTERM) for a checkpoint. What all hear is the same, so all write their states
after the same step, and exit with 85: "start me again".
"""

import os
import signal
import socket
import struct
import sys
import time
from pathlib import Path

RANK, RANKS = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
MEETING = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
STATE = Path(os.environ["RECLAIMNET_CHECKPOINT_DIRECTORY"]) / "state"
WORDS = struct.Struct("!QQ")  # a number, how many were asked

asked = 0


def ask(*_):
    global asked
    asked = 1


def meet():
    """Connections: of rank 0 to all others, of another to rank 0."""
    if RANK == 0:
        with socket.create_server(MEETING) as listener:
            return [listener.accept()[0] for _ in range(RANKS - 1)]
    while True:
        try:
            return [socket.create_connection(MEETING)]
        except OSError:
            time.sleep(0.05)


def add_up(peers, *mine):
    """What all ranks have, added up; the same at all of them."""
    if RANK != 0:
        peers[0].sendall(WORDS.pack(*mine))
        return hear(peers[0])
    total = [sum(each) for each in zip(mine, *map(hear, peers), strict=True)]
    for peer in peers:
        peer.sendall(WORDS.pack(*total))
    return total


def hear(peer):
    words = peer.recv(WORDS.size, socket.MSG_WAITALL)
    return WORDS.unpack(words) if len(words) == WORDS.size else sys.exit("another rank is gone")


signal.signal(signal.SIGTERM, ask)
step, number = map(int, STATE.read_text().split()) if STATE.exists() else (0, RANK + 1)
print(f"begins at {step}", flush=True)
peers = meet()
while step < int(os.environ["RECLAIMNET_STEPS"]):
    total, wanted = add_up(peers, number, asked)
    step, number = step + 1, (31 * number + total) % 1_000_003
    Path(os.environ["RECLAIMNET_STEP_FILE"]).write_text(str(step))
    time.sleep(0.05)
    if wanted:
        STATE.write_text(f"{step} {number}")
        sys.exit(85)
print(f"the number is {number}", flush=True)
