"""The jobs' processes on one host: started, followed, snapshotted, killed."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import trio

from testbed import messages as m
from testbed.agent.core import effects as do
from testbed.agent.core import events as ev
from testbed.checkpoints import CheckpointError, CheckpointStore, Manifest
from testbed.errors import SpecError
from testbed.workloads.lease import LeaseFile
from testbed.workloads.messages import Failed, Finished, Progress, Started, WorkloadSpec
from testbed.workloads.process import Exited, SnapshotImpossible, WorkloadEnded, WorkloadProcess
from testbed.workloads.submission import params_of

KEPT_SNAPSHOTS = 2  # of a job on its own host: the newest, and the one that may still be on its way
LOG = logging.getLogger("agent")

Key = tuple[str, int]  # job, attempt


class JobProcesses:
    """Workload processes by job and attempt. How each one ends is one event, unless it was killed."""

    def __init__(
        self, store: CheckpointStore, lease: LeaseFile, log: Path, handle: Callable[[ev.Event], None]
    ) -> None:
        self._store, self._lease, self._log, self._handle = store, lease, log, handle
        self._running: dict[Key, WorkloadProcess] = {}
        self._expected: set[Key] = set()  # started and not killed

    def expect(self, key: Key) -> None:
        """It will be run: from now on `kill` is heard, even before its process exists."""
        self._expected.add(key)

    def kill(self, key: Key) -> None:
        """Ends it at once, without an event."""
        self._expected.discard(key)
        if process := self._running.get(key):
            process.kill()

    def kill_all(self) -> None:
        """The agent ends."""
        for process in self._running.values():
            process.kill()

    async def run(self, spec: m.JobSpec, attempt: int, restore: m.StoredCheckpoint | None) -> None:
        """The whole life of one attempt."""
        key = (spec.name, attempt)
        try:
            path = None
            if restore is not None:
                path = self._store.payload(self._store.get(restore.job, restore.sequence))
            process = await WorkloadProcess.start(
                WorkloadSpec(spec.workload, params_of(spec)), restore=path, lease=self._lease, log=self._log
            )
        except (OSError, SpecError, CheckpointError) as error:
            self._over(key, ev.WorkloadEnded(m.JobEnded(*key, "failed", 0, reason=str(error))))
            return
        if key not in self._expected:
            process.kill()
        self._running[key] = process
        step, digest, finished, reason = 0, "", False, ""
        try:
            async for event in process.events:
                match event:
                    case Started(step=step, digest=proof):
                        self._handle(ev.WorkloadStarted(*key, step, proof.hex()))
                    case Progress(step=step):
                        self._handle(ev.WorkloadProgressed(*key, step))
                    case Finished(step=step, digest=proof):
                        finished, digest = True, proof.hex()
                    case Failed(reason=reason):
                        pass
                    case Exited():
                        outcome: m.Outcome = (
                            "finished" if finished else "killed" if event.from_outside else "failed"
                        )
                        ended = m.JobEnded(*key, outcome, step, digest, reason or event.reason)
                        self._over(key, ev.WorkloadEnded(ended, event.lease_lapsed))
        finally:
            del self._running[key]

    async def take_snapshot(self, order: do.TakeSnapshot) -> None:
        """Into the store; a final one ends the job's process."""
        key = (order.job, order.attempt)

        def ingest(step: int, path: Path) -> Manifest:
            manifest = self._store.ingest(order.job, order.sequence, step, path)
            self._store.keep_latest(order.job, KEPT_SNAPSHOTS)
            return manifest

        try:
            process = self._running.get(key)
            if process is None:
                raise WorkloadEnded("the job's process has gone")
            path = self._store.scratch(order.job, order.sequence)
            taken = await process.snapshot(path)
            if order.final:
                self.kill(key)
            manifest = await trio.to_thread.run_sync(ingest, taken.step, path)
        except (WorkloadEnded, SnapshotImpossible, CheckpointError, OSError) as error:
            LOG.warning("no snapshot %d of %s: %s", order.sequence, order.job, error)
            self._handle(ev.SnapshotFailed(*key, order.sequence, order.final, str(error)))
        else:
            self._handle(ev.SnapshotDone(order.attempt, stored_checkpoint(manifest), order.final))

    def _over(self, key: Key, event: ev.WorkloadEnded) -> None:
        if key in self._expected:
            self._expected.discard(key)
            self._handle(event)


def stored_checkpoint(manifest: Manifest) -> m.StoredCheckpoint:
    """What is told of a checkpoint that this host holds."""
    return m.StoredCheckpoint(
        manifest.job, manifest.sequence, manifest.step, manifest.payload_bytes, manifest.digest.hex()
    )
