"""The ground of a storm: a campus, settings and costs, from the options of a script's first lines.

    campus   hosts=5 on_demand=1 buildings=2 slots=2 mix=small|paper|one access_mb=10 uplink_mb=20 core_mb=40 beta=0.3
             spines=2 (instead of one core: every building has an uplink to each, and there is nothing on demand)
             or file=PATH (TOML, or example:NAME); seed=4; quiet=1 (what can change nothing is left out, as in long runs);
             enforcement=pace|drop|none; leave=SECONDS (age of a gap at which waiting jobs leave); spare=0
    settings any field of `Protocol` and `Queue` in `controller.core.parameters`
    costs    any field of `experiments.worlds.virtual.overheads.Costs`; a span is LOW,HIGH

Rates are small and leases short, so that a storm of half a minute sees many of everything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from math import inf
from typing import Any, TypeVar

from controller.core.parameters import Protocol, Queue
from controller.user_policies import find_policy
from experiments.storms.script import Script
from experiments.worlds.virtual.overheads import Overheads
from topologies import files, presets
from topologies.errors import SpecError
from topologies.spec import Campus, ResearchReserve, Role

T = TypeVar("T", Protocol, Queue, Overheads)
MEGABYTE = 1e6

QUEUE = Queue(target_delay_s=20.0, level_step_per_s=0.01, level_window=10, level_start=3.0)
PROTOCOL = Protocol(
    restart_s=0.6,
    snapshot_s=0.25,
    snapshot_bytes_per_s=inf,
    control_period_s=1.0,
    lease_s=2.0,
    heartbeat_s=0.6,
    hazard_window_s=600.0,
    prior_hazard_per_s=1.0 / 40.0,
    day_s=1200.0,
)
COSTS = Overheads(
    message_s=0.004,
    switch_s=(0.0, 0.015),  # owners' words are heard in the order of the lines
    start_s=(0.1, 0.5),
    snapshot_s=(0.02, 0.2),
    connect_s=0.0,
    commit_s=0.0,
    silence_s=1.0,
)
MIXES = {
    "one": (presets.GpuShare(presets.RTX3090, 1, 1),),
    "small": (presets.GpuShare(presets.RTX3090, 1, 2), presets.GpuShare(presets.A6000, 2, 1)),
    "paper": presets.PAPER_MIX,
}
DEFAULTS = {
    "hosts": "3",
    "on_demand": "1",
    "buildings": "2",
    "slots": "2",
    "mix": "small",
    "access_mb": "10",
    "uplink_mb": "20",
    "core_mb": "40",
    "beta": "0.3",
    "spines": "0",
    "seed": "4",
    "quiet": "0",
    "enforcement": "pace",
}
OTHERS = ("file", "leave", "spare")
# of settings and costs that divide, or that something is done again after
POSITIVE = dict.fromkeys(
    (
        *("target_delay_s", "level_step_per_s", "prior_hazard_per_s", "hazard_window_s", "day_s"),
        *("heartbeat_s", "lease_s", "control_period_s"),
        *("snapshot_bytes_per_s", "copy_gb_per_s"),
    ),
    1e-3,
) | {"prior_hazard_per_s": 1e-12, "level_step_per_s": 1e-12}


@dataclass(frozen=True, slots=True)
class StormSetup:
    """The parts that a world is made of."""

    campus: Campus
    protocol: Protocol
    queue: Queue
    costs: Overheads
    seed: int
    quiet: bool
    # age of a gap at which waiting jobs leave, where the controller is to be a fixed one; none without on-demand hosts to go to
    leave_s: float | None


def ground_of(script: Script) -> StormSetup:
    """Read the first lines of a script. SpecError: an option that does not exist, or a value that it cannot have."""
    given = DEFAULTS | dict(script.campus)
    if unknown := sorted(given.keys() - DEFAULTS.keys() - set(OTHERS)):
        raise SpecError("campus", ", ".join(unknown), f"of {', '.join([*DEFAULTS, *OTHERS])}")
    protocol, queue = parameters(PROTOCOL, QUEUE, script.settings)
    protocol = replace(protocol, enforcement=given["enforcement"])
    if "spare" in given:
        queue = replace(queue, spare_gpus=_whole("spare", given))
    find_policy(protocol.policy)
    campus = _campus(given)
    has_on_demand = any(host.role is Role.ON_DEMAND for host in campus.hosts)
    return StormSetup(
        campus,
        protocol,
        queue,
        _changed(COSTS, script.costs, "costs"),
        _whole("seed", given),
        given["quiet"] != "0",
        _number("leave", given) if "leave" in given and has_on_demand else None,
    )


def _campus(given: Mapping[str, str]) -> Campus:
    if "file" in given:
        return files.load(given["file"])
    if given["mix"] not in MIXES:
        raise SpecError("campus mix", given["mix"], f"one of {', '.join(MIXES)}")
    hosts, spines = _whole("hosts", given), _whole("spines", given)
    reserve = ResearchReserve(beta=_number("beta", given))
    if spines:
        leaves = max(2, min(hosts, _whole("buildings", given)))
        campus = presets.leaf_spine(
            leaves,
            spines,
            -(-hosts // leaves),
            access_bytes_per_s=_number("access_mb", given) * MEGABYTE,
            uplink_bytes_per_s=_number("uplink_mb", given) * MEGABYTE,
            mix=MIXES[given["mix"]],
        )
        return replace(campus, research_reserve=reserve)
    return presets.three_tier(
        hosts,
        min(hosts, _whole("buildings", given)),
        _whole("on_demand", given),
        access_bytes_per_s=_number("access_mb", given) * MEGABYTE,
        uplink_bytes_per_s=_number("uplink_mb", given) * MEGABYTE,
        core_bytes_per_s=_number("core_mb", given) * MEGABYTE,
        mix=MIXES[given["mix"]],
        on_demand_slots=_whole("slots", given),
        reserve=reserve,
    )


def _whole(key: str, given: Mapping[str, str]) -> int:
    return int(_number(key, given, int))


def _number(key: str, given: Mapping[str, str], kind: type[int] | type[float] = float) -> float:
    allowed = "a number of 0 or more" if kind is float else "a whole number of 0 or more"
    try:
        found = kind(given[key])
    except ValueError:
        raise SpecError(f"campus {key}", given[key], allowed) from None
    if not 0 <= found < inf:
        raise SpecError(f"campus {key}", given[key], allowed)
    return found


def parameters(protocol: Protocol, queue: Queue, given: Mapping[str, str]) -> tuple[Protocol, Queue]:
    """Return the two with these fields of either read from text."""
    names = {each.name for each in fields(Queue)}
    of_queue = {key: text for key, text in given.items() if key in names}
    of_protocol = {key: text for key, text in given.items() if key not in names}
    return _changed(protocol, of_protocol, "settings"), _changed(queue, of_queue, "settings")


def _changed(defaults: T, given: Mapping[str, str], where: str) -> T:
    """Return the defaults with these fields read from text, each as its default is."""
    known = {field.name: getattr(defaults, field.name) for field in fields(defaults)}
    if unknown := sorted(given.keys() - known.keys()):
        raise SpecError(where, ", ".join(unknown), f"fields of {type(defaults).__name__}")
    return replace(defaults, **{key: _value(where, key, text, known[key]) for key, text in given.items()})


def _value(where: str, key: str, text: str, default: object) -> Any:
    try:
        match default:
            case bool():
                return text in ("1", "true", "True")
            case int():
                return int(text)
            case float():
                return _not_below(POSITIVE.get(key, 0.0), float(text))
            case tuple():
                low, _, high = text.partition(",")
                return (_not_below(0.0, float(low)), _not_below(float(low), float(high or low)))
        return (
            text if key not in ("k_min", "checkpoint_share") else int(text) if key == "k_min" else float(text)
        )
    except ValueError:
        raise SpecError(f"{where} {key}", text, f"a value like {default!r}") from None


def _not_below(least: float, value: float) -> float:
    """Return the value; ValueError if it is less, or no number."""
    if not value >= least:
        raise ValueError
    return value
