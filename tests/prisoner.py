"""A job that tries to get out of its sandbox: one step, one attempt, and the outcome as a line of its log."""

import ctypes
import mmap
import os
import signal
import socket
import struct
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from testbed.workloads.base import Workload

LIBC = ctypes.CDLL(None, use_errno=True)
# numbers of x86-64
PTRACE, MOUNT, CLONE, CHROOT, PROCESS_VM_READV, BPF, USERFAULTFD, SETNS, UNSHARE = (
    101,
    165,
    56,
    161,
    310,
    321,
    323,
    308,
    272,
)
KEYCTL, ADD_KEY, IO_URING_SETUP, CLONE3, PERF_EVENT_OPEN, OPEN_BY_HANDLE_AT = 250, 248, 425, 435, 298, 304
FALLOCATE, KEEP_SIZE = 285, 1
NEWUSER, NEWNS = 0x10000000, 0x20000
VSOCK, ALG = 40, 38


def call(number: int, *words: object) -> int:
    """A system call; OSError if it is refused."""
    status = LIBC.syscall(ctypes.c_long(number), *(ctypes.c_long(w) if isinstance(w, int) else w for w in words))
    if status < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return int(status)


def fork_by_clone(flags: int) -> None:
    if call(CLONE, flags | signal.SIGCHLD, 0, 0, 0, 0) == 0:
        os._exit(0)


def write(path: str, text: str) -> None:
    with open(path, "w") as file:  # noqa: PTH123
        file.write(text)


def others() -> None:
    """See processes of others: more than this one and what it has started."""
    found = sorted(int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit())
    if found == [os.getpid()]:
        raise OSError(f"it sees itself only: {found}")


def extend_lease() -> None:
    """Write to the eight bytes that end it, in any way that a descriptor allows."""
    done = 0
    for fd in range(64):
        try:
            if os.fstat(fd).st_size == 8:
                for access in (mmap.ACCESS_WRITE, mmap.ACCESS_DEFAULT):
                    mmap.mmap(fd, 8, access=access)[:] = struct.pack("Q", (1 << 64) - 1)
                    done += 1
        except (OSError, TypeError, ValueError):
            continue
    if not done:
        raise OSError("no descriptor can be written to")


def connect(family: int, address: object) -> None:
    with socket.socket(family, socket.SOCK_STREAM) as sock:
        sock.settimeout(3)
        sock.connect(address)


def send_to_itself(number: int) -> None:
    """Read another process's memory."""
    local, remote = (ctypes.c_long * 2)(), (ctypes.c_long * 2)()
    call(PROCESS_VM_READV, number, local, 1, remote, 1, 0)


def escapes(at: Mapping[str, object]) -> dict[str, Callable[[], object]]:
    pid, port, path = int(str(at["pid"])), int(str(at["port"])), lambda key: Path(str(at[key]))
    return {
        "key of the agent": lambda: path("key").read_text(),
        "folder of another job": lambda: list(path("other").iterdir()),
        "root's home": lambda: list(Path("/root").iterdir()),
        "shadow": lambda: Path("/etc/shadow").read_text(),
        "pinned maps": lambda: list(Path("/sys/fs/bpf").iterdir()),
        "control groups": lambda: write(str(at["group"]) + "/pids.max", "max"),
        "settings of the kernel": lambda: write("/proc/sys/kernel/threads-max", "100000"),
        "raw socket": lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1),
        "packet socket": lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0),
        "socket to the hypervisor": lambda: socket.socket(VSOCK, socket.SOCK_STREAM),
        "cryptographic socket": lambda: socket.socket(ALG, socket.SOCK_SEQPACKET),
        "coordinator": lambda: connect(socket.AF_INET, ("127.0.0.1", port)),
        "abstract socket": lambda: connect(socket.AF_UNIX, "\0" + str(at["abstract"])),
        "socket in /tmp": lambda: connect(socket.AF_UNIX, str(at["socket"])),
        "ptrace": lambda: call(PTRACE, 16, pid, 0, 0),
        "memory of others": lambda: send_to_itself(pid),
        "signal": lambda: os.kill(pid, 0),
        "processes of others": others,
        "clone into namespaces": lambda: fork_by_clone(NEWUSER | NEWNS),
        "clone3": lambda: call(CLONE3, (ctypes.c_uint64 * 11)(NEWUSER), 88),
        "unshare": lambda: call(UNSHARE, NEWUSER),
        "setns": lambda: call(SETNS, os.open("/proc/self/ns/net", os.O_RDONLY), 0),
        "mount": lambda: call(MOUNT, b"none", b"/mnt", b"tmpfs", 0, None),
        "chroot": lambda: call(CHROOT, b"/"),
        "bpf": lambda: call(BPF, 0, (ctypes.c_uint32 * 8)(2, 4, 8, 1), 32),
        "key ring": lambda: call(KEYCTL, 0, -3, 1),
        "new key": lambda: call(ADD_KEY, b"user", b"name", b"x", 1, -3),
        "io_uring": lambda: call(IO_URING_SETUP, 4, (ctypes.c_uint32 * 30)()),
        "userfaultfd": lambda: call(USERFAULTFD, 1),
        "counters of others": lambda: call(PERF_EVENT_OPEN, (ctypes.c_uint64 * 16)(1, 112 << 32), -1, 0, -1, 0),
        "file by handle": lambda: call(OPEN_BY_HANDLE_AT, -100, (ctypes.c_uint32 * 8)(8, 1, 2), 0),
        "uid 0": lambda: os.setuid(0),
        "groups": lambda: os.setgroups([0]),
        "device": lambda: os.mknod("/tmp/disk", 0o60666, os.makedev(8, 0)),
        "own lease": extend_lease,
        "room behind the log's end": lambda: call(FALLOCATE, 1, KEEP_SIZE, 0, 128 << 20),
        "what it goes on from": lambda: path("restore").write_text("x"),
    }


def fork_bomb() -> None:
    """Fork until it is refused; the refusal passes, and what was forked stays."""
    while True:
        if os.fork() == 0:
            time.sleep(1000)


def take_memory(megabytes: int, for_s: float = 0.0) -> None:
    held = [bytearray(b"x") * (1 << 20) for _ in range(megabytes)]
    print(len(held), "MB", flush=True)
    time.sleep(for_s)


def take_hidden_memory() -> None:
    """Take memory that counts as no process's, so that the kernel ends another one for it."""
    held = os.memfd_create("held")
    for _ in range(1024):
        os.write(held, bytes(1 << 20))


def fill_folder(folder: str) -> None:
    for number in range(100_000):
        Path(folder, f"f{number}").write_bytes(bytes(16 << 20))


def keep_nameless_files(folder: str) -> None:
    """Write to files that no look at the folder finds."""
    held = [os.open(folder, os.O_TMPFILE | os.O_RDWR, 0o600) for _ in range(8)]
    for fd in held:
        os.write(fd, bytes(8 << 20))
    time.sleep(1000)


def nest_folders(folder: str) -> None:
    """Make more folders, one in another, than a path may have letters, or Python calls."""
    os.chdir(folder)
    for _ in range(2500):
        Path("a").mkdir()
        os.chdir("a")
    time.sleep(1000)


def hold_names(seconds: float) -> None:
    """Hold what programs of one network can take from one another: an abstract name, and a port of netlink."""
    with socket.socket(socket.AF_UNIX) as named, socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 2) as port:
        named.bind("\0name")
        port.bind((4242, 0))
        print("holds", flush=True)
        time.sleep(seconds)


def outlive_its_agent() -> None:
    LIBC.prctl(1, 0)  # PR_SET_PDEATHSIG
    for _ in range(64):
        if os.fork() == 0:
            time.sleep(1000)
    print("waits", flush=True)
    time.sleep(1000)


class Prisoner(Workload):
    """Params: `escape`, and where things are."""

    steps_total = 1

    def begin(self) -> None:
        self.step_number = 0

    def step(self) -> None:
        name = str(self.given["escape"])
        try:
            attempt = (
                escapes(self.given).get(name)
                or {
                    "fork bomb": fork_bomb,
                    "400 MB": lambda: take_memory(400),
                    "80 MB": lambda: take_memory(80, 1000.0),
                    "hidden memory": take_hidden_memory,
                    "full folder": lambda: fill_folder(os.environ["HOME"]),
                    "files without a name": lambda: keep_nameless_files(os.environ["HOME"]),
                    "folders in folders": lambda: nest_folders(os.environ["HOME"]),
                    "outlives its agent": outlive_its_agent,
                    "holds names": lambda: hold_names(1000.0),
                    "takes names": lambda: hold_names(0.0),
                    "honest": lambda: None,
                    "waits": lambda: time.sleep(1000),
                }[name]
            )
            print("inside:", attempt(), flush=True)
        except OSError as error:
            print("refused:", error, flush=True)
        self.step_number = 1

    def save(self, path: Path) -> None:
        path.write_text("state")

    def load(self, path: Path) -> None:
        assert path.read_text() == "state"
        self.step_number = 0

    def verify(self) -> bytes:
        return b"prisoner"
