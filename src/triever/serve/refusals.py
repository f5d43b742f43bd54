"""Every error that a client can see: a status, and a body of code, message and hint that stay as they are."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.exceptions import HTTPException
from starlette.responses import Response

from triever.errors import ArtifactError, Busy, DataError, UsageError
from triever.serve.answers import to_json
from triever.serve.batches import DeadlinePassed, QueueFull
from triever.serve.served import NotSaved

CODES: Mapping[str, tuple[int, str]] = {
    "malformed_json": (400, "The body is not JSON."),
    "wrong_host": (400, "The request calls the server by a name that it does not have."),
    "bad_request": (400, "The request cannot be read."),
    "wrong_key": (401, "A change of documents came without the key, or with another one."),
    "read_only": (403, "The server has no key, so that nobody can change anything."),
    "not_found": (404, "There is nothing at this path."),
    "unknown_retriever": (404, "No retriever has this name."),
    "unknown_document": (404, "No document has this id."),
    "method_not_allowed": (405, "The path is right, but not the method."),
    "already_there": (409, "A document that should be added has the id of another one."),
    "not_saved": (409, "The retriever is not in a folder, so that several workers cannot change it."),
    "too_large": (413, "The body has more bytes than the server reads."),
    "invalid_request": (422, "A field of the request is missing, unknown, or has a wrong value."),
    "too_many": (422, "The request has more queries, hits or letters than the server takes."),
    "cannot_answer": (422, "The retriever finds documents and does not answer questions."),
    "queue_full": (429, "Too many queries wait already."),
    "client_left": (499, "The client closed the connection before the answer; nobody sees this."),
    "internal_error": (500, "The server has a fault; its log has the details."),
    "loading": (503, "The retriever is being loaded."),
    "unavailable": (503, "The retriever cannot be used now; the log of the server says why."),
    "busy": (503, "Another process is writing to the retriever."),
    "deadline_passed": (504, "The request took longer than it may."),
}
"""Code -> status, and what it means. Clients rely on codes: they are never renamed."""
RETRY_AFTER = {"queue_full": 1, "loading": 2, "unavailable": 10, "busy": 5}
"""Seconds after which a client should try again, by code."""


class Refusal(HTTPException):
    """An error for a client: `Refusal("not_found", "there is nothing at /x", "see /openapi.json")`."""

    def __init__(self, code: str, message: str, hint: str, headers: Mapping[str, str] | None = None) -> None:
        status, _ = CODES[code]
        again = {"Retry-After": str(RETRY_AFTER[code])} if code in RETRY_AFTER else {}
        super().__init__(status, message, {**again, **(headers or {})})
        self.code, self.message, self.hint = code, message, hint

    @property
    def body(self) -> dict[str, str]:
        """The body of the answer."""
        return {"code": self.code, "message": self.message, "hint": self.hint}

    def response(self) -> Response:
        """The answer."""
        return Response(to_json(self.body), self.status_code, dict(self.headers or {}), "application/json")


def internal_error() -> Refusal:
    """What is said of a fault: nothing about its inside."""
    return Refusal("internal_error", "the server has made an error", "its log has the details")


def of_http(error: HTTPException) -> Refusal:
    """What the framework refuses: unknown paths and methods, and bodies that cannot be read."""
    if isinstance(error, Refusal):
        return error
    if error.status_code == 404:
        return Refusal("not_found", "there is nothing at this path", "see /openapi.json for all that there is")
    if error.status_code == 405:
        return Refusal(
            "method_not_allowed", "this path has no such method", "see /openapi.json", dict(error.headers or {})
        )
    if error.status_code >= 500:
        return internal_error()
    return Refusal("bad_request", "the request cannot be read", "send JSON in UTF-8, as /openapi.json describes it")


def of_validation(errors: Sequence[Mapping[str, Any]]) -> Refusal:
    """What the checks of a request's fields found: the first of their findings."""
    first = errors[0]
    if first["type"] == "json_invalid":
        problem = str(first.get("ctx", {}).get("error", "it cannot be parsed"))
        return Refusal("malformed_json", f"the body is not valid JSON: {problem}", "check quotes, commas and brackets")
    where = ".".join(str(part) for part in first["loc"] if part != "body") or "the body"
    message = f"{where}: {first['msg']}"
    hint = "leave it out, or check its name" if first["type"] == "extra_forbidden" else "see /openapi.json"
    if where == "the body":
        hint = "send an object with the header Content-Type: application/json"
    return Refusal("invalid_request", message[:500], hint)


def of_error(error: Exception) -> Refusal:
    """What a client is told of an error of Triever or of the queue."""
    if isinstance(error, QueueFull):
        return Refusal("queue_full", "too many queries are waiting", "try again a little later")
    if isinstance(error, DeadlinePassed):
        return Refusal("deadline_passed", "the time for this request is over", "ask for less, or try again later")
    if isinstance(error, NotSaved):
        problem = "this retriever is in memory alone, and several workers have one each"
        return Refusal("not_saved", problem, "serve a saved folder, or start with --workers 1")
    if isinstance(error, UsageError | DataError):
        return Refusal("invalid_request", error.problem, error.hint or "see /openapi.json")
    if isinstance(error, Busy):
        return Refusal("busy", "another process is writing to this retriever", "try again a little later")
    if isinstance(error, ArtifactError):  # which names folders of the server
        return Refusal("unavailable", "the retriever cannot be read or written now", "the server's log says why")
    return internal_error()


def check_finite(value: Any) -> None:
    """Refuse numbers that JSON does not have, which Python's reader lets pass."""
    if isinstance(value, float) and not math.isfinite(value):
        raise Refusal("invalid_request", f"{value} is not a number that JSON has", "write null, or a text")
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        check_finite(part)
