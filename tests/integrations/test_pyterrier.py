"""The transformer for PyTerrier: its experiments give our numbers."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

WHY = "the adapter for PyTerrier is tested where that is installed: make test-all"
pt = pytest.importorskip("pyterrier", reason=WHY)
pd = pytest.importorskip("pandas", reason=WHY)

import ir_measures  # noqa: E402
from ir_measures import AP, RR, Success, nDCG  # noqa: E402

import triever  # noqa: E402
from tests.integrations.shared import QUESTION, bm25, every_source  # noqa: E402
from tests.retrievers.contract import QUERIES, dataset  # noqa: E402
from triever.evaluation.trec import pipeline  # noqa: E402
from triever.integrations.pyterrier import TrieverTransformer  # noqa: E402

pytestmark = pytest.mark.long

TOPICS = pd.DataFrame([{"qid": query.id, "query": query.text} for query in QUERIES])
GRADES = {"q1": {"coffee": 1, "tea": 2}, "q2": {"bike": 1}, "q3": {"empty": 1}, "q4": {"tea": 1, "bread": 1}}
JUDGED = triever.Dataset.of("judged", [*dataset().documents()], QUERIES, {"test": GRADES})
QRELS = pd.DataFrame(
    [{"qid": qid, "docno": doc, "label": grade} for qid, grades in GRADES.items() for doc, grade in grades.items()]
)
MEASURES = ["nDCG@10", "AP@100", "Success@1", "RR@10"]


@pytest.fixture
def measurable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where trec_eval has no build (Linux on ARM), ir-measures computes its measures with our provider."""
    if not find_spec("pytrec_eval"):
        monkeypatch.setattr(ir_measures.DefaultPipeline, "providers", pipeline().providers)


@pytest.mark.usefixtures("measurable")
def test_an_experiment_gives_our_numbers() -> None:
    """The example of docs/integrations.md."""
    systems = {"bm25": bm25(), "plain": triever.BM25(language="none").fit(dataset())}
    frame = pt.Experiment(
        [TrieverTransformer(system, 100) for system in systems.values()],
        TOPICS,
        QRELS,
        [nDCG @ 10, AP @ 100, Success @ 1, RR @ 10],
        names=list(systems),
    )
    report = triever.compare(systems, JUDGED, split="test", measures=MEASURES)
    for name in systems:
        theirs = frame.set_index("name").loc[name]
        assert theirs[MEASURES].to_dict() == pytest.approx({m: report.scores[name][m].mean for m in MEASURES})
        assert 0 < theirs["nDCG@10"] < 1


def test_rows_are_the_hits_from_every_source(tmp_path: Path) -> None:
    results = bm25().search_many(QUERIES, 3)
    rows = [
        (query.id, query.text, hit.id, hit.score, rank)
        for query, result in zip(QUERIES, results, strict=True)
        for rank, hit in enumerate(result)
    ]
    with every_source(tmp_path) as sources:
        for name, source in sources.items():
            frame = TrieverTransformer(source, 3).transform(TOPICS)
            assert list(frame.columns) == ["qid", "query", "docno", "score", "rank"]
            assert list(frame.itertuples(index=False, name=None)) == rows, name


def test_texts_are_there_for_who_reads_them() -> None:
    frame = TrieverTransformer(bm25(), 1, text=True).search(QUESTION)
    assert frame.loc[0, "title"] == "How to brew tea"
    assert "wait four minutes" in frame.loc[0, "text"]


def test_it_is_a_part_of_a_pipeline() -> None:
    cut = TrieverTransformer(bm25()) % 1
    assert list(cut.transform(TOPICS)["docno"]) == ["tea", "bike", "東京", "bread"]
    only = TrieverTransformer(bm25(), where={"name": "coffee"})
    assert list(only.search(QUESTION)["docno"]) == ["coffee"]


def test_no_queries_and_no_hits_give_a_frame_with_the_same_columns() -> None:
    transformer = TrieverTransformer(bm25())
    assert list(transformer.transform(TOPICS[:0]).columns) == ["qid", "query", "docno", "score", "rank"]
    assert len(transformer.search("zzzz")) == 0
