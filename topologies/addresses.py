"""Addresses by building: 10.BUILDING.x.y, building 0 being the server room; from building 256 on, four share a second byte."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

MAX_BUILDINGS = 4 * 256
MAX_ADDRESSES = 250 * 250  # addresses of one building
MAX_SHARED = 64 * 250  # of one that begins at a later quarter of its second byte


def endpoint(text: str) -> tuple[str, int]:
    """Return the address and the port of ADDRESS:PORT. ValueError: it is none."""
    address, _, port = text.rpartition(":")
    if not 0 <= int(port) < 1 << 16:
        raise ValueError(port)
    return str(ipaddress.ip_address(address)), int(port)


def building_addresses(building: int) -> Iterator[ipaddress.IPv4Address]:
    """Yield 10.BUILDING.0.1, 10.BUILDING.0.2, ...: 250 to a third byte, so that no address ends in 0 or 255.

    Buildings 256 to 511 begin at 10.(BUILDING - 256).64.1, and so on: the first quarter of a second byte is that of a building
    below 256, which has all of it where there are no more. ValueError if the building's number is not from 0 to 1023; ends after
    `MAX_ADDRESSES` addresses, or `MAX_SHARED`.
    """
    if not 0 <= building < MAX_BUILDINGS:
        raise ValueError(f"building {building}: a number from 0 to {MAX_BUILDINGS - 1}")
    quarter, second = divmod(building, 256)
    base = int(ipaddress.IPv4Address(f"10.{second}.{64 * quarter}.0"))
    count = MAX_SHARED if quarter else MAX_ADDRESSES
    return (ipaddress.IPv4Address(base + 256 * (n // 250) + n % 250 + 1) for n in range(count))
