"""Fault storms: random campuses, jobs, owners and faults in virtual time; every rule of a run is judged after every event.

One number is one storm. `generate` draws its options and from them a *script*, a text that a person can read. `play` plays
it in a `world` made by `setup`, first the storm, then calm weather in which every job must end; `judges` look at every event
and the `verdict` at the whole. `shrink` shortens a script that breaks a rule; `campaign` plays thousands. May
import everything below `experiments`. Begin with `script.py` (the text), then `commands.py` (the meaning of a line).
"""

from experiments.storms.generate import generate
from experiments.storms.play import StormFailure, StormOutcome, play
from experiments.storms.script import Line, Script, parse
from experiments.storms.shrink import shrink
from experiments.storms.world import StormWorld

__all__ = ["Line", "Script", "StormFailure", "StormOutcome", "StormWorld", "generate", "parse", "play", "shrink"]
