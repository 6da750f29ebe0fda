"""Published sizes of flows, as points of their cumulative distributions: (packets of 1460 bytes, share of flows up to that).

Between two points sizes are as likely as each other. Sources: Alizadeh et al., "Data Center TCP (DCTCP)", SIGCOMM 2010, figure 4
(a cluster for web search), and Greenberg et al., "VL2: A Scalable and Flexible Data Center Network", SIGCOMM 2009, figure 2 (one
for data mining); the points are those that pFabric (Alizadeh et al., SIGCOMM 2013) read off these figures, as others use them.
"""

from __future__ import annotations

from functools import cache
from itertools import pairwise

PACKET_BYTES = 1460
_WEB_SEARCH = (
    *((6, 0.0), (6, 0.15), (13, 0.2), (19, 0.3), (33, 0.4), (53, 0.53)),
    *((133, 0.6), (667, 0.7), (1333, 0.8), (3333, 0.9), (6667, 0.97), (20000, 1.0)),
)
_DATA_MINING = (
    *((1, 0.0), (1, 0.5), (2, 0.6), (3, 0.7), (7, 0.8), (267, 0.9)),
    *((2107, 0.95), (66667, 0.99), (666667, 1.0)),
)
SIZES = {"web-search": _WEB_SEARCH, "data-mining": _DATA_MINING}


@cache
def mean_bytes(sizes: str) -> float:
    """Return the mean of a distribution."""
    parts = ((share - before) * (small + large) / 2.0 for (small, before), (large, share) in pairwise(SIZES[sizes]))
    return PACKET_BYTES * sum(parts)


def quantile(sizes: str, share: float) -> float:
    """Return the size up to which this share of flows is (from 0 to 1, 1 excluded), over the mean."""
    part = next(part for part in pairwise(SIZES[sizes]) if share < part[1][1])
    (small, before), (large, until) = part
    return PACKET_BYTES * (small + (large - small) * (share - before) / (until - before)) / mean_bytes(sizes)
