"""trio's time is the kernel's."""

import time

import trio

from testbed.clock import MonotonicClock


def test_trio_time_lies_between_two_readings_of_the_kernels_clock() -> None:
    async def main() -> tuple[float, float, float]:
        return time.monotonic(), trio.current_time(), time.clock_gettime(time.CLOCK_MONOTONIC)

    before_s, trio_s, after_s = trio.run(main, clock=MonotonicClock())
    assert before_s <= trio_s <= after_s


def test_deadline_ends_a_sleep_at_its_monotonic_time() -> None:
    async def main() -> tuple[float, float]:
        deadline_s = time.monotonic() + 0.02
        with trio.CancelScope(deadline=deadline_s):
            await trio.sleep_forever()
        return deadline_s, time.monotonic()

    deadline_s, woke_s = trio.run(main, clock=MonotonicClock())
    assert woke_s >= deadline_s


def test_deadline_in_the_past_gives_a_negative_sleep() -> None:
    assert MonotonicClock().deadline_to_sleep_time(time.monotonic() - 1.0) < 0.0
