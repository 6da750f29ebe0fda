"""Identity of a process: its pid and the kernel's start time of it.

Within one boot pids are reused (32768 of them by default), the pair is not. An owner's command asks before it closes a
host: `pathlib` and `signal` would delay that.
"""

from __future__ import annotations

import os


def boot_id() -> str:
    """Return the id of this boot of the machine.

    Times of CLOCK_MONOTONIC and processes' start times of another one mean nothing.
    """
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()


def start_time(pid: int) -> int | None:
    """Start of a process in clock ticks since boot (field 22 of proc(5) stat); None if it is gone or a zombie."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            text = file.read()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[19])


def is_alive(pid: int, started: int) -> bool:
    """Return True while the very process that started then runs."""
    return start_time(pid) == started


def pids() -> list[int]:
    """Return the pid of every process there is now."""
    return [int(entry.name) for entry in os.scandir("/proc") if entry.name.isdigit()]


def kill_exactly(pid: int, started: int) -> bool:
    """Kill the process only if it is still the one that started then; True if it was killed.

    The pidfd is opened before the start time is read, so that the pid cannot be reused in between.
    """
    import signal

    try:
        fd = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if start_time(pid) != started:
            return False
        signal.pidfd_send_signal(fd, signal.SIGKILL)
        return True
    except ProcessLookupError:
        return False
    finally:
        os.close(fd)


def signal_name(number: int) -> str:
    """Return a signal's name; a real-time signal is named by its distance from the first or last."""
    import signal

    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
