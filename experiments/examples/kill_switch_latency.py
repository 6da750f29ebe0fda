"""Close a host by its owner's switch while another connects to it as fast as it can.

It prints how long the store takes, and when the last connection that got in began:
`sudo .venv/bin/python -m experiments.examples.kill_switch_latency [ACTS]`.
"""

from __future__ import annotations

import subprocess
import sys
import time
from statistics import median
from typing import Any

from bpf.switch import ISOLATE, OFF
from testbed import Campus
from topologies import three_tier

LISTEN = "import socket; s = socket.create_server(('', 7000), backlog=512)\nwhile True: s.accept()[0].close()"
# prints when each connection that was answered had begun, on the clock that all namespaces share
CONNECT = """
import socket, time
end = time.monotonic_ns() + 20_000_000_000
while (at := time.monotonic_ns()) < end:
    try: socket.create_connection(('{address}', 7000), 0.05).close()
    except OSError: continue
    print(at, flush=True)
    end = min(end, at + 400_000_000)
"""


def act(net: Any) -> tuple[float, float]:
    """Close h1 once; return (length of the store, last start of a connection that got in, after the store) in microseconds."""
    switch = net.maps("h1").switch  # the pinned map that `reclaimnet reclaim` writes, too
    program = [sys.executable, "-c", CONNECT.format(address=net["h1"].IP())]
    storm = net["h2"].popen(program, stdout=subprocess.PIPE, text=True)
    first = storm.stdout.readline()
    if not first:
        raise SystemExit("no connection got in before the switch was set")
    time.sleep(0.05)
    began_ns = time.monotonic_ns()
    switch.set(ISOLATE)
    closed_ns = time.monotonic_ns()
    admitted = [int(line) for line in (first, *storm.stdout)]
    storm.wait()
    switch.set(OFF)
    return (closed_ns - began_ns) / 1e3, (max(admitted) - closed_ns) / 1e3


def main(acts: int) -> None:
    """Repeat the act on one campus, and print medians and the worst."""
    with Campus(three_tier(2, buildings=1)) as net:
        listener = net["h1"].popen([sys.executable, "-c", LISTEN])
        stores_us, last_us = zip(*(act(net) for _ in range(acts)), strict=True)
        listener.kill()
    print(f"the store takes {median(stores_us):.1f} us (at most {max(stores_us):.1f})")
    print(f"connections begun after it that got in: {sum(us > 0 for us in last_us)} in {acts} acts")
    print(f"the last that got in began {-median(last_us):.0f} us before the store was over")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
