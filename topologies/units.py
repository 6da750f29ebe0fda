"""Human units, at the edges only. Inside the project: seconds, bytes, bytes per second, suffix in the name.

`parse_*` read what people write, `format_*` write what people read (rounded), `exact_*` write text that `parse_*` turns
back into the very same float: descriptions are stored with those, so that a file read and written again is the same.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable

MBIT_PER_S = 125_000.0  # bytes per second
GBIT_PER_S = 125_000_000.0
HOUR_S = 3600.0
# of a cable, and so of any grant: 8 Tbit/s. Messages carry rates up to this (`testbed.bounds.Rate`)
LARGEST_RATE_BYTES_PER_S = 1e12
# payload and wire bytes of a full TCP segment at an MTU of 1500: Ethernet, IPv4 and TCP headers with timestamps
SEGMENT_BYTES, FRAME_BYTES = 1448, 1514
PAYLOAD_SHARE = SEGMENT_BYTES / FRAME_BYTES  # of what links, shapers and buckets count
WIRE_PER_PAYLOAD = FRAME_BYTES / SEGMENT_BYTES

_SCALES = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30}
_TIMES = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_PER_S = {"us": 1e6, "ms": 1e3}  # divided by, for 200 / 1e6 is 0.0002 and 200 * 1e-6 is not
_NUMBER = r"\s*([0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?)\s*"
_RATE = re.compile(_NUMBER + r"(k|M|G|T|)(bit/s|B/s)\s*", re.ASCII)
_SIZE = re.compile(_NUMBER + r"(k|M|G|T|Ki|Mi|Gi|)B\s*", re.ASCII)
_TIME = re.compile(_NUMBER + r"(us|ms|s|min|h|d)\s*", re.ASCII)
_PER_TIME = re.compile(_NUMBER + r"/\s*(s|min|h|d)\s*", re.ASCII)


def parse_rate(text: str) -> float:
    """Parse "100 Mbit/s", "1.5 GB/s" to bytes per second; ValueError states what is allowed."""
    found = _found(_RATE, text, 'a rate such as "100 Mbit/s", "10 Gbit/s" or "12.5 MB/s"')
    return float(found[1]) * _SCALES[found[2]] / (8.0 if found[3] == "bit/s" else 1.0)


def parse_size(text: str) -> float:
    """Parse "3.2 GB", "64 MiB" to bytes; ValueError states what is allowed."""
    found = _found(_SIZE, text, 'a size such as "120 MB", "3.2 GB" or "64 MiB"')
    return float(found[1]) * _SCALES[found[2]]


def parse_duration(text: str) -> float:
    """Parse "200 us", "90 s", "12 h" to seconds; ValueError states what is allowed."""
    found = _found(_TIME, text, 'a duration such as "200 us", "90 s", "10 min" or "12 h"')
    return float(found[1]) * _TIMES[found[2]] if found[2] in _TIMES else float(found[1]) / _PER_S[found[2]]


def parse_per_time(text: str) -> float:
    """Parse "0.99 /h", "3 /d" to events per second; ValueError states what is allowed."""
    found = _found(_PER_TIME, text, 'a number per time such as "0.99 /h", "12 /d" or "0.01 /s"')
    return float(found[1]) / _TIMES[found[2]]


def format_rate(bytes_per_s: float) -> str:
    """Format as "87.5 Mbit/s": bits, as network people write them."""
    return _scaled(bytes_per_s * 8.0, "bit/s")


def format_size(size_bytes: float) -> str:
    """Format as "3.2 GB": decimal, as papers write them."""
    return _scaled(size_bytes, "B")


def format_duration(duration_s: float) -> str:
    """Format as "850 ms", "12.3 s", "4.5 min", "2.0 h"."""
    for unit in ("d", "h", "min", "s"):
        if abs(duration_s) >= _TIMES[unit]:
            return f"{duration_s / _TIMES[unit]:.3g} {unit}"
    if abs(duration_s) >= 1e-3:
        return f"{duration_s * 1e3:.3g} ms"
    return f"{duration_s * 1e6:.3g} us" if duration_s else "0 s"


def exact_rate(bytes_per_s: float) -> str:
    """Return the shortest text that `parse_rate` turns back into this very number."""
    candidates = ((bytes_per_s * 8.0 / _SCALES[p], f"{p}bit/s") for p in ("G", "M", "k", ""))
    return _exact(bytes_per_s, [*candidates, (bytes_per_s, "B/s")], parse_rate)


def exact_size(size_bytes: float) -> str:
    """Return the shortest text that `parse_size` turns back into this very number."""
    candidates = ((size_bytes / _SCALES[p], f"{p}B") for p in ("G", "M", "k", "Gi", "Mi", ""))
    return _exact(size_bytes, candidates, parse_size)


def exact_duration(duration_s: float) -> str:
    """Return the shortest text that `parse_duration` turns back into this very number."""
    long = [(duration_s / seconds, unit) for unit, seconds in _TIMES.items()]
    short = [(duration_s * per_s, unit) for unit, per_s in _PER_S.items()]
    return _exact(duration_s, [*long, *short], parse_duration)


def exact_per_time(per_s: float) -> str:
    """Return the shortest text that `parse_per_time` turns back into this very number."""
    candidates = ((per_s * _TIMES[unit], f"/{unit}") for unit in ("h", "s", "min", "d"))
    return _exact(per_s, candidates, parse_per_time)


def plain(number: float) -> str:
    """Return a float without a useless ".0"; still exactly the same number."""
    number = float(number)
    return str(int(number)) if number.is_integer() and abs(number) < 1e15 else repr(number)


def _found(pattern: re.Pattern[str], text: str, allowed: str) -> re.Match[str]:
    found = pattern.fullmatch(text)
    if not found or not math.isfinite(float(found[1])):
        raise ValueError(allowed)
    return found


def _exact(value: float, candidates: Iterable[tuple[float, str]], parse: Callable[[str], float]) -> str:
    finite = [(number, unit) for number, unit in candidates if math.isfinite(number)]
    rounded = [(float(f"{number:.12g}"), unit) for number, unit in finite]  # undoes 0.99 / 3600 * 3600
    texts = [f"{plain(number)} {unit}" for number, unit in (*rounded, *finite)]
    return min((t for t in texts if parse(t) == value), key=lambda t: len(t) + ("." in t))


def _scaled(value: float, unit: str) -> str:
    for prefix in ("T", "G", "M", "k"):
        if abs(value) >= _SCALES[prefix]:
            return f"{value / _SCALES[prefix]:.4g} {prefix}{unit}"
    return f"{value:.4g} {unit}"
