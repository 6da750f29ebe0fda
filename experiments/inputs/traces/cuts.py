"""Cables between switches that go down and come back, drawn from a scenario's law. Every cable works at the beginning."""

from __future__ import annotations

from experiments.inputs.scenario import Scenario
from experiments.inputs.scenario.parts import LinkEvent
from experiments.inputs.traces.streams import stream, unit_exponential
from experiments.inputs.traces.trace import Trace
from topologies.errors import SpecError

MAX_CUTS = 100_000


def cuts(scenario: Scenario) -> tuple[LinkEvent, ...]:
    """Return failures and repairs of all cables between switches, before the run ends, in order of time; none without a law."""
    law, found = scenario.trunks, list[LinkEvent]()
    if law is None:
        return ()
    switches = scenario.campus.switch_by_name
    trunks = [(link.a, link.b) for link in scenario.campus.links if {link.a, link.b} <= switches.keys()]
    if not trunks:
        raise SpecError("trunks", "no cable between two switches", "a campus that has some")
    expected = len(trunks) * scenario.duration_s * law.hazard_per_s
    if expected > MAX_CUTS:
        raise SpecError(
            "trunks.hazard", law.hazard_per_s, f"at most {MAX_CUTS} expected failures, not {expected:.3g}"
        )
    for a, b in trunks:
        rng, works_s = stream(scenario.seed, "trunk", a, b), 0.0
        while True:
            at_s = works_s + unit_exponential(rng) / law.hazard_per_s
            repaired_s = at_s + law.repair_s * unit_exponential(rng)
            is_announced = rng.random() < law.announced and at_s - works_s >= law.drain_s
            if at_s >= scenario.duration_s:
                break
            found.append(LinkEvent(at_s, (a, b), up=False, drain_s=law.drain_s if is_announced else None))
            if repaired_s >= scenario.duration_s:
                break
            found.append(LinkEvent(repaired_s, (a, b), up=True))
            works_s = repaired_s
    return tuple(sorted(found, key=lambda cut: (cut.at_s, cut.between)))


def events_of_links(scenario: Scenario, trace: Trace) -> tuple[LinkEvent, ...]:
    """Return all changes of cables in a run: the scenario's events, and the trace's cuts; in order of time.

    SpecError: a trace that is no file of this scenario's cuts a cable that the campus does not have.
    """
    for cut in trace.cuts:
        a, b = cut.between
        if b not in scenario.campus.neighbours.get(a, {}):
            raise SpecError("cuts", f"{a}-{b}", f"the two ends of a cable of campus {scenario.campus.name}")
    return tuple(sorted([*scenario.events, *trace.cuts], key=lambda event: event.at_s))
