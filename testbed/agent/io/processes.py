"""The jobs' processes on one host: started, followed, snapshotted, killed."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import trio

from testbed import messages as m
from testbed.agent.core import effects as do
from testbed.agent.core import events as ev
from testbed.agent.io.job_rooms import JobRoom, end_left, take_over
from testbed.bounds import quoted
from testbed.checkpoints import CheckpointError, CheckpointStore, Manifest
from testbed.errors import ProtocolError, SetupError, SpecError
from testbed.logs import logger
from testbed.workloads.launch import Launch
from testbed.workloads.lease import LeaseFile
from testbed.workloads.messages import Failed, Finished, Progress, Start, Started
from testbed.workloads.output import LONGEST_BYTES, output_file, shorten
from testbed.workloads.process import Exited, ProcessGone, SnapshotImpossible, WorkloadProcess
from testbed.workloads.returned import pack_output

KEPT_SNAPSHOTS = 2  # of a job on its own host: the newest, and the one that may still be on its way
LOG = logger("agent")

Key = tuple[str, int]  # job, attempt


class JobProcesses:
    """Workload processes by job and attempt. How each one ends is one event, unless it was killed."""

    def __init__(
        self,
        store: CheckpointStore,
        lease: LeaseFile,
        logs: Path,
        handle: Callable[[ev.Event], None],
        launch: Launch,
        *,
        snapshots_stop: bool = False,
        group: str = "",
    ) -> None:
        self._group = group  # of the host, for its jobs' control groups
        if group:
            end_left(group)
        self._store, self._lease, self._logs, self._handle = store, lease, logs, handle
        logs.mkdir(parents=True, exist_ok=True)
        self._launch = launch
        self._snapshots_stop = snapshots_stop  # jobs stand still until a snapshot is written
        self._running: dict[Key, WorkloadProcess] = {}
        self.outputs: dict[Key, Path] = {}  # where they write their output
        self._expected: set[Key] = set()  # started and not killed
        self._ending: set[Key] = set()  # asked to end
        self._snapshots: set[Key] = set()  # being taken, of attempts that were not killed meanwhile
        self._rooms: dict[Key, JobRoom] = {}  # of those that run

    def expect(self, key: Key) -> None:
        """Announce an attempt that will be run: from now on `kill` ends it, even before its process exists."""
        self._expected.add(key)

    def kill(self, key: Key) -> None:
        """End it at once, without an event."""
        self._snapshots.discard(key)
        self._end(key)

    async def end(self, key: Key, grace_s: float) -> None:
        """Ask it to end, kill it if it has not within that time. How it ended is an event."""
        self._ending.add(key)
        if process := self._running.get(key):
            await process.stop(grace_s)

    def _end(self, key: Key) -> None:
        self._expected.discard(key)
        if process := self._running.get(key):
            process.kill()

    def bound_outputs(self) -> None:
        """Keep the output and the folder of jobs within their bounds; call it every LOOK_S."""
        for key, room in self._rooms.items():
            if room.is_overfull() and (process := self._running.get(key)):
                process.kill()
        for output in self.outputs.values():
            with suppress(OSError):  # it is removed, or no disk has room: the job goes on
                if output.stat().st_size > LONGEST_BYTES and shorten(output):
                    LOG.warning("%s had grown too long: its middle is gone", output.name)

    async def run(
        self,
        spec: m.JobSpec,
        attempt: int,
        restore: m.StoredCheckpoint | None,
        slots: tuple[int, ...] = (0,),
        speed: float = 1.0,
    ) -> None:
        """Follow one attempt through its whole life, on GPUs of these numbers and this speed. Cancelled, it has ended."""
        key = (spec.name, attempt)
        output = output_file(self._logs, *key)
        room = JobRoom(
            f"{self._store.scratch(spec.name)}.attempt.{attempt}", spec
        )  # gone at the store's next start, too
        try:
            path = None
            if restore is not None:
                path = str(self._store.payload(self._store.get(restore.job, restore.sequence)))
            sandbox = room.furnish(path, slots, self._group and f"{self._group}/{spec.name}.{attempt}")
            order = Start(spec, attempt, path, room.folder, slots, speed)
            process = await WorkloadProcess.start(
                order, lease=self._lease, log=output, launch=self._launch, sandbox=sandbox
            )
        except (OSError, SpecError, SetupError, CheckpointError, ProtocolError) as error:
            self._ending.discard(key)
            await room.clear()
            self._over(key, ev.WorkloadEnded(m.JobEnded(*key, "failed", 0, reason=quoted(str(error)))))
            return
        if key not in self._expected or key in self._ending:
            process.kill()
        self._running[key], self.outputs[key], self._rooms[key] = process, output, room
        step, digest, finished, reason = 0, "", False, ""
        try:
            async for event in process:
                match event:
                    case Started(step=step, digest=proof):
                        self._handle(ev.WorkloadStarted(*key, step, proof.hex()))
                    case Progress(step=step):
                        self._handle(ev.WorkloadsProgressed([m.JobClaim(*key, step)]))
                    case Finished(step=step, digest=proof):
                        finished, digest = True, proof.hex()
                    case Failed(reason=reason):
                        pass
                    case Exited():
                        if spec.output is not None:
                            await trio.to_thread.run_sync(pack_output, spec, attempt, Path(room.folder), self._logs)
                        outcome: m.Outcome = "failed"
                        if finished:
                            outcome = "finished"
                        elif event.from_outside:
                            outcome = "killed"
                        if fault := room.fault():
                            outcome = "failed"
                        ended = m.JobEnded(*key, outcome, step, digest, quoted(fault or reason or event.reason))
                        self._over(key, ev.WorkloadEnded(ended, event.lease_lapsed))
        finally:
            with trio.CancelScope(shield=True):
                await process.stop(0.0)  # cancelled, it still runs
            del self._running[key], self.outputs[key], self._rooms[key]
            self._ending.discard(key)
            with suppress(OSError):
                if output.stat().st_size == 0:
                    output.unlink()
            await room.clear()

    async def take_snapshot(self, order: do.TakeSnapshot) -> None:
        """Take a snapshot into the store; a final one ends the job's process. That of a killed attempt is dropped."""
        key, path = (order.job, order.attempt), None
        self._snapshots.add(key)
        try:
            process = self._running.get(key)
            if process is None:
                raise ProcessGone("the job's process has gone")
            path, written = self._store.scratch(order.job, order.sequence), self._rooms[key].snapshot(order.sequence)
            taken = await process.snapshot(written, stop=self._snapshots_stop, final=order.final)
            take_over(written, path)
            if taken.stopped:
                LOG.warning("%s stood still for its snapshot: %s", order.job, quoted(taken.stopped))
            self._still_wanted(key)
            if order.final:
                self._end(key)
            manifest, stored_s = await trio.to_thread.run_sync(self._ingest, order, taken.step, path)
            if key not in self._snapshots:
                await trio.to_thread.run_sync(self._store.drop, *manifest.key)
            self._still_wanted(key)
        except (ProcessGone, SnapshotImpossible, CheckpointError, OSError) as error:
            LOG.warning("no snapshot %d of %s: %s", order.sequence, order.job, quoted(str(error)))
            if path is not None:  # the process that wrote it has gone, or reported that it does not any more
                await trio.to_thread.run_sync(partial(path.unlink, missing_ok=True))
            self._handle(ev.SnapshotFailed(*key, order.final, quoted(str(error))))
        else:
            cost = m.SnapshotCost(taken.pause_s, taken.write_s + stored_s, quoted(taken.stopped))
            self._handle(ev.SnapshotDone(order.attempt, stored_checkpoint(manifest), order.final, cost))
        finally:
            self._snapshots.discard(key)

    def _still_wanted(self, key: Key) -> None:
        if key not in self._snapshots:
            raise ProcessGone("the job was killed meanwhile")

    def _ingest(self, order: do.TakeSnapshot, step: int, path: Path) -> tuple[Manifest, float]:
        """Take the file into the store; return its manifest and how long that took."""
        began_s = time.monotonic()
        manifest = self._store.ingest(order.job, order.sequence, step, path)
        took_s = time.monotonic() - began_s
        self._store.keep_latest(order.job, KEPT_SNAPSHOTS)
        return manifest, took_s

    def _over(self, key: Key, event: ev.WorkloadEnded) -> None:
        if key in self._expected:
            self._expected.discard(key)
            self._handle(event)


def stored_checkpoint(manifest: Manifest) -> m.StoredCheckpoint:
    """Return the report of a checkpoint that this host holds."""
    return m.StoredCheckpoint(
        manifest.job, manifest.sequence, manifest.step, manifest.payload_bytes, manifest.digest.hex()
    )
