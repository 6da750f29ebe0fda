"""Routes over a tree."""

import itertools
import random

import pytest

from topologies.errors import SpecError
from topologies.paths import Routes
from topologies.presets import campus54, three_tier
from topologies.spec import Campus


def by_search(campus: Campus, a: str, b: str) -> list[str]:
    """The path by breadth-first search: slow, and nothing but neighbours."""
    before = {a: a}
    todo = [a]
    for node in todo:
        for other in campus.neighbours[node]:
            if other not in before:
                before[other] = node
                todo.append(other)
    path = [b]
    while path[-1] != a:
        path.append(before[path[-1]])
    return path[::-1]


@pytest.mark.parametrize("campus", [campus54(), three_tier(30, 3, 2, hosts_per_access=4)])
def test_every_route_is_the_only_path(campus: Campus) -> None:
    routes = Routes(campus)
    pairs = list(itertools.product([node.name for node in campus.nodes], repeat=2))
    for a, b in random.Random(1).sample(pairs, 400):
        steps = routes.route(a, b)
        expected = by_search(campus, a, b)
        assert [(s.source, s.target) for s in steps] == list(itertools.pairwise(expected))


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
    from dataclasses import replace

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
