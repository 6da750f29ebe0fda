"""Digests of what the virtual campus decided: under every row, over the demo, in storms. `--native`: in machine code."""

from __future__ import annotations

import hashlib
import json
import sys

from experiments.runtime import native

STORMS = range(10)


def digests() -> dict[str, str]:
    """Of each run by its name; everything is imported here, so that it may be machine code."""
    from controller.core.policies.table import POLICIES
    from experiments.inputs.scenario import demo_scenario
    from experiments.inputs.traces import generate
    from experiments.results.events_file import digest
    from experiments.storms.generate import generate as storm
    from experiments.storms.play import run
    from experiments.storms.setup import ground_of
    from experiments.storms.world import StormWorld
    from experiments.worlds.virtual.invariants import Invariants
    from experiments.worlds.virtual.run import simulate
    from testbed.errors import InvariantBroken
    from tests import virtual_cases

    found = {row: digest(virtual_cases.play(row, hosts=12, days=0.3, jobs=12.0).facts) for row in POLICIES}
    for seed in (1, 2):
        scenario = demo_scenario(seed=seed)
        for quiet in (True, False):
            found[f"demo {seed} {quiet}"] = digest(simulate(scenario, generate(scenario), quiet=quiet).facts)
    for seed in STORMS:
        script = storm(seed)
        world = StormWorld(ground_of(script))
        run(world, script)
        found[f"storm {seed}"] = hashlib.sha256(repr(world.facts).encode()).hexdigest()
        try:
            Invariants()(world)  # a judge that has not seen the beginning finds fault
        except InvariantBroken as error:
            found[f"broken in {seed}"] = str(error)
    return found


if __name__ == "__main__":
    if "--native" in sys.argv and not native.prefer():
        sys.exit("not built")
    print(json.dumps(digests()))
