"""Owners of one's own: each volunteer is taken back once, ten minutes after the one before, and comes back after twenty."""

from dataclasses import replace

from experiments import OwnerEvent, Scenario, Trace, generate


def one_by_one(scenario: Scenario) -> Trace:
    events = []
    for number, host in enumerate(scenario.volunteers, 1):
        events.append(OwnerEvent(600.0 * number, host.name, notice_s=120.0))
        events.append(OwnerEvent(600.0 * number + 1200.0, host.name, "return"))
    inside = sorted((e for e in events if e.at_s < scenario.duration_s), key=lambda e: e.at_s)
    return replace(generate(scenario), origin="one by one", owner_events=tuple(inside))
