"""The campus as a map: cores, buildings, switches, hosts, and how each host spent the run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, log10, sqrt

from markupsafe import Markup

from experiments.results.history import Timed, attempts, end_s
from experiments.results.report.timeline import spans
from experiments.results.run_context import RunContext
from experiments.results.svg import Canvas
from topologies.spec import Campus, Host, Link, Role, Switch, Tier
from topologies.units import format_rate

CHIP_W, CHIP_H, CHIP_GAP = 62.0, 36.0, 6.0
BOX_W, BOX_H, LEVEL = 92.0, 26.0, 74.0
SIBLING_GAP, MARGIN = 22.0, 16.0


@dataclass(frozen=True)
class Use:
    """Seconds that a host was busy (any job on it) and away (with its owner, under notice or silent)."""

    busy_s: float
    away_s: float
    reclaims: int


@dataclass
class MapNode:
    """A switch with its hosts, the switches below it, and the width that all of it needs."""

    switch: Switch
    rate_bytes_per_s: float | None  # of the link upwards
    hosts: list[Host]
    below: list[MapNode]
    access: str  # the rate of its hosts' links

    @property
    def columns(self) -> int:
        """Hosts side by side."""
        return max(1, min(len(self.hosts), ceil(sqrt(len(self.hosts) * 0.8)) + 1))

    @property
    def width(self) -> float:
        """Width of the whole subtree."""
        grid = self.columns * (CHIP_W + CHIP_GAP) if self.hosts else 0.0
        children = sum(child.width for child in self.below) + SIBLING_GAP * max(0, len(self.below) - 1)
        both = SIBLING_GAP if self.hosts and self.below else 0.0
        return max(BOX_W + 10.0, grid + both + children)

    @property
    def height(self) -> float:
        """Height of the whole subtree."""
        rows = ceil(len(self.hosts) / self.columns)
        grid = 30.0 + rows * (CHIP_H + CHIP_GAP) if self.hosts else 0.0
        return BOX_H + max(grid, max((LEVEL - BOX_H + child.height for child in self.below), default=0.0))


def campus_map(facts: Sequence[Timed], context: RunContext) -> Markup:
    """The picture, as SVG: cores side by side, each switch under the first that it hangs on, its other trunks dashed."""
    until_s = end_s(facts, context.ended_at_s)
    busy: dict[str, list[tuple[float, float]]] = {}
    away: dict[str, list[tuple[float, float]]] = {}
    reclaims: dict[str, int] = {}
    for attempt in attempts(facts):
        ended_s = until_s if attempt.ended_s is None else attempt.ended_s
        busy.setdefault(attempt.host, []).append((attempt.dispatched_s, ended_s))
    for span in spans(facts, until_s):
        away.setdefault(span.host, []).append((span.from_s, span.to_s))
        reclaims[span.host] = reclaims.get(span.host, 0) + (span.kind == "closed")
    use = {
        name: Use(_covered(busy.get(name, [])), _covered(away.get(name, [])), reclaims.get(name, 0))
        for name in context.campus.host_by_name
    }
    roots, spare = _forest(context.campus)
    width = sum(root.width for root in roots) + SIBLING_GAP * (len(roots) - 1)
    canvas = Canvas(width + 2 * MARGIN, max(root.height for root in roots) + 2 * MARGIN)
    places: dict[str, tuple[float, float]] = {}
    left = MARGIN
    for root in roots:
        _draw(canvas, root, left, MARGIN, use, max(until_s, 1e-9), places)
        left += root.width + SIBLING_GAP
    for link in spare:
        (x, y), (to_x, to_y) = sorted((places[link.a], places[link.b]), key=lambda place: place[1])
        way = f"M{x + 8:.1f},{y + (BOX_H if y < to_y else 0):.1f}L{to_x + 8:.1f},{to_y:.1f}"
        canvas.add("path", d=way, class_="cable", stroke_width=1.5, stroke_dasharray="5 4")
    size = f"min-width:{min(canvas.width, 1240.0):.0f}px;max-width:{canvas.width:.0f}px"
    return canvas.svg("Map of the campus", "map", size)


def _forest(campus: Campus) -> tuple[list[MapNode], list[Link]]:
    """Trees of switches below each core (or the first switch), breadth first from all cores at once; the trunks besides."""
    switches = campus.switch_by_name
    roots = [s.name for s in campus.switches if s.tier is Tier.CORE] or [campus.switches[0].name]
    above: dict[str, str | None] = dict.fromkeys(roots)
    todo = list(roots)
    for name in todo:  # grows while it is walked
        for neighbour in campus.neighbours[name]:
            if neighbour in switches and neighbour not in above:
                above[neighbour] = name
                todo.append(neighbour)
    nodes: dict[str, MapNode] = {}
    for name in reversed(todo):
        links, parent = campus.neighbours[name], above[name]
        hosts = [campus.host_by_name[n] for n in links if n in campus.host_by_name]
        below = [nodes[n] for n in links if above.get(n) == name]
        rates = [links[host.name].rate_bytes_per_s for host in hosts]
        ends = dict.fromkeys(format_rate(each(rates)) for each in (min, max)) if rates else ()
        rate = links[parent].rate_bytes_per_s if parent else None
        nodes[name] = MapNode(switches[name], rate, hosts, below, " to ".join(ends))
    spare = [
        link
        for link in campus.links
        if {link.a, link.b} <= above.keys() and link.b != above[link.a] and link.a != above[link.b]
    ]
    return [nodes[name] for name in roots], spare


def _covered(some: list[tuple[float, float]]) -> float:
    total, reached = 0.0, 0.0
    for start, end in sorted(some):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total


def _draw(
    canvas: Canvas,
    node: MapNode,
    left: float,
    top: float,
    use: dict[str, Use],
    until_s: float,
    places: dict[str, tuple[float, float]],
) -> None:
    """Draws a subtree, and writes down where the top of each switch's box is."""
    centre = left + node.width / 2
    places[node.switch.name] = centre, top
    x = left
    if node.hosts:
        _hosts(canvas, node, x, top, centre, use, until_s)
        x += node.columns * (CHIP_W + CHIP_GAP) + SIBLING_GAP
    elif node.below:
        used = sum(c.width for c in node.below) + SIBLING_GAP * (len(node.below) - 1)
        x += (node.width - used) / 2
    for child in node.below:
        end = (x + child.width / 2, top + LEVEL)
        rate, middle = child.rate_bytes_per_s or 0.0, (top + BOX_H + end[1]) / 2
        thick = max(1.5, min(6.0, 1.5 * (log10(max(rate, 1.0)) - 5.5)))
        way = f"M{centre:.1f},{top + BOX_H:.1f}V{middle - 8:.1f}H{end[0]:.1f}V{end[1]:.1f}"
        canvas.add("path", d=way, class_="cable", stroke_width=thick)
        canvas.text(end[0] + 6, end[1] - 8, format_rate(rate), class_="rate")
        _draw(canvas, child, x, top + LEVEL, use, until_s, places)
        x += child.width + SIBLING_GAP
    canvas.rect(centre - BOX_W / 2, top, BOX_W, BOX_H, rx=6, class_=f"switch {node.switch.tier}")
    switch = node.switch
    of_building = switch.tier is Tier.DISTRIBUTION and switch.building not in (None, switch.name)
    name = f"{switch.name} · {switch.building}" if of_building else switch.name
    canvas.text(centre, top + 17, name, class_="switch-name", text_anchor="middle")


def _hosts(
    canvas: Canvas, node: MapNode, left: float, top: float, centre: float, use: dict[str, Use], until_s: float
) -> None:
    grid = node.columns * (CHIP_W + CHIP_GAP)
    start = left if node.below else left + (node.width - grid) / 2
    first = top + BOX_H + 30.0
    canvas.add(
        "path",
        d=f"M{centre:.1f},{top + BOX_H:.1f}V{first - 16:.1f}H{start + grid / 2:.1f}V{first - 4:.1f}",
        class_="cable",
        stroke_width=1.5,
    )
    canvas.text(centre + 6, top + BOX_H + 11, node.access, class_="rate")
    for n, host in enumerate(node.hosts):
        column, row = n % node.columns, n // node.columns
        x = start + CHIP_GAP / 2 + column * (CHIP_W + CHIP_GAP)
        y = first + row * (CHIP_H + CHIP_GAP)
        is_coordinator, spent = host.role is Role.COORDINATOR, use[host.name]
        busy, away = min(1.0, spent.busy_s / until_s), min(1.0, spent.away_s / until_s)
        tip, small = f"{host.name} ({host.address})\ncoordinator", "control"
        if not is_coordinator:
            shares = f"busy {busy:.0%} of the time, away {away:.0%}, {spent.reclaims} reclaims"
            tip = f"{host.name} ({host.address})\n{host.gpus} x {host.gpu_model}\n{shares}"
            unit = "slots" if host.role is Role.ON_DEMAND else "GPU" if host.gpus == 1 else "GPUs"
            small = f"{host.gpus} {unit}"
        canvas.rect(x, y, CHIP_W, CHIP_H, rx=5, class_=f"chip {host.role}", data_tip=tip)
        canvas.text(x + 7, y + 15, host.name, class_="chip-name")
        canvas.text(x + 7, y + 26, small, class_="chip-gpus")
        if not is_coordinator:
            inner, bar_y = CHIP_W - 10, y + CHIP_H - 6
            canvas.rect(x + 5, bar_y, inner, 3, class_="use")
            canvas.rect(x + 5, bar_y, inner * busy, 3, class_="use busy")
            canvas.rect(x + 5 + inner * (1 - away), bar_y, inner * away, 3, class_="use away")
