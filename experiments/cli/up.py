"""Mininet's command line on a campus that stands, and the report of the jobs that were submitted to it."""

from __future__ import annotations

import os
import select
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mininet.cli import CLI
from mininet.log import error as error_line
from mininet.log import setLogLevel
from rich.console import Console
from rich.text import Text

from controller.core.model.facts import JobSubmitted
from controller.core.parameters import Protocol
from controller.persistence.journal import NoJournal, facts_before_damage
from experiments.cli.results import status_of
from experiments.inputs.scenario import Owners, Scenario
from experiments.inputs.traces import Trace
from experiments.results import report
from experiments.results.events_file import write_events
from experiments.results.measurements import measured_curves
from experiments.results.provenance import provenance
from experiments.results.run_context import Death, FidelityRecord
from experiments.runtime.exit_status import ExitStatus
from experiments.worlds.live.operator import JOB_LOGS, JOURNAL
from experiments.worlds.live.world import live_row
from experiments.worlds.played import Played, context_of
from testbed.emulation.campus import LiveCampus
from testbed.emulation.fidelity import judge
from testbed.emulation.safety.ledger import MARK
from testbed.own_programs import own_program
from topologies.spec import Campus, Role

if TYPE_CHECKING:
    from experiments.machines.conductor import Conductor

BY_HAND_PER_S = 1.0 / 60.0  # an owner a minute: the prior of docs/examples/training.toml


def by_hand(campus: Campus) -> Scenario:
    """Return the scenario of a campus whose owners are played by hand, and calendars by the machine's clock."""
    now = time.localtime()
    owners = Owners(day_start_s=now.tm_hour * 3600.0 + now.tm_min * 60.0 + now.tm_sec, first_weekday=now.tm_wday)
    return Scenario(campus.name, campus, protocol=Protocol(prior_hazard_per_s=BY_HAND_PER_S), owners=owners)


def report_of_jobs(console: Console, out: Path, deaths: Sequence[Death], scenario: Scenario) -> ExitStatus:
    """Write page, figures and facts of the jobs that were submitted, if any were; return the exit status.

    Whether the machine kept up is not judged, so the figures are marked as not to be used. An interrupt is its usual end.
    """
    try:
        facts, damage = facts_before_damage(out / JOURNAL)
    except NoJournal:  # the campus was gone before its coordinator had begun a journal
        return ExitStatus.KEPT
    if not any(isinstance(fact, JobSubmitted) for _, fact in facts):
        return ExitStatus.KEPT
    write_events(out / "events.jsonl", facts)
    context = replace(
        context_of(scenario, Trace("by hand", (), ()), live_row(scenario)),
        fidelity=FidelityRecord(
            False, ["`up` does not watch whether the machine keeps up: `run` does", *damage], watched=False
        ),
        deaths=tuple(deaths),
        measured=measured_curves(out / "logs" / JOB_LOGS),
    )
    run, origin = Played(facts, context), provenance(scenario)
    summary = run.summary()
    console.print(str(report.write(out, summary, run.facts, run.context, origin)))
    return status_of(summary)


class _CommandLine(CLI):  # type: ignore[misc]
    """Command line of Mininet, whose scripts may lie under any name; `exit` ends one."""

    def do_source(self, line: str) -> None:
        """Read commands from a file: source FILE."""
        try:
            commands = Path(line.strip()).read_text("utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            error_line(f"{line.strip()}: {error}\n")
            return
        for command in commands:
            if self.onecmd(command):
                return

    def _reclaimnet(self, command: str, line: str) -> None:
        """Run a command of this program on the campus; the shell parses the rest of its line."""
        self.do_sh(f"{shlex.join([*own_program('experiments.cli'), command, '--campus', self.mn.id])} {line}")

    def do_reclaim(self, line: str) -> None:
        """Take a host back, at once or after so many seconds: reclaim HOST [SECONDS]."""
        self._reclaimnet("reclaim", " --notice=".join(line.split(maxsplit=1)))

    def do_return(self, line: str) -> None:
        """Lend a host again: return HOST."""
        self._reclaimnet("return", line)

    def do_jobs(self, line: str) -> None:
        """List the jobs of the campus: jobs."""
        self._reclaimnet("jobs", line)

    def do_submit(self, line: str) -> None:
        """Submit jobs, as the command of the same name: submit JOB.toml."""
        self._reclaimnet("submit", line)

    def complete_reclaim(self, text: str, *_: object) -> list[str]:
        """Complete hosts that have an owner."""
        return [host.name for host in self.mn.spec.hosts_of(Role.VOLUNTEER) if host.name.startswith(text)]

    complete_return = complete_reclaim

    def complete_submit(self, text: str, *_: object) -> list[str]:
        """Complete job files of the present folder."""
        return [path.name for path in Path().glob("*.toml") if path.name.startswith(text)]

    def do_sh(self, line: str) -> None:
        """Run a command of the shell: sh COMMAND. When `up` is interrupted meanwhile, all that it has started ends with it."""
        # at a terminal the whole foreground group gets an interrupt, and only that may read what is typed
        apart = None if sys.stdin.isatty() else 0
        environment = {**os.environ, MARK: self.mn.id}  # by which `clean --running` finds it
        with subprocess.Popen(line, shell=True, process_group=apart, env=environment) as shell:
            try:
                shell.wait()
            except BaseException:
                if apart is None:
                    shell.kill()
                else:
                    os.killpg(shell.pid, signal.SIGKILL)
                raise


def command_line(console: Console, net: LiveCampus, script: Path | None) -> None:
    """Read commands of a user, or of a script, until it ends."""
    setLogLevel("output")  # what the command line prints goes through Mininet's log
    names = [host.name for host in (*net.spec.hosts_of(Role.VOLUNTEER), *net.spec.hosts)]
    one, other = names[0], names[1:2][0] if names[1:] else names[0]
    console.print(
        f"campus {net.id} stands: {len(net.hosts)} hosts, {len(net.switches)} switches. "
        f"Try: pingall, {one} ping -c1 {other}, {one} ip addr; reclaim {one} 5, return {one}; elsewhere: reclaimnet status",
        soft_wrap=True,
    )
    if script is not None or not sys.stdin.isatty():
        # Mininet takes an interrupt for the end of one command, as a person at its prompt does
        signal.signal(signal.SIGINT, signal.getsignal(signal.SIGTERM))
    _CommandLine(net, script=str(script) if script else None)


def command_line_of_machines(console: Console, conductor: Conductor, script: Path | None) -> None:
    """Read lines of a user, or of a script, until it ends: `HOST COMMAND`, or a command of `reclaimnet`, where its host is."""
    hosts, places = conductor.campus.host_by_name, conductor.campus.machine_of

    def show(news: tuple[Any, ...]) -> None:
        match news:
            case ("output", text):
                sys.stdout.buffer.write(text)
                sys.stdout.flush()
            case ("lost", machine, why):
                console.print(f"machine {machine}, with its hosts: {why}", soft_wrap=True)

    conductor.on_news = show
    machines = ", ".join(machine.name for machine in conductor.machines)
    console.print(
        f"campus {conductor.campus.name} stands on {machines}. Type HOST COMMAND, or commands of reclaimnet "
        "(status, jobs, submit JOB.toml, reclaim HOST 5, return HOST); exit or Ctrl-C ends it",
        soft_wrap=True,
    )
    for reason in judge(conductor.judged):
        console.print(Text("not as declared:", "yellow"), reason, soft_wrap=True)
    # without a buffer, in which lines would lie that `select` does not know of
    with open(script or 0, "rb", buffering=0, closefd=script is not None) as source:
        while True:
            if script is None and sys.stdin.isatty():
                console.print("reclaimnet> ", end="")
            while not select.select([source], [], [], 0.0)[0]:
                conductor.look()
            if not (line := source.readline()) or line.split()[:1] in ([b"exit"], [b"quit"]):
                return
            command, *words = text = line.decode(errors="replace").split() or [""]
            if command in hosts:
                addressed = [str(hosts[word].address) if word in hosts else word for word in words]
                conductor.run(places[command], command, addressed, {})
            elif command:
                with suppress(ValueError):  # a quotation without its end is left as it is
                    text = shlex.split(line.decode(errors="replace"))
                files = {Path(word).name: Path(word).read_bytes() for word in text if Path(word).is_file()}
                text = [Path(word).name if Path(word).is_file() else word for word in text]
                of_owners = command in ("reclaim", "return")
                if command == "reclaim" and text[2:]:
                    text[2] = f"--notice={text[2]}"
                [near, *_] = [word for word in words if of_owners and word in hosts] + [
                    conductor.campus.coordinator.name
                ]
                conductor.run(places[near], "", text, files)
