"""Addresses by building: 10.BUILDING.x.y, building 0 being the server room."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

MOST = 250 * 250  # addresses of one building


def building_addresses(building: int) -> Iterator[ipaddress.IPv4Address]:
    """10.BUILDING.0.1, 10.BUILDING.0.2, ...: 250 to a third byte, so that no address ends in 0 or 255.

    ValueError if the building's number is not from 0 to 255; ends after `MOST` addresses.
    """
    base = int(ipaddress.IPv4Address(f"10.{building}.0.0"))
    return (ipaddress.IPv4Address(base + 256 * (n // 250) + n % 250 + 1) for n in range(MOST))
