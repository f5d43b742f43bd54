"""The server's results are the library's: the same ids, docids and titles, scores to 1e-6."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import triever
from tests.retrievers.contract import QUERIES, dataset
from tests.serve.running import Running, bm25, running
from triever import Answerer, Dense, DocidTuning, Generative, ReaderTuning, Retriever, Tuning
from triever.serve import front

TINY = "scratch:hidden=32,layers=1,heads=2,vocabulary=1000"
TEXTS = [query.text for query in QUERIES]
UNKNOWN = "xylophone"


def made(kind: str) -> Retriever:
    if kind == "bm25":
        return bm25()
    if kind == "dense":
        return Dense(backbone=TINY, size=16, training=Tuning(steps=0)).fit(dataset())
    if kind == "generative":
        return Generative(backbone=TINY, training=DocidTuning(steps=2, batch=4)).fit(dataset())
    return Answerer(backbone=TINY, training=ReaderTuning(steps=0)).fit(dataset())


def check(hits: list[dict[str, Any]], expected: triever.Result) -> None:
    assert [hit["id"] for hit in hits] == [hit.id for hit in expected]
    assert [hit["score"] for hit in hits] == pytest.approx([hit.score for hit in expected], abs=1e-6)
    assert [hit.get("docid") for hit in hits] == [hit.docid for hit in expected]
    for hit, own in zip(hits, expected, strict=True):
        assert hit.get("logprob") == pytest.approx(own.logprob, abs=1e-6)
        if "title" in hit:
            assert (hit["title"], hit["metadata"]) == (own.title, own.metadata)
            assert hit["snippet"]["text"] == str(own.snippet)
            assert [tuple(match) for match in hit["snippet"]["matches"]] == [*own.snippet.matches]


@pytest.mark.parametrize("kind", ["bm25", "dense", "generative"])
def test_a_server_finds_what_the_library_finds(kind: str) -> None:
    retriever = made(kind)
    with running({kind: retriever}) as server:
        expected = retriever.search_many(TEXTS, 5)
        results = server.post("/v1/search", queries=TEXTS, k=5).json()["results"]
        assert [result["query"] for result in results] == TEXTS
        for result, own in zip(results, expected, strict=True):
            check(result["hits"], own)
        alone = server.post("/v1/search", query=TEXTS[0], k=3).json()["results"][0]
        check(alone["hits"], retriever.search(TEXTS[0], 3))
        told = server.post("/v1/explain", query=TEXTS[0], k=3).json()
        own_explanation = retriever.explain(TEXTS[0], 3)
        check(told["hits"], own_explanation.result)
        for hit, own_hit in zip(told["explanation"]["hits"], own_explanation.to_dict()["hits"], strict=True):
            assert hit["parts"] == pytest.approx(own_hit["parts"], abs=1e-5)


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running({"one": bm25(), "two": bm25(triever.Document("zebra", "A zebra by the water."))}) as server:
        yield server


def test_a_filter_is_the_librarys(server: Running) -> None:
    where = {"words": ">=11"}
    hits = server.post("/v1/search", query="water", where=where, k=10).json()["results"][0]["hits"]
    check(hits, bm25().search("water", 10, where=where))
    assert 0 < len(hits) < len(bm25().search("water", 10))


@pytest.mark.parametrize(("show", "keys"), [("ids", set()), ("snippet", {"title", "snippet", "metadata"})])
def test_hits_carry_what_was_asked_for(server: Running, show: str, keys: set[str]) -> None:
    hit = server.post("/v1/search", query="boiling water", show=show, k=1).json()["results"][0]["hits"][0]
    assert set(hit) == {"id", "score"} | keys


def test_hits_carry_whole_texts(server: Running) -> None:
    hit = server.post("/v1/search", query="boiling water", show="text", k=1).json()["results"][0]["hits"][0]
    assert hit["text"] == bm25().search("boiling water", 1)[0].text


def test_retrievers_side_by_side(server: Running) -> None:
    compared = server.post("/v1/compare", query="water", k=4).json()
    assert [result["retriever"] for result in compared["results"]] == ["one", "two"]
    check(compared["results"][0]["hits"], bm25().search("water", 4))
    assert "zebra" in {hit["id"] for hit in compared["results"][1]["hits"]}
    one = server.post("/v1/compare", query="water", retrievers=["two"]).json()
    assert [result["retriever"] for result in one["results"]] == ["two"]


def test_what_is_served_is_described(server: Running) -> None:
    one, two = server.client.get("/v1/retrievers").json()["retrievers"]
    assert (one["name"], one["kind"], one["documents"], one["state"]) == ("one", "bm25", 10, "ready")
    assert two["documents"] == 11
    assert one["fingerprint"] == bm25().fingerprint
    assert one["bytes"] == sum(one["bytes_by_part"].values()) > 0
    assert one["options"] == {}
    assert server.client.get("/v1/retrievers/two").json() == two


@pytest.mark.long
def test_options_that_are_not_the_default_are_described() -> None:
    with running({"one": triever.BM25(k1=0.5).fit(dataset())}) as server:
        assert server.client.get("/v1/retrievers/one").json()["options"] == {"k1": 0.5}


def test_documents_can_be_looked_up(server: Running) -> None:
    answer = server.client.get("/v1/documents", params={"id": ["tea", "東京", "nobody"]}).json()
    known = {document.id: document for document in bm25().documents}
    assert answer["missing"] == ["nobody"]
    for values in answer["documents"]:
        own = known[values["id"]]
        assert (values["text"], values["title"], values["metadata"]) == (own.text, own.title, own.metadata)


def test_numbers_for_prometheus(server: Running) -> None:
    server.post("/v1/search", query="water")
    text = server.client.get("/metrics").text
    assert 'triever_documents{retriever="two"} 11.0' in text
    assert 'triever_requests_total{method="POST",route="/v1/search",status="200"}' in text
    assert "water" not in text


def test_health(server: Running) -> None:
    assert server.client.get("/healthz").json() == {"status": "ok"}
    assert server.client.get("/readyz").json() == {"status": "ready"}


@pytest.mark.long
def test_answers_are_the_librarys() -> None:
    answerer = made("answerer")
    with running({"reads": answerer}) as server:
        [answer] = server.post("/v1/answer", question=TEXTS[0]).json()["answers"]
        own = answerer.ask(TEXTS[0]).to_dict()
        assert answer["written"] == own["written"]
        assert answer["probability"] == pytest.approx(own["probability"], abs=1e-6)
        assert [source["id"] for source in answer["sources"]] == [source["id"] for source in own["sources"]]
        for known_from, given in ((0, own["written"]), (1, None)):
            [answer] = server.post("/v1/answer", question=TEXTS[0], known_from=known_from).json()["answers"]
            assert (answer["answer"], answer["written"]) == (given, own["written"])
        remote = triever.connect(server.url)
        assert remote.ask(TEXTS[0]).written == own["written"]
        assert remote.ask(UNKNOWN).note == answerer.ask(UNKNOWN).note
        [unknown] = server.post("/v1/answer", question=UNKNOWN).json()["answers"]
        assert unknown["note"] == answerer.ask(UNKNOWN).note


def test_the_page(server: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert server.client.get("/").text == (front.PAGE / "index.html").read_text(encoding="utf-8")
    monkeypatch.setattr(front, "PAGE", tmp_path)  # where nothing was built yet, there is a plain page
    page = server.client.get("/")
    assert page.headers["content-type"].startswith("text/html")
    assert "<strong>one</strong>: bm25, 10 documents" in page.text
    (tmp_path / "assets").mkdir()
    (tmp_path / "index.html").write_text("<!doctype html><title>built</title>")
    (tmp_path / "assets" / "page.js").write_text("let x = 1;")
    with running({"one": bm25()}) as built:
        assert "built" in built.client.get("/").text
        script = built.client.get("/assets/page.js")
        assert script.text == "let x = 1;"
        assert "javascript" in script.headers["content-type"]


@pytest.mark.long
def test_names_on_the_plain_page_are_escaped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(front, "PAGE", tmp_path)
    with running({"<script>alert(1)</script>": bm25()}) as server:
        assert "<script>" not in server.client.get("/").text


@pytest.mark.parametrize("path", ["/", "/healthz", "/v1/retrievers", "/nothing", "/openapi.json"])
def test_every_answer_has_strict_headers(server: Running, path: str) -> None:
    headers = server.client.get(path).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "//" not in policy, "nothing comes from elsewhere"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert headers["referrer-policy"] == "no-referrer"
    assert "access-control-allow-origin" not in headers
