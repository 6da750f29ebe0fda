"""Answers to a browser (ASGI).

Only loopback's names are answered, so another site's page cannot have them resolve here. Whatever is of the run needs a
token of this process, which no other user of this machine and no other site's page can send. Nothing is loaded from elsewhere.

The page asks again for what is new, four times a second or as fast as it is answered: a slow reader delays no other.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import trio
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bpf.errors import BpfError
from experiments.dashboard.feed import Feed
from experiments.dashboard.health import Health
from experiments.dashboard.metrics import registry
from experiments.dashboard.switches import OwnerRequest, switch
from experiments.results import pages
from experiments.results.campus_layout import layout
from testbed.bounds import LARGEST_INTEGER
from testbed.emulation.safety.living import RunningCampus
from testbed.errors import RemoteProtocolError, SetupError, TestbedError
from testbed.trust.authority import LIFE_S, new_key
from testbed.trust.passes import claims_of, new_pass
from topologies.decoding import UNDECODABLE

HERE = Path(__file__).parent
LOOPBACK = ["127.0.0.1", "localhost"]
MAX_BODY = 4096
AUDIENCE = "page"
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
FILES = {
    "/": (HERE / "static/dashboard.html", "text/html; charset=utf-8"),
    "/page.css": (Path(pages.__file__).with_name("page.css"), "text/css"),
    "/dashboard.css": (HERE / "static/dashboard.css", "text/css"),
    "/dashboard.js": (HERE / "static/dashboard.js", "text/javascript"),
    "/charts.js": (HERE / "static/charts.js", "text/javascript"),
    "/campus.js": (HERE / "static/campus.js", "text/javascript"),
    "/favicon.svg": (HERE / "static/favicon.svg", "image/svg+xml"),
    "/grafana.json": (HERE / "prometheus/grafana.json", "application/json"),
    "/alerts.yml": (HERE / "prometheus/alerts.yml", "text/yaml"),
}


class RequestRefused(Exception):
    """A request that is answered with an error: status, and why in words."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status, self.words = status, words


class Application:
    """The page of a feed; `asgi` is served to those who send a `token`."""

    def __init__(self, feed: Feed, health: Health, campus: RunningCampus | None = None) -> None:
        self._feed, self._health = feed, health
        self._standing = campus if campus is not None and campus.volunteers else None
        self._key = new_key()
        self.registry = registry(feed, health)
        self._layout = layout(feed.source.campus)
        routes = [
            *(Route(path, self._file(*file)) for path, file in FILES.items()),
            Route("/api/campus", self._campus),
            Route("/api/head", self._head),
            Route("/api/at", self._at),
            Route("/api/fact", self._fact),
            Route("/api/switch", self._switch, methods=["POST"]),
            Route("/metrics", self._metrics),
            Route("/healthz", self._healthz),
        ]
        hosts = Middleware(TrustedHostMiddleware, allowed_hosts=LOOPBACK, www_redirect=False)
        handlers: dict[Any, Any] = {RequestRefused: _refused}
        starlette = Starlette(routes=routes, middleware=[hosts], exception_handlers=handlers)
        self.asgi: ASGIApp = _guarded(starlette, self._key.public_key())

    @property
    def token(self) -> str:
        """A new token, good for as long as a certificate is."""
        return new_pass(self._key, AUDIENCE, LIFE_S)

    # ------------------------------------------------------------ reading

    def _file(self, path: Path, kind: str) -> Callable[[Request], Awaitable[Response]]:
        body = path.read_bytes()

        async def answer(request: Request) -> Response:
            return Response(body, media_type=kind)

        return answer

    async def _campus(self, request: Request) -> Response:
        """Return the fixed data: the map, and the abilities of this page."""
        feed = self._feed
        return _json(
            {
                "name": feed.source.campus.name,
                "world": feed.source.world,
                "layout": self._layout,
                "reserve": {
                    "beta": feed.source.campus.research_reserve.beta,
                    "minimum": feed.source.campus.research_reserve.minimum_bytes_per_s,
                },
                "switches": self._standing is not None,
            }
        )

    async def _head(self, request: Request) -> Response:
        """Return the head of the run: what a reader of this version and fact lacks, and whether all is well."""
        version, number = int(_number(request, "version")), int(_number(request, "number"))
        return _json(self._feed.since(version, number) | {"health": self._health_now()})

    async def _at(self, request: Request) -> Response:
        """Return the picture at a time, and the last lines of the story until then."""
        at_s = _number(request, "s")
        picture = await self._feed.at(at_s)
        return _json(picture.picture() | {"story": self._feed.lines_until(at_s)})

    async def _fact(self, request: Request) -> Response:
        """Return all that a fact carries."""
        number = _number(request, "n")
        if not 0.0 <= number < LARGEST_INTEGER:  # no database takes another
            raise RequestRefused(400, f"n {number:g}: the number of a fact is expected")
        return _json(self._feed.fact(int(number)))

    async def _metrics(self, request: Request) -> Response:
        return Response(generate_latest(self.registry), headers={"content-type": CONTENT_TYPE_LATEST})

    async def _healthz(self, request: Request) -> Response:
        """Return the health as a status, for a service manager: 503 is not well."""
        told = self._health_now()
        return _json(told, 200 if told["ok"] else 503)

    def _health_now(self) -> dict[str, Any]:
        feed, health = self._feed, self._health
        if feed.broken:
            return {"ok": False, "words": feed.broken}
        if not (health.watched or health.forbidden):
            return {"ok": True, "words": f"a {feed.source.world} run"}
        if feed.over:
            return {"ok": False, "words": "the campus is gone"}
        if health.forbidden:
            return {"ok": True, "words": "only root may ask whether the coordinator answers"}
        ago_s = trio.current_time() - health.answered_s
        return {
            "ok": health.answers,
            "words": "the coordinator answers" if health.answers else "the coordinator does not answer",
            "answered_s_ago": ago_s if math.isfinite(ago_s) else None,
        }

    # ------------------------------------------------------------ writing

    async def _switch(self, request: Request) -> Response:
        """Apply an owner's request."""
        if self._standing is None:
            raise RequestRefused(409, "only the page of a campus that stands has owners' switches")
        origin = request.headers.get("origin")
        if origin is not None and origin != f"http://{request.headers.get('host', '')}":
            raise RequestRefused(403, "a request of another site's page")
        if request.headers.get("content-type", "").partition(";")[0] != "application/json":
            raise RequestRefused(415, "application/json is expected")
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > MAX_BODY:
                raise RequestRefused(413, f"at most {MAX_BODY} bytes")
        try:
            wish = msgspec.json.decode(body, type=OwnerRequest)
            return _json({"words": await switch(self._standing, wish)})
        except UNDECODABLE as error:
            raise RequestRefused(400, str(error)) from None
        except SetupError as error:  # of this user, whose page it is
            raise RequestRefused(403, str(error)) from None
        except TestbedError as error:
            raise RequestRefused(400, str(error)) from None
        except BpfError as error:
            raise RequestRefused(500, f"the kernel refuses: {error}") from None


def _guarded(app: ASGIApp, key: EllipticCurvePublicKey) -> ASGIApp:
    """Refuse what is of the run to those without a good token, and to another site's page, which would take the time of others.

    Every answer has `HEADERS`.
    """
    headers = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
    foreign = {(b"sec-fetch-site", b"cross-site"), (b"sec-fetch-site", b"same-site")}
    refusal = _json({"words": "a request of another site's page"}, 403)

    async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_more(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], *headers]}
            await send(message)

        answer = app
        if scope["type"] == "http" and scope["path"].startswith(("/api/", "/metrics")):
            token = dict(scope["headers"]).get(b"authorization", b"").decode("latin-1").removeprefix("Bearer ")
            try:
                claims_of(token, AUDIENCE, [key])
            except RemoteProtocolError as error:
                answer = _json({"words": f"{error}: open the address that `reclaimnet dashboard` prints"}, 401)
            if foreign & set(scope["headers"]):
                answer = refusal
        await answer(scope, receive, send_more)

    return wrapped


async def _refused(request: Request, error: RequestRefused) -> Response:
    return _json({"words": error.words}, error.status)


def _json(told: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(told), status, media_type="application/json")


def _number(request: Request, name: str) -> float:
    text = request.query_params.get(name, "")
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise RequestRefused(400, f"{name} {text!r}: a number is expected")
    return value
