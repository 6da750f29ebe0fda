"""trio's time is the kernel's."""

import time

import trio

from testbed.clock import MonotonicClock


def test_trio_sleeps_until_a_time_of_the_kernels_clock() -> None:
    async def main() -> tuple[float, ...]:
        before_s, trio_s, after_s = time.monotonic(), trio.current_time(), time.monotonic()
        with trio.CancelScope(deadline=before_s + 0.02):
            await trio.sleep_forever()
        return before_s, trio_s, after_s, before_s + 0.02, time.monotonic()

    times_s = trio.run(main, clock=MonotonicClock())
    assert list(times_s) == sorted(times_s)


def test_deadline_in_the_past_gives_a_negative_sleep() -> None:
    assert MonotonicClock().deadline_to_sleep_time(time.monotonic() - 1.0) < 0.0
