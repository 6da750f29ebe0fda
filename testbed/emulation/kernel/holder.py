"""A program of its own: forks one process per namespace, each of which unshares its network and waits to be killed.

It runs as `python -I -S holder.py PARENT_PID COUNT`, with almost nothing imported. Forking a process that has a whole
campus in memory costs several times as much as forking this one. And the children of a bare interpreter inherit no
threads, locks or descriptors. Standard input is the leash: "go" starts the namespaces, end of file ends everything.
Each child dies with this process, and this process with the campus (PR_SET_PDEATHSIG), whatever signal killed it.

Standard output has one line of pids once all are forked. After "go", it has one byte for each namespace that stands
(`.`) or could not be made (`!`, with the reason on standard error).
"""

import ctypes
import os
import signal
import sys

CLONE_NEWNET = 0x40000000
PR_SET_NAME = 15
PR_SET_PDEATHSIG = 1
HURRIED_NICE = -15  # as of the threads that load programs meanwhile; refused, it is slower
libc = ctypes.CDLL(None, use_errno=True)


def die_with(parent: int) -> None:
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def hold(parent: int, go_fd: int) -> None:
    die_with(parent)
    os.read(go_fd, 1)
    if libc.unshare(CLONE_NEWNET) == 0:
        os.write(1, b".")
    else:
        os.write(2, f"unshare: {os.strerror(ctypes.get_errno())}\n".encode())
        os.write(1, b"!")
    for fd in (0, 1, 2, go_fd):
        os.close(fd)
    while True:
        signal.pause()


def fork_holders(count: int, go_fd: int, go_write_fd: int) -> list[int]:
    me = os.getpid()
    pids = []
    for _ in range(count):
        pid = os.fork()
        if pid == 0:
            os.close(go_write_fd)
            hold(me, go_fd)
        pids.append(pid)
    return pids


def main() -> None:
    parent, count = int(sys.argv[1]), int(sys.argv[2])
    die_with(parent)
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, signal.SIG_IGN)
    libc.prctl(PR_SET_NAME, b"reclaimnet-ns", 0, 0, 0)
    libc.setpriority(os.PRIO_PROCESS, 0, HURRIED_NICE)
    go_fd, go_write_fd = os.pipe()
    pids = fork_holders(count, go_fd, go_write_fd)
    os.write(1, (" ".join(map(str, pids)) + "\n").encode())
    if os.read(0, 1):
        os.close(go_write_fd)
        while os.read(0, 1):
            pass
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    for pid in pids:
        os.waitpid(pid, 0)


if __name__ == "__main__":
    main()
