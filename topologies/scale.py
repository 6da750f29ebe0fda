"""A big campus played on a small machine: one factor for bytes, one for time, and everything else follows.

No clock runs at a multiple of real time over real sockets. So the *description* is scaled, once, before a run, and
the results are scaled back, once, in the report. Sizes are multiplied by `bytes`, durations by `time`; rates, hazards
and steps follow from their dimensions. What has no dimension stays as it is, and so does every dimensionless ratio of
the papers. They are the share of a notice that a transfer needs, C / (b tau); the expected reclaims in a notice,
lambda tau; and the queue's load. What is *not* scaled are the kernel's own constants (MTU, super-packets, timer
slack, the start of a process): a scale that makes a transfer shorter than those measures the machine, not the
protocol.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, TypeVar, cast

from topologies.dimension import NUMBER, Dimension
from topologies.errors import SpecError

T = TypeVar("T")
MIN_SCALE, MAX_SCALE = 1e-12, 1e12  # beyond, products of two scaled quantities leave the range of floats


@dataclass(frozen=True, slots=True)
class Scale:
    """Scale of a played run: `bytes` played per real byte, `time` played seconds per real second.

    `Scale(bytes=1/250, time=1/40)` plays a 10 GB checkpoint as 40 MB, an hour in 90 s, and 1 Gbit/s as 160 Mbit/s.
    """

    bytes: float = field(default=1.0, metadata=NUMBER)
    time: float = field(default=1.0, metadata=NUMBER)

    def __post_init__(self) -> None:
        for name in ("bytes", "time"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not MIN_SCALE <= value <= MAX_SCALE:
                raise SpecError(
                    f"scale.{name}", value, f"a number from {MIN_SCALE:g} to {MAX_SCALE:g} (1 is real size)"
                )

    def factor(self, dimension: Dimension) -> float:
        """Return the factor of a quantity of this dimension: bytes^a time^b."""
        of_bytes, of_time = dimension.value
        return float(self.bytes**of_bytes * self.time**of_time)

    def apply(self, thing: T, dimension: Dimension | None = None) -> T:
        """Convert real to played: a number of the given dimension, or a description (campus, trace, ...) as a whole.

        Descriptions are frozen dataclasses whose fields declare their dimensions (`topologies.dimension`). TypeError
        if a number has none: every number of a description must have one. Apply a scale once: the result looks like a
        description that was written that way.
        """
        return thing if self == Scale() else _scaled(thing, dimension, self)

    def back(self, thing: T, dimension: Dimension | None = None) -> T:
        """Convert played to real: the inverse of `apply`, for results (and for descriptions, up to rounding of whole bytes)."""
        return _scaled(thing, dimension, Scale(1.0 / self.bytes, 1.0 / self.time))


def _scaled(thing: T, dimension: Dimension | None, scale: Scale) -> T:
    """Return the thing with every number in it multiplied; `dimension` is that of the field that holds it."""
    if isinstance(thing, bool) or thing is None:
        return thing
    if isinstance(thing, int | float):
        if dimension is None:
            raise TypeError(f"a number without a dimension cannot be scaled: {thing!r}")
        if dimension is Dimension.NUMBER:
            return thing
        result = thing * scale.factor(dimension)
        return cast(T, round(result) if isinstance(thing, int) else result)
    if isinstance(thing, tuple):
        return cast(T, tuple(_scaled(item, dimension, scale) for item in thing))
    if not is_dataclass(thing) or isinstance(thing, type):
        return thing
    changes = {}
    for each in fields(thing):
        old, declared = getattr(thing, each.name), each.metadata.get("dimension")
        if declared == "held":
            declared = dimension
        elif declared is None and isinstance(old, int):
            declared = Dimension.NUMBER  # a count
        elif declared is None and isinstance(old, float):
            raise TypeError(f"field {each.name} declares no dimension")
        new = _scaled(old, declared, scale)
        if new is not old:
            changes[each.name] = new
    return cast(T, replace(cast(Any, thing), **changes)) if changes else thing
