"""Checkpoints on their way: out under a grant, in from other hosts."""

from __future__ import annotations

import socket
from collections.abc import Callable
from functools import partial

import trio

from testbed import messages as m
from testbed.agent.core import effects as do
from testbed.agent.core import events as ev
from testbed.agent.core.announced import ANNOUNCED_WITHIN_S, LOOK_AGAIN_S, Announced, refusal
from testbed.agent.io.kernel_maps import KernelMaps
from testbed.agent.io.paced_send import PacedSend
from testbed.agent.io.processes import stored_checkpoint
from testbed.checkpoints import CheckpointStore
from testbed.logs import logger
from testbed.namespaces import OWN_NETWORK, NetworkNamespace
from testbed.peers import Occasions
from testbed.transfer import (
    CheckpointServer,
    Hello,
    ReceiveCompleted,
    ReceiveEvent,
    ReceiveFailed,
    TransferFailed,
    send_checkpoint,
)
from testbed.trust.channel import Identity, PartyRole
from testbed.trust.door import Door, Refusals

# what arrived of a checkpoint that no announced transfer goes on with: a coordinator that begins again may announce it again
ATTEMPT_KEPT_S = 60.0
BACKLOG = (
    1024  # connections that wait to be accepted: as many as the kernel takes at most, by default a campus's senders
)
LOG = logger("agent")


class Transfers:
    """Transfers from and to one host's store. How each one ends is one event, unless it was aborted.

    The virtual world's `Transfers` stands in its place.
    """

    def __init__(
        self,
        store: CheckpointStore,
        kernel: KernelMaps,
        is_closed: Callable[[], bool],
        announced: Callable[[], Announced],
        handle: Callable[[ev.Event], None],
        network: NetworkNamespace = OWN_NETWORK,
        identity: Identity | None = None,
        refusals: Refusals | None = None,
    ) -> None:
        self._network, self._identity, self._refusals = network, identity, refusals
        self._is_sealed = kernel.config.transfers == "sealed"
        self._store, self._kernel, self._handle = store, kernel, handle
        self._is_closed, self._announced = is_closed, announced
        self.sends: dict[tuple[str, str], PacedSend] = {}  # by job and destination
        self._occasions = Occasions(LOG)

    def stored(self) -> dict[tuple[str, int], m.StoredCheckpoint]:
        """Return every stored checkpoint, by job and sequence."""
        return {manifest.key: stored_checkpoint(manifest) for manifest in self._store.manifests()}

    def counts(self) -> list[m.FlowCount]:
        """Return the progress of each transfer."""
        return [send.count() for send in self.sends.values()]

    # ------------------------------------------------------------ out

    def begin(self, order: do.StartSending, nursery: trio.Nursery) -> None:
        """Start a transfer in `nursery`; from now on it can be granted another rate, or aborted."""
        send = PacedSend(order, lambda sock, rate: self._kernel.guard(sock, order.traffic_class, rate))
        self.sends[order.job, order.destination.host] = send
        nursery.start_soon(self._send, send)

    def regrant(self, job: str, destination: str, rate_bytes_per_s: float) -> None:
        """Change the rate; no effect on a transfer that has ended."""
        if send := self.sends.get((job, destination)):
            send.regrant(rate_bytes_per_s)

    def abort(self, job: str, destination: str) -> None:
        """End a transfer without an event."""
        if send := self.sends.pop((job, destination), None):
            send.scope.cancel()

    async def _send(self, send: PacedSend) -> None:
        order, to = send.order, send.order.destination
        key = order.job, to.host
        account = partial(m.TransferEnded, order.transfer, order.job, order.sequence, to.host)
        ended = None
        with send.scope:
            try:
                result = await send_checkpoint(
                    self._store,
                    order.job,
                    order.sequence,
                    (to.address, to.port),
                    ticket=to.ticket,
                    on_connected=send.connected,
                    on_progress=send.progressed,
                    allowance=send.allowance,
                    network=self._network,
                    allowed_bytes=send.allowed_bytes,
                    is_sealed=self._is_sealed,
                    identity=self._identity,
                    receiver=to.host,
                )
                ratio = send.goodput_over_grant()
                send.close()
                sent, saved, took_s = result.bytes_sent, result.bytes_deduplicated, result.duration_s
                ended = ev.SendEnded(account(True, sent, saved, took_s, ratio, send.drops))
            except TransferFailed as failed:
                LOG.warning("%s: %s", order.transfer, failed)
                send.close()
                bad = account(False, failed.bytes_sent, 0, 0.0, None, send.drops, failed.reason, failed.own_fault)
                ended = ev.SendEnded(bad, failed.retryable)
            finally:
                send.close()
        if self.sends.get(key) is send:
            del self.sends[key]
            if ended is not None:
                self._handle(ended)

    # ------------------------------------------------------------ in

    async def listen(self) -> list[trio.SocketListener]:
        """Open the port at which checkpoints arrive."""
        config = self._kernel.config
        sock = trio.socket.from_stdlib_socket(self._network.socket())
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        await sock.bind((str(config.address), config.data_port))
        sock.listen(BACKLOG)
        return [trio.SocketListener(sock)]

    async def serve(self, listeners: list[trio.SocketListener]) -> None:
        """Take checkpoints that are announced until cancelled; not while the owner has this host back."""
        async with trio.open_nursery() as nursery:
            server = CheckpointServer(
                store=self._store,
                on_event=self._received,
                door=Door(self._identity, PartyRole.HOST, refusals=self._refusals),
                accept=self._accept,
                around=self._kernel.as_metadata,
                is_sealed=self._is_sealed,
            )
            if self._refusals is not None:
                nursery.start_soon(self._refusals.report)
            nursery.start_soon(trio.serve_listeners, server.serve, listeners)
            while True:
                # what arrived of checkpoints that were given up goes, once no announced transfer could go on with it
                await trio.sleep(ATTEMPT_KEPT_S)
                jobs = {expected.job for expected in self._announced().values()}
                await trio.to_thread.run_sync(self._store.collect_attempts, jobs, ATTEMPT_KEPT_S)

    async def drop(self, job: str, before: int) -> None:
        """Forget the checkpoints of a job below a sequence, and what arrived of such."""
        await trio.to_thread.run_sync(self._store.drop_older, job, before)

    async def _accept(self, hello: Hello, sender: str) -> None:
        """Raise TransferFailed unless the transfer is announced, or will be in a moment."""
        if self._is_closed():
            raise TransferFailed("the owner has this host", retryable=False)
        with trio.move_on_after(ANNOUNCED_WITHIN_S):
            while hello.ticket not in self._announced():
                await trio.sleep(LOOK_AGAIN_S)
        announced = self._announced()
        offered = hello.ticket, hello.job, hello.sequence, hello.payload_bytes
        if reason := refusal(announced, *offered, None if self._identity is None else sender):
            if self._refusals is not None:
                self._refusals.count(sender, reason)
            raise TransferFailed(reason, retryable=hello.ticket not in announced)

    async def _received(self, event: ReceiveEvent) -> None:
        match event:
            case ReceiveCompleted(manifest=manifest):
                # what is on its way from here is kept until it is there. Else a copy slower than the next checkpoint would
                # never be complete; the one after it finds it still
                sent = {send.order.sequence for (job, _), send in self.sends.items() if job == manifest.job}
                drop = partial(self._store.drop_older, *manifest.key, sent, keep_file=True)
                await trio.to_thread.run_sync(drop)
                self._handle(ev.CheckpointReceived(stored_checkpoint(manifest)))
            case ReceiveFailed(checkpoint=what, peer=peer, reason=reason):
                self._occasions.warn("reception", f"reception of {what} from {peer} failed: {reason}")
