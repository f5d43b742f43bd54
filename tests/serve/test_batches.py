"""Requests of several clients are searched together; the queue is bounded; who leaves or waits too long is dropped."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.serve.running import Gated, Running, bm25, gated, options, running, until
from triever import Retriever
from triever.serve.batches import Batcher, DeadlinePassed, Job, QueueFull


@pytest.fixture(scope="module")
def both() -> Iterator[tuple[Running, Gated]]:
    slow = gated()
    with running({"slow": slow}, options(window=20, most=8, queue=10, queries=10, deadline=5)) as server:
        yield server, slow


@pytest.fixture
def slow(both: tuple[Running, Gated]) -> Iterator[Gated]:
    both[1].calls.clear()
    yield both[1]
    both[1].gate.set()


@pytest.fixture
def server(both: tuple[Running, Gated], slow: Gated) -> Running:
    return both[0]


def ask_all(server: Running, queries: Sequence[str], **values: Any) -> list[Any]:
    with ThreadPoolExecutor(len(queries)) as threads:
        return [*threads.map(lambda query: server.post("/v1/search", query=query, **values), queries)]


def begin(server: Running, slow: Gated, query: str) -> threading.Thread:
    """A request that keeps the retriever busy until the gate is opened."""
    slow.gate.clear()
    thread = threading.Thread(target=server.post, args=("/v1/search",), kwargs={"query": query})
    thread.start()
    until(lambda: slow.calls == [[query]])
    return thread


def test_queries_of_several_clients_are_one_call(server: Running, slow: Gated) -> None:
    first = begin(server, slow, "first")
    asked = ["water", "dough", "king", "moon"]
    with ThreadPoolExecutor(4) as threads:
        answers = threads.map(lambda query: server.post("/v1/search", query=query, k=2), asked)
        until(lambda: server.waiting("slow") == 4)
        slow.gate.set()
        got = {query: answer.json()["results"][0] for query, answer in zip(asked, answers, strict=True)}
    first.join()
    assert [sorted(call) for call in slow.calls] == [["first"], sorted(asked)]
    for query in asked:
        expected = bm25().search(query, 2)
        assert [hit["id"] for hit in got[query]["hits"]] == [hit.id for hit in expected]


def test_only_what_asks_for_the_same_is_one_call(server: Running, slow: Gated) -> None:
    first = begin(server, slow, "first")
    bodies = [{"k": 2}, {"k": 3}, {"k": 2, "where": {"words": ">=10"}}, {"k": 2}]
    with ThreadPoolExecutor(4) as threads:
        answers = threads.map(lambda body: server.post("/v1/search", query="water", **body), bodies)
        until(lambda: server.waiting("slow") == 4)
        slow.gate.set()
        for body, answer in zip(bodies, answers, strict=True):
            expected = bm25().search("water", body["k"], where=body.get("where"))
            assert [hit["id"] for hit in answer.json()["results"][0]["hits"]] == [hit.id for hit in expected]
    first.join()
    assert sorted(map(len, slow.calls)) == [1, 1, 1, 2]


@pytest.mark.long
def test_without_batching_every_query_is_a_call() -> None:
    slow = gated()
    with running({"slow": slow}, options(most=1)) as server:
        slow.calls.clear()
        ask_all(server, ["water", "dough", "king", "moon"])
        assert [len(call) for call in slow.calls] == [1, 1, 1, 1]


def test_a_full_queue_refuses_and_says_when_to_come_again(server: Running, slow: Gated) -> None:
    first = begin(server, slow, "first")
    waiting = threading.Thread(target=server.post, args=("/v1/search",), kwargs={"queries": ["x"] * 10})
    waiting.start()
    until(lambda: server.waiting("slow") == 10)
    refused = server.post("/v1/search", query="one more")
    assert (refused.status_code, refused.json()["code"]) == (429, "queue_full")
    assert int(refused.headers["retry-after"]) >= 1
    assert server.client.get("/healthz").status_code == 200, "a full queue is no reason to be restarted"
    slow.gate.set()
    first.join()
    waiting.join()
    assert server.post("/v1/search", query="one more").status_code == 200


def test_a_request_ends_at_its_deadline_and_is_not_computed(server: Running, slow: Gated) -> None:
    first = begin(server, slow, "first")
    late = server.post("/v1/search", query="too late", timeout=0.05)
    assert (late.status_code, late.json()["code"]) == (504, "deadline_passed")
    assert server.waiting("slow") == 0
    slow.gate.set()
    first.join()
    assert slow.calls == [["first"]]


def test_a_client_that_left_is_not_computed(server: Running, slow: Gated) -> None:
    first = begin(server, slow, "first")
    body = json.dumps({"query": "nobody waits for this"}).encode()
    head = (
        f"POST /v1/search HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    )
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        client.sendall(f"{head}\r\n\r\n".encode() + body)
        until(lambda: server.waiting("slow") == 1)
    until(lambda: server.waiting("slow") == 0)
    slow.gate.set()
    first.join()
    server.post("/v1/search", query="last")
    assert slow.calls == [["first"], ["last"]]


@pytest.mark.long
def test_a_window_waits_no_longer_than_for_enough() -> None:
    """With a window of a minute, as many as fit into one batch are answered at once."""
    with running({"one": bm25()}, options(window=60_000, most=2, deadline=50)) as server:
        assert [answer.status_code for answer in ask_all(server, ["water", "dough"])] == [200, 200]


# The batcher alone


async def batched(jobs: Sequence[tuple[int, int]], most: int) -> list[list[str]]:
    """What is computed together when jobs of (kind, number of texts) are there at once; each gets its own back."""
    calls: list[list[str]] = []

    def compute(_: Retriever, texts: Sequence[str]) -> list[str]:
        calls.append([*texts])
        return [text.upper() for text in texts]

    batcher = Batcher(lambda: bm25_once, window=1, most=most, queue=10_000, observe=lambda *_: None)
    texts = [[f"j{number}t{text}" for text in range(size)] for number, (_, size) in enumerate(jobs)]
    own = [Job(kind, words, compute, lambda _, values: values) for (kind, _), words in zip(jobs, texts, strict=True)]
    answers = await asyncio.gather(*map(batcher.submit, own))
    await batcher.close()
    assert answers == [[text.upper() for text in words] for words in texts]
    return calls


def test_who_was_alone_does_not_wait_for_others() -> None:
    """With a window of a minute, a request behind one that was alone is answered at once."""

    async def asked() -> list[list[str]]:
        batcher = Batcher(lambda: bm25_once, window=60_000, most=2, queue=10, observe=lambda *_: None)
        jobs = [Job(0, words, lambda _, texts: [*texts], lambda _, values: values) for words in (["a", "b"], ["c"])]
        answers = [await asyncio.wait_for(batcher.submit(job), 30) for job in jobs]
        await batcher.close()
        return answers

    assert asyncio.run(asked()) == [["a", "b"], ["c"]]


bm25_once: Any = None


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 5)), min_size=1, max_size=12), st.integers(1, 8))
def test_every_job_gets_its_own_and_batches_are_of_one_kind(jobs: list[tuple[int, int]], most: int) -> None:
    calls = asyncio.run(batched(jobs, most))
    kinds = {f"j{number}": kind for number, (kind, _) in enumerate(jobs)}
    assert sorted(text for call in calls for text in call) == sorted(
        f"j{number}t{text}" for number, (_, size) in enumerate(jobs) for text in range(size)
    )
    for call in calls:
        owners = {text.partition("t")[0] for text in call}
        assert len({kinds[owner] for owner in owners}) == 1
        assert len(call) <= most or len(owners) == 1


def test_one_bad_query_does_not_fail_others() -> None:
    def compute(_: Retriever, texts: Sequence[str]) -> list[str]:
        if "bad" in texts:
            raise ValueError("bad")
        return [*texts]

    async def ask() -> list[Any]:
        batcher = Batcher(lambda: bm25_once, window=1, most=8, queue=100, observe=lambda *_: None)
        jobs = [Job(0, [text], compute, lambda _, values: values) for text in ("good", "bad", "fine")]
        answers = await asyncio.gather(*map(batcher.submit, jobs), return_exceptions=True)
        await batcher.close()
        return answers

    good, bad, fine = asyncio.run(ask())
    assert (good, fine) == (["good"], ["fine"])
    assert isinstance(bad, ValueError)


def one_by_one() -> Batcher:
    """A batcher for one text at a time, in which two may wait."""
    return Batcher(lambda: bm25_once, window=0, most=1, queue=2, observe=lambda *_: None)


def held_until(release: threading.Event) -> Callable[[Retriever, Sequence[str]], list[str]]:
    """What gives its texts back once it is released."""

    def compute(_: Retriever, texts: Sequence[str]) -> list[str]:
        release.wait(20)
        return [*texts]

    return compute


def test_a_batcher_refuses_and_gives_up() -> None:
    release = threading.Event()
    compute = held_until(release)

    async def ask() -> None:
        loop, batcher = asyncio.get_running_loop(), one_by_one()
        busy = asyncio.create_task(batcher.submit(Job(0, ["busy"], compute, lambda _, values: values)))
        while batcher.waiting or not busy:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.01)
        held = asyncio.create_task(batcher.submit(Job(0, ["a", "b"], compute, lambda _, values: values)))
        await asyncio.sleep(0)
        with pytest.raises(QueueFull):
            await batcher.submit(Job(0, ["c"], compute, lambda _, values: values))
        held.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert batcher.waiting == 0
        with pytest.raises(DeadlinePassed):
            await batcher.submit(Job(0, ["d"], compute, lambda _, values: values, loop.time() + 0.02))
        release.set()
        assert await busy == ["busy"]
        await batcher.close()

    asyncio.run(ask())


def test_an_answer_at_the_very_moment_of_the_deadline_is_late_and_not_a_fault() -> None:
    release = threading.Event()
    compute = held_until(release)

    async def ask() -> None:
        loop, batcher = asyncio.get_running_loop(), one_by_one()
        job = Job(0, ["late"], compute, lambda _, values: values, loop.time() + 0.05)
        asked = asyncio.create_task(batcher.submit(job))
        await asyncio.sleep(0.01)
        # The answer and the deadline fall into one turn of the event loop, the answer first.
        loop.call_soon(job.future.set_result, ["late"])
        time.sleep(0.1)
        with pytest.raises(DeadlinePassed):
            await asked
        release.set()
        await batcher.close()

    asyncio.run(ask())
