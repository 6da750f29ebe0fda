"""A campus as a graph for other programs: Mermaid's text, and draw.io's XML in the places of the project's own maps."""

from __future__ import annotations

from xml.etree import ElementTree

from experiments.results.campus_layout import layout
from topologies.dimension import Dimension
from topologies.spec import Campus, Host, Link, Switch

WIDER = 1.5  # than on the maps, whose words are smaller
NODE, CABLE = "html=0;whiteSpace=wrap;rounded={};fillColor={};strokeColor=#1b2330;", "endArrow=none;html=0;fontSize=10;"
SWITCH, HOST = NODE.format(0, "#dce6f2"), NODE.format(1, "#ffffff")


def mermaid(campus: Campus) -> str:
    """Return a flow chart: a box a building, a line a cable with its rate."""
    lines = ["flowchart TD"]
    nodes: tuple[Host | Switch, ...] = (*campus.switches, *campus.hosts)
    for building in (None, *(each.name for each in campus.buildings)):
        inside = [node for node in nodes if node.building == building]
        if building is not None and inside:
            lines.append(f'    subgraph in_{building}["{building}"]')
        # an id of its own: Mermaid ends at a node that is called `end`
        lines += [f"        n_{node.name}{_shape(node)}" for node in inside]
        if building is not None and inside:
            lines.append("    end")
    lines += [f'    n_{link.a} ---|"{_rate(link)}"| n_{link.b}' for link in campus.links]
    return "\n".join(lines) + "\n"


def drawio(campus: Campus) -> str:
    """Return a drawing that draw.io and its kin open: nodes where the project's maps have them, cables between them."""
    file = ElementTree.Element("mxfile")
    model = ElementTree.SubElement(ElementTree.SubElement(file, "diagram", name=campus.name), "mxGraphModel")
    root = ElementTree.SubElement(model, "root")
    for above in ({"id": "0"}, {"id": "1", "parent": "0"}):
        ElementTree.SubElement(root, "mxCell", above)

    def cell(name: str, text: str, style: str, geometry: dict[str, str], **kind: str) -> None:
        own = {"id": name, "value": text, "style": style, "parent": "1", **kind}
        ElementTree.SubElement(
            ElementTree.SubElement(root, "mxCell", own), "mxGeometry", {**geometry, "as": "geometry"}
        )

    places = layout(campus)["nodes"]
    nodes: tuple[Host | Switch, ...] = (*campus.switches, *campus.hosts)
    for node in nodes:
        place = places[node.name]
        sides = {
            long: f"{WIDER * place[short]:g}" for long, short in zip(("x", "y", "width", "height"), "xywh", strict=True)
        }
        cell(f"n-{node.name}", "\n".join(_words(node)), SWITCH if isinstance(node, Switch) else HOST, sides, vertex="1")
    for number, link in enumerate(campus.links):
        ends = {"source": f"n-{link.a}", "target": f"n-{link.b}"}
        cell(f"l-{number}", _rate(link), CABLE, {"relative": "1"}, edge="1", **ends)
    ElementTree.indent(file)
    return ElementTree.tostring(file, encoding="unicode") + "\n"


def _words(node: Host | Switch) -> list[str]:
    """Return a node's name, and its GPUs."""
    if isinstance(node, Switch):
        return [node.name]
    return [node.name, f"{node.gpus} x {node.gpu_model}" if node.gpus else node.role.value.replace("_", " ")]


def _shape(node: Host | Switch) -> str:
    text = "<br/>".join(_words(node)).replace('"', "#quot;")
    return f'["{text}"]' if isinstance(node, Switch) else f'(["{text}"])'


def _rate(link: Link) -> str:
    return Dimension.RATE.units.text(link.rate_bytes_per_s)
