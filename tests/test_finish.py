"""Every event leaves nothing undone: what follows from it is planned, shared and told before it ends, and once."""

from typing import Any

import pytest

from controller.core import coordinator
from controller.core.model import effects as do
from controller.core.model import events as ev
from tests.world import a_running_job, a_world, job


def test_each_event_shares_links_and_plans_at_most_once_and_leaves_nothing_to_be_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = a_world(5, 1)
    core, calls, seen = world.coordinator, list[str](), set[str]()
    handle = core.handle

    def counted(name: str) -> Any:
        original = getattr(coordinator, name)

        def call(cluster: Any) -> Any:
            calls.append(name)
            return original(cluster)

        return call

    for name in ("settle", "plan_checkpoints"):
        monkeypatch.setattr(coordinator, name, counted(name))

    def checked(event: ev.Event, now_s: float) -> list[do.Effect]:
        calls.clear()
        effects = handle(event, now_s)
        assert len(calls) == len(set(calls))
        seen.update(calls)
        cluster = core.cluster
        assert not (cluster.outbox or cluster.freed or cluster.orders)
        assert not (cluster.plan_stale or cluster.rates_stale)
        return effects

    monkeypatch.setattr(core, "handle", checked)
    host = a_running_job(world, job("a"))
    world.run(40.0)
    world.reclaim(host, 30.0)
    world.run(80.0)
    assert seen == {"settle", "plan_checkpoints"}
