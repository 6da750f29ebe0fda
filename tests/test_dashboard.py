"""The live page without a browser: what it knows of a run, and what it answers to whom."""

import errno
import json
import os
import re
import socket
import threading
import time
import urllib.error
import urllib.request
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import jwt
import pytest
import trio

from bpf.errors import BpfError
from controller.core.model import facts as f
from experiments.dashboard import feed, serve
from experiments.dashboard.application import AUDIENCE, Application
from experiments.dashboard.campus_state import CampusState
from experiments.dashboard.event_log import EventLog
from experiments.dashboard.feed import Feed
from experiments.dashboard.health import Health
from experiments.dashboard.sources import EventsFile, HeartbeatRates, JournalSource, open_run
from experiments.dashboard.switches import OwnerRequest, switch
from experiments.results.campus_layout import layout
from experiments.results.history import Where, attempts, whereabouts
from experiments.results.report.timeline import queue_lengths, spans
from experiments.worlds.live.operator import JOURNAL, SOCKET
from testbed import owner
from testbed.emulation.safety.living import RunningCampus
from testbed.errors import SetupError, SpecError
from testbed.messages import FlowCount, Heartbeat, JobClaim
from testbed.trust.authority import LIFE_S, new_key
from testbed.trust.passes import claims_unproved, new_pass
from tests import dashboard_runs as runs
from tests.live_campus import needs_root
from topologies import files, presets
from topologies.units import format_rate

PHASE = {
    Where.ACCEPTED: {"waiting"},
    Where.WAITING: {"waiting"},
    Where.ON_HOST: {"starting", "running", "moving"},
    Where.ON_THE_WAY: {"moving", "interrupted"},
    Where.INTERRUPTED: {"interrupted"},
    Where.FINISHED: {"finished"},
    Where.FAILED: {"failed"},
}


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return runs.write_run(tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("live") / "journal.sqlite"
    runs.write_journal(path)
    return path


def loaded(source: JournalSource | EventsFile) -> Feed:
    made = Feed(source)
    trio.run(made.run)
    return made


# ---------------------------------------------------------------- what it knows
def test_the_picture_and_the_time_line_are_what_the_report_says() -> None:
    campus, facts = runs.scenario().played().campus, runs.facts()
    seen, told = CampusState(campus), EventLog()
    for number, (at_s, fact) in enumerate(facts, 1):
        seen.apply(number, at_s, fact)
        told.add(seen.version, number, at_s, fact, len(seen.head) + len(seen.queue), seen.level)
        assert not set(seen.queue) & set(seen.head)
    for job, where in whereabouts(facts).items():
        row = seen.jobs.get(job)
        assert row["phase"] in PHASE[where], job
        assert (row["phase"] in ("starting", "running", "moving")) == any(
            job in host["jobs"] for host in seen.hosts.values()
        )
    bars = told.since(0)["bars"]
    assert {key: (b["from_s"], b["run_s"], b["to_s"], b["how"]) for key, b in bars.items()} == {
        f"{a.job}#{a.attempt}": (a.dispatched_s, a.running_s, a.ended_s, a.how) for a in attempts(facts)
    }
    until_s = facts[-1][0]
    assert sorted(
        (s["host"], s["kind"], s["from_s"], s["to_s"] or until_s) for s in told.since(0)["spans"].values()
    ) == (sorted((s.host, s.kind, s.from_s, s.to_s) for s in spans(facts, until_s)))
    # the report counts jobs that wait for an on-demand slot, too; here all have one
    assert max(length for _, length, _ in told.curve) == max(length for _, length in queue_lengths(facts))
    kinds = {type(fact) for _, fact in facts}
    assert {f.MigrationAdmitted, f.JobRedirected, f.JobQueued, f.HostReclaimed, f.JobStopped} <= kinds


def test_a_moment_is_the_same_whichever_keyframe_it_is_seen_through(
    events: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "FIRST_SPACING", 20)
    monkeypatch.setattr(feed, "KEYFRAMES", 8)
    seen = loaded(open_run(events))
    assert len(seen._keyframes) <= 8
    for at_s in (-1.0, 0.0, 3.3, 17.0, 29.9, 1e6):
        whole = CampusState(seen.source.campus)
        for number, when_s, fact in seen.source.facts(1, 1 << 30):
            if when_s <= at_s:
                whole.apply(number, when_s, fact)
        found = trio.run(seen.at, at_s)
        for part in ("hosts", "jobs", "flows", "head", "queue", "totals"):
            assert getattr(found, part) == getattr(whole, part)


def test_what_readers_receive_adds_up_to_the_whole_however_often_they_look() -> None:
    campus, facts = runs.scenario().played().campus, runs.facts()
    seen = Feed(_Listed(campus, facts))
    stores: dict[int, dict[str, Any]] = {every: {"bars": {}, "spans": {}} for every in (1, 7, 150)}
    known = dict.fromkeys(stores, (0, 0))
    for number, (at_s, fact) in enumerate(facts, 1):
        seen._add(number, at_s, fact)
        for every, store in stores.items():
            if number % every == 0 or number == len(facts):
                delta = seen.since(*known[every])
                known[every] = delta["version"], delta["number"]
                for part in ("hosts", "jobs", "flows", "links", "curve"):
                    store[part] = delta.get(part, store.get(part))
                for part in ("bars", "spans"):
                    store[part] |= delta[part]
    whole = seen.since(0, 0)
    for store in stores.values():
        assert store == {part: whole[part] for part in store}


class _Listed:
    world = "virtual"

    def __init__(self, campus: Any, facts: Any) -> None:
        self.campus, self._facts = campus, facts

    def facts(self, first: int, most: int) -> list[tuple[int, float, Any]]:
        return [(n, *timed) for n, timed in enumerate(self._facts[first - 1 : first - 1 + most], first)]


def test_what_agents_count_becomes_what_flows_get() -> None:
    meter = HeartbeatRates()
    flow = FlowCount("j1:7>h2", 1000, 2.0)
    assert meter.take("h1", 1.0, Heartbeat(1, [JobClaim("j1", 1, 5)], flows=[flow])) == ({"j1": 5}, {"j1:h1>h2": 500.0})
    flow = FlowCount("j1:7>h2", 4000, 4.0)
    assert meter.take("h1", 3.0, Heartbeat(2, [], flows=[flow])) == ({}, {"j1:h1>h2": 1500.0})
    assert meter.take("h1", 4.0, Heartbeat(3, [])) == ({}, {"j1:h1>h2": 0.0})
    assert meter.take("h1", 5.0, Heartbeat(4, [])) == ({}, {})


@pytest.mark.parametrize("hosts", [4, 54, 500])
def test_on_the_map_no_two_things_share_a_place(hosts: int) -> None:
    campus = files.campus54() if hosts == 54 else presets.three_tier(hosts, 3, 2)
    drawn = layout(campus)
    boxes = list(drawn["nodes"].values())
    assert len(boxes) == len(campus.hosts) + len(campus.switches)
    assert len(drawn["links"]) == len(campus.links)
    assert drawn["width"] < 1500
    known = {link.rate_bytes_per_s for link in campus.links}
    with_hosts = [
        switch for switch in campus.switches if campus.neighbours[switch.name].keys() & campus.host_by_name.keys()
    ]
    assert len(drawn["access"]) == len(with_hosts)
    assert all(set(cables["rates"]) <= known for cables in drawn["access"])
    for n, a in enumerate(boxes):
        assert 0 <= a["x"] <= a["x"] + a["w"] <= drawn["width"]
        assert 0 <= a["y"] <= a["y"] + a["h"] <= drawn["height"]
        for b in boxes[:n]:
            apart = a["x"] + a["w"] <= b["x"] or b["x"] + b["w"] <= a["x"]
            assert apart or a["y"] + a["h"] <= b["y"] or b["y"] + b["h"] <= a["y"]

    for trunk in (link for link in drawn["links"] if link.get("d") and link["tree"]):
        corners = [(0.0, 0.0)]
        for way, first, second in re.findall(r"([MVH])([\d.]+)(?:,([\d.]+))?", trunk["d"]):
            x, y = corners[-1]
            corners.append(
                {"M": (float(first), float(second or 0)), "V": (x, float(first)), "H": (float(first), y)}[way]
            )
        for (x0, y0), (x1, y1) in pairwise(corners[1:]):
            for box in (box for box in boxes if box["kind"] == "host"):
                beside = max(x0, x1) <= box["x"] or min(x0, x1) >= box["x"] + box["w"]
                assert beside or max(y0, y1) <= box["y"] or min(y0, y1) >= box["y"] + box["h"], trunk


@pytest.mark.parametrize(
    ("name", "text", "wrong"),
    [
        ("none.jsonl", None, "events.jsonl of a run"),
        ("alone.jsonl", "", "campus.toml beside it"),
        ("journal.sqlite", "no journal", "not a database"),
        ("badly/events.jsonl", "", "campus.toml"),
    ],
)
def test_a_run_that_cannot_be_shown_says_why(tmp_path: Path, name: str, text: str | None, wrong: str) -> None:
    if text is not None:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    if name.startswith("badly"):
        (tmp_path / name).with_name("campus.toml").write_bytes(b'name = "\xff"')
    with pytest.raises((SpecError, SetupError), match=wrong):
        open_run(tmp_path / name)


def test_a_line_that_is_no_fact_is_named(tmp_path: Path) -> None:
    events = runs.write_run(tmp_path / "run")
    lines = events.read_text().splitlines(keepends=True)
    events.write_text("".join([*lines[:4], '{"at_s": 1, "fact": "Nothing"}\n', *lines[4:]]))
    broken = loaded(open_run(events)).broken
    assert str(events) in broken
    assert "line = 5" in broken


# ---------------------------------------------------------------- what it answers
@pytest.fixture(scope="module")
def page(events: Path) -> Iterator[str]:
    with runs.replayed(events) as address:
        root, token = address.split("/#token=")
        claims = claims_unproved(token)
        assert claims["aud"] == "page"
        assert 0.0 < claims["exp"] - time.time() <= LIFE_S
        mine.append(runs.token_file(events).read_text())
        yield root


mine = [""]  # tokens of the pages that were served


def get(address: str, **headers: str) -> tuple[int, Any, bytes]:
    request = urllib.request.Request(address, headers={"Authorization": f"Bearer {mine[-1]}", **headers})
    try:
        with urllib.request.urlopen(request, timeout=20) as reply:
            return reply.status, reply.headers, reply.read()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read()


def test_a_page_is_for_loopback_names_and_loads_nothing_from_elsewhere(page: str) -> None:
    status, headers, body = get(page + "/")
    assert (status, headers["X-Content-Type-Options"]) == (200, "nosniff")
    assert headers["Content-Security-Policy"].startswith("default-src 'none'")
    for path in re.findall(r'(?:src|href)="([^"]+)"', body.decode()):
        assert path.startswith("/")
        assert get(page + path)[0] == 200
    assert get(page + "/", Host="attacker.example")[0] == 400
    assert get(page + "/api/at?s=1", Host="attacker.example")[0] == 400
    assert get(page + "/../../etc/passwd")[0] == 404
    for site, status in (("cross-site", 403), ("same-origin", 200), ("none", 200)):
        assert get(page + "/api/at?s=1", **{"Sec-Fetch-Site": site})[0] == status


@pytest.mark.parametrize(
    "path",
    [
        "/api/at",
        "/api/at?s=nan",
        "/api/at?s=x",
        "/api/fact?n=",
        "/api/fact?n=1e308",
        "/api/fact?n=-1e30",
        "/api/head?version=x&number=0",
        "/api/head?version=0",
    ],
)
def test_a_wrong_question_is_answered_with_what_is_wrong(page: str, path: str) -> None:
    status, _, body = get(page + path)
    assert status == 400
    assert "expected" in json.loads(body)["words"]


def test_a_fact_is_shown_with_all_that_it_carries_in_its_units(page: str) -> None:
    number = next(n for n, (_, fact) in enumerate(runs.facts(), 1) if isinstance(fact, f.MigrationAdmitted))
    told = json.loads(get(f"{page}/api/fact?n={number}")[2])
    _, fact = runs.facts()[number - 1]
    assert (told["kind"], told["decided"]) == ("MigrationAdmitted", True)
    fields = dict(told["fields"])
    assert (fields["job"], fields["destination"]) == (fact.job, fact.destination)
    assert fields["floor bytes per s"] == format_rate(fact.floor_bytes_per_s)
    assert json.loads(get(f"{page}/api/fact?n=100000000")[2]) == {}


def test_every_metric_that_alerts_and_dashboard_name_is_exposed_and_labels_are_few(page: str) -> None:
    told = get(page + "/metrics")[2].decode()
    exposed = set(re.findall(r"^(reclaimnet_\w+)", told, re.MULTILINE))
    live_only = {"reclaimnet_coordinator_up", "reclaimnet_coordinator_answer_seconds"}
    for path in ("/alerts.yml", "/grafana.json"):
        text = get(page + path)[2].decode()
        named = set(re.findall(r"reclaimnet_\w+", text))
        assert named
        assert named <= exposed | live_only, path
    assert len(told.splitlines()) < 250
    panels = json.loads(get(page + "/grafana.json")[2])["panels"]
    shown = set(re.findall(r"reclaimnet_\w+", json.dumps(panels)))
    assert len(shown) > 20
    assert all(panel["targets"] for panel in panels)
    assert get(page + "/healthz")[0] == 200


def test_a_coordinator_that_has_not_begun_its_journal_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_dir, journal = tmp_path / "run", tmp_path / "journal.sqlite"
    run_dir.mkdir()
    (run_dir / JOURNAL).symlink_to(journal)
    campus = RunningCampus({"id": "c", "pid": os.getpid(), "run_dir": str(run_dir)})
    monkeypatch.setattr(serve, "BEGUN_S", 60.0)
    coordinator = threading.Timer(0.3, runs.write_journal, (journal, 5.0))
    coordinator.start()
    try:
        assert serve.of_campus(campus).source.path == journal
    finally:
        coordinator.join()
    monkeypatch.setattr(serve, "BEGUN_S", 0.1)
    journal.unlink()
    with pytest.raises(SetupError, match=r"journal\.sqlite"):
        serve.of_campus(campus)
    (run_dir / JOURNAL).unlink()
    with pytest.raises(SetupError, match="without agents"):
        serve.of_campus(campus)


@pytest.mark.parametrize(
    "path", ["/api/campus", "/api/head?version=0&number=0", "/api/at?s=1", "/api/fact?n=1", "/metrics"]
)
def test_a_run_is_shown_to_whoever_has_the_token_of_its_page(page: str, path: str) -> None:
    assert get(page + path)[0] == 200
    token = mine[-1]
    for wrong in ("", "Bearer", "Bearer ", f"Basic {token}", f"Bearer {token}x", f"Bearer x{token}", "Bearer \xe9"):
        status, _, body = get(page + path, Authorization=wrong)
        assert status == 401
        assert "no token for this" in json.loads(body)["words"]


DEEP = urlsafe_b64encode(b"[" * 20000).decode()
NOT_OF_THIS_PAGE: dict[str, tuple[Callable[[Application], str], str]] = {
    "old": (lambda page: new_pass(page._key, AUDIENCE, -1.0), "the token is too old"),
    "another page's": (lambda _: new_pass(new_key(), AUDIENCE, 60.0), "Signature verification failed"),
    "for joining": (lambda page: new_pass(page._key, "join", 60.0), "audience"),
    "without an end": (lambda page: jwt.encode({"aud": AUDIENCE}, page._key, "ES256"), "exp"),
    "unsigned": (lambda _: jwt.encode({"aud": AUDIENCE, "exp": 1 << 40}, "", "none"), "alg"),
    "of another algorithm": (lambda _: jwt.encode({"aud": AUDIENCE, "exp": 1 << 40}, "x" * 32, "HS256"), "alg"),
    "too deep": (lambda _: f"{DEEP}.{DEEP}.", "no token for this"),
}


@pytest.mark.parametrize("kind", NOT_OF_THIS_PAGE)
def test_a_page_refuses_tokens_that_are_old_forged_or_of_another(events: Path, kind: str) -> None:
    page, (made, said) = Application(loaded(open_run(events)), Health(False)), NOT_OF_THIS_PAGE[kind]

    async def answered(token: str) -> tuple[int, bytes]:
        sent: list[Any] = []
        headers = [(b"host", b"127.0.0.1"), (b"authorization", f"Bearer {token}".encode())]
        scope = {"type": "http", "method": "GET", "path": "/metrics", "query_string": b"", "headers": headers}

        async def send(message: Any) -> None:
            sent.append(message)

        await page.asgi(scope, trio.sleep_forever, send)
        return sent[0]["status"], sent[1]["body"]

    assert trio.run(answered, page.token)[0] == 200
    status, body = trio.run(answered, made(page))
    assert status == 401
    assert said in json.loads(body)["words"]


def test_connections_of_strangers_do_not_keep_others_off(page: str) -> None:
    """Each of which asks for nothing, or never ends what it asks for."""
    port = int(page.rpartition(":")[2])
    with ExitStack() as strangers:
        for n in range(300):
            stranger = strangers.enter_context(socket.create_connection(("127.0.0.1", port), timeout=20.0))
            if n % 2:
                stranger.sendall(b"GET /api/head HTTP/1.1\r\nHost: 127.0.0.1\r\n")
        assert get(page + "/api/at?s=1")[0] == 200


def test_a_client_that_reads_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "UNREAD_MS", 200)
    with serve.listening(0) as page:
        page.listen()
        with socket.create_connection(page.getsockname()), page.accept()[0] as served, pytest.raises(OSError) as error:
            served.settimeout(20.0)
            served.sendall(bytes(64 << 20))
    assert error.value.errno == errno.ETIMEDOUT


def test_what_is_asked_of_a_switch_is_of_a_host_with_an_owner() -> None:
    owner = {"id": "c", "pid": os.getpid(), "pin_dir": "/nowhere", "hosts": ["h1"], "volunteers": ["h1"]}
    campus = RunningCampus(owner)
    for wish in (
        OwnerRequest("h2", "reclaim"),
        OwnerRequest("h1", "reclaim", -1.0),
        OwnerRequest("h1", "reclaim", float("nan")),
        OwnerRequest("h1", "return"),
    ):
        with pytest.raises(SpecError):
            trio.run(switch, campus, wish)


NOBODY = 65534


@needs_root
def test_that_this_user_may_not_ask_is_no_coordinator_that_does_not_answer(tmp_path: Path) -> None:
    """The page of an owner who is not root raised the alarm."""
    health = Health(True)

    async def ask() -> None:
        with trio.fail_after(60.0):
            await health.watch(tmp_path)

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / SOCKET))
        listener.listen()
        tmp_path.chmod(0o700)
        os.seteuid(NOBODY)
        try:
            trio.run(ask)
        finally:
            os.seteuid(0)
    assert (health.watched, health.forbidden) == (False, True)


def test_who_may_use_a_switch_is_said_to_one_who_may_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owner_entry = {"id": "c", "pid": os.getpid(), "pin_dir": str(tmp_path), "hosts": ["h1"], "volunteers": ["h1"]}
    campus = RunningCampus(owner_entry)
    pin = Path(campus.switch_pin("h1"))
    pin.parent.mkdir()
    pin.touch(0o600)

    def refused(*_: Any, **__: Any) -> None:
        raise BpfError("open the pinned map", errno.EACCES)

    monkeypatch.setattr(owner.KillSwitch, "open_pinned", refused)
    with pytest.raises(SetupError, match="the switch of h1 is for root"):
        trio.run(switch, campus, OwnerRequest("h1", "reclaim"))
