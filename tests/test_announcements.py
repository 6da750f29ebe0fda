"""Every order to send names a transfer that its receiver was told to expect, before the order; and nothing else is expected."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from controller.core.coordinator import Coordinator
from controller.core.model import effects as do
from controller.core.model.cluster import keyed
from experiments.inputs.scenario import demo_scenario
from experiments.inputs.traces import generate
from experiments.worlds.virtual import simulate
from testbed import messages as m


@dataclass
class Told:
    """What each receiver was told to expect, as it would understand it; judges every order to send."""

    expected: dict[str, dict[int, m.Expect]] = field(default_factory=dict)
    orders: int = 0
    used: dict[int, tuple[str, str, str]] = field(default_factory=dict)  # number -> whose it is

    def heed(self, core: Coordinator, effects: Sequence[do.Effect]) -> None:
        """All that was said after one event."""
        for effect in effects:
            if isinstance(effect, do.Tell):
                self._say(core, effect.host, effect.message)
        open_now = {(flow.destination, core.cluster.ticket(flow)) for flow in core.cluster.flows.values()}
        connected = {name for name, host in core.cluster.hosts.items() if host.connected}
        expected = {(host, number) for host, known in self.expected.items() for number in known}
        assert {pair for pair in open_now if pair[0] in connected} == {
            pair for pair in expected if pair[0] in connected
        }

    def _say(self, core: Coordinator, host: str, message: m.ToAgent) -> None:
        known = self.expected.setdefault(host, {})
        match message:
            case m.Welcome():
                known.clear()
            case m.Expect(ticket=number, job=job, source=source):
                assert self.used.setdefault(number, (job, source, host)) == (job, source, host)
                known[number] = message
            case m.ExpectNoMore(number):
                known.pop(number, None)
            case m.Protect(job, attempt, m.Endpoint() as to):
                self._ordered(core, host, to, job, attempt * m.SEQUENCES_PER_ATTEMPT + 1)
            case m.Migrate(job, attempt, to):
                self._ordered(core, host, to, job, attempt * m.SEQUENCES_PER_ATTEMPT + 1)
            case m.SendStored(job, sequence, to):
                self._ordered(core, host, to, job, sequence)

    def _ordered(self, core: Coordinator, source: str, to: m.Endpoint, job: str, sequence: int) -> None:
        self.orders += 1
        expect = self.expected.get(to.host, {}).get(to.ticket)
        if expect is None:  # it cannot be told; or the order was called off in the same breath
            flow = core.cluster.flows.get(f"{job}:{source}>{to.host}")
            assert not core.cluster.hosts[to.host].connected or flow is None or core.cluster.ticket(flow) != to.ticket
            return
        assert (expect.job, expect.source) == (job, source)
        assert expect.first <= sequence <= expect.last
        assert expect.most_bytes >= core.cluster.jobs[job].spec.payload_bytes


def listening(monkeypatch: pytest.MonkeyPatch) -> Told:
    """Hears all that a coordinator says; a successor, which decides everything again, is heard from the beginning."""
    listener, handle = Told(), Coordinator.handle
    speaks: list[Coordinator] = []

    def heard(core: Coordinator, event: Any, now_s: float) -> list[do.Effect]:
        effects = handle(core, event, now_s)
        if core not in speaks:
            speaks[:] = [core]
            listener.expected.clear()
        listener.heed(core, effects)
        return effects

    monkeypatch.setattr(Coordinator, "handle", heard)
    return listener


def test_every_order_of_a_demo_is_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    """So is every one of a storm (test_storms)."""
    told, scenario = listening(monkeypatch), demo_scenario(seed=1)
    simulate(scenario, generate(scenario))
    assert told.orders > 100


def test_numbers_cannot_be_told_from_earlier_ones_without_the_key() -> None:
    first = {keyed(b"key", count) for count in range(1000)}
    assert len(first) == 1000
    assert first.isdisjoint(keyed(b"another", count) for count in range(1000))
    assert all(0 < number < 2**63 for number in first)
