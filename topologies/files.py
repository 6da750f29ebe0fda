"""Campus files: TOML in, TOML out.

A file has a `name`, a list of `buildings`, `[gpu_models.NAME]` tables, and three lists: `switches`, `hosts`, `links`.
To keep files short a host or a switch may say itself where its cable goes (`link_to`, `rate`, `delay`, `loss`; a switch of
an Open vSwitch fabric may name several, `link_to = ["core1", "core2"]`), and
`[[groups]]` stands for so many identical hosts on one switch. An address that is left out is the next free one of the
host's building. `dumps` writes the long form, one line a node, and `loads` gives back exactly the same campus.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from pathlib import Path

from topologies import toml, units
from topologies.addresses import building_addresses
from topologies.dimension import Dimension
from topologies.errors import SpecError
from topologies.spec import (
    Building,
    Campus,
    Fabric,
    GpuModel,
    Host,
    Link,
    ResearchReserve,
    Role,
    Switch,
    Tier,
)
from topologies.tables import Table

EXAMPLES = Path(__file__).parent / "examples"
EXAMPLE = "example:"
MAX_GROUP = 10_000


def load(path: str | Path) -> Campus:
    """The campus of a file, or of "example:NAME". SpecError says file, key, value and what is allowed."""
    file = find(path, EXAMPLES)
    return loads(toml.read_text(file, "a campus file (TOML)"), str(path))


def loads(text: str, source: str | None = None) -> Campus:
    """The campus of a TOML text; `source` is named in errors."""
    try:
        return campus_of(Table(toml.parse(text)))
    except SpecError as error:
        raise error.within(source or error.source or "text") from None


def dumps(campus: Campus) -> str:
    """The campus as TOML; `loads` gives back an equal one, to the last bit of every number."""
    return "\n".join(campus_lines(campus)) + "\n"


def examples() -> tuple[str, ...]:
    """The names of the campus files that the package brings; `load("example:NAME")` reads one."""
    return toml.example_names(EXAMPLES)


def find(path: str | Path, folder: Path) -> Path:
    """The path of a file, or of an example of that folder if it begins with "example:"."""
    text = str(path)
    return toml.example(text.removeprefix(EXAMPLE), folder) if text.startswith(EXAMPLE) else Path(path)


def campus_of(table: Table) -> Campus:
    """The campus that a table describes (a whole file, or the [campus] of a scenario)."""
    name = table.text("name", "the name of the campus")
    names = table.texts("buildings", 'the names of the buildings, such as ["a", "b"]')
    models = tuple(_model(key, each) for key, each in table.named("gpu_models"))
    reserve = _reserve(table.table("research_reserve"))
    fabric = Fabric(table.choice("fabric", Fabric, Fabric.BRIDGE))
    reader = _Nodes(names)
    reader.read(table)
    table.done()
    buildings = tuple(Building(each) for each in names)
    hosts = tuple(reader.hosts)
    switches, links = tuple(reader.switches), tuple(reader.links)
    return Campus(name, buildings, hosts, switches, links, models, reserve, fabric)


def campus_lines(campus: Campus, prefix: str = "") -> Iterator[str]:
    """The lines of a campus; `prefix` ("campus.") goes before the names of its tables."""
    yield f"name = {toml.quote(campus.name)}"
    yield f"buildings = [{', '.join(toml.quote(b.name) for b in campus.buildings)}]"
    if campus.fabric is not Fabric.BRIDGE:
        yield f"fabric = {toml.quote(campus.fabric)}"
    yield from toml.rows("switches", map(_switch_line, campus.switches))
    yield from toml.rows("hosts", map(_host_line, campus.hosts))
    yield from toml.rows("links", map(_link_line, campus.links))
    reserve = campus.research_reserve
    yield from ("", f"[{prefix}research_reserve]", f"beta = {units.plain(reserve.beta)}")
    yield f'minimum = "{units.exact_rate(reserve.minimum_bytes_per_s)}"'
    for model in campus.gpu_models:
        yield from ("", f"[{prefix}gpu_models.{toml.key(model.name)}]")
        yield f'memory = "{units.exact_size(model.memory_bytes)}"'
        yield f"compute_capability = {units.plain(model.compute_capability)}"


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
        """Everything; written addresses first, so that free ones do not collide with them."""
        hosts, groups = list(table.tables("hosts")), list(table.tables("groups"))
        if not hosts and not groups:
            raise SpecError(table.path("hosts"), [], "at least one host ([[hosts]] or [[groups]])")
        self._taken = {_address(each) for each in hosts if each.has("address")}
        for each in table.tables("switches"):
            self._switch(each)
        for each in groups:
            self._group(each)
        for each in hosts:
            self._host(each)
        self.links += [_link(each) for each in table.tables("links")]

    def _switch(self, table: Table) -> None:
        building = table.text("building", "the name of a building") if table.has("building") else None
        name = table.text("name", "the name of the switch")
        self.switches.append(Switch(name, Tier(table.choice("tier", Tier)), building))
        if isinstance(table.take("link_to", "the name of a switch, or a list of names", ""), list):
            above = table.texts("link_to", 'the names of switches, such as ["core1", "core2"]')
            self.links += [_cable(name, each, table) for each in above]
        else:
            self._cable(name, table)
        table.done()

    def _host(self, table: Table) -> None:
        name = table.text("name", "the name of the host")
        building = self._building(table)
        address = _address(table) if table.has("address") else self._next_address(building, table)
        self.hosts.append(_host(name, building, address, table))
        self._cable(name, table)
        table.done()

    def _group(self, table: Table) -> None:
        prefix = table.text("prefix", "the beginning of the hosts' names")
        count = table.whole("count", 1, MAX_GROUP)
        first = table.whole("first", 0, 10**6, 1)
        building = self._building(table)
        table.text("link_to", "the switch that the hosts of the group hang on")
        for number in range(first, first + count):
            name = f"{prefix}{number}"
            self.hosts.append(_host(name, building, self._next_address(building, table), table))
            self._cable(name, table)
        if not table.has("link_to"):
            raise SpecError(
                table.path("link_to"), None, "needed: the switch that the hosts of the group hang on"
            )
        table.done()

    def _cable(self, name: str, table: Table) -> None:
        if table.has("link_to"):
            self.links.append(_cable(name, table.text("link_to", "the name of a switch"), table))

    def _building(self, table: Table) -> str:
        return table.choice("building", self._buildings)

    def _next_address(self, building: str, table: Table) -> ipaddress.IPv4Address:
        if building not in self._free:
            index = self._buildings.index(building) + 1
            self._free[building] = building_addresses(index) if index <= 255 else iter(())
        for address in self._free[building]:
            if address not in self._taken:
                self._taken.add(address)
                return address
        raise SpecError(
            table.path("address"), None, "needed: an address, for 10.BUILDING.0.0/16 has none left"
        )


def _host(name: str, building: str, address: ipaddress.IPv4Address, table: Table) -> Host:
    role = Role(table.choice("role", Role, Role.VOLUNTEER))
    needed = role is not Role.COORDINATOR or table.has("gpu_model")
    model = table.text("gpu_model", "the name of one of the gpu_models") if needed else None
    gpus = table.whole("gpus", 0, 1024, 0 if role is Role.COORDINATOR else 1)
    return Host(name, building, role, address, model, gpus)


def _address(table: Table) -> ipaddress.IPv4Address:
    text = table.text("address", "an IPv4 address")
    try:
        return ipaddress.IPv4Address(text)
    except ValueError as error:
        raise SpecError(
            table.path("address"), text[:80], f"an IPv4 address inside 10.0.0.0/8 ({error})"
        ) from None


def _link(table: Table) -> Link:
    ends = table.texts("between", 'two names, such as ["h1", "a1"]')
    if len(ends) != 2:
        raise SpecError(table.path("between"), list(ends), 'two names, such as ["h1", "a1"]')
    link = _cable(*ends, table)
    table.done()
    return link


def _cable(a: str, b: str, table: Table) -> Link:
    rate = table.quantity("rate", Dimension.RATE)
    delay = table.quantity("delay", Dimension.DURATION, 0.0)
    return Link(a, b, rate, delay, table.number("loss", "a probability, at least 0 and less than 1", 0.0))


def _model(name: str, table: Table) -> GpuModel:
    memory = table.quantity("memory", Dimension.SIZE)
    model = GpuModel(name, memory, table.number("compute_capability", "a number such as 8.6"))
    table.done()
    return model


def _reserve(table: Table) -> ResearchReserve:
    default = ResearchReserve()
    beta = table.number("beta", "a share from 0 to 1", default.beta)
    minimum = table.quantity("minimum", Dimension.RATE, default.minimum_bytes_per_s)
    table.done()
    return ResearchReserve(beta, minimum)


def _switch_line(switch: Switch) -> str:
    pairs = [("name", toml.quote(switch.name)), ("tier", toml.quote(switch.tier))]
    return toml.inline(
        pairs if switch.building is None else [*pairs, ("building", toml.quote(switch.building))]
    )


def _host_line(host: Host) -> str:
    texts = {"name": host.name, "building": host.building, "role": host.role, "address": str(host.address)}
    pairs = [(name, toml.quote(text)) for name, text in texts.items()]
    if host.gpu_model is not None:
        pairs.append(("gpu_model", toml.quote(host.gpu_model)))
    return toml.inline([*pairs, ("gpus", str(host.gpus))])


def _link_line(link: Link) -> str:
    pairs = [("between", f"[{toml.quote(link.a)}, {toml.quote(link.b)}]")]
    pairs.append(("rate", f'"{units.exact_rate(link.rate_bytes_per_s)}"'))
    if link.delay_s:
        pairs.append(("delay", f'"{units.exact_duration(link.delay_s)}"'))
    return toml.inline(pairs if not link.loss else [*pairs, ("loss", units.plain(link.loss))])
