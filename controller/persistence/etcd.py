"""Replicated log in etcd: line n is a key that can be created once, and coordinators outlive a machine.

It is etcd's own interface for programs without gRPC (JSON over HTTPS), by one connection, used by one thread at a time.
Members and coordinators have certificates of an authority that certifies nobody else (`log_credentials`). A
line holds all events of a batch. Its number is that of its first event, so that events are counted as in an SQLite journal.

A request that fails may have been done. Then the line is read: mine, and it stands; another's, and this coordinator is
deposed; none, and it is written again. A member that does not answer is not waited for: the next is asked.
"""

from __future__ import annotations

import errno
import json
import os
import secrets
import time
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, suppress
from http.client import HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any

import msgspec

from controller.core.model.events import Event
from controller.persistence.lines import Deposed, Entry, LogLine, Missed
from testbed.installed.unit import Service
from testbed.namespaces import OWN_NETWORK, NetworkNamespace
from testbed.trust.authority import AUTHORITY_LIFE_S, Authority, nameless_file
from testbed.trust.channel import Credentials, Identity, Name, PartyRole

ADDRESS = "127.0.0.1"  # of all members
PREFIX = "reclaimnet"
ANSWER_S = 0.25  # of a member: its own leader may be dead
PATIENCE_S = 1.0  # with all members, which may be choosing a leader
WAITS_S = 60.0  # of what was decided: meanwhile more is, and is held in memory
AGAIN_S = 0.02  # pause before the next member is asked
BEAT_MS, ELECTION_MS = 50, 500  # of etcd's members among themselves
QUOTA_BYTES, MAX_REQUEST_BYTES = 2 << 30, 8 << 20
LINES = 100  # read at a time
KEPT_LINES = 20_000  # of those that all have read: their own journals may not be on disk yet
MAX_LINES = 200_000  # whoever has read them: 500 hosts write 80 MB, and five that send all they may, the quota
PROGRAM = "etcd"  # Debian: etcd-server


class Batch(msgspec.Struct, frozen=True, array_like=True):
    """A line's value. `writer` distinguishes lines of two processes with the same epoch."""

    epoch: int
    writer: str
    events: Sequence[tuple[float, Event | None]]


_ENCODER = msgspec.msgpack.Encoder()
_BATCHES: msgspec.msgpack.Decoder[Batch] = msgspec.msgpack.Decoder(Batch)


class EtcdLog:
    """The log of the coordinators that ask these members; `name` is this coordinator's.

    OSError: no member answers within `patience_s`; but what was decided waits for WAITS_S.
    """

    def __init__(
        self, members: Sequence[tuple[str, int]], name: str, credentials: Credentials, patience_s: float = PATIENCE_S
    ) -> None:
        self.number = self.epoch = self._pruned = 0
        self._members, self._name, self._patience_s = list(members), name, patience_s
        self._writer = secrets.token_hex(8)
        self._tls = Identity(credentials).client
        self._connection: HTTPSConnection | None = None

    def append(self, entries: Iterable[Entry]) -> int:
        """Write events as one line; return the number of the last, when it stands. Deposed."""
        events = [(at_s, event) for at_s, event, _ in entries]
        self._create(Batch(self.epoch, self._writer, events), WAITS_S)
        self._prune_behind(self.number)
        return self.number

    def seize(self, epoch: int) -> None:
        """Write the next line, as the first of a higher epoch. Deposed: another has written it."""
        self._create(Batch(epoch, self._writer, []), self._patience_s)

    def follow(self, after: int) -> Iterator[LogLine]:
        """Yield lines beyond that number, in order. Missed: some have been pruned. OSError."""
        self._prune_behind(after)
        while True:
            asked = {"key": _key(after + 1), "range_end": _text(f"{PREFIX}/line0"), "limit": LINES}  # 0: behind /
            found = self._ask("kv/range", asked, self._patience_s).get("kvs", [])
            for each in found:
                number, batch = int(b64decode(each["key"]).split(b"/")[-1]), _BATCHES.decode(b64decode(each["value"]))
                if number != after + 1:
                    raise Missed(f"etcd has no line {after + 1}: this coordinator was away for too long")
                for at_s, event in batch.events or [(0.0, None)]:
                    after += 1
                    self.number, self.epoch = after, batch.epoch
                    yield LogLine(after, batch.epoch, at_s, event)
            if len(found) < LINES:
                return

    def prune(self, before: int) -> None:
        """Drop lines before that number that the other coordinator has read, too, and all but the last MAX_LINES. OSError."""
        patience_s, marks = self._patience_s, {"key": _text(f"{PREFIX}/read/"), "range_end": _text(f"{PREFIX}/read0")}
        self._ask("kv/put", {"key": _text(f"{PREFIX}/read/{self._name}"), "value": _text(str(before))}, patience_s)
        read = [int(b64decode(each["value"])) for each in self._ask("kv/range", marks, patience_s)["kvs"]]
        first = max(min(read) if len(read) > 1 else 0, self.number - MAX_LINES)
        if first > 0:
            dropped = self._ask("kv/deleterange", {"key": _key(0), "range_end": _key(first)}, patience_s)
            if int(dropped.get("deleted", 0)):
                self._ask("kv/compaction", {"revision": dropped["header"]["revision"]}, patience_s)

    def _prune_behind(self, number: int) -> None:
        if number > self._pruned + 2 * KEPT_LINES:
            self._pruned = number - KEPT_LINES
            with suppress(OSError):
                self.prune(self._pruned)

    def close(self) -> None:
        """End the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _create(self, batch: Batch, patience_s: float) -> None:
        """Create the next line, however often that takes. Deposed, OSError."""
        number, value = self.number + 1, b64encode(_ENCODER.encode(batch)).decode()
        # of all lines from this one on there is none: it may have been dropped, and later ones stand
        key, end = _key(number), _text(f"{PREFIX}/line0")
        creates = {
            "compare": [{"key": key, "range_end": end, "target": "CREATE", "result": "EQUAL", "create_revision": 0}],
            "success": [{"request_put": {"key": key, "value": value}}],
            "failure": [{"request_range": {"key": key, "range_end": end, "limit": 1}}],
        }
        done = self._ask("kv/txn", creates, patience_s)
        # an earlier try may have been mine
        if not done.get("succeeded") and done["responses"][0]["response_range"]["kvs"][0]["value"] != value:
            raise Deposed(f"another coordinator has written line {number}")
        self.number, self.epoch = number + max(0, len(batch.events) - 1), batch.epoch

    def _ask(self, what: str, body: dict[str, Any], patience_s: float) -> dict[str, Any]:
        """Return a member's answer; of the next, if it does not answer soon. OSError: none did for so long."""
        data, ends_s = json.dumps(body).encode(), time.monotonic() + patience_s
        while True:
            try:
                if self._connection is None:
                    self._connection = HTTPSConnection(*self._members[0], timeout=ANSWER_S, context=self._tls)
                self._connection.request("POST", f"/v3/{what}", data)
                answer = self._connection.getresponse()
                body = json.loads(answer.read())
                if answer.status == 200:
                    return body
                why = f"{answer.status} {body}"
            except (OSError, HTTPException, ValueError) as error:
                why = str(error) or type(error).__name__
            self.close()
            if "space exceeded" in why:
                raise OSError(errno.ENOSPC, f"etcd's quota of {QUOTA_BYTES} bytes is spent (its alarm NOSPACE)")
            self._members.append(self._members.pop(0))
            if time.monotonic() > ends_s:
                raise OSError(f"etcd does not answer: {why}")
            time.sleep(AGAIN_S)


def log_credentials() -> Credentials:
    """Create the credentials of a new log's members and coordinators, by an authority that certifies nobody else."""
    name = Name(PREFIX, PartyRole.COORDINATOR, PROGRAM)
    return Authority.new(PREFIX).credentials(name, AUTHORITY_LIFE_S, ADDRESS)


def member_files(credentials: Credentials) -> tuple[Path, Path]:
    """Return files for members, of key with certificate and of the authority, that are there while this process lives."""
    files = nameless_file(), nameless_file()
    for file, content in zip(files, (credentials.key + credentials.certificate, credentials.trusted), strict=True):
        file.write_bytes(content)
    return files


def member(number: int, ports: Sequence[int], folder: Path, files: tuple[Path, Path]) -> list[str]:
    """Return the command of a member of etcd on the loopback: `ports` are of all members, two for each."""
    peers = [f"https://{ADDRESS}:{port}" for port in ports[1::2]]
    client = f"https://{ADDRESS}:{ports[2 * number]}"
    proof, trusted = files
    return [
        *(PROGRAM, f"--name=m{number}", f"--data-dir={folder / f'm{number}'}", "--logger=zap", "--log-level=error"),
        *(f"--listen-client-urls={client}", f"--advertise-client-urls={client}"),
        *(f"--listen-peer-urls={peers[number]}", f"--initial-advertise-peer-urls={peers[number]}"),
        "--initial-cluster=" + ",".join(f"m{other}={peer}" for other, peer in enumerate(peers)),
        *(f"--{of}{kind}-file={proof}" for of in ("", "peer-") for kind in ("cert", "key")),
        *(f"--{of}trusted-ca-file={trusted}" for of in ("", "peer-")),
        *("--client-cert-auth", "--peer-client-cert-auth"),
        *(f"--heartbeat-interval={BEAT_MS}", f"--election-timeout={ELECTION_MS}"),
        *(f"--quota-backend-bytes={QUOTA_BYTES}", f"--max-request-bytes={MAX_REQUEST_BYTES}"),
    ]


def leading(members: Sequence[tuple[str, int]], credentials: Credentials) -> int:
    """Return which member leads the others. OSError: none."""
    tls = Identity(credentials).client
    for number, address in enumerate(members):
        connection = HTTPSConnection(*address, timeout=1.0, context=tls)
        with suppress(OSError, HTTPException, KeyError), closing(connection) as asked:
            asked.request("POST", "/v3/maintenance/status", b"{}")
            status = json.loads(asked.getresponse().read())
            if status["leader"] == status["header"]["member_id"]:
                return number
    raise OSError("etcd has no leader")


def alarms() -> set[str]:
    """Return the alarms of etcd that holds a log of this machine's: of its installed coordinator, of a running campus."""
    logs, found = list[tuple[NetworkNamespace, tuple[str, int], list[bytes]]](), set[str]()
    with suppress(OSError):
        kept = json.loads(Service("coordinator").kept.read_bytes())
        proof = [b64decode(each) for each in kept["proof"]]
        logs += [(OWN_NETWORK, (address, port), proof) for address, port in kept["members"]]
    for words in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            given = dict(word.partition("=")[::2] for word in words.read_text(errors="replace").split("\0"))
            proof_file, port = given.get("--cert-file", ""), given.get("--listen-client-urls", "").rpartition(":")[2]
            if PROGRAM in given and proof_file.startswith("/proc/") and words.stat().st_uid == os.geteuid():
                proof = [Path(file).read_bytes() for file in (given["--trusted-ca-file"], proof_file)]
                logs.append((NetworkNamespace.of_process(int(words.parent.name)), (ADDRESS, int(port)), proof))
    for network, member, (trusted, certificate, *key) in logs:
        credentials = Credentials(Name(PREFIX, PartyRole.COORDINATOR, PROGRAM), b"".join(key), certificate, trusted)
        with suppress(OSError), network.entered(), closing(EtcdLog([member], "", credentials)) as log:
            found |= {alarm["alarm"] for alarm in log._ask("maintenance/alarm", {}, PATIENCE_S).get("alarms", [])}
    return found


def _text(text: str) -> str:
    return b64encode(text.encode()).decode()


def _key(number: int) -> str:
    return _text(f"{PREFIX}/line/{number:016d}")
