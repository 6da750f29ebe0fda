"""Build a campus of 500 hosts on this machine: a network namespace each, shaped links, BPF on every port.

It prints how long each phase takes, what a host costs, and a ping:
`sudo .venv/bin/python -m experiments.examples.five_hundred_hosts [HOSTS]`.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from testbed import Campus
from topologies import three_tier


def available_mb() -> float:
    """Return the memory that the machine could still give."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) / 1000 for line in lines if line.startswith("MemAvailable"))


def main(hosts: int) -> None:
    """Build, ping from the first host to the last, and take it all down."""
    campus = three_tier(hosts, buildings=max(2, hosts // 50))
    before_mb, began_s = available_mb(), time.monotonic()
    with Campus(campus) as net:
        stood_s = time.monotonic()
        print(f"{hosts} hosts and {len(campus.switches)} switches stand after {stood_s - began_s:.2f} s")
        print(f"each takes {(before_mb - available_mb()) / hosts:.2f} MB")
        for phase, seconds in net.phases_s.items():
            print(f"  {phase}: {seconds:.2f} s")
        print(net["h1"].cmd("ping -c 3 -i 0.05 -q " + net[f"h{hosts}"].IP()).strip().splitlines()[-1])
        began_s = time.monotonic()
    print(f"down after {time.monotonic() - began_s:.2f} s")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 500)
