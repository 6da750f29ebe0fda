"""One peer's share of a service, and of its log."""

import logging
from contextlib import ExitStack

import pytest

from testbed.peers import WARN_EVERY_S, Allotment, Budget, Occasions


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
