"""The document store against a plain dict."""

from __future__ import annotations

import mmap
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from triever import artifact, disk_arrays
from triever.data.records import Document, wrong_id
from triever.data.store import DocumentStore
from triever.errors import DataError, UsageError
from triever.memory_parts import counted

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
documents = st.builds(
    Document,
    id=texts.filter(lambda text: wrong_id(text) is None),
    text=texts,
    title=texts,
    expansions=st.lists(texts, max_size=2).map(tuple),
    metadata=st.dictionaries(texts, st.integers(-9, 9) | texts | st.none(), max_size=2),
)
corpora = st.lists(documents, max_size=8, unique_by=lambda document: document.id)


@given(corpora)
def test_what_goes_in_comes_out(corpus: list[Document]) -> None:
    store = DocumentStore.of(corpus)
    assert list(store) == corpus
    assert len(store) == len(corpus)
    assert [store.document(document.id) for document in corpus] == corpus


@given(corpora, st.data())
def test_adding_and_deleting_equal_a_rebuild(corpus: list[Document], data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(corpus)))
    gone = data.draw(st.sets(st.sampled_from([document.id for document in corpus]))) if corpus else set()
    store = DocumentStore.of(corpus[:cut]).with_added(corpus[cut:]).without(gone)
    assert list(store) == [document for document in corpus if document.id not in gone]


def test_mistakes_are_named() -> None:
    store = DocumentStore.of([Document("alpha", "x"), Document("beta", "y")])
    with pytest.raises(DataError, match="two documents have the id 'a'"):
        DocumentStore.of([Document("a", "x"), Document("a", "y")])
    with pytest.raises(UsageError, match="a document with id 'beta' already exists"):
        store.with_added([Document("beta", "z")])
    with pytest.raises(UsageError, match="no document with id 'alhpa'; did you mean alpha"):
        store.without(["alhpa"])


@pytest.mark.parametrize(
    "document",
    [Document("odd", "\ud83d"), Document("odd", "x", "a \udcff"), Document("odd", "x", expansions=("fine", "\ud800"))],
)
def test_half_of_a_letter_is_named(document: Document) -> None:
    with pytest.raises(DataError, match=r"document 'odd' holds '\\ud...', half of a surrogate pair; decode"):
        DocumentStore.of([Document("a", "fine"), document])


def saved(store: DocumentStore, folder: Path) -> DocumentStore:
    """The same, written into an artifact and read from it."""
    with artifact.writing(folder) as writer:
        store.write(writer)
        writer.commit("documents", {}, {"documents": len(store)}, "test")
    with artifact.read(folder) as snapshot:
        return DocumentStore.read(snapshot, snapshot.documents)


@given(corpora, st.data())
def test_what_is_read_from_an_artifact_is_what_was_written(corpus: list[Document], data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(corpus)))
    gone = data.draw(st.sets(st.sampled_from([document.id for document in corpus]))) if corpus else set()
    store = DocumentStore.of(corpus[:cut]).with_added(corpus[cut:]).without(gone)  # in several pieces
    with tempfile.TemporaryDirectory() as folder:
        again = saved(store, Path(folder) / "one")
        assert list(again) == list(store)
        assert [again.row(document_id) for document_id in again.ids] == [*range(len(again))]
        assert list(saved(again, Path(folder) / "two")) == list(store)


def test_what_is_read_stays_on_the_disk(tmp_path: Path) -> None:
    store = saved(DocumentStore.of(Document(f"d{at}", "tea " * at, f"title {at}") for at in range(300)), tmp_path)
    assert counted(store.stored()["texts"]).memory == 0
    assert all(isinstance(array.base, np.memmap | mmap.mmap) for array in store.arrays if array.size)
    added = store.with_added([Document("new", "milk")])
    assert 0 < counted(added.stored()["texts"]).memory < 200, "only what was added is in memory"
    assert added.document("d7").text == "tea " * 7


def test_texts_that_are_too_many_for_memory_lie_in_files(monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = [Document(f"d{at}", "tea " * at, f"title {at}", (f"tea {at}?",)) for at in range(300)]
    monkeypatch.setattr(disk_arrays, "GROWN_IN_MEMORY", 100)
    monkeypatch.setattr("triever.data.store.BATCH", 7)
    store = DocumentStore.of(corpus)
    assert list(store) == corpus
    texts = store.stored()["texts"]
    assert counted(texts).mapped > 0.99 * counted(texts).bytes


def test_ids_are_looked_up_together_in_one_chunk_and_in_several() -> None:
    store = DocumentStore.of(Document(f"d{number}", "text") for number in range(5))
    for grown in (store, store.with_added([Document("e", "text"), Document("f", "text")])):
        rows = np.array([len(grown) - 1, 0, 3, 3])
        assert grown.ids.of(rows) == [grown.ids[row] for row in rows.tolist()]
        assert grown.ids.of(np.empty(0, np.int64)) == []
    assert grown.table.column("id").num_chunks > 1


def test_ids_whose_hashes_are_the_same_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("triever.data.store.hash", len, raising=False)
    store = DocumentStore.of([Document(name, "x") for name in ("b", "aa", "a", "c")])
    assert [store.row(name) for name in ("a", "b", "c", "aa")] == [2, 0, 3, 1]
    assert "d" not in store
    with pytest.raises(DataError, match="two documents have the id 'a'"):
        DocumentStore.of([Document(name, "x") for name in ("b", "a", "c", "a")])


@given(corpora, st.integers(1, 9))
def test_a_sample_is_evenly_spaced_and_all_where_they_are_few(corpus: list[Document], most: int) -> None:
    store = DocumentStore.of(corpus)
    step = next(step for step in range(1, 99) if len(corpus[::step]) <= most)
    assert list(store.sample(most)) == corpus[::step]


@given(corpora, st.integers(-9, 9), st.integers(-9, 9), st.integers(1, 3))
def test_documents_in_their_order_are_a_list_of_them(corpus: list[Document], low: int, high: int, step: int) -> None:
    documents = DocumentStore.of(corpus).in_order()
    assert list(documents) == corpus
    assert documents[low:high:step] == corpus[low:high:step]
    if -len(corpus) <= low < len(corpus):
        assert documents[low] == corpus[low]
