"""Campus files: exact to round-trip, and every mistake named."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topologies.files import dumps, examples, load, loads
from topologies.presets import campus54, three_tier
from topologies.spec import Campus, ResearchReserve


@pytest.mark.parametrize("campus", [campus54(), three_tier(40, 3, 2), three_tier(1, 1)])
def test_a_campus_survives_a_file_exactly(campus: Campus, tmp_path: Path) -> None:
    file = tmp_path / "campus.toml"
    file.write_text(dumps(campus))
    assert load(file) == campus


@given(
    st.integers(1, 30),
    st.floats(1e-3, 1e12),
    st.floats(0.0, 10.0),
    st.floats(0.0, 0.999),
    st.floats(0.0, 1.0),
    st.text(
        st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp", "Cn", "Cf", "Co", "Zs"]),
        min_size=1,
        max_size=20,
    ),
)
def test_any_numbers_and_names_survive_to_the_last_bit(
    hosts: int, rate: float, delay: float, loss: float, beta: float, name: str
) -> None:
    from dataclasses import replace

    campus = three_tier(
        hosts, 1, 1, access_bytes_per_s=rate, reserve=ResearchReserve(beta, rate / 3, loss), name=name
    )
    links = tuple(replace(link, delay_s=delay, loss=loss) for link in campus.links)
    models = tuple(replace(model, name=f'{name[:9]}"{model.name}\\') for model in campus.gpu_models)
    hosts_ = tuple(replace(h, gpu_model=h.gpu_model and f'{name[:9]}"{h.gpu_model}\\') for h in campus.hosts)
    campus = replace(campus, links=links, gpu_models=models, hosts=hosts_)
    assert loads(dumps(campus)) == campus


def test_the_examples_load_and_campus54_is_the_one_of_the_paper() -> None:
    assert {"campus54", "lab", "twohouses"} <= set(examples())
    for name in examples():
        assert load(f"example:{name}").hosts
    written, built = load("example:campus54"), campus54()
    assert written.hosts == built.hosts
    assert set(written.links) == set(built.links)
    assert set(written.switches) == set(built.switches)


def test_groups_and_left_out_addresses_are_expanded() -> None:
    lab = load("example:lab")
    assert [h.name for h in lab.hosts][:4] == ["desk1", "desk2", "desk3", "desk4"]
    assert [str(h.address) for h in lab.hosts][:2] == ["10.1.0.1", "10.1.0.2"]
    assert lab.access_link("desk4").b == "desks"
