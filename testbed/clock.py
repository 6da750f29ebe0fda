"""The clock of every live process: trio's time is CLOCK_MONOTONIC.

trio's own clock starts at a random offset in each process. With this one `trio.current_time()`, `time.monotonic()` and
`bpf_ktime_get_ns()` are one time line in all processes of the machine. So times in events can be compared as they are.
"""

import time

import trio


class MonotonicClock(trio.abc.Clock):
    """Clock of `trio.run(main, clock=MonotonicClock())`: `trio.current_time()` is seconds of CLOCK_MONOTONIC."""

    def start_clock(self) -> None:
        """Do nothing: the kernel's clock runs."""

    def current_time(self) -> float:
        """Return the seconds since boot, without suspend."""
        return time.monotonic()

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """Return the seconds from now to `deadline`; negative when it has passed."""
        return deadline - time.monotonic()
