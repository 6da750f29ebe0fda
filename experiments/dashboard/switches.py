"""The owners' hand from the page: the store into the kernel's switch that `reclaimnet reclaim` does."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Literal

import msgspec
import trio

from testbed import owner
from testbed.emulation.safety.living import RunningCampus
from testbed.errors import SpecError

MAX_NOTICE_S = 86_400.0


class OwnerRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An owner's request for a host."""

    host: str
    do: Literal["reclaim", "return"]
    notice_s: float = 0.0


async def switch(campus: RunningCampus, wish: OwnerRequest) -> str:
    """Do an owner's request; return the result in words.

    SpecError: no such request; SetupError: not by this user; BpfError: of the kernel.
    """
    host = wish.host
    if host not in campus.volunteers:
        raise SpecError("host", host, "a host with an owner")
    if not 0.0 <= wish.notice_s <= MAX_NOTICE_S:
        raise SpecError("notice_s", wish.notice_s, f"seconds, from 0 to {MAX_NOTICE_S:g}")
    pin, socket = campus.switch_pin(host), campus.agent_socket(host)
    if not Path(pin).exists():
        raise SpecError("host", host, "a host with a kill-switch: this campus was built without enforcement")
    if wish.do == "return":
        act, what = partial(owner.lend, pin, socket), "is lent again"
    else:
        act = partial(owner.reclaim, pin, socket, notice_s=wish.notice_s)
        what = f"closes in {wish.notice_s:g} s" if wish.notice_s else "is closed"
    return f"{host} {what}: {await trio.to_thread.run_sync(act)}"
