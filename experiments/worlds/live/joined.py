"""An operator of another machine: the credentials that it keeps in a folder, and its conversation with the coordinator."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import trio

from controller.host import DESK_PORT
from testbed.checkpoints.files import write_durably
from testbed.errors import SetupError
from testbed.trust.channel import Credentials, Identity, PartyRole, opened
from testbed.trust.joining import join, name_in

FILES = ("key.pem", "certificate.pem", "authorities.pem")  # beside the file of the coordinator's address


def joined(token: str, address: str, role: PartyRole) -> Credentials:
    """Return what a token is good for at the coordinator at `address`. SetupError: it does not answer.

    "-" stands for a token on standard input: all users of a machine can read a program's arguments.
    """
    token = sys.stdin.readline().strip() if token == "-" else token
    try:
        return trio.run(join, partial(trio.open_tcp_stream, address, DESK_PORT), token, role)
    except (OSError, trio.BrokenResourceError) as error:
        raise SetupError(f"no coordinator answers at {address}: {error}") from error


def join_campus(token: str, address: str, file: Path) -> None:
    """Get an operator's credentials from the coordinator at `address`, beside a file. SetupError: it does not answer."""
    made = joined(token, address, PartyRole.OPERATOR)
    file.parent.mkdir(parents=True, exist_ok=True)
    for name, content in zip(FILES, (made.key, made.certificate, made.trusted), strict=True):
        write_durably(file.with_name(name), content)
    write_durably(file, address.encode())


async def conversation(file: Path) -> trio.abc.Stream:
    """Return a conversation under the name of the credentials beside a file. Raises OSError, and what the handshake raises."""
    key, certificate, trusted = (file.with_name(name).read_bytes() for name in FILES)
    mine = Credentials(name_in(certificate), key, certificate, trusted)
    stream = await trio.open_tcp_stream(file.read_text("utf-8"), DESK_PORT)
    words, _ = await opened(stream, Identity(mine), PartyRole.COORDINATOR)
    return words
