"""The part of a live run on one machine: a child of a Dask worker's actor, with which it speaks over two pipes, in pickles.

It reads an `Order`, builds its part of the campus, and then obeys, one command after the other.
The end of its input ends the campus, at any moment: a worker that dies takes its part along.
"""

from __future__ import annotations

import os
import pickle
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import IO, Any

import trio

from experiments.inputs.scenario import Scenario
from experiments.inputs.traces import Trace
from experiments.machines.actor import SIZE
from experiments.results.run_context import INTERRUPTED, Death
from experiments.runtime import exit_status
from experiments.worlds.live.run import LiveRecord, LiveRun
from experiments.worlds.live.world import LiveWorld, Owners, live_world
from testbed.clock import MonotonicClock
from testbed.emulation.fidelity import FidelityMonitor, receive_probe, send_probe
from testbed.emulation.processes import ForkedProcess, ForkRequest
from testbed.emulation.safety.ledger import MARK
from testbed.errors import TestbedError
from testbed.own_programs import own_program
from testbed.trust.authority import nameless_file

LOOK_S = 0.02
PINGS = 5
FRAME_BYTES = 1472  # of a ping's data: frames of 1500 bytes, which are not to be cut
PROBE_S = 0.5
END = "end"


@dataclass(frozen=True)
class Order:
    """A part to build, of a scenario and a trace as played; `authority` in PEM, empty where there are no certificates."""

    played: Scenario
    trace: Trace
    owners: Owners
    agents_per_process: int | None = None
    kills: Sequence[bool] = ()
    machine: str = ""
    authority: bytes = field(default=b"", repr=False)


class Wire:
    """The two pipes to the actor. Input is read by a thread, so that its end is seen at once; nothing else writes the output."""

    def __init__(self) -> None:
        inbox, self._outbox = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
        with Path(os.devnull).open() as nothing:
            os.dup2(nothing.fileno(), 0)
        os.dup2(2, 1)
        self.order: Order = pickle.load(inbox)
        self.commands: queue.SimpleQueue[tuple[Any, ...]] = queue.SimpleQueue()
        threading.Thread(target=self._read, args=(inbox,), daemon=True).start()

    def _read(self, inbox: IO[bytes]) -> None:
        with suppress(EOFError, OSError):
            while True:
                self.commands.put(pickle.load(inbox))
        self.commands.put((END,))

    def tell(self, *words: object) -> None:
        """Send words to the actor; nothing if it is gone."""
        body = pickle.dumps(words)
        with suppress(BrokenPipeError):
            self._outbox.write(SIZE.pack(len(body)) + body)
            self._outbox.flush()


@dataclass
class PartialRun(LiveRun):
    """The part of a run on one machine. It begins when all machines do; it forwards what the coordinator needs."""

    wire: Wire = field(kw_only=True)
    begins_s: float | None = None

    async def _begin(self) -> float:
        self.wire.tell("ready")
        while self.begins_s is None:
            await trio.sleep(LOOK_S)
        await trio.sleep_until(self.begins_s)
        return self.begins_s

    def _tell_rates(self, rates: list[tuple[str, str, float]]) -> None:
        if self.world.leads:
            super()._tell_rates(rates)
        else:
            self.wire.tell("rates", rates)

    async def _end_on_signal(self, scope: trio.CancelScope) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(super()._end_on_signal, scope)
            while not scope.cancel_called:
                with suppress(queue.Empty):
                    match self.wire.commands.get_nowait():
                        case ("begin", at_s):
                            self.begins_s = at_s
                        case ("rates", rates):
                            self._tell_rates(rates)
                        case (how, *_):
                            if how == END:  # there is nobody left
                                self.wire.commands.put((END,))
                            self.ended = INTERRUPTED
                            scope.cancel()
                await trio.sleep(LOOK_S)


@dataclass
class LocalPart:
    """A part that stands. Each public method is a command; what it returns is the answer."""

    wire: Wire
    world: LiveWorld
    probes: list[ForkedProcess] = field(default_factory=list)
    taken: list[IO[str]] = field(default_factory=list)  # of probes: payload bytes/s

    def ping(self, host: str, address: str) -> float | None:
        """Return the shortest round trip of whole frames from a host to an address, in seconds; None: none came back."""
        text = self.world.campus[host].cmd(f"ping -c {PINGS} -i 0.05 -W 1 -M do -s {FRAME_BYTES} {address}")
        found = re.search(r"= ([\d.]+)/", text)
        return float(found[1]) / 1e3 if found else None

    def receive(self, hosts: Sequence[str]) -> None:
        """Start the receivers of a probe."""
        for host in hosts:
            read_fd, write_fd = os.pipe()
            address = str(self.world.campus.spec.host_by_name[host].address)
            target = partial(receive_probe, write_fd, address, PROBE_S)
            self.probes += self.world.campus.fork_all([ForkRequest(host, target, "rate probe", keep=(write_fd,))])
            os.close(write_fd)
            self.taken.append(os.fdopen(read_fd))

    def send(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Start the senders of a probe: hosts here, and whose addresses they send to."""
        requests = [ForkRequest(host, partial(send_probe, address), "rate probe") for host, address in pairs]
        self.probes += self.world.campus.fork_all(requests)

    def received(self) -> list[float]:
        """End a probe; return what its receivers here took in each, payload bytes/s; 0: nothing came."""
        rates = []
        for answer in self.taken:
            with answer:
                rates.append(float(answer.read() or 0.0))
        for process in self.probes:
            process.kill()
            process.wait()
        self.taken, self.probes = [], []
        return rates

    def play(self, started_s: float) -> LiveRecord:
        """Play the scenario's part. `started_s`: the moment by this machine's clock at which the coordinator began."""
        world, order = self.world, self.wire.order
        world.started_s = started_s
        monitor = FidelityMonitor(world.campus)
        run = PartialRun(
            order.played, order.trace, world, partial(self.wire.tell, "event"), kills=order.kills, wire=self.wire
        )
        with monitor:
            trio.run(run.main, clock=MonotonicClock())
        return LiveRecord.of(run, monitor)

    def attend(self) -> list[Death]:
        """Run what the operator types until there is another command; return deaths. The coordinator has ended then."""
        commands = self.wire.commands
        with self.world.watched_by_a_thread():
            while (words := commands.get())[0] == "run":
                self.wire.tell("run", self._run(*words[1:]))
            if words[0] == END:
                commands.put(words)
        return self.world.deaths

    def _run(self, host: str, words: Sequence[str], files: Mapping[str, bytes]) -> int:
        """Run a command in a host, or without one a command of `reclaimnet`; return its status. Any further command ends it."""
        campus, folder = self.world.campus, self.world.out / "typed"
        folder.mkdir(exist_ok=True)
        for name, body in files.items():
            (folder / name).write_bytes(body)
        pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        pipes |= {"cwd": folder, "bufsize": 0}
        if host:
            process = campus[host].popen(["sh", "-c", " ".join(words)], **pipes)
        else:
            argv = [*own_program("experiments.cli"), *words, "--campus", campus.id]
            process = subprocess.Popen(argv, **pipes, start_new_session=True, env={**os.environ, MARK: campus.id})
        with process.stdout as output:
            os.set_blocking(output.fileno(), False)
            while process.poll() is None and self.wire.commands.empty():
                time.sleep(LOOK_S)
                if text := output.read():
                    self.wire.tell("output", text)
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            self.wire.tell("output", output.read() or b"")
        return int(process.wait())


def main() -> None:
    """Build the part and obey."""
    wire = Wire()
    order, played = wire.order, wire.order.played
    if order.authority:
        path = nameless_file()
        path.write_bytes(order.authority)
        played = replace(played, trust=replace(played.trust, authority=str(path)))
    try:
        with live_world(
            played,
            Path(sys.argv[1]),
            owners=order.owners,
            agents_per_process=order.agents_per_process,
            machine=order.machine,
        ) as world:
            part = LocalPart(wire, world)
            wire.tell("stands", world.started_s)
            while (words := wire.commands.get())[0] != END:
                command: Callable[..., object] = getattr(part, words[0])
                wire.tell(words[0], command(*words[1:]))
            going_s = time.monotonic()
        wire.tell("down", time.monotonic() - going_s)
    except TestbedError as error:
        wire.tell("failed", f"{error}")


if __name__ == "__main__":
    sys.exit(exit_status.run(main))
