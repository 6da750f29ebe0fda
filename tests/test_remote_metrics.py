"""Metrics for a Prometheus of another machine: who is let in, and who is not."""

import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
import trio
from typer.testing import CliRunner

from controller.core.model.facts import NameChanged
from experiments.cli.main import app
from experiments.dashboard import serve
from experiments.dashboard.application import Application
from experiments.dashboard.feed import Feed
from experiments.dashboard.health import Health
from experiments.dashboard.remote_metrics import serve_metrics
from experiments.dashboard.sources import open_run
from testbed.errors import TestbedError
from testbed.trust import door
from testbed.trust.authority import Authority
from testbed.trust.channel import Identity, Name, PartyRole
from tests import dashboard_runs as runs
from tests.patience import until

CAMPUS, HERE = "lab", "127.0.0.1"
SOON_S = 60.0
ASKED = b"GET /metrics HTTP/1.1\r\nHost: lab\r\n\r\n"


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return runs.write_run(tmp_path_factory.mktemp("run"))


@dataclass
class Served:
    """A service of metrics."""

    port: int
    authority: Authority
    feed: Feed

    def context(self, role: PartyRole = PartyRole.OPERATOR, by: Authority | None = None) -> ssl.SSLContext:
        """The settings of a party, which verifies the server as Prometheus does: by authority and address."""
        context = Identity((by or self.authority).credentials(Name(CAMPUS, role, "prometheus"))).client
        context.load_verify_locations(cadata=self.authority.trusted.decode())
        context.check_hostname = True
        return context

    async def answer(self, context: ssl.SSLContext, request: bytes = ASKED) -> bytes:
        """All that a client gets; nothing if it is refused."""
        stream = trio.SSLStream(await trio.open_tcp_stream(HERE, self.port), context, server_hostname=HERE)
        found = b""
        try:
            with trio.fail_after(SOON_S):
                await stream.send_all(request)
                while more := await stream.receive_some():
                    found += more
        except trio.BrokenResourceError:
            pass
        finally:
            await trio.aclose_forcefully(stream)
        return found


@pytest.fixture
async def served(events: Path, tmp_path: Path) -> AsyncIterator[Served]:
    async with serving(events, tmp_path) as made:
        yield made


@asynccontextmanager
async def serving(events: Path, tmp_path: Path) -> AsyncIterator[Served]:
    authority, file = Authority.new(CAMPUS), tmp_path / "authority.pem"
    authority.save(file)
    feed = Feed(open_run(events))
    await feed.run()
    page = Application(feed, Health(False))
    async with trio.open_nursery() as nursery:
        address = await nursery.start(partial(serve_metrics, (HERE, 0, file), feed, page.registry))
        assert address.startswith("https://127.0.0.1:")
        yield Served(int(address.rpartition(":")[2].partition("/")[0]), authority, feed)
        nursery.cancel_scope.cancel()


async def test_operators_read_metrics_by_their_certificates(served: Served) -> None:
    head, _, body = (await served.answer(served.context())).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200")
    assert b"reclaimnet_campus_info" in body
    assert f"Content-Length: {len(body)}".encode() in head


def without_certificate(_: Served) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def with_an_older_protocol(served: Served) -> ssl.SSLContext:
    context = served.context()
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_2
    return context


STRANGERS: dict[str, tuple[Callable[[Served], ssl.SSLContext], str]] = {
    "no certificate": (without_certificate, "peer did not return a certificate"),
    "a host's": (lambda served: served.context(PartyRole.HOST), "has no business here"),
    "a coordinator's": (lambda served: served.context(PartyRole.COORDINATOR), "has no business here"),
    "another authority's": (lambda served: served.context(by=Authority.new(CAMPUS)), "certificate"),
    "TLS 1.2": (with_an_older_protocol, "unsupported protocol"),
}


@pytest.mark.parametrize("kind", STRANGERS)
async def test_metrics_are_refused_to_all_others_and_that_is_logged(
    events: Path, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(door, "REPORT_S", 0.01)
    context, said = STRANGERS[kind]
    async with serving(events, tmp_path) as served:
        assert await served.answer(context(served)) == b""
        await until(lambda: said in caplog.text)
        assert await served.answer(served.context())


async def test_another_authority_of_the_campus_is_followed(served: Served, tmp_path: Path) -> None:
    before = served.context()
    served.authority = served.authority.successor()
    served.authority.save(tmp_path / "authority.pem")
    served.authority.other = None  # the client trusts the new one alone
    assert await served.answer(served.context())
    assert await served.answer(before), "one that follows is linked to it"
    served.authority = served.authority.successor()
    served.authority.save(tmp_path / "authority.pem")
    assert not await served.answer(before), "it verifies by the old one"


async def test_an_operator_that_is_revoked_reads_no_more_metrics(served: Served) -> None:
    context = served.context()
    assert await served.answer(context)
    revoked = NameChanged(f"spiffe://{CAMPUS}/operator/prometheus", "revoked")
    served.feed._add(served.feed.head.number + 1, served.feed.now_s, revoked)
    with trio.fail_after(SOON_S):
        while await served.answer(context):
            await trio.sleep(0.05)


async def test_no_metrics_are_served_before_it_is_known_who_was_revoked(events: Path, tmp_path: Path) -> None:
    Authority.new(CAMPUS).save(file := tmp_path / "authority.pem")
    feed = Feed(open_run(events))
    metrics = Application(feed, Health(False)).registry
    with trio.move_on_after(0.3) as patience:
        async with trio.open_nursery() as nursery:
            pytest.fail(await nursery.start(partial(serve_metrics, (HERE, 0, file), feed, metrics)))
    assert patience.cancelled_caught
    await feed.run()
    async with trio.open_nursery() as nursery:
        assert await nursery.start(partial(serve_metrics, (HERE, 0, file), feed, metrics))
        nursery.cancel_scope.cancel()


async def test_the_file_of_a_token_holds_a_whole_one_always(
    events: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, page = tmp_path / "page.token", Application(Feed(open_run(events)), Health(False))
    file.write_text("an older one")
    with file.open() as reader, trio.move_on_after(0.1):
        monkeypatch.setattr(serve, "LIFE_S", 0.02)
        try:
            await serve._keep_token(file, page)
        finally:
            assert reader.read() == "an older one", "who has it open reads on in it"
    assert len(file.read_text().split(".")) == 3
    assert [path.name for path in tmp_path.iterdir()] == ["page.token"]


@pytest.mark.parametrize("request_", [b"rubbish\r\n\r\n", b"x" * 100_000, b"GET / HTTP/1.1\r\n"])
async def test_a_request_that_is_none_ends_one_connection(
    served: Served, request_: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("experiments.dashboard.remote_metrics.PATIENCE_S", 0.2)
    began_s = time.monotonic()
    assert await served.answer(served.context(), request_) == b""
    assert time.monotonic() - began_s < SOON_S
    assert await served.answer(served.context())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--metrics", "nowhere:9100", "--authority", "a.pem"], "ADDRESS:PORT"),
        (["--metrics", "127.0.0.1", "--authority", "a.pem"], "ADDRESS:PORT"),
        (["--metrics", "127.0.0.1:99999", "--authority", "a.pem"], "ADDRESS:PORT"),
        (["--metrics", "127.0.0.1:0", "--authority", "none.pem"], "none.pem: no authority of a campus"),
        (["--metrics", "192.0.2.1:1", "--authority", "AUTHORITY"], "192.0.2.1:1 cannot be taken"),
        (["--metrics", "127.0.0.1:0"], "no authority of a campus"),
        (["--authority", "a.pem"], "nothing, without --metrics"),
    ],
)
def test_a_service_of_metrics_that_cannot_be_says_why(
    events: Path, tmp_path: Path, words: list[str], said: str
) -> None:
    Authority.new(CAMPUS).save(tmp_path / "authority.pem")
    asked = [word.replace("AUTHORITY", str(tmp_path / "authority.pem")) for word in words]
    with pytest.raises((TestbedError, ExceptionGroup)) as error:
        CliRunner().invoke(app, ["dashboard", str(events), "--port", "0", *asked], catch_exceptions=False)
    assert said in repr(error.value)
