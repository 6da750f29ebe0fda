"""The hazard of one host at a time, in plain numbers: what `HazardWindow` answers for many at once is held to this."""

from __future__ import annotations

from controller.core.placement import hazard
from controller.core.placement.hazard import Experience, Hazard, HazardWindow


def experience(window: HazardWindow, host: str, now_s: float) -> Experience:
    """What was seen on one host in the window that ends now."""
    seen, [number] = window._seen.seen(now_s), window._seen.numbers([host])
    return Experience(float(seen.events[number]), float(seen.lent_s[number]))


def pooled(own: Experience, whole: Experience, events: float) -> Experience:
    """One's own experience, and of the rest of `whole` the part in which `events` emergencies of the whole fall: all of it if
    it holds no more. The own part is never counted twice."""
    part = min(1.0, events / whole.events) if whole.events > 0.0 else 1.0
    return Experience(
        own.events + part * (whole.events - own.events),
        own.exposure_s + part * max(0.0, whole.exposure_s - own.exposure_s),
    )


def estimate(window: HazardWindow, now_s: float, host: str | None = None) -> Hazard:
    """Hazard of a host, with what it borrows from the others; of the average host where none is named."""
    campus = window.campus(now_s)
    if host is None:
        return hazard.bounds(campus)
    seen = window._seen.seen(now_s)
    borrowed = float(hazard._borrowed(seen.events, seen.lent_s, campus.rate_per_s))
    return hazard.bounds(pooled(experience(window, host, now_s), campus, borrowed))


def profile(window: HazardWindow, now_s: float) -> tuple[float, ...]:
    """24 factors, the campus's rate in each hour over its mean rate; all 1 while nothing was seen."""
    seen = window._seen.seen(now_s)
    scattered = hazard.scatter(seen.hour_events, seen.squares, window._seen.days(now_s))
    return tuple(hazard.relative(seen.hour_events, seen.hour_lent_s, scattered).tolist())
