"""Positions on the maps of campuses: switches as a forest below the cores, hosts in grids below their switches.

In a large campus hosts are small boxes. The access switches of a building stand in several lines there, so that the
whole of it fits a page.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil, sqrt
from typing import Any

from topologies.paths import Routes
from topologies.spec import Campus, Host, Role, Tier

Row = dict[str, Any]
CHIP, SMALL_CHIP, SMALL_ABOVE = (62.0, 36.0), (20.0, 16.0), 120  # a host's box; of more hosts, the small one
GAP, BOX, LEVEL, SIBLINGS, MARGIN = 6.0, (92.0, 26.0), 74.0, 20.0, 12.0
WIDE = 1.6  # a grid is so many times as wide as it is high
PAGE = 1280.0  # a large campus is to be no wider


@dataclass
class _Node:
    name: str
    hosts: list[Host]
    lines: list[list[_Node]]  # of switches below it
    chip: tuple[float, float]
    columns: int = field(init=False)

    def __post_init__(self) -> None:
        n, (width, height) = len(self.hosts), self.chip
        self.columns = max(1, min(n, ceil(sqrt(n * WIDE * (height + GAP) / (width + GAP)))))

    @property
    def grid_width(self) -> float:
        return self.columns * (self.chip[0] + GAP) if self.hosts else 0.0

    @property
    def grid_height(self) -> float:
        return 30.0 + ceil(len(self.hosts) / self.columns) * (self.chip[1] + GAP) if self.hosts else 0.0

    @property
    def below_width(self) -> float:
        widths = (sum(child.width for child in line) + SIBLINGS * (len(line) - 1) for line in self.lines)
        return max(widths, default=0.0)

    @property
    def width(self) -> float:
        both = SIBLINGS if self.hosts and self.lines else 0.0
        return max(BOX[0] + 10.0, self.grid_width + both + self.below_width)

    @property
    def height(self) -> float:
        below = sum(LEVEL - BOX[1] + max(child.height for child in line) for line in self.lines)
        return BOX[1] + max(self.grid_height, below)


def layout(campus: Campus) -> Row:
    """Return the map: {"width", "height", "nodes": {name: {x, y, w, h, kind, ...}}, "links": [...], "access": [...]}.

    Cores stand side by side, each switch under the first that it hangs on; other trunks are in no `tree`. Links are in
    the campus's order: {a, b, rate, tree}, those between switches with their line and the place of its label {d, x, y}.
    `access`: {d, x, y, rates} of the cables from each switch to its hosts, drawn as one.
    """
    cores = [switch.name for switch in campus.switches if switch.tier is Tier.CORE]
    roots = cores if len(cores) > 1 else [Routes(campus).root]
    agents = sum(host.role is not Role.COORDINATOR for host in campus.hosts)
    chip = SMALL_CHIP if agents > SMALL_ABOVE else CHIP
    parents: dict[str, str] = {}
    todo = list(roots)
    for name in todo:  # grows while it is walked
        for neighbour in campus.neighbours[name]:
            if neighbour not in roots and neighbour not in parents:
                parents[neighbour] = name
                todo.append(neighbour)
    switches = campus.switch_by_name
    children = {
        name: [n for n in campus.neighbours[name] if parents.get(n) == name] for name in todo if name in switches
    }
    of_leaves = sum(
        any(n in switches for n in near) and not any(m in switches for n in near for m in children.get(n, ()))
        for near in children.values()
    )
    made: dict[str, _Node] = {}
    for name in reversed(list(children)):
        hosts = [campus.host_by_name[n] for n in children[name] if n not in switches]
        below = [made[n] for n in children[name] if n in switches]
        together = len(below)
        if below and not any(child.lines for child in below):
            widest = max(child.width for child in below) + SIBLINGS
            together = max(1, int(PAGE / max(1, of_leaves) / widest))
        lines = [below[n : n + together] for n in range(0, len(below), max(1, together))]
        made[name] = _Node(name, hosts, lines, chip)
    nodes: dict[str, Row] = {}
    if len(roots) > 1:
        root, top = _Node("", [], [[made[name] for name in roots]], chip), MARGIN - LEVEL
    else:
        root, top = made.get(roots[0]) or _Node("", list(campus.hosts), [], chip), MARGIN
    _place(root, MARGIN, top, campus, nodes)
    links = [
        {
            "a": link.a,
            "b": link.b,
            "rate": link.rate_bytes_per_s,
            "tree": link.b == parents.get(link.a) or link.a == parents.get(link.b),
        }
        for link in campus.links
    ]
    for row in links:
        if row["a"] in switches and row["b"] in switches:
            row |= _trunk(nodes[row["a"]], nodes[row["b"]], bool(row["tree"]))
    width, height = root.width + 2 * MARGIN, top + root.height + MARGIN
    access = [_access(campus, switch.name, nodes) for switch in campus.switches if made[switch.name].hosts]
    small = chip is SMALL_CHIP
    return {"width": width, "height": height, "small": small, "nodes": nodes, "links": links, "access": access}


def _trunk(one: Row, other: Row, in_tree: bool) -> Row:
    """Return the cable between two switches as a line, and the place of its label; past the lines above by its gutter."""
    upper, lower = sorted((one, other), key=lambda node: float(node["y"]))
    x, to_x, to_y = upper["x"] + upper["w"] / 2, lower["x"] + lower["w"] / 2, lower["y"]
    y = upper["y"] + (upper["h"] if upper["y"] < to_y else 0.0)
    if not in_tree:
        line = f"M{x + 8:g},{y:g}L{to_x + 8:g},{to_y:g}"
    elif (gutter := lower["gutter"]) is not None:
        line = f"M{x:g},{y:g}V{y + 16:g}H{gutter:g}V{to_y - 12:g}H{to_x:g}V{to_y:g}"
    else:
        line = f"M{x:g},{y:g}V{(y + to_y) / 2 - 8:g}H{to_x:g}V{to_y:g}"
    return {"d": line, "x": to_x + 6, "y": to_y - 8}


def _access(campus: Campus, switch: str, nodes: dict[str, Row]) -> Row:
    """Return the cables from a switch to its hosts as one line, the place of its label, and the lowest and highest rate."""
    links = {name: link for name, link in campus.neighbours[switch].items() if name in campus.host_by_name}
    chips, box = [nodes[name] for name in links], nodes[switch]
    x, y, first = box["x"] + box["w"] / 2, box["y"] + box["h"], min(chip["y"] for chip in chips)
    middle = (min(chip["x"] for chip in chips) + max(chip["x"] + chip["w"] for chip in chips)) / 2
    rates = [link.rate_bytes_per_s for link in links.values()]
    line = f"M{x:g},{y:g}V{(y + first) / 2 - 1:g}H{middle:g}V{first - 3:g}"
    return {"d": line, "x": x + 6, "y": y + 11, "rates": sorted({min(rates), max(rates)})}


def _place(
    node: _Node, left: float, top: float, campus: Campus, nodes: dict[str, Row], gutter: float | None = None
) -> None:
    """Place a switch and everything below it. `gutter`: the column of its cable, past the lines above its own."""
    centre = left + node.width / 2
    if node.name:
        switch = campus.switch_by_name[node.name]
        nodes[node.name] = {
            "x": centre - BOX[0] / 2,
            "y": top,
            "w": BOX[0],
            "h": BOX[1],
            "kind": "switch",
            "tier": switch.tier.value,
            "building": switch.building or "",
            "gutter": gutter,
        }
    x = left
    if node.hosts:
        start = left if node.lines else left + (node.width - node.grid_width) / 2
        for n, host in enumerate(node.hosts):
            nodes[host.name] = {
                "x": start + GAP / 2 + n % node.columns * (node.chip[0] + GAP),
                "y": top + BOX[1] + (30.0 if node.chip is CHIP else 12.0) + n // node.columns * (node.chip[1] + GAP),
                "w": node.chip[0],
                "h": node.chip[1],
                "kind": "host",
                "role": host.role.value,
                "building": host.building,
                "gpus": host.gpus,
                "model": host.gpu_model or "",
                "address": str(host.address),
            }
        x += node.grid_width + SIBLINGS
    elif node.lines:
        x += (node.width - node.below_width) / 2
    y = top
    for number, line in enumerate(node.lines):
        at = x
        for child in line:
            _place(child, at, y + LEVEL, campus, nodes, at - SIBLINGS / 2 if number else None)
            at += child.width + SIBLINGS
        y += LEVEL - BOX[1] + max(child.height for child in line)
