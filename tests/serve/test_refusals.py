"""Every error has a status and a body of code, message and hint; what leaks out of a fault is nothing."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.marks import quick
from tests.retrievers.contract import dataset
from tests.serve.running import HEADERS, KEY, Running, bm25, options, running, until
from triever import BM25, UsageError, artifact
from triever.config import options as fields_of
from triever.serve import ServeOptions, create_app, served
from triever.serve.refusals import CODES, RETRY_AFTER

JSON = {"Content-Type": "application/json"}
NEW = {"id": "new", "text": "A new one."}
SEARCH = ("POST", "/v1/search")
BAD: dict[str, tuple[str, str, dict[str, Any], str]] = {
    "no JSON": (*SEARCH, {"content": '{"query": ', "headers": JSON}, "malformed_json"),
    "an empty body": (*SEARCH, {"content": "", "headers": JSON}, "invalid_request"),
    "a list": (*SEARCH, {"json": [1]}, "invalid_request"),
    "another content type": (*SEARCH, {"content": '{"query": "x"}'}, "invalid_request"),
    "bytes that are no UTF-8": (
        "POST",
        "/v1/search",
        {"content": b'{"query": "\xff"}', "headers": JSON},
        "bad_request",
    ),
    "half of a surrogate pair": (
        "POST",
        "/v1/search",
        {"content": '{"query": "\\ud800"}', "headers": JSON},
        "invalid_request",
    ),
    "no query": (*SEARCH, {"json": {}}, "invalid_request"),
    "two ways to ask": (*SEARCH, {"json": {"query": "x", "queries": ["y"]}}, "invalid_request"),
    "an unknown field": (*SEARCH, {"json": {"qury": "x"}}, "invalid_request"),
    "a number as query": (*SEARCH, {"json": {"query": 5}}, "invalid_request"),
    "no hits": (*SEARCH, {"json": {"query": "x", "k": 0}}, "invalid_request"),
    "half a hit": (*SEARCH, {"json": {"query": "x", "k": 1.5}}, "invalid_request"),
    "too many hits": (*SEARCH, {"json": {"query": "x", "k": 100_000}}, "too_many"),
    "too many queries": (*SEARCH, {"json": {"queries": ["x"] * 1000}}, "too_many"),
    "too many texts": (*SEARCH, {"json": {"queries": ["x"] * 20, "k": 1000}}, "too_many"),
    "a long query": (*SEARCH, {"json": {"query": "x" * 5000}}, "too_many"),
    "a filter that is none": (
        "POST",
        "/v1/search",
        {"json": {"query": "x", "where": {"words": {"~": 1}}}},
        "invalid_request",
    ),
    "a filter by an unknown key": (
        "POST",
        "/v1/search",
        {"json": {"query": "x", "where": {"wrods": 1}}},
        "invalid_request",
    ),
    "a timeout of nothing": (*SEARCH, {"json": {"query": "x", "timeout": 0}}, "invalid_request"),
    "an unknown retriever": (*SEARCH, {"json": {"query": "x", "retriever": "onne"}}, "unknown_retriever"),
    "an unknown one beside": (
        "POST",
        "/v1/compare",
        {"json": {"query": "x", "retrievers": ["z"]}},
        "unknown_retriever",
    ),
    "an unknown one to describe": ("GET", "/v1/retrievers/z", {}, "unknown_retriever"),
    "a question for what finds": ("POST", "/v1/answer", {"json": {"question": "x"}}, "cannot_answer"),
    "an answer from no probability": (
        "POST",
        "/v1/answer",
        {"json": {"question": "x", "known_from": 1.5}},
        "invalid_request",
    ),
    "a blank question": ("POST", "/v1/answer", {"json": {"questions": ["x", " "]}}, "invalid_request"),
    "an unknown document": ("GET", "/v1/documents", {"params": {"id": "z"}}, "unknown_document"),
    "no document": ("GET", "/v1/documents", {}, "invalid_request"),
    "an unknown path": ("GET", "/v2/search", {}, "not_found"),
    "a path upwards": ("GET", "/assets/../../secret", {}, "not_found"),
    "another method": ("GET", "/v1/search", {}, "method_not_allowed"),
    "a large body": (*SEARCH, {"json": {"query": "x" * 1_100_000}}, "too_large"),
    "a large body in pieces": (
        "POST",
        "/v1/search",
        {"content": iter([b" " * 600_000] * 2), "headers": JSON},
        "too_large",
    ),
    "another host": ("GET", "/healthz", {"headers": {"Host": "example.org"}}, "wrong_host"),
    "a change without a key": ("POST", "/v1/documents", {"json": {"documents": [NEW]}}, "wrong_key"),
    "a change with another key": (
        *("DELETE", "/v1/documents", {"params": {"id": "tea"}, "headers": {"Authorization": "Bearer sesame"}}),
        "wrong_key",
    ),
    "a key of another kind": (
        *("PUT", "/v1/documents", {"json": {"documents": [NEW]}, "headers": {"Authorization": f"Basic {KEY}"}}),
        "wrong_key",
    ),
    "a document that is there": (
        *("POST", "/v1/documents", {"json": {"documents": [{"id": "tea", "text": "x"}]}, "headers": HEADERS}),
        "already_there",
    ),
    "two new ones of one id": (
        *("POST", "/v1/documents", {"json": {"documents": [NEW, NEW]}, "headers": HEADERS}),
        "invalid_request",
    ),
    "an id with a line break": (
        *("POST", "/v1/documents", {"json": {"documents": [{"id": "a\nb", "text": "x"}]}, "headers": HEADERS}),
        "invalid_request",
    ),
    "a number that JSON has not": (
        *("POST", "/v1/documents"),
        {"content": '{"documents": [{"id": "n", "text": "", "metadata": {"x": NaN}}]}', "headers": {**HEADERS, **JSON}},
        "invalid_request",
    ),
    "to delete what is not there": (
        *("DELETE", "/v1/documents", {"params": {"id": ["tea", "z"]}, "headers": HEADERS}),
        "unknown_document",
    ),
}


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running({"one": bm25(), "other": bm25()}) as server:
        yield server


def check(answer: Any, code: str) -> None:
    """An answer is the error of this code, with all that every error has."""
    body = answer.json()
    assert (answer.status_code, body["code"]) == (CODES[code][0], code), body
    assert set(body) == {"code", "message", "hint"}
    assert body["message"]
    assert body["hint"]
    assert answer.headers["content-type"] == "application/json"
    assert "content-security-policy" in answer.headers
    assert ("retry-after" in answer.headers) == (code in RETRY_AFTER)


@pytest.mark.parametrize("what", BAD)
def test_a_bad_request_is_told_what_is_wrong(server: Running, what: str) -> None:
    method, path, request, code = BAD[what]
    check(server.client.request(method, path, **request), code)


def test_nothing_was_changed_by_any_of_them(server: Running) -> None:
    assert server.client.get("/v1/retrievers/one").json()["documents"] == 10


def test_hints_name_the_nearest(server: Running) -> None:
    assert server.post("/v1/search", query="x", retriever="onne").json()["hint"] == "did you mean one?"
    assert server.post("/v1/search", query="x", where={"wrods": 1}).json()["hint"] == "did you mean words?"


def test_without_a_key_nobody_changes_anything() -> None:
    with running({"one": bm25()}, options(key="")) as server:
        for authorization in ({}, HEADERS, {"Authorization": "Bearer"}):
            check(server.client.post("/v1/documents", json={"documents": [NEW]}, headers=authorization), "read_only")
        assert not server.client.get("/v1/retrievers/one").json()["writable"]


def test_a_fault_says_nothing_of_its_inside(caplog: pytest.LogCaptureFixture) -> None:
    class Faulty(BM25):
        def search_many(self, queries: Any, *words: Any, **more: Any) -> Any:
            if "secret" in queries[0]:
                raise RuntimeError("the secret is 42")
            return super().search_many(queries, *words, **more)

    faulty = Faulty().fit(dataset())
    with running({"one": faulty}) as server, caplog.at_level(logging.ERROR, "triever.serve"):
        answer = server.post("/v1/search", query="secret")
        check(answer, "internal_error")
        assert "42" not in answer.text
        assert server.post("/v1/search", query="water").status_code == 200
    assert "the secret is 42" in caplog.text, "the log has it"


def test_a_retriever_that_is_loading_or_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bm25().save(tmp_path / "good")
    release = threading.Event()
    load = served.load
    monkeypatch.setattr(served, "load", lambda path: (release.wait(20), load(path))[1])
    with running({"good": tmp_path / "good", "bad": tmp_path / "bad"}, ready=False) as server:
        check(server.post("/v1/search", query="x"), "loading")
        check(server.client.get("/readyz"), "loading")
        assert server.client.get("/healthz").status_code == 200
        release.set()
        until(lambda: server.client.get("/readyz").json().get("code") == "unavailable")
        check(server.post("/v1/search", query="x", retriever="bad"), "unavailable")
        assert server.post("/v1/search", query="x", retriever="good").status_code == 200
        assert str(tmp_path) not in server.post("/v1/search", query="x", retriever="bad").text
        bm25().save(tmp_path / "bad")
        until(lambda: server.client.get("/readyz").status_code == 200)


@pytest.mark.long
def test_a_retriever_in_memory_is_not_changed_by_one_of_several_workers() -> None:
    with running({"one": bm25()}, options(workers=2)) as server:
        check(server.client.delete("/v1/documents", params={"id": "tea"}, headers=HEADERS), "not_saved")


@pytest.mark.long
def test_a_folder_that_another_process_writes_to(tmp_path: Path) -> None:
    bm25().save(tmp_path / "m")
    with running({"m": tmp_path / "m"}, options(wait=0)) as server, artifact.writing(tmp_path / "m"):
        check(server.client.delete("/v1/documents", params={"id": "tea"}, headers=HEADERS), "busy")


SEEN_ELSEWHERE = {"queue_full", "deadline_passed", "client_left"}  # test_batches.py


def test_every_code_has_a_test() -> None:
    here = {code for *_, code in BAD.values()} | set(re.findall(r'check\(.*"(\w+)"\)', Path(__file__).read_text()))
    assert here | SEEN_ELSEWHERE == set(CODES)


def test_the_page_has_every_option(root: Path) -> None:
    page = (root / "docs" / "serving.md").read_text(encoding="utf-8")
    for name, field in fields_of(ServeOptions).items():
        assert f"| `{name}` | {field.metadata['help']} |" in page


def test_the_page_has_every_code(root: Path) -> None:
    page = (root / "docs" / "serving.md").read_text(encoding="utf-8")
    rows = [f"| {status} | `{code}` | {meaning} |" for code, (status, meaning) in CODES.items() if status != 499]
    assert "\n".join(rows) in page, "write the table of docs/serving.md again from CODES"


@pytest.mark.parametrize("log", quick("requests", of=["requests", "queries", "none"]))
def test_log_lines_have_no_queries_unless_asked(caplog: pytest.LogCaptureFixture, log: str) -> None:
    # The line follows the answer: the server has to be over before anybody looks.
    with caplog.at_level(logging.INFO, "triever.serve"), running({"one": bm25()}, options(log=log)) as server:
        server.post("/v1/search", query="boiling water")
    lines = [record.getMessage() for record in caplog.records if "/v1/search" in record.getMessage()]
    assert bool(lines) == (log != "none")
    assert any("boiling water" in line for line in lines) == (log == "queries")


@pytest.mark.long
def test_other_sites_may_ask_only_if_they_are_named() -> None:
    asked = {"Origin": "https://example.org"}
    with running({"one": bm25()}, options(origins=("https://example.org",))) as server:
        assert server.client.get("/healthz", headers=asked).headers["access-control-allow-origin"] == asked["Origin"]
        other = server.client.get("/healthz", headers={"Origin": "https://example.com"})
        assert "access-control-allow-origin" not in other.headers


WRONG: Sequence[tuple[dict[str, Any], str]] = [
    ({"most": 0}, "most"),
    ({"window": -1.0}, "window"),
    ({"poll": 0.0}, "poll"),
    ({"port": 70_000}, "port"),
    ({"queue": 10}, "queue"),
    ({"key": "two words"}, "key"),
    ({"log": "all"}, "log"),
    ({"deadline": "soon"}, "deadline"),
]


@pytest.mark.parametrize(("values", "named"), WRONG)
def test_options_that_do_not_fit_are_named(values: dict[str, Any], named: str) -> None:
    with pytest.raises(UsageError, match=named):
        ServeOptions(**values)


@pytest.mark.parametrize("retrievers", [{}, [], None, {"a": 5}, {"": bm25()}, {"a": BM25()}])
def test_what_cannot_be_served_is_refused(retrievers: Any) -> None:
    with pytest.raises(UsageError):
        create_app(retrievers)


def test_the_key_is_not_shown() -> None:
    assert KEY not in repr(ServeOptions(key=KEY))
