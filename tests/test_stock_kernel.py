"""What `make test-stock-kernel` does on the machine, short of booting a guest; in the guest, whether its kernel has it all."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.emulation.capabilities import probe
from tests.stock_kernel import __main__ as launcher

# not of the kernel: programs, and the controllers of a machine that an init system set up
NOT_THE_KERNELS = {"tcpdump", "iperf", "ping", "brctl", "Open vSwitch", "CRIU"}


def program(folder: Path, name: str, script: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of programs that do nothing, which alone are found, before the system's own; an empty cache; nothing compiled."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in launcher.PROGRAMS:
        program(programs, name, "exit 0")
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setattr(launcher, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(launcher, "KVM", tmp_path / "kvm")
    monkeypatch.setattr(launcher.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(launcher, "compiled_decisions", dict)
    before = signal.getsignal(signal.SIGTERM)
    yield programs
    signal.signal(signal.SIGTERM, before)


def test_programs_that_are_missing_are_named_with_what_installs_them(
    machine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (machine / "qemu-system-x86_64").unlink()
    monkeypatch.setenv("PATH", str(machine))
    assert launcher.main([]) == 2
    said = capsys.readouterr().err
    assert "qemu-system-x86_64; `./setup-apt.sh stock-kernel` installs" in said


def test_a_machine_whose_apt_knows_no_debian_kernel_is_told_so(
    machine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program(machine, "apt-cache", "exit 100")
    assert launcher.main([]) == 2
    assert "apt knows no package linux-image-amd64" in capsys.readouterr().err


def test_a_kernel_that_cannot_be_fetched_leaves_nothing_in_the_cache(
    machine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program(machine, "apt-cache", "echo 'Depends: linux-image-9.9-amd64 (= 1)'")
    program(machine, "apt-get", "exit 100")
    assert launcher.main([]) == 2
    assert "linux-image-9.9-amd64 could not be fetched: is there a network?" in capsys.readouterr().err
    assert list(launcher.CACHE.iterdir()) == []


def test_a_package_without_what_the_tests_are_for_is_refused(
    machine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program(machine, "apt-cache", "echo 'Depends: linux-image-9.9-amd64 (= 1)'")
    program(machine, "apt-get", "touch linux-image-9.9.deb")
    release = '"$3"/lib/modules/9.9-amd64'
    made = f'mkdir -p "$3/boot" {release}/kernel/net; touch "$3/boot/vmlinuz-9.9" {release}/kernel/net/sch_netem.ko.xz'
    program(machine, "dpkg-deb", made)
    assert launcher.main([]) == 2
    assert "linux-image-9.9-amd64 has no module sch_fq, openvswitch" in capsys.readouterr().err
    assert list(launcher.CACHE.iterdir()) == []


def test_a_guest_that_ends_without_a_result_and_one_that_does_not_end_are_no_success(
    machine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kernel = launcher.CACHE / "linux-image-9.9-amd64"
    (kernel / "lib/modules/9.9-amd64").mkdir(parents=True)
    (kernel / "vmlinuz").touch()
    assert launcher.main([]) == 2
    assert "ended without a result" in capsys.readouterr().err
    program(machine, "setpriv", "exec sleep 60")
    monkeypatch.setenv("STOCK_KERNEL_LIMIT_S", "0.2")
    assert launcher.main([]) == 2
    assert "not done in 0 s" in capsys.readouterr().err
    monkeypatch.setenv("STOCK_KERNEL_LIMIT_S", "soon")
    assert launcher.main([]) == 2
    assert "STOCK_KERNEL_LIMIT_S is 'soon'" in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_the_guest_and_leaves_no_files(
    machine: Path, tmp_path: Path, number: signal.Signals
) -> None:
    kernel = tmp_path / "cache/linux-image-9.9-amd64"
    (kernel / "lib/modules/9.9-amd64").mkdir(parents=True)
    (kernel / "vmlinuz").touch()
    program(
        machine,
        "setpriv",
        f"echo $$ > {tmp_path}/guest.new; mv {tmp_path}/guest.new {tmp_path}/guest; exec sleep 60",
    )
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    script = (
        "import sys; from pathlib import Path; from tests.stock_kernel import __main__ as launcher\n"
        f"launcher.CACHE, launcher.KVM = Path({str(tmp_path / 'cache')!r}), Path('/nowhere')\n"
        "launcher.compiled_decisions = dict\n"
        "sys.exit(launcher.main([]))"
    )
    launched = subprocess.Popen(
        [sys.executable, "-c", script], cwd=launcher.REPOSITORY, env={**os.environ, "TMPDIR": str(scratch)}
    )
    try:
        while not (tmp_path / "guest").exists():
            assert launched.poll() is None
            time.sleep(0.02)
        launched.send_signal(number)
        assert launched.wait(20) == 130
    finally:
        launched.kill()
        launched.wait()
    guest, until_s = Path("/proc", (tmp_path / "guest").read_text().strip()), time.monotonic() + 10.0
    while guest.exists() and time.monotonic() < until_s:  # until the machine's first process has buried it
        time.sleep(0.02)
    assert not guest.exists()
    assert list(scratch.iterdir()) == []


@pytest.mark.skipif(shutil.which("busybox") is None, reason="no busybox: ./setup-apt.sh stock-kernel")
def test_initramfs_holds_its_first_process_and_the_machines_paths(machine: Path, tmp_path: Path) -> None:
    kernel = tmp_path / "kernel"
    (kernel / "lib/modules/9.9-amd64").mkdir(parents=True)
    (machine / "busybox").unlink()
    program(machine, "modprobe", f"echo insmod {machine}/busybox.ko; echo builtin virtio")
    (machine / "busybox.ko").write_bytes(b"a module")
    initrd = launcher.make_initramfs(kernel, tmp_path)
    unpacked = tmp_path / "unpacked"
    unpacked.mkdir()
    subprocess.run(
        ["busybox", "cpio", "-i"],
        stdin=initrd.open("rb"),
        cwd=unpacked,
        check=True,
        stderr=subprocess.DEVNULL,
    )
    assert (unpacked / "modules").read_text() == "/modules.d/busybox.ko\n"
    assert (unpacked / "modules.d/busybox.ko").read_bytes() == b"a module"
    subprocess.run(["sh", "-n", unpacked / "init"], check=True)
    assert f"CHECKOUT={launcher.REPOSITORY}\n" in (unpacked / "init").read_text()


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
