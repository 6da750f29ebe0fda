"""The commands about services of this machine: an agent that lends it, and a coordinator of such machines."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from experiments.cli.options import Json, console, print_json

agent = typer.Typer(no_args_is_help=True)
coordinator = typer.Typer(no_args_is_help=True)
app = typer.Typer()
app.add_typer(coordinator, name="coordinator", rich_help_panel="Change", help="The coordinator of real machines.")
app.add_typer(agent, name="agent", rich_help_panel="Change", help="The agent that lends this machine itself.")
Address = Annotated[str, typer.Option("--coordinator", metavar="ADDRESS", help="The coordinator's.")]


@agent.command()
def observe(coordinator: Address, as_json: Json = False) -> None:
    """Show what an agent would lend here and see of the owner; lend nothing."""
    from testbed.errors import SetupError
    from testbed.installed import machine
    from testbed.workloads.sandbox import lacks
    from topologies.units import format_rate, format_size

    way, gpus = machine.way_to(coordinator), machine.Gpus()
    rate = "a rate that its driver does not report"
    if way.megabits_per_s is not None:
        rate = format_rate(way.megabits_per_s * 125_000.0)
    lines = [f"{name}, {format_size(size)}" for name, size in gpus.facts()]
    try:
        sessions = "a session that is not idle" if machine.in_use() else "no session, or all are idle"
    except SetupError as error:
        sessions = f"sessions cannot be seen: {error}"
    facts = {
        "to the coordinator": [f"{way.interface} ({way.source}), {rate}"],
        "GPUs": lines or [gpus.lack or "none"],
        "the owner": [sessions, *(f"process {pid} on a GPU" for pid in gpus.foreign_processes())],
        "jobs' sandbox lacks": [f"{part}: {why}" for part, why in lacks().items()] or ["nothing"],
    }
    shown = Table(show_header=False)
    for what, found in facts.items():
        shown.add_row(what, "\n".join(found))
    console.print(shown)
    if as_json:
        print_json(facts)


@agent.command()
def install(
    token: Annotated[str, typer.Option(help="Of `token create --host HOST`; - reads it.")],
    coordinator: Address,
    gpus: Annotated[
        int | None, typer.Option(min=1, help="How many jobs run at once.", show_default="its GPUs, or 1")
    ] = None,
    share: Annotated[str | None, typer.Option(metavar="RATE", help="Most that its checkpoints take.")] = None,
    notice: Annotated[str, typer.Option(help="From the owner's coming until guests are closed off.")] = "5 s",
) -> None:
    """Lend this machine until its owner comes: join, and start an agent. Root."""
    from controller.host import AGENT_PORT
    from experiments.worlds.live.joined import joined
    from testbed.errors import SpecError
    from testbed.installed import machine, service
    from testbed.installed.agent import SERVICE, Lent
    from testbed.trust.channel import PartyRole
    from topologies.dimension import Dimension

    service.check()
    machine.way_to(coordinator)
    given = {"--share": (share, Dimension.RATE), "--notice": (notice, Dimension.DURATION)}
    read = dict.fromkeys(given, 0.0)
    for option, (words, dimension) in given.items():
        try:
            read[option] = dimension.units.parse(words) if words is not None else 0.0
        except ValueError:
            raise SpecError(option, words, dimension.units.allowed) from None
    made = joined(token, coordinator, PartyRole.HOST)
    lent = Lent(
        address=coordinator,
        key=made.key,
        certificate=made.certificate,
        trusted=made.trusted,
        port=AGENT_PORT,
        gpus=gpus or len(machine.Gpus().facts()) or 1,
        share_bytes_per_s=read["--share"] if share is not None else None,
        notice_s=read["--notice"],
    )
    service.install(lent)
    console.print(f"{lent.host} is lent: journalctl -u {SERVICE.unit}; yours again: reclaimnet reclaim {lent.host}")


@agent.command()
def uninstall() -> None:
    """Remove the agent and all that it keeps. Root."""
    from testbed.installed import service

    service.uninstall()
    console.print(
        "the agent is gone; its name is good until its certificate ends: `ca revoke` at the campus ends it now"
    )


@coordinator.command("install")
def install_coordinator(
    file: Annotated[Path, typer.Argument(help="A scenario or campus (TOML).")],
    authority: Annotated[Path, typer.Option(metavar="FILE", help="Of `ca init`; copied.")],
    etcd: Annotated[
        list[str] | None, typer.Option(metavar="ADDRESS:PORT", help="A member of etcd, for the log.")
    ] = None,
    etcd_files: Annotated[
        tuple[Path, Path, Path] | None, typer.Option(metavar="CA CERTIFICATE KEY", help="Proof for etcd, in PEM.")
    ] = None,
) -> None:
    """Coordinate real machines from this one, as a service. Root."""
    from experiments.cli.up import by_hand
    from experiments.inputs.scenario import load
    from experiments.worlds.live.installed import SERVICE, install
    from topologies import files, reading, toml

    if (etcd is None) != (etcd_files is None):
        raise typer.BadParameter("--etcd and --etcd-files, or none of them")
    is_campus = "buildings" in toml.parse(reading.read_text(file, "a scenario or campus file (TOML)"))
    described = by_hand(files.load(file)) if is_campus else load(file)
    install(described, authority, etcd or (), etcd_files or ())
    console.print(f"{described.campus.name} is coordinated here: journalctl -u {SERVICE.unit}; reclaimnet token create")


@coordinator.command("uninstall")
def uninstall_coordinator() -> None:
    """Remove the coordinator and its journal. Root."""
    from experiments.worlds.live.installed import SERVICE

    SERVICE.stop()
    SERVICE.forget()
    console.print("the coordinator is gone; its agents look for it until they are uninstalled")
