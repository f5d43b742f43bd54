"""The document store against a plain dict."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triever.data.records import Document, wrong_id
from triever.data.store import DocumentStore
from triever.errors import DataError, UsageError

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
