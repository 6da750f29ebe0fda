"""Build a campus of four hosts in two buildings, ping across it, and slow one link down.

It prints the round trips before and after, and the rate:
`sudo .venv/bin/python -m experiments.examples.ping_campus`.
"""

from __future__ import annotations

import re

from testbed import Campus
from topologies import three_tier

PING = "ping -c 20 -i 0.05 -q {address}"


def round_trip_ms(text: str) -> float:
    """Return the mean of what ping measured."""
    found = re.search(r"= [\d.]+/([\d.]+)/", text)
    if found is None:
        raise SystemExit(f"no answer:\n{text}")
    return float(found[1])


def main() -> None:
    """Ping from one building to the other, change a link, and ping again."""
    campus = three_tier(4, buildings=2)
    with Campus(campus) as net:  # everything that it builds is removed at the end of the block, whatever happens in it
        print("hosts:", *[host.name for host in net.hosts])
        net.pingAll()
        near, far = net["h1"], net["h4"]
        print(f"h1 to h4: {round_trip_ms(near.cmd(PING.format(address=far.IP()))):.2f} ms")
        net.set_link("h1", "a1", rate="20 Mbit/s", delay="5 ms")  # both directions, read back from the kernel
        print(f"with 5 ms each way: {round_trip_ms(near.cmd(PING.format(address=far.IP()))):.2f} ms")
        print("received at", net.iperf([near, far], seconds=1)[0])


if __name__ == "__main__":
    main()
