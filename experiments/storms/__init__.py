"""Fault storms: random campuses, jobs, owners and faults in virtual time, every promise checked after every event.

A storm is a *script*, a text that a person can read: `generate` writes one from a seed, `play` plays it (on a `setup`, in a
`world` with its own `clock`s and `fault_windows`), `shrink` makes one that breaks a promise as short as it gets, `campaign`
does so for thousands, `results` tells. `judges`, `admissions` and `leftovers` say what must hold, `coverage` what was
reached; `mutants` are rules broken on purpose, `mutation` whether storms notice. The scenarios in `tests/scenarios` are such
scripts. May import everything below `experiments`. Begin with `script.py` (the text), then `commands.py` (what a line does).
"""

from experiments.storms.generate import generate
from experiments.storms.play import StormFailure, StormOutcome, play
from experiments.storms.script import Line, Script, parse
from experiments.storms.shrink import shrink
from experiments.storms.world import StormWorld

__all__ = [
    "Line",
    "Script",
    "StormFailure",
    "StormOutcome",
    "StormWorld",
    "generate",
    "parse",
    "play",
    "shrink",
]
