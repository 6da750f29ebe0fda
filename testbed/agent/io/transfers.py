"""Checkpoints on their way: out under a grant, in from other hosts."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import trio

from testbed import messages as m
from testbed.agent.core import effects as do
from testbed.agent.core import events as ev
from testbed.agent.core.announced import ANNOUNCED_WITHIN_S, LOOK_AGAIN_S, Announced
from testbed.agent.io.kernel_maps import Edge
from testbed.agent.io.outbound_transfer import Outgoing
from testbed.checkpoints import CheckpointStore, Manifest, NotStored
from testbed.enforcement import FlowGuard
from testbed.peers import Occasions
from testbed.transfer import (
    Hello,
    ReceiveCompleted,
    ReceiveEvent,
    ReceiveFailed,
    ReceiveRepeated,
    SendResult,
    TransferFailed,
    send_checkpoint,
    serve_checkpoints,
)

# what arrived of a checkpoint that no announced transfer goes on with: a coordinator that begins again may announce it anew
ATTEMPT_KEPT_S = 60.0
LOG = logging.getLogger("agent")


class Shipping:
    """Transfers from and to one host's store. How each one ends is one event, unless it was aborted."""

    def __init__(
        self,
        store: CheckpointStore,
        edge: Edge,
        is_closed: Callable[[], bool],
        announced: Callable[[], Announced],
        handle: Callable[[ev.Event], None],
    ) -> None:
        self._store, self._edge, self._handle = store, edge, handle
        self._is_closed, self._announced = is_closed, announced
        self._outgoing: dict[tuple[str, str], Outgoing] = {}  # by job and destination
        self._occasions = Occasions(LOG)

    def stored(self) -> dict[tuple[str, int], m.StoredCheckpoint]:
        """What lies in the store, by job and sequence."""
        return {manifest.key: _stored(manifest) for manifest in self._store.manifests()}

    def counts(self) -> list[m.FlowCount]:
        """How far each transfer is."""
        return [outgoing.count() for outgoing in self._outgoing.values()]

    # ------------------------------------------------------------ out

    def begin(self, order: do.StartSending, nursery: trio.Nursery) -> None:
        """Starts a transfer in `nursery`; from now on it can be granted another rate, or aborted."""
        transfer = f"{order.job}:{order.sequence}>{order.destination.host}"
        guard = partial(_guarded, self._edge, order)
        outgoing = self._outgoing[_key(order)] = Outgoing(transfer, order.rate_bytes_per_s, guard)
        nursery.start_soon(self._send, order, outgoing)

    def regrant(self, job: str, destination: str, rate_bytes_per_s: float) -> None:
        """Another rate from now on; of no effect on a transfer that has ended."""
        if outgoing := self._outgoing.get((job, destination)):
            outgoing.regrant(rate_bytes_per_s)

    def abort(self, job: str, destination: str) -> None:
        """Ends a transfer without an event."""
        if outgoing := self._outgoing.pop((job, destination), None):
            outgoing.scope.cancel()

    async def _send(self, order: do.StartSending, outgoing: Outgoing) -> None:
        ended = None
        with outgoing.scope:
            try:
                ended = await self._send_one(order, outgoing)
            except NotStored as error:
                ended = _failed(order, outgoing, TransferFailed(str(error), retryable=False))
            except TransferFailed as error:
                ended = _failed(order, outgoing, error)
            finally:
                outgoing.close()
        if self._outgoing.get(_key(order)) is outgoing:
            del self._outgoing[_key(order)]
            if ended is not None:
                self._handle(ended)

    async def _send_one(self, order: do.StartSending, outgoing: Outgoing) -> ev.SendEnded:
        result = await send_checkpoint(
            self._store,
            self._store.get(order.job, order.sequence),
            (order.destination.address, order.destination.port),
            transfer=outgoing.transfer,
            ticket=order.destination.ticket,
            on_connected=outgoing.connected,
            on_progress=outgoing.progressed,
        )
        ratio = outgoing.goodput_over_grant()
        outgoing.close()
        return _arrived(order, outgoing, result, ratio)

    # ------------------------------------------------------------ in

    async def listen(self) -> list[trio.SocketListener]:
        """Where checkpoints arrive from now on."""
        config = self._edge.config
        return await trio.open_tcp_listeners(config.data_port, host=str(config.address))

    async def serve(self, listeners: list[trio.SocketListener]) -> None:
        """Takes checkpoints that are announced until cancelled; not while the owner has this host back."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._collect_forever)
            await serve_checkpoints(
                self._store,
                listeners,
                accept=self._accept,
                on_event=self._received,
                senders=lambda: self._announced().senders(),
                around=self._edge.as_metadata,
            )

    async def drop(self, job: str, before: int) -> None:
        """Forgets the checkpoints of a job below a sequence."""
        await trio.to_thread.run_sync(self._drop, job, before)

    def _drop(self, job: str, before: int) -> None:
        for manifest in self._store.manifests():
            if manifest.job == job and manifest.sequence < before:
                try:
                    self._store.drop(job, manifest.sequence)
                except NotStored:
                    continue  # another order dropped it first
        self._store.drop_attempts(job, before)

    async def _accept(self, hello: Hello, address: str) -> None:
        """Raises TransferFailed unless the transfer is announced, or will be in a moment."""
        if self._is_closed():
            raise TransferFailed("the owner has this host", retryable=False)
        with trio.move_on_after(ANNOUNCED_WITHIN_S):
            while not self._announced().knows(hello.ticket):
                await trio.sleep(LOOK_AGAIN_S)
        announced = self._announced()
        reason = announced.refusal(hello.ticket, hello.job, hello.sequence, hello.payload_bytes, address)
        if reason:
            raise TransferFailed(reason, retryable=not announced.knows(hello.ticket))

    async def _collect_forever(self) -> None:
        """Removes what arrived of checkpoints that were given up, once no announced transfer could go on with it."""
        while True:
            await trio.sleep(ATTEMPT_KEPT_S)
            await trio.to_thread.run_sync(
                self._store.collect_attempts, self._announced().jobs(), ATTEMPT_KEPT_S
            )

    async def _received(self, event: ReceiveEvent) -> None:
        match event:
            case ReceiveCompleted(manifest=manifest):
                await self.drop(manifest.job, manifest.sequence)
                self._handle(ev.CheckpointReceived(_stored(manifest)))
            case ReceiveRepeated(
                job=job, sequence=sequence
            ):  # the word that it is here may have been lost, or is waited for
                with suppress(NotStored):
                    self._handle(ev.CheckpointReceived(_stored(self._store.get(job, sequence))))
            case ReceiveFailed(transfer=transfer, peer=peer, reason=reason):
                self._occasions.warn("reception", f"reception of {transfer} from {peer} failed: {reason}")


def _key(order: do.StartSending) -> tuple[str, str]:
    return order.job, order.destination.host


def _guarded(edge: Edge, order: do.StartSending, sock: socket.socket, rate_bytes_per_s: float) -> FlowGuard:
    return edge.guard(sock, order.traffic_class, rate_bytes_per_s)


def _arrived(
    order: do.StartSending, outgoing: Outgoing, result: SendResult, ratio: float | None
) -> ev.SendEnded:
    return ev.SendEnded(
        *_key(order),
        order.sequence,
        True,
        result.bytes_sent,
        result.bytes_deduplicated,
        result.duration_s,
        ratio,
        outgoing.drops,
    )


def _failed(order: do.StartSending, outgoing: Outgoing, error: TransferFailed) -> ev.SendEnded:
    LOG.warning("%s: %s", outgoing.transfer, error)
    outgoing.close()
    return ev.SendEnded(
        *_key(order),
        order.sequence,
        False,
        error.bytes_sent,
        drops=outgoing.drops,
        reason=error.reason,
        retryable=error.retryable,
    )


def _stored(manifest: Manifest) -> m.StoredCheckpoint:
    return m.StoredCheckpoint(
        manifest.job, manifest.sequence, manifest.step, manifest.payload_bytes, manifest.digest.hex()
    )
