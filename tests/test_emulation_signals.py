"""SIGINT, SIGTERM and SIGHUP at seeded random moments of bring-up, run and teardown: nothing is left, and the status says which.
On both fabrics: Open vSwitch's daemons and its controller are processes of a campus as holders of namespaces are.

`MOMENTS=40` (`make signals`) sends each signal that often. A moment is a part of the time that an undisturbed campus of that
fabric took before, so that a slow machine shifts it and never fails it.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.emulation.kernel.openvswitch import missing_programs
from testbed.emulation.safety.ledger import PIN_ROOT
from testbed.emulation.safety.settings import WANTED
from tests.emulation_campuses import kernel

pytestmark = kernel

FABRICS = [
    "bridge",
    pytest.param(
        "openvswitch",
        marks=pytest.mark.skipif(bool(missing_programs()), reason=f"Open vSwitch lacks {missing_programs()}"),
    ),
]
MOMENTS = int(os.environ.get("MOMENTS", "2"))
# the nth moment is drawn from the nth part of the campus's life and a little beyond
BEYOND = 1.15
# between two signals: a teardown takes some times as long
AGAIN_S = 0.01
# what a program ends with that has no handlers of its own: by the signal, or, while a campus stands, by SystemExit
STATUS = {signal.SIGINT: {-signal.SIGINT}, signal.SIGTERM: {-signal.SIGTERM, 143}, signal.SIGHUP: {-signal.SIGHUP, 129}}
NURSERY = """
import os, sys, time
from pathlib import Path
from mininet.log import setLogLevel
from testbed.emulation.campus import LiveCampus
from testbed.emulation.processes import ForkRequest
from bpf import objects
from tests.emulation_campuses import small_campus
from topologies.presets import leaf_spine
setLogLevel("error")
objects.load_host_programs().close()
print("ready", flush=True)
for line in sys.stdin:  # each is one campus, in a process that need not import all this again
    pid = os.fork()
    if pid == 0:
        break
    ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    print("ended", ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status, flush=True)
    sys.stdin.readline()
    os.waitpid(pid, 0)  # only now: its pid stays its own as long as it may be signalled
else:
    sys.exit()
sys.stderr = open(sys.argv[2], "w")
print("begins", os.getpid(), flush=True)
kind, fabric = line.split()
spec = leaf_spine(2, 2, 2) if fabric == "openvswitch" else small_campus(3, delay_s=0.001)
with LiveCampus(spec, root=Path(sys.argv[1])) as net:
    net.get("h1").cmd("setsid nohup sleep 1000 >/dev/null 2>&1 &")
    net.fork("h2", lambda: time.sleep(1000), label="agent")
    net.fork_all([ForkRequest("h1", lambda: time.sleep(1000), "agent")] * 3)
    time.sleep(0.1)
if kind == "signalled":
    for _ in range(2000):
        time.sleep(0.01)  # a signal that was lost on the way would let the program end as if nothing were
"""


class Nursery:
    """Runs campuses one after another, each in a fresh process with the program's default handlers."""

    def __init__(self, root: Path) -> None:
        self.root, self.errors = root / "root", root / "errors"
        self._whole_s: dict[str, float] = {}
        self._process = subprocess.Popen(
            [sys.executable, "-c", NURSERY, str(self.root), str(self.errors)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            cwd=Path(__file__).parents[1],
        )
        assert self._read() == ["ready"]

    def _read(self) -> list[str]:
        return self._process.stdout.readline().split()

    def _write(self, word: str) -> None:
        self._process.stdin.write(f"{word}\n")

    def run(self, fabric: str, *signums: int, after_s: float = 0.0) -> tuple[int, int, float]:
        """(pid, exit status, seconds) of one campus; `signums` are sent to its process `after_s` after it began."""
        self._write(f"{'signalled' if signums else 'undisturbed'} {fabric}")
        word, pid = self._read()
        assert word == "begins"
        began_s = time.monotonic()
        time.sleep(after_s)
        for signum in signums:
            os.kill(int(pid), signum)
            time.sleep(AGAIN_S)
        word, status = self._read()
        assert word == "ended"
        self._write("seen")
        return int(pid), int(status), time.monotonic() - began_s

    def whole_s(self, fabric: str) -> float:
        """What an undisturbed campus takes: it leaves nothing and ends well."""
        if fabric not in self._whole_s:
            pid, status, self._whole_s[fabric] = self.run(fabric)
            assert (status, remains(self, pid)) == (0, [])
        return self._whole_s[fabric]

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            stream.close()


@pytest.fixture(scope="module")
def nursery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    made = Nursery(tmp_path_factory.mktemp("signals"))
    yield made
    made.close()


def remains(nursery: Nursery, pid: int) -> list[str]:
    """What the campus of a process that has ended left behind."""
    found = [str(path) for path in nursery.root.glob("*")]
    found += [str(path) for path in PIN_ROOT.glob(f"{pid:x}????????")]
    for entry in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"RECLAIMNET_CAMPUS={pid:x}".encode() in entry.read_bytes():
                found.append(f"process {entry.parent.name}")
        except OSError:
            continue
    return found


@pytest.mark.parametrize("signum", STATUS, ids=lambda signum: signum.name)
@pytest.mark.parametrize("fabric", FABRICS)
def test_signal_at_any_moment_leaves_nothing_and_ends_the_program(
    nursery: Nursery, fabric: str, signum: signal.Signals
) -> None:
    settings = [path.read_text() for path in WANTED if path.exists()]
    whole_s = nursery.whole_s(fabric)
    draws = random.Random(f"signals {signum.name}")
    wrong = []
    for number in range(MOMENTS):
        after_s = (number + draws.random()) / MOMENTS * whole_s * BEYOND
        pid, status, _ = nursery.run(fabric, signum, after_s=after_s)
        left = remains(nursery, pid)
        settings_now = [path.read_text() for path in WANTED if path.exists()]
        if status not in STATUS[signum] or left or settings_now != settings:
            wrong.append((after_s, status, left, settings_now, nursery.errors.read_text()[-2000:]))
    assert wrong == []


@pytest.mark.parametrize("fabric", FABRICS)
def test_signals_one_after_another_do_not_cut_the_teardown_short(nursery: Nursery, fabric: str) -> None:
    whole_s = nursery.whole_s(fabric)
    draws = random.Random("signals again")
    for _ in range(MOMENTS):
        after_s = draws.random() * whole_s
        pid, status, _ = nursery.run(
            fabric, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGTERM, after_s=after_s
        )
        assert status in set.union(*STATUS.values())
        assert remains(nursery, pid) == [], nursery.errors.read_text()[-2000:]
