"""Networks of others, in GraphML."""

from pathlib import Path

import pytest

from testbed.emulation.description.openflow import topology_of
from testbed.emulation.description.plan import plan
from topologies import files
from topologies.errors import SpecError
from topologies.spec import Fabric
from topologies.units import GBIT_PER_S

# the ring of the Zoo's Abilene, with its keys, a parallel edge and a loop added
ABILENE = """<?xml version="1.0" encoding="utf-8"?><graphml xmlns="http://graphml.graphdrawing.org/xmlns">
<key attr.name="LinkSpeedRaw" attr.type="double" for="edge" id="d1" />
<key attr.name="label" attr.type="string" for="node" id="d2" />
<graph edgedefault="undirected">{nodes}{edges}</graph></graphml>"""
DEFAULT = '<key attr.name="LinkSpeedRaw" attr.type="double" for="edge" id="d1"><default>1e10</default></key>'
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


def test_a_default_of_the_file_is_the_rate_of_edges_without_one(tmp_path: Path) -> None:
    path = written(tmp_path, edge(0, 1) + edge(1, 2, "2e9"), "".join(f'<node id="{n}"/>' for n in range(3)))
    text = path.read_text()
    path = path.with_suffix(".GraphML")  # as networks of others are called, too
    path.write_text(text.replace('<key attr.name="LinkSpeedRaw" attr.type="double" for="edge" id="d1" />', DEFAULT))
    rates = [link.rate_bytes_per_s / GBIT_PER_S for link in files.load(path).links]
    assert rates[:2] == [10.0, 2.0]


def test_what_is_cut_off_has_the_names_of_the_file(tmp_path: Path) -> None:
    with pytest.raises(
        SpecError, match=r"\['10 \(city 10\)', '2 \(city 2\)'\].*cut off from 0 \(city 0\): 2 of 11 nodes"
    ):
        files.load(
            written(
                tmp_path, "".join(edge(a, b) for a, b in RING if {a, b}.isdisjoint({2, 10})) + edge(1, 3) + edge(0, 8)
            )
        )


@pytest.mark.parametrize(("name", "text"), [("Abilene.gml", b"graph [\n"), ("Abilene.graphml.gz", b"\x1f\x8b\xff")])
def test_another_form_of_a_network_is_refused_with_the_forms_that_are_read(
    name: str, text: bytes, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(text)
    with pytest.raises(SpecError, match=r"a campus file \(TOML, or GraphML if its name ends in \.graphml\)"):
        files.load(tmp_path / name)
