"""The campus as a map: cores, buildings, switches, hosts, and how each host spent the run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, log10

from markupsafe import Markup

from experiments.results.campus_layout import Row, layout
from experiments.results.history import Timed, attempts, end_s
from experiments.results.report.timeline import spans
from experiments.results.run_context import RunContext
from experiments.results.svg import Canvas
from topologies.spec import Campus, Host, Role, Switch, Tier
from topologies.units import format_rate

RATE = 36.0  # for the words of a rate beside the last cable


@dataclass(frozen=True)
class Use:
    """Shares of the run in which a host was busy (any job on it) and away (with its owner, under notice or silent)."""

    busy: float
    away: float
    reclaims: int


def campus_map(facts: Sequence[Timed], context: RunContext) -> Markup:
    """Return the picture, as SVG; trunks beside the tree are dashed."""
    campus, drawn = context.campus, layout(context.campus, small_above=inf)
    canvas, nodes = Canvas(drawn["width"] + RATE, drawn["height"]), drawn["nodes"]
    for link in drawn["links"]:
        if link["a"] in campus.switch_by_name and link["b"] in campus.switch_by_name:
            upper, lower = sorted((nodes[link["a"]], nodes[link["b"]]), key=lambda node: float(node["y"]))
            _trunk(canvas, upper, lower, link)
    for switch in campus.switches:
        _switch(canvas, switch, nodes[switch.name])
        if hosts := [
            campus.host_by_name[n] for n in campus.neighbours[switch.name] if n in campus.host_by_name
        ]:
            _cable_of_hosts(canvas, campus, switch, hosts, nodes)
    for name, spent in _uses(facts, context).items():
        _host(canvas, campus.host_by_name[name], nodes[name], spent)
    size = f"min-width:{min(canvas.width, 1240.0):.0f}px;max-width:{canvas.width:.0f}px"
    return canvas.svg("Map of the campus", "map", size)


def _uses(facts: Sequence[Timed], context: RunContext) -> dict[str, Use]:
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

    def share(some: list[tuple[float, float]]) -> float:
        return min(1.0, _covered(some) / max(until_s, 1e-9))

    return {
        name: Use(share(busy.get(name, [])), share(away.get(name, [])), reclaims.get(name, 0))
        for name in context.campus.host_by_name
    }


def _covered(some: list[tuple[float, float]]) -> float:
    total, reached = 0.0, 0.0
    for start, end in sorted(some):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total


def _trunk(canvas: Canvas, upper: Row, lower: Row, link: Row) -> None:
    """Draw a trunk from the bottom of one switch to the top of another."""
    (x, y), (to_x, to_y) = ((node["x"] + node["w"] / 2, node["y"]) for node in (upper, lower))
    y += upper["h"] if y < to_y else 0.0
    if not link["tree"]:
        way = f"M{x + 8:.1f},{y:.1f}L{to_x + 8:.1f},{to_y:.1f}"
        canvas.add("path", d=way, class_="cable", stroke_width=1.5, stroke_dasharray="5 4")
        return
    thick = max(1.5, min(6.0, 1.5 * (log10(max(link["rate"], 1.0)) - 5.5)))
    way = f"M{x:.1f},{y:.1f}V{(y + to_y) / 2 - 8:.1f}H{to_x:.1f}V{to_y:.1f}"
    canvas.add("path", d=way, class_="cable", stroke_width=thick)
    canvas.text(to_x + 6, to_y - 8, format_rate(link["rate"]), class_="rate")


def _switch(canvas: Canvas, switch: Switch, node: Row) -> None:
    canvas.rect(node["x"], node["y"], node["w"], node["h"], rx=6, class_=f"switch {switch.tier}")
    of_building = switch.tier is Tier.DISTRIBUTION and switch.building not in (None, switch.name)
    name = f"{switch.name} · {switch.building}" if of_building else switch.name
    canvas.text(node["x"] + node["w"] / 2, node["y"] + 17, name, class_="switch-name", text_anchor="middle")


def _cable_of_hosts(
    canvas: Canvas, campus: Campus, switch: Switch, hosts: Sequence[Host], nodes: dict[str, Row]
) -> None:
    """Draw the cable from a switch to the grid of its hosts, with the rates of their links."""
    node, chips = nodes[switch.name], [nodes[host.name] for host in hosts]
    x, y = node["x"] + node["w"] / 2, node["y"] + node["h"]
    first = min(chip["y"] for chip in chips)
    middle = (min(chip["x"] for chip in chips) + max(chip["x"] + chip["w"] for chip in chips)) / 2
    way = f"M{x:.1f},{y:.1f}V{first - 16:.1f}H{middle:.1f}V{first - 4:.1f}"
    canvas.add("path", d=way, class_="cable", stroke_width=1.5)
    rates = [campus.neighbours[switch.name][host.name].rate_bytes_per_s for host in hosts]
    ends = dict.fromkeys(format_rate(each(rates)) for each in (min, max))
    canvas.text(x + 6, y + 11, " to ".join(ends), class_="rate")


def _host(canvas: Canvas, host: Host, node: Row, spent: Use) -> None:
    x, y, width, height = (node[key] for key in "xywh")
    tip, small = f"{host.name} ({host.address})\ncoordinator", "control"
    if host.role is not Role.COORDINATOR:
        shares = f"busy {spent.busy:.0%} of the time, away {spent.away:.0%}, {spent.reclaims} reclaims"
        tip = f"{host.name} ({host.address})\n{host.gpus} x {host.gpu_model}\n{shares}"
        unit = "slots" if host.role is Role.ON_DEMAND else "GPU" if host.gpus == 1 else "GPUs"
        small = f"{host.gpus} {unit}"
    canvas.rect(x, y, width, height, rx=5, class_=f"chip {host.role}", data_tip=tip)
    canvas.text(x + 7, y + 15, host.name, class_="chip-name")
    canvas.text(x + 7, y + 26, small, class_="chip-gpus")
    if host.role is not Role.COORDINATOR:
        inner, bar_y = width - 10, y + height - 6
        canvas.rect(x + 5, bar_y, inner, 3, class_="use")
        canvas.rect(x + 5, bar_y, inner * spent.busy, 3, class_="use busy")
        canvas.rect(x + 5 + inner * (1 - spent.away), bar_y, inner * spent.away, 3, class_="use away")
