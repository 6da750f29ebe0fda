"""Index of chunks among the stored payloads: hash -> (checkpoint, chunk number)."""

from __future__ import annotations

from testbed.checkpoints.manifest import Key, Manifest


class ChunkIndex:
    """A multimap, so that dropping one checkpoint leaves the copies that others hold. Rebuilt from manifests at start."""

    def __init__(self) -> None:
        self._places: dict[bytes, dict[Key, int]] = {}

    def __len__(self) -> int:
        return len(self._places)

    def add(self, manifest: Manifest) -> None:
        """Add the chunks of a manifest whose payload is stored."""
        for number, digest in enumerate(manifest.chunks):
            self._places.setdefault(digest, {})[manifest.key] = number

    def discard(self, manifest: Manifest) -> None:
        """Discard the chunks of a manifest whose payload goes away."""
        for digest in manifest.chunks:
            places = self._places.get(digest)
            if places is not None:
                places.pop(manifest.key, None)
                if not places:
                    del self._places[digest]

    def find(self, digest: bytes) -> tuple[Key, int] | None:
        """Return (checkpoint, chunk number) of the newest stored copy of this content."""
        places = self._places.get(digest)
        return next(reversed(places.items())) if places else None
