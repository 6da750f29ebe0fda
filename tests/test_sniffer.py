"""What is read on the cables of a live run: nothing of its checkpoints, jobs and orders, unless it asked for plain transfers."""

import random
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from controller.core.model import facts as f
from tests.live_campus import Run, live, running

pytestmark = [
    *live,
    pytest.mark.apart,
    pytest.mark.timeout(150),
    pytest.mark.skipif(not shutil.which("tcpdump"), reason="tcpdump is not here"),
]
JOB = "plain-to-see"
SCENARIO = f"""
name = "overheard"
duration = "60 s"
campus = "example:lab"
[trust]
transfers = "TRANSFERS"
[protocol]
lease = "3 s"
control_period = "1 s"
[owners]
loyal = ["desk1", "desk2", "desk3", "server"]
[[jobs]]
name = "{JOB}"
steps = 100000
step = "20 ms"
payload = "4 MB"
loss_budget = "2 s"
"""
# names of messages and of parties, the beginning of a frame
WORDS = [JOB.encode(), b"Heartbeat", b"StartJob", b"CheckpointStored", b"spiffe://", b"RCLM\0\x01\0\0", b"describe"]
WINDOW, MIN_DISTINCT, PIECES = 32, 16, 60


@contextmanager
def overheard(run: Run, folder: Path) -> Iterator[list[Path]]:
    """Record all that the hosts send and receive; the files are whole at the end."""
    pids = run.networks()
    files = [folder / f"{host}.pcap" for host in pids]
    with ExitStack() as stack:
        for pid, file in zip(pids.values(), files, strict=True):
            words = ["tcpdump", "-i", "any", "-U", "-Z", "root", "-B", "65536", "-w", str(file), "tcp"]
            sniffer = subprocess.Popen(["nsenter", f"--net=/proc/{pid}/ns/net", *words], stderr=subprocess.DEVNULL)
            stack.callback(sniffer.wait, 20)
            stack.callback(sniffer.send_signal, signal.SIGINT)
        run.wait_until(lambda: all(file.exists() and file.stat().st_size for file in files))
        yield files


def of_checkpoints(campus: str) -> list[bytes]:
    """Pieces of every checkpoint that hosts have stored, from all over them."""
    pieces, data = [], b""
    for payload in Path("/var/tmp/reclaimnet", campus).glob("*/store/**/*payload*"):
        with suppress(FileNotFoundError):  # a later one is there already
            data = payload.read_bytes()
        pieces += [data[at : at + WINDOW] for at in range(0, len(data) - WINDOW, 4099)]
    return random.Random(1).sample([piece for piece in pieces if len(set(piece)) >= MIN_DISTINCT], PIECES)


@pytest.mark.parametrize("transfers", ["sealed", "plain", pytest.param("authenticated", marks=pytest.mark.long)])
def test_a_sniffer_on_every_cable_finds_nothing_it_knows(tmp_path: Path, transfers: str) -> None:
    """Also that it would: with plain transfers it finds every word, with authenticated ones the bytes."""
    scenario = tmp_path / "overheard.toml"
    scenario.write_text(SCENARIO.replace("TRANSFERS", transfers))
    with running(tmp_path / "out", "run", str(scenario)) as run:
        run.wait_until(lambda: run.pids("coordinator") and run.count(f.JobRunning))
        with overheard(run, tmp_path) as files:
            began = run.count(f.CheckpointCompleted)
            run.wait_until(lambda: run.count(f.CheckpointCompleted) >= began + 2)
            pieces = of_checkpoints(run.ledger()[0]["id"])
            time.sleep(1.0)
        seen = b"".join(file.read_bytes() for file in files)
    assert len(seen) > 4_000_000, "of two checkpoints, at both ends"
    found = [word for word in WORDS if word in seen]
    read = sum(piece in seen for piece in pieces)
    if transfers == "plain":
        assert {*WORDS} - {*found} <= {b"spiffe://", b"StartJob"}
    else:
        assert found == []
    assert read > len(pieces) / 4 if transfers != "sealed" else read == 0
