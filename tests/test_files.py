"""Campus files: exact to round-trip, and every mistake named."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topologies.errors import SpecError
from topologies.files import dumps, examples, load, loads
from topologies.presets import campus54, three_tier
from topologies.spec import Campus, ResearchReserve

GOOD = """
name = "tiny"
buildings = ["b"]
[gpu_models.m]
memory = "24 GB"
compute_capability = 8.6
[[switches]]
name = "core"
tier = "core"
[[hosts]]
name = "c"
role = "coordinator"
building = "b"
link_to = "core"
rate = "1 Gbit/s"
[[hosts]]
name = "h1"
building = "b"
gpu_model = "m"
link_to = "core"
rate = "1 Gbit/s"
"""


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


WRONG = {
    "unknown key": (
        GOOD.replace("gpu_model =", "gpu_modell ="),
        "hosts.h1.gpu_model",
        "there is 'gpu_modell'",
    ),
    "unknown host key": (
        GOOD.replace('name = "h1"', 'name = "h1"\nadress = "10.0.0.1"'),
        "hosts.h1.adress",
        "nearest: address",
    ),
    "unknown section": (GOOD + "[research]\nx = 1\n", "research", "allowed here"),
    "unknown role": (GOOD.replace('"coordinator"', '"coordinater"'), "hosts.c.role", "nearest: coordinator"),
    "unknown building": (
        GOOD.replace('building = "b"\nlink', 'building = "x"\nlink', 1),
        "hosts.c.building",
        "one of b",
    ),
    "unknown tier": (
        GOOD.replace('tier = "core"', 'tier = "kern"'),
        "switches.core.tier",
        "access, distribution",
    ),
    "unknown GPU": (GOOD.replace('gpu_model = "m"', 'gpu_model = "x"'), "hosts.h1.gpu_model", "'m'"),
    "rate without unit": (GOOD.replace('"1 Gbit/s"', "1000", 1), "hosts.c.rate", "with its unit"),
    "bad unit": (GOOD.replace('"1 Gbit/s"', '"1 Gb/s"', 1), "hosts.c.rate", "10 Gbit/s"),
    "zero rate": (GOOD.replace('"1 Gbit/s"', '"0 Gbit/s"', 1), "links.c-core.rate", "greater than 0"),
    "missing rate": (GOOD.replace('rate = "1 Gbit/s"', "", 1), "hosts.c.rate", "needed"),
    "misspelt needed key": (GOOD.replace("rate =", "rates =", 1), "hosts.c.rate", "there is 'rates'"),
    "missing name": (GOOD.replace('name = "tiny"', ""), "name", "needed"),
    "missing buildings": (GOOD.replace('buildings = ["b"]', ""), "buildings", "needed"),
    "buildings not texts": (GOOD.replace('["b"]', "[1]"), "buildings", "names of the buildings"),
    "missing hosts": (GOOD.partition("[[hosts]]")[0], "hosts", "at least one host"),
    "text for a number": (GOOD.replace("8.6", '"8.6"'), "gpu_models.m.compute_capability", "8.6"),
    "nan": (GOOD.replace("8.6", "nan"), "gpu_models.m.compute_capability", "8.6"),
    "true for a number": (GOOD.replace("8.6", "true"), "gpu_models.m.compute_capability", "8.6"),
    "huge integer": (GOOD.replace("8.6", "9" * 4000), "gpu_models.m.compute_capability", "8.6"),
    "huge hexadecimal": (GOOD.replace("8.6", "0x" + "f" * 9000), "gpu_models.m.compute_capability", "8.6"),
    "too many digits": (GOOD.replace("8.6", "9" * 5000), "line", "TOML"),
    "gpus true": (GOOD.replace('name = "h1"', 'name = "h1"\ngpus = true'), "hosts.h1.gpus", "whole number"),
    "gpus fraction": (
        GOOD.replace('name = "h1"', 'name = "h1"\ngpus = 1.5'),
        "hosts.h1.gpus",
        "whole number",
    ),
    "gpus many": (GOOD.replace('name = "h1"', 'name = "h1"\ngpus = 2000'), "hosts.h1.gpus", "1024"),
    "gpus none": (GOOD.replace('name = "h1"', 'name = "h1"\ngpus = 0'), "hosts.h1.gpus", "1 to 1024"),
    "bad name": (GOOD.replace('"h1"', '"Host 1"'), "hosts", "lower-case"),
    "no name": (GOOD.replace('name = "h1"\n', ""), "hosts #2.name", "needed"),
    "bad address": (
        GOOD.replace('name = "h1"', 'name = "h1"\naddress = "10.0.0"'),
        "hosts.h1.address",
        "IPv4",
    ),
    "foreign address": (
        GOOD.replace('name = "h1"', 'name = "h1"\naddress = "8.8.8.8"'),
        "hosts.h1.address",
        "10.0.0.0/8",
    ),
    "address a number": (
        GOOD.replace('name = "h1"', 'name = "h1"\naddress = 10'),
        "hosts.h1.address",
        "IPv4",
    ),
    "duplicate host": (GOOD + GOOD[GOOD.rindex("[[hosts]]") :], "hosts", "only once"),
    "duplicate key": (GOOD.replace('name = "h1"', 'name = "h1"\nname = "h2"'), "line", "TOML"),
    "host not a table": ("hosts = [1]\n" + GOOD.partition("[[hosts]]")[0], "hosts #1", "a table"),
    "hosts not a list": ("hosts = 3\n" + GOOD.partition("[[hosts]]")[0], "hosts", "list of tables"),
    "gpu_models not a table": (
        "gpu_models = 3\n" + GOOD.replace("[gpu_models.m]", "[x]"),
        "gpu_models",
        "a table",
    ),
    "loop": (GOOD + '[[links]]\nbetween = ["h1", "core"]\nrate = "1 Gbit/s"\n', "links.h1-core", "tree"),
    "self link": (
        GOOD + '[[links]]\nbetween = ["h1", "h1"]\nrate = "1 Gbit/s"\n',
        "links.h1-h1",
        "different",
    ),
    "three ends": (
        GOOD + '[[links]]\nbetween = ["a", "b", "c"]\nrate = "1 Gbit/s"\n',
        "links #1.between",
        "two names",
    ),
    "dangling link": (
        GOOD.replace('link_to = "core"', 'link_to = "cor"', 1),
        "links.c-cor",
        "name of a host or a switch",
    ),
    "unreachable host": (GOOD.replace('link_to = "core"\nrate = "1 Gbit/s"\n', "", 1), "links", "cut off"),
    "two coordinators": (
        GOOD.replace('name = "h1"', 'name = "h1"\nrole = "coordinator"').replace('gpu_model = "m"', ""),
        "hosts.*.role",
        "exactly one",
    ),
    "coordinator with GPU": (
        GOOD.replace('role = "coordinator"', 'role = "coordinator"\ngpus = 2'),
        "hosts.c.gpus",
        "no GPUs",
    ),
    "most lost": (
        GOOD + "[research_reserve]\nmost_lost = -0.1\n",
        "research_reserve.most_lost",
        "0 to 1",
    ),
    "beta 2": (GOOD + "[research_reserve]\nbeta = 2\n", "research_reserve.beta", "0 to 1"),
    "loss 1": (
        GOOD.replace('rate = "1 Gbit/s"', 'rate = "1 Gbit/s"\nloss = 1', 1),
        "links.c-core.loss",
        "less than 1",
    ),
    "negative delay": (
        GOOD.replace('rate = "1 Gbit/s"', 'rate = "1 Gbit/s"\ndelay = "-1 s"', 1),
        "hosts.c.delay",
        "duration",
    ),
    "group without switch": (
        GOOD + '[[groups]]\nprefix = "x"\ncount = 2\nbuilding = "b"\ngpu_model = "m"\n',
        "groups #1.link_to",
        "needed",
    ),
    "group of none": (
        GOOD + '[[groups]]\nprefix = "x"\ncount = 0\nbuilding = "b"\nlink_to = "core"\n',
        "groups #1.count",
        "1 to",
    ),
    "bad TOML": (GOOD + "rate '1'\n", "line 22", "TOML"),
    "unclosed": (GOOD + "x = [1,\n", "line", "TOML"),
    "nested": ("a = " + "[" * 5000, "TOML", "nested"),
    "empty": ("", "name", "needed"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_file_says_key_and_what_is_allowed(case: str) -> None:
    text, key, allowed = WRONG[case]
    with pytest.raises(SpecError) as caught:
        loads(text, "mine.toml")
    assert caught.value.key.startswith(key), caught.value
    assert allowed in caught.value.allowed, caught.value
    assert str(caught.value).startswith("mine.toml: ")
    assert len(str(caught.value)) < 600


def test_a_syntax_error_shows_the_line() -> None:
    with pytest.raises(SpecError) as caught:
        loads('name = "x"\nrate "1 Gbit/s"\n', "mine.toml")
    assert caught.value.key == "line 2"
    assert caught.value.value == 'rate "1 Gbit/s"'


def test_what_is_no_readable_text_file_is_refused(tmp_path: Path) -> None:
    binary, huge = tmp_path / "binary.toml", tmp_path / "huge.toml"
    binary.write_bytes(b'name = "x"\n\xff\xfe\x00')
    huge.write_bytes(b"#" * (9 << 20))
    loop = tmp_path / "loop.toml"
    loop.symlink_to(loop)
    os.mkfifo(tmp_path / "pipe.toml")
    cases = {
        binary: "not binary",
        huge: "at most 8 MiB",
        tmp_path: "not a regular file",
        tmp_path / "none.toml": "does not exist",
        tmp_path / "pipe.toml": "not a regular file",
        Path("/dev/zero"): "not a regular file",
        Path("a\0b"): "campus file",
        tmp_path / ("x" * 300): "campus file",
        loop: "campus file",
    }
    for path, message in cases.items():
        with pytest.raises(SpecError) as caught:
            load(path)
        assert message in str(caught.value), (path, caught.value)
        assert path.name in str(caught.value) or "\0" in path.name


@given(st.text(max_size=200) | st.binary(max_size=200).map(lambda b: b.decode("latin-1")))
def test_noise_raises_nothing_but_spec_errors(text: str) -> None:
    with pytest.raises(SpecError):
        loads(text)


json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
KEYS = ["name", "buildings", "hosts", "switches", "links", "groups", "gpu_models", "research_reserve"]


@given(st.sampled_from(KEYS), json_like)
def test_any_value_in_any_section_raises_nothing_but_spec_errors(key: str, value: object) -> None:
    import tomllib

    from topologies.files import campus_of
    from topologies.tables import Table

    document = {**tomllib.loads(GOOD), key: value}
    try:
        campus_of(Table(document))
    except SpecError as error:
        assert str(error)
