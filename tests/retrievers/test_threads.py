"""Threads that share one retriever: writers take turns, searches never wait, and what is saved is one state."""

from __future__ import annotations

import copy
import pickle
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import triever
from tests.marks import quick
from tests.retrievers.contract import DOCUMENTS, dataset
from triever import BM25, Document, Retriever, artifact
from triever.data.store import DocumentStore
from triever.retrievers.dense import Dense
from triever.retrievers.fusion import Fused
from triever.retrievers.generative import Generative
from triever.retrievers.multivector import MultiVector
from triever.training.tuning import DocidTuning

SMALL = "scratch:hidden=32,layers=1,heads=2,vocabulary=500"
KINDS: dict[str, Callable[[], Retriever]] = {
    "bm25": BM25,
    "dense": lambda: Dense(backbone=SMALL),
    "multivector": lambda: MultiVector(backbone=SMALL, size=16),
    "generative": lambda: Generative(backbone=SMALL, training=DocidTuning(steps=0)),
    "fused": lambda: Fused(systems=(BM25(), Dense(backbone=SMALL))),
}


@pytest.fixture(autouse=True)
def restless() -> Iterator[None]:
    """Threads that take turns often."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


@pytest.fixture(scope="module")
def fitted() -> dict[str, Retriever]:
    return {kind: make().fit(dataset()) for kind, make in KINDS.items()}


def together(works: Sequence[Callable[[], object]]) -> None:
    """Run all of them at once, and raise what one of them raised."""
    start = threading.Barrier(len(works))

    def run(work: Callable[[], object]) -> None:
        start.wait()
        work()

    with ThreadPoolExecutor(len(works)) as pool:
        for done in [pool.submit(run, work) for work in works]:
            done.result()


def new(name: str) -> Document:
    return Document(name, f"This is the page about {name}.", f"All of {name}")


def found(retriever: Retriever, name: str) -> bool:
    return name in {hit.id for hit in retriever.search(f"all of {name}", len(retriever))}


@pytest.mark.parametrize("writers", quick(8, of=[2, 8]))
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_that_was_acknowledged_is_lost(fitted: dict[str, Retriever], kind: str, writers: int) -> None:
    retriever = copy.copy(fitted[kind])
    each = (120 if kind == "bm25" else 24) // writers

    def write(writer: int) -> None:
        for number in range(each):
            retriever.add([new(f"w{writer}n{number}")])
            if number % 3 == 2:
                retriever.delete([f"w{writer}n{number}"])

    together([lambda writer=writer: write(writer) for writer in range(writers)])
    kept = {f"w{writer}n{number}" for writer in range(writers) for number in range(each) if number % 3 != 2}
    assert set(retriever.documents.ids) == kept | {document.id for document in DOCUMENTS}
    assert all(found(retriever, name) for name in kept)
    gone = writers * (each // 3)
    assert f"| added | {writers * each} |" in retriever.card
    assert f"| deleted | {gone} |" in retriever.card


@settings(max_examples=15)
@given(st.lists(st.lists(st.tuples(st.sampled_from("adx"), st.integers(0, 5)), max_size=8), min_size=2, max_size=4))
def test_whatever_the_schedule(schedules: list[list[tuple[str, int]]]) -> None:
    """`a` and `d` are about a thread's own documents, `x` adds one that the others want to add too."""
    retriever = BM25().fit(dataset())
    kept: list[set[str]] = [set() for _ in schedules]
    first: list[str] = []

    def write(writer: int, schedule: list[tuple[str, int]]) -> None:
        for what, number in schedule:
            name = f"everybody{number}" if what == "x" else f"w{writer}n{number}"
            try:
                if what == "d":
                    retriever.delete([name])
                    kept[writer].discard(name)
                else:
                    retriever.add([new(name)])
                    first.append(name) if what == "x" else kept[writer].add(name)
            except triever.UsageError:
                assert what == "x" or (name in kept[writer]) == (what == "a")

    together([lambda at=at, schedule=schedule: write(at, schedule) for at, schedule in enumerate(schedules)])
    assert len(first) == len(set(first)), "one thread alone adds what all of them want to"
    written = {*first}.union(*kept)
    assert set(retriever.documents.ids) == written | {document.id for document in DOCUMENTS}
    assert all(found(retriever, name) for name in written)


@pytest.mark.parametrize("kind", ["bm25", "fused"])
def test_a_search_sees_one_state(fitted: dict[str, Retriever], kind: str) -> None:
    retriever = copy.copy(fitted[kind])
    done = threading.Event()
    seen: list[set[str]] = []

    def write() -> None:
        try:
            for number in range(20):
                retriever.add([new(f"left{number}"), new(f"right{number}")])
                retriever.delete([f"left{number}", f"right{number}"])
        finally:
            done.set()

    def search() -> None:
        while not done.is_set():
            hits = retriever.search("this is the page about all of left0 right0", 1000)
            seen.append({hit.id for hit in hits if hit.id.startswith(("left", "right"))})

    together([write, search, search])
    assert seen
    for names in seen:
        sides = [{name.removeprefix(side) for name in names if name.startswith(side)} for side in ("left", "right")]
        assert sides[0] == sides[1], "both pages of one add, or none"


def test_a_save_writes_one_state(tmp_path: Path) -> None:
    retriever = BM25().fit(dataset())
    done = threading.Event()

    def write() -> None:
        try:
            for number in range(150):
                retriever.add([new(f"page{number}")])
        finally:
            done.set()

    def save() -> None:
        while not done.is_set():
            retriever.save(tmp_path / "model")
            check_saved(tmp_path / "model")

    together([write, save])


def check_saved(path: Path) -> None:
    with artifact.read(path) as snapshot:
        store = DocumentStore.read(snapshot, snapshot.documents)
        card, state = snapshot.text("card"), snapshot.manifest.state
    added = len(store) - len(DOCUMENTS)
    assert state["documents"] == len(store)
    assert state["fingerprint"] == store.fingerprint
    assert state["origin"].get("added", 0) == added
    assert f"| documents | {len(store)} |" in card
    assert f"| fingerprint | {store.fingerprint} |" in card
    assert f"| added | {added} |" in card or not added
    assert len(triever.load(path).search("this is the page about", 1000)) <= len(store)


@pytest.mark.parametrize("writers", quick(8, of=[2, 8]))
def test_threads_that_edit_one_folder_wait_or_are_told(tmp_path: Path, writers: int) -> None:
    BM25().fit(dataset()).save(tmp_path / "model")
    kept: list[str] = []

    def edit(writer: int) -> None:
        for number in range(4):
            name = f"w{writer}n{number}"
            try:
                with triever.edit(tmp_path / "model", wait=60 if number % 2 else 0) as retriever:
                    retriever.add([new(name)])
            except triever.Busy:
                assert not number % 2
            else:
                kept.append(name)

    together([lambda writer=writer: edit(writer) for writer in range(writers)])
    assert len(kept) >= 2 * writers
    assert set(triever.load(tmp_path / "model").documents.ids) == {*kept, *(document.id for document in DOCUMENTS)}


def test_documents_that_come_slowly_keep_nobody_waiting() -> None:
    retriever = BM25().fit(dataset())
    asked, come = threading.Event(), threading.Event()

    def slow() -> Iterator[Document]:
        asked.set()
        yield new("early")
        assert come.wait(60)
        yield new("late")

    def add_other() -> None:
        assert asked.wait(60)
        retriever.add([new("other")])
        retriever.delete(["tea"])
        come.set()

    together([lambda: retriever.add(slow()), add_other])
    assert {"early", "late", "other"} <= set(retriever.documents.ids)
    assert "tea" not in retriever.documents


def test_documents_may_come_from_the_retriever_itself() -> None:
    retriever = BM25().fit(dataset())

    def copies() -> Iterator[Document]:
        for hit in retriever.search("boiling water", 2):
            retriever.add([new(f"first {hit.id}")])
            yield new(f"then {hit.id}")

    retriever.add(copies())
    retriever.delete(hit.id for hit in retriever.search("boiling water", 1))
    assert sum(name.startswith(("first", "then")) for name in retriever.documents.ids) == 4
    assert len(retriever) == len(DOCUMENTS) + 3


def test_an_error_lets_the_next_writer_in() -> None:
    retriever = BM25().fit(dataset())
    with pytest.raises(triever.UsageError):
        retriever.add([new("tea")])
    with pytest.raises(triever.UsageError):
        retriever.delete(["nobody"])
    with pytest.raises(triever.UsageError):
        retriever.fit(dataset([]))
    together([lambda: retriever.add([new("one")]), lambda: retriever.add([new("two")])])
    assert len(retriever) == len(DOCUMENTS) + 2


def test_what_is_added_during_a_fit_is_there_after_it() -> None:
    asked = threading.Event()

    class Slow(BM25):
        def learn(self, *words: Any) -> Any:
            learning.set()
            assert asked.wait(60)
            return super().learn(*words)

    def asked_for() -> Iterator[Document]:
        yield new("page")
        asked.set()

    def add() -> None:
        assert learning.wait(60)
        retriever.add(asked_for())

    learning = threading.Event()
    asked.set()
    retriever = Slow().fit(dataset())
    asked.clear()
    learning.clear()
    together([lambda: retriever.fit(dataset()), add])
    assert retriever.documents.ids == [*(document.id for document in DOCUMENTS), "page"]


@pytest.mark.parametrize("kind", KINDS)
def test_copies_are_retrievers_of_their_own(fitted: dict[str, Retriever], kind: str) -> None:
    original = fitted[kind]
    original.add([new("page")])  # so that it has written once
    try:
        copies = [copy.copy(original), original.searched_with({})]
        if kind not in ("bm25", "fused"):  # a stemmer cannot be copied
            copies += [copy.deepcopy(original), pickle.loads(pickle.dumps(original))]
        copies += [
            copy.deepcopy(KINDS[kind]()).fit(dataset()),
            pickle.loads(pickle.dumps(KINDS[kind]())).fit(dataset()),
        ]
        for number, other in enumerate(copies):
            other.add([new(f"copy{number}")])
        assert [name for name in original.documents.ids if name.startswith("copy")] == []
        together([lambda other=other: other.add([new("last")]) for other in copies])
    finally:
        original.delete(["page"])
