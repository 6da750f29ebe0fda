"""Machines that are namespaces of this one: a Dask scheduler, and a worker a machine with network and mounts of its own.

All of it hangs on this process. The network between the machines is this thread's own: nothing of it is seen elsewhere,
and nothing is left of it when its processes have ended. They share the processors, files and `/run/reclaimnet`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from testbed import linux
from testbed.errors import SetupError
from testbed.own_programs import own_program
from testbed.trust.authority import AUTHORITY_LIFE_S, Authority
from testbed.trust.channel import Name, PartyRole
from topologies.errors import SpecError
from topologies.spec import Campus, CampusMachine

NETWORK = "198.18.0"  # for measurements of networks (RFC 2544)
SCHEDULER = f"{NETWORK}.254"
PORT = 8786
MTU = 1600


def spread(campus: Campus, machines: int) -> Campus:
    """Return the campus over so many machines: the coordinator's building on the first, the others dealt round."""
    home = campus.coordinator.building
    others = [building.name for building in campus.buildings if building.name != home]
    if not 2 <= machines <= len(others):
        raise SpecError("--machines", machines, f"2 to {len(others)}, the number of its buildings")
    parts = [
        CampusMachine(f"m{n + 1}", f"{NETWORK}.{n + 1}", (*([home] if n == 0 and home else []), *others[n::machines]))
        for n in range(machines)
    ]
    return replace(campus, machines=tuple(parts))


@contextmanager
def rehearsed(campus: Campus, folder: Path) -> Iterator[str]:
    """Start a scheduler and a worker for each machine of a campus; yield the scheduler's address.

    Keys and certificates lie in a folder of their own in `folder`, until it ends. Main thread only, as root.
    """
    import dask
    import distributed  # noqa: F401 - before anything is set: what is set and unset again would take its defaults along

    with ExitStack() as last:
        home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        last.callback(os.close, home)
        linux.unshare(linux.CLONE_NEWNET)
        last.callback(linux.setns, home)
        _ip("link set lo up", f"link add machines mtu {MTU} type bridge", f"addr add {SCHEDULER}/24 dev machines")
        _ip("link set machines up")
        for old in folder.glob("machines-*"):  # of one that was killed
            shutil.rmtree(old)
        own = Path(last.enter_context(TemporaryDirectory(prefix="machines-", dir=folder.absolute())))
        settings = certified(own)
        words = ["--protocol", "tls", "--port", str(PORT), "--host", SCHEDULER, "--no-dashboard"]
        _started(last, own, "scheduler", words, settings)
        for machine in campus.machines:
            words = [f"tls://{SCHEDULER}:{PORT}", "--host", machine.address, "--name", machine.name, "--nthreads", "1"]
            words += [
                "--no-nanny",
                "--no-dashboard",
                "--memory-limit",
                "0",
                "--local-directory",
                str(own / machine.name),
            ]
            worker = _started(last, own, "worker", words, settings)
            end, there = f"to-{machine.name}", f"mtu {MTU} netns {worker.pid}"
            _ip(f"link add {end} mtu {MTU} type veth peer name machines {there}", f"link set {end} master machines up")
            inside = f"/proc/{worker.pid}/ns/net"
            _ip("link set lo up", f"addr add {machine.address}/24 dev machines", "link set machines up", inside=inside)
            assert worker.stdin
            worker.stdin.close()
        with dask.config.set(settings):
            yield f"tls://{SCHEDULER}:{PORT}"


def certified(folder: Path) -> dict[str, object]:
    """Make an authority of the machines' own, whose key is kept nowhere, and a certificate; return Dask's settings with it."""
    authority = Authority.new("machines")
    party = authority.credentials(Name("machines", PartyRole.OPERATOR, "rehearsal"), AUTHORITY_LIFE_S)
    for name, body in (("ca.pem", party.trusted), ("party.pem", party.certificate + party.key)):
        path = folder / name
        path.touch(0o600)
        path.write_bytes(body)
    parties = {
        f"distributed.comm.tls.{party}.{what}": str(folder / "party.pem")
        for party in ("scheduler", "worker", "client")
        for what in ("cert", "key")
    }
    required = {"distributed.comm.require-encryption": True, "distributed.comm.tls.min-version": 1.3}
    return {**parties, **required, "distributed.comm.tls.ca-file": str(folder / "ca.pem")}


def variables(settings: Mapping[str, object]) -> dict[str, str]:
    """Return Dask's settings as variables of the environment."""
    return {f"DASK_{key.replace('.', '__').replace('-', '_').upper()}": str(value) for key, value in settings.items()}


def _started(
    last: ExitStack, folder: Path, kind: str, words: list[str], settings: Mapping[str, object]
) -> subprocess.Popen[bytes]:
    """Start a process of Dask, which ends with this one; a worker waits, in a network of its own, until its input ends."""
    log = last.enter_context((folder / f"{kind}.log").open("ab"))
    process = subprocess.Popen(
        [*own_program("experiments.machines.rehearsal"), kind, *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        process_group=0,
        env={**os.environ, **variables(settings)},
    )
    assert process.stdin
    assert process.stdout
    for end in (process.stdin.close, process.stdout.close, process.wait, process.kill):
        last.callback(end)
    if process.stdout.readline() != b"there\n":
        raise SetupError(f"a {kind} of Dask does not start: {(folder / f'{kind}.log').read_text()[-400:]}")
    return process


def _ip(*commands: str, inside: str = "") -> None:
    """Run commands of ip(8), in another namespace of networks if it is named. SetupError: one was refused."""
    enter = ["nsenter", f"--net={inside}"] if inside else []
    text = "\n".join(commands)
    done = subprocess.run([*enter, "ip", "-batch", "-"], input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SetupError(f"ip: {done.stderr.strip()}")


def main() -> None:
    """Become a scheduler or a worker of Dask."""
    linux.end_with_parent()
    kind, *words = sys.argv[1:]
    if kind == "worker":
        linux.own_mounts()
        linux.unshare(linux.CLONE_NEWNET)
    sys.stdout.write("there\n")
    sys.stdout.flush()
    os.dup2(2, 1)
    if kind == "worker":
        sys.stdin.read()
        from distributed.cli.dask_worker import main as become
    else:
        from distributed.cli.dask_scheduler import main as become
    become(words)


if __name__ == "__main__":
    main()
