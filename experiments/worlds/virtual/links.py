"""Links that are slow or down: their rates, the routes that traffic takes then, and the hosts that are cut off.

On a campus with several paths a trunk between switches that have a choice is a port of a programmed network. Its
switches see when it goes down, packets take the other routes, and the coordinator is informed. (The milliseconds that
this takes live are left out.) Ways that the coordinator asks for are installed PROGRAMMING_S later, and then reported
to it. So are the parts in which research is shared where grants have moved.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from controller.core.model.effects import SetLoads, SetWays
from controller.core.model.events import DrainAsked, LinksChanged, WaysSet
from experiments.worlds.virtual.connections import Connections
from experiments.worlds.virtual.environment import Environment
from experiments.worlds.virtual.hosts import Connection
from experiments.worlds.virtual.network import guard_of
from experiments.worlds.virtual.scheduler import Priority
from topologies.paths import dead_trunks, junctions
from topologies.spec import DirectedLink
from topologies.units import PAYLOAD_SHARE

PROGRAMMING_S = 0.01  # of all switches, stage by stage (`reclaimnet measure fabric`)
TELL_AGAIN_S = 0.1  # until a coordinator that is dead listens again, as the live world does


class VirtualLinks:
    """The links of a virtual campus.

    `broken_off` is called for each connection that something happens to.

    `rerouted` is called when routes have changed, `shared_anew` when only research has other ways, or other parts of
    them.
    """

    def __init__(
        self,
        env: Environment,
        connections: Connections,
        broken_off: Callable[[Connection], None],
        rerouted: Callable[[], None],
        shared_anew: Callable[[], None],
    ) -> None:
        self._env, self._connections, self._broken_off = env, connections, broken_off
        self._rerouted, self._shared_anew = rerouted, shared_anew
        self._junctions = frozenset(junctions(env.campus)) if env.routes.has_choice else frozenset()
        self._capacity = dict(env.capacity)
        self._rates = dict(env.capacity)
        self._is_up = dict.fromkeys(env.capacity, True)
        self._asked_to_drain = frozenset[frozenset[str]]()  # trunks that are to go down
        self._wanted = SetWays(0, [], [])  # what the coordinator last asked for,
        self._programmed = self._wanted  # and what the switches have of that
        self._loads = SetLoads([])  # what the coordinator last sent of its grants

    def set(self, a: str, b: str, factor: float) -> None:
        """Let a link work at `factor` of its rate, in both directions; 0: it is down, and messages wait."""
        if {a, b} <= self._junctions and self._is_up[DirectedLink(a, b)] is not (factor > 0.0):
            self.change(a, b, up=factor > 0.0)
        if factor <= 0.0 and not self._is_up[DirectedLink(a, b)]:
            return
        self._env.note(f"the link {a}-{b} works at {factor:g} of its rate")
        for link in (DirectedLink(a, b), DirectedLink(b, a)):
            full = self._env.capacity[link]
            self._capacity[link] = full * factor
            self._env.network.set_capacity(link, full * factor * PAYLOAD_SHARE)
        self._follow()

    def change(self, a: str, b: str, *, rate_bytes_per_s: float | None = None, up: bool | None = None) -> None:
        """Give a cable another rate (wire bytes/s) or a cut; inform the coordinator, research and the rules."""
        env, ends = self._env, (DirectedLink(a, b), DirectedLink(b, a))
        for link in ends:
            self._rates[link] = self._rates[link] if rate_bytes_per_s is None else rate_bytes_per_s
            self._is_up[link] = self._is_up[link] if up is None else up
            env.capacity[link] = self._rates[link] if self._is_up[link] else 0.0
            self._capacity[link] = env.capacity[link]
            env.network.set_capacity(link, env.capacity[link] * PAYLOAD_SHARE)
        env.note(f"the link {a}-{b} works at {env.capacity[ends[0]]:g} bytes/s")
        for host in {a, b} & env.campus.host_by_name.keys():
            if env.network.fluid.has_link(guard_of(host)):
                share = env.campus.research_reserve.migration_share_bytes_per_s(env.capacity[ends[0]])
                env.network.set_capacity(guard_of(host), share * PAYLOAD_SHARE)
        self._follow()
        self.tell(ends)

    def drain(self, a: str, b: str) -> None:
        """Announce that a trunk will go down, so that its traffic leaves before; no effect between nodes without a trunk."""
        if {a, b} <= self._junctions and self._is_up[DirectedLink(a, b)]:
            self._env.note(f"the link {a}-{b} is announced to go down")
            self._asked_to_drain |= {frozenset((a, b))}
            self._tell_draining()

    def _tell_draining(self) -> None:
        """Ask for all trunks that are announced to go down, as the network's controller does when a coordinator connects, too."""
        if not self._connections.refused:
            trunks = [(a, b) for a, b in sorted(sorted(trunk) for trunk in self._asked_to_drain)]
            self._env.decide(DrainAsked(trunks))

    def program(self, wanted: SetWays) -> None:
        """Install these ways after a moment, in place of any that are wanted but not installed yet."""
        self._wanted = wanted
        self._env.after(PROGRAMMING_S, partial(self._has, wanted), Priority.NETWORK)

    def _has(self, wanted: SetWays) -> None:
        if wanted is not self._wanted:
            return
        self._programmed = wanted
        self._follow()
        pins = {}
        for pinned in wanted.ways:
            way = tuple(map(DirectedLink, pinned.nodes, pinned.nodes[1:]))
            pins[pinned.nodes[0], pinned.nodes[-1]] = way
        self._env.routes.pin_all(pins)
        self._rerouted()
        if not self._connections.refused:
            self._env.decide(WaysSet(wanted.number))
            if self._asked_to_drain != set(map(frozenset, self._wanted.draining)):
                self._tell_draining()  # a coordinator that was dead has not received it

    def weigh(self, loads: SetLoads) -> None:
        """Apply the coordinator's trunk loads; groups share research accordingly after a moment."""
        if self._env.switches is not None:
            self._loads = loads
            self._env.after(PROGRAMMING_S, partial(self._shares, loads), Priority.NETWORK)

    def _shares(self, loads: SetLoads) -> None:
        switches = self._env.switches
        if loads is not self._loads or switches is None:
            return
        if switches.weigh({(a, b): load for a, b, load in loads.loads}):
            self._shared_anew()

    def is_told(self, a: str, b: str) -> bool:
        """Return whether a trunk is down, and the coordinator knows it, or will."""
        return not self._is_up[DirectedLink(a, b)]

    def tell(self, links: Sequence[DirectedLink]) -> None:
        """Send the operator's rates of these links to the coordinator; repeat while it is dead."""
        env = self._env
        if self._connections.refused:
            env.after(TELL_AGAIN_S, lambda: self.tell(links), Priority.MESSAGE)
        else:
            env.decide(LinksChanged([(link.source, link.target, env.capacity[link]) for link in links]))

    def _follow(self) -> None:
        """Move traffic to the routes that are alive, and cut off hosts behind a link that is down.

        A fault of a host's own cable, which no switch reports, changes no way: traffic pinned over it waits with it.
        """
        dead = dead_trunks(self._env.capacity)
        self._asked_to_drain -= dead
        # trunks over which nothing is led any more, though they carry: those that have not gone down since it was asked for
        draining = frozenset(map(frozenset, self._programmed.draining)) & self._asked_to_drain
        left = dead | draining
        is_shared_anew = self._env.switches is not None and self._env.switches.follow(left)
        if self._env.routes.follow(left):
            self._rerouted()
        elif is_shared_anew:
            self._shared_anew()
        root = self._env.campus.coordinator.name
        for name, machine in self._env.machines.items():
            down = any(self._capacity[link] <= 0.0 for link in self._env.routes.route(name, root))
            if down and not self._connections.is_cut_off(name):
                if machine.link is not None:
                    self._broken_off(machine.link)
                self._connections.cut_off(name)
            elif not down and self._connections.is_cut_off(name):
                self._connections.joined(name)
