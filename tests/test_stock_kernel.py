"""What `make test-stock-kernel` does on the machine, short of booting a guest; in the guest, whether its kernel has it all."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from testbed.emulation.capabilities import probe
from tests.stock_kernel import __main__ as launcher

# not of the kernel: programs, and the controllers of a machine that an init system set up
NOT_THE_KERNELS = {"tcpdump", "iperf", "ping", "brctl", "Open vSwitch", "CRIU"}


def test_the_short_list_names_tests_that_there_are_and_that_the_whole_list_has() -> None:
    tests = Path(launcher.__file__).parents[1]
    for name in launcher.SHORT:
        file, function = name.split("[")[0].split("::")
        text = (tests / file).read_text()
        assert f"def {function}(" in text and "mark.stock_kernel" in text


@pytest.mark.kernel
@pytest.mark.stock_kernel
@pytest.mark.skipif("STOCK_KERNEL" not in os.environ, reason="only in the guest of `make test-stock-kernel`")
def test_the_guests_kernel_has_all_that_the_testbed_can_use() -> None:
    assert [c.name for c in probe() if not c.present and c.name not in NOT_THE_KERNELS] == []
    assert sys.executable.startswith(str(launcher.REPOSITORY))
