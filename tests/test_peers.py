"""One peer's share of a service, and of its log."""

import logging
from contextlib import ExitStack

import pytest

from testbed.peers import WARN_EVERY_S, AddressSlots, Allotment, Budget, Occasions


def test_peer_that_takes_all_it_can_leaves_the_rest_to_others():
    allotment = Allotment(a_peer=3, in_all=5)
    with ExitStack() as held:
        greedy = [held.enter_context(allotment.take("greedy")) for _ in range(10)]
        assert greedy == [True] * 3 + [False] * 7
        assert held.enter_context(allotment.take("other", 2))
        assert not held.enter_context(allotment.take("third"))
    assert not allotment.held
    with allotment.take("third", 3) as granted:
        assert granted


def test_hosts_that_are_not_waited_for_share_a_few_connections():
    waited_for = {"h1"}
    admission = AddressSlots(lambda: waited_for, Allotment(2, 5), Allotment(2, 4))
    with ExitStack() as held:
        strangers = [held.enter_context(admission.connection(f"s{n // 3}")) for n in range(30)]
        assert strangers == [True, True, False] * 2 + [False] * 24
        assert [held.enter_context(admission.connection("h1")) for _ in range(4)] == [True] * 3 + [False]
        waited_for.add("s9")
        assert held.enter_context(admission.connection("s9"))


def test_each_host_that_is_waited_for_keeps_a_connection_beside_those_that_all_share():
    hosts = [f"h{n}" for n in range(1, 501)]
    admission = AddressSlots(lambda: hosts, Allotment(4, 6), Allotment(1, 1))
    with ExitStack() as held:
        greedy = [held.enter_context(admission.connection(name)) for name in ["h1"] * 9 + ["h2"] * 9]
        assert greedy == [True] * 5 + [False] * 4 + [True] * 3 + [False] * 6
        assert all(held.enter_context(admission.connection(name)) for name in hosts[2:])
        assert not held.enter_context(admission.connection("h3"))
    with ExitStack() as held:
        assert [held.enter_context(admission.connection("h3")) for _ in range(6)] == [True] * 5 + [False]


def test_ten_thousand_occasions_of_a_kind_are_one_line_until_the_time_is_over(caplog: pytest.LogCaptureFixture):
    now_s = 100.0
    occasions = Occasions(logging.getLogger("peers"), clock=lambda: now_s)
    for _ in range(10_000):
        occasions.warn("connection", "h3: too many connections")
    occasions.warn("frame", "h3: no frame")
    assert caplog.messages == ["h3: too many connections", "h3: no frame"]
    assert occasions.counts == {"connection": 10_000, "frame": 1}
    now_s += WARN_EVERY_S
    occasions.warn("connection", "h4: too many connections")
    assert caplog.messages[-1] == "h4: too many connections (9999 more like it were not told)"


def test_peer_that_asks_for_more_than_its_budget_is_heard_later():
    budget = Budget(per_s=10.0, at_once=5.0)
    assert [budget.spend(1.0, 100.0) for _ in range(7)] == pytest.approx([0.0] * 5 + [0.1, 0.2])
    assert budget.spend(1.0, 100.3) == pytest.approx(0.0)
    assert budget.spend(1.0, 1000.0) == 0.0
    assert budget.spend(100.0, 1000.0) == pytest.approx(9.6)
