"""Checkpoints on their way: a handshake, a flow at its grant, the receiver's commit, the sender's account."""

from __future__ import annotations

from functools import partial
from math import inf

from experiments.worlds.virtual.environment import Environment
from experiments.worlds.virtual.faults import Failure
from experiments.worlds.virtual.hosts import Machine, Transfer, dirty_fraction
from experiments.worlds.virtual.network import guard_of
from experiments.worlds.virtual.scheduler import Priority
from testbed.agent.core import effects as ado
from testbed.agent.core import events as aev
from testbed.agent.core.announced import ANNOUNCED_WITHIN_S, LOOK_AGAIN_S, Announced, refusal
from testbed.bounds import TRICKLE_BYTES_PER_S
from testbed.enforcement import DROP_BURST_BYTES, PACING_SHARE, Enforcement
from testbed.messages import StoredCheckpoint, TransferEnded
from topologies.spec import DirectedLink, TrafficClass
from topologies.units import WIRE_PER_PAYLOAD

MIN_MEASURED_S = 0.5  # of a transfer whose goodput is evidence of its grant
MIN_MEASURED_BYTES = 1 << 20
STANDSTILL_S = 0.2  # how often it is looked whether a process that stood still goes on
DROP_TIMER_S = 0.2  # floor of TCP's probe timer, which a drop at local egress makes it wait for


def enforced_bytes_per_s(grant_bytes_per_s: float, enforcement: Enforcement) -> float:
    """Return the most that TCP makes of a grant, payload.

    Paced: PACING_SHARE of it. Paper A's literal bucket: a burst each time the probe timer runs out (measured: 5 to 50 %
    of the grant). Not enforced: whatever the network gives.
    """
    rate = max(TRICKLE_BYTES_PER_S, grant_bytes_per_s)
    match enforcement:
        case Enforcement.PACE:
            return rate * PACING_SHARE
        case Enforcement.DROP:
            return min(rate, DROP_BURST_BYTES / WIRE_PER_PAYLOAD / DROP_TIMER_S)
        case Enforcement.NONE:
            return inf


class Transfers:
    """Transfers of all hosts, by machine and by (job, destination): what the agents' class of that name does for one, live."""

    def __init__(self, env: Environment, enforcement: Enforcement, *, borrows: bool = False) -> None:
        self._env, self.enforcement = env, enforcement
        # classes that the sender's aggregate bucket does not hold
        self._free = {TrafficClass.PRESYNC} if borrows else set[TrafficClass]()
        self._flowing: dict[str, tuple[Machine, Transfer]] = {}
        self._begun = 0

    # ------------------------------------------------------------ begin

    def begin(self, machine: Machine, order: ado.StartSending) -> None:
        """Shake hands; then the flow begins."""
        env, to = self._env, order.destination.host
        stored = machine.store.of(order.job).get(order.sequence)
        self._begun += 1
        transfer = Transfer(order, f"{self._begun}", env.now_s, order.rate_bytes_per_s, stored)
        machine.transfers[order.job, to] = transfer
        if stored is None:
            self._fail_later(machine, transfer, 0.0, Failure("not stored", own_fault=True))
        else:
            connected = partial(self._connected, machine, transfer, stored)
            env.after(env.costs.connect_s, connected, Priority.NETWORK)

    def _connected(self, machine: Machine, transfer: Transfer, stored: StoredCheckpoint) -> None:
        if not _current(machine, transfer):
            return
        env, target = self._env, self._env.machines[transfer.order.destination.host]
        if target.core is None:
            self._fail_later(machine, transfer, 0.0, Failure("connection refused", retryable=True))
        elif target.closed or target.isolate_at_s is not None:
            silence_s = env.costs.silence_s
            silent = Failure(f"no answer for {silence_s:g} s", retryable=True)
            self._fail_later(machine, transfer, silence_s, silent)
        elif self._refused(machine, transfer, stored, target.core.announced):
            return
        elif (stored.job, stored.sequence) in machine.disk.rotten:
            rotten = Failure("its bytes are not those of its manifest", own_fault=True)
            self._fail_later(machine, transfer, 0.0, rotten)
        elif (
            target.store.of(stored.job).get(stored.sequence) == stored
            and (stored.job, stored.sequence) not in target.disk.rotten
        ):
            # the receiver has it already, whole, and reports that to the sender; its own agent learns of it, as live
            env.tell_agent(target, aev.CheckpointReceived(stored))
            ended = self._account_of(transfer, stored, env.now_s)
            env.after(env.costs.message_s, partial(self._end, machine, transfer, ended), Priority.NETWORK)
        else:
            fraction = dirty_fraction(env.specs.get(stored.job))
            transfer.lacking_bytes = target.disk.lacks_bytes(stored, fraction)
            links = self._way(machine.name, target.name, transfer.order.traffic_class)
            cap = enforced_bytes_per_s(transfer.rate_bytes_per_s, self.enforcement)
            self._flowing[transfer.key] = (machine, transfer)
            transfer.flowing_from_s = transfer.regranted_s = env.now_s
            arrived, traffic = partial(self._arrived, machine, transfer), transfer.order.traffic_class
            env.network.start(transfer.key, links, traffic, transfer.lacking_bytes, cap, arrived)

    def _way(self, source: str, target: str, traffic: TrafficClass) -> tuple[DirectedLink, ...]:
        """Return the links of the way, and the sender's aggregate bucket."""
        links = self._env.routes.way(source, target)
        is_free = self.enforcement is Enforcement.NONE or traffic in self._free
        return links if is_free else (*links, guard_of(source))

    def follow_routes(self) -> None:
        """Move all transfers to the present routes."""
        for machine, transfer in self._flowing.values():
            order = transfer.order
            links = self._way(machine.name, order.destination.host, order.traffic_class)
            self._env.network.reroute(transfer.key, links)

    def _refused(self, machine: Machine, transfer: Transfer, stored: StoredCheckpoint, announced: Announced) -> bool:
        """Return whether the receiver takes no such transfer; of a number that it does not know it is asked again for a while."""
        env, ticket = self._env, transfer.order.destination.ticket
        if ticket in announced:
            offered = ticket, stored.job, stored.sequence, stored.payload_bytes
            reason = refusal(announced, *offered, machine.name)
            if reason:
                self._fail_later(machine, transfer, 0.0, Failure(reason))
            return bool(reason)
        if env.now_s < transfer.began_s + env.costs.connect_s + ANNOUNCED_WITHIN_S:
            again = partial(self._connected, machine, transfer, stored)
            env.after(LOOK_AGAIN_S, again, Priority.NETWORK)
        else:
            unknown = Failure("no such transfer is announced", retryable=True)
            self._fail_later(machine, transfer, 0.0, unknown)
        return True

    # ------------------------------------------------------------ on the way

    def regrant(self, machine: Machine, job: str, destination: str, rate_bytes_per_s: float) -> None:
        """Set another rate."""
        transfer = machine.transfers.get((job, destination))
        if transfer is None:
            return
        transfer.grant(rate_bytes_per_s, self._env.now_s)
        if transfer.key in self._flowing:
            cap = enforced_bytes_per_s(rate_bytes_per_s, self.enforcement)
            self._env.network.regrant({transfer.key: cap})

    def abort(self, machine: Machine, job: str, destination: str) -> None:
        """Cut it; what arrived stays there."""
        if transfer := machine.transfers.pop((job, destination), None):
            self._stop(transfer)

    def abort_all(self, machine: Machine) -> None:
        """Abort all transfers of a dead sender."""
        for job, destination in list(machine.transfers):
            self.abort(machine, job, destination)

    def cut_receiver(self, name: str, after_s: float, reason: str) -> None:
        """Stop all transfers to a host; their senders give up after a while."""
        for machine, transfer in list(self._flowing.values()):
            if transfer.order.destination.host == name:
                self._stop(transfer)
                self._fail_later(machine, transfer, after_s, Failure(reason, retryable=True))

    def _stop(self, transfer: Transfer) -> None:
        """Take it out of the network."""
        if self._flowing.pop(transfer.key, None) is None:
            return
        arrived_bytes = self._env.network.stop(transfer.key).moved_bytes
        if transfer.stored is not None and arrived_bytes > 0.0:
            target = self._env.machines[transfer.order.destination.host]
            fraction = dirty_fraction(self._env.specs.get(transfer.order.job))
            target.disk.keep_part(transfer.stored, arrived_bytes, fraction)

    # ------------------------------------------------------------ arrive

    def _arrived(self, machine: Machine, transfer: Transfer) -> None:
        """Handle the last byte: the receiver verifies the checkpoint and syncs its disk."""
        del self._flowing[transfer.key]
        commit = partial(self._commit, machine, transfer, self._env.now_s)
        target = self._env.machines[transfer.order.destination.host]
        self._env.after(self._env.costs.commit_s + target.disk.slow_s, commit, Priority.NETWORK)

    def _commit(self, machine: Machine, transfer: Transfer, arrived_s: float) -> None:
        """Finish a transfer whose receiver has verified, synced and reported it all."""
        if not _current(machine, transfer) or transfer.stored is None:
            return
        env, order = self._env, transfer.order
        target = env.machines[order.destination.host]
        if target.paused or machine.paused:
            again = partial(self._commit, machine, transfer, arrived_s)
            env.after(STANDSTILL_S, again, Priority.NETWORK)
            return
        if target.core is None:
            failure: Failure | None = Failure("the connection broke", retryable=True)
        elif target.closed:
            failure = Failure("the owner has this host")
        elif target.disk.full:
            failure = Failure("the receiver's disk: no space left on device")
        elif (order.job, order.sequence) not in machine.store:
            failure = Failure("not here any more", own_fault=True)
        else:
            failure = env.faults.sending(machine.name, order)
        if failure is not None:
            self._fail_later(machine, transfer, 0.0, failure)
            return
        target.disk.partial.pop(order.job, None)
        target.store.put(transfer.stored, target.sends(order.job))
        target.disk.rotten.discard((order.job, order.sequence))
        env.tell_agent(target, aev.CheckpointReceived(transfer.stored))
        ended = self._account_of(transfer, transfer.stored, arrived_s)
        env.after(env.costs.message_s, partial(self._end, machine, transfer, ended), Priority.NETWORK)

    def _account_of(self, transfer: Transfer, stored: StoredCheckpoint, arrived_s: float) -> aev.SendEnded:
        order, sent = transfer.order, round(transfer.lacking_bytes)
        lasted_s, granted = arrived_s - transfer.flowing_from_s, transfer.granted(arrived_s)
        measured = lasted_s >= MIN_MEASURED_S and sent >= MIN_MEASURED_BYTES and granted > 0.0
        account = TransferEnded(
            order.transfer,
            order.job,
            order.sequence,
            order.destination.host,
            True,
            sent,
            stored.payload_bytes - sent,
            self._env.now_s - transfer.began_s,
            transfer.lacking_bytes / granted if measured else None,
        )
        return aev.SendEnded(account)

    def _fail_later(self, machine: Machine, transfer: Transfer, after_s: float, failure: Failure) -> None:
        order = transfer.order
        account = TransferEnded(
            order.transfer,
            order.job,
            order.sequence,
            order.destination.host,
            False,
            0,
            0,
            0.0,
            reason=failure.reason,
            own_fault=failure.own_fault,
        )
        end = partial(self._end, machine, transfer, aev.SendEnded(account, failure.retryable))
        self._env.after(after_s + self._env.costs.message_s, end, Priority.NETWORK)

    def _end(self, machine: Machine, transfer: Transfer, ended: aev.SendEnded) -> None:
        def end() -> None:
            if _current(machine, transfer):
                del machine.transfers[ended.account.job, ended.account.destination]
                self._env.agent(machine, ended)

        self._env.to_agent(machine, end)


def _current(machine: Machine, transfer: Transfer) -> bool:
    """Return whether it is still wanted."""
    order = transfer.order
    return machine.transfers.get((order.job, order.destination.host)) is transfer
