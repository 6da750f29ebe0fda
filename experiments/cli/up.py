"""`reclaimnet up`: a campus that stands, with its coordinator and agents, and Mininet's command line on it."""

from __future__ import annotations

import signal
import sys
from dataclasses import replace
from pathlib import Path

from mininet.cli import CLI
from mininet.log import error as error_line
from mininet.log import setLogLevel
from rich.console import Console

from experiments.cli.dashboard import page_beside
from experiments.inputs.scenario import Scenario
from experiments.inputs.scenario.settings import settings_of
from experiments.worlds.live.world import let_owners, live_world
from testbed.emulation.campus import LiveCampus
from testbed.errors import SpecError
from topologies import files, presets, toml
from topologies.spec import Fabric


def up(
    console: Console,
    out: Path,
    campus: str | None,
    *,
    hosts: int,
    buildings: int,
    agents: bool,
    fabric: Fabric | None = None,
    controller: str | None = None,
    script: Path | None = None,
    owners_gid: int | None = None,
    agents_per_process: int | None = None,
    web: int | None = None,
) -> None:
    """Until the user leaves the command line (or the script of its commands ends); everything is removed after.

    `web`: the port of a live page.
    """
    if script is not None:
        toml.read_text(script, "a file of Mininet commands")
    spec = files.load(campus) if campus is not None else presets.three_tier(hosts, buildings, 1)
    if fabric is not None:
        spec = replace(spec, fabric=fabric)
    setLogLevel("output")  # what the command line prints goes through Mininet's log
    if not agents:
        if web is not None:
            raise SpecError(
                "--web", web, "nothing, with --no-agents: there is no coordinator whose journal it could show"
            )
        with LiveCampus(spec, controller=controller) as net:
            let_owners(net, owners_gid)
            _command_line(console, net, script)
        return
    scenario = Scenario(spec.name, spec).played()
    settings = settings_of(scenario)
    with (
        live_world(
            scenario,
            settings,
            out,
            owners_gid=owners_gid,
            controller=controller,
            agents_per_process=agents_per_process,
        ) as world,
        page_beside(console, world.campus.id, web),
    ):
        _command_line(console, world.campus, script)


class _CommandLine(CLI):  # type: ignore[misc]
    """Mininet's, whose scripts may lie under any name; `exit` ends one."""

    def do_source(self, line: str) -> None:
        """Read commands from a file: source FILE."""
        try:
            commands = Path(line.strip()).read_text().splitlines()
        except (OSError, UnicodeDecodeError) as error:
            error_line(f"{line.strip()}: {error}\n")
            return
        for command in commands:
            if self.onecmd(command):
                return


def _command_line(console: Console, net: LiveCampus, script: Path | None) -> None:
    console.print(
        f"campus [bold]{net.id}[/bold] stands: {len(net.hosts)} hosts, {len(net.switches)} switches. "
        "Try: pingall, h1 ping -c1 h2, h1 ip addr; in another terminal: reclaimnet status, reclaimnet reclaim h1",
        soft_wrap=True,
    )
    if script is not None or not sys.stdin.isatty():
        # Mininet takes an interrupt for the end of one command, as a person at its prompt does
        signal.signal(signal.SIGINT, signal.getsignal(signal.SIGTERM))
    _CommandLine(net, script=str(script) if script else None)
