"""Documents are added, replaced and deleted on disk; a retriever that changes on disk is exchanged between requests."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
import unicodedata
from pathlib import Path
from typing import Any

import pytest

import triever
from tests.marks import quick
from tests.serve.running import HEADERS, bm25, httpx, options, running, until
from triever import ArtifactError, Document
from triever.serve.served import Source
from triever.serve.shelf import Shelf


def found(server: Any, query: str) -> list[str]:
    return [hit["id"] for hit in server.post("/v1/search", query=query, show="ids").json()["results"][0]["hits"]]


@pytest.mark.parametrize("saved", quick(True, of=[True, False]))
def test_changes_are_seen_by_the_next_request_and_are_on_disk(tmp_path: Path, saved: bool) -> None:
    bm25().save(tmp_path / "m")
    with running({"m": tmp_path / "m" if saved else triever.load(tmp_path / "m")}, options(poll=60)) as server:
        new = {"id": "z", "text": "A zebra.", "title": "Zebra", "metadata": {"legs": 4}, "expansions": ["stripes"]}
        added = server.client.post("/v1/documents", json={"documents": [new]}, headers=HEADERS).json()
        assert (added["added"], added["documents"], added["saved"]) == (1, 11, saved)
        assert found(server, "zebra") == ["z"]
        assert found(server, "stripes") == ["z"]
        changed = [{**new, "text": "A quagga.", "title": ""}, {"id": "y", "text": "A yak."}]
        put = server.client.put("/v1/documents", json={"documents": changed}, headers=HEADERS).json()
        assert (put["replaced"], put["added"], put["documents"]) == (1, 1, 12)
        assert (found(server, "zebra"), found(server, "quagga"), found(server, "yak")) == ([], ["z"], ["y"])
        gone = server.client.delete("/v1/documents", params={"id": ["z", "tea"]}, headers=HEADERS).json()
        assert (gone["deleted"], gone["documents"]) == (2, 10)
        assert found(server, "quagga") == []
        assert server.client.get("/v1/retrievers/m").json()["documents"] == 10
    on_disk = {*triever.load(tmp_path / "m").documents.ids}
    assert ("y" in on_disk, "tea" in on_disk) == ((True, False) if saved else (False, True))


def test_an_id_is_known_in_every_spelling_of_unicode(tmp_path: Path) -> None:
    bm25().save(tmp_path / "m")
    name, apart = "caf\u00e9", unicodedata.normalize("NFD", "caf\u00e9")
    with running({"m": tmp_path / "m"}, options(poll=60)) as server:
        server.client.post("/v1/documents", json={"documents": [{"id": apart, "text": "A bar."}]}, headers=HEADERS)
        got = server.client.get("/v1/documents", params={"id": [apart, name]}).json()
        assert [document["id"] for document in got["documents"]] == [name]
        gone = server.client.delete("/v1/documents", params={"id": [apart, name]}, headers=HEADERS).json()
        assert gone["deleted"] == 1


@pytest.mark.long
def test_a_change_by_another_process_is_seen(tmp_path: Path) -> None:
    bm25().save(tmp_path / "m")
    with running({"m": tmp_path / "m"}) as server:
        assert found(server, "zebra") == []
        with triever.edit(tmp_path / "m") as retriever:
            retriever.add([Document("z", "A zebra.")])
        until(lambda: found(server, "zebra") == ["z"])


@pytest.mark.long
def test_whoever_waits_until_all_is_loaded_is_told_what_cannot_be(tmp_path: Path) -> None:
    for name in ("good", "torn"):
        bm25().save(tmp_path / name)
    [vocabulary] = (tmp_path / "torn").glob("vocabulary-*")
    vocabulary.write_bytes(b"{}")

    async def loaded(*names: str) -> list[bool]:
        shelf = Shelf({name: Source.of(tmp_path / name) for name in names}, options(poll=60))
        async with shelf.open():
            await shelf.loaded()
            return [served.is_ready for served in shelf.served.values()]

    assert asyncio.run(loaded("good")) == [True]
    with pytest.raises(ArtifactError, match="vocabulary"):
        asyncio.run(loaded("good", "torn"))


def test_a_damaged_folder_does_not_take_the_old_one_away(tmp_path: Path) -> None:
    bm25().save(tmp_path / "m")
    with running({"m": tmp_path / "m"}) as server:
        manifest = tmp_path / "m" / "manifest.json"
        manifest.write_text(manifest.read_text()[:100])
        until(lambda: 'triever_loads_total{outcome="failed",retriever="m"}' in server.client.get("/metrics").text)
        assert "tea" in found(server, "tea")
        assert server.client.get("/readyz").status_code == 200


def swap(tmp_path: Path, seconds: float, every: float) -> tuple[int, int]:
    """Exchange a retriever again and again under load; how many answers came, and from how many states."""
    states = [bm25(), bm25(Document("z", "Boiling water for a zebra.")), bm25(Document("y", "Tea leaves for a yak."))]
    queries = ["boiling water", "tea leaves", "zebra", "yak"]
    expected = {
        state.fingerprint[:16]: {query: [hit.id for hit in state.search(query, 5)] for query in queries}
        for state in states
    }
    states[0].save(tmp_path / "m")
    ended, answers, problems, seen = threading.Event(), itertools.count(), list[str](), set[str]()

    def ask(server: Any, client: Any) -> None:
        for query in itertools.cycle(queries):
            if ended.is_set():
                return
            answer = client.post(f"{server.url}/v1/search", json={"query": query, "k": 5, "show": "ids"})
            body = answer.json()
            if answer.status_code != 200:
                problems.append(answer.text)
            elif [hit["id"] for hit in body["results"][0]["hits"]] != expected[body["snapshot"]][query]:
                problems.append(f"{query}: {body}")
            seen.add(body.get("snapshot", ""))
            next(answers)

    with running({"m": tmp_path / "m"}) as server, httpx.Client(timeout=30) as client:
        threads = [threading.Thread(target=ask, args=(server, client)) for _ in range(4)]
        for thread in threads:
            thread.start()
        end = time.monotonic() + seconds
        for state in itertools.cycle(states[1:] + states[:1]):
            if time.monotonic() > end:
                break
            state.save(tmp_path / "m")
            time.sleep(every)
        ended.set()
        for thread in threads:
            thread.join()
    assert not problems, problems[:3]
    return next(answers), len(seen)


@pytest.mark.parametrize(("seconds", "every"), quick((0.4, 0.1), of=[(0.4, 0.1), (60.0, 1.0)]))
def test_hot_swaps_under_load_fail_nobody_and_mix_nothing(tmp_path: Path, seconds: float, every: float) -> None:
    answers, states = swap(tmp_path, seconds, every)
    assert answers > 5
    assert states >= 2, "nothing was exchanged"
