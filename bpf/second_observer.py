"""A second observer of what the kernel drops and of its TCP sockets, with bcc: no compiler, program, map or loader in common with
`observer` and with the programs that enforce, so what both count the same is not counted wrong by either."""

from __future__ import annotations

import json
import os
import select
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from bpf import bcc_counts
from bpf.btf import drop_reasons, member_offset_bytes
from bpf.errors import BpfError

# bcc is a package of the distribution's Python, built for it
PYTHON = "/usr/bin/python3"
HEADERS = Path("/usr/src")
# where bcc looks of itself
KERNEL_BRINGS = (Path("/lib/modules", os.uname().release, "build"), Path("/sys/kernel/kheaders.tar.xz"))
COMPILE_S, ANSWER_S = 60.0, 10.0
# include/net/tcp_states.h
ESTABLISHED, CLOSED, LISTENING = 1, 7, 10


@dataclass(frozen=True, slots=True)
class SecondObservation:
    """Counts of one network namespace."""

    dropped: Mapping[str, int]  # packets, by the kernel's reason in words
    changes: Mapping[tuple[int, int], int]  # of sockets from one state (include/net/tcp_states.h) to the next

    @property
    def established(self) -> int:
        """TCP connections that came to be."""
        return sum(count for (_, new), count in self.changes.items() if new == ESTABLISHED)

    def __sub__(self, earlier: SecondObservation) -> SecondObservation:
        """Return counts since `earlier`."""
        return SecondObservation(
            {key: count - earlier.dropped.get(key, 0) for key, count in self.dropped.items()},
            {key: count - earlier.changes.get(key, 0) for key, count in self.changes.items()},
        )


class SecondObserver:
    """Counts in every network namespace, from now until `close` (or as a context manager), in a process of its own.

    BpfError says why none can: bcc or kernel headers are not installed, or bcc cannot compile here.
    """

    def __init__(self) -> None:
        offsets = {
            "SK_BUFF_DEV": member_offset_bytes("sk_buff", "dev"),
            "SK_BUFF_SK": member_offset_bytes("sk_buff", "sk"),
            "NET_DEVICE_ND_NET": member_offset_bytes("net_device", "nd_net"),
            "SOCK_SKC_NET": member_offset_bytes("sock_common", "skc_net"),
            "NET_NS_INUM": member_offset_bytes("net", "ns") + member_offset_bytes("ns_common", "inum"),
        }
        source, include = kernel_headers()
        try:
            self._process = subprocess.Popen(
                [PYTHON, bcc_counts.__file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                cwd="/",
                env={"PATH": os.defpath, "HOME": "/nonexistent"},
            )
        except OSError as error:
            raise BpfError(f"bcc needs the distribution's Python: {error}") from error
        asked = {"offsets": offsets, "kernel_source": source, "include": include}
        if self._ask(json.dumps(asked), COMPILE_S) != "counting":
            self.close()
            raise BpfError(f"bcc does not count here: {self._complaint()}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read(self, inode: int) -> SecondObservation:
        """Return counts of the network namespace of this inode since the beginning. BpfError if the process died."""
        answer = self._ask(str(inode), ANSWER_S)
        if not answer:
            self.close()
            raise BpfError(f"bcc's process does not answer: {self._complaint()}")
        names, dropped, changes = drop_reasons(), dict[str, int](), dict[tuple[int, int], int]()
        for kind, count in json.loads(answer):
            if kind >= bcc_counts.STATE:
                old, new = divmod(kind - bcc_counts.STATE, 256)
                changes[old, new] = count
            else:
                dropped[names.get(kind, f"reason {kind}")] = count
        return SecondObservation(dropped, changes)

    def close(self) -> None:
        """End the process, and its programs with it; safe to repeat."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def _ask(self, line: str, limit_s: float) -> str:
        """Return the line that answers; empty: none came in time, or it died."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            print(line, file=self._process.stdin, flush=True)
        except BrokenPipeError:
            return ""
        ready, _, _ = select.select([self._process.stdout], [], [], limit_s)
        return self._process.stdout.readline().strip() if ready else ""

    def _complaint(self) -> str:
        assert self._process.stderr is not None
        lines = [line for line in self._process.stderr.read().splitlines() if line.strip()]
        errors = [line for line in lines if "error" in line.lower()]
        return (errors or lines or ["it died without a word"])[-1].strip()


def kernel_headers() -> tuple[str | None, list[str]]:
    """A tree of kernel headers for bcc and folders beside it; none where the kernel brings its own.

    The programs read structures by offsets of the running kernel, so headers of another one will do. BpfError: no tree is here.
    """
    if any(path.exists() for path in KERNEL_BRINGS):
        return None, []
    trees = sorted(tree.parents[2] for tree in HEADERS.glob("linux-headers-*/include/generated/autoconf.h"))
    if not trees:
        raise BpfError(
            f"bcc needs kernel headers, of any kernel: {HEADERS} has none; apt-get install linux-headers-amd64"
        )
    tree = trees[-1]
    # Debian keeps what all its flavours share in a tree of its own
    common = tree.with_name(tree.name.rpartition("-")[0] + "-common")
    arch = "arm64" if os.uname().machine == "aarch64" else "x86"
    folders = [f"arch/{arch}/include", f"arch/{arch}/include/uapi", "include", "include/uapi", "."]
    return str(tree), [str(common / folder) for folder in folders] if common.exists() else []
