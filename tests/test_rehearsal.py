"""After a rehearsal no decision waits for a compiler."""

import subprocess
import sys

AFTERWARDS = """
from controller.numerics.jit import MADE
from controller.warm_up import rehearse

def compiled():
    return {made.py_func.__qualname__: len(made.signatures) for made in MADE}

rehearse()
before = compiled()
assert sum(before.values()) > 0, before

from experiments.benchmarks.decisions import AtWork
from experiments.benchmarks.decisions_world import campus_of, coordinator_at_work

AtWork(coordinator_at_work(campus_of(100)), samples=4).all_times()
more = {name: count for name, count in compiled().items() if count != before.get(name, 0)}
print("compiled since:", more)
"""


def test_a_campus_at_work_compiles_nothing_more() -> None:
    told = subprocess.run([sys.executable, "-c", AFTERWARDS], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "compiled since: {}"
