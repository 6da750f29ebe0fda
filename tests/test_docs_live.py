"""Commands and snippets of the pages that need a campus: one that stands, as `up` makes it, and one for each page of Python."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.emulation.campus import LiveCampus
from testbed.emulation.kernel.openvswitch import missing_programs
from tests.doc_pages import ROOT, Shell, blocks, functions, typed
from tests.emulation_campuses import kernel
from tests.live_campus import leftovers
from topologies import load, three_tier

pytestmark = [*kernel, pytest.mark.apart]


# runs a command of an owner, and prints each function that it calls, when it first does
CALLS = """
import sys
from experiments.cli.start import main

met = {}
def calls(frame, what, _):
    if what == "call":
        met[frame.f_code.co_filename, frame.f_code.co_qualname] = None
sys.setprofile(calls)
main()
sys.setprofile(None)
print(*[" ".join(each) for each in met], sep="\\n")
"""


def test_the_commands_of_all_pages_work_on_a_campus_that_stands(tmp_path: Path) -> None:
    with Shell(tmp_path) as shell:
        job = tmp_path / "docs/examples/counting.toml"
        job.write_text(job.read_text().replace("200 ms", "20 ms"))  # a second instead of ten
        start, jobs, _ = typed("docs/own_jobs.md")
        shell.play(start)
        submit, listed, follow = jobs.commands
        shell.run(submit)
        assert "counting" in shell.run(listed)
        [_, of_owners, _] = typed("README.md")
        assert "h3 is lent again" in shell.play(of_owners)
        way = functions("docs/one_reclaim.md")[0]
        called = [sys.executable, "-c", CALLS, "reclaim", "h2"]
        done = subprocess.run(called, cwd=ROOT, capture_output=True, text=True, check=True)
        met = [line.removeprefix(f"{ROOT}/") for line in done.stdout.splitlines()]
        assert [name for name in met if name in way] == way
        assert len(way) == 10
        shell.run(typed("docs/dashboard.md")[0].commands[0])
        assert shell.run(follow).endswith("step 50\n")
        assert len(shell.standing) == 3
        assert shell.interrupt("dashboard") == {130}
        assert shell.interrupt("reclaimnet up") == {130}


def test_a_demonstration_with_a_page_ends_by_an_interrupt(tmp_path: Path) -> None:
    with Shell(tmp_path) as shell:
        shell.run("reclaimnet demo")
        shell.run("until reclaimnet jobs | grep -q running; do sleep .2; done")
        shell.run(typed("docs/dashboard.md")[0].commands[0])
        assert shell.interrupt("reclaimnet demo") == {130}
        assert shell.interrupt("dashboard") == {130}
    assert (tmp_path / "out/demo/report.html").exists()
    assert json.loads((tmp_path / "out/demo/summary.json").read_text())["ended"] == "interrupted"
    assert leftovers() == []


def test_the_page_of_links_changes_them() -> None:
    [block] = blocks("docs/how/links.md", "python")
    with LiveCampus(three_tier(12, 3)) as net:
        exec(compile(block.text, "docs/how/links.md", "exec"), {"net": net})
        assert not net.plan.cable_between("d1", "core").a.is_up


@pytest.mark.skipif(bool(missing_programs()), reason=f"Open vSwitch lacks {missing_programs()}")
def test_the_page_of_fabrics_looks_at_one_and_drains_a_trunk(capfd: pytest.CaptureFixture[str]) -> None:
    drains, looks = [block.text for block in blocks("docs/how/fabric.md", "python")]
    exec(compile(looks, "docs/how/fabric.md", "exec"), {})
    with LiveCampus(load("example:twocores")) as net:
        exec(compile(drains, "docs/how/fabric.md", "exec"), {"net": net})
    said = capfd.readouterr().out
    assert "'event': " in said
    assert "group_id" in said
