"""Code that decides on the result of a virtual run: kept results are only used again while it stays as it was."""

from __future__ import annotations

import importlib
import pkgutil
from functools import lru_cache
from types import ModuleType

DECIDING = (
    "controller.core",
    "controller.numerics",
    "experiments.results.accounting",
    "experiments.results.history",
    "experiments.results.losses",
    "experiments.results.lost_time",
    "experiments.worlds.oracle",
    "experiments.inputs.scenario",
    "experiments.inputs.traces",
    "experiments.worlds.virtual",
    "testbed.agent.core",
    "testbed.model",
    "topologies.paths",
    "topologies.presets",
    "topologies.spec",
)  # modules, and packages with all below them


@lru_cache(maxsize=1)
def deciding_code() -> tuple[ModuleType, ...]:
    """Return the modules of `DECIDING`, in order of their names."""
    found = {name: importlib.import_module(name) for name in DECIDING}
    for name, package in list(found.items()):
        below = pkgutil.walk_packages(getattr(package, "__path__", ()), f"{name}.")
        found |= {each.name: importlib.import_module(each.name) for each in below}
    return tuple(found[name] for name in sorted(found))
