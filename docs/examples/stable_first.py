"""A destination rule that looks only at how likely a host is to stay."""

from controller.core.placement.select import Candidates, DestinationChoice, NoDestination, PlacementRequest, able_to_run
from controller.core.policies.table import Policy


def select_stable(
    request: PlacementRequest, candidates: Candidates, *, draw: float = 0.0
) -> DestinationChoice | NoDestination:
    able = able_to_run(request, candidates)
    if isinstance(able, NoDestination):
        return able
    return able.choice(able.columns.survival[able.rows].argmax())


POLICIES = {"stable-first": Policy("the host that is likeliest to stay", select=select_stable)}
