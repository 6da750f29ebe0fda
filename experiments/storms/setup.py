"""The campus and the settings of a storm, from the options of a script's first lines.

    campus   the fields of `CampusLine`
    settings any key of `Protocol` and `Queue` in `controller.core.parameters`, by its field's name

Rates are small and leases short, so that a storm of half a minute sees many of everything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import is_dataclass, replace
from math import inf
from typing import Annotated, Any, Literal, get_type_hints

import msgspec
from msgspec import Meta

from controller.core.parameters import Protocol, Queue
from controller.user_policies import find_policy
from experiments.storms.script import Script
from experiments.worlds.virtual.overheads import Overheads
from topologies import files, presets
from topologies.errors import SpecError
from topologies.fields import keys_of
from topologies.spec import Campus, ResearchReserve

Count = Annotated[int, Meta(ge=0, le=10_000)]
Number = Annotated[float, Meta(ge=0.0, le=1e9)]

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
    message_s=0.004, start_s=(0.1, 0.5), snapshot_s=(0.02, 0.2), connect_s=0.0, commit_s=0.0, silence_s=1.0
)
MIXES = {
    "one": (presets.GpuShare(presets.RTX3090, 1, 1),),
    "small": (presets.GpuShare(presets.RTX3090, 1, 2), presets.GpuShare(presets.A6000, 2, 1)),
    "paper": presets.PAPER_MIX,
}


class CampusLine(msgspec.Struct, frozen=True):
    """The options of a script's `campus` line."""

    file: str = ""  # a campus (TOML, or example:NAME) instead of the one that follows
    hosts: Count = 3
    on_demand: Count = 1
    buildings: Count = 2
    slots: Count = 2  # of an on-demand host
    mix: Literal["one", "small", "paper"] = "small"  # of GPUs
    access_mb: Number = 10.0  # megabytes/s
    uplink_mb: Number = 20.0
    core_mb: Number = 40.0
    beta: Number = 0.3  # the reserve of research
    # switches, instead of one core, to which every building has an uplink; there is nothing on demand then
    spines: Count = 0
    seed: Annotated[int, Meta(ge=0)] = 4
    quiet: bool = False  # what can change nothing is left out, as in long runs
    enforcement: Literal["pace", "drop", "none"] = "pace"
    switch_s: Number = 0.015  # at most, until an agent has read a switch that was written: in the order of the lines
    # age of a gap at which waiting jobs leave for on-demand hosts, where the controller is to be a fixed one
    leave: Number | None = None

    def campus(self) -> Campus:
        """Return the campus. SpecError: there can be none of this kind."""
        if self.file:
            return files.load(self.file)
        access, uplink = 1e6 * self.access_mb, 1e6 * self.uplink_mb
        mix, reserve = MIXES[self.mix], ResearchReserve(beta=self.beta)
        if self.spines:
            leaves = max(2, min(self.hosts, self.buildings))
            found = presets.leaf_spine(
                leaves,
                self.spines,
                -(-self.hosts // leaves),
                access_bytes_per_s=access,
                uplink_bytes_per_s=uplink,
                mix=mix,
            )
            return replace(found, research_reserve=reserve)
        return presets.three_tier(
            self.hosts,
            min(self.hosts, self.buildings),
            self.on_demand,
            access_bytes_per_s=access,
            uplink_bytes_per_s=uplink,
            core_bytes_per_s=1e6 * self.core_mb,
            mix=mix,
            on_demand_slots=self.slots,
            reserve=reserve,
        )


def campus_line(script: Script) -> CampusLine:
    """Read the `campus` line of a script. SpecError: an option that does not exist, or a value that it cannot have."""
    return CampusLine(**_read("campus", script.campus, CampusLine))


def settings_of(script: Script, enforcement: str) -> tuple[Protocol, Queue]:
    """Read the `settings` line of a script. SpecError: as of `campus_line`."""
    of_queue = {name for name, *_ in keys_of(Queue)}
    in_queue = {key: text for key, text in script.settings.items() if key in of_queue}
    others = {key: text for key, text in script.settings.items() if key not in of_queue}
    protocol = replace(PROTOCOL, enforcement=enforcement, **_read("settings", others, Protocol))
    find_policy(protocol.policy)
    return protocol, replace(QUEUE, **_read("settings", in_queue, Queue))


def _read(where: str, given: Mapping[str, str], of: type[Any]) -> dict[str, Any]:
    """Return the fields of a record that are given as text; of declared parameters, those that are keys of files."""
    known, read = get_type_hints(of, include_extras=True), dict[str, Any]()
    names = {name for name, *_ in keys_of(of)} if is_dataclass(of) else known.keys()
    for key, text in given.items():
        if key not in names:
            raise SpecError(where, key, f"one of {', '.join(sorted(names))}")
        try:
            read[key] = msgspec.convert(text, known[key], strict=False)
        except msgspec.ValidationError as error:
            allowed = f"{error}".replace("`int`", "a whole number").replace("`float`", "a number")
            raise SpecError(f"{where} {key}", text, allowed) from None
    return read
