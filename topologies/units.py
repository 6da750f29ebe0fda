"""Human units, at the edges only. Inside the project: seconds, bytes, bytes per second, suffix in the name.

`format_*` write what people read, rounded. What files hold, to the last bit, is of `dimension`.
"""

from __future__ import annotations

MBIT_PER_S = 125_000.0  # bytes per second
GBIT_PER_S = 125_000_000.0
HOUR_S = 3600.0
# of a cable, and so of any grant: 8 Tbit/s. Messages carry rates up to this (`testbed.bounds.Rate`)
LARGEST_RATE_BYTES_PER_S = 1e12
NO_LIMIT = 1e9  # a level r that no queue reaches: all jobs wait, as where no host is on-demand
# payload and wire bytes of a full TCP segment at an MTU of 1500: Ethernet, IPv4 and TCP headers with timestamps
SEGMENT_BYTES, FRAME_BYTES = 1448, 1514
PAYLOAD_SHARE = SEGMENT_BYTES / FRAME_BYTES  # of what links, shapers and buckets count
WIRE_PER_PAYLOAD = FRAME_BYTES / SEGMENT_BYTES


def format_rate(bytes_per_s: float) -> str:
    """Format as "87.5 Mbit/s": bits, as network people write them."""
    return _scaled(bytes_per_s * 8.0, "bit/s")


def format_size(size_bytes: float) -> str:
    """Format as "3.2 GB": decimal, as papers write them."""
    return _scaled(size_bytes, "B")


def format_duration(duration_s: float) -> str:
    """Format as "850 ms", "12.3 s", "4.5 min", "2.0 h"."""
    for unit, unit_s in (("d", 86400.0), ("h", HOUR_S), ("min", 60.0), ("s", 1.0)):
        if abs(duration_s) >= unit_s:
            return f"{duration_s / unit_s:.3g} {unit}"
    if abs(duration_s) >= 1e-3:
        return f"{duration_s * 1e3:.3g} ms"
    return f"{duration_s * 1e6:.3g} us" if duration_s else "0 s"


def format_level(level: float) -> str:
    """Format paper B's r as "1.50", and NO_LIMIT as "no limit"."""
    return f"{level:.2f}" if level < NO_LIMIT else "no limit"


def plain(number: float) -> str:
    """Return a float without a useless ".0"; still exactly the same number."""
    number = float(number)
    return str(int(number)) if number.is_integer() and abs(number) < 1e15 else repr(number)


def _scaled(value: float, unit: str) -> str:
    for prefix, scale in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= scale:
            return f"{value / scale:.4g} {prefix}{unit}"
    return f"{value:.4g} {unit}"
