"""A campus as a topology of stock Mininet, so that other people's Mininet can build it.

    mn --custom topologies/as_mininet.py --topo campus,my_campus.toml --switch lxbr --controller none

    mn --custom topologies/as_mininet.py --topo three_tier,hosts=20,buildings=2 --switch lxbr --controller none --link tc

    mn --custom topologies/as_mininet.py --topo campus,example:twocores --switch ovs,protocols=OpenFlow13 --controller remote

Run as a program (`python -m topologies.as_mininet example:twocores`), it writes the description of that network for
the project's OpenFlow controller. `docs/examples/stock_mininet.sh` plays all three together.

A wrong file or argument is named, and `mn` ends with status 2 before it has made anything. An unknown word after
`--topo` is `mn`'s own error. It answers that with `mn -c`, which removes every Mininet and every bridge of the
machine. Stock Mininet's TCLink leaves rates above 1 Gbit/s unshaped and ignores a delay that the kernel cannot make;
the project's own `testbed.emulation` does neither.
"""

from __future__ import annotations

import importlib.util
import inspect
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mininet.topo import Topo

# `mn --custom` executes this file with its own interpreter: the packages of the checkout's environment serve it, too
if importlib.util.find_spec("topologies") is None:
    root = Path(sys._getframe().f_code.co_filename).resolve().parents[1]
    sys.path.append(str(root))
    sys.path += map(str, root.glob(f".venv/lib/python3.{sys.version_info.minor}/site-packages"))

try:
    from topologies import files, presets
    from topologies.paths import Routes
    from topologies.spec import SUBNET, Campus
    from topologies.units import MBIT_PER_S
except ImportError as error:
    if __name__ in ("__main__", "topologies.as_mininet"):
        raise
    print(f"--custom: {error}: this Python ({sys.executable}) lacks what the project needs", file=sys.stderr)
    sys.exit(2)

if TYPE_CHECKING:
    from topologies.openflow import Topology


class CampusTopo(Topo):  # type: ignore[misc]
    """The nodes and links of a campus, given as a description or as the path of a campus file."""

    def build(self, campus: Campus | str) -> None:
        """Build the nodes and links for Topo. SpecError if the file is wrong."""
        self.campus = described = campus if isinstance(campus, Campus) else files.load(campus)
        for host in described.hosts:
            mac = (b"\x02\x00" + host.address.packed).hex(":")
            limits = {"cpu": host.limits.cpu and host.limits.cpu / (os.cpu_count() or 1), "cores": host.limits.cores}
            words = {key: value for key, value in limits.items() if value is not None}
            self.addHost(host.name, ip=f"{host.address}/{SUBNET.prefixlen}", mac=mac, **words)
        for number, switch in enumerate(described.switches, start=1):
            self.addSwitch(switch.name, dpid=f"{number:x}")
        for link in described.links:
            # TCLink's units: Mbit/s, a text with a unit, percent
            options: dict[str, Any] = {"bw": link.rate_bytes_per_s / MBIT_PER_S}
            if link.delay_s:
                options["delay"] = f"{link.delay_s * 1e6:.0f}us"
            if link.jitter_s:
                options["jitter"] = f"{link.jitter_s * 1e6:.0f}us"
            if link.loss:
                options["loss"] = link.loss * 100
            self.addLink(link.a, link.b, **options)

    def openflow(self) -> Topology:
        """Return the controller's view of the switches that Mininet makes of it: each host is behind a port of its own."""
        from topologies.openflow import Station, Topology, Trunk

        trunks, stations = [], []
        for a, b, options in self.links(withInfo=True):
            (a_port, b_port), rate = self.port(a, b), options["bw"] * MBIT_PER_S
            if self.isSwitch(a) and self.isSwitch(b):
                trunks.append(Trunk(a, a_port, b, b_port, rate))
                continue
            host, switch, port = (b, a, a_port) if self.isSwitch(a) else (a, b, b_port)
            its = self.nodeInfo(host)
            stations.append(Station(host, switch, port, its["mac"], its["ip"].split("/")[0]))
        numbers = {name: int(self.nodeInfo(name)["dpid"], 16) for name in self.switches()}
        return Topology(numbers, tuple(trunks), tuple(stations), Routes(self.campus).root)


def three_tier_topo(hosts: int = 12, buildings: int = 3, on_demand: int = 0) -> CampusTopo:
    """Return a campus of any size; SpecError names the argument that is wrong."""
    return CampusTopo(presets.three_tier(hosts=hosts, buildings=buildings, on_demand=on_demand))


def _or_exit(make: Callable[..., Topo]) -> Callable[..., Topo]:
    """Call `make` for `mn` and exit if an argument is wrong: `mn` answers any exception with a clean-up of the whole machine."""

    def made(*args: Any, **params: Any) -> Topo:
        try:
            inspect.signature(make).bind(*args, **params)
            return make(*args, **params)
        except Exception as error:  # noqa: BLE001 - see above
            print(f"--topo: {error}", file=sys.stderr)
            sys.exit(2)

    return made


topos: dict[str, Callable[..., Topo]] = {"campus": CampusTopo, "three_tier": three_tier_topo}
if __name__ == "__main__":
    import msgspec

    print(msgspec.json.encode(_or_exit(CampusTopo)(*sys.argv[1:]).openflow()).decode())
elif __name__ != "topologies.as_mininet":  # executed by `mn --custom`, not imported
    topos = {name: _or_exit(make) for name, make in topos.items()}
