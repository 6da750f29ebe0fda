"""Owners of a live run do one thing after another, however long each takes."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio

from experiments.inputs.scenario import OwnerEvent
from experiments.worlds.live import owners
from experiments.worlds.live.owners import OwnersAtWork
from experiments.worlds.live.world import LiveWorld


@pytest.mark.trio
async def test_a_host_that_is_reclaimed_while_it_is_lent_again_ends_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of two threads the one that lends may come to the switch last: the host stood open though its owner had it."""
    switch: list[str] = []

    def lend(*_: Any) -> None:
        time.sleep(0.2)
        switch.append("open")

    def reclaim(*_: Any, **__: Any) -> SimpleNamespace:
        switch.append("closed")
        return SimpleNamespace(set_s=1e-5, set_at_s=0.0)

    hand = SimpleNamespace(lend=lend, reclaim=reclaim, look=lambda _: SimpleNamespace(first_drop_ns=0))
    monkeypatch.setattr(owners, "owner", hand)
    world = SimpleNamespace(switch_pin=Path, owner_socket=Path, started_s=0.0, prober=None, prober_host=None)
    at_work = OwnersAtWork(cast(LiveWorld, world))
    events = (OwnerEvent(0.0, "h1"), OwnerEvent(0.1, "h1", "return"), OwnerEvent(0.15, "h1"))
    await at_work.play(events, trio.current_time())
    assert switch == ["closed", "open", "closed"]
    assert at_work.away == {"h1": events[2]}
