"""Attacks of an ordinary user, uid 65534, on a campus that stands, from outside and from inside its hosts: all doors are shut."""

import grp
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from controller.core.model import facts as f
from controller.host import AGENT_PORT
from testbed import messages as m
from testbed.agent.config import DATA_PORT
from testbed.emulation.safety.cleaning import marked_processes
from testbed.wire import Codec
from tests.live_campus import Run, live, standing
from topologies.presets import three_tier

pytestmark = [*live, pytest.mark.apart, pytest.mark.timeout(150)]
NOBODY, DAEMON = 65_534, 1
ROOT = Path(__file__).parents[1]
HELLO: Codec[m.FromAgent] = Codec(m.FromAgent)
HOSTS = 3
SPEC = three_tier(HOSTS, 3, 1)  # as `up` makes it
# of a journal's bytes: the number of a host's agent, and the key of transfers' numbers, as earlier versions kept them
SECRETS = ("SELECT value FROM origin WHERE key = 'secret'", "SELECT 1 FROM fact WHERE body LIKE '%\"ticket\"%'")


@pytest.fixture(scope="module")
def campus() -> Iterator[Run]:
    """A campus where a job runs, in a folder that anybody may enter."""
    out = Path(tempfile.mkdtemp(prefix="doors-"))
    out.chmod(0o755)
    try:
        with standing(out, "--hosts", str(HOSTS), "--group", "h1=users", out="") as run:
            run.wait_until(lambda: len(run.pids("agent")) == HOSTS + 1)
            run.wait_until_it_answers()
            run.done("submit", str(out / "job.toml"))
            run.wait_for(f.CheckpointCompleted)
            yield run
    finally:
        shutil.rmtree(out)


def as_nobody(script: str, *arguments: object, network: int | None = None, group: str = "") -> Any:
    """What a program of an ordinary user prints, as JSON; `network`: of which process; `group`: of which it is a member."""
    enter = [] if network is None else ["nsenter", f"--net=/proc/{network}/ns/net"]
    became = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", f"--groups={group}" if group else "--clear-groups"]
    words = [*enter, *became, "/usr/bin/python3", "-I", "-c", textwrap.dedent(script), *map(str, arguments)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def network_of(run: Run, host: str) -> int:
    return run.networks()[host]


def test_no_file_of_a_campus_is_readable_for_others(campus: Run) -> None:
    """Journal, checkpoints, jobs' files and logs: with them a stranger had passed for an agent."""
    reads = """
        import json, os, sys
        found = []
        for root in sys.argv[1:]:
            for folder, _, names in os.walk(root):
                found += [os.path.join(folder, name) for name in names if os.access(os.path.join(folder, name), os.R_OK)]
        print(json.dumps(found))
    """
    known = campus.campus
    roots = [campus.out, known.run_dir, known.run_dir / "logs", Path("/var/tmp/reclaimnet") / known.id]
    assert any(path.is_file() for path in roots[-1].rglob("*")), "a checkpoint is stored"
    assert sorted(as_nobody(reads, *roots)) == [str(campus.out / name) for name in ("commands", "job.toml")]


def test_no_ledger_of_another_user_keeps_an_owner_from_his_host(campus: Run) -> None:
    """In /tmp anybody can write that a campus with such a host runs, or something that is never read to its end."""
    fakes = """
        import json, os, sys
        os.makedirs(os.path.dirname(sys.argv[2]), exist_ok=True)
        with open(sys.argv[2], "w") as file:
            print(sys.argv[1], file=file)
        os.mkfifo(sys.argv[3])
        print(json.dumps(True))
    """
    looks = "import json, sys; sys.path.insert(0, sys.argv[1]); from testbed.emulation.safety import living; "
    looks += "print(json.dumps([each.id for each in living.running_campuses() if 'h1' in each.hosts]))"
    known = campus.campus.id
    paths = [Path(f"/tmp/reclaimnet/{kind}-{known}.ledger") for kind in ("fake", "pipe")]
    try:
        as_nobody(fakes, json.dumps(campus.ledger()[0] | {"id": f"not {known}"}), *paths)
        root = {"user": DAEMON, "group": DAEMON, "extra_groups": []}
        found = subprocess.run([sys.executable, "-c", looks, ROOT], capture_output=True, text=True, timeout=100, **root)
    finally:
        for path in paths:
            path.unlink(missing_ok=True)
        with suppress(OSError):  # another's stands there
            paths[0].parent.rmdir()
    if "Permission denied" in found.stderr:
        pytest.skip("the source is for its user alone")
    assert {known, f"not {known}"} & {*json.loads(found.stdout)} == {known}, found.stderr


def test_a_shell_of_up_is_known_to_be_of_the_campus(campus: Run) -> None:
    """`clean --running` ends what is marked; it had left these."""
    shells = [Path(f"/proc/{each['pid']}/cmdline").read_bytes() for each in marked_processes(campus.campus.id)]
    assert any(b"until [ -e" in words for words in shells)


def test_what_a_journal_holds_opens_nothing_and_without_a_key_nobody_is_heard(campus: Run) -> None:
    """Its reader finds no key, and no number by which an agent is known. Neither the plain Hello nor one by TLS is read."""
    with closing(sqlite3.connect(f"file:{campus.out}/journal.sqlite?mode=ro", uri=True)) as journal:
        assert [journal.execute(query).fetchall() for query in SECRETS] == [[], []]
    hello = m.Hello(
        "h1", next(fact.incarnation for fact in campus.facts(f.HostJoined) if fact.host == "h1"), 1, [], [], [], True
    )
    says = """
        import json, socket, ssl, sys
        answers = []
        for newest in (None, ssl.TLSVersion.TLSv1_3, ssl.TLSVersion.TLSv1_2):
            with socket.create_connection((sys.argv[1], sys.argv[2]), 10) as link:
                try:
                    if newest is not None:
                        trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
                        trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
                        trusting.maximum_version = newest
                        link = trusting.wrap_socket(link)
                    link.sendall(bytes.fromhex(sys.argv[3]))
                    answers.append(link.recv(4096).decode(errors="replace"))
                except OSError as error:
                    answers.append("")
        print(json.dumps(answers))
    """
    frame, network = HELLO.encode(hello).hex(), network_of(campus, "h1")
    for address, port in ((SPEC.coordinator.address, AGENT_PORT), (SPEC.host_by_name["h2"].address, DATA_PORT)):
        assert as_nobody(says, address, port, frame, network=network) == ["", "", ""]
    own = str(SPEC.host_by_name["h1"].address)
    for host in (SPEC.coordinator.name, "h2"):
        refused = campus.wait_for(f.PeersRefused, host=host, source=own)
        assert refused.times == 3
        assert "no handshake" in refused.reason


def test_a_flood_of_handshakes_is_refused_and_nobody_else_notices(campus: Run) -> None:
    """A user of h1 opens 200 connections a second: silent ones, rubbish, long ones, and such as have no certificate."""
    floods = """
        import json, socket, ssl, sys, time
        kept, begun_s, number = [], time.monotonic(), 0
        trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
        long = bytes.fromhex("160301400001ffffff") + bytes(0x3ffc)
        while time.monotonic() - begun_s < 8.0:
            try:
                link = socket.create_connection((sys.argv[1], sys.argv[2]), 10)
                kept.append(link)
                link.settimeout(0.01)
                if number % 4 == 0:
                    trusting.wrap_socket(link, do_handshake_on_connect=True)
                elif number % 4 == 1:
                    link.sendall(bytes(1 << 14))
                elif number % 4 == 2:
                    link.sendall(long)
            except OSError:
                pass
            number += 1
            time.sleep(max(0.0, begun_s + number / 200.0 - time.monotonic()))
        print(json.dumps(number))
    """
    lost, network = campus.count(f.HostLost), network_of(campus, "h1")
    joined = campus.count(f.HostJoined)
    with ThreadPoolExecutor() as beside:
        flood = beside.submit(as_nobody, floods, SPEC.coordinator.address, AGENT_PORT, network=network)
        time.sleep(2.0)
        [coordinator] = campus.pids("coordinator")
        os.kill(coordinator, signal.SIGKILL)  # all come in again: h1's agent from a port that is root's
        campus.wait_for(f.HostJoined, least=joined + HOSTS)
        assert not flood.done()
        sent = flood.result()
    assert sent > 600
    campus.wait_until(lambda: sum(fact.times for fact in campus.facts(f.PeersRefused)) > sent / 2)
    assert campus.count(f.HostLost) == lost


# answers of bpf(2) to opening switches, to writing rubbish and to freezing, by the name of the error
SCRIBBLES = """
    import ctypes, errno, json, os, platform, struct, sys
    call = ctypes.CDLL(None, use_errno=True).syscall
    number = {"x86_64": 321, "aarch64": 280}[platform.machine()]
    def bpf(command, *words):
        attr = b"".join(words).ljust(128, b"\\0")
        result = call(number, command, attr, 128)
        return result if result >= 0 else errno.errorcode[ctypes.get_errno()]
    kept, answers = [], []
    def at(data):
        kept.append(ctypes.create_string_buffer(data, len(data) + 1))
        return struct.pack("Q", ctypes.addressof(kept[-1]))
    for pin in sys.argv[2:]:
        switch = bpf(7, at(pin.encode()))
        if isinstance(switch, str):
            answers.append(switch)
            continue
        fd = struct.pack("Ixxxx", switch)
        if sys.argv[1] == "freeze":
            answers.append(bpf(22, fd))
        else:
            answers.append(bpf(2, fd, at(bytes(4)), at(b"\\xff" * 2096), bytes(8)))
    print(json.dumps(answers))
"""


def test_an_owner_who_writes_rubbish_closes_his_own_host_and_ends_no_agent(campus: Run) -> None:
    known = campus.campus
    pins, before = [known.switch_pin(host) for host in ("h1", "h2", "h3")], campus.pids("agent")
    users = str(grp.getgrnam("users").gr_gid)
    campus.wait_for(f.HostJoined, host="h1")
    assert as_nobody(SCRIBBLES, "write", *pins) == ["EACCES"] * 3
    assert as_nobody(SCRIBBLES, "write", *pins, group=users) == [0, "EACCES", "EACCES"]
    campus.wait_for(f.HostReclaimed, host="h1")
    log = campus.out / "logs" / "agent-h1.log"
    campus.wait_until(lambda: "the switch held no setting" in log.read_text())
    assert "another address than the coordinator's" in log.read_text()
    assert as_nobody(SCRIBBLES, "write", pins[0], group=users) == [0]
    assert "is lent again" in campus.done("return", "h1")
    campus.wait_for(f.HostReturned, host="h1")
    assert campus.pids("agent") == before


def test_nobody_takes_the_ports_of_agents_and_a_coordinator_that_have_died(campus: Run) -> None:
    """With its port taken, each that was started again failed. The journal is damaged meanwhile."""
    squats = """
        import json, socket, sys, time
        found, end_s = [], time.monotonic() + 0.5
        while time.monotonic() < end_s:
            try:
                found.append(socket.create_server((sys.argv[1], int(sys.argv[2])), reuse_port=True) and "taken")
            except OSError as error:
                found.append(type(error).__name__)
        print(json.dumps(sorted(set(found))))
    """
    before = {*campus.pids("coordinator"), *campus.pids("agent")}
    pin, users = campus.campus.switch_pin("h1"), str(grp.getgrnam("users").gr_gid)
    for signum in (signal.SIGSTOP, signal.SIGKILL):
        for pid in before:
            os.kill(pid, signum)
        if signum == signal.SIGSTOP:
            assert as_nobody(SCRIBBLES, "write", pin, group=users) == [0]
            assert "the switch had held what no command writes" in campus.command("return", "h1").stdout
    assert as_nobody(SCRIBBLES, "freeze", pin, group=users) == ["EBUSY"], "it is nobody's for ever"
    with closing(sqlite3.connect(campus.out / "journal.sqlite")) as db, db:
        db.execute("UPDATE input SET body = x'ff' WHERE number = (SELECT max(number) FROM input)")
        db.execute("DELETE FROM snapshot")
    for host, port in (("h1", DATA_PORT), (SPEC.coordinator.name, AGENT_PORT)):
        address = SPEC.host_by_name[host].address
        assert as_nobody(squats, address, port, network=network_of(campus, host)) == ["PermissionError"]
    campus.wait_until(lambda: len({*campus.pids("coordinator"), *campus.pids("agent")} - before) == len(before))
    campus.wait_until(lambda: "job" in campus.command("jobs").stdout)
    assert (campus.out / "journal.sqlite.damaged-1").exists()
