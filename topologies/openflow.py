"""Messages to an OpenFlow controller: the campus as one JSON file, and lines of JSON on a UNIX socket while it runs.

The campus writes the file. The campus's coordinator wants ways; a client that is about to cut a trunk has it drained.
"""

from __future__ import annotations

from functools import cached_property

import msgspec

from topologies.decoding import UNDECODABLE
from topologies.errors import SpecError


class Trunk(msgspec.Struct, frozen=True, dict=True):
    """A cable between two OpenFlow switches, with the port number at either end."""

    a: str
    a_port: int
    b: str
    b_port: int
    rate_bytes_per_s: float

    @property
    def ends(self) -> frozenset[str]:
        """The two switches, which identify a trunk: there is one at most between two switches."""
        return frozenset((self.a, self.b))


class Station(msgspec.Struct, frozen=True):
    """A host as the OpenFlow network sees it: behind which port of which switch."""

    host: str
    switch: str
    port: int
    mac: str
    address: str


class Topology(msgspec.Struct, frozen=True, dict=True):
    """OpenFlow switches (name to datapath number), trunks between them, hosts. `root`: of the tree that migrations travel."""

    switches: dict[str, int]
    trunks: tuple[Trunk, ...]
    stations: tuple[Station, ...]
    root: str

    def __post_init__(self) -> None:
        for name in (self.root, *(end for t in self.trunks for end in t.ends), *(s.switch for s in self.stations)):
            if name not in self.switches:
                raise SpecError("topology", name, f"one of the switches {sorted(self.switches)}")

    @cached_property
    def ports(self) -> dict[str, dict[str, int]]:
        """The port numbers by switch and neighbour, in the order of the trunks."""
        table: dict[str, dict[str, int]] = {name: {} for name in self.switches}
        for trunk in self.trunks:
            table[trunk.a][trunk.b] = trunk.a_port
            table[trunk.b][trunk.a] = trunk.b_port
        return table

    @cached_property
    def rate_bytes_per_s(self) -> dict[frozenset[str], float]:
        """Rate of each trunk, by its two switches."""
        return {trunk.ends: trunk.rate_bytes_per_s for trunk in self.trunks}

    @cached_property
    def station_of(self) -> dict[str, Station]:
        """The station of each host, by its name."""
        return {station.host: station for station in self.stations}

    @cached_property
    def stations_at(self) -> dict[str, list[Station]]:
        """The hosts behind each switch."""
        table: dict[str, list[Station]] = {name: [] for name in self.switches}
        for station in self.stations:
            table[station.switch].append(station)
        return table


class WayPin(msgspec.Struct, frozen=True):
    """A way, with a number of its own: the testbed's traffic from the first of these nodes, a host, to the last goes by all."""

    number: int
    nodes: tuple[str, ...]


class WantedWays(msgspec.Struct, frozen=True, tag="ways"):
    """Order of the coordinator to the controller: pin these and no others, and lead nothing over the trunks that are draining."""

    number: int = 0
    pins: tuple[WayPin, ...] = ()
    draining: tuple[tuple[str, str], ...] = ()


class TrunkLoads(msgspec.Struct, frozen=True, tag="loads"):
    """Report of the coordinator to the controller: its grants from switch to switch, wire bytes/s; none over any other trunk."""

    loads: tuple[tuple[str, str, float], ...] = ()


class HaveDrained(msgspec.Struct, frozen=True, tag="drain"):
    """Order to the controller: drain this trunk, and report it."""

    a: str
    b: str


class WaysInForce(msgspec.Struct, frozen=True, tag="in_force"):
    """Report of the controller to the coordinator: all switches have what was wanted under this number."""

    number: int


class ToDrain(msgspec.Struct, frozen=True, tag="to_drain"):
    """Report of the controller to the coordinator: these trunks, and no others, are to be left."""

    trunks: tuple[tuple[str, str], ...]


class Drained(msgspec.Struct, frozen=True, tag="drained"):
    """Report of the controller to a client: nothing goes over that trunk any more; or why not."""

    reason: str = ""


ToController = WantedWays | TrunkLoads | HaveDrained
FromController = WaysInForce | ToDrain | Drained


def read(text: bytes, source: str) -> Topology:
    """Return the topology of a JSON text; SpecError names `source` and what is wrong."""
    try:
        return msgspec.json.decode(text, type=Topology)
    except UNDECODABLE as error:
        raise SpecError("topology", source, f"a topology as the campus writes it ({error})") from None
