"""Build a campus with two paths, programmed by OpenFlow, and cut one while packets cross it.

It prints the pings that an unannounced and a drained cut lose:
`sudo .venv/bin/python -m experiments.examples.cut_trunk`.
"""

from __future__ import annotations

import re
import time
from typing import Any

from testbed import Campus
from topologies import load

PINGS = 400
COMMAND = f"ping -i 0.005 -c {PINGS} -q {{address}}"  # two seconds


def lost_during(net: Any, **how: Any) -> int:
    """Count the pings from building to building that a cut of the trunk in use costs; the trunk is whole again after it."""
    crossing = net["l1"].popen(COMMAND.format(address=net["p1"].IP()), shell=True, text=True)
    time.sleep(0.7)
    began_s = time.monotonic()
    net.set_link("library", "core1", up=False, **how)
    print(f"  cut within {time.monotonic() - began_s:.3f} s")
    found = re.search(r"(\d+) received", crossing.communicate()[0])
    net.set_link("library", "core1", up=True)
    time.sleep(0.5)
    return PINGS - int(found[1]) if found else PINGS


def main() -> None:
    """Cut without and with make-before-break."""
    with Campus(load("example:twocores")) as net:
        print(net["l1"].cmd("ping -c 3 -i 0.2 -q " + net["p1"].IP()).strip().splitlines()[-1])
        print("unannounced:", lost_during(net), f"of {PINGS} pings lost")
        print("drained first:", lost_during(net, drain=True), f"of {PINGS} pings lost")
        assert net.openflow is not None  # the campus has two paths
        print("switches programmed:", sum(each["event"] == "updated" for each in net.openflow.read_events()), "times")


if __name__ == "__main__":
    main()
