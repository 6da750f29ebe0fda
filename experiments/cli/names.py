"""The commands about names of a campus: its authority, tokens, and joining with one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from experiments.cli.options import CampusId, console

if TYPE_CHECKING:
    from testbed.messages import FromOperator

PANEL = "Change"
T = TypeVar("T")
app, ca, token = typer.Typer(), typer.Typer(no_args_is_help=True), typer.Typer(no_args_is_help=True)
app.add_typer(ca, name="ca", rich_help_panel=PANEL, help="The authority of a campus, which issues its names.")
app.add_typer(token, name="token", rich_help_panel=PANEL, help="Tokens, with which hosts and operators get a name.")
OfHost = Annotated[str | None, typer.Option("--host", help="The host that the name is of.")]
OfOperator = Annotated[str | None, typer.Option("--operator", help="The operator that the name is of.")]


@ca.command()
def init(
    file: Annotated[Path, typer.Argument(help="Where key and certificate go.", metavar="FILE")],
    name: Annotated[str, typer.Argument(help="The campus, as its description calls it.")],
) -> None:
    """Make an authority that outlives a run: `[trust] authority = "FILE"` in scenarios."""
    from testbed.trust.authority import Authority, domain_of

    if file.exists():
        raise typer.BadParameter(f"{file}: it is there already, and all names of a campus would end with it")
    Authority.new(domain_of(name)).save(file)
    console.print(f"{file} issues the names of {name}: keep it secret", soft_wrap=True)


@ca.command()
def rotate(campus: CampusId = None) -> None:
    """Let another authority follow the campus's, while it runs: both are trusted, and it issues all certificates."""
    from testbed.messages import Noted, RotateAuthority

    _ask(campus, RotateAuthority(), Noted)
    console.print("another authority issues names from now on; the last one is trusted until the next such command")


@ca.command()
def revoke(host: OfHost = None, operator: OfOperator = None, campus: CampusId = None) -> None:
    """End what a name's certificates are good for, and its connections; with a new token it may join again."""
    from testbed.messages import Noted, Revoke

    _ask(campus, Revoke(*_named(host, operator)), Noted)
    console.print(f"{host or operator} is revoked", soft_wrap=True)


@token.command()
def create(
    host: OfHost = None,
    operator: OfOperator = None,
    ttl: Annotated[str, typer.Option(help="How long it is good for.")] = "10 min",
    campus: CampusId = None,
) -> None:
    """Print a token that is good once, for one host or operator."""
    from testbed.messages import MakeToken, Token
    from topologies.dimension import Dimension
    from topologies.errors import SpecError

    try:
        ttl_s = Dimension.DURATION.units.parse(ttl)
    except ValueError:
        raise SpecError("--ttl", ttl, Dimension.DURATION.units.allowed) from None
    typer.echo(_ask(campus, MakeToken(*_named(host, operator), ttl_s), Token).token)


@app.command(rich_help_panel=PANEL)
def join(
    token: Annotated[str, typer.Argument(help="Of `token create`; - reads it.")],
    address: Annotated[str, typer.Argument(help="The coordinator's.")],
    out: Annotated[Path, typer.Option(help="The folder for key and certificate, for --campus ./FOLDER.")],
) -> None:
    """Get an operator's name for twelve hours, on any machine that reaches the coordinator: for `status`, `jobs`, `watch`."""
    from experiments.worlds.live.joined import join_campus
    from experiments.worlds.live.operator import JOINED

    join_campus(token, address, out / JOINED)
    console.print(f"try: reclaimnet jobs --campus {out.absolute()}", soft_wrap=True)


def _named(host: str | None, operator: str | None) -> tuple[str, str]:
    if (host is None) == (operator is None):
        raise typer.BadParameter("one of --host and --operator")
    return ("host", host) if host is not None else ("operator", operator or "")


def _ask(campus: str | None, message: FromOperator, answer: type[T]) -> T:
    from experiments.worlds.live.operator import PATIENCE_S, ask
    from testbed.emulation.safety.living import only_campus

    return ask(only_campus(campus).run_dir, lambda operator: operator.ask(message, answer), PATIENCE_S)
