"""The live page under load: how long an event takes from the coordinator's commit to the screen.

A virtual run of a large campus is written into a real journal at the pace at which it happened, one transaction an event, as a
coordinator writes. One process serves the page; one browser (Chromium) shows it; the other clients read the stream as fast as it
comes, and one of them never reads. Marked facts (a host that returns) are committed now and then: the browser's own clock tells
when the map has been painted with them. Written and shown on one machine, so all of it shares its processors.
"""

from __future__ import annotations

import json
import math
import os
import selectors
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import quantiles
from typing import Any
from urllib.parse import urlsplit
from urllib.request import urlopen

from rich.table import Table

from controller.core.model import facts as f
from controller.persistence.journal import Journal
from controller.persistence.recovery import origin_of
from experiments.dashboard import serve
from experiments.dashboard.sources import JournalSource, open_run
from experiments.inputs.replay_file import read_replay
from experiments.inputs.scenario import demo_scenario
from experiments.inputs.scenario.settings import settings_of
from experiments.inputs.traces import generate
from experiments.results.history import Timed
from experiments.worlds.virtual import simulate
from testbed.emulation.safety.ledger import RunningCampus
from testbed.errors import SetupError

GOAL_S = 0.2  # p95
EVERY_S = 0.8  # between two marked facts
MARKS = 160
BATCH = 20  # facts an event has, at most
AHEAD_S = 5.0  # of the run, written before anybody looks
# the browser notes when the marked host has another look: after the frame that paints it has begun, and been given to the screen
WATCH = """
(host) => {
  window.shown = [];
  const node = document.querySelector(`[data-host="${host}"]`);
  new MutationObserver(() => requestAnimationFrame(() => {
    const state = node.getAttribute("class");
    setTimeout(() => window.shown.push([Date.now(), state]), 0);
  })).observe(node, { attributes: true, attributeFilter: ["class"] });
}
"""


def measure_live_page(
    out: Path, hosts: int, clients: int, seconds: float, run: Path | None = None, pace: float = 1.0
) -> dict[str, Any]:
    """Play so many seconds; `out`/dashboard.json. `run`: the events.jsonl of a virtual run, instead of one of so many hosts;
    `pace`: facts are written so many times as fast as they happened.

    SetupError: no Chromium, no playwright, or a journal that the page cannot read.
    """
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        raise SetupError("no chromium on this machine (Debian: apt install chromium)")
    try:
        from playwright.sync_api import sync_playwright
    except ModuleNotFoundError as error:
        raise SetupError("playwright is not installed: pip install playwright") from error
    if run is not None:
        scenario = read_replay(run.parent).scenario
        facts = [(at_s, fact) for _, at_s, fact in open_run(run).facts(1, sys.maxsize >> 1)]
    else:
        scenario = demo_scenario(hosts=hosts, seconds=max(seconds, 15.0) + AHEAD_S)
        facts = list(simulate(scenario, generate(scenario)).facts)
    out.mkdir(parents=True, exist_ok=True)
    path = out / "journal.sqlite"
    for old in out.glob("journal.sqlite*"):
        old.unlink()
    played, began_s = scenario.played(), time.monotonic()
    writer = Journal(path)
    writer.found(origin_of(played.campus, settings_of(played), played.seed, began_s))
    writer.close()
    marked = played.volunteers[-1].name
    with ExitStack() as stack:
        page_process = stack.enter_context(_process(str(path), str(os.getpid())))
        assert page_process.stdout is not None
        address, page_pid = page_process.stdout.readline().split()[-1], page_process.pid
        browser = stack.enter_context(sync_playwright()).chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--disable-gpu", "--disable-quic"]
        )
        page = browser.new_page(viewport={"width": 1360, "height": 900})
        said: list[str] = []
        page.on("console", lambda message: said.append(message.text))
        page.goto(address)
        page.wait_for_selector(f'[data-host="{marked}"]')
        readers = stack.enter_context(_process("--read", address, str(clients - 2), marked))
        assert readers.stdin is not None
        assert readers.stdout is not None
        readers.stdout.readline()
        stalled = _connected(address, 4096)
        before = _cpu_s(page_pid)
        writing = _Writing(path, facts, marked, seconds, pace)
        page.evaluate(WATCH, marked)
        page.wait_for_timeout(500)
        writing.start()
        while writing.is_alive():
            page.wait_for_timeout(200)
        page.wait_for_timeout(2000)
        shown = page.evaluate("window.shown")
        used = (_cpu_s(page_pid) - before) / writing.took_s
        told = urlopen(address + "metrics", timeout=10).read().decode()
        health = json.load(urlopen(address + "api/health", timeout=10))
        if str(path) in health["words"]:
            raise SetupError(health["words"])
        browser.close()
        readers.stdin.close()
        # of each reader, from each mark's commit to its being told
        waited = [
            [min((at - made for at in told_s if at >= made), default=math.inf) for made, _ in writing.marks]
            for told_s in json.loads(readers.stdout.readline())
        ]
        stalled.close()
    # of each mark, until the host was first painted as it says; infinite: it never was
    took_s = []
    for n, (made_s, look) in enumerate(writing.marks):
        until_s = writing.marks[n + 1][0] if n + 1 < len(writing.marks) else math.inf
        seen = (
            at / 1e3 - made_s
            for at, classes in shown
            if made_s <= at / 1e3 and ("reclaimed" in classes) == bool(look)
        )
        first = next(seen, math.inf)
        took_s.append(first if made_s + first <= until_s + EVERY_S else math.inf)
    result = {
        "hosts": len(played.volunteers),
        "clients": clients,
        "pace": pace,
        "seconds": writing.took_s,
        "facts": writing.written,
        "facts_per_s": writing.written / writing.took_s,
        "marked": len(writing.marks),
        "shown": len(took_s),
        "on_screen_s": _quantiles(took_s),
        "to_reader_s": _quantiles([s for each in waited for s in each]),
        "page_processor_share": used,
        "stalled_closed": "reclaimnet_dashboard_stalled_streams_total 1.0" in told,
        "console": said,
        "processors": os.cpu_count(),
        "load": os.getloadavg()[0],
    }
    (out / "dashboard.json").write_text(json.dumps(result, indent=2) + "\n")
    return result


class _Writing(threading.Thread):
    """The coordinator's part: facts at their times, and marked ones between."""

    def __init__(self, path: Path, facts: Sequence[Timed], marked: str, seconds: float, pace: float) -> None:
        super().__init__(daemon=True)
        self._path, self._facts, self._host, self._seconds, self._pace = path, facts, marked, seconds, pace
        # (time.time() of the commit, the look that the host has then)
        self.marks: list[tuple[float, str]] = []
        self.written, self.took_s = 0, 0.0

    def run(self) -> None:
        """Run until the time is over."""
        writer, began_s, index, at_s = Journal(self._path), time.monotonic(), 0, 0.0
        next_s, end_s = began_s + 1.0, began_s + self._seconds
        while (now_s := time.monotonic()) < end_s:
            if now_s >= next_s and len(self.marks) < MARKS:
                next_s += EVERY_S
                away = len(self.marks) % 2 == 0
                fact: Any = (
                    f.HostReclaimed(self._host, 0.0, False, []) if away else f.HostReturned(self._host)
                )
                writer.begin()
                writer.append_fact(at_s, fact)  # times rise, or the journal is not read
                writer.commit()
                self.marks.append((time.time(), "reclaimed" if away else ""))
                self.written += 1
            due_s, first = AHEAD_S + self._pace * (now_s - began_s), index
            writer.begin()
            while index < len(self._facts) and self._facts[index][0] <= due_s and index - first < BATCH:
                at_s = self._facts[index][0]
                if getattr(self._facts[index][1], "host", "") != self._host:
                    writer.append_fact(*self._facts[index])
                index += 1
            writer.commit()
            self.written += index - first
            if index == first:
                time.sleep(0.005)
        self.took_s = time.monotonic() - began_s
        writer.close()


def _read(address: str, clients: int, host: str) -> None:
    """The process of the other readers: read their streams as they come; at the end of standard input print, of each, when it
    was told of the host (one thread, so that no reader waits for another's turn at the interpreter)."""
    name = f'"{host}":{{'.encode()
    streams = {_connected(address): n for n in range(clients)}
    told: list[list[float]] = [[] for _ in streams]
    rest = dict.fromkeys(streams, b"")
    with selectors.DefaultSelector() as selector:
        for stream in streams:
            stream.setblocking(False)
            selector.register(stream, selectors.EVENT_READ)
        selector.register(sys.stdin, selectors.EVENT_READ)
        print("reading", flush=True)
        while True:
            for key, _ in selector.select():
                if key.fileobj is sys.stdin:
                    print(json.dumps(told), flush=True)
                    return
                found: Any = key.fileobj
                part = found.recv(1 << 18)
                if not part:
                    selector.unregister(found)
                    continue
                if name in rest[found] + part:
                    told[streams[found]].append(time.time())
                rest[found] = part[-len(name) :]


def _quantiles(values: list[float]) -> dict[str, float]:
    if len(values) < 2:
        return {}
    cuts = quantiles(values, n=100, method="inclusive")
    return {"p50": cuts[49], "p95": cuts[94], "p99": cuts[98], "most": max(values)}


@contextmanager
def _process(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """This module in a process of its own, which ends with its standard input."""
    argv = [sys.executable, "-m", "experiments.benchmarks.live_page", *arguments]
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield process
    finally:
        process.stdin.close()
        try:
            process.wait(15)
        finally:
            process.kill()
            process.stdout.close()


def _connected(address: str, receive_bytes: int = 0) -> socket.socket:
    port = urlsplit(address).port
    made = socket.socket()
    if receive_bytes:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    made.connect(("127.0.0.1", port))
    made.sendall(f"GET /api/stream HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
    return made


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def live_page_table(result: dict[str, Any]) -> Table:
    """The figures for a terminal."""
    told = f"{result['hosts']} hosts, {result['clients']} clients, one of them stalled, {result['facts_per_s']:.0f} facts/s"
    table = Table("", "p50", "p95", "p99", "most", title=f"{told}; goal on screen: p95 {GOAL_S * 1e3:.0f} ms")
    for what, name in (("on the browser's screen", "on_screen_s"), ("at the other readers", "to_reader_s")):
        row = result[name]
        table.add_row(what, *(f"{row[q] * 1e3:.0f} ms" for q in ("p50", "p95", "p99", "most")))
    return table


def main() -> None:
    """The page's process, or the other readers'."""
    if sys.argv[1] == "--read":
        _read(sys.argv[2], int(sys.argv[3]), sys.argv[4])
        return
    path, owner_pid = Path(sys.argv[1]), int(sys.argv[2])
    campus = RunningCampus("measured", "measured", path.parent, owner_pid, (), path.parent)
    shown = serve.Shown(JournalSource(path, live=True), path, campus)
    serve.serve(shown, 0, lambda address: print(address, flush=True), until_eof=True)


if __name__ == "__main__":
    main()
