"""GDR with a row for every node: the contract, every depth against brute force, and what it refuses."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import triever
from tests.marks import quick
from tests.retrievers.contract import DOCUMENTS, QUERIES, Contract, dataset
from tests.retrievers.gdr_cases import SCHEMES, SMALL
from triever import (
    GDR,
    Cluster,
    Codebook,
    DecoderOptions,
    DocidTuning,
    Document,
    Generative,
    MatchOptions,
    MultiVector,
    SearchOptions,
    Semantic,
    UsageError,
    ViewOptions,
)
from triever.docids.schemes import Scheme
from triever.engines.node_search import of_best
from triever.engines.nodes import NodeEngine
from triever.retrievers.gdr import LossWeights
from triever.training.clusters import ClusterNegatives

NODES = DecoderOptions(rows="nodes")
OWN = {name: scheme for name, scheme in SCHEMES.items() if name != "several"}
MANY = [Document(str(number), f"text of number {number} and {number * 7 % 13}") for number in range(300)]
SENTENCES = [
    Document(first.id, f"{first.text} {second.text}", first.title)
    for first, second in zip(DOCUMENTS, [*DOCUMENTS[1:], DOCUMENTS[0]], strict=True)
]
"""Documents of several passages, which they have in common with others."""


def by_nodes(docids: Scheme = SCHEMES["semantic"], steps: int = 0, **options: object) -> GDR:
    training = DocidTuning(steps=steps, batch=4, rounds=2, learning_rate=3e-3, reader=1.0, holdout=0.0, encoder_steps=0)
    given = {"training": training, "views": ViewOptions(names=("labelled",))} | options
    return GDR(backbone=SMALL, docids=docids, decoder=NODES, **given)  # ty: ignore[invalid-argument-type]


def engine_of(retriever: triever.Retriever) -> NodeEngine:
    assert isinstance(retriever.engine, NodeEngine)
    return retriever.engine


def at_depth(retriever: GDR, depth: int | None, **search: object) -> GDR:
    return retriever.searched_with({"matching": {"depth": depth}, "search_options": search})


def by_rows(retriever: GDR, query: str) -> dict[str, float]:
    """The probability of every document: the softmax over all rows, summed by documents."""
    engine = engine_of(retriever)
    weights = engine.scale * engine.rows.row.astype(np.float32) @ engine.vectors([query])[0].numpy()
    each = torch.from_numpy(weights).double().softmax(0).numpy()
    sums = np.bincount(engine.rows.owners, each, len(retriever))
    return dict(zip(retriever.documents.ids, sums.tolist(), strict=True))


class TestSemantic(Contract):
    def make(self) -> triever.Retriever:
        return by_nodes(Semantic(branch=2, leaf=2), steps=4, matching=MatchOptions(depth=1))


@pytest.mark.long
class TestCodebook(Contract):
    def make(self) -> triever.Retriever:
        return by_nodes(Codebook(levels=2, bits=2), matching=MatchOptions(depth=2))


class TestClusters(Contract):
    def make(self) -> triever.Retriever:
        return by_nodes(Cluster(clusters=4))


@pytest.mark.long
class TestNothingWritten(Contract):
    def make(self) -> triever.Retriever:
        return by_nodes(matching=MatchOptions(depth=0))


@pytest.mark.parametrize("name", quick("semantic", "centroids", of=OWN))
def test_a_wide_beam_ranks_by_the_softmax_over_rows_at_every_depth(name: str) -> None:
    fitted = by_nodes(OWN[name]).fit(dataset(SENTENCES))
    assert len(engine_of(fitted).rows) > 2 * len(fitted)
    for query in QUERIES:
        expected = by_rows(fitted, query.text)
        for depth in (*fitted.depths, None):
            hits = at_depth(fitted, depth, width=200).search(query, 100)
            assert {hit.id: math.exp(hit.score) for hit in hits} == pytest.approx(expected, abs=1e-4), depth
            assert [hit.id for hit in hits[:3]] == sorted(expected, key=lambda found: -expected[found])[:3], depth


@pytest.mark.parametrize("k", [1, 7])
def test_few_hits_have_the_same_scores_as_many(k: int) -> None:
    fitted = by_nodes(Semantic(branch=4, leaf=4)).fit(triever.Dataset.of("many", MANY))
    expected = by_rows(fitted, "number 3")
    for depth in fitted.depths:
        hits = at_depth(fitted, depth, width=400).search("number 3", k)
        assert {hit.id: math.exp(hit.score) for hit in hits} == pytest.approx(
            {hit.id: expected[hit.id] for hit in hits}, abs=1e-5
        )


@pytest.mark.parametrize("name", quick("semantic", of=("semantic", "codebook", "atomic")))
def test_the_ends_of_the_dial_are_those_of_generative_retrieval(name: str) -> None:
    fitted = by_nodes(SCHEMES[name], steps=2).fit(dataset(SENTENCES))
    training, views = fitted.training, fitted.views
    options = {"decoder": NODES, "training": training, "views": views}
    written = Generative(backbone=SMALL, docids=SCHEMES[name], **options).fit(dataset(SENTENCES))
    assert fitted.search_many(QUERIES, 5) == written.search_many(QUERIES, 5)
    exact = written.searching(method="exact")
    assert at_depth(fitted, 0).search_many(QUERIES, 5) == exact.search_many(QUERIES, 5)
    assert at_depth(fitted, 0).search(QUERIES[0]).certificate.startswith("exact")


def below_a_beam(retriever: GDR, query: str, width: int, depth: int) -> set[int]:
    """The passages of the heaviest prefixes, step by step, each weighed by all that is known of it."""
    engine = engine_of(retriever)
    hidden = engine.vectors([query])
    prefixes: list[torch.Tensor] = [engine.walk.root(1)[0]]
    numbers: set[int] = set()
    for length in range(depth):
        children = [engine.walk.children(state[None], length) for state in prefixes]
        states = [state for of in children for state, there in zip(of.state[0], of.exists[0], strict=True) if there]
        alone = [state for state in states if len(engine.walk.documents(state.tolist())) == 1]
        numbers |= {number for state in alone for number in engine.walk.documents(state.tolist())}
        open_ones = [state for state in states if len(engine.walk.documents(state.tolist())) > 1]
        weights = [float(engine.generator.weights(hidden, state[None, None])[0, 0]) for state in open_ones]
        prefixes = [open_ones[at] for at in np.argsort(weights)[::-1][:width]]
    numbers |= {number for state in prefixes for number in engine.walk.documents(state.tolist())}
    return {engine.rows.numbers.tolist().index(number) for number in numbers}


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_what_lies_below_the_heaviest_prefixes_is_found_and_nothing_else(depth: int) -> None:
    fitted = by_nodes(Semantic(branch=4, leaf=4), matching=MatchOptions(depth=depth)).fit(
        triever.Dataset.of("many", MANY)
    )
    for query in ("number 3", "text of 7 and 5"):
        narrow = fitted.searching(width=2)
        owners = engine_of(fitted).rows.owners
        expected = {fitted.documents.ids[owners[position]] for position in below_a_beam(fitted, query, 2, depth)}
        assert 0 < len(expected) < len(MANY)
        assert {hit.id for hit in narrow.search(query, len(expected))} == expected
        rows = by_rows(fitted, query)
        found = [hit.id for hit in narrow.search(query, 5)]
        assert found == sorted(expected, key=lambda one: -rows[one])[:5]


@pytest.mark.parametrize("depth", [1, 2, None])
def test_a_document_counts_with_all_of_its_passages_also_those_that_no_beam_came_to(depth: int | None) -> None:
    words = [f"word{number % 17}" for number in range(600)]
    texts = [". ".join(words[at : at + 6]) for at in range(0, 600, 6)]
    many = triever.Dataset.of("many", [Document(str(number), text) for number, text in enumerate(texts)])
    fitted = at_depth(by_nodes(Semantic(branch=4, leaf=4)).fit(many), depth, width=3)
    engine, missed = engine_of(fitted), 0
    for query in ("word3 word4", "word16"):
        expected, hits = by_rows(fitted, query), fitted.search(query, 5)
        ratios = [math.exp(hit.score - hits[0].score) for hit in hits]
        assert ratios == pytest.approx([expected[hit.id] / expected[hits[0].id] for hit in hits], rel=1e-3)
        if depth is not None:
            reached = below_a_beam(fitted, query, 3, depth)
            of_hits = [np.flatnonzero(engine.rows.owners == fitted.documents.row(hit.id)) for hit in hits]
            missed += len(set(np.concatenate(of_hits).tolist()) - reached)
    assert missed or depth is None, "else there is nothing to see here"


def test_a_beam_that_holds_too_few_documents_is_widened() -> None:
    fitted = by_nodes(Cluster(clusters=30), search_options=SearchOptions(width=1)).fit(triever.Dataset.of("many", MANY))
    for k in (5, 100, 300):
        assert len(fitted.search("number 3", k)) == k


def test_few_rows_are_compared_where_much_is_written() -> None:
    fitted = by_nodes(Semantic(branch=4, leaf=4), search_options=SearchOptions(width=2)).fit(
        triever.Dataset.of("many", MANY)
    )
    shares = [at_depth(fitted, depth).compared(["number 3"], 1) for depth in fitted.depths]
    assert shares[0] == 1
    assert 0 < shares[3] < shares[2] < shares[1] < 1
    # Four prefixes and all that lies below two of them.
    engine = engine_of(at_depth(fitted, 1))
    children = engine.walk.children(engine.walk.root(1), 0)
    below = [len(engine.walk.documents(state.tolist())) for state in children.state[0]]
    weights = engine.generator.weights(engine.vectors(["number 3"]), children.state)[0]
    assert shares[1] == pytest.approx((4 + sum(below[at] for at in weights.topk(2).indices.tolist())) / 300)
    # A beam that keeps all four has nothing to choose between: then every row is compared at once.
    assert at_depth(fitted, 1, width=3).compared(["number 3"], 1) != 1
    assert at_depth(fitted, 1, width=4).compared(["number 3"], 1) == 1


def test_a_document_is_ranked_by_its_own_row_inside_a_cluster_and_shows_the_docid_of_it() -> None:
    fitted = by_nodes(Cluster(clusters=3)).fit(dataset())
    engine = engine_of(fitted)
    assert fitted.depths == range(2)
    assert len(engine.sums[0].shared) == 0  # no two passages have one docid
    hits = fitted.searching(width=200).search("boiling water", 5)
    assert {hit.docid for hit in hits} <= {"0", "1", "2"}
    assert len({hit.score for hit in hits}) == 5
    fitted.add([Document("crater", "Molten rock rises. It erupts as lava.", "Volcanoes")])
    fitted.delete(["tea"])
    engine = engine_of(fitted)
    assert {engine.docid(position)[-1] for position in range(len(engine.rows))} == {*engine.rows.numbers.tolist()}


@pytest.mark.parametrize("name", quick("semantic", "cluster", of=OWN))
def test_after_changes_and_opened_again_it_is_still_the_softmax(name: str, tmp_path: Path) -> None:
    fitted = by_nodes(OWN[name], search_options=SearchOptions(width=200)).fit(dataset(SENTENCES))
    fitted.delete(["tea", "chess"])
    fitted.add([Document("tea", "Molten rock rises. It erupts as lava. Ash falls.", "Volcanoes")])
    for _ in range(2):
        expected = by_rows(fitted, "lava and ash")
        for depth in (*fitted.depths, None):
            hits = at_depth(fitted, depth).search("lava and ash", 100)
            assert {hit.id: math.exp(hit.score) for hit in hits} == pytest.approx(expected, abs=1e-4), depth
        fitted.save(tmp_path / "m")
        fitted = triever.load(tmp_path / "m")
        assert isinstance(fitted, GDR)


def test_it_opens_at_the_depth_that_it_was_saved_with(tmp_path: Path) -> None:
    fitted = at_depth(by_nodes(steps=2).fit(dataset()), 1, width=2)
    fitted.save(tmp_path / "m")
    opened = triever.load(tmp_path / "m")
    assert engine_of(opened).depth == 1
    assert opened.search_many(QUERIES, 5) == fitted.search_many(QUERIES, 5)


@pytest.mark.parametrize("depth", [0, 1, 2, None])
def test_explanations_add_up_to_scores_and_say_what_is_written(depth: int | None) -> None:
    fitted = at_depth(by_nodes(Semantic(branch=2, leaf=2)).fit(dataset()), depth, width=200)
    explanation = fitted.explain("boiling water", 5)
    for hit, parts in zip(explanation.result, explanation.parts, strict=True):
        assert sum(weight for _, weight in parts) == pytest.approx(hit.score, abs=1e-4)
        written = [name for name, _ in parts if name[0].isdigit()]
        assert len(written) == (hit.docid.count("-") + 1 if depth is None else depth)
        assert ("row" in dict(parts)) == (depth is not None)


def test_a_teacher_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIEVER_CACHE", str(tmp_path))
    fitted = by_nodes(steps=2, teacher=MultiVector(backbone=SMALL)).fit(dataset())
    assert engine_of(fitted).trained["teacher's temperature"] > 0
    assert list(tmp_path.glob("teacher-*.npz"))


def test_passages_have_docids_of_their_own() -> None:
    whole, pieces = (engine_of(by_nodes(passages=count).fit(dataset(SENTENCES))) for count in (0, 3))
    assert len(whole.rows) == len(DOCUMENTS) < len(pieces.rows)


def test_what_it_cannot_do_is_refused() -> None:
    for matching in ({"rule": "loglinear"}, {"alpha": 0.5}, {"fit": True}, {"temperature": 1.0}):
        with pytest.raises(UsageError, match=r"matching\.rule, alpha, fit and temperature have nothing to join"):
            by_nodes(matching=MatchOptions(**matching))  # ty: ignore[invalid-argument-type]
    fitted = by_nodes().fit(dataset())
    with pytest.raises(UsageError, match="documents are ranked by their own rows"):
        fitted.searched_with({"matching": {"alpha": 0.5}})
    for normalisation, message in (("trie", "documents are ranked by their own rows"), ("vocabulary", "no symbols")):
        with pytest.raises(UsageError, match=message):
            fitted.searching(normalisation=normalisation)
    for options in (
        {"losses": LossWeights(contrastive=0.0)},
        {"negatives": ClusterNegatives(inside=3)},
        {"joint": True},
    ):
        with pytest.raises(UsageError, match="losses, negatives and joint train a decoder"):
            by_nodes(**options)
    with pytest.raises(UsageError, match="one row and so one cluster"):
        by_nodes(SCHEMES["several"])
    with pytest.raises(UsageError, match="a teacher is followed only by rows of nodes"):
        GDR(backbone=SMALL, teacher=MultiVector(backbone=SMALL), decoder=DecoderOptions(rows="symbols"))
    with pytest.raises(UsageError, match="needs a row for every node"):
        searched = SearchOptions(normalisation="documents")
        GDR(backbone=SMALL, search_options=searched, decoder=DecoderOptions(rows="random"))


def test_passages_of_the_best_documents_are_chosen_with_all_that_tie() -> None:
    owners = np.array([3, 0, 0, 2, 3])
    logprobs = np.log([0.2, 0.1, 0.2, 0.1, 0.1])  # documents 0 and 3 have 0.3 each
    assert of_best(logprobs, owners, 1).tolist() == [True, True, True, False, True]
    assert of_best(logprobs, owners, 3).all()
    assert of_best(np.empty(0), np.empty(0, np.int64), 3).tolist() == []


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(-40, 0)), min_size=1, max_size=40),
    st.integers(1, 12),
)
def test_of_many_passages_those_of_the_best_documents_are_left(passages: list[tuple[int, int]], k: int) -> None:
    owners, logprobs = np.array([owner for owner, _ in passages]), np.array([each / 8 for _, each in passages])
    sums = {owner: np.logaddexp.reduce(logprobs[owners == owner]) for owner in set(owners.tolist())}
    lowest = sorted(sums.values(), reverse=True)[:k][-1]
    found = of_best(logprobs, owners, k)
    for owner, chosen in zip(owners.tolist(), found.tolist(), strict=True):
        if abs(sums[owner] - lowest) > 1e-9:
            assert chosen == (sums[owner] > lowest)
    assert len(set(owners[found].tolist())) >= min(k, len(sums))
