"""Rates of all links that decisions work with, payload bytes/s: the share, and what is left of it to reserve, grant and lend.

They follow from three things: the rates of cables, the traffic of others that switches count, and trunks that are announced to
go down. A change of any of them derives all again here, so that no reader can hold a rate of before.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import numpy as np

from controller.core.network.bandwidth import LinkBandwidth
from controller.core.network.links import Network
from controller.numerics.arrays import Floats
from topologies.spec import DirectedLink, ResearchReserve

LEAST_FALL = 0.01  # a rate that falls by less than 1 % is not worth a message: only so much less than a share is given out


class LinkCapacity:
    """The rates of every link, as columns by the link's number.

    `wire_bytes_per_s`: of each cable; `share`: the part of each link that migrations may use; `borrows`: checkpoints may use
    what research does not ask for of its reserve.
    """

    share: dict[DirectedLink, float]  # the one account that every grant is held against
    draining: frozenset[frozenset[str]]  # trunks that still carry, and are announced to go down
    bandwidth: LinkBandwidth  # what may be reserved
    checkpoint_bandwidth: LinkBandwidth  # the same, or with what is lent of the reserve
    reservable_column: Floats  # the share, less the room for falls too small to announce; 0 where it drains
    withheld_column: Floats  # that room, of what checkpoints may use
    spendable_column: (
        Floats  # what is given out anew: `reservable_column`, or what others leave where that is less
    )
    given_column: (
        Floats  # what flows are granted: `spendable_column`, and the whole of links that are draining
    )
    checkpoint_given_column: Floats  # what research leaves to streams of checkpoints that may borrow
    checkpoint_column: Floats  # what such streams may be planned with: nothing of links that are draining
    lent_column: Floats  # what all flows together may be granted

    def __init__(
        self,
        wire_bytes_per_s: Mapping[DirectedLink, float],
        reserve: ResearchReserve,
        share: dict[DirectedLink, float],
        *,
        borrows: bool,
    ) -> None:
        self.share, self.draining, self._borrows = share, frozenset(), borrows
        self.bandwidth = self.checkpoint_bandwidth = LinkBandwidth(wire_bytes_per_s, reserve)
        if borrows:
            self.checkpoint_bandwidth = LinkBandwidth(wire_bytes_per_s, reserve, lends=True)
        self._derive()

    @property
    def network(self) -> Network:
        """The links, by number."""
        return self.bandwidth.network

    @cached_property
    def reservable(self) -> dict[DirectedLink, float]:
        """`reservable_column`, by link."""
        return self.network.mapping(self.reservable_column)

    @cached_property
    def spendable(self) -> dict[DirectedLink, float]:
        """`spendable_column`, by link."""
        return self.network.mapping(self.spendable_column)

    def measured(self, research_bytes_per_s: Mapping[DirectedLink, float]) -> None:
        """Record the traffic of others on some links, wire bytes/s; other links keep theirs.

        Two things still stand on the whole share: reservations that were made before the others came, and the account that
        every grant is held against. A migration is not broken off because of another's download.
        """
        self.bandwidth.tell(research_bytes_per_s)
        if self._borrows:
            self.checkpoint_bandwidth.tell(research_bytes_per_s)
        self._derive()

    def changed(self, wire_bytes_per_s: Mapping[DirectedLink, float]) -> None:
        """Record other rates of some cables (0: down)."""
        self.bandwidth.change(wire_bytes_per_s)
        if self._borrows:
            self.checkpoint_bandwidth.change(wire_bytes_per_s)
        self.share.update({link: self.bandwidth.share(link) for link in wire_bytes_per_s})
        self._derive()

    def drain(self, trunks: frozenset[frozenset[str]]) -> None:
        """Record all trunks that are announced to go down: nothing is reserved there."""
        self.draining = trunks
        self._derive()

    def delivered(self, bottleneck: str, goodput_over_grant: float, now_s: float) -> None:
        """Record the share of its grant that a transfer got, which this link (as flows name it) holds down."""
        source, _, target = bottleneck.partition(">")
        link = DirectedLink(source, target)
        if self._borrows:
            self.checkpoint_bandwidth.delivered(link, goodput_over_grant, now_s)
        self.bandwidth.delivered(link, goodput_over_grant, now_s)

    def _derive(self) -> None:
        network, usable = self.network, self.share
        carries = np.ones(len(network))
        if self.draining:
            carries = np.array([frozenset(link) not in self.draining for link in network.links], dtype=float)
        whole = network.column(self.share) * (1.0 - LEAST_FALL)
        reservable = self.reservable_column = carries * whole
        if self._borrows:
            usable = {link: self.checkpoint_bandwidth.share(link) for link in self.share}
        self.withheld_column = LEAST_FALL * network.column(usable)
        self.spendable_column, given = reservable, whole
        if self.bandwidth.told:
            left = self.bandwidth.left_column * (1.0 - LEAST_FALL)
            self.spendable_column, given = np.minimum(reservable, left), np.minimum(whole, left)
        self.given_column = given if self.draining else self.spendable_column
        self.checkpoint_column = self.checkpoint_given_column = self.spendable_column
        if self._borrows:
            self.checkpoint_given_column = self.checkpoint_bandwidth.left_column * (1.0 - LEAST_FALL)
            self.checkpoint_column = carries * self.checkpoint_given_column
        self.lent_column = np.maximum(self.given_column, self.checkpoint_given_column)
        for name in ("reservable", "spendable"):
            self.__dict__.pop(name, None)
