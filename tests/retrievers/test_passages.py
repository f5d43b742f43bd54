"""Searching documents by their passages: the contract, and every system against its own search of the passages."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from _pytest.mark.structures import ParameterSet

import triever
from tests.marks import quick
from tests.models.test_backbones import needs_minilm
from tests.retrievers.contract import DOCUMENTS, QUERIES, Contract, dataset
from triever import BM25, Dataset, Document, Query
from triever.data.cut_documents import CutDocuments
from triever.data.cutting import Cut
from triever.data.store import DocumentStore
from triever.docids.schemes import Semantic
from triever.engines.docid_search import SearchOptions
from triever.models.decoders import DecoderOptions
from triever.retriever import Retriever, system
from triever.retrievers.contextual import Contextual
from triever.retrievers.dense import Dense
from triever.retrievers.fusion import Fused
from triever.retrievers.gdr import GDR
from triever.retrievers.generative import Generative
from triever.retrievers.multivector import MultiVector
from triever.retrievers.reranker import Reranked
from triever.training.tuning import DocidTuning, RerankTuning

SMALL = "scratch:hidden=32,layers=1,heads=2,vocabulary=500"
SHORT = Cut("all", words=8, overlap=2)
NOTHING = DocidTuning(steps=0)
EXACT = SearchOptions(method="exact")


def systems(cut: Cut) -> dict[str, Retriever]:
    symbols = DecoderOptions(rows="symbols")
    vectors = Dense(backbone=SMALL)
    return {
        "bm25": BM25(cut=cut),
        "dense": Dense(backbone=SMALL, cut=cut),
        "multivector": MultiVector(backbone=SMALL, size=16, cut=cut),
        "generative": Generative(
            vectors=vectors, docids=Semantic(branch=2, leaf=2), training=NOTHING, search_options=EXACT, cut=cut
        ),
        "symbols": Generative(
            backbone=SMALL,
            docids=Semantic(branch=3, leaf=5),
            training=NOTHING,
            decoder=symbols,
            search_options=EXACT,
            cut=cut,
        ),
        "gdr": GDR(vectors=vectors, docids=Semantic(branch=2, leaf=2), training=NOTHING, cut=cut),
        "contextual": Contextual(backbone=SMALL, training=NOTHING, search_options=SearchOptions(width=64), cut=cut),
        "fused": Fused(systems=(BM25(), Dense(backbone=SMALL)), cut=cut),
        "reranked": Reranked(backbone=SMALL, training=RerankTuning(steps=0), depth=100, cut=cut),
    }


class TestBM25(Contract):
    filters_as = "left out"

    def make(self) -> triever.Retriever:
        return systems(SHORT)["bm25"]


class TestDense(Contract):
    def make(self) -> triever.Retriever:
        return systems(SHORT)["dense"]


@pytest.mark.long
class TestGenerative(Contract):
    def make(self) -> triever.Retriever:
        return systems(SHORT)["generative"]


@pytest.mark.parametrize("name", quick("bm25", "generative", of=systems(SHORT)))
def test_a_document_is_what_its_passages_are(name: str) -> None:
    """The oracle: the same system over passages as documents of their own, joined by hand."""
    fitted = systems(SHORT)[name].fit(dataset())
    cut = CutDocuments.of(DOCUMENTS, SHORT)
    assert fitted.searched.ids == cut.passages.ids
    assert len(cut.passages) > len(DOCUMENTS)
    passages = systems(Cut("none"))[name].fit(cut.dataset(dataset(), DocumentStore.of(DOCUMENTS)))
    for query in QUERIES:
        expected: dict[str, float] = {}
        for hit in passages.search(query, len(cut.passages)):
            owner = DOCUMENTS[int(cut.owners[cut.passages.row(hit.id)])].id
            if owner not in expected:
                expected[owner] = hit.score
            elif hit.score == hit.logprob:
                expected[owner] = float(np.logaddexp(expected[owner], hit.score))
        found = {hit.id: hit.score for hit in fitted.search(query, len(DOCUMENTS))}
        assert found == pytest.approx(expected, rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("name", quick("bm25", "generative", of=systems(SHORT)))
def test_explanations_add_up(name: str) -> None:
    if name in ("fused", "reranked"):
        pytest.skip("its parts are other systems' scores")
    explanation = systems(SHORT)[name].fit(dataset()).explain("boiling water for tea leaves", 4)
    for hit, parts in zip(explanation.result, explanation.parts, strict=True):
        assert sum(weight for _, weight in parts) == pytest.approx(hit.score, abs=2e-3)


def needing_minilm(*kinds: str) -> list[ParameterSet]:
    return [pytest.param(kind, marks=[needs_minilm, pytest.mark.long]) for kind in kinds]


FILLER = " ".join(f"Sentence {number} says nothing about anything that matters here." for number in range(120))
LONG = [
    Document("needle", f"{FILLER}\n\nThe password of the old lighthouse is swordfish."),
    *(Document(f"hay{number}", FILLER) for number in range(5)),
]


@pytest.mark.parametrize("kind", ["bm25", *needing_minilm("dense", "generative", "multivector")])
def test_a_needle_at_the_end_of_a_long_document_is_found(kind: str) -> None:
    data = Dataset.of("long", LONG)
    fitted = system(kind)(cut=Cut("all")).fit(data)
    hit = fitted.search("what is the password of the lighthouse", 3)[0]
    assert hit.id == "needle"
    assert "swordfish" in hit.passage
    assert "swordfish" in str(hit.snippet)
    assert hit.text[hit.snippet.start :].startswith(str(hit.snippet))


def test_files_are_cut_and_datasets_are_not(tmp_path: Path) -> None:
    for document in LONG[:3]:
        (tmp_path / f"{document.id}.txt").write_text(document.text, encoding="utf-8")
    files = BM25().fit(triever.load_dataset(tmp_path))
    assert len(files.searched) > len(files) == 3
    assert len(BM25(cut=Cut("none")).fit(triever.load_dataset(tmp_path)).searched) == 3
    assert len(BM25().fit(Dataset.of("long", LONG)).searched) == len(LONG)


def test_a_question_is_about_the_passage_that_shares_its_words() -> None:
    cut = CutDocuments.of(LONG, Cut("all"))
    queries = [Query("q", "the lighthouse password")]
    data = Dataset.of("long", LONG, queries, {"train": {"q": {"needle": 2}}})
    passages = cut.dataset(data, DocumentStore.of(LONG))
    assert len(list(passages.documents())) == len(cut.passages)
    judged = passages.qrels("train")["q"]
    assert [*judged.values()] == [2]
    assert "swordfish" in cut.passages.document(next(iter(judged))).text


def test_enough_documents_come_where_one_has_most_of_the_passages() -> None:
    greedy = Document("greedy", " ".join(["tea is hot."] * 500))
    others = [Document(f"d{number}", "some tea") for number in range(20)]
    fitted = BM25(cut=Cut("all", words=6, overlap=1)).fit(Dataset.of("greedy", [greedy, *others]))
    assert len({hit.id for hit in fitted.search("tea", 15)}) == 15
    assert all(math.isfinite(hit.score) for hit in fitted.search("tea", 15))
