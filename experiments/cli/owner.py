"""`reclaimnet reclaim` and `return`: an owner's hand on a running campus, from another terminal.

The campus is found by its ledger, the switch by its pin, the agent by its socket; only the pin is needed. How soon the host is
closed is how soon this module is imported: what is needed only after the switch is set, or for a mistake, is imported there.
"""

from __future__ import annotations

import os

from testbed import owner
from testbed.emulation.safety.living import installed_agents, named_campuses
from testbed.errors import SetupError, SpecError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


def reclaim(host: str, notice_s: float = 0.0, campus_id: str | None = None) -> str:
    """Close a host, now or in `notice_s`; return what was done, in words."""
    if not 0.0 <= notice_s < 1e9:
        raise SpecError("--notice", notice_s, "seconds, 0 or more, less than 1e9")
    pin, socket = _switch_of(host, campus_id)
    done = owner.reclaim(pin, socket, notice_s=notice_s)
    from topologies.units import format_duration

    when = f"in {format_duration(notice_s)}" if notice_s else "now"
    return f"{host} is yours {when}: {done}"


def lend(host: str, campus_id: str | None = None) -> str:
    """Open a host again; return what was done, in words."""
    return f"{host} is lent again: {owner.lend(*_switch_of(host, campus_id))}"


def read_plain(words: list[str]) -> Callable[[], str] | None:
    """Return the act of `reclaim HOST [--notice S] [--campus ID]` or `return HOST [--campus ID]`, None for others."""
    command, *rest = words
    valued = ("--campus", "--notice") if command == "reclaim" else ("--campus",)
    hosts, given = [], dict[str, str]()
    left = iter(rest)
    for word in left:
        name, joined, value = word.partition("=")
        if name in valued:
            given[name] = value if joined else next(left, "")
        else:
            hosts.append(word)
    if len(hosts) != 1 or any(word.startswith("-") or not word for word in (*hosts, *given.values())):
        return None
    try:
        notice_s = float(given.get("--notice", 0.0))
    except ValueError:
        return None
    campus_id = given.get("--campus")
    if command == "reclaim":
        return lambda: reclaim(hosts[0], notice_s, campus_id)
    return lambda: lend(hosts[0], campus_id)


def _switch_of(host: str, campus_id: str | None) -> tuple[str, str]:
    """Return the pin of a host's switch and the socket of its agent."""
    agents = [agent for agent in installed_agents() if campus_id in (None, agent.id)]
    campuses = agents if agents and host in agents[0].hosts else named_campuses(campus_id)
    having = [campus for campus in campuses if host in campus.volunteers]
    if len(having) > 1:
        ids = [campus.id for campus in having]
        raise SetupError(f"several running campuses have a host {host}: add --campus, one of {ids}")
    if not having:
        if any(host in campus.hosts for campus in campuses):
            raise SpecError("HOST", host, "a volunteer host: only those have an owner")
        names = [name for campus in campuses for name in campus.volunteers]
        import difflib

        near = difflib.get_close_matches(host, names, n=1)
        hint = f" (nearest: {near[0]})" if near else f": {', '.join(names[:12])}{', ...' if names[12:] else ''}"
        raise SpecError("HOST", host, f"a volunteer host of a running campus{hint}")
    [campus] = having
    pin = campus.switch_pin(host)
    if not os.path.exists(pin):
        raise SetupError(f"campus {campus.id} has no kill-switch on {host}: it was built without enforcement")
    return pin, campus.agent_socket(host)
