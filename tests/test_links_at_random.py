"""Links of a live campus that change at random: what the kernel has is what was asked for last, and packets say the same."""

from __future__ import annotations

import hashlib
import os
import random
import re
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest
from mininet.log import setLogLevel

from testbed.emulation.campus import LiveCampus
from testbed.errors import SpecError
from tests.emulation_campuses import kernel, put_back, read_back
from tests.test_delay_line import transfer
from topologies.units import GBIT_PER_S, MBIT_PER_S

pytestmark = kernel
SEEDS = tuple(map(int, os.environ.get("LINK_SEEDS", "1").split()))
CHANGES = 15
# of each kind: usual ones, and those at the ends of what is allowed
RATES_BYTES_PER_S = (12.5e3, 125e3, 4.6875e6, GBIT_PER_S, 10 * GBIT_PER_S, 40 * GBIT_PER_S)
DELAYS_S = (0.0, 0.0, 1e-6, 0.0003, 0.002, 0.02, 0.1)
LOSSES = (0.0, 0.0, 1e-6, 0.01, 0.5, 0.999)
WRONG = (
    {"rate": 0},
    {"rate": "-1 Mbit/s"},
    {"rate": "fast"},
    {"rate": float("nan")},
    {"delay": -0.001},
    {"delay": "5 parsecs"},
    {"delay": float("inf")},
    {"jitter": 3600.0},
    {"loss": 1.0},
    {"loss": -0.1},
    {"rate": "10 Mbit/s", "loss": 2.0},
    {"up": False, "delay": "-5 ms"},
)
HOSTS = ("h1", "h2", "h3")
Cable = tuple[str, str]


@dataclass
class Asked:
    """What was asked of one direction of a cable last."""

    delay_s: float = 0.0
    jitter_s: float = 0.0
    loss: float = 0.0
    up: bool = True


class Links:
    """A campus, and what was asked of it."""

    def __init__(self, net: LiveCampus, draws: random.Random) -> None:
        self.net, self.draws = net, draws
        self.cables: list[Cable] = [(link.a, link.b) for link in net.spec.links]
        self.asked = {way: Asked() for a, b in self.cables for way in ((a, b), (b, a))}

    def change(self) -> str:
        """One change at random: of both directions, of one of them by Mininet's words, or one that cannot be."""
        draws = self.draws
        a, b = draws.choice(self.cables)
        if draws.random() < 0.5:
            a, b = b, a
        if draws.random() < 0.15:
            wrong = draws.choice(WRONG)
            with pytest.raises(SpecError):
                self.net.set_link(a, b, **wrong)
            return f"{a}-{b}: {wrong} refused"
        wanted: dict[str, Any] = {}
        if draws.random() < 0.5:
            wanted["delay"] = draws.choice(DELAYS_S)
            wanted["jitter"] = wanted["delay"] * draws.choice((0.0, 0.5, 1.0))
        if draws.random() < 0.3:
            wanted["loss"] = draws.choice(LOSSES)
        if draws.random() < 0.4:
            wanted["rate"] = draws.choice(RATES_BYTES_PER_S)
        if draws.random() < 0.3:
            self._config(a, b, wanted)
            ways = [(a, b)]
        else:
            if draws.random() < 0.25 or not wanted:
                wanted["up"] = draws.random() < 0.6
            if "delay" in wanted:
                wanted["reorders"] = draws.random() < 0.5
            self.net.set_link(a, b, **wanted)
            ways = [(a, b), (b, a)]
        for way in ways:
            asked = self.asked[way]
            asked.delay_s = wanted.get("delay", asked.delay_s)
            asked.jitter_s = wanted.get("jitter", asked.jitter_s)
            asked.loss = wanted.get("loss", asked.loss)
            asked.up = wanted.get("up", asked.up)
        return f"{ways}: {wanted}"

    def _config(self, a: str, b: str, wanted: dict[str, Any]) -> None:
        for link in self.net.links:
            for interface, other in ((link.intf1, link.intf2), (link.intf2, link.intf1)):
                if (interface.node.name, other.node.name) == (a, b):
                    words = {key: f"{1e3 * wanted[key]!r} ms" for key in ("delay", "jitter") if key in wanted}
                    interface.config(
                        **words,
                        **({"loss": 100.0 * wanted["loss"]} if "loss" in wanted else {}),
                        **({"bw": wanted["rate"] / MBIT_PER_S} if "rate" in wanted else {}),
                    )

    def judge(self, story: list[str]) -> None:
        """The kernel has what was asked for, and a ping between two hosts finds the same."""
        read_back(self.net)
        source, target = self.draws.sample(HOSTS, 2)
        nodes = [source, *dict.fromkeys((self._switch(source), "core", self._switch(target))), target]
        if self._switch(source) == self._switch(target):
            nodes = [source, self._switch(source), target]
        there = [self.asked[way] for way in pairwise(nodes)]
        back = [self.asked[way] for way in pairwise(nodes[::-1])]
        # an address is asked for first, and half a second is for the machine
        wait_s = 0.5 + 2.0 * sum(each.delay_s + each.jitter_s for each in there + back)
        text = self.net.get(source).cmd(f"ping -c2 -i0.01 -W{wait_s:.2f} -q {self.net.get(target).IP()}")
        found = re.search(r"(\d+) received", text)  # none: its own cable is down, and it says so at once
        heard = int(found[1]) if found else 0
        if not all(each.up for each in there + back):
            assert heard == 0, (nodes, text, story)
        elif max(each.loss for each in there + back) <= 1e-6:
            assert heard > 0, (nodes, text, story)
        if heard:
            least_ms = float(re.findall(r"= ([0-9.]+)/", text)[0])
            assert least_ms >= 1e3 * sum(each.delay_s - each.jitter_s for each in there + back) - 0.01, (
                nodes,
                story,
            )

    def _switch(self, host: str) -> str:
        return self.net.plan.host_cables[host].a.node


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", SEEDS)
def test_links_that_change_at_random_are_what_was_asked_for_last(campus: LiveCampus, seed: int) -> None:
    setLogLevel("error")
    draws, story = random.Random(f"{seed} links"), list[str]()
    with put_back(campus):
        links = Links(campus, draws)
        for _ in range(CHANGES):
            story.append(links.change())
            print(story[-1])
            links.judge(story)
    for _ in range(6):
        Links(campus, draws).judge(story)
    data = os.urandom(1 << 20)
    assert transfer(campus, "h1", "h3", data) == hashlib.sha256(data).hexdigest(), story
