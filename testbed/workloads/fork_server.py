"""A program of its own: forks job processes that have imported the runner already, for an agent process with many jobs.

`testbed.workloads.fork_server AGENT_PID CONTROL_FD`. It has one thread and does one thing at a time, by order
of the agent. Orders come over a socket of packets (JSON, with descriptors beside it):

    {}              with the job's socket, lease, output [, network namespace]  ->  {"pid": N} and its pidfd, or {"error": why}
    {"reap": N}     a job that has ended (its pidfd is readable)                 ->  {"status": N}, minus the signal that ended it

A job that ended keeps its pid until it is reaped, so that the agent never signals another process. Jobs die with this
process, and it dies with the agent (PR_SET_PDEATHSIG). In the child `main` goes on with the job.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import socket
import sys
from pathlib import Path

from testbed.linux import end_with_parent, setns
from testbed.workloads import runner
from testbed.workloads.base import BUILT_IN

ORDER_BYTES = 4096
JOB_DESCRIPTORS = 4


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


def _serve(control: socket.socket) -> tuple[int, int, int] | None:
    """Obey until the agent is gone: None. In a forked child: what `runner.main` is to be called with."""
    me = os.getpid()
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
        try:
            pid = os.fork()
        except OSError as error:
            control.send(json.dumps({"error": f"fork: {error.strerror}"}).encode())
            os.close(leads_fd)
        else:
            if pid == 0:
                control.close()
                os.close(ready_fd)
                os.setsid()
                os.close(leads_fd)
                return _become_job(me, descriptors)
            os.close(leads_fd)
            os.read(ready_fd, 1)  # until it leads its group: the agent may kill that from now on
            pidfd = os.pidfd_open(pid)
            socket.send_fds(control, [json.dumps({"pid": pid}).encode()], [pidfd])
            os.close(pidfd)
        for descriptor in (ready_fd, *descriptors):
            os.close(descriptor)


def _become_job(server: int, descriptors: list[int]) -> tuple[int, int, int]:
    """Give the job an output and a network of its own.

    Returns the server, and the job's socket and lease.
    """
    sock, lease, output, *network = descriptors
    for fd in network:
        setns(fd)
        os.close(fd)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    if numpy := sys.modules.get("numpy"):  # `random` does so by itself
        numpy.random.seed()
    return server, sock, lease


if __name__ == "__main__":
    main(sys.argv[1:])
