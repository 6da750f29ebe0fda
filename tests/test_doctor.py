"""The capability probe: honest, complete, and without a trace."""

import io
import os
import subprocess
import sys
import tempfile
from configparser import ConfigParser
from pathlib import Path

import pytest
from rich.console import Console

from experiments.inputs.scenario import load
from experiments.worlds.live.operator import JOURNAL
from experiments.worlds.live.world import live_world
from testbed.emulation import capabilities
from testbed.emulation.capabilities import Capability, Need, doctor_table, probe
from testbed.errors import SetupError
from tests.emulation_campuses import kernel, machine
from tests.live_campus import needs_root
from tests.stock_kernel import __main__ as launcher

NOBODY = 65534

CONTAINED = """
import sys
from pathlib import Path
from mininet.log import setLogLevel
from testbed.emulation.campus import LiveCampus
from testbed.emulation.capabilities import Need, probe
from tests.emulation_campuses import small_campus
setLogLevel("error")
with LiveCampus(small_campus(2), root=Path(sys.argv[1])) as net:
    lost = net.pingAll(timeout="2")
(table,) = [c for c in probe([Need.OPTIONAL]) if c.name == "size of the neighbour table"]
print(lost, table.present, table.detail)
"""


def missing(name: str, need: Need) -> Capability:
    return Capability(name, False, "not there", "no work", "mend it", need)


def test_table_says_what_a_lack_means_and_what_mends_it() -> None:
    out = io.StringIO()
    Console(file=out, width=200).print(doctor_table([missing("delay line", Need.DELAY)]))
    assert "no work" in out.getvalue() and "mend it" in out.getvalue() and "delay or loss" in out.getvalue()


def test_every_probe_says_what_its_absence_means_and_what_mends_it() -> None:
    assert all(p.meaning and p.mend and p.name for p in capabilities.PROBES)
    assert len({p.name for p in capabilities.PROBES}) == len(capabilities.PROBES)


def test_a_missing_package_of_a_live_campus_is_named_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capabilities, "find_spec", lambda name: None if name == "os_ken" else sys)
    [packages] = [c for c in probe([Need.CAMPUS]) if c.name == "Python packages"]
    assert (packages.present, packages.detail) == (False, "not installed: os_ken")
    assert packages.mend == "pip install 'reclaimnet-testbed[live]'"
    described = ConfigParser()
    described.read(Path(__file__).parents[1] / "setup.cfg")
    assert {"cryptography", "os-ken", "pyjwt", "pyseccomp"} <= {
        line.partition(">")[0] for line in described["options.extras_require"]["live"].split()
    }


def test_unprivileged_user_is_told_about_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    (root,) = [c for c in probe([Need.CAMPUS]) if c.name == "root"]
    assert not root.present and "sudo" in root.mend


class TestKernel:
    """Compared with what other tools say."""

    pytestmark = [*kernel, pytest.mark.stock_kernel]

    def test_probe_answers_for_all_and_leaves_nothing(self) -> None:
        before = machine()
        found = probe()
        assert machine() == before
        assert len(found) == len(capabilities.PROBES)
        assert all(c.detail for c in found)
        assert [c.name for c in found if c.need is Need.CAMPUS and not c.present] == []  # here, one can be built

    def test_in_a_namespace_of_its_own_a_campus_starts_and_doctor_says_what_is_out_of_reach(
        self, tmp_path: Path
    ) -> None:
        done = subprocess.run(
            ["unshare", "-n", sys.executable, "-c", CONTAINED, str(tmp_path)],
            check=False,
            capture_output=True,
            text=True,
            cwd=Path(__file__).parents[1],
        )
        assert done.returncode == 0, done.stderr
        lost, present, detail = done.stdout.splitlines()[-1].split(maxsplit=2)
        assert (lost, present) == ("0.0", "False") and "gc_thresh3" in detail
        assert list(tmp_path.iterdir()) == []


@needs_root
def test_a_machine_that_lacks_something_is_found_before_an_older_run_is_deleted() -> None:
    """Without root all files of the run that was there went, and half a minute of compiling, before it was said."""
    scenario = load("example:lab").played()
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        (out / JOURNAL).write_text("older")
        for path in (out, out / JOURNAL):
            os.chown(path, NOBODY, -1)
        os.seteuid(NOBODY)
        try:
            with pytest.raises(SetupError, match="root is missing"), live_world(scenario, out):
                pass
        finally:
            os.seteuid(0)
        assert (out / JOURNAL).read_text() == "older"


# not of the kernel: programs, and the controllers of a machine that an init system set up
NOT_THE_KERNELS = {"Mininet's programs", "Open vSwitch", "CRIU"}


@pytest.mark.kernel
@pytest.mark.stock_kernel
@pytest.mark.skipif("STOCK_KERNEL" not in os.environ, reason="only in the guest of `make test-stock-kernel`")
def test_the_guests_kernel_has_all_that_the_testbed_can_use() -> None:
    assert [c.name for c in probe() if not c.present and c.name not in NOT_THE_KERNELS] == []
    assert sys.executable.startswith(str(launcher.REPOSITORY))
