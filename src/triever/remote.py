"""A retriever behind a server: `triever.connect(url)` searches, explains and changes it as if it were here.

Only the standard library is needed. Hits carry ids and scores; titles and texts are fetched when they are asked for.
Threads may share a connection: each has its own socket.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import logging
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from urllib.parse import quote, unquote, urlencode, urlsplit

from triever.arguments import brief, listed, table, text, whole
from triever.data.records import Answer, Document, Found, Hit, Query, Result, Source, normalise
from triever.errors import ServerError, UsageError
from triever.printable import an
from triever.retriever import Explanation, Retriever, questions_of, texts_of

TIMEOUT = 60.0
"""Seconds that an answer may take."""
TOGETHER = 100
"""Queries that one request asks for."""
LOOKED_UP = 50
"""Documents that one request looks up."""
KEPT = 4096
"""Documents that are kept once they were looked up."""
TRIES = 5
"""How often a server is asked that says it is too busy."""
LATER = (429, 503)
"""The answers of such a server."""
_log = logging.getLogger("triever")


def is_address(word: str) -> bool:
    """Whether a word names a server, such as http://127.0.0.1:8000/NAME."""
    return word.startswith(("http://", "https://"))


def connect(url: str, key: str | None = None, *, timeout: float = TIMEOUT) -> Remote:
    """A retriever of a server: `connect("http://127.0.0.1:8000/NAME")`; without NAME, the server's first.

    Changes need the server's key.
    """
    connection = _Connection(text(url, "url"), text(key or "", "key"), timeout)
    known = connection.call("GET", "/v1/retrievers")["retrievers"]
    name = connection.name or known[0]["name"]
    about = _loaded(connection, name, timeout)
    kind = RemoteAnswerer if about.get("answers") else Remote
    return kind(connection, name, about)


def _loaded(connection: _Connection, name: str, timeout: float) -> dict[str, Any]:
    """What a server says of a retriever, once it has loaded it."""
    until = time.monotonic() + timeout
    while True:
        about = connection.call("GET", f"/v1/retrievers/{quote(name, safe='')}")
        if about["state"] != "loading" or time.monotonic() > until:
            return about
        time.sleep(0.1)


class Remote:
    """A retriever of a server, as `connect` gives it."""

    def __init__(self, connection: _Connection, name: str, about: Mapping[str, Any]) -> None:
        self._connection, self.name, self.kind = connection, name, str(about.get("kind", ""))
        self.documents = RemoteDocuments(connection, name)

    @property
    def url(self) -> str:
        """The address of the retriever."""
        return f"{self._connection.address}/{quote(self.name, safe='')}"

    @property
    def about(self) -> dict[str, Any]:
        """What the server says of it now: documents, bytes, options."""
        return self._connection.call("GET", f"/v1/retrievers/{quote(self.name, safe='')}")

    @property
    def fingerprint(self) -> str:
        """SHA-256 over the ids, titles and texts of the documents it holds now."""
        return self.about["fingerprint"]

    def __len__(self) -> int:
        return self.about["documents"]

    def __bool__(self) -> bool:
        return True  # a retriever without documents is still a retriever

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.url}>"

    def search(self, query: str | Query, k: int = 10, *, where: Mapping[str, object] | None = None) -> Result:
        """The k best documents; `where` filters them by metadata."""
        return self.search_many([query], k, where=where)[0]

    def search_many(
        self, queries: Sequence[str | Query], k: int = 10, *, where: Mapping[str, object] | None = None
    ) -> list[Result]:
        """The same for many queries at once, in their order."""
        texts, results = texts_of(queries), []
        asked = {"k": whole(k, "k"), "where": _filter(where), "show": "ids"}
        for start in range(0, len(texts), TOGETHER):
            part = texts[start : start + TOGETHER]
            answer = self._ask("/v1/search", queries=part, **asked)
            results += [self._result(values, query) for values, query in zip(answer["results"], part, strict=True)]
        return results

    def explain(self, query: str | Query, k: int = 10, *, where: Mapping[str, object] | None = None) -> Explanation:
        """The same search, with what each score is made of."""
        asked = texts_of([query])[0]
        answer = self._ask("/v1/explain", query=asked, k=whole(k, "k"), where=_filter(where), show="ids")
        told = answer["explanation"]
        result = self._result({"hits": answer["hits"], "note": told.get("note", "")}, asked)
        parts = tuple(tuple(hit.get("parts", {}).items()) for hit in told["hits"])
        return RemoteExplanation(asked, result, parts, told.get("note", ""), told=told)

    def ask(self, question: str | Query, *, where: Mapping[str, object] | None = None) -> Answer:
        """Refused: only a `RemoteAnswerer` answers."""
        problem = f"{self.name} is {an(self.kind)} retriever, which finds documents and does not answer"
        raise UsageError(problem, "connect to a reatt or an answerer")

    def add(self, documents: Iterable[Document]) -> None:
        """Take new documents in. An id that is there already is refused, and then nothing is added."""
        self._send("POST", documents, "add")

    def replace(self, documents: Iterable[Document]) -> None:
        """Take documents in; those whose ids are there already take the place of the old ones."""
        self._send("PUT", documents, "replace")

    def delete(self, ids: Iterable[str]) -> None:
        """Drop documents by id. An id that is not there is refused, and then nothing is dropped."""
        gone = [*dict.fromkeys(normalise(key) for key in listed(ids, str, "delete", "ids"))]
        if len(gone) > LOOKED_UP:  # several requests: nothing is dropped before all are known to be there
            self.documents.look_up(gone)
            for key in gone:
                self.documents.document(key)
        for start in range(0, len(gone), LOOKED_UP):
            words = urlencode([("retriever", self.name), *(("id", key) for key in gone[start : start + LOOKED_UP])])
            self._connection.call("DELETE", f"/v1/documents?{words}")
        self.documents.forget()

    def _send(self, method: str, documents: Iterable[Document], where: str) -> None:
        new = [document_values(document) for document in listed(documents, Document, where, "documents")]
        if new:
            self._connection.call(method, "/v1/documents", {"retriever": self.name, "documents": new})
            self.documents.forget()

    def _ask(self, path: str, **values: Any) -> dict[str, Any]:
        return self._connection.call("POST", path, {"retriever": self.name, **values}, again=True)

    def _result(self, values: Mapping[str, Any], query: str) -> Result:
        hits = tuple(_hit(hit) for hit in values["hits"])
        for hit in hits:
            hit.came_from(Found(self.documents, query))
        told = {key: values[key] for key in ("note", "certificate", "answer", "thought") if key in values}
        return Result(hits, **told)


class RemoteAnswerer(Remote):
    """A retriever of a server that answers questions too."""

    def ask(self, question: str | Query, *, where: Mapping[str, object] | None = None) -> Answer:
        """The answer to a question, with what it was written from; `where` filters documents as in a search."""
        return self.ask_many([question], where=where)[0]

    def ask_many(
        self, questions: Sequence[str | Query], *, where: Mapping[str, object] | None = None, matches: bool = True
    ) -> list[Answer]:
        """The same for many questions at once, in their order."""
        texts, answers = questions_of(questions), []
        for start in range(0, len(texts), TOGETHER):
            part = texts[start : start + TOGETHER]
            told = self._ask("/v1/answer", questions=part, where=_filter(where), matches=matches)
            answers += [self._answer(values) for values in told["answers"]]
        return answers

    def _answer(self, values: Mapping[str, Any]) -> Answer:
        sources = []
        for source in values["sources"]:
            span = tuple(source["span"]) if "span" in source else None
            hit = Hit(source["id"], source["score"], span=span)
            hit.came_from(Found(self.documents, values["question"]))
            matches = tuple((own, other, weight) for own, other, weight in source["matches"])
            sources.append(Source(hit, source["share"], matches, source.get("holds_answer")))
        told = (values[name] for name in ("question", "answer", "probability", "written"))
        return Answer(*told, tuple(sources), values.get("note", ""))  # servers of earlier versions send no note


@dataclass(frozen=True)
class RemoteExplanation(Explanation):
    """An explanation of a server; `to_dict` has all that the server told, whatever its retriever is."""

    told: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """The same as plain values, for JSON."""
        return dict(self.told)


Searcher: TypeAlias = Retriever | Remote
"""What can be searched and measured, here or behind a server."""


class RemoteDocuments:
    """The documents of a server's retriever, looked up by id; the latest ones are kept."""

    def __init__(self, connection: _Connection, name: str) -> None:
        self._connection, self._name = connection, name
        self._known: dict[str, Document | None] = {}

    def document(self, document_id: str) -> Document:
        """The document with this id."""
        self.look_up([document_id])
        document = self._known.get(document_id)
        if document is None:
            raise UsageError(f"there is no document with id {document_id!r}", "check the id")
        return document

    def __contains__(self, document_id: object) -> bool:
        if not isinstance(document_id, str):
            return False
        self.look_up([document_id])
        return self._known.get(document_id) is not None

    def look_up(self, ids: Iterable[str]) -> None:
        """Fetch documents that will be asked for, many with one request."""
        wanted = [key for key in dict.fromkeys(ids) if key not in self._known]
        while len(self._known) + len(wanted) > KEPT and self._known:
            self._known.pop(next(iter(self._known)))
        for start in range(0, len(wanted), LOOKED_UP):
            part = wanted[start : start + LOOKED_UP]
            self._known |= dict.fromkeys(part) | {document.id: document for document in self._fetched(part)}

    def forget(self) -> None:
        """Look everything up again, since it has changed."""
        self._known.clear()

    def _fetched(self, ids: Sequence[str]) -> list[Document]:
        words = urlencode([("retriever", self._name), *(("id", key) for key in ids)])
        answer = self._connection.call("GET", f"/v1/documents?{words}", again=True, missing=("unknown_document",))
        return [
            Document.stored(one["id"], one["text"], one["title"], tuple(one["expansions"]), one["metadata"])
            for one in (answer or {}).get("documents", ())
        ]


class _Connection:
    """Requests to one server, with a socket for each thread that stays open."""

    def __init__(self, url: str, key: str, timeout: float) -> None:
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise UsageError(f"{brief(url)} is no address: {error}", "for example: http://127.0.0.1:8000") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(f"{brief(url)} is no address of a server", "for example: http://127.0.0.1:8000/NAME")
        if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not timeout > 0:
            raise UsageError(f"timeout = {brief(timeout)} should be seconds above zero", "for example: timeout=60")
        self._secure, self._host, self._port = parts.scheme == "https", parts.hostname, port
        self.address = f"{parts.scheme}://{parts.netloc}"
        self.name = unquote(parts.path.strip("/"))
        self._key, self._timeout, self._own = key, timeout, threading.local()

    def call(
        self, method: str, path: str, body: object = None, *, again: bool = False, missing: Sequence[str] = ()
    ) -> Any:
        """The answer as a value; nothing where its code is one of `missing`. With `again`, a busy server is retried."""
        for attempt in range(TRIES):
            status, later, values = self._once(method, path, body, again=again or method == "GET")
            if status not in LATER or not again or attempt == TRIES - 1:
                break
            time.sleep(min(later, 2.0))
        if status < 400:
            return values
        code, message, hint = (str(values.get(key, "")) for key in ("code", "message", "hint"))
        if code in missing:
            return None
        if status < 500 and status != 429:
            raise UsageError(message or f"{self.address} refuses this with {status}", hint or "check the address")
        raise ServerError(f"{self.address} answers {status}: {message or 'nothing more'}", hint or "try again later")

    def _once(self, method: str, path: str, body: object, *, again: bool) -> tuple[int, float, Any]:
        content = None if body is None else json.dumps(body, allow_nan=False).encode()
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        headers |= {"Authorization": f"Bearer {self._key}"} if self._key else {}
        for fresh in (False, True):
            try:
                connection = self._opened(fresh)
                connection.request(method, path, content, headers)
                answer = connection.getresponse()
                return answer.status, _seconds(answer.getheader("Retry-After")), _values(answer.read())
            except (OSError, http.client.HTTPException, ValueError) as error:
                self._closed()
                stale = isinstance(error, ConnectionError | http.client.HTTPException) and again and not fresh
                if not stale:  # an open socket that the server has closed meanwhile is tried once more
                    reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
                    raise ServerError(
                        f"{self.address} cannot be reached: {reason}", "start the server, or check the address"
                    ) from error
        raise AssertionError("the second try has returned or raised")

    def _opened(self, fresh: bool) -> http.client.HTTPConnection:
        connection = getattr(self._own, "connection", None)
        if connection is None or fresh:
            kind = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
            connection = self._own.connection = kind(self._host, self._port, timeout=self._timeout)
        return connection

    def _closed(self) -> None:
        with contextlib.suppress(OSError, AttributeError):
            self._own.connection.close()
        self._own.connection = None


def _values(content: bytes) -> Any:
    try:
        return json.loads(content)
    except ValueError:
        return {}


def _seconds(header: str | None) -> float:
    return float(header) if header and header.isdecimal() else 1.0


def _filter(where: Mapping[str, object] | None) -> dict[str, object] | None:
    return dict(table(where, "where", '{"year": ">=2020"}')) if where is not None else None


def _hit(values: Mapping[str, Any]) -> Hit:
    span = values.get("span")
    return Hit(values["id"], values["score"], values.get("docid"), values.get("logprob"), tuple(span) if span else None)


def document_values(document: Document) -> dict[str, Any]:
    """A document as plain values, as servers and clients send it to each other."""
    return {
        "id": document.id,
        "title": document.title,
        "text": document.text,
        "expansions": list(document.expansions),
        "metadata": dict(document.metadata),
    }
