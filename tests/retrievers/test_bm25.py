"""BM25: the contract, the formula, languages, expansions, and the law that changes equal a rebuild."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import triever
from tests.retrievers.contract import DOCUMENTS, QUERIES, Contract, dataset
from triever import BM25, Dataset, Document
from triever.data.words import words


class TestBM25(Contract):
    def make(self) -> triever.Retriever:
        return BM25()


class TestBM25WithoutStemming(Contract):
    def make(self) -> triever.Retriever:
        return BM25(language="none", method="atire")


def plain_bm25(documents: list[Document], query: str, k1: float, b: float) -> dict[str, float]:
    """Lucene's formula, written out: sum of idf * tf / (tf + k1 * (1 - b + b * length / mean length))."""
    bags = {document.id: words(document.full_text) for document in documents}
    mean = sum(map(len, bags.values())) / len(bags)
    scores = {}
    for document_id, bag in bags.items():
        total = 0.0
        for term in words(query):
            holding = sum(term in other for other in bags.values())
            idf = math.log(1 + (len(bags) - holding + 0.5) / (holding + 0.5))
            tf = bag.count(term)
            total += idf * tf / (tf + k1 * (1 - b + b * len(bag) / mean)) if tf else 0
        if total > 0:
            scores[document_id] = total
    return scores


@pytest.mark.parametrize("query", ["water", "water water boiling", "the king and the moon", "東京 日本"])
def test_scores_are_the_formula(query: str) -> None:
    bm25 = BM25(language="none", k1=0.9, b=0.4).fit(dataset())
    found = {hit.id: hit.score for hit in bm25.search(query, 100)}
    assert found == pytest.approx(plain_bm25(DOCUMENTS, query, 0.9, 0.4), rel=1e-5)


def test_the_parts_of_an_explanation_add_up() -> None:
    explanation = BM25().fit(dataset()).explain("boiling boiling water for tea leaves")
    for hit, parts in zip(explanation.result, explanation.parts, strict=True):
        assert sum(weight for _, weight in parts) == pytest.approx(hit.score, rel=1e-5)
    assert {name for name, _ in explanation.parts[0]} == {"boil", "water", "tea", "leav"}


vocabulary = st.sampled_from(["tea", "milk", "sugar", "日本", "größe", "the"])
small_texts = st.lists(vocabulary, max_size=6).map(" ".join)


@settings(max_examples=60)
@given(
    texts=st.lists(small_texts, min_size=1, max_size=6),
    steps=st.lists(st.tuples(st.booleans(), st.integers(0, 20), small_texts), max_size=8),
)
def test_any_adds_and_deletes_equal_a_rebuild(texts: list[str], steps: list[tuple[bool, int, str]]) -> None:
    live = [Document(f"d{number}", text) for number, text in enumerate(texts)]
    bm25 = BM25().fit(Dataset.of("x", live))
    for number, (adding, choice, text) in enumerate(steps):
        if adding:
            live.append(Document(f"new{number}", text))
            bm25.add(live[-1:])
        elif live:
            bm25.delete([live.pop(choice % len(live)).id])
    rebuilt = BM25().fit(Dataset.of("x", live)) if live else None
    for query in ("tea", "milk and the sugar", "日本 größe"):
        expected = list(rebuilt.search(query)) if rebuilt else []
        assert list(bm25.search(query)) == expected


def test_ties_go_to_the_larger_id_and_are_cut_by_it() -> None:
    bm25 = BM25().fit(Dataset.of("x", [Document(name, "same words") for name in "bdac"]))
    assert [hit.id for hit in bm25.search("words", 3)] == ["d", "c", "b"]


def test_stemming_by_language() -> None:
    german = [Document("a", "Die Häuser am Fluss"), Document("b", "Ein Boot auf dem See")]
    assert [hit.id for hit in BM25(language="german").fit(Dataset.of("x", german)).search("Haus")] == ["a"]
    assert list(BM25(language="none").fit(Dataset.of("x", german)).search("Haus")) == []


def test_expansions_are_indexed_unless_told_otherwise() -> None:
    documents = [
        Document("a", "Molten rock.", expansions=("how do volcanoes erupt",)),
        Document("b", "Sea water."),
    ]
    data = Dataset.of("x", documents)
    assert [hit.id for hit in BM25().fit(data).search("volcano")] == ["a"]
    assert list(BM25(expand=False).fit(data).search("volcano")) == []


def test_a_query_without_known_words_says_so() -> None:
    assert BM25().fit(dataset()).search("xylophone").note == "no word of the query is in the corpus"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"language": "klingon"}, "no stemmer for language 'klingon'"),
        ({"k1": -1.0}, "k1 = -1.0 should not be negative"),
        ({"b": 1.5}, "b = 1.5 should be between 0 and 1"),
    ],
)
def test_bad_options_are_refused_before_any_work(options: dict, sentence: str) -> None:
    with pytest.raises(triever.UsageError, match=sentence):
        BM25(**options)


def test_it_finds_what_it_should() -> None:
    bm25 = BM25().fit(dataset())
    assert [bm25.search(query, 1)[0].id for query in QUERIES] == ["tea", "bike", "東京", "bread"]
