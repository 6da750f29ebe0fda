"""Small programs and pings on hosts of a live campus, and the processor time of processes."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from experiments.benchmarks.frame import quantiles
from testbed.emulation.campus import LiveCampus
from testbed.errors import CommandFailed, SetupError

PORT = 7100
# bytes/s in the seconds after a connection; 0 of one that does not come: switches in user space may starve one among many
SINK = """
import socket, sys, time
s, seconds = socket.create_server(("", int(sys.argv[1]))), float(sys.argv[2])
s.settimeout(10)
print("ready", flush=True)
n, view = 0, memoryview(bytearray(1 << 20))
try:
    c, _ = s.accept()
    end = time.perf_counter() + seconds
    while (left := end - time.perf_counter()) > 0:
        c.settimeout(left)
        if not (got := c.recv_into(view)):
            break
        n += got
except TimeoutError:
    pass
print(n / seconds, flush=True)
"""
SOURCE = """
import socket, sys, time
c = socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=10)
block, end = bytes(1 << 20), time.perf_counter() + float(sys.argv[3])
while time.perf_counter() < end:
    c.sendall(block)
"""


@contextlib.contextmanager
def program(net: LiveCampus, host: str, text: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """Run a Python program on a host while the block runs."""
    process = net.get(host).popen([sys.executable, "-c", text, *map(str, arguments)], text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def said(process: subprocess.Popen[str]) -> str:
    """Return the next line of a program; CommandFailed if it ended without one."""
    assert process.stdout and process.stderr
    line = process.stdout.readline()
    if not line:
        raise CommandFailed(["probe"], process.wait(), process.stderr.read())
    return line


def round_trips(net: LiveCampus, source: str, target: str, count: int, interval_s: float) -> dict[str, float]:
    """Return quantiles of ping's round trips in s. SetupError: many were lost."""
    command = f"ping -n -c {count + 1} -i {interval_s} -W 2 {net.get(target).IP()}"
    text = net.get(source).cmd(command)
    found = [float(value) / 1e3 for value in re.findall(r"time=([0-9.]+) ms", text)]
    if len(found) < 0.9 * count:
        raise SetupError(f"of {count} pings {len(found)} came back: {text[-300:]}")
    return quantiles(found[1:])  # the first asks for the address too


def cpu_s(pid: int | None) -> float:
    """Return processor time of a process so far; 0 of none."""
    if pid is None:
        return 0.0
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
