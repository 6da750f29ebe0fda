"""Campus files: TOML in, TOML out.

A file has a `name`, a list of `buildings`, tables `[gpu_models.NAME]` and `[machines.NAME]`, lists `switches`, `hosts`, `links`.
To keep files short a host or a switch may itself name where its cable goes (`link_to`, `rate`, `delay`, ...; a switch
of an Open vSwitch fabric may name several, `link_to = ["core1", "core2"]`), and `[[groups]]` stands for so many
identical hosts on one switch. An address that is left out is the next free one of the host's building. `dumps` writes
the long form, one line a node, and `loads` gives back exactly the same campus.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from topologies import calendars, fields, keys, plugins, reading, spec, toml
from topologies.addresses import MAX_BUILDINGS, building_addresses
from topologies.errors import SpecError
from topologies.keys import declared, optional
from topologies.spec import (
    MAX_GPUS,
    Building,
    Campus,
    CampusMachine,
    Fabric,
    GpuModel,
    Host,
    Link,
    ResearchReserve,
    Role,
    Switch,
)
from topologies.tables import Table

EXAMPLES = Path(__file__).parent / "examples"
EXAMPLE = "example:"
FORMS = "a campus file (TOML, or GraphML if its name ends in .graphml)"
MAX_GROUP = 10_000


@dataclass(frozen=True, slots=True)
class Head:
    """The keys at the top of a file."""

    name: str = declared(keys.text("the name of the campus"))  # the campus's name
    # names of buildings
    buildings: tuple[str, ...] = declared(keys.texts('the names of the buildings, such as ["a", "b"]'))
    fabric: Fabric = declared(keys.choice(Fabric), Fabric.BRIDGE)  # what switches are made of


@dataclass(frozen=True, slots=True)
class Place:
    """The keys that hosts and groups of them have alike."""

    building: str = declared(keys.text("the name of a building"))  # where it stands
    role: Role = declared(keys.choice(Role), Role.VOLUNTEER)  # every campus has exactly one coordinator
    # required, except for a coordinator
    gpu_model: str | None = optional(keys.text("the name of one of the gpu_models"))
    # how many jobs it runs at once, 1 if left out; a coordinator has none
    gpus: int | None = fields.whole(0, MAX_GPUS, None, optional=True)
    # when its owner lends it, such as "18:00-08:00, weekends"; left out: always
    lent: str | None = optional(keys.text(calendars.ALLOWED))
    # true: its agent is [installed](../real_hosts.md)
    own_agent: bool = declared(keys.flag(), False)


@dataclass(frozen=True, slots=True)
class OneHost:
    """The keys of a host alone."""

    # a name of 1 to 9 lower-case letters and digits that begins with a letter
    name: str = declared(keys.text("the name of the host"))
    # inside 10.0.0.0/8; left out: the next free one of its building
    address: str | None = optional(keys.text("an IPv4 address"))
    # the switch that its cable goes to
    link_to: str | None = optional(keys.text("the name of a switch"))


@dataclass(frozen=True, slots=True)
class Group:
    """The keys of a group of hosts."""

    # hosts are called PREFIX1, PREFIX2, ...
    prefix: str = declared(keys.text("the beginning of the hosts' names"))
    count: int = fields.whole(1, MAX_GROUP)  # how many hosts
    # the switch that their cables go to
    link_to: str = declared(keys.text("the switch that the hosts of the group hang on"))
    first: int = fields.whole(0, 10**6, 1)  # number of the first


@dataclass(frozen=True, slots=True)
class Uplinks:
    """The keys of a switch beside its own."""

    # the switch that its cable goes to, or (Open vSwitch) a list of them
    link_to: tuple[str, ...] | None = optional(
        keys.texts('the name of a switch, or a list of names such as ["core1", "core2"]', single=True)
    )


@dataclass(frozen=True, slots=True)
class Ends:
    """The keys of a cable apart, beside those of every cable."""

    # the two nodes that the cable joins
    between: tuple[str, ...] = declared(keys.texts('two names, such as ["h1", "a1"]'))


def load(path: str | Path, folder: Path = Path()) -> Campus:
    """Return the campus of a file (seen from `folder`), of "example:NAME", or of a user's object.

    A file is TOML, or GraphML if its name ends so. A user's object is "module:NAME", or a name among the entry points
    `reclaimnet.topologies`. It is a `Campus` or a Mininet `Topo`, or is called without arguments and returns one.

    SpecError gives the file, key, value and what is allowed.
    """
    text = str(path)
    if plugins.is_plugin(text, plugins.TOPOLOGIES) and not (folder / text).exists():
        return _brought(text)
    file = find(path, EXAMPLES) if text.startswith(EXAMPLE) else folder / path
    if file.suffix.lower() == ".graphml":
        from topologies import graphml

        return graphml.load(file)
    try:
        return loads(reading.read_text(file, FORMS), str(path))
    except SpecError as error:
        if file.suffix == ".toml" or not error.allowed.startswith(toml.NOT_TOML):
            raise
        raise SpecError(error.key, error.value, f"{FORMS}; {error.allowed}", error.source) from None


def campus54() -> Campus:
    """Return the deployment of paper A, section IV-A: 53 GPU nodes (87 GPUs) in four buildings, and one coordinator."""
    return load("example:campus54")


def _brought(name: str) -> Campus:
    allowed = 'a campus file, "example:NAME", or "module:NAME" of a topologies.spec.Campus or Mininet Topo (or what returns one)'
    found = plugins.find("campus", name, plugins.TOPOLOGIES, allowed)
    campus = plugins.call("campus", name, found) if callable(found) else found
    if hasattr(campus, "iterLinks"):  # of a Topo
        from topologies.of_mininet import from_mininet

        return from_mininet(campus)
    if not isinstance(campus, Campus):
        raise SpecError("campus", name, f"that is a {type(campus).__name__}; allowed: {allowed}")
    return campus


def loads(text: str, source: str | None = None) -> Campus:
    """Return the campus of a TOML text; `source` is named in errors."""
    try:
        return campus_of(Table(toml.parse(text)))
    except SpecError as error:
        raise error.within(source or error.source or "text") from None


def dumps(campus: Campus) -> str:
    """Return the campus as TOML; `loads` gives back an equal one, to the last bit of every number."""
    return "\n".join(campus_lines(campus)) + "\n"


def examples() -> tuple[str, ...]:
    """Return the names of the campus files that the package brings; `load("example:NAME")` reads one."""
    return reading.example_names(EXAMPLES)


def find(path: str | Path, folder: Path) -> Path:
    """Return the path of a file, or of an example of that folder if it begins with "example:"."""
    text = str(path)
    return reading.example(text.removeprefix(EXAMPLE), folder) if text.startswith(EXAMPLE) else Path(path)


def campus_of(table: Table) -> Campus:
    """Return the campus that a table describes (a whole file, or the [campus] of a scenario)."""
    head = Head(**fields.values_of(Head, table))
    models = tuple(fields.read(GpuModel, each, name=name) for name, each in table.named("gpu_models"))
    machines = tuple(fields.read(CampusMachine, each, name=name) for name, each in table.named("machines"))
    reserve = fields.read(ResearchReserve, table.table("research_reserve"))
    reader = _Nodes(head.buildings)
    reader.read(table)
    table.done()
    buildings = tuple(Building(each) for each in head.buildings)
    parts = tuple(reader.hosts), tuple(reader.switches), tuple(reader.links)
    return Campus(head.name, buildings, *parts, models, reserve, head.fabric, machines)


def campus_lines(campus: Campus, prefix: str = "") -> Iterator[str]:
    """Yield the lines of a campus; `prefix` ("campus.") goes before the names of its tables."""
    yield from _lines(Head(campus.name, tuple(b.name for b in campus.buildings), campus.fabric))
    yield from toml.rows("switches", map(_inline, campus.switches))
    yield from toml.rows("hosts", (
        _inline(
            OneHost(h.name, str(h.address)),
            Place(h.building, h.role, h.gpu_model, h.gpus or None, h.lent, h.own_agent),
            h.limits,
        )
        for h in campus.hosts
    ))  # fmt: skip
    yield from toml.rows("links", (_inline(Ends((link.a, link.b)), link) for link in campus.links))
    yield from ("", f"[{prefix}research_reserve]", *_lines(campus.research_reserve))
    for table, parts in (("gpu_models", campus.gpu_models), ("machines", campus.machines)):
        for part in parts:
            yield from ("", f"[{prefix}{table}.{toml.key(part.name)}]", *_lines(part))


def _lines(part: object) -> Iterator[str]:
    return (f"{key} = {text}" for key, text in fields.pairs(part, defaults=False))


def _inline(*parts: object) -> str:
    return toml.inline(pair for part in parts for pair in fields.pairs(part, defaults=False))


class _Nodes:
    """Hosts, switches and links of a campus file, while it is read."""

    def __init__(self, buildings: tuple[str, ...]) -> None:
        self.hosts: list[Host] = []
        self.switches: list[Switch] = []
        self.links: list[Link] = []
        self._buildings = buildings
        self._taken: set[ipaddress.IPv4Address] = set()
        self._free: dict[str, Iterator[ipaddress.IPv4Address]] = {}

    def read(self, table: Table) -> None:
        """Read the whole file; written addresses first, so that free ones do not collide with them."""
        tables, groups = list(table.tables("hosts")), list(table.tables("groups"))
        if not tables and not groups:
            raise SpecError(table.path("hosts"), [], "at least one host ([[hosts]] or [[groups]])")
        hosts = [(OneHost(**fields.values_of(OneHost, each)), each) for each in tables]
        written = {host.name: _address(host.address, each) for host, each in hosts if host.address}
        self._taken = set(written.values())
        for each in table.tables("switches"):
            switch = Switch(**fields.values_of(Switch, each))
            self.switches.append(switch)
            for above in Uplinks(**fields.values_of(Uplinks, each)).link_to or ():
                self._link(switch.name, above, each)
            each.done()
        for each in groups:
            group = Group(**fields.values_of(Group, each))
            for number in range(group.first, group.first + group.count):
                self._host(f"{group.prefix}{number}", each)
                self._link(f"{group.prefix}{number}", group.link_to, each)
            each.done()
        for host, each in hosts:
            self._host(host.name, each, written.get(host.name))
            if host.link_to:
                self._link(host.name, host.link_to, each)
            each.done()
        for each in table.tables("links"):
            ends = Ends(**fields.values_of(Ends, each)).between
            if len(ends) != 2:
                raise SpecError(each.path("between"), list(ends), 'two names, such as ["h1", "a1"]')
            self._link(*ends, each)
            each.done()

    def _host(self, name: str, table: Table, written: ipaddress.IPv4Address | None = None) -> None:
        place = Place(**fields.values_of(Place, table))
        if unknown := keys.choice(self._buildings).wrong(place.building):
            raise table.wrong("building", unknown)
        address = written or self._next_address(place.building, table)
        is_coordinator = place.role is Role.COORDINATOR
        if not is_coordinator:
            table.take("gpu_model", "the name of one of the gpu_models")
        gpus = (0 if is_coordinator else 1) if place.gpus is None else place.gpus
        limits = spec.HostLimits(**fields.values_of(spec.HostLimits, table))
        parts = name, place.building, place.role, address, place.gpu_model, gpus
        self.hosts.append(Host(*parts, limits, place.lent, place.own_agent))

    def _link(self, a: str, b: str, table: Table) -> None:
        self.links.append(Link(a, b, **fields.values_of(Link, table)))

    def _next_address(self, building: str, table: Table) -> ipaddress.IPv4Address:
        if building not in self._free:
            index = self._buildings.index(building) + 1
            self._free[building] = building_addresses(index) if index < MAX_BUILDINGS else iter(())
        for address in self._free[building]:
            if address not in self._taken:
                self._taken.add(address)
                return address
        raise SpecError(table.path("address"), None, "needed: an address, for 10.BUILDING.0.0/16 has none left")


def _address(text: str, table: Table) -> ipaddress.IPv4Address:
    try:
        return ipaddress.IPv4Address(text)
    except ValueError as error:
        raise SpecError(table.path("address"), text[:80], f"an IPv4 address inside 10.0.0.0/8 ({error})") from None
