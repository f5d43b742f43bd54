"""What holds for every request: who may write, how much is read, headers, the log, and no traceback for anybody."""

from __future__ import annotations

import hmac
import logging
import time

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from triever.printable import printable
from triever.serve.metrics import Metrics
from triever.serve.options import ServeOptions
from triever.serve.refusals import Refusal, internal_error

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
"""On every answer, errors too."""
DOCUMENTS = "/v1/documents"
WRITES = ("POST", "PUT", "DELETE")
METHODS = ("GET", "HEAD", "OPTIONS", "PATCH", *WRITES)
_log = logging.getLogger("triever.serve")


class Guard:
    """The outermost layer of the application."""

    def __init__(self, app: ASGIApp, options: ServeOptions, metrics: Metrics) -> None:
        self._app, self._options, self._metrics = app, options, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = _Exchange(scope, receive, send, self._limit(scope))
        try:
            self._check(scope)
            await self._app(scope, exchange.receive, exchange.send)
        except Refusal as refusal:
            await refusal.response()(scope, receive, exchange.send)
        except Exception:
            _log.exception("%s %s failed", scope["method"], printable(scope["path"]))
            if exchange.status:
                raise  # half of an answer is out: the connection ends here
            await internal_error().response()(scope, receive, exchange.send)
        finally:
            self._note(scope, exchange)

    def _limit(self, scope: Scope) -> int:
        return self._options.write_body if scope["path"] == DOCUMENTS else self._options.body

    def _check(self, scope: Scope) -> None:
        """Refuse a request by its headers, before its body is read."""
        headers, limit = Headers(scope=scope), self._limit(scope)
        names = self._options.own_names
        if names and _host(headers.get("host", "")) not in names:
            raise Refusal("wrong_host", "this server has another name", "set hosts, or use the name it listens on")
        length = headers.get("content-length", "0")
        if length.isdecimal() and int(length[:20]) > limit:
            raise too_large(limit)
        if scope["path"] == DOCUMENTS and scope["method"] in WRITES:
            self._check_key(headers.get("authorization", ""))

    def _check_key(self, authorization: str) -> None:
        if not self._options.key:
            raise Refusal("read_only", "this server has no key for changes", "start it with a key: TRIEVER_KEY=...")
        kind, _, given = authorization.partition(" ")
        same = hmac.compare_digest(given.strip().encode(), self._options.key.encode())
        if kind.lower() != "bearer" or not same:
            raise Refusal(
                "wrong_key",
                "changes need the key of this server",
                "send the header Authorization: Bearer KEY",
                {"WWW-Authenticate": "Bearer"},
            )

    def _note(self, scope: Scope, exchange: _Exchange) -> None:
        """Count a request, and log it: never with its query, unless that is wanted."""
        seconds = time.perf_counter() - exchange.started
        route = getattr(scope.get("route"), "path", "other")
        method = scope["method"] if scope["method"] in METHODS else "other"  # a client may send any word
        self._metrics.requests.labels(method, route, str(exchange.status)).inc()
        self._metrics.seconds.labels(route).observe(seconds)
        if self._options.log == "none":
            return
        texts = scope.get("state", {}).get("queries", ()) if self._options.log == "queries" else ()
        about = "".join(f" {text!r}" for text in texts)
        path = printable(scope["path"])
        _log.info("%s %s %d %.1f ms%s", method, path, exchange.status, 1000 * seconds, about)


class _Exchange:
    """One request and its answer: the body is counted, and the answer gets the headers that all have."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, limit: int) -> None:
        self.status, self.started = 0, time.perf_counter()
        self._scope, self._receive, self._send = scope, receive, send
        self._limit, self._read = limit, 0

    async def receive(self) -> Message:
        message = await self._receive()
        self._read += len(message.get("body", b""))
        if self._read > self._limit:
            raise too_large(self._limit)
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers[name] = value
            if self._scope["path"].startswith("/v1/"):
                headers["Cache-Control"] = "no-store"
        await self._send(message)


def too_large(limit: int) -> Refusal:
    """What is said of a body that is too large."""
    return Refusal("too_large", f"the body has more than {limit:,} bytes", "send it in several requests")


def _host(value: str) -> str:
    """The name in a header, without the port: `localhost:8000`, `[::1]:8000`."""
    return value[1:].partition("]")[0] if value.startswith("[") else value.partition(":")[0].lower()
