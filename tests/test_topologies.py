"""A campus that exists is a tree that can be built."""

import ipaddress
import itertools
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import topologies.spec as spec
from experiments.inputs.scenario import demo_scenario
from topologies.dimension import Dimension
from topologies.errors import SpecError
from topologies.files import campus54, dumps, examples, load, loads
from topologies.paths import Routes
from topologies.presets import PAPER_MIX, RTX3090, GpuShare, three_tier
from topologies.scale import Scale
from topologies.spec import MAX_PORTS, Host, Link, ResearchReserve, Role, Tier

SMALL = three_tier(4, 2)
HERE = ipaddress.IPv4Address("10.0.0.1")
TWIN = replace(SMALL.hosts[0], name="twin")


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda: replace(SMALL, links=tuple(link for link in SMALL.links if link.a != "h3")), "h3"),
        (lambda: replace(SMALL, hosts=(*SMALL.hosts, SMALL.hosts[0])), "each only once"),
        (lambda: replace(SMALL, hosts=(*SMALL.hosts, TWIN)), "each only once"),  # its address
        (lambda: replace(SMALL, hosts=tuple(SMALL.hosts_of(Role.VOLUNTEER))), "exactly one"),
        (lambda: three_tier(1100, 1, hosts_per_access=1100), "1022"),
        (lambda: Host("c", "b", Role.COORDINATOR, HERE, "m", 1), "coordinator has no GPUs"),
        (lambda: Host("h", "b", Role.VOLUNTEER, HERE, "m", 0), "1 to 1024"),
        (lambda: Host("h", "b", Role.VOLUNTEER, ipaddress.IPv4Address("192.168.0.1"), "m", 1), r"10\.0\.0\.0/8"),
        (lambda: ResearchReserve(most_lost=1.1), "most_lost"),
        *((lambda rate=rate: Link("a", "b", rate), "greater than 0") for rate in (0.0, -1.0, float("nan"), float("inf"))),
    ],
)  # fmt: skip
def test_what_no_campus_has_is_refused(made: Callable[[], object], said: str) -> None:
    with pytest.raises(SpecError, match=said):
        made()


def test_the_reserve_never_exceeds_the_link() -> None:
    reserve = ResearchReserve(beta=0.3, minimum_bytes_per_s=50.0)
    assert reserve.reserve_bytes_per_s(1000.0) == 300.0
    assert reserve.reserve_bytes_per_s(100.0) == 50.0
    assert reserve.migration_share_bytes_per_s(20.0) == 0.0


def test_what_is_kept_of_a_link_is_the_reserve_or_nearly_all_that_research_asks_for() -> None:
    reserve = ResearchReserve(beta=0.3, most_lost=0.1)
    asked_and_kept = {0.0: 30.0, 33.0: 30.0, 50.0: 45.0, 100.0: 90.0, 1e9: 90.0}
    for asked, kept in asked_and_kept.items():
        assert reserve.kept_bytes_per_s(100.0, asked) == pytest.approx(kept)
    assert replace(reserve, most_lost=0.71).kept_bytes_per_s(100.0, 100.0) == pytest.approx(30.0)


def test_an_error_says_where_what_and_what_is_allowed() -> None:
    error = SpecError("hosts.h3.gpus", 0, "1 or more").within("lab.toml")
    assert str(error) == "lab.toml: hosts.h3.gpus = 0: 1 or more"


# ---------------------------------------------------------------- human units
@given(st.floats(min_value=0.0, max_value=1e300))
def test_exact_texts_are_read_back_to_the_same_float(value: float) -> None:
    assert Dimension.RATE.units.parse(Dimension.RATE.units.text(value)) == value
    assert Dimension.SIZE.units.parse(Dimension.SIZE.units.text(value)) == value
    assert Dimension.DURATION.units.parse(Dimension.DURATION.units.text(value)) == value


@given(st.floats(min_value=1e-200, max_value=1e200))
def test_exact_hazards_are_read_back_to_the_same_float(value: float) -> None:
    assert Dimension.PER_TIME.units.parse(Dimension.PER_TIME.units.text(value)) == value


@pytest.mark.parametrize(
    ("text", "value"), [("1 Gbit/s", 125e6), ("12.5 MB/s", 12.5e6), ("8 bit/s", 1.0), ("1e3kbit/s", 125e3)]
)
def test_rates_are_bits_or_bytes_as_written(text: str, value: float) -> None:
    assert Dimension.RATE.units.parse(text) == value


def test_round_values_are_written_as_people_do() -> None:
    assert Dimension.RATE.units.text(125e6) == "1 Gbit/s"
    assert Dimension.RATE.units.text(25e6) == "200 Mbit/s"
    assert Dimension.SIZE.units.text(24e9) == "24 GB"
    assert Dimension.DURATION.units.text(200e-6) == "200 us"
    assert Dimension.PER_TIME.units.text(0.99 / 3600) == "0.99 /h"


@pytest.mark.parametrize("text", ["", "1", "1 Gb/s", "-1 Mbit/s", "1e999 Gbit/s", "nan bit/s", "١ Mbit/s", "inf"])
def test_other_texts_are_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="a rate such as"):
        Dimension.RATE.units.parse(text)


# ---------------------------------------------------------------- campuses that need no file
def test_campus54_has_the_machines_of_the_paper() -> None:
    campus = campus54()
    found = Counter((h.gpu_model, h.gpus) for h in campus.hosts_of(Role.VOLUNTEER))
    assert found == {("rtx3090", 1): 20, ("rtx4090", 1): 15, ("a100", 4): 8, ("a6000", 2): 10}
    assert len(campus.hosts) == 54
    assert len(campus.buildings) == 4
    assert campus.research_reserve.beta == 0.3


def test_campus54_has_the_tiers_of_the_paper() -> None:
    campus = campus54()
    tier = {switch.name: switch.tier for switch in campus.switches}
    rates: dict[object, set[float]] = {}
    for link in campus.links:
        rates.setdefault((tier.get(link.a), tier.get(link.b)), set()).add(link.rate_bytes_per_s * 8 / 1e9)
    assert rates[None, Tier.ACCESS] == {1.0}
    assert rates[Tier.ACCESS, Tier.DISTRIBUTION] == {1.0, 2.5, 10.0}
    assert rates[Tier.DISTRIBUTION, Tier.CORE] == {10.0}


@pytest.mark.parametrize(
    ("hosts", "buildings", "on_demand"),
    [(1, 1, 0), (5, 3, 2), (12, 3, 2), (500, 4, 5), (2000, 7, 10), (2000, 1, 0), (5000, 357, 0)],
)
def test_three_tier_has_what_was_asked_for(hosts: int, buildings: int, on_demand: int) -> None:
    campus = three_tier(hosts, buildings, on_demand)
    roles = Counter(h.role for h in campus.hosts)
    assert (roles[Role.VOLUNTEER], roles[Role.ON_DEMAND], roles[Role.COORDINATOR]) == (hosts, on_demand, 1)
    spread = Counter(h.building for h in campus.hosts_of(Role.VOLUNTEER))
    assert len(spread) == buildings
    assert max(spread.values()) - min(spread.values()) <= 1
    assert max(len(n) for n in campus.neighbours.values()) <= MAX_PORTS


def test_addresses_tell_the_building() -> None:
    campus = three_tier(1000, 3, 2)
    for host in campus.hosts:
        building = 0 if host.building == "room" else int(host.building[1:])
        assert host.address.packed[1] == building
        assert host.address.packed[3] not in (0, 255)


def test_gpus_are_dealt_in_proportion_in_every_stretch() -> None:
    campus = three_tier(530, 10)
    for building in campus.buildings[:-1]:
        models = Counter(h.gpu_model for h in campus.hosts if h.building == building.name)
        assert all(abs(models[s.model.name] - s.weight) <= 2 for s in PAPER_MIX)


@pytest.mark.parametrize(
    ("key", "arguments"),
    [
        ("hosts", {"hosts": 0}),
        ("hosts", {"hosts": 100_001}),
        ("hosts", {"hosts": 2.5}),
        ("hosts", {"hosts": True}),
        ("buildings", {"hosts": 3, "buildings": 4}),
        ("buildings", {"hosts": 3, "buildings": 0}),
        ("on_demand", {"hosts": 3, "buildings": 1, "on_demand": -1}),
        ("hosts_per_access", {"hosts": 3, "buildings": 1, "hosts_per_access": 1023}),
        ("uplink_bytes_per_s", {"hosts": 3, "buildings": 1, "uplink_bytes_per_s": [1e6, 1e6]}),
        ("mix", {"hosts": 3, "buildings": 1, "mix": ()}),
        ("mix", {"hosts": 3, "buildings": 1, "mix": (GpuShare(RTX3090, 1, 0.0),)}),
        ("links.a1-d1.rate", {"hosts": 3, "buildings": 1, "uplink_bytes_per_s": -5.0}),
    ],
)
def test_impossible_arguments_are_named(key: str, arguments: dict[str, object]) -> None:
    with pytest.raises(SpecError) as caught:
        three_tier(**arguments)  # type: ignore[arg-type]
    assert caught.value.key == key


# ---------------------------------------------------------------- one factor for bytes
factors = st.floats(min_value=1e-6, max_value=1e6)
scales = st.builds(Scale, bytes=factors, time=factors)
values = st.floats(min_value=1e-9, max_value=1e12)


@given(scales, values, st.sampled_from(list(Dimension)))
def test_back_undoes_apply(scale: Scale, value: float, dimension: Dimension) -> None:
    assert scale.back(scale.apply(value, dimension), dimension) == pytest.approx(value, rel=1e-12)


@given(scales, values, values, values, values)
def test_ratios_without_dimension_are_invariant(
    scale: Scale, size: float, rate: float, notice: float, hazard: float
) -> None:
    played_size, played_rate = scale.apply(size, Dimension.SIZE), scale.apply(rate, Dimension.RATE)
    played_notice = scale.apply(notice, Dimension.DURATION)
    played_hazard = scale.apply(hazard, Dimension.PER_TIME)
    assert played_size / (played_rate * played_notice) == pytest.approx(size / (rate * notice), rel=1e-9)
    assert played_hazard * played_notice == pytest.approx(hazard * notice, rel=1e-9)
    # Lemma 1's interval is a duration: sqrt(2 C / (lambda b))
    interval_s = (2 * size / (hazard * rate)) ** 0.5
    played_interval_s = (2 * played_size / (played_hazard * played_rate)) ** 0.5
    assert played_interval_s == pytest.approx(scale.apply(interval_s, Dimension.DURATION), rel=1e-9)


@given(scales)
def test_scaling_a_campus_scales_every_rate_delay_and_memory(scale: Scale) -> None:
    campus = three_tier(6, 2, 1, reserve=spec.ResearchReserve(0.3, 1e6))
    slow = spec.Campus(
        **{
            **{f.name: getattr(campus, f.name) for f in fields(campus)},
            "links": tuple(spec.Link(ln.a, ln.b, ln.rate_bytes_per_s, 1e-3, 0.01) for ln in campus.links),
        }
    )
    assume(max(link.rate_bytes_per_s for link in slow.links) * scale.factor(Dimension.RATE) <= 1e12)  # 8 Tbit/s
    played = scale.apply(slow)
    for before, after in zip(slow.links, played.links, strict=True):
        assert after.rate_bytes_per_s == before.rate_bytes_per_s * scale.factor(Dimension.RATE)
        assert after.delay_s == before.delay_s * scale.time
        assert after.loss == before.loss
    assert played.research_reserve.minimum_bytes_per_s == 1e6 * scale.factor(Dimension.RATE)
    assert played.research_reserve.beta == 0.3
    assert played.gpu_models[0].memory_bytes == slow.gpu_models[0].memory_bytes * scale.bytes
    assert played.hosts == slow.hosts


def test_every_number_of_a_campus_and_a_scenario_declares_its_dimension() -> None:
    """No field is forgotten: scaling them all would raise otherwise."""
    for kind in (spec.GpuModel, spec.Link, spec.ResearchReserve):
        for each in fields(kind):
            if each.type in ("float", float):
                assert isinstance(each.metadata.get("dimension"), Dimension), (kind, each.name)
    Scale(0.5, 0.5).apply(demo_scenario())


def test_a_number_without_dimension_is_an_error() -> None:
    @dataclass(frozen=True)
    class Careless:
        speed: float

    with pytest.raises(TypeError, match="speed declares no dimension"):
        Scale(2.0, 2.0).apply(Careless(1.0))
    with pytest.raises(TypeError, match="without a dimension"):
        Scale(2.0, 2.0).apply(3.0)


# ---------------------------------------------------------------- routes over a tree
def test_a_route_to_oneself_is_empty_and_has_no_bottleneck() -> None:
    routes = Routes(three_tier(2, 1))
    assert routes.route("h1", "h1") == ()
    with pytest.raises(SpecError, match="two different nodes"):
        routes.bottleneck("h1", "h1")


def test_links_of_a_route_and_its_bottleneck_agree() -> None:
    campus = campus54()
    routes = Routes(campus)
    for a, b in (("h1", "h53"), ("h1", "h2"), ("coord", "h30")):
        rates = [link.rate_bytes_per_s for link in routes.links_of(a, b)]
        rate, where = routes.bottleneck(a, b)
        assert rate == min(rates)
        assert routes.route(a, b)[rates.index(rate)] == where


def test_delays_add_up_along_a_route() -> None:
    campus = three_tier(4, 2)
    slow = replace(campus, links=tuple(replace(link, delay_s=1e-3) for link in campus.links))
    assert Routes(slow).delay_s("h1", "h4") == pytest.approx(6e-3)


@pytest.mark.parametrize("call", ["route", "bottleneck", "links_of", "delay_s"])
def test_an_unknown_node_is_named_with_the_nearest_known(call: str) -> None:
    routes = Routes(three_tier(4, 2))
    for a, b in (("h1", "h44"), ("h44", "h1"), ("h44", "h44")):
        with pytest.raises(SpecError, match=r"h44.*nearest: h4"):
            getattr(routes, call)(a, b)


def test_a_campus_of_2000_hosts_has_routes_of_six_links_at_most() -> None:
    campus = three_tier(2000, 7, 3)
    routes = Routes(campus)
    rng = random.Random(2)
    for _ in range(500):
        a, b = rng.sample(campus.hosts, 2)
        assert len(routes.route(a.name, b.name)) <= 6


def test_routes_are_right_after_more_of_them_were_asked_for_than_are_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("topologies.paths.MAX_KNOWN", 5)
    campus = campus54()
    routes = Routes(campus)
    names = [host.name for host in campus.hosts[:8]]
    for a, b in [*itertools.product(names, repeat=2)] * 2:
        assert routes.route(a, b) == Routes(campus).route(a, b)


# ---------------------------------------------------------------- campus files
@given(
    st.integers(1, 30),
    st.floats(1e-3, 1e12),
    st.floats(0.0, 10.0),
    st.floats(0.0, 0.999),
    st.floats(0.0, 1.0),
    st.text(
        st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp", "Cn", "Cf", "Co", "Zs"]), min_size=1, max_size=20
    ),
)
def test_any_numbers_and_names_survive_to_the_last_bit(
    hosts: int, rate: float, delay: float, loss: float, beta: float, name: str
) -> None:
    campus = three_tier(
        hosts, min(hosts, 3), 1, access_bytes_per_s=rate, reserve=ResearchReserve(beta, rate / 3, loss), name=name
    )
    links = tuple(replace(link, delay_s=delay, loss=loss) for link in campus.links)
    models = tuple(replace(model, name=f'{name[:9]}"{model.name}\\') for model in campus.gpu_models)
    hosts_ = tuple(replace(h, gpu_model=h.gpu_model and f'{name[:9]}"{h.gpu_model}\\') for h in campus.hosts)
    campus = replace(campus, links=links, gpu_models=models, hosts=hosts_)
    assert loads(dumps(campus)) == campus


def test_the_examples_load() -> None:
    assert {"campus54", "lab", "twohouses"} <= set(examples())
    for name in examples():
        assert load(f"example:{name}").hosts


def test_groups_and_left_out_addresses_are_expanded() -> None:
    lab = load("example:lab")
    assert [h.name for h in lab.hosts][:4] == ["desk1", "desk2", "desk3", "desk4"]
    assert [str(h.address) for h in lab.hosts][:2] == ["10.1.0.1", "10.1.0.2"]
    assert lab.access_link("desk4").b == "desks"
