"""Profiles of hypothesis, and the rule that tests marked `kernel` or `alone` run one after another (`tests/all.sh`).

Kernel tests share pinned maps and ledgers, but for those marked `apart`, which have others; `alone` ones watch spans of real time
that a busy machine stretches.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from bpf.objects import HostPrograms
    from testbed.emulation.campus import LiveCampus
    from tests.world import World

# Several tests run at a time, so a library's own threads only wait for one another: small matrices take up to five times as long.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
# An example that takes long on a busy machine is no failure. Tests set max_examples only below 25, where each is dear.
settings.register_profile("quick", deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("long", settings.get_profile("quick"), max_examples=400)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))
# A shell that runs the tests in the background has SIGINT ignored, and all that they start would inherit it.
signal.signal(signal.SIGINT, signal.default_int_handler)
# Under nohup that is so of SIGHUP. These processes go on ignoring it: a handler, unlike SIG_IGN, is not inherited through exec.
if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda *_: None)


@pytest.fixture(scope="session")
def campus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveCampus]:
    """Stand for all kernel tests that do not test building: h1 to h3 at 10 Gbit/s, enforced; each leaves it as it was.

    Its ledger has a place of its own, so that commands and `clean_up` never meet it; what sessions that were killed left
    in theirs is cleaned first.
    """
    from testbed.emulation.campus import LiveCampus
    from testbed.emulation.safety.cleaning import clean_up
    from tests.emulation_campuses import small_campus
    from topologies.units import GBIT_PER_S

    root = tmp_path_factory.mktemp("campus")
    for place in {ledger.parent for ledger in root.parents[1].glob("pytest-*/campus*/*.ledger")}:
        assert clean_up(place).failed == []
    with LiveCampus(small_campus(3, rate_bytes_per_s=10 * GBIT_PER_S), root=root) as net:
        yield net


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium, for tests of pages."""
    from tests.test_pages_scripts import CHROMIUM

    api = pytest.importorskip("playwright.sync_api", reason="no playwright: make test-extras")
    with api.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@pytest.fixture
def host() -> Iterator[HostPrograms]:
    """A fresh pair of a host's BPF programs, with maps of its own."""
    from tests.bpf_machine import loaded_or_skip

    programs = loaded_or_skip()
    yield programs
    programs.close()


@pytest.fixture
def world() -> Iterator[World]:
    """A small virtual campus whose promises were all kept in the end."""
    from tests.world import a_world

    made = a_world()
    yield made
    assert [breach for breach in made.promises() if made.checks] == []


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Fails where tests marked `kernel` or `alone` are in a file that `tests/all.sh` does not take for one of theirs."""
    theirs = re.compile(r"mark\.(kernel|alone)|^from tests\.(emulation_campuses|live_campus) import", re.MULTILINE)
    for path in {item.path for item in items if any(map(item.get_closest_marker, ("kernel", "alone")))}:
        assert theirs.search(path.read_text()), path


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Fails a test marked `kernel` or `alone` that was given to one of several processes (`pytest -n`)."""
    is_alone = any(item.iter_markers("kernel")) or any(item.iter_markers("alone"))
    if is_alone and os.environ.get("PYTEST_XDIST_WORKER"):
        pytest.fail('it is one of those that run one after another: with -n, run -m "not (kernel or alone)"')


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """In the guest of `make test-stock-kernel` nothing that it was asked to run may be skipped: its kernel has it all."""
    report = yield
    if report.skipped and not hasattr(report, "wasxfail") and os.environ.get("STOCK_KERNEL"):
        report.outcome = "failed"
        report.longrepr = f"skipped on a kernel that has it all: {report.longrepr}"
    return report
