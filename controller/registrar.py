"""The registrar of a campus: tokens, certificates at half-life, revocations, and another authority, while the campus runs.

Whatever may not be forgotten is an event in the journal before anything leaves: a token is spent there before its certificate
goes out. The authority itself is in a file of its own, from which a restarted coordinator reads it again.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import trio

from controller.core.model import events as ev
from controller.core.model.names import Names
from testbed import messages as m
from testbed.errors import RemoteProtocolError, SetupError
from testbed.logs import logger
from testbed.trust import joining
from testbed.trust.authority import Authority
from testbed.trust.channel import Identity, Name, PartyRole
from testbed.trust.joining import renew_in_s
from testbed.wire import Channel

LOG = logger("controller")
JOIN_WITHIN_S: Final = 5.0
LOOK_S: Final = 5.0  # between two, of a coordinator that follows, for what the leading one has done


class Registrar:
    """The authority in the coordinator's process. `handle` journals an event."""

    def __init__(
        self,
        path: Path,
        identity: Identity,
        names: Names,
        handle: Callable[[ev.Event], None],
        tell_agents: Callable[[m.Trust], None],
    ) -> None:
        self._path, self._authority = path, Authority.load(path)
        self._identity, self._names, self._handle = identity, names, handle
        self._tell_agents = tell_agents
        identity.deny(names.revoked)

    def name(self, role: str, subject: str) -> Name:
        """Return the name of a host or an operator of this campus. RemoteProtocolError: there is no such name."""
        try:
            name = Name(self._authority.campus, PartyRole(role), subject)
        except ValueError as error:
            raise RemoteProtocolError(str(error)) from None
        if name.role is PartyRole.COORDINATOR:  # agents would leave it
            raise RemoteProtocolError(f"{name}: this is for hosts and operators")
        return name

    @property
    def trust(self) -> m.Trust:
        """The authorities and revoked names that agents have to know."""
        return m.Trust(self._authority.trusted, self._names.revoked)

    def renewed(self, host: str, asked: m.Renew) -> m.Issued:
        """Return another certificate for the host under whose name the conversation runs. RemoteProtocolError: no public key."""
        return m.Issued(self._issue(self.name(PartyRole.HOST, host), asked.public_key))

    def _issue(self, name: Name, public_key: bytes) -> bytes:
        return self._authority.shown(self._authority.issue(name, joining.public_key_of(public_key)))

    def make_token(self, asked: m.MakeToken) -> m.Token:
        """Return a new token, whose number is in the journal."""
        name = self.name(asked.role, asked.subject)
        token, number = joining.new_token(self._authority, name, asked.ttl_s)
        self._handle(ev.TokenMade(number, str(name)))
        return m.Token(token)

    def obey(self, order: m.Revoke | m.RotateAuthority) -> None:
        """End what a name's certificates are good for, and its conversations; or follow the authority by another one."""
        if isinstance(order, m.Revoke):
            name = str(self.name(order.role, order.subject))
            # the clock may have been set back since
            self._handle(ev.NameRevoked(name, max(time.time(), self._identity.issued_s(name))))
        else:
            following = self._authority.successor()
            try:
                following.save(self._path)
            except OSError as error:
                raise RemoteProtocolError(f"the authority stays as it is: {error}") from error
            self._renew(following)
        self._tell_agents(self.trust)
        self._identity.deny(self._names.revoked)

    async def keep_renewed(self) -> None:
        """Take over what another coordinator has left, for ever, and renew the own certificate at half its life."""
        while True:
            await trio.sleep(LOOK_S)
            self.take_over()
            if renew_in_s(self._identity.credentials.certificate) <= 0.0:
                self._renew(self._authority)

    def take_over(self) -> None:
        """Follow the authority by the one that another coordinator has left, and end conversations with names that it revoked."""
        try:
            authority = Authority.load(self._path)
        except SetupError as error:
            LOG.warning("the last authority goes on: %s", error)
        else:
            if authority.certificate != self._authority.certificate:
                self._renew(authority)
                self._tell_agents(self.trust)
        self._identity.deny(self._names.revoked)

    def _renew(self, by: Authority) -> None:
        self._authority = by
        self._identity.renew(by.credentials(self._identity.name))

    async def serve_joiner(self, stream: trio.abc.Stream, stands: Callable[[], Awaitable[None]]) -> None:
        """Give a peer without a name the certificate that its token is for, once it `stands` that the token is spent.

        RemoteProtocolError: it has no good token.
        """
        channel = Channel(stream, joining.CODEC)
        asked: object = "nothing"
        with trio.move_on_after(JOIN_WITHIN_S):
            await channel.send(m.Trust(self._authority.trusted, {}))
            asked = await channel.receive()
        if asked is None:  # it wanted to know who is here
            return
        try:
            if not isinstance(asked, joining.Join):
                raise RemoteProtocolError(f"no Join within {JOIN_WITHIN_S:g} s")
            number, name = joining.number_and_name(asked.token, self._authority)
            if number not in self._names.tokens:
                raise RemoteProtocolError(f"{name}: the token was used, or the name was revoked since")
            certificate = self._issue(name, asked.public_key)
        except RemoteProtocolError as error:
            await channel.send(m.Refused(str(error)))
            raise
        self._handle(ev.TokenSpent(number))
        await stands()
        await channel.send(m.Issued(certificate))
