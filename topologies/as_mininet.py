"""A campus as a topology of stock Mininet, so that other people's Mininet can build it:

    mn --custom topologies/as_mininet.py --topo campus,my_campus.toml --switch lxbr --controller none
    mn --custom topologies/as_mininet.py --topo three_tier,hosts=20,buildings=2 --switch lxbr --controller none --link tc

A wrong file or argument is said, and `mn` ends with status 2 before it has made anything. (An unknown word after `--topo` is
`mn`'s own error, and that it answers as any other: by `mn -c`, which removes every Mininet and every bridge of the machine.)
Stock Mininet's TCLink leaves rates above 1 Gbit/s unshaped and ignores a delay that the kernel cannot make; the project's own
`testbed.emulation` does neither.
"""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mininet.topo import Topo

# `mn --custom` executes this file with its own interpreter
if importlib.util.find_spec("topologies") is None:
    sys.path.append(str(Path(sys._getframe().f_code.co_filename).resolve().parents[1]))

from topologies import files, presets
from topologies.errors import SpecError
from topologies.spec import SUBNET, Campus
from topologies.units import MBIT_PER_S


class CampusTopo(Topo):  # type: ignore[misc]
    """The nodes and links of a campus, given as a description or as the path of a campus file."""

    def build(self, campus: Campus | str) -> None:
        """Called by Topo. SpecError if the file is wrong."""
        described = campus if isinstance(campus, Campus) else files.load(campus)
        for host in described.hosts:
            mac = (b"\x02\x00" + host.address.packed).hex(":")
            self.addHost(host.name, ip=f"{host.address}/{SUBNET.prefixlen}", mac=mac)
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


def campus54_topo() -> CampusTopo:
    """The deployment of paper A."""
    return CampusTopo(presets.campus54())


def three_tier_topo(hosts: int = 12, buildings: int = 3, on_demand: int = 0) -> CampusTopo:
    """A campus of any size; SpecError says which argument is wrong."""
    return CampusTopo(presets.three_tier(hosts=hosts, buildings=buildings, on_demand=on_demand))


def _or_exit(make: Callable[..., Topo]) -> Callable[..., Topo]:
    """`make` for `mn`, which answers any exception with a clean-up of the whole machine: a wrong argument ends it before that."""

    def made(*args: Any, **params: Any) -> Topo:
        try:
            inspect.signature(make).bind(*args, **params)
            return make(*args, **params)
        except (SpecError, TypeError) as error:
            print(f"--topo: {error}", file=sys.stderr)
            sys.exit(2)

    return made


topos: dict[str, Callable[..., Topo]] = {
    "campus": CampusTopo,
    "campus54": campus54_topo,
    "three_tier": three_tier_topo,
}
if __name__ != "topologies.as_mininet":  # executed by `mn --custom`, not imported
    topos = {name: _or_exit(make) for name, make in topos.items()}
