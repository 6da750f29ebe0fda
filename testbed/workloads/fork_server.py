"""A program of its own: forks job processes that have imported the runner already, for an agent process with many jobs.

`testbed.workloads.fork_server AGENT_PID CONTROL_FD`. It has one thread and does one thing at a time, by order
of the agent. Orders come over a socket of packets (JSON, with descriptors beside it):

    {"apart": B, "sandbox": S}  with the job's socket, lease, output [, network namespace]
                                                                                 ->  {"pid": N} and its pidfd, or {"error": why}
    {"reap": N}     a job that has ended (its pidfd is readable)                 ->  {"status": N}, minus the signal that ended it

`apart`: it is the first process of a namespace of its own, where that can be made; when it ends, all that it started ends.
`sandbox` is a `testbed.workloads.sandbox.Sandbox`, or null. A job that ended keeps its pid until it is reaped, so that the agent
never signals another process. Jobs die with this process, and it dies with the agent (PR_SET_PDEATHSIG). In the child `main`
goes on with the job.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import msgspec

from testbed.linux import end_with_parent, first_child_apart, setns
from testbed.workloads import runner
from testbed.workloads.base import BUILT_IN

ORDER_BYTES = 1 << 16
JOB_DESCRIPTORS = 4
OF_PEOPLE = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
KILLED = 128  # and the signal: the exit status of a job that one of them ended
# a job's process: the server's pidfd, its socket, its lease, and what it does first
Job = tuple[int, int, int, Callable[[], str | None]]


def main(argv: list[str]) -> None:
    """Serve until the agent closes its end; in each job's process, run the job."""
    agent, control_fd = (int(word) for word in argv)
    end_with_parent(agent)
    for target in BUILT_IN.values():
        importlib.import_module(target.partition(":")[0])
    sys.path.insert(0, str(Path.cwd()))  # where jobs look for their modules; the project's packages are imported
    gc.collect()
    gc.freeze()  # a collection in a job would write to pages that all share
    job = _serve(socket.socket(fileno=control_fd))
    if job is not None:
        runner.main(*job)


def _serve(control: socket.socket) -> Job | None:
    """Obey until the agent is gone: None. In a forked child: what `runner.main` is to be called with."""
    me = os.pidfd_open(os.getpid())
    while True:
        text, descriptors, _, _ = socket.recv_fds(control, ORDER_BYTES, JOB_DESCRIPTORS)
        if not text:
            return None
        order = json.loads(text)
        if "reap" in order:
            _, status = os.waitpid(order["reap"], 0)
            control.send(json.dumps({"status": os.waitstatus_to_exitcode(status)}).encode())
            continue
        ready_fd, leads_fd = os.pipe()
        prepare = _preparation(order["sandbox"], me)
        try:
            with first_child_apart() if order["apart"] else nullcontext(False) as is_apart:
                pid = os.fork()
        except OSError as error:
            control.send(json.dumps({"error": f"fork: {error.strerror}"}).encode())
            os.close(leads_fd)
        else:
            if pid == 0:
                control.close()
                os.close(ready_fd)
                os.setsid()
                if is_apart:  # the first process of a namespace is not ended by signals that it has no handler for
                    for number in OF_PEOPLE:
                        signal.signal(number, lambda got, _: os._exit(KILLED + got))
                os.close(leads_fd)
                return me, *_become_job(descriptors), prepare if order["sandbox"] or is_apart else str
            os.close(leads_fd)
            os.read(ready_fd, 1)  # until it leads its group: the agent may kill that from now on
            pidfd = os.pidfd_open(pid)
            socket.send_fds(control, [json.dumps({"pid": pid}).encode()], [pidfd])
            os.close(pidfd)
        for descriptor in (ready_fd, *descriptors):
            os.close(descriptor)


def _preparation(given: dict[str, object] | None, server: int) -> Callable[[], str | None]:
    """Return what a job does first; it is got ready here, where all later jobs share it."""
    from testbed.workloads import sandbox  # the first job brings it

    if given is None:
        return sandbox.own_namespaces
    sandbox.lacks()
    bounds = msgspec.convert(given, sandbox.Sandbox)
    return partial(sandbox.enter, bounds, sandbox.readable(), server)


def _become_job(descriptors: list[int]) -> tuple[int, int]:
    """Give the job an output and a network of its own; return its socket and its lease."""
    sock, lease, output, *network = descriptors
    for fd in network:
        setns(fd)
        os.close(fd)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    if numpy := sys.modules.get("numpy"):  # `random` does so by itself
        numpy.random.seed()
    return sock, lease


if __name__ == "__main__":
    main(sys.argv[1:])
