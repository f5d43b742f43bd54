"""A work folder goes on with the very same fit, and with no other."""

from __future__ import annotations

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import triever
from tests.retrievers.contract import DOCUMENTS, QRELS, QUERIES, dataset
from triever import Dataset, Query
from triever.data.store import DocumentStore
from triever.retrievers.bm25 import BM25
from triever.retrievers.dense import Dense
from triever.retrievers.fusion import Fused
from triever.retrievers.reranker import Reranked
from triever.training import fit_fingerprints
from triever.training.tuning import RerankTuning, Tuning
from triever.work_folder import LOCK, MARKER, claim

SMALL = "scratch:hidden=32,layers=1,heads=2,vocabulary=500"
TUNING = Tuning(steps=2, batch=2, holdout=0.0)


def data(queries: list[Query] = QUERIES, qrels: Mapping[str, Mapping[str, int]] = QRELS) -> Dataset:
    return Dataset.of("contract", DOCUMENTS, queries, {"train": qrels, "test": QRELS})


def dense(**options: Any) -> Dense:
    return Dense(backbone=SMALL, training=replace(TUNING, **options))


ASKED_OTHERWISE = data([*QUERIES[:3], Query("q4", "how do I bake a loaf?")])


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as an interrupted fit leaves it."""
    work = tmp_path_factory.mktemp("begun") / "work"
    dense().fit(data(), work=work)
    assert (work / "training" / "training.json").exists()
    return work


def test_the_same_fit_goes_on(begun: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = dense().fit(data()).search_many(QUERIES, 5)
    monkeypatch.setattr("triever.training.tuning.PairTraining._loss", lambda *_: pytest.fail("trained again"))
    assert dense().fit(data(), work=begun).search_many(QUERIES, 5) == whole


@pytest.mark.parametrize(
    ("retriever", "other", "what"),
    [
        (dense(), ASKED_OTHERWISE, "queries"),
        (dense(), data(QUERIES[:3], {key: QRELS[key] for key in ("q1", "q2", "q3")}), "queries"),
        (dense(), data(qrels={**QRELS, "q1": {"coffee": 1}}), "queries"),
        (dense(), data().with_expansions({"tea": ["a hot drink"]}), "expansions"),
        (dense(), Dataset.of("contract", DOCUMENTS[:9], QUERIES, {"train": QRELS}), "documents"),
        (dense(learning_rate=1e-3), data(), "options"),
    ],
)
def test_another_fit_is_refused(begun: Path, retriever: Dense, other: Dataset, what: str) -> None:
    before = (begun / MARKER).read_bytes()
    with pytest.raises(triever.UsageError, match=rf"unfinished work with other .*\b{what}\b.*; remove that"):
        retriever.fit(other, work=begun)
    assert (begun / MARKER).read_bytes() == before


def test_queries_that_are_not_learned_do_not_matter(begun: Path) -> None:
    other = Dataset.of("contract", DOCUMENTS, QUERIES, {"train": QRELS, "test": {"q1": {"bread": 1}}})
    dense().fit(other, work=begun)


def test_another_content_of_a_saved_part_is_noticed(tmp_path: Path) -> None:
    dense().fit(data()).save(tmp_path / "first")

    def fit() -> None:
        tuning = RerankTuning(steps=2, batch=2, holdout=0.0)
        Reranked(first=str(tmp_path / "first"), backbone=SMALL, training=tuning).fit(data(), work=tmp_path / "work")

    fit()
    fit()  # the same folder: it goes on
    dense().fit(ASKED_OTHERWISE).save(tmp_path / "first")
    with pytest.raises(triever.UsageError, match="unfinished work with other parts;"):
        fit()


def test_a_part_that_was_changed_is_another() -> None:
    part, fused = dense().fit(data()), Fused(systems=(BM25(), dense().fit(data())))
    store = DocumentStore.of(DOCUMENTS)
    before = Fused(systems=(BM25(), part)).lessons(data(), store)
    assert before == fused.lessons(data(), store), "fitted twice in the same way"
    part.add([triever.Document("volcano", "Molten rock.")])
    part.delete(["tea"])
    part.add(DOCUMENTS[:1])
    changed = DocumentStore.of([*DOCUMENTS[1:], triever.Document("volcano", "Molten rock."), DOCUMENTS[0]])
    assert Fused(systems=(BM25(), part)).lessons(data(), changed)["parts"][1] != before["parts"][1]


def test_another_content_of_a_backbone_folder_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "more").mkdir()
    retriever = Dense(backbone=str(tmp_path), training=TUNING)
    store = DocumentStore.of(DOCUMENTS)
    before = retriever.lessons(data(), store)["backbone"]
    assert before == retriever.lessons(data(), store)["backbone"] != ""
    (tmp_path / "config.json").write_text("[]")
    assert retriever.lessons(data(), store)["backbone"] != before
    assert dense().lessons(data(), store)["backbone"] == ""


def test_what_does_not_train_needs_no_queries() -> None:
    for retriever in (BM25(), Dense(backbone=SMALL)):
        assert retriever.lessons(Dataset.of("contract", DOCUMENTS), DocumentStore.of(DOCUMENTS)) == {}


def test_expansions_are_told_apart() -> None:
    several: list[dict[str, list[str]]] = [{"tea": ["a", "b"]}, {"tea": ["ab"]}, {"coffee": ["a", "b"]}, {}]
    stores = [DocumentStore.of(dataset().with_expansions(one).documents()) for one in several]
    assert len({fit_fingerprints.of_expansions(store) for store in stores}) == 4
    assert fit_fingerprints.of_expansions(stores[-1]) == ""
    early = np.arange(len(DOCUMENTS)) < 5
    joined = stores[0].where(early).with_added(stores[0].where(~early))
    assert fit_fingerprints.of_expansions(joined) == fit_fingerprints.of_expansions(stores[0]), (
        "however the columns are cut"
    )


def test_processes_of_one_fit_do_not_stand_in_each_others_way(tmp_path: Path) -> None:
    def process(number: int) -> None:
        work = claim(tmp_path / f"work{number // 8}", {"options": "x" * 10_000})
        (work / "documents").mkdir(exist_ok=True)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(process, range(160)))
    assert json.loads((tmp_path / "work0" / MARKER).read_text())["what"] == {"options": "x" * 10_000}
    assert sorted(path.name for path in (tmp_path / "work0").iterdir()) == [LOCK, "documents", MARKER]


def test_a_claim_that_was_killed_is_made_again(tmp_path: Path) -> None:
    (tmp_path / ".triever-work.json.0a1b2c3d.tmp").write_bytes(b"{")
    assert claim(tmp_path, {"kind": "x"}) == tmp_path


def test_somebody_elses_place_is_refused(tmp_path: Path) -> None:
    BM25().fit(dataset()).save(tmp_path / "saved")
    for place in ("saved", "saved/work"):
        with pytest.raises(triever.UsageError, match="lies inside the saved retriever"):
            BM25().fit(dataset(), work=tmp_path / place)
    (tmp_path / "file").touch()
    with pytest.raises(triever.UsageError, match="file is a file; name a folder to work in"):
        BM25().fit(dataset(), work=tmp_path / "file")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").touch()
    with pytest.raises(
        triever.UsageError, match=r"other holds thesis\.txt, which Triever does not write there; work in a new"
    ):
        BM25().fit(dataset(), work=tmp_path / "other")
