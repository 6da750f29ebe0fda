"""The owners' hand from the page: the store into the kernel's switch that `reclaimnet reclaim` does."""

from __future__ import annotations

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


class Switches:
    """The owners' switches of one campus."""

    def __init__(self, campus: RunningCampus) -> None:
        self._campus = campus

    async def do(self, wish: OwnerRequest) -> str:
        """Do an owner's request; return the result in words.

        SpecError: no such request; SetupError: not by this user; BpfError: of the kernel.
        """
        campus, host = self._campus, wish.host
        if host not in campus.volunteers:
            raise SpecError("host", host, "a host with an owner")
        if not 0.0 <= wish.notice_s <= MAX_NOTICE_S:
            raise SpecError("notice_s", wish.notice_s, f"seconds, from 0 to {MAX_NOTICE_S:g}")
        pin, socket = campus.switch_pin(host), campus.agent_socket(host)
        if not Path(pin).exists():
            raise SpecError("host", host, "a host with a kill-switch: this campus was built without enforcement")

        def act() -> owner.Switched:
            if wish.do == "return":
                return owner.lend(pin, socket)
            return owner.reclaim(pin, socket, notice_s=wish.notice_s)

        done = await trio.to_thread.run_sync(act)
        what = (
            "is lent again"
            if wish.do == "return"
            else f"closes in {wish.notice_s:g} s"
            if wish.notice_s
            else "is closed"
        )
        heard = (
            "its agent has obeyed"
            if done.agent_obeyed
            else "no agent answered; the kernel's switch is set all the same"
        )
        return f"{host} {what}: switched in {done.set_s * 1e6:.0f} µs; {heard}"
