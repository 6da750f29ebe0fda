"""What is measured on links that no agent's counters see: the traffic of everybody else, as switches count it.

P1, P2 and P3 then give out what is left, `payload_share * (B - max(B_res, research))`, and no longer the whole share.
Two things stand on the whole share still: promises that were made before the others came (a migration is not broken off
because somebody downloads something), and the account that every grant is held against.
"""

from __future__ import annotations

from controller.core.lifecycle.protection import protect
from controller.core.model import effects as do
from controller.core.model.cluster import Cluster
from controller.core.model.events import LinksMeasured
from topologies.spec import DirectedLink


def links_measured(cluster: Cluster, event: LinksMeasured, now_s: float) -> list[do.Effect]:
    """Rates are planned anew for what is left of the links; links that are not named are as they were."""
    cluster.links_measured({DirectedLink(source, target): rate for source, target, rate in event.research})
    return protect(cluster, now_s)
