"""In the guest of `make test-stock-kernel`: whether its kernel has it all."""

from __future__ import annotations

import os
import sys

import pytest

from testbed.emulation.capabilities import probe
from tests.stock_kernel import __main__ as launcher

# not of the kernel: programs, and the controllers of a machine that an init system set up
NOT_THE_KERNELS = {"tcpdump", "Mininet's programs", "Open vSwitch", "CRIU"}


@pytest.mark.kernel
@pytest.mark.stock_kernel
@pytest.mark.skipif("STOCK_KERNEL" not in os.environ, reason="only in the guest of `make test-stock-kernel`")
def test_the_guests_kernel_has_all_that_the_testbed_can_use() -> None:
    assert [c.name for c in probe() if not c.present and c.name not in NOT_THE_KERNELS] == []
    assert sys.executable.startswith(str(launcher.REPOSITORY))
