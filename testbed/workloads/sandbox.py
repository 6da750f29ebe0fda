"""A job's sandbox: what its process gives away after the fork, before the first line of anybody's code runs.

    namespaces   its own processes and mounts; /tmp and /run are empty, folders that only root enters show what it needs.
    uid          its own, of no user: OF_JOBS and its process id.
    groups       of control, for memory and the number of processes (`control_groups`).
    network      none, unless its file declares its host's.
    landlock     reads what Python and its file need, writes its folder and its own /tmp.
    seccomp      the system calls of syscalls.txt.

No program is executed, so a job starts within milliseconds. The order matters: root prepares, then the uid changes, then Landlock
and seccomp close. A part that the kernel lacks is left out and named in the job's log; a job that requires all is refused.
"""

from __future__ import annotations

import ctypes
import os
import resource
import stat
import sys
import sysconfig
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final, Literal

import msgspec

from testbed import control_groups, linux
from testbed.own_programs import ROOT

OF_JOBS: Final = 0x70000000  # uids from here on are jobs'; process ids are below 2**22
Parts = Literal["auto", "required", "none"]
# hidden from every job: what other programs leave there, and sockets to them
HIDDEN: Final = ("/run", "/tmp", "/var/tmp", "/dev/shm")
OPEN: Final = Path("/run/open")  # empty, below a cover: its mode is lent to folders that are closed
OTHERS_READ: Final = stat.S_IROTH | stat.S_IXOTH
READABLE: Final = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc", "/opt", "/proc", "/sys/devices/system")
DEVICES: Final = ("null", "zero", "full", "random", "urandom", "tty")
OF_GPUS: Final = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-caps")
SYS_OF_GPUS: Final = ("/sys/bus/pci", "/sys/devices", "/sys/module/nvidia")
_CALLS: Final = Path(__file__).with_name("syscalls.txt")
_CLONE_NEW: Final = 0x7E020080  # every flag of clone that makes a namespace
_KEEP_SIZE: Final = 1  # of fallocate
_DOMAINS: Final = (1, 2, 10, 16)  # of sockets: UNIX, IPv4, IPv6, netlink
_PR_SET_DUMPABLE, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 4, 22, 38
_CLONE_NEWIPC: Final = 0x08000000
# Landlock: system calls, and the rights of its first version; each later one adds a bit
_CREATE, _ADD, _RESTRICT = 444, 445, 446
_RIGHTS_OF: Final = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
_READ, _FILE, _SCOPED = 0b1101, 0b1000_0000_0000_0111 | 1 << 14, 0b11


class Sandbox(msgspec.Struct, frozen=True):
    """Bounds of a job, as its agent orders them of the fork server."""

    parts: Parts
    folder: str  # of the attempt: its own
    restored: tuple[str, ...] = ()  # the file that it goes on from
    reads: tuple[str, ...] = ()  # what its file declares
    writes: tuple[str, ...] = ()  # and the folder where it runs
    group: tuple[str, ...] = ()  # folders of its control group
    slots: tuple[int, ...] = ()  # its GPUs
    host_network: bool = False
    file_bytes: int = 1 << 40  # of its largest file


class SandboxRefused(Exception):
    """A part of the sandbox that is required, and that this machine lacks."""


@cache
def landlock_version() -> int:
    """Return the version of Landlock; 0: there is none."""
    return max(0, int(linux.LIBC.syscall(_CREATE, None, ctypes.c_size_t(0), 1)))


@cache
def filter_program() -> bytes:
    """Return the compiled filter of system calls. OSError: libseccomp is missing."""
    try:
        import pyseccomp as seccomp
    except (ImportError, RuntimeError) as error:
        raise OSError(f"{error}; apt-get install libseccomp2") from error
    rules = seccomp.SyscallFilter(seccomp.ERRNO(38))  # ENOSYS, on which libraries fall back
    rules.set_attr(seccomp.Attr.CTL_OPTIMIZE, 2)
    for name in _CALLS.read_text().partition("\n")[2].split():
        with suppress(OSError, ValueError):  # of another architecture, or newer than the library
            rules.add_rule(seccomp.ALLOW, name)
    rules.add_rule(seccomp.ALLOW, "clone", seccomp.Arg(0, seccomp.MASKED_EQ, _CLONE_NEW, 0))
    # room behind a file's end is in no size: not in that of its log
    rules.add_rule(seccomp.ALLOW, "fallocate", seccomp.Arg(1, seccomp.MASKED_EQ, _KEEP_SIZE, 0))
    for name, domains in (("socket", _DOMAINS), ("socketpair", _DOMAINS[:1])):
        for domain in domains:
            rules.add_rule(seccomp.ALLOW, name, seccomp.Arg(0, seccomp.EQ, domain))
    for persona in (0, 8, 0xFFFFFFFF):
        rules.add_rule(seccomp.ALLOW, "personality", seccomp.Arg(0, seccomp.EQ, persona))
    with tempfile.TemporaryFile() as file:
        rules.export_bpf(file)
        file.seek(0)
        return file.read()


@cache
def lacks() -> dict[str, str]:
    """Return the parts that this machine or this user lacks, each with the reason."""
    found: dict[str, str] = {}
    if os.geteuid() != 0:
        return {"uid": "only root may start jobs as other users"}
    if not landlock_version():
        found["landlock"] = "the kernel has none, or it is not among its `lsm=`"
    try:
        filter_program()
    except OSError as error:
        found["seccomp"] = str(error)
    if lacking := control_groups.missing(("memory", "pids")):
        found["groups"] = f"no writable controller {', '.join(lacking)}"
    return found


@cache
def readable() -> list[Path]:
    """Return the folders that Python and its modules are in, with the one from which jobs import."""
    places = (ROOT, sys.prefix, sys.base_prefix, *sysconfig.get_paths().values(), *filter(None, sys.path), Path.cwd())
    return [place for place in dict.fromkeys(Path(str(each)).absolute() for each in places) if place.is_dir()]


def enter(given: Sandbox, places: list[Path], server: int) -> str:
    """Enter the sandbox for good; return a remark on parts left out. `server`: a pidfd. SandboxRefused, OSError.

    Call it in the job's process, which has one thread and is process 1 of its namespace.
    """
    if given.parts == "none":
        control_groups.join([*map(Path, given.group)])
        if os.getpid() == 1:
            own_namespaces()
        return "no sandbox: its file says so"
    left_out = dict(lacks())
    if os.getpid() != 1:
        left_out["namespaces"] = "a namespace of processes needs CAP_SYS_ADMIN"
    if left_out and given.parts == "required":
        raise SandboxRefused(
            "; ".join(f"this machine has no {part} for its sandbox: {why}" for part, why in left_out.items())
        )
    uid = OF_JOBS + int(str(Path("/proc/self").readlink()))  # /proc is still the machine's
    control_groups.join([*map(Path, given.group)])
    if not given.host_network:
        linux.unshare(linux.CLONE_NEWNET)  # empty, and its own: jobs do not meet in it
    os.chown(given.folder, uid, uid)
    for file in given.restored:  # its folder is root's; the mount below shows the file alone
        os.chown(file, 0, uid)
        Path(file).chmod(0o440)
    if "namespaces" not in left_out:
        own_namespaces()
        linux.unshare(_CLONE_NEWIPC)
        _hide(Path(given.folder), [*places, *map(Path, (*given.restored, *given.reads, *given.writes))])
    resource.setrlimit(resource.RLIMIT_FSIZE, (given.file_bytes, given.file_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    linux.checked(linux.LIBC.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    rules = None if "landlock" in left_out else _landlock(given, places)
    os.environ["HOME"] = given.folder
    with suppress(PermissionError):
        os.chdir(Path.cwd())  # as it is mounted now
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    linux.checked(linux.LIBC.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0), "dumpable")  # its own /proc is its own
    linux.end_with(server)  # the change of uid has undone it
    if rules is not None:
        linux.checked(linux.LIBC.syscall(_RESTRICT, rules, 0), "landlock_restrict_self")
        os.close(rules)
    if "seccomp" not in left_out:
        program = ctypes.create_string_buffer(filter_program())
        given_filter = (ctypes.c_uint64 * 2)(len(program) // 8, ctypes.addressof(program))  # struct sock_fprog
        linux.checked(linux.LIBC.prctl(_PR_SET_SECCOMP, 2, given_filter, 0, 0), "seccomp")
    return "; ".join(f"no {part} in its sandbox: {why}" for part, why in left_out.items())


def own_namespaces() -> None:
    """Give this process mounts of its own, with a /proc of the process namespace in which it is the first."""
    linux.own_mounts()
    linux.mount(b"proc", b"/proc", linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC, b"proc")


def _hide(own: Path, needed: Iterable[Path]) -> None:
    """Mount an empty folder over each of HIDDEN, and over each that only root enters above what is needed; show that there.

    A folder that keeps other users out, but is needed, and not the job's own, is shown with a mode that lets them in.
    """
    covers: dict[Path, list[tuple[Path, int]]] = {Path(each): [] for each in HIDDEN if Path(each).is_dir()}
    uncovered = list[tuple[Path, int]]()
    for place in sorted({each.resolve() for each in (own, *needed) if each.exists()}):
        covers.pop(place, None)  # all of it is needed
        above = next((p for p in [*place.parents][::-1] if p in covers or not p.stat().st_mode & stat.S_IXOTH), None)
        fd = os.open(place, os.O_PATH | os.O_CLOEXEC)
        (uncovered if above is None else covers.setdefault(above, [])).append((place, fd))
    before = os.umask(0o022)
    for cover in covers:
        linux.mount(b"tmpfs", bytes(cover), linux.MS_NOSUID | linux.MS_NODEV, b"tmpfs", b"mode=1777,size=50%")
    for place, fd in [*uncovered, *(each for shown in covers.values() for each in shown)]:
        status = os.fstat(fd)
        if stat.S_ISDIR(status.st_mode):
            place.mkdir(parents=True, exist_ok=True)
        elif not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            place.touch()
        if (place, fd) not in uncovered:
            linux.mount(f"/proc/self/fd/{fd}".encode(), bytes(place), linux.MS_BIND)
        if stat.S_ISDIR(status.st_mode) and status.st_mode & OTHERS_READ != OTHERS_READ and place != own:
            OPEN.mkdir(exist_ok=True)
            layers = f"lowerdir={OPEN}:/proc/self/fd/{fd}".encode()  # the first has the mode
            with suppress(OSError):  # a kernel without overlays: the folder stays closed
                linux.mount(b"overlay", bytes(place), linux.MS_NOSUID | linux.MS_NODEV, b"overlay", layers)
        os.close(fd)
    os.umask(before)


def _landlock(given: Sandbox, places: Iterable[Path]) -> int:
    """Return a ruleset of what the job may reach."""
    version = landlock_version()
    everything = (1 << _RIGHTS_OF.get(version, 16)) - 1
    attributes = (ctypes.c_uint64 * 3)(everything, 0, _SCOPED if version >= 6 else 0)
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    rules = linux.checked(linux.LIBC.syscall(_CREATE, attributes, ctypes.c_size_t(size), 0), "landlock_create_ruleset")
    gpus = [f"/dev/nvidia{slot}" for slot in given.slots]
    on_gpu = bool(gpus) and all(Path(gpu).exists() for gpu in gpus)
    reads = [*READABLE, *places, *given.reads, *given.group, *given.restored, *SYS_OF_GPUS[: 3 * on_gpu]]
    writes = [given.folder, *given.writes, *HIDDEN[1:], *(f"/dev/{name}" for name in DEVICES)]
    writes += [*gpus, *OF_GPUS] if on_gpu else []
    for rights, paths in ((_READ, reads), (everything, writes)):
        for path in paths:
            with suppress(FileNotFoundError):
                fd = os.open(str(path), os.O_PATH | os.O_CLOEXEC)
                allowed = rights & everything & (-1 if stat.S_ISDIR(os.fstat(fd).st_mode) else _FILE)
                rule = allowed.to_bytes(8, "little") + fd.to_bytes(4, "little")
                linux.checked(linux.LIBC.syscall(_ADD, rules, 1, rule, 0), f"landlock_add_rule {path}")
                os.close(fd)
    return rules
