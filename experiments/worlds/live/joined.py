"""An operator of another machine: the credentials that it keeps in a folder, and its conversation with the coordinator."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import msgspec
import trio

from controller.host import DESK_PORT
from testbed.checkpoints.files import write_durably
from testbed.errors import SetupError
from testbed.trust.channel import Credentials, Identity, PartyRole, opened
from testbed.trust.joining import join, name_in


class Joined(msgspec.Struct):
    """The coordinator's address, and credentials."""

    address: str
    key: bytes
    certificate: bytes
    trusted: bytes


def join_campus(token: str, address: str, file: Path) -> None:
    """Get an operator's credentials from the coordinator at `address`, into a file. SetupError: it does not answer."""
    try:
        made = trio.run(join, partial(trio.open_tcp_stream, address, DESK_PORT), token, PartyRole.OPERATOR)
    except (OSError, trio.BrokenResourceError) as error:
        raise SetupError(f"no coordinator answers at {address}: {error}") from error
    file.parent.mkdir(parents=True, exist_ok=True)
    write_durably(file, msgspec.json.encode(Joined(address, made.key, made.certificate, made.trusted)))


async def conversation(file: Path) -> trio.abc.Stream:
    """Return a conversation under the name of a file's credentials. Raises OSError, and what the handshake raises."""
    kept = msgspec.json.decode(file.read_bytes(), type=Joined)
    mine = Credentials(name_in(kept.certificate), kept.key, kept.certificate, kept.trusted)
    stream = await trio.open_tcp_stream(kept.address, DESK_PORT)
    words, _ = await opened(stream, Identity(mine), PartyRole.COORDINATOR)
    return words
