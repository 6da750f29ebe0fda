"""Some tests run one after another, first in line for the processors (`tests/all.sh`): what those of the kernel's part make
(namespaces, pinned maps, ledgers) is shared, and others watch spans of real time that a busy machine stretches."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Generator
from functools import cache
from pathlib import Path

import pytest
from hypothesis import settings

# Several tests run at a time, so a library's own threads only wait for one another: small matrices take up to five times as long.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
# An example that takes long on a busy machine is no failure.
settings.register_profile("reclaimnet", deadline=None)
settings.load_profile("reclaimnet")
# A shell that runs the tests in the background has SIGINT ignored, and all that they start would inherit it.
signal.signal(signal.SIGINT, signal.default_int_handler)
# Under nohup that is so of SIGHUP. These processes go on ignoring it: a handler, unlike SIG_IGN, is not inherited through exec.
if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda *_: None)


@cache
def _may_be_first_in_line(file: Path) -> bool:
    """Whether the text of a file has a mark `kernel` or `alone`, of its own or of the helpers that hold them."""
    marks = (
        r"\bmark\.(kernel|alone)\b|^from tests\.(emulation_campuses|live_campus) import .*\b(kernel|live)\b"
    )
    return re.search(marks, file.read_text(), re.MULTILINE) is not None


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--first-in-line` reads a quarter of the files."""
    says = "only read files whose text has a mark kernel or alone: those of others are not looked at"
    parser.addoption("--first-in-line", action="store_true", help=says)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Others are left out where nothing of them could be chosen."""
    is_test = collection_path.name.startswith("test_") and collection_path.suffix == ".py"
    leaves_out = (
        config.getoption("--first-in-line") and is_test and not _may_be_first_in_line(collection_path)
    )
    return True if leaves_out else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test that is first in line must be seen to be: else `--first-in-line` would leave it out."""
    hidden = {
        item.path.name
        for item in items
        if any(item.iter_markers("kernel")) or any(item.iter_markers("alone"))
        if not _may_be_first_in_line(item.path)
    }
    if hidden:
        raise pytest.UsageError(
            f"{', '.join(sorted(hidden))}: marked kernel or alone, which the text does not say"
        )


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
