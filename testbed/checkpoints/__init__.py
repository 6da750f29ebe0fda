"""Checkpoints at rest: manifests that name their content, and a store in which only whole, verified ones are visible.

`store` is the face. Behind it are `reception` (one that arrives) and `recovery` (after a crash). Below these are `files`,
and `manifest` (what a checkpoint is). May import `testbed.errors` and `topologies.units`; knows no network and no
trio. Everything here blocks on the disk: a trio host calls it through `trio.to_thread.run_sync`. Begin with `store.py`.
"""

from testbed.checkpoints.errors import (
    BadManifest,
    CheckpointConflict,
    CheckpointDamaged,
    CheckpointError,
    ChunkMismatch,
    NotStored,
    StoreFull,
    StoreInUse,
)
from testbed.checkpoints.manifest import CHUNK_BYTES, Manifest
from testbed.checkpoints.reception import Reception
from testbed.checkpoints.store import CheckpointStore

__all__ = [
    "CHUNK_BYTES",
    "BadManifest",
    "CheckpointConflict",
    "CheckpointDamaged",
    "CheckpointError",
    "CheckpointStore",
    "ChunkMismatch",
    "Manifest",
    "NotStored",
    "Reception",
    "StoreFull",
    "StoreInUse",
]
