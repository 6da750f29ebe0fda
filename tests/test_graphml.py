"""Networks of others, in GraphML."""

from pathlib import Path

import pytest

from testbed.emulation.description.openflow import topology_of
from testbed.emulation.description.plan import plan
from topologies import files
from topologies.spec import Fabric
from topologies.units import GBIT_PER_S

# the ring of the Zoo's Abilene, with its keys, a parallel edge and a loop added
ABILENE = """<?xml version="1.0" encoding="utf-8"?><graphml xmlns="http://graphml.graphdrawing.org/xmlns">
<key attr.name="LinkSpeedRaw" attr.type="double" for="edge" id="d1" />
<key attr.name="label" attr.type="string" for="node" id="d2" />
<graph edgedefault="undirected">{nodes}{edges}</graph></graphml>"""
NODES = "".join(f'<node id="{n}"><data key="d2">city {n}</data></node>' for n in range(11))
RING = [
    (0, 1),
    (0, 2),
    (1, 10),
    (2, 9),
    (3, 4),
    (3, 6),
    (4, 5),
    (4, 6),
    (5, 8),
    (6, 7),
    (7, 8),
    (7, 10),
    (8, 9),
    (9, 10),
]


def written(tmp_path: Path, edges: str, nodes: str = NODES) -> Path:
    path = tmp_path / "Abilene.graphml"
    path.write_text(ABILENE.format(nodes=nodes, edges=edges))
    return path


def edge(a: int, b: int, bits_per_s: str | None = None) -> str:
    speed = f'<data key="d1">{bits_per_s}</data>' if bits_per_s else ""
    return f'<edge source="{a}" target="{b}">{speed}</edge>'


def test_a_network_of_the_zoo_is_a_campus_of_several_paths(tmp_path: Path) -> None:
    edges = "".join(edge(a, b, "1e10") for a, b in RING) + edge(0, 1, "1e10") + edge(3, 3)
    campus = files.load(written(tmp_path, edges))
    assert (campus.name, campus.fabric, len(campus.switches), len(campus.hosts)) == (
        "Abilene",
        Fabric.OPENVSWITCH,
        11,
        12,
    )
    trunks = {
        frozenset((link.a, link.b)): link.rate_bytes_per_s for link in campus.links if link.b in campus.switch_by_name
    }
    trunks = {ends: rate for ends, rate in trunks.items() if ends <= campus.switch_by_name.keys()}
    assert len(trunks) == len(RING)
    assert trunks[frozenset(("s1", "s2"))] == pytest.approx(20 * GBIT_PER_S)
    assert trunks[frozenset(("s1", "s3"))] == pytest.approx(10 * GBIT_PER_S)
    topology = topology_of(plan(campus))
    assert len(topology.switches) == 11
    assert len(topology.stations) == 12


def test_both_directions_of_a_directed_graph_are_one_trunk(tmp_path: Path) -> None:
    edges = "".join(edge(a, b, rate) for a, b in RING for a, b, rate in ((a, b, "1e9"), (b, a, "2e9")))
    path = written(tmp_path, edges)
    path.write_text(path.read_text().replace("undirected", "directed"))
    campus = files.load(path)
    trunks = [link for link in campus.links if {link.a, link.b} <= campus.switch_by_name.keys()]
    assert len(trunks) == len(RING)
    assert {link.rate_bytes_per_s for link in trunks} == {2 * GBIT_PER_S}
