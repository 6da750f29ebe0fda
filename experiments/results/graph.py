"""A campus as a graph for other programs: Mermaid's text, and draw.io's XML in the places of the project's own maps."""

from __future__ import annotations

from xml.etree import ElementTree

from experiments.results.campus_layout import layout
from topologies.dimension import Dimension
from topologies.spec import Campus, Host, Link

WIDER = 1.5  # than on the maps, whose words are smaller
NODE = "whiteSpace=wrap;rounded={};fillColor={};strokeColor=#1b2330;"
SWITCH, HOST, CABLE = NODE.format(0, "#dce6f2"), NODE.format(1, "#ffffff"), "endArrow=none;fontSize=10;"


def mermaid(campus: Campus) -> str:
    """Return a flow chart: a box a building, a line a cable with its rate."""
    lines = ["flowchart TD"]
    for building in (None, *(each.name for each in campus.buildings)):
        # ids of their own: Mermaid ends at a node that is called `end`
        inside = [f'    n_{name}["{"<br/>".join(words)}"]' for name, words, at in _nodes(campus) if at == building]
        lines += inside if building is None else [f'    subgraph in_{building}["{building}"]', *inside, "    end"]
    return "\n".join([*lines, *(f'    n_{link.a} ---|"{_rate(link)}"| n_{link.b}' for link in campus.links)]) + "\n"


def drawio(campus: Campus) -> str:
    """Return a drawing that draw.io and its kin open: nodes where the project's maps have them, cables between them."""
    places, switches = layout(campus)["nodes"], campus.switch_by_name
    cells: list[tuple[dict[str, str], dict[str, str]]] = [({"id": "0"}, {}), ({"id": "1", "parent": "0"}, {})]
    for name, words, _ in _nodes(campus):
        style, place = SWITCH if name in switches else HOST, places[name]
        sides = {side: f"{WIDER * place[side[0]]:g}" for side in ("x", "y", "width", "height")}
        cells.append(({"id": f"n-{name}", "value": "\n".join(words), "style": style, "vertex": "1"}, sides))
    for number, link in enumerate(campus.links):
        ends = {"edge": "1", "source": f"n-{link.a}", "target": f"n-{link.b}"}
        cells.append(({"id": f"l-{number}", "value": _rate(link), "style": CABLE, **ends}, {"relative": "1"}))
    file = ElementTree.Element("mxfile")
    model = ElementTree.SubElement(ElementTree.SubElement(file, "diagram", name=campus.name), "mxGraphModel")
    root = ElementTree.SubElement(model, "root")
    for cell, geometry in cells:
        drawn = ElementTree.SubElement(root, "mxCell", {"parent": "1", **cell} if geometry else cell)
        if geometry:
            ElementTree.SubElement(drawn, "mxGeometry", {**geometry, "as": "geometry"})
    ElementTree.indent(file)
    return ElementTree.tostring(file, encoding="unicode") + "\n"


def _nodes(campus: Campus) -> list[tuple[str, list[str], str | None]]:
    """Return each node's name, the words in its box, and its building."""
    found = [(switch.name, [switch.name], switch.building) for switch in campus.switches]
    return found + [(host.name, [host.name, _gpus(host)], host.building) for host in campus.hosts]


def _gpus(host: Host) -> str:
    model = (host.gpu_model or "").replace('"', "'")
    return f"{host.gpus} x {model}" if host.gpus else host.role.value.replace("_", " ")


def _rate(link: Link) -> str:
    return Dimension.RATE.units.text(link.rate_bytes_per_s)
