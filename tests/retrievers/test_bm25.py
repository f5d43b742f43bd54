"""BM25: the contract, the formula, languages, expansions, and the law that changes equal a rebuild."""

from __future__ import annotations

import logging
import math
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import triever
from tests.retrievers.contract import DOCUMENTS, QUERIES, Contract, dataset
from triever import BM25, Dataset, Document, UsageError, config
from triever.arrays import starts_of
from triever.data.words import bm25s, words
from triever.engines import word_weights
from triever.engines.lexical import Terms, Weighting, weights
from triever.retriever import system


class TestBM25(Contract):
    filters_as = "left out"

    def make(self) -> triever.Retriever:
        return BM25()


class TestBM25WithoutStemming(Contract):
    filters_as = "left out"

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


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "Die Müllabfuhr kommt am Dienstag und holt auch das Altglas",
            "look German.*option language=german is for them",
        ),
        ("図書館の本は二週間借りることができます", "do not look English.*language=none is for them"),
        ("the library lends books for two weeks", "^$"),
    ],
)
def test_texts_whose_words_have_no_english_stems_are_warned_of(
    text: str, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    data = Dataset.of("x", [Document("a", text)])
    with caplog.at_level(logging.WARNING, "triever"):
        BM25().fit(data)
        assert re.search(said, caplog.text)
        caplog.clear()
        BM25(language="german").fit(data)
    assert not caplog.text, "who names a language knows it"


UNTRAINED = {"training": {"steps": 0}, "backbone": "scratch:hidden=16,layers=1,heads=2,vocabulary=300"}
GAPS = {"training": {"answer_steps": 1, "steps": 0, "batch": 2, "task": "masked", "holdout": 0}}


@pytest.mark.parametrize(
    ("kind", "values", "key"),
    [
        ("reranked", UNTRAINED, "first.language"),
        ("answerer", UNTRAINED, "first.language"),
        ("reatt", UNTRAINED | GAPS, "close_by.language"),
    ],
)
def test_the_option_of_a_part_is_told_with_its_beginning(
    kind: str, values: dict[str, Any], key: str, caplog: pytest.LogCaptureFixture
) -> None:
    data = Dataset.of("x", [Document("a", "図書館の本は1900年から借りることができます。")])
    config.build(system(kind), values).fit(data)
    assert "its option language=none is for them (" in caplog.text
    assert key in caplog.text
    caplog.clear()
    config.build(system(kind), {**values, **config.assignments([f"{key}=none"])}).fit(data)
    assert "stems" not in caplog.text


def test_expansions_are_indexed_unless_told_otherwise() -> None:
    documents = [
        Document("a", "Molten rock.", expansions=("how do volcanoes erupt",)),
        Document("b", "Sea water."),
    ]
    data = Dataset.of("x", documents)
    assert [hit.id for hit in BM25().fit(data).search("volcano")] == ["a"]
    assert list(BM25(expand=False).fit(data).search("volcano")) == []


@pytest.mark.parametrize(
    ("query", "note"),
    [
        ("xylophone", "no word of the query is in the corpus"),
        ("the and of", "the query has only words that are too common to search for"),
        ("?!", "the query has no words"),
    ],
)
def test_a_query_without_hits_says_why(query: str, note: str) -> None:
    bm25 = BM25().fit(dataset())
    assert bm25.search(query).note == note
    assert bm25.explain(query).note == note


def test_words_of_documents_that_are_gone_or_filtered_out_are_not_said_to_be_everywhere() -> None:
    documents = [Document("a", "zebra", metadata={"lang": "de"}), Document("b", "horse", metadata={"lang": "en"})]
    bm25 = BM25().fit(Dataset.of("x", documents))
    missed = "the words of the query are in none of the documents that were searched, or in all of them alike"
    assert bm25.search("zebra", where={"lang": "en"}).note == missed
    bm25.delete(["a"])
    assert bm25.search("zebra").note == missed


def test_a_filter_that_leaves_nothing_is_said() -> None:
    bm25 = BM25().fit(Dataset.of("x", [Document("a", "zebra", metadata={"year": 2020})]))
    assert "filter leaves none" in bm25.search("zebra", where={"year": 2021}).note
    assert "filter leaves none" in bm25.explain("zebra", where={"year": ">=2021"}).note
    with pytest.raises(UsageError, match="year holds numbers, and 'soon' is none; compare it with a number, such as 2"):
        bm25.explain("zebra", where={"year": ">=soon"})


@pytest.mark.parametrize("method", ["lucene", "robertson", "atire"])
def test_the_weights_are_those_of_bm25s(method: str) -> None:
    terms = Terms.of("english", [document.full_text for document in DOCUMENTS])
    judge = bm25s().BM25(k1=0.9, b=0.4, method=method)
    rows = [row.tolist() for row in np.split(terms.flat, terms.starts[1:-1])]
    expected = judge.build_index_from_ids(range(len(terms.names)), rows, show_progress=False)
    found = weights(terms, Weighting(method, 0.9, 0.4))
    np.testing.assert_array_equal(found["indptr"], expected["indptr"])
    np.testing.assert_array_equal(found["indices"], expected["indices"])
    np.testing.assert_allclose(found["data"], expected["data"], rtol=1e-5)


@given(
    rows=st.lists(st.lists(st.integers(0, 5), max_size=5), min_size=1, max_size=12).filter(any),
    block=st.integers(1, 9),
    method=st.sampled_from(["lucene", "robertson", "atire"]),
)
def test_weights_that_are_merged_from_blocks_are_those_of_bm25s(rows: list[list[int]], block: int, method: str) -> None:
    flat, starts = np.array([word for row in rows for word in row], np.int32), starts_of([len(row) for row in rows])
    formula = word_weights.Formula(method, 0.9, 0.4)
    whole = word_weights.word_weights(starts, flat, 6, formula)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(word_weights, "BLOCK", block)
        found = word_weights.word_weights(starts, flat, 6, formula)
    for part, array in found.items():
        assert array.tobytes() == whole[part].tobytes()
        assert array.dtype == whole[part].dtype
    judge = bm25s().BM25(k1=0.9, b=0.4, method=method)
    expected = judge.build_index_from_ids(range(6), rows, show_progress=False)
    lengths = np.diff(found["indptr"])
    known = np.flatnonzero(lengths)  # atire divides by the number of documents with a word, also where there are none
    assert np.array_equal(lengths[known], np.diff(expected["indptr"])[known])
    for word in known.tolist():
        ours = _column(found, word)
        theirs = _column(expected, word)
        assert list(ours) == list(theirs)
        assert list(ours.values()) == pytest.approx(list(theirs.values()), rel=1e-5, abs=1e-7)


def _column(matrix: dict[str, np.ndarray], word: int) -> dict[int, float]:
    """The weights of a word by row."""
    low, high = matrix["indptr"][word : word + 2]
    return dict(zip(matrix["indices"][low:high].tolist(), matrix["data"][low:high].tolist(), strict=True))


def test_a_jax_that_cannot_start_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "jax").mkdir()
    (tmp_path / "jax" / "__init__.py").write_text("raise RuntimeError('no device')")
    code = "import triever; d = triever.Dataset.of('x', [triever.Document('a', 'tea')]);"
    code += "print(triever.BM25().fit(d).search('tea')[0].id); import sys; print('jax' in sys.modules)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["a", "False"], done.stderr


def test_one_character_can_be_a_query() -> None:
    bm25 = BM25().fit(Dataset.of("x", [Document("a", "東京都の猫"), Document("b", "大阪の犬")]))
    assert [hit.id for hit in bm25.search("猫")] == ["a"]


def test_a_change_that_fails_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    bm25 = BM25().fit(dataset())
    before = bm25.search_many(QUERIES)

    def fail(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr("triever.engines.lexical.weights", fail)
    with pytest.raises(MemoryError):
        bm25.add([Document("zebra", "stripes")])
    assert bm25.search_many(QUERIES) == before
    assert list(bm25.search("zebra stripes")) == []
    assert len(bm25) == len(DOCUMENTS)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"language": "klingon"}, "no stemmer for language 'klingon'"),
        ({"k1": -1.0}, "k1 = -1.0 should not be negative"),
        ({"b": 1.5}, "b = 1.5 should be between 0 and 1"),
        ({"k1": float("nan")}, "k1 = nan should be a finite number"),
        ({"k1": "much"}, "k1 = 'much' should be a finite number"),
        ({"method": "foo"}, "method = 'foo' is not one of the choices"),
        ({"language": None}, "language = None should be text"),
    ],
)
def test_bad_options_are_refused_before_any_work(options: dict, sentence: str) -> None:
    with pytest.raises(triever.UsageError, match=sentence):
        BM25(**options)


def test_it_finds_what_it_should() -> None:
    bm25 = BM25().fit(dataset())
    assert [bm25.search(query, 1)[0].id for query in QUERIES] == ["tea", "bike", "東京", "bread"]
