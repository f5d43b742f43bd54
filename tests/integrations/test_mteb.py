"""The model for MTEB: a task of its own code gives our numbers."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from triever.evaluation.trec_stand_in import RelevanceEvaluator, standing_in

WHY = "the adapter for MTEB is tested where that is installed: make test-all"
with standing_in():
    mteb = pytest.importorskip("mteb", reason=WHY)
datasets = pytest.importorskip("datasets", reason=WHY)

from mteb.abstasks.retrieval import AbsTaskRetrieval  # noqa: E402
from mteb.abstasks.task_metadata import TaskMetadata  # noqa: E402
from mteb.models import SearchProtocol  # noqa: E402

import triever  # noqa: E402
from tests.integrations.shared import bm25, every_source  # noqa: E402
from tests.retrievers.contract import QUERIES, dataset  # noqa: E402
from triever import BM25, UsageError  # noqa: E402
from triever.integrations.mteb import TrieverModel  # noqa: E402

pytestmark = pytest.mark.long

GRADES = {"q1": {"coffee": 1, "tea": 2}, "q2": {"bike": 1}, "q3": {"empty": 1}, "q4": {"tea": 1, "bread": 1}}
JUDGED = triever.Dataset.of("judged", [*dataset().documents()], QUERIES, {"test": GRADES})
MEASURES = {"ndcg_at_10": "nDCG@10", "map_at_100": "AP@100", "recall_at_5": "R@5", "precision_at_3": "P@3"}


class Judged(AbsTaskRetrieval):
    """A task in memory, with MTEB's own loading, searching and scoring."""

    metadata = TaskMetadata(
        name="JudgedRetrieval",
        description="Questions on a few documents.",
        dataset={"path": "none/none", "revision": "1"},
        type="Retrieval",
        category="t2t",
        modalities=["text"],
        eval_splits=["test"],
        eval_langs=["eng-Latn"],
        main_score="ndcg_at_10",
    )

    def load_data(self, **_: Any) -> None:
        corpus = [{"id": one.id, "title": one.title, "text": one.text} for one in JUDGED.documents()]
        queries = [{"id": query.id, "text": query.text} for query in QUERIES]
        split = {
            "corpus": datasets.Dataset.from_list(corpus),
            "queries": datasets.Dataset.from_list(queries),
            "relevant_docs": {query: dict(grades) for query, grades in GRADES.items()},
            "top_ranked": None,
        }
        self.dataset = {"default": {"test": split}}
        self.data_loaded = True


def scores(model: TrieverModel) -> dict[str, float]:
    """The example of docs/integrations.md."""
    result = mteb.evaluate(model, [Judged()], cache=None, show_progress_bar=False, co2_tracker=False)
    (scored,) = result.task_results[0].scores["test"]
    return scored


@pytest.mark.parametrize("options", [{}, {"language": "none"}])
def test_a_task_gives_our_numbers(options: dict[str, Any]) -> None:
    theirs = scores(TrieverModel(BM25(**options)))
    report = triever.compare({"bm25": BM25(**options).fit(JUDGED)}, JUDGED, measures=list(MEASURES.values()))
    for name, measure in MEASURES.items():
        assert theirs[name] == pytest.approx(report.scores["bm25"][measure].mean, abs=1e-5), "they round to five places"
    assert 0 < theirs["ndcg_at_10"] < 1
    assert theirs["main_score"] == theirs["ndcg_at_10"]


def test_our_measures_give_the_same_scores_as_trec_eval(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = scores(TrieverModel(BM25()))
    ours = SimpleNamespace(RelevanceEvaluator=RelevanceEvaluator)
    monkeypatch.setattr("mteb._evaluators.retrieval_metrics.pytrec_eval", ours)
    found = scores(TrieverModel(BM25()))
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name] == (pytest.approx(value, nan_ok=True) if isinstance(value, float) else value), name


def test_every_source_gives_the_same(tmp_path: Path) -> None:
    expected = scores(TrieverModel(BM25()))
    with every_source(tmp_path) as sources:
        for name, source in sources.items():
            assert scores(TrieverModel(source))["ndcg_at_10"] == expected["ndcg_at_10"], name


def test_it_keeps_the_protocol_and_is_told_from_others() -> None:
    model = TrieverModel(BM25())
    assert isinstance(model, SearchProtocol)
    assert model.mteb_model_meta.name == "triever/bm25"
    assert TrieverModel(BM25(), "me/mine").mteb_model_meta.name == "me/mine"
    revisions = {TrieverModel(each).mteb_model_meta.revision for each in (BM25(), BM25(k1=0.9), bm25())}
    assert len(revisions) == 3, "MTEB would give the results of one for the other"
    assert TrieverModel(BM25()).mteb_model_meta.revision == model.mteb_model_meta.revision


def test_a_system_is_fitted_anew_for_each_task() -> None:
    system = BM25()
    model = TrieverModel(system)
    for word in ("one", "two"):
        model.index([{"id": word, "title": "", "text": word}], task_metadata=Judged.metadata)
        found = model.search([{"id": 7, "text": word}], task_metadata=Judged.metadata, top_k=5)
        assert list(found["7"]) == [word]
    assert not system.is_fitted


def test_an_instruction_is_read_with_its_query() -> None:
    model = TrieverModel(BM25())
    model.index([{"id": "a", "text": "green tea"}, {"id": "b", "text": "coffee"}], task_metadata=Judged.metadata)
    query = {"id": "q", "text": "drinks", "instruction": "coffee only"}
    assert list(model.search([query], task_metadata=Judged.metadata, top_k=5)["q"]) == ["b"]


def test_what_does_not_fit_is_refused_with_a_sentence() -> None:
    task = Judged.metadata
    with pytest.raises(UsageError, match="the documents of JudgedRetrieval are not those of the retriever; fit it to"):
        TrieverModel(bm25()).index([{"id": "x", "text": "y"}], task_metadata=task)
    with pytest.raises(UsageError, match="x of JudgedRetrieval has no text; choose a task of texts"):
        TrieverModel(BM25()).index([{"id": "x", "image": b""}], task_metadata=task)
    model = TrieverModel(BM25())
    with pytest.raises(UsageError, match="there is no corpus yet; call index first"):
        model.search([], task_metadata=task, top_k=5)
    with pytest.raises(UsageError, match="gives candidates to rank, and Triever searches whole corpora"):
        model.search([], task_metadata=task, top_k=5, top_ranked={"q": ["a"]})
