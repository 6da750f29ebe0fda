"""`reclaimnet up`: a campus that stands, with its coordinator and agents, and Mininet's command line on it."""

from __future__ import annotations

from pathlib import Path

from mininet.cli import CLI
from mininet.log import setLogLevel
from rich.console import Console

from experiments.live.settings import settings_of
from experiments.live.world import live_world
from experiments.scenario import Scenario
from testbed.emulation.campus import Campus
from topologies import files, presets


def up(
    console: Console,
    out: Path,
    campus: str | None,
    *,
    hosts: int,
    buildings: int,
    agents: bool,
    script: Path | None = None,
) -> None:
    """Until the user leaves the command line (or the script of its commands ends); everything is removed after."""
    spec = files.load(campus) if campus else presets.three_tier(hosts, buildings, 1)
    setLogLevel("output")  # what the command line prints goes through Mininet's log
    if not agents:
        with Campus(spec) as net:
            _command_line(console, net, script)
        return
    scenario = Scenario(spec.name, spec).played()
    with live_world(scenario, settings_of(scenario), out) as world:
        _command_line(console, world.campus, script)


def _command_line(console: Console, net: Campus, script: Path | None) -> None:
    console.print(
        f"campus [bold]{net.id}[/bold] stands: {len(net.hosts)} hosts, {len(net.switches)} switches. "
        "Try: pingall, h1 ping -c1 h2, h1 ip addr; in another terminal: reclaimnet status, reclaimnet reclaim h1",
        soft_wrap=True,
    )
    CLI(net, script=str(script) if script else None)
