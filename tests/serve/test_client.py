"""A retriever behind a server is one like any other: it searches, explains, changes, and is measured."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import triever
from tests.retrievers.contract import QUERIES, dataset
from tests.serve.running import KEY, Running, bm25, gated, options, running, until
from triever import Document, Remote, ServerError, UsageError
from triever.lab.systems import labels, ready_searchers, ready_systems
from triever.retriever import Asks


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running({"one": bm25(), "a b/ü": bm25(Document("z", "A zebra by the water."))}) as server:
        yield server


def test_a_client_finds_what_the_library_finds(server: Running) -> None:
    remote, own = triever.connect(server.url), bm25()
    assert remote.name == "one"
    for query in QUERIES:
        here, there = own.search(query, 5), remote.search(query, 5)
        assert here == there
        assert [(hit.title, hit.text, hit.metadata) for hit in here] == [
            (hit.title, hit.text, hit.metadata) for hit in there
        ]
        assert [hit.snippet for hit in here] == [hit.snippet for hit in there]
    assert remote.search_many(QUERIES * 60, 3) == own.search_many(QUERIES * 60, 3)
    assert remote.search("water", where={"words": ">=10"}) == own.search("water", where={"words": ">=10"})
    assert (len(remote), remote.fingerprint, remote.kind) == (len(own), own.fingerprint, own.kind)
    assert remote.search_many([]) == []


def test_a_client_explains(server: Running) -> None:
    here, there = bm25().explain("boiling water", 3), triever.connect(server.url).explain("boiling water", 3)
    assert there.result == here.result
    assert there.parts == here.parts
    assert str(there) == str(here)
    assert there.to_dict() == here.to_dict()


@pytest.mark.long
def test_a_client_is_told_what_was_thought() -> None:
    backbone = "scratch:causal=true,hidden=32,layers=1,heads=2,vocabulary=1000"
    training, docids = triever.DocidTuning(steps=0), triever.Title(tokenizer="backbone")
    thinking = triever.Generative(backbone=backbone, docids=docids, training=training).fit(dataset())
    thinking = thinking.searching(think=4)
    with running({"thinking": thinking}) as server:
        here, there = thinking.search(QUERIES[0], 3), triever.connect(server.url).search(QUERIES[0], 3)
    assert here.thought
    assert there.thought == here.thought
    assert [hit.id for hit in there] == [hit.id for hit in here]


def test_a_retriever_is_named_by_its_address(server: Running) -> None:
    remote = triever.connect(f"{server.url}/a%20b%2F%C3%BC")
    assert remote.search("zebra", 1) == (bm25(Document("z", "A zebra by the water.")).search("zebra", 1))
    assert triever.connect(remote.url).name == "a b/ü"
    with pytest.raises(UsageError, match="no retriever named"):
        triever.connect(f"{server.url}/nobody")


def test_what_finds_documents_does_not_answer(server: Running) -> None:
    remote = triever.connect(server.url)
    with pytest.raises(UsageError, match="one is a bm25 retriever, which finds documents and does not answer"):
        remote.ask("boiling water")
    assert not isinstance(remote, Asks)


def test_a_client_changes_documents(tmp_path: Path) -> None:
    bm25().save(tmp_path / "m")
    with running({"m": tmp_path / "m"}) as server:
        remote = triever.connect(server.url, KEY)
        remote.add([Document("z", "A zebra.", "Zebra", ("stripes",), {"legs": 4})])
        assert [hit.id for hit in remote.search("stripes")] == ["z"]
        assert remote.documents.document("z") == Document("z", "A zebra.", "Zebra", ("stripes",), {"legs": 4})
        remote.replace([Document("z", "A quagga.")])
        assert remote.search("quagga")[0].text == "A quagga."
        remote.add([Document(f"many{number}", "many") for number in range(120)])
        with pytest.raises(UsageError, match="nobody"):
            remote.delete([*(f"many{number}" for number in range(120)), "nobody"])
        assert len(remote) == 131
        remote.delete([*(f"many{number}" for number in range(120)), "z"])
        assert len(remote) == 10
        assert "z" not in remote.documents
        with pytest.raises(UsageError, match="already"):
            remote.add([Document("tea", "x")])
        with pytest.raises(UsageError, match="key"):
            triever.connect(server.url, "wrong").delete(["tea"])


def test_a_server_is_measured_like_a_folder(server: Running) -> None:
    systems = ready_searchers([f"there={server.url}/one", "here=bm25"], dataset())
    assert isinstance(systems["there"], Remote)
    report = triever.compare(systems, dataset(), "test", ["nDCG@10", "Success@1"])
    assert report.per_query("there", "nDCG@10") == report.per_query("here", "nDCG@10")
    assert labels([f"{server.url}/one"]) == {"one": f"{server.url}/one"}
    with pytest.raises(UsageError, match="is a server"):
        ready_systems([f"{server.url}/one"], dataset())


def test_errors_of_a_server_are_sentences(server: Running) -> None:
    remote = triever.connect(server.url)
    with pytest.raises(UsageError, match="metadata key"):
        remote.search("x", where={"wrods": 1})
    with pytest.raises(UsageError, match="more than 1000"):
        remote.search("x", 5000)
    with pytest.raises(ServerError, match="cannot be reached"):
        triever.connect("http://127.0.0.1:9", timeout=2)
    for wrong in ("ftp://x", "127.0.0.1:8000", "http://", "http://x:port"):
        with pytest.raises(UsageError, match="address"):
            triever.connect(wrong)


@pytest.mark.long
def test_a_client_outlives_the_connections_of_a_server() -> None:
    with running({"one": bm25()}) as server:
        remote = triever.connect(server.url)
        assert remote.search("water", 1)
        port = server.port
    with running({"one": bm25()}, port=port):  # another server at the same address: the old connection is dead
        assert remote.search("water", 1)
    with pytest.raises(ServerError):
        remote.search("water", 1)


@pytest.mark.long
def test_a_busy_server_is_asked_again() -> None:
    slow = gated()
    with running({"slow": slow}, options(queue=1, queries=1, most=1)) as server:
        remote = triever.connect(server.url)
        slow.calls.clear()
        slow.gate.clear()
        others = [threading.Thread(target=server.post, args=("/v1/search",), kwargs={"query": "x"}) for _ in range(2)]
        for other in others:
            other.start()
        until(lambda: server.waiting("slow") == 1 and slow.calls)
        threading.Timer(0.3, slow.gate.set).start()
        assert remote.search("water", 1)
        for other in others:
            other.join()
