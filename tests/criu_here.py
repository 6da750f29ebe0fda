"""Whether CRIU works on this machine: tests of programs that it saves say why they cannot run."""

from __future__ import annotations

import os

import pytest

from testbed.workloads import criu


def _missing() -> str:
    if os.geteuid() != 0:
        return "needs root"
    try:
        criu.command()
    except OSError as error:
        return str(error)
    return ""


_why = _missing()
needs_criu = pytest.mark.skipif(bool(_why), reason=f"CRIU: {_why}")
