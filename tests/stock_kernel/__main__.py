"""`python -m tests.stock_kernel [pytest's arguments]`: fetch Debian's kernel once, boot it, test in it.

Exits with pytest's status. Without KVM all that is marked `stock_kernel` takes some 20 minutes of a quiet machine.

Without KVM, qemu's TCG makes the guest's clock count instructions, a nanosecond each: a guest that computes gets no older while
the machine does something else. So bounds of time hold in it as they stand in the tests, however slow and busy the machine is;
and what it says of durations is no measurement.
"""

import lzma
import os
import platform
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
CACHE = REPOSITORY / ".stock"
KVM = Path("/dev/kvm")
META_PACKAGE = "linux-image-amd64"
PROGRAMS = ("qemu-system-x86_64", "busybox", "modprobe", "depmod", "setpriv", "dpkg-deb", "apt-get")
# what the initramfs needs to reach the machine's files
BOOT_MODULES = ("virtio_pci", "9pnet_virtio", "9p", "overlay")
# what the tests are here for: without these the cached kernel is not whole
TESTED_MODULES = ("sch_fq", "openvswitch")
# of the package's 400 MB: no drivers of real devices
KEPT = ("arch", "crypto", "drivers/net", "drivers/virtio", "fs", "lib", "net")
MEMORY_MB = 4096
ROOT_FOLDERS = ("bin", "proc", "dev", "files", "snapshot", "memory", "root", "modules.d")
# of the checkout: large, or made by it; the guest sees the machine's
NOT_COPIED = (".git", ".venv", ".stock", "out", "build", "__pycache__", ".*_cache")
TRIAL_LIMIT_S = 30.0  # KVM boots in 2 s
LIMIT_S = 7200.0


def main(arguments: list[str]) -> int:
    """Pytest's status in the guest. SystemExit: it could not be asked, and why."""
    # ends as by ctrl-C: no guest, no files are left
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    kernel, compiled = cached_kernel(), compiled_decisions()
    with tempfile.TemporaryDirectory(prefix="stock_kernel") as scratch:
        initrd = make_initramfs(kernel, Path(scratch))
        snapshot, exchange = Path(scratch, "snapshot"), Path(scratch, "exchange")
        exchange.mkdir()
        # an edit meanwhile does not reach the guest, which would read it half: sizes are cached there
        shutil.copytree(REPOSITORY, f"{snapshot}/{REPOSITORY}", ignore=shutil.ignore_patterns(*NOT_COPIED))
        command = [sys.executable, "-m", "pytest", *(arguments or marked_tests())]
        variables = {"STOCK_KERNEL": "1", "COLUMNS": str(shutil.get_terminal_size().columns), **compiled}
        exported = shlex.join(f"{name}={value}" for name, value in variables.items())
        (exchange / "command").write_text(
            f"cd {shlex.quote(str(REPOSITORY))}\nexport {exported}\nexec {shlex.join(command)}\n"
        )
        boot(kernel, initrd, Path(scratch), accelerator(kernel, initrd))
        status = exchange / "status"
        if not status.exists():
            sys.exit("the guest ended without a result: see what it said above")
        return int(status.read_text())


def marked_tests() -> list[str]:
    """Pytest's arguments for the tests marked `stock_kernel`: only the files that say so, since importing all takes minutes."""
    files = [path for path in sorted(HERE.parent.glob("test_*.py")) if "mark.stock_kernel" in path.read_text()]
    return ["-m", "stock_kernel", *(str(path.relative_to(REPOSITORY)) for path in files)]


def cached_kernel() -> Path:
    """Folder with `vmlinuz` and `modules` of Debian's kernel, fetched if there is none. For a newer one remove `.stock`."""
    if missing := [name for name in PROGRAMS if shutil.which(name) is None]:
        sys.exit(f"not on PATH: {', '.join(missing)}; `./setup-apt.sh stock-kernel` installs them")
    if platform.machine() != "x86_64":
        sys.exit(f"it is made for x86_64, and this machine is {platform.machine()}")
    if whole := sorted(CACHE.glob("linux-image-*/vmlinuz")):
        return whole[-1].parent
    CACHE.mkdir(exist_ok=True)
    package = stock_package()
    with tempfile.TemporaryDirectory(prefix="fetching", dir=CACHE) as scratch:
        print(f"fetching {package}, some 70 MB, once", flush=True)
        # a folder of this user, which the one that apt otherwise becomes cannot write
        download = ["apt-get", "-qq", "-o", "APT::Sandbox::User=root", "download", package]
        if subprocess.run(download, cwd=scratch).returncode:
            sys.exit(f"{package} could not be fetched: `apt-get update` if apt's lists are old")
        (archive,) = Path(scratch).glob("*.deb")
        subprocess.run(["dpkg-deb", "--extract", archive, f"{scratch}/tree"], check=True)
        (image,) = Path(scratch).glob("tree/boot/vmlinuz-*")
        (modules,) = Path(scratch).glob("tree/**/lib/modules/*/kernel")
        folder = Path(scratch, package)
        release = modules.parent.name
        for part in KEPT:
            if (modules / part).exists():
                shutil.move(modules / part, folder / "lib/modules" / release / "kernel" / part)
        for table in modules.parent.glob("modules.*"):
            shutil.move(table, folder / "lib/modules" / release / table.name)
        subprocess.run(["depmod", "--basedir", folder, release], check=True)
        if absent := [name for name in TESTED_MODULES if not list(folder.rglob(f"{name}.ko*"))]:
            sys.exit(f"{package} has no module {', '.join(absent)}")
        shutil.move(image, folder / "vmlinuz")
        return folder.rename(CACHE / package)  # last: what bears this name is whole


def compiled_decisions() -> dict[str, str]:
    """Variables by which processes find the coordinator's machine code, made here: in the guest that would take minutes."""
    # of what every x86-64 processor has, whatever this one's is
    found = {"NUMBA_CACHE_DIR": str(CACHE / "compiled"), "NUMBA_CPU_NAME": "x86-64", "NUMBA_CPU_FEATURES": ""}
    command = [sys.executable, "-m", "controller.warm_up"]
    if subprocess.run(command, cwd=REPOSITORY, env=os.environ | found).returncode:
        sys.exit("the coordinator's decisions could not be compiled: see what was said above")
    return found


def stock_package() -> str:
    """Name of the package that holds Debian's current kernel."""
    shown = subprocess.run(["apt-cache", "show", "--no-all-versions", META_PACKAGE], capture_output=True, text=True)
    for line in shown.stdout.splitlines():
        if line.startswith("Depends: linux-image-"):
            return line.split()[1].rstrip(",")
    sys.exit(f"apt knows no package {META_PACKAGE}: it is Debian's; `apt-get update` if apt's lists are empty")


def make_initramfs(kernel: Path, scratch: Path) -> Path:
    """An initramfs of busybox, the modules that reach the machine's files, and `initramfs.sh`."""
    (modules,) = kernel.glob("lib/modules/*")
    tree = scratch / "initramfs"
    for name in ROOT_FOLDERS:
        (tree / name).mkdir(parents=True)
    busybox = Path(shutil.which("busybox") or "")
    shutil.copy(busybox, tree / "bin/busybox")
    names = []
    for module in BOOT_MODULES:
        shown = subprocess.run(
            ["modprobe", "--dirname", kernel, "--set-version", modules.name, "--show-depends", module],
            check=True, capture_output=True, text=True,
        )  # fmt: skip
        for kind, path in (line.split()[:2] for line in shown.stdout.splitlines()):
            name = f"/modules.d/{Path(path).name.removesuffix('.xz')}"
            if kind == "insmod" and name not in names:
                names.append(name)
                data = Path(path).read_bytes()
                (tree / name[1:]).write_bytes(lzma.decompress(data) if path.endswith(".xz") else data)
    (tree / "modules").write_text("".join(f"{name}\n" for name in names))
    paths = {"CHECKOUT": REPOSITORY, "MODULES": modules, "GUEST": HERE / "guest.sh"}
    first, *script = (HERE / "initramfs.sh").read_text().splitlines(keepends=True)
    said = [f"{name}={shlex.quote(str(path))}\n" for name, path in paths.items()]
    (tree / "init").write_text("".join([first, *said, *script]))
    (tree / "init").chmod(0o755)
    listed = "\n".join(str(path.relative_to(tree)) for path in tree.rglob("*"))
    initrd = scratch / "initrd"
    with initrd.open("wb") as out:
        packing = [busybox, "cpio", "-o", "-H", "newc"]
        subprocess.run(packing, input=listed.encode(), stdout=out, stderr=subprocess.DEVNULL, cwd=tree, check=True)
    return initrd


def accelerator(kernel: Path, initrd: Path) -> list[str]:
    """Options of qemu: KVM where a guest boots by it (it may be there and not work), else TCG."""
    if os.access(KVM, os.R_OK | os.W_OK):
        trial = qemu(kernel, initrd, ["-accel", "kvm"], "just_boot")
        try:
            said = subprocess.run(trial, stdin=subprocess.DEVNULL, capture_output=True, timeout=TRIAL_LIMIT_S).stdout
        except subprocess.TimeoutExpired:
            said = b""
        if b"it boots" in said:
            return ["-accel", "kvm", "-cpu", "host"]
        print("there is /dev/kvm, but no guest boots by it: by emulation (TCG), some 20 times slower", flush=True)
    return ["-accel", "tcg", "-cpu", "max,la57=off", "-icount", "shift=0", "-rtc", "clock=vm"]


def boot(kernel: Path, initrd: Path, scratch: Path, accelerated: list[str]) -> None:
    """Run the guest to its end; what it says appears as it says it. SystemExit: it did not end in time."""
    command = qemu(kernel, initrd, accelerated, "quiet")
    for tag, path, read_only in (
        ("files", "/", "on"),
        ("snapshot", scratch / "snapshot", "on"),
        ("exchange", scratch / "exchange", "off"),
    ):
        options = f"id={tag},mount_tag={tag},path={path},readonly={read_only}"
        command += ["-virtfs", f"local,security_model=none,multidevs=remap,{options}"]
    guest = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    try:
        guest.wait(LIMIT_S)
    except subprocess.TimeoutExpired:
        sys.exit(f"not done in {LIMIT_S:.0f} s")
    finally:
        guest.kill()
        guest.wait()


def qemu(kernel: Path, initrd: Path, accelerated: list[str], word: str) -> list[str]:
    """A guest without disks and network that dies with this process, its console on standard output."""
    return [
        "setpriv", "--pdeathsig", "KILL", "qemu-system-x86_64", "-no-user-config", "-nodefaults", "-no-reboot",
        "-m", str(MEMORY_MB), "-smp", "1", *accelerated, "-display", "none", "-serial", "stdio", "-monitor", "none",
        "-kernel", str(kernel / "vmlinuz"), "-initrd", str(initrd),
        "-append", f"console=ttyS0 panic=-1 no_timer_check mitigations=off {word}",
    ]  # fmt: skip


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
