"""Campus files: TOML in, TOML out.

A file has a `name`, a list of `buildings`, `[gpu_models.NAME]` tables, and three lists: `switches`, `hosts`, `links`.
To keep files short a host or a switch may itself name where its cable goes (`link_to`, `rate`, `delay`, ...; a switch
of an Open vSwitch fabric may name several, `link_to = ["core1", "core2"]`), and `[[groups]]` stands for so many
identical hosts on one switch. An address that is left out is the next free one of the host's building. `dumps` writes
the long form, one line a node, and `loads` gives back exactly the same campus.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from pathlib import Path

from topologies import keys, plugins, reading, toml
from topologies.addresses import MAX_BUILDINGS, building_addresses
from topologies.dimension import Dimension
from topologies.errors import SpecError
from topologies.keys import Key, Section
from topologies.spec import (
    MAX_GPUS,
    NAME_RULE,
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

SHARE = keys.number(Dimension.NUMBER, about="a share from 0 to 1")
PROBABILITY = keys.number(Dimension.NUMBER, about="a probability, at least 0 and less than 1")
RATE, DURATION = keys.number(Dimension.RATE), keys.number(Dimension.DURATION)
RESERVE = ResearchReserve()
CAMPUS = Section(
    name=Key(keys.text("the name of the campus"), "the campus's name"),
    buildings=Key(keys.texts('the names of the buildings, such as ["a", "b"]'), "names of buildings"),
    fabric=Key(keys.choice(tuple(map(str, Fabric))), "what switches are made of", Fabric.BRIDGE),
)
RESEARCH_RESERVE = Section(
    beta=Key(SHARE, "share of each link that migrations leave to research", RESERVE.beta),
    minimum=Key(RATE, "they leave at least this, however small the link", RESERVE.minimum_bytes_per_s),
    most_lost=Key(
        SHARE, "where research is measured to ask for more, they may take this share of it", RESERVE.most_lost
    ),
)
GPU_MODEL = Section(
    memory=Key(keys.number(Dimension.SIZE), "of one GPU"),
    compute_capability=Key(
        keys.number(Dimension.NUMBER, about="a number such as 8.6"), "jobs may ask for at least this"
    ),
)
CABLE = Section(
    rate=Key(RATE, "of the cable, on the wire, in each direction"),
    delay=Key(DURATION, "of the cable, one way", 0.0),
    loss=Key(PROBABILITY, "of a packet on the cable", 0.0),
    jitter=Key(DURATION, "a packet takes the delay, more or less by at most this", 0.0),
    reorders=Key(keys.flag(), "whether packets may overtake each other by their jitter", False),
)
LINK = Section(
    between=Key(keys.texts('two names, such as ["h1", "a1"]'), "the two nodes that the cable joins"), **CABLE
)
LINKED = Section(
    link_to=Key(
        keys.text("the name of a switch"), "the switch that its cable goes to; `rate` is then required", None
    ),
    rate=Key(RATE, CABLE["rate"].meaning, None),
    **{key: CABLE[key] for key in ("delay", "loss", "jitter", "reorders")},
)
SWITCH = Section(
    name=Key(keys.text("the name of the switch"), NAME_RULE),
    tier=Key(keys.choice(tuple(map(str, Tier))), "its level in the tree"),
    building=Key(keys.text("the name of a building"), "left out: it belongs to all, as the core does", None),
    **LINKED,
)
SWITCH["link_to"] = Key(
    keys.texts('the name of a switch, or a list of names such as ["core1", "core2"]', single=True),
    "the switch that its cable goes to, or (Open vSwitch) a list of them; `rate` is then required",
    None,
)
GPUS = Section(
    building=Key(keys.text("the name of a building"), "where it stands"),
    role=Key(keys.choice(tuple(map(str, Role))), "every campus has exactly one coordinator", Role.VOLUNTEER),
    gpu_model=Key(keys.text("the name of one of the gpu_models"), "required, except for a coordinator"),
    gpus=Key(keys.whole(0, MAX_GPUS), "how many jobs it runs at once; a coordinator has none", 1),
)
HOST = Section(
    name=Key(keys.text("the name of the host"), NAME_RULE),
    address=Key(
        keys.text("an IPv4 address"), "inside 10.0.0.0/8; left out: the next free one of its building", None
    ),
    **GPUS,
    **LINKED,
)
GROUP = Section(
    prefix=Key(keys.text("the beginning of the hosts' names"), "hosts are called PREFIX1, PREFIX2, ..."),
    count=Key(keys.whole(1, MAX_GROUP), "how many hosts"),
    first=Key(keys.whole(0, 10**6), "number of the first", 1),
    link_to=Key(
        keys.text("the switch that the hosts of the group hang on"), "the switch that their cables go to"
    ),
    **GPUS,
    **CABLE,
)


def load(path: str | Path, folder: Path = Path()) -> Campus:
    """Return the campus of a file (seen from `folder`), of "example:NAME", or of a user's object.

    A file is TOML, or GraphML if its name ends so. A user's object is "module:NAME", or a name among the entry points
    `reclaimnet.topologies`. It is a `Campus` or a function without arguments that returns one.

    SpecError gives the file, key, value and what is allowed.
    """
    text = str(path)
    if plugins.is_plugin(text, plugins.TOPOLOGIES) and not (folder / text).exists():
        return _brought(text)
    file = find(path, EXAMPLES) if text.startswith(EXAMPLE) else folder / path
    if file.suffix == ".graphml":
        from topologies import graphml

        return graphml.load(file)
    return loads(reading.read_text(file, "a campus file (TOML)"), str(path))


def _brought(name: str) -> Campus:
    allowed = 'a campus file, "example:NAME", or "module:NAME" of a topologies.spec.Campus (or a function that returns one)'
    found = plugins.find("campus", name, plugins.TOPOLOGIES, allowed)
    campus = plugins.call("campus", name, found) if callable(found) else found
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
    name, names = CAMPUS.read(table, "name"), CAMPUS.read(table, "buildings")
    models = []
    for model, each in table.named("gpu_models"):
        memory_bytes = GPU_MODEL.read(each, "memory")
        models.append(GpuModel(model, memory_bytes, GPU_MODEL.read(each, "compute_capability")))
        each.done()
    reserved = table.table("research_reserve")
    reserve = ResearchReserve(*(RESEARCH_RESERVE.read(reserved, key) for key in RESEARCH_RESERVE))
    reserved.done()
    fabric = Fabric(CAMPUS.read(table, "fabric"))
    reader = _Nodes(names)
    reader.read(table)
    table.done()
    buildings = tuple(Building(each) for each in names)
    parts = tuple(reader.hosts), tuple(reader.switches), tuple(reader.links)
    return Campus(name, buildings, *parts, tuple(models), reserve, fabric)


def campus_lines(campus: Campus, prefix: str = "") -> Iterator[str]:
    """Yield the lines of a campus; `prefix` ("campus.") goes before the names of its tables."""
    yield f"name = {toml.quote(campus.name)}"
    yield f"buildings = [{', '.join(toml.quote(b.name) for b in campus.buildings)}]"
    if campus.fabric is not Fabric.BRIDGE:
        yield f"fabric = {toml.quote(campus.fabric)}"
    yield from toml.rows(
        "switches", (SWITCH.inline(name=s.name, tier=s.tier, building=s.building) for s in campus.switches)
    )
    yield from toml.rows("hosts", (
        HOST.inline(name=h.name, building=h.building, role=h.role, address=str(h.address),
                    gpu_model=h.gpu_model, gpus=h.gpus)
        for h in campus.hosts
    ))  # fmt: skip
    yield from toml.rows("links", (
        LINK.inline(between=(link.a, link.b), rate=link.rate_bytes_per_s, delay=link.delay_s or None,
                    loss=link.loss or None, jitter=link.jitter_s or None, reorders=link.reorders or None)
        for link in campus.links
    ))  # fmt: skip
    reserve = campus.research_reserve
    yield from ("", f"[{prefix}research_reserve]", f"beta = {SHARE.text(reserve.beta)}")
    yield f"minimum = {RATE.text(reserve.minimum_bytes_per_s)}"
    if reserve.most_lost != RESERVE.most_lost:
        yield f"most_lost = {SHARE.text(reserve.most_lost)}"
    for model in campus.gpu_models:
        yield from ("", f"[{prefix}gpu_models.{toml.key(model.name)}]")
        for key, value in zip(GPU_MODEL, (model.memory_bytes, model.compute_capability), strict=True):
            yield f"{key} = {GPU_MODEL[key].kind.text(value)}"


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
        hosts, groups = list(table.tables("hosts")), list(table.tables("groups"))
        if not hosts and not groups:
            raise SpecError(table.path("hosts"), [], "at least one host ([[hosts]] or [[groups]])")
        self._taken = {_address(each) for each in hosts if each.has("address")}
        for each in table.tables("switches"):
            name, building = SWITCH.read(each, "name"), SWITCH.read(each, "building")
            self.switches.append(Switch(name, Tier(SWITCH.read(each, "tier")), building))
            if each.has("link_to"):
                self.links += [_link(name, above, each) for above in SWITCH.read(each, "link_to")]
            each.done()
        for each in groups:
            prefix = GROUP.read(each, "prefix")
            count, first = GROUP.read(each, "count"), GROUP.read(each, "first")
            GROUP.read(each, "link_to")
            for number in range(first, first + count):
                self._host(f"{prefix}{number}", each)
            each.done()
        for each in hosts:
            written = _address(each) if each.has("address") else None
            self._host(HOST.read(each, "name"), each, written)
            each.done()
        for each in table.tables("links"):
            ends = LINK.read(each, "between")
            if len(ends) != 2:
                raise SpecError(each.path("between"), list(ends), LINK["between"].kind.allowed)
            self.links.append(_link(ends[0], ends[1], each))
            each.done()

    def _host(self, name: str, table: Table, written: ipaddress.IPv4Address | None = None) -> None:
        building = keys.choice(self._buildings).read(table, "building")
        address = written or self._next_address(building, table)
        role = Role(HOST.read(table, "role"))
        if role is Role.COORDINATOR:
            model = HOST.read(table, "gpu_model") if table.has("gpu_model") else None
            gpus = HOST["gpus"].kind.read(table, "gpus", 0)
        else:
            model, gpus = HOST.read(table, "gpu_model"), HOST.read(table, "gpus")
        self.hosts.append(Host(name, building, role, address, model, gpus))
        if table.has("link_to"):
            self.links.append(_link(name, HOST.read(table, "link_to"), table))

    def _next_address(self, building: str, table: Table) -> ipaddress.IPv4Address:
        if building not in self._free:
            index = self._buildings.index(building) + 1
            self._free[building] = building_addresses(index) if index < MAX_BUILDINGS else iter(())
        for address in self._free[building]:
            if address not in self._taken:
                self._taken.add(address)
                return address
        raise SpecError(
            table.path("address"), None, "needed: an address, for 10.BUILDING.0.0/16 has none left"
        )


def _address(table: Table) -> ipaddress.IPv4Address:
    text = HOST.read(table, "address")
    try:
        return ipaddress.IPv4Address(text)
    except ValueError as error:
        raise SpecError(
            table.path("address"), text[:80], f"an IPv4 address inside 10.0.0.0/8 ({error})"
        ) from None


def _link(a: str, b: str, table: Table) -> Link:
    return Link(a, b, *(CABLE.read(table, key) for key in CABLE))
