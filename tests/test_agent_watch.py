"""What is looked at of a host: its owner and what leaves it every 100 ms, and seldom where nothing happens."""

from __future__ import annotations

from typing import Any

import trio
import trio.testing

from testbed.agent.host import IDLE_SAMPLE_S, SAMPLE_S, watch


class Seen:
    """A host in memory, which notes what is seen of it, and when."""

    def __init__(self) -> None:
        self.switch, self.data = bytearray(32), bytearray(96)
        self.owner: list[float] = []
        self.counts: list[tuple[float, float]] = []  # when, and when nothing had left since the last
        self.bounded = 0
        self.sends: dict[str, str] = {}
        self.outputs: dict[str, str] = {}
        self.kernel = self.transfers = self.jobs = self

    def memory(self) -> tuple[memoryview, memoryview]:
        return memoryview(self.switch), memoryview(self.data)

    def see_owner(self) -> None:
        self.owner.append(round(trio.current_time() - self.began_s, 3))

    def count(self, lag_s: float, idle_at_s: float) -> None:
        now_s = trio.current_time()
        self.counts.append((round(now_s - self.began_s, 3), round(now_s - idle_at_s, 3)))

    def bound_outputs(self) -> None:
        self.bounded += 1


def watched(for_s: float, *acts: tuple[float, Any]) -> Seen:
    """What is seen of a host in that time; each act is done to it then."""
    seen = Seen()

    async def main() -> None:
        seen.began_s = trio.current_time()
        hosts: Any = [seen]
        with trio.move_on_after(for_s):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(watch, hosts)
                for at_s, act in acts:
                    await trio.sleep_until(seen.began_s + at_s)
                    act(seen)

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0.0))
    return seen


def test_an_idle_host_is_counted_every_two_seconds() -> None:
    seen = watched(3 * IDLE_SAMPLE_S + 0.05)
    assert [at_s for at_s, _ in seen.counts] == [SAMPLE_S + n * IDLE_SAMPLE_S for n in range(3)]
    assert len(seen.owner) == 1
    assert seen.bounded == 0


def test_what_leaves_a_host_is_counted_at_the_next_look_as_left_since_the_last() -> None:
    def send(seen: Seen) -> None:
        seen.data[8] += 1

    seen = watched(1.0, (0.55, send), (0.65, send))
    assert [at_s for at_s, _ in seen.counts] == [0.1, 0.6, 0.7]
    assert [since_s for _, since_s in seen.counts[1:]] == [0.1, 0.1]


def test_a_host_that_sends_is_counted_at_every_look_though_nothing_leaves() -> None:
    def begin(seen: Seen) -> None:
        seen.sends["job", "h2"] = ""

    def end(seen: Seen) -> None:
        seen.sends.clear()

    seen = watched(1.5, (0.45, begin), (0.95, end))
    assert [at_s for at_s, _ in seen.counts] == [0.1, 0.5, 0.6, 0.7, 0.8, 0.9]
