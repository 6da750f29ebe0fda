"""Owners at work on a running campus: the trace's events at their times.

Each goes through the pinned switch, and is watched from outside by connections that are tried again and again.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

import trio

from experiments.inputs.scenario import OwnerEvent
from experiments.results.run_context import SwitchProbe
from experiments.worlds.live.habits import PRESENT
from experiments.worlds.live.world import LiveWorld
from testbed import owner
from testbed.agent.config import DATA_PORT


@dataclass
class OwnersAtWork:
    """Player of owner events; `away` are the hosts whose owner has them, each with the event that took it."""

    world: LiveWorld
    probes: list[SwitchProbe] = field(default_factory=list)
    away: dict[str, OwnerEvent] = field(default_factory=dict)
    _knocking: trio.Lock = field(default_factory=trio.Lock)
    # an owner does one thing after another: of two threads the later one's word could be the first to stand in the switch
    _hands: defaultdict[str, trio.Lock] = field(default_factory=lambda: defaultdict(trio.Lock))

    async def play(self, events: Iterable[OwnerEvent], begin_s: float) -> None:
        """Play each event at its time after `begin_s`, not waiting for the one before."""
        async with trio.open_nursery() as nursery:
            for event in events:
                await trio.sleep_until(begin_s + event.at_s)
                nursery.start_soon(self.do, event)

    async def do(self, event: OwnerEvent) -> None:
        """Apply one event, unless the host is already in the state that it leads to."""
        world, host = self.world, event.host
        switch, socket = world.switch_pin(host), world.owner_socket(host)
        is_present = world.habits.states[host] == PRESENT  # then it stays closed
        if event.kind == "return":
            if self.away.pop(host, None) and not is_present:
                async with self._hands[host]:
                    await trio.to_thread.run_sync(owner.lend, switch, socket)
            return
        if host in self.away:
            return
        self.away[host] = event
        if is_present:
            return
        async with self._hands[host]:
            at_s = time.monotonic() - world.started_s
            switched = await trio.to_thread.run_sync(
                lambda: owner.reclaim(switch, socket, notice_s=event.notice_s, grace=event.grace)
            )
        tried, admitted = await self._knock(event)
        status = owner.look(switch)
        first_drop_s = status.first_drop_ns / 1e9 - switched.set_at_s if status.first_drop_ns else None
        kind = "drain" if event.notice_s else "isolate"
        self.probes.append(SwitchProbe(host, at_s, kind, switched.set_s, first_drop_s, tried, admitted))

    async def _knock(self, event: OwnerEvent) -> tuple[int, int]:
        """Return connections tried and admitted from outside, from now until the host is lent again.

        One host is tried after another, so with many reclaims at once a host may be lent again before its turn.
        """
        prober = self.world.prober
        if prober is None or event.host == self.world.prober_host:
            return 0, 0
        address = str(self.world.campus.spec.host_by_name[event.host].address)

        def ask() -> tuple[int, int]:
            prober.sendall((json.dumps([address, DATA_PORT]) + "\n").encode())
            tried, admitted = json.loads(prober.recv(4096))
            return tried, admitted

        async with self._knocking:
            if self.away.get(event.host) is not event:
                return 0, 0
            tries = await trio.to_thread.run_sync(ask)
        return tries if self.away.get(event.host) is event else (0, 0)
