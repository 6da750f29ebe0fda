"""trio's time is the kernel's."""

import time

import trio

from testbed.clock import MonotonicClock


def test_trio_sleeps_until_a_time_of_the_kernels_clock() -> None:
    async def main() -> None:
        before_s, trio_s, after_s = time.monotonic(), trio.current_time(), time.monotonic()
        assert before_s <= trio_s <= after_s
        with trio.CancelScope(deadline=before_s + 0.02):
            await trio.sleep_forever()
        assert time.monotonic() >= before_s + 0.02

    trio.run(main, clock=MonotonicClock())
    assert MonotonicClock().deadline_to_sleep_time(time.monotonic() - 1.0) < 0.0
