"""Connections between agents and the coordinator: messages keep their order, and are lost only with their connection.

Messages are handed over as they are, or, with `codec`, through the real framing and encoding (slower; it bounds every value).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from controller.core.model import events as cev
from experiments.worlds.virtual.environment import Environment
from experiments.worlds.virtual.hosts import Connection, Machine
from experiments.worlds.virtual.scheduler import Priority
from testbed import messages as m
from testbed.agent.core import events as aev
from testbed.framing import Codec

TO_AGENT: Codec[Any] = Codec(m.ToAgent)
FROM_AGENT: Codec[Any] = Codec(m.FromAgent)


class Connections:
    """Connections of all hosts, and the messages on their way."""

    def __init__(self, env: Environment, *, codec: bool = False) -> None:
        self._env, self._codec, self._may_be_late = env, codec, env.faults.touches_messages
        self._of: dict[str, list[Connection]] = {name: [] for name in env.machines}  # in order of opening
        root = env.campus.coordinator.name
        # one way
        self._delay_s = {name: env.costs.message_s + env.routes.delay_s(name, root) for name in env.machines}
        self._opened = 0  # connections so far
        self._cut_off: dict[str, list[Callable[[], None]]] = {}  # behind a link that is down
        # what waits, by host and whether to it
        self._mute: dict[tuple[str, bool], list[Callable[[], None]]] = {}
        self.heard: Callable[[Machine, Any], None] = lambda machine, message: None
        self.not_yet: Callable[[m.Hello], str] = lambda hello: ""  # why an agent is refused for now
        self.lost = 0  # messages, with their connection
        self.refused = False  # the coordinator's process is dead
        # what a coordinator's process that stands still has not read yet, in order; None: it reads at once
        self.unread: list[Callable[[], None]] | None = None
        self.catches_up = False  # it goes on and reads that: not all of it yet

    # ------------------------------------------------------------ open and close

    def connect(self, machine: Machine, pause_s: float = 0.0) -> None:
        """Open an agent's connection. Where it is refused, try again after `pause_s`, or the shortest pause."""
        if machine.core is None or (machine.link and machine.link.agent_open):
            return
        if self.refused:
            self._try_again(machine, pause_s or self._env.costs.reconnect_s)
            return
        self._opened += 1
        machine.link = Connection(machine.name, self._opened)
        mine = self._of[machine.name]
        mine[:] = [x for x in mine if x.coordinator_open or x.agent_open] + [machine.link]
        self._env.agent(machine, aev.Connected())

    def coordinator_notices(self, link: Connection, reason: str) -> None:
        """Close the coordinator's end, for this reason."""
        if self.unread is not None:
            self.unread.append(partial(self.coordinator_notices, link, reason))
        elif link.coordinator_open:
            self._env.broken_off(link)
            link.coordinator_open, link.cut = False, True
            self._env.decide(cev.AgentGone(link.host, reason))
            self._env.after(self._delay_s[link.host], lambda: self.agent_notices(link), Priority.MESSAGE)

    def agent_notices(self, link: Connection) -> None:
        """Close the agent's end, and try again after a moment."""
        env, machine = self._env, self._env.machines[link.host]
        if not link.agent_open:
            return

        def notice() -> None:
            if link.agent_open and machine.link is link:
                link.agent_open = False
                env.agent(machine, aev.Disconnected())
                self._try_again(machine, env.costs.reconnect_s)

        link.cut = True
        env.to_agent(machine, notice)

    def _try_again(self, machine: Machine, pause_s: float) -> None:
        """Connect again after a pause that is twice as long each time in vain."""
        env = self._env
        longer_s = min(2.0 * pause_s, env.costs.reconnect_most_s)
        connect = partial(self.connect, machine, longer_s)
        env.after(pause_s, lambda: env.to_agent(machine, connect))

    def hang_up(self) -> None:
        """Break every connection, as the coordinator's process dies. Messages on their way are lost."""
        links = [link for mine in self._of.values() for link in mine if link.coordinator_open or link.agent_open]
        for link in sorted(links, key=lambda link: link.number):
            self._env.broken_off(link)
            link.coordinator_open, link.cut = False, True
            self._env.after(self._delay_s[link.host], partial(self.agent_notices, link), Priority.MESSAGE)

    # ------------------------------------------------------------ messages

    def tell(self, host: str, message: Any) -> None:
        """Send a message of the coordinator to a host."""
        env = self._env
        link = env.machines[host].link
        if env.told is not None:
            env.told(host, message)
        if link is None or not link.coordinator_open:
            return
        late_s = env.faults.message(link.host, message) if self._may_be_late else 0.0
        link.down_s = max(link.down_s, env.scheduler.now_s + self._delay_s[host] + late_s)
        sent = _coded(TO_AGENT, message) if self._codec else message
        env.scheduler.at(link.down_s, partial(self._deliver_down, link, sent), Priority.MESSAGE)

    def say(self, machine: Machine, message: Any) -> None:
        """Send a message of an agent to the coordinator."""
        env, link = self._env, machine.link
        if link is None or not link.agent_open:
            return
        late_s = env.faults.message(link.host, message) if self._may_be_late else 0.0
        link.up_s = max(link.up_s, env.scheduler.now_s + self._delay_s[link.host] + late_s)
        sent = _coded(FROM_AGENT, message) if self._codec else message
        env.scheduler.at(link.up_s, partial(self._deliver_up, link, sent), Priority.MESSAGE)

    def cut(self, link: Connection, agent_after_s: float, coordinator_after_s: float) -> None:
        """Break it; each side learns of it in its own time."""
        self._env.broken_off(link)
        link.cut = True
        self._env.after(agent_after_s, lambda: self.agent_notices(link), Priority.FAULT)
        self._env.after(coordinator_after_s, lambda: self.coordinator_notices(link, "connection lost"), Priority.FAULT)

    def _waits(self, link: Connection, deliver: Callable[[], None], *, to_host: bool) -> bool:
        """Return whether nothing arrives there now: what is delivered waits until something does."""
        if not self._cut_off and not self._mute:
            return False
        for waiting in (self._cut_off.get(link.host), self._mute.get((link.host, to_host))):
            if waiting is not None:
                waiting.append(deliver)
                return True
        return False

    def _deliver_down(self, link: Connection, message: Any) -> None:
        if self._waits(link, partial(self._deliver_down, link, message), to_host=True):
            return
        env, machine = self._env, self._env.machines[link.host]
        if link.cut:
            self.lost += 1
            return

        def receive() -> None:
            if link.agent_open and machine.link is link:
                env.agent(machine, aev.Received(message))
                self.heard(machine, message)

        if machine.paused:
            env.to_agent(machine, receive)
        elif machine.core is not None:
            receive()

    def _deliver_up(self, link: Connection, message: Any) -> None:
        if self._waits(link, partial(self._deliver_up, link, message), to_host=False):
            return
        if link.cut:
            self.lost += 1
        elif self.unread is not None:
            self.unread.append(partial(self._read, link, message))
        else:
            self._read(link, message)

    def _read(self, link: Connection, message: Any) -> None:
        """Take a message that has arrived at the coordinator. Only a Hello makes a connection that of its host."""
        if self.refused:
            self.lost += 1
            return
        if isinstance(message, m.Hello) and not link.coordinator_open:
            if self.not_yet(message):
                link.cut = True
                self._env.after(self._delay_s[link.host], partial(self.agent_notices, link), Priority.MESSAGE)
                return
            for old in list(self._of[link.host]):
                if old is not link and old.coordinator_open:
                    old.coordinator_open = False
                    self._env.decide(cev.AgentGone(link.host, "replaced by a newer connection"))
            link.coordinator_open = True
            if link not in self._of[link.host]:  # it was over at the agent's end before its Hello was read
                self._of[link.host].append(link)
        if link.coordinator_open:
            self._env.decide(cev.AgentSaid(link.host, message))

    # ------------------------------------------------------------ links that are down

    def cut_off(self, host: str) -> None:
        """Let no byte pass between a host and the coordinator; messages wait, as TCP would send them again."""
        self._cut_off.setdefault(host, [])

    def joined(self, host: str) -> None:
        """Let bytes pass again: messages that waited arrive, in order."""
        for deliver in self._cut_off.pop(host, []):
            deliver()

    def mute(self, host: str, *, to_host: bool) -> bool:
        """Cut one direction between a host and the coordinator: messages wait. False: it was cut already."""
        if (host, to_host) in self._mute:
            return False
        self._mute[host, to_host] = []
        return True

    def unmute(self, host: str, *, to_host: bool) -> None:
        """Let that direction work again: what waited arrives, in order."""
        for deliver in self._mute.pop((host, to_host), []):
            deliver()

    def is_well(self, machine: Machine) -> bool:
        """Return whether the agent works and is connected, with nothing broken on the way."""
        link = machine.link
        return (
            machine.core is not None
            and not machine.paused
            and link is not None
            and link.agent_open
            and link.coordinator_open
            and not link.cut
            and not self.is_cut_off(machine.name)
            and (machine.name, True) not in self._mute
            and (machine.name, False) not in self._mute
        )

    def is_cut_off(self, host: str) -> bool:
        """Return whether a link on its way to the coordinator is down."""
        return host in self._cut_off


def _coded(codec: Codec[Any], message: Any) -> Any:
    return codec.decode(codec.encode(message))
