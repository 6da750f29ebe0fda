"""The owner of a real GPU: a process of another's that computes on it. Where there is none, the reason is shown."""

import subprocess
import sys

import pytest

from testbed.installed import machine

HELD = "import torch; held = torch.ones(1 << 20, device='cuda').sum().item(); print('there', flush=True); input()"


@pytest.mark.extra
def test_a_process_of_another_on_a_gpu_is_its_owner_and_a_guest_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch", reason="needs PyTorch: the extra 'torch'")
    gpus = machine.Gpus()
    if gpus.lack or not gpus.facts():
        pytest.skip(f"needs a GPU: {gpus.lack or 'this machine has none'}")
    assert all(name and memory_bytes > 1 << 30 for name, memory_bytes in gpus.facts())
    with subprocess.Popen([sys.executable, "-c", HELD], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout
        assert other.stdout.readline() == b"there\n"
        for group, is_owner in (("/lent/job", False), ("/user", True)):
            monkeypatch.setattr(machine, "own_group", lambda pid=None, group=group: group if pid else "/lent/agent")
            assert (other.pid in gpus.foreign_processes()) is is_owner
            assert (f"process {other.pid} on a GPU" in machine.presence()) is is_owner
        other.communicate(b"\n")
