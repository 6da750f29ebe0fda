"""Tests of the kernel's part have the machine to themselves: what they make (namespaces, pinned maps, ledgers) is shared."""

from __future__ import annotations

import os

import pytest


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Fails a test marked `kernel` that was given to one of several processes (`pytest -n`)."""
    if item.get_closest_marker("kernel") and os.environ.get("PYTEST_XDIST_WORKER"):
        pytest.fail(
            'it shares the machine with other tests: run it with pytest -m kernel, and -n with -m "not kernel"'
        )
