"""After kill -9 of a campus: cleaning removes exactly what it made; a running campus and strangers' objects survive."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed import identity
from testbed.emulation.campus import LiveCampus
from testbed.emulation.safety.cleaning import clean_up
from testbed.emulation.safety.ledger import PIN_ROOT
from testbed.emulation.safety.living import running_campuses
from testbed.emulation.safety.settings import WANTED
from tests.emulation_campuses import kernel, small_campus
from tests.patience import wait_until

pytestmark = [*kernel, pytest.mark.stock_kernel]

OWNER = """
import sys, time
from pathlib import Path
from testbed.emulation.campus import LiveCampus
from tests.emulation_campuses import small_campus
net = LiveCampus(small_campus(3, delay_s=0.001), root=Path(sys.argv[1]))
net.start()
ready = sys.argv[1] + ".ready"  # else the shell's end might strike before nohup does
start = f"setsid nohup sh -c 'touch {ready}; exec sleep 1000' >/dev/null 2>&1 &"
net.get("h1").cmd(f"{start} until [ -e {ready} ]; do sleep .02; done")
net.fork("h2", lambda: time.sleep(1000), label="agent")
print(net.id, net.kernel.line.pid, *[p for p in net.kernel.holder_pids.values()], flush=True)
time.sleep(1000)
"""

FORGETFUL = """
import sys
from pathlib import Path
from testbed.emulation.campus import LiveCampus
from tests.emulation_campuses import small_campus
LiveCampus(small_campus(2), root=Path(sys.argv[1])).start()
"""


@pytest.fixture
def stranger() -> Iterator[str]:
    """A namespace with a bridge and a veth, and a bridge in the root namespace, that are not ours."""
    name = f"str{os.getpid()}"[:12]
    commands = [f"netns add {name}", f"-n {name} link add s1 type bridge", f"link add {name} type bridge"]
    try:
        for command in commands:
            subprocess.run(["ip", *command.split()], check=True)
        yield name
    finally:
        subprocess.run(["ip", "link", "del", name], check=False)
        subprocess.run(["ip", "netns", "del", name], check=False)


@pytest.fixture
def killed(tmp_path: Path) -> tuple[str, list[int]]:
    """A campus whose owner was killed: its id and holders."""
    root = Path(__file__).parents[1]
    owner = subprocess.Popen([sys.executable, "-c", OWNER, str(tmp_path)], stdout=subprocess.PIPE, cwd=root, text=True)
    with owner.stdout:
        campus_id, *holders = owner.stdout.readline().split()
    os.kill(owner.pid, signal.SIGKILL)
    owner.wait()
    return campus_id, [int(pid) for pid in holders]


def test_clean_removes_exactly_what_a_killed_campus_made(
    killed: tuple[str, list[int]], stranger: str, tmp_path: Path
) -> None:
    """All but its ledger, its pins and what was started inside a host dies with its owner."""
    campus_id, holders = killed
    wait_until(lambda: not any(map(identity.start_time, holders)))
    assert (PIN_ROOT / campus_id / "h1" / "switch").exists() and (tmp_path / f"{campus_id}.ledger").exists()
    with LiveCampus(small_campus(2), enforcement=True, root=tmp_path) as other:
        report = clean_up(tmp_path)
        assert report.cleaned == [campus_id] and not report.failed
        assert [line.split()[0] for line in report.running] == [other.id]
        assert not (PIN_ROOT / campus_id).exists() and not (tmp_path / campus_id).exists()
        assert any("started inside a host" in line for line in report.removed)
        assert (PIN_ROOT / other.id / "h1" / "switch").exists()
        assert "1 received" in other.get("h1").cmd("ping -c1 -W2 10.0.1.2")
        assert [c.id for c in running_campuses(str(tmp_path))] == [other.id]
        assert clean_up(tmp_path).cleaned == []
    assert list(tmp_path.iterdir()) == []
    show = subprocess.run(["ip", "-n", stranger, "-br", "link"], check=True, capture_output=True, text=True).stdout
    assert "s1" in show
    assert subprocess.run(["ip", "link", "show", stranger], check=False, capture_output=True).returncode == 0


def test_program_that_ends_without_stopping_its_campus_leaves_nothing(tmp_path: Path) -> None:
    """At the interpreter's end there are no new threads: what a campus changes is put back by the main thread."""
    before = [path.read_text() for path in WANTED if path.exists()]
    done = subprocess.run(
        [sys.executable, "-c", FORGETFUL, str(tmp_path)],
        check=False,
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[1],
    )
    assert (done.returncode, done.stderr, list(tmp_path.iterdir())) == (0, "", [])
    assert [path.read_text() for path in WANTED if path.exists()] == before
