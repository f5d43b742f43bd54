"""The contract suite: what every retriever must do, whatever it is.

A retriever's test file makes a subclass of `Contract` with a `make` method; pytest does the rest.
"""

from __future__ import annotations

import copy
import json
import math
import threading
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import triever
from triever import Document, Query

DOCUMENTS = [
    Document("tea", "Pour boiling water over the leaves and wait four minutes.", "How to brew tea"),
    Document("coffee", "Grind the beans fresh; the water should be just below boiling.", "How to make coffee"),
    Document("bread", "Flour, water, salt and yeast: knead, let the dough rise, then bake.", "Baking bread"),
    Document("bike", "Patch the inner tube of a bicycle wheel after a puncture.", "Repair a flat tyre"),
    Document("chess", "The king may castle if neither king nor rook has moved.", "Castling"),
    Document("tides", "The pull of the moon raises the sea twice a day.", "Why there are tides"),
    Document("größe", "Schuhgrößen werden in Europa nach der Länge des Leistens bestimmt.", "Schuhgröße"),
    Document("東京", "東京は日本の首都であり、世界最大の都市圏である。", "東京都"),
    Document("two words", "An id may hold a space, since file names do.", "Ids with spaces"),
    Document("empty", ""),
]
DOCUMENTS = [
    replace(document, metadata={"name": document.id, "words": len(document.text.split())}) for document in DOCUMENTS
]
QUERIES = [
    Query("q1", "boiling water for tea leaves"),
    Query("q2", "fix a puncture in a bicycle wheel"),
    Query("q3", "日本の首都"),
    Query("q4", "knead the dough and bake"),
]
ONE_FOR_ALL = (HealthCheck.function_scoped_fixture, HealthCheck.differing_executors)
"""Examples share what was fitted once, and retrievers share the tests."""
QRELS = {"q1": {"tea": 1}, "q2": {"bike": 1}, "q3": {"東京": 1}, "q4": {"bread": 1}}


def dataset(documents: list[Document] | None = None) -> triever.Dataset:
    found = DOCUMENTS if documents is None else documents
    return triever.Dataset.of("contract", found, QUERIES, {"train": QRELS, "test": QRELS})


def check_beam(panel: dict[str, Any], scores: dict[str, float]) -> None:
    """The prefixes of a search form a tree, in which every hit lies below something that was not pruned."""
    assert {path["id"] for path in panel["paths"]} == {*scores}
    above: list[dict[str, Any]] = []
    for length, level in enumerate(panel["levels"], start=1):
        assert level["length"] == length
        assert [*level["prefixes"]] == sorted(
            level["prefixes"], key=lambda prefix: (-prefix["logprob"], prefix["prefix"])
        )
        for outcome in ("kept", "ended", "pruned"):
            assert sum(prefix["outcome"] == outcome for prefix in level["prefixes"]) <= level[outcome]
        for prefix in level["prefixes"]:
            assert len(prefix["prefix"]) == length
            assert len(prefix["hits"]) <= prefix["documents"]
            if length > 1:
                parent = above[prefix["parent"]]
                assert (parent["prefix"], parent["outcome"]) == (prefix["prefix"][:-1], "kept")
                assert {*prefix["hits"]} <= {*parent["hits"]}
                assert panel["normalisation"] == "documents" or prefix["logprob"] <= parent["logprob"] + 1e-6
            else:
                assert prefix["parent"] is None
        above = level["prefixes"]
    ended = [prefix for level in panel["levels"] for prefix in level["prefixes"] if prefix["outcome"] == "ended"]
    assert {hit for prefix in ended for hit in prefix["hits"]} == {*scores}


def check_matches(panel: dict[str, Any], scores: dict[str, float]) -> None:
    """What tokens add is the score of a hit, on either side; in a composite it is that of a part."""
    for hit in panel["hits"]:
        assert len(hit["query"]) == len(panel["query"])
        assert len(hit["weights"]) == len(hit["document"])
        assert all(
            0 <= left < len(hit["query"]) and 0 <= right < len(hit["document"]) for left, right, _ in hit["links"]
        )
        total = sum(hit["query"])
        assert total == pytest.approx(sum(hit["weights"]) + hit["rest"], abs=2e-2)
        assert panel["system"] or total == pytest.approx(scores[hit["id"]], abs=2e-2)
    assert panel["system"] or {hit["id"] for hit in panel["hits"]} == {*scores}


CHECKS = {"beam": check_beam, "matches": check_matches}


class Contract:
    """Subclass and give `make`, which returns a new retriever that has not been fitted."""

    once: tuple[triever.Retriever, triever.Retriever]
    """What was made, and what its `fit` returned."""
    understands: bool = True
    """Whether it finds a document by its words before any training."""
    filters_as: str = "deleted"
    """What a filter is like: others are `deleted`, or `left out` of a ranking of all, or scores have `no model`."""

    def make(self) -> triever.Retriever:
        raise NotImplementedError

    @pytest.fixture
    def fitted(self) -> triever.Retriever:
        if "once" not in vars(type(self)):
            retriever = self.make()
            type(self).once = retriever, retriever.fit(dataset())
        return copy.copy(self.once[1])  # changes give a retriever new values, so a copy's never reach the others

    def test_fit_returns_the_retriever_itself(self, fitted: triever.Retriever) -> None:
        made, returned = self.once
        assert returned is made
        assert len(fitted) == len(DOCUMENTS)

    @pytest.mark.parametrize("k", [1, 3, 10, 1000])
    def test_hits_are_distinct_existing_ordered_finite_and_at_most_k(self, fitted: triever.Retriever, k: int) -> None:
        known = {document.id for document in DOCUMENTS}
        for result in fitted.search_many(QUERIES, k):
            ids = [hit.id for hit in result]
            assert len(ids) == len(set(ids)) <= min(k, len(DOCUMENTS))
            assert set(ids) <= known
            assert all(math.isfinite(hit.score) for hit in result)
            order = [(hit.score, hit.id) for hit in result]
            assert order == sorted(order, reverse=True)

    def test_a_larger_k_extends_a_smaller_one(self, fitted: triever.Retriever) -> None:
        for query in QUERIES:
            assert fitted.search(query, 1)[:1] == fitted.search(query, 5)[:1]

    def test_search_many_is_search_for_each(self, fitted: triever.Retriever) -> None:
        together = fitted.search_many(QUERIES, 5)
        for result, query in zip(together, QUERIES, strict=True):
            alone = fitted.search(query, 5)
            assert [hit.id for hit in alone] == [hit.id for hit in result]
            assert [hit.score for hit in alone] == pytest.approx([hit.score for hit in result], rel=1e-4)
        assert fitted.search_many([], 5) == []

    def test_a_query_may_be_text_or_a_record_in_any_unicode_form(self, fitted: triever.Retriever) -> None:
        assert fitted.search("Schuhgro\u0308\u00dfe") == fitted.search(Query("x", "Schuhgr\u00f6\u00dfe"))

    def test_what_says_that_it_gives_no_probabilities_gives_none(self, fitted: triever.Retriever) -> None:
        results = fitted.with_probabilities(QUERIES, fitted.search_many(QUERIES, 3))
        likely = [hit.logprob is not None for result in results for hit in result]
        assert likely
        assert fitted.gives_probabilities or not any(likely)

    @pytest.mark.parametrize("query", ["", "   ", "?!…", "\x00", "zzzzqqqq", "a" * 100_000])
    def test_odd_queries_are_answered(self, fitted: triever.Retriever, query: str) -> None:
        assert len(fitted.search(query, 3)) <= 3

    def test_mistakes_are_refused(self, fitted: triever.Retriever) -> None:
        with pytest.raises(triever.UsageError, match="above zero"):
            fitted.search("tea", 0)
        with pytest.raises(triever.UsageError, match="search_many takes a list"):
            fitted.search_many("tea")
        with pytest.raises(triever.UsageError, match="delete takes a list"):
            fitted.delete("tea")
        with pytest.raises(triever.UsageError, match="no documents yet; call fit"):
            self.make().search("tea")
        with pytest.raises(triever.UsageError, match="None is not text"):
            fitted.search(None)  # ty: ignore[invalid-argument-type]
        with pytest.raises(triever.UsageError, match="fit takes a Dataset, not str"):
            self.make().fit("contract")  # ty: ignore[invalid-argument-type]
        with pytest.raises(triever.UsageError, match="contract has no documents"):
            self.make().fit(dataset([]))

    def test_explain_explains_the_hits_of_search(self, fitted: triever.Retriever) -> None:
        explanation = fitted.explain("boiling water for tea leaves", 3)
        assert explanation.result == fitted.search("boiling water for tea leaves", 3)
        assert len(explanation.parts) == len(explanation.result)
        assert explanation.to_dict()["hits"][0]["id"] == explanation.result[0].id
        assert explanation.result[0].id in str(explanation)

    def test_an_explanation_is_plain_data_that_adds_up(self, fitted: triever.Retriever) -> None:
        explanation = fitted.explain("boiling water for tea leaves", 3)
        data = explanation.to_dict()
        assert json.loads(json.dumps(data, allow_nan=False)) == data
        assert fitted.explain("boiling water for tea leaves", 3).to_dict() == data
        for hit in data["hits"]:
            assert sum(hit["parts"].values()) == pytest.approx(hit["score"], abs=2e-2)
        scores = {hit["id"]: hit["score"] for hit in data["hits"]}
        for panel in data["panels"]:
            assert panel["about"]
            CHECKS[panel["kind"]](panel, scores)

    def test_docids_are_browsed_where_there_are_some(self, fitted: triever.Retriever) -> None:
        if not fitted.search("tea", 1)[0].docid:
            with pytest.raises(triever.UsageError, match="has no docids; browse one that writes docids"):
                fitted.browse()
            return
        root = fitted.browse(samples=len(DOCUMENTS))
        assert root.documents == len(DOCUMENTS)
        assert {name for branch in root.branches for name, _ in branch.samples} == {
            document.id for document in DOCUMENTS
        }
        assert json.loads(json.dumps(root.to_dict(), allow_nan=False)) == root.to_dict()
        with pytest.raises(triever.UsageError, match="the symbol 'nonsense' does not stand at the beginning of docids"):
            fitted.browse(["nonsense"])

    def test_fitting_twice_gives_the_same(self, fitted: triever.Retriever) -> None:
        again = self.make().fit(dataset())
        assert again.search_many(QUERIES, 5) == fitted.search_many(QUERIES, 5)

    def test_a_deleted_document_never_appears(self, fitted: triever.Retriever) -> None:
        fitted.delete(["tea", "東京"])
        assert len(fitted) == len(DOCUMENTS) - 2
        for result in fitted.search_many(QUERIES, 100):
            assert not {"tea", "東京"} & {hit.id for hit in result}

    @settings(max_examples=6, deadline=None, suppress_health_check=ONE_FOR_ALL)
    @given(chosen=st.sets(st.sampled_from([document.id for document in DOCUMENTS]), min_size=1), k=st.integers(1, 12))
    def test_a_filter_leaves_the_documents_that_it_describes(
        self, fitted: triever.Retriever, chosen: set[str], k: int
    ) -> None:
        filtered = fitted.search_many(QUERIES, k, where={"name": sorted(chosen)})
        everything = fitted.search_many(QUERIES, len(DOCUMENTS))
        fewer = copy.copy(fitted)
        fewer.delete([document.id for document in DOCUMENTS if document.id not in chosen])
        for result, every, alone in zip(filtered, everything, fewer.search_many(QUERIES, k), strict=True):
            assert {hit.id for hit in result} <= chosen
            expected = [hit for hit in every if hit.id in chosen][:k] if self.filters_as == "left out" else alone
            assert len(result) == len(expected)
            if self.filters_as != "no model":
                assert [hit.id for hit in result] == [hit.id for hit in expected]
                scores = pytest.approx([hit.score for hit in expected], rel=1e-4, abs=1e-5)
                assert [hit.score for hit in result] == scores

    def test_a_filter_with_a_slip_is_refused(self, fitted: triever.Retriever) -> None:
        with pytest.raises(triever.UsageError, match="no document has the metadata key 'nmae'; did you mean name"):
            fitted.search("tea", where={"nmae": "tea"})
        assert len(fitted.search("tea", where={"words": ">100"})) == 0
        explanation = fitted.explain("boiling water for tea leaves", 3, where={"name": ["tea", "coffee"]})
        assert {hit.id for hit in explanation.result} <= {"tea", "coffee"}

    def test_an_added_document_can_be_found(self, fitted: triever.Retriever) -> None:
        fitted.add([Document("crater", "Molten rock rises through the crust and erupts as lava.", "Volcanoes")])
        k = 3 if self.understands else len(DOCUMENTS) + 1
        assert "crater" in {hit.id for hit in fitted.search("molten lava erupts from a volcano", k)}

    def test_refused_changes_change_nothing(self, fitted: triever.Retriever) -> None:
        before = fitted.search_many(QUERIES, 5)
        with pytest.raises(triever.UsageError, match="'tea' already exists"):
            fitted.add([Document("new", "x"), Document("tea", "again")])
        with pytest.raises(triever.UsageError, match="no document with id 'milk'"):
            fitted.delete(["tea", "milk"])
        assert fitted.search_many(QUERIES, 5) == before
        assert len(fitted) == len(DOCUMENTS)

    def test_nothing_is_left_after_everything_is_deleted(self, fitted: triever.Retriever, tmp_path: Path) -> None:
        fitted.delete([document.id for document in DOCUMENTS])
        assert len(fitted) == 0
        assert list(fitted.search("tea")) == []
        fitted.save(tmp_path / "m")
        again = triever.load(tmp_path / "m")
        again.add(DOCUMENTS[:3])
        k = 1 if self.understands else 3
        assert "tea" in {hit.id for hit in again.search("boiling water tea leaves", k)}

    def test_saved_and_loaded_it_is_the_same(self, fitted: triever.Retriever, tmp_path: Path) -> None:
        fitted.save(tmp_path / "model")
        again = triever.load(tmp_path / "model")
        assert repr(again) == repr(fitted)
        assert list(again.documents) == DOCUMENTS
        assert again.search_many(QUERIES, 5) == fitted.search_many(QUERIES, 5)
        again.add([Document("crater", "Molten rock.", "Volcanoes")])
        again.delete(["bread"])
        again.save(tmp_path / "model")
        assert len(triever.load(tmp_path / "model")) == len(DOCUMENTS)

    def test_a_card_says_what_it_is(self, fitted: triever.Retriever) -> None:
        assert "contract" in fitted.card
        assert fitted.card.count(dataset().fingerprint) == 2, "what it was fitted on, and what it holds now"
        fitted.delete(["tea"])
        assert fitted.card.count(dataset().fingerprint) == 1
        assert "| deleted | 1 |" in fitted.card
        assert "licence" in fitted.card

    def test_a_save_replaces_unless_told_not_to(self, fitted: triever.Retriever, tmp_path: Path) -> None:
        fitted.save(tmp_path / "model", replace=False)
        fitted.delete(["tea"])
        with pytest.raises(triever.ArtifactError, match="already exists"):
            fitted.save(tmp_path / "model", replace=False)
        assert "tea" in triever.load(tmp_path / "model").documents
        fitted.save(tmp_path / "model")
        assert "tea" not in triever.load(tmp_path / "model").documents

    def test_documents_are_not_hashed_again_to_be_saved(self, tmp_path: Path) -> None:
        data = dataset().with_expansions({"tides": ["ebb and flow"]})
        with mock.patch("triever.data.store.Digest", side_effect=AssertionError):
            self.make().fit(data).save(tmp_path / "model")
            again = triever.load(tmp_path / "model")
            assert again.fingerprint == data.fingerprint
        again.delete(["tea"])
        left = dataset([document for document in DOCUMENTS if document.id != "tea"])
        assert again.fingerprint == left.fingerprint != data.fingerprint

    def test_edit_may_wait_for_another(self, fitted: triever.Retriever, tmp_path: Path) -> None:
        fitted.save(tmp_path / "model")
        with ExitStack() as other:
            other.enter_context(triever.edit(tmp_path / "model")).delete(["tea"])
            threading.Timer(0.1, other.close).start()
            with triever.edit(tmp_path / "model", wait=60) as retriever:
                retriever.delete(["coffee"])
        assert not {"tea", "coffee"} & {*triever.load(tmp_path / "model").documents.ids}

    def test_edit_saves_at_the_end_and_not_after_an_error(self, fitted: triever.Retriever, tmp_path: Path) -> None:
        fitted.save(tmp_path / "model")
        with triever.edit(tmp_path / "model") as retriever:
            retriever.delete(["tea"])
        assert "tea" not in triever.load(tmp_path / "model").documents
        with pytest.raises(RuntimeError), triever.edit(tmp_path / "model") as retriever:
            retriever.delete(["coffee"])
            raise RuntimeError
        assert "coffee" in triever.load(tmp_path / "model").documents

    def test_edit_of_nothing_makes_no_folder(self, tmp_path: Path) -> None:
        with pytest.raises(triever.ArtifactError, match="does not exist"), triever.edit(tmp_path / "none"):
            pass
        assert not (tmp_path / "none").exists()
