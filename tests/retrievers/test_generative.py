"""Generative retrieval: the contract for each scheme, scores by brute force, training that helps, new documents."""

from __future__ import annotations

import math
import re
from collections import Counter
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch

import triever
from tests.marks import quick
from tests.models.causal import save_causal
from tests.retrievers.contract import DOCUMENTS, QUERIES, Contract, dataset
from triever import GDR, Document
from triever.config import build
from triever.docids.schemes import Atomic, Cluster, Codebook, Naive, Scheme, Semantic, Title
from triever.engines.docid_search import SearchOptions
from triever.engines.docids import DocidEngine, Docids, Reading
from triever.errors import UsageError
from triever.learning.docid_views import views_of
from triever.models.decoders import DecoderOptions
from triever.retrievers.dense import Dense
from triever.retrievers.generative import Generative
from triever.training.tuning import DocidTuning
from triever.training.views import ViewOptions

SMALL = "scratch:hidden=64,layers=1,heads=2,vocabulary=600"
NOTHING = DocidTuning(steps=0)
SHORT = ViewOptions(length=8)  # about as long as a query
SHARING: dict[str, Scheme] = {
    "cluster": Cluster(clusters=3, branch=2),
    "clusters": Cluster(clusters=8, branch=3),
    "several": Cluster(clusters=5, branch=3, margin=0.5),
    "centroids": Cluster(clusters=5),
    "title": Title(vocabulary=100),
}
SCHEMES: dict[str, Scheme] = {
    "atomic": Atomic(),
    "naive": Naive(),
    "semantic": Semantic(branch=3, leaf=5),
    "codebook": Codebook(levels=2, bits=2),
}


SYMBOLS = DecoderOptions(rows="symbols")
"""What writes here: tests/retrievers/test_nodes.py has rows of nodes."""


def generative(scheme: str = "atomic", **options: object) -> Generative:
    usual = {"backbone": SMALL, "training": NOTHING, "decoder": SYMBOLS}
    return Generative(docids=(SCHEMES | SHARING)[scheme], **usual | options)  # ty: ignore[invalid-argument-type]


class TestAtomic(Contract):
    def make(self) -> triever.Retriever:
        return generative()


class TestSemantic(Contract):
    def make(self) -> triever.Retriever:
        return soon("semantic")


@pytest.mark.long
class TestExact(Contract):
    def make(self) -> triever.Retriever:
        return soon("codebook", search_options=SearchOptions(method="exact"))


def soon(scheme: str, **options: object) -> Generative:
    """A small one that has learned just enough."""
    tiny = "scratch:hidden=32,layers=1,heads=2,vocabulary=600"
    training = DocidTuning(steps=40, batch=8, rounds=1, learning_rate=1e-2, holdout=0.0, add_steps=40, seed=1)
    given = {"backbone": tiny, "training": training, "views": SHORT, "decoder": DecoderOptions(layers=0)}
    return generative(scheme, **given | options)


@pytest.mark.long
class TestNaive(Contract):
    def make(self) -> triever.Retriever:
        return soon("naive")


@pytest.mark.long
class TestTitle(Contract):
    def make(self) -> triever.Retriever:
        return soon("title")


@pytest.mark.long
class TestCluster(Contract):
    def make(self) -> triever.Retriever:
        return soon("clusters")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_score_is_the_log_probability_that_a_plain_forward_pass_gives(scheme: str) -> None:
    fitted = generative(scheme, search_options=SearchOptions(normalisation="vocabulary")).fit(dataset())
    engine = fitted.engine.docids
    generator = engine.model.generator(64)
    for query in QUERIES:
        found = {hit.id: hit.score for hit in fitted.search(query, 10)}
        ids, mask = generator.tokenise([query.text])
        for row, document in enumerate(DOCUMENTS):
            docid = torch.tensor([engine.docid(row)])
            with torch.inference_mode():
                each = engine.model(ids, mask, docid).log_softmax(2)[0].gather(1, docid.T)
            sharing = sum(other == engine.docid(row) for other in map(engine.docid, range(len(DOCUMENTS))))
            assert found[document.id] == pytest.approx(float(each.sum()) - np.log(sharing), abs=1e-4)


@pytest.mark.parametrize("scheme", ["atomic", "semantic"])
@pytest.mark.parametrize("layers", [1, 2])
def test_where_a_processor_is_faster_in_bfloat16_a_search_may_compute_in_it(
    scheme: str, layers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    fitted = generative(scheme, decoder=DecoderOptions(rows="symbols", layers=layers)).fit(dataset())
    rounded = fitted.searching(precision="bfloat16")
    whole = scores_of(fitted)
    assert scores_of(rounded) == whole, "this processor is not said to be faster in it"
    monkeypatch.setattr("triever.models.precision.has_matrix_unit", lambda: True)
    assert scores_of(fitted.searching(precision="float32")) == whole
    near = scores_of(rounded)
    assert near != whole
    assert near == [pytest.approx(each, abs=0.2) for each in whole]
    # What was rounded follows the weights: a model that learns further is searched as it is then.
    with torch.no_grad():
        for weight in fitted.engine.docids.model.parameters():
            weight.mul_(1.1)
    changed = fitted.searching(precision="bfloat16")
    assert scores_of(rounded) == scores_of(changed) != near


def scores_of(fitted: Generative) -> list[dict[str, float]]:
    """The score of every document for every query."""
    return [{hit.id: hit.score for hit in result} for result in fitted.search_many(QUERIES, len(DOCUMENTS))]


def test_before_training_atomic_docids_rank_as_dense_retrieval() -> None:
    data = dataset()
    dense = Dense(backbone=SMALL).fit(data).search_many(QUERIES, 10)
    written = generative().fit(data).search_many(QUERIES, 10)
    assert [[hit.id for hit in result] for result in written] == [[hit.id for hit in result] for result in dense]


def test_before_training_clusters_of_one_symbol_rank_by_their_centroids() -> None:
    data = dataset()
    dense = Dense(backbone=SMALL).fit(data)
    fitted = generative("centroids", vectors=dense).fit(data)
    engine = engine_of(fitted)
    centroids, sizes = engine.scheme.rows(), Counter(engine.docid(number)[0] for number in engine.numbers)
    assert centroids is not None
    for query in QUERIES:
        [vector] = dense.engine.vectors([query.text])
        products = (centroids @ torch.from_numpy(vector) * 64**0.5).log_softmax(0)
        expected = {name: float(products[engine.docid(row)[0]]) for row, name in enumerate(data_ids(fitted))}
        found = {hit.id: hit.score for hit in fitted.search(query, len(DOCUMENTS))}
        shared = {name: np.log(sizes[engine.docid(row)[0]]) for row, name in enumerate(data_ids(fitted))}
        assert found == pytest.approx({name: expected[name] - shared[name] for name in expected}, abs=1e-4)


@pytest.mark.parametrize("scheme", quick("codebook", of=SCHEMES))
def test_training_learns_the_docids_of_queries(scheme: str) -> None:
    training = DocidTuning(steps=60, batch=8, rounds=1, learning_rate=5e-3, holdout=0.0)
    views = ViewOptions(names=("labelled",))
    fitted = generative(scheme, training=training, views=views, decoder=DecoderOptions(rows="random")).fit(dataset())
    assert [result[0].id for result in fitted.search_many(QUERIES, 1)] == ["tea", "bike", "東京", "bread"]
    assert fitted.search(QUERIES[0], 1)[0].score > np.log(0.5)


@pytest.mark.parametrize("scheme", quick("atomic", "codebook", "several", "title", of=[*SCHEMES, *SHARING]))
def test_parts_of_an_explanation_add_up_to_the_score(scheme: str) -> None:
    fitted = generative(scheme, search_options=SearchOptions(temperature=0.7)).fit(dataset())
    for method in ("beam", "exact", "free", "mapped"):
        explanation = fitted.searching(method=method, width=200).explain("boiling water", 3)
        assert method in ("free", "mapped") or len(explanation.result) == 3
        for hit, parts in zip(explanation.result, explanation.parts, strict=True):
            assert sum(weight for _, weight in parts) == pytest.approx(hit.score, abs=1e-4)


def test_probabilities_of_all_documents_sum_to_one_under_trie_normalisation() -> None:
    for scheme in SCHEMES:
        result = generative(scheme).fit(dataset()).searching(normalisation="trie").search("boiling water", 10)
        assert sum(np.exp(hit.score) for hit in result) == pytest.approx(1, abs=1e-4)


BOTH = ("vocabulary", "trie")
SEVERAL = [scheme for scheme in SCHEMES if scheme != "atomic"] + ["title", "cluster"]


def normalised(scheme: str, normalisation: str, **options: object) -> Generative:
    training = DocidTuning(normalisation=normalisation, holdout=0.0, **{"steps": 0} | options)  # ty: ignore[invalid-argument-type]
    return generative(scheme, training=training, views=ViewOptions(names=("labelled",)))


@pytest.mark.parametrize("normalisation", BOTH)
@pytest.mark.parametrize("scheme", quick("codebook", "title", of=SEVERAL))
def test_a_model_learns_what_a_search_scores(scheme: str, normalisation: str) -> None:
    """The loss of the docids of all documents is minus what their hits have as scores, whatever shares a docid."""
    fitted = normalised(scheme, normalisation).fit(dataset())
    engine = engine_of(fitted)
    ids, mask = engine.model.tokenise([QUERIES[0].text], 64)
    hits = fitted.search(QUERIES[0], len(DOCUMENTS))
    assert len(hits) == len(DOCUMENTS)
    docids = [engine.docid(row) for row in range(len(DOCUMENTS))]
    for hit in hits:
        docid = docids[data_ids(fitted).index(hit.id)]
        batch = {"ids": ids, "mask": mask, "targets": torch.tensor([docid])}
        with torch.no_grad():
            loss = fitted._teaching._loss_for(engine)(engine.model.eval(), batch)["likelihood"]
        assert -float(loss) == pytest.approx(hit.score + np.log(docids.count(docid)), abs=1e-4)


@pytest.mark.parametrize("trained", BOTH)
def test_a_search_that_leaves_it_open_has_the_normalisation_of_the_training(trained: str, tmp_path: Path) -> None:
    fitted = normalised("codebook", trained).fit(dataset())
    fitted.save(tmp_path / "m")
    for retriever in (fitted, triever.load(tmp_path / "m")):
        scores = {name: retriever.searching(normalisation=name).search("tea", 10) for name in ("auto", *BOTH)}
        assert scores["auto"] == scores[trained]
        assert scores["vocabulary"] != scores["trie"]
        explanation = retriever.explain("tea", 3)
        sums = [sum(weight for _, weight in parts) for parts in explanation.parts]
        assert sums == pytest.approx([hit.score for hit in scores[trained]][:3], abs=1e-4)


def test_docids_of_one_symbol_are_searched_among_those_that_are_left() -> None:
    fitted = normalised("atomic", "vocabulary").fit(dataset())
    fitted.delete(["tea", "bike"])
    result = fitted.search("boiling water", 10)
    assert sum(np.exp(hit.score) for hit in result) == pytest.approx(1, abs=1e-4)


def test_what_was_saved_before_a_search_followed_the_training_is_searched_over_the_trie(tmp_path: Path) -> None:
    fitted = normalised("codebook", "vocabulary").fit(dataset())
    write = DocidEngine.write

    def as_before(*given: object) -> dict:
        state = write(*given)  # ty: ignore[invalid-argument-type]
        del state["normalisation"]
        return state

    with mock.patch.object(DocidEngine, "write", as_before):
        fitted.save(tmp_path / "m")
    again = triever.load(tmp_path / "m")
    assert again.search("tea", 10) == fitted.searching(normalisation="trie").search("tea", 10)
    again.save(tmp_path / "again")
    assert triever.load(tmp_path / "again").search("tea", 10) == again.search("tea", 10)


@pytest.mark.long
@pytest.mark.parametrize("scheme", ["codebook", "semantic"])
def test_training_over_the_trie_learns_the_docids_of_queries_and_of_new_documents(scheme: str) -> None:
    options = {"steps": 60, "batch": 8, "rounds": 1, "learning_rate": 5e-3, "add_steps": 60}
    fitted = normalised(scheme, "trie", **options).fit(dataset())
    assert [result[0].id for result in fitted.search_many(QUERIES, 1)] == ["tea", "bike", "東京", "bread"]
    fitted.add([VOLCANO])
    assert fitted.search(VOLCANO.full_text, 1)[0].id == "volcano"


@pytest.mark.parametrize("system", [{"decoder": {"rows": "nodes"}}, {"kind": "contextual"}], ids=str)
def test_what_is_not_trained_over_a_trie_says_so(system: dict) -> None:
    kind = triever.Contextual if "kind" in system else Generative
    options = {key: value for key, value in system.items() if key != "kind"}
    with pytest.raises(UsageError, match=r"training.normalisation = trie, but .*; leave training.normalisation out"):
        build(kind, {"training": {"normalisation": "trie"}, **options})


def test_free_decoding_finds_what_exists_and_counts_what_does_not() -> None:
    fitted = generative("semantic").fit(dataset())
    loose = fitted.searching(method="free", normalisation="vocabulary", width=200)
    bound = loose.searching(method="beam")
    for query in QUERIES:
        free, constrained = loose.search(query, 10), bound.search(query, 10)
        assert [hit.id for hit in free] == [hit.id for hit in constrained]  # so wide a beam misses nothing
        assert [hit.score for hit in free] == pytest.approx([hit.score for hit in constrained], abs=1e-4)
        assert "do not exist" in free.note
    narrow = loose.searching(width=1)
    assert all(len(narrow.search(query, 1)) <= 1 for query in QUERIES)


def test_free_decoding_ends_what_it_writes_with_the_stop_symbol() -> None:
    """With the symbols a, b and stop, and ids of two letters at most, all that can be written can be counted."""
    alone = triever.Dataset.of("alone", [Document(name, f"text of {name}") for name in ("a", "b", "ab")], [], {})
    loose = generative("naive", search_options=SearchOptions(method="free", width=30)).fit(alone)
    result = loose.search("text", 3)
    assert {hit.id for hit in result} == {"a", "b", "ab"}
    # The stop symbol alone, one letter and it, two letters and any third symbol: 1 + 2 + 4 * 3.
    assert result.note == "12 of 15 written docids do not exist"


def test_what_does_not_exist_stands_for_documents_whose_docids_begin_like_it() -> None:
    """So wide a beam writes everything: only what begins with the stop symbol is lost."""
    alone = triever.Dataset.of("alone", [Document(name, f"text of {name}") for name in ("aa", "ab", "ba")], [], {})
    loose = generative("naive", search_options=SearchOptions(method="mapped", width=60)).fit(alone)
    free = {hit.id: math.exp(hit.score) for hit in loose.searching(method="free").search("text", 3)}
    mapped = {hit.id: math.exp(hit.score) for hit in loose.search("text", 3)}
    assert mapped.keys() == free.keys() == {"aa", "ab", "ba"}
    assert all(mapped[name] > free[name] for name in free)
    generator = loose.engine.docids.generator()
    stop_first = generator.logits(generator.prefill(["text"])[1]).softmax(1)[0, loose.engine.docids.scheme.stop]
    assert sum(mapped.values()) == pytest.approx(1 - float(stop_first), abs=1e-4)
    assert loose.search("text", 3).note == loose.searching(method="free").search("text", 3).note


def shared_scores(fitted: Generative, query: str, length: int = 64) -> dict[str, float]:
    """The log-probability of every document by a forward pass for each docid, divided among those that share it."""
    engine = fitted.engine.docids
    ids = torch.tensor(engine.model.encoder.tokenizer.ids([query], length))
    mask = torch.ones_like(ids)
    docids = [engine.docid(row) for row in range(len(DOCUMENTS))]
    found = {}
    for docid in set(docids):
        with torch.inference_mode():
            symbols = torch.tensor([docid])
            each = engine.model(ids, mask, symbols).log_softmax(2)[0].gather(1, symbols.T)
        found[docid] = float(each.sum()) - np.log(docids.count(docid))
    return {document.id: found[docid] for document, docid in zip(DOCUMENTS, docids, strict=True)}


@pytest.mark.parametrize("method", ["beam", "exact", "free"])
def test_documents_that_share_a_docid_are_cut_in_the_order_in_which_they_are_ranked(method: str) -> None:
    fitted = generative("cluster").fit(dataset())
    searched = fitted.searching(method=method, normalisation="vocabulary", width=50)
    for query in QUERIES:
        truth = shared_scores(fitted, query.text)
        order = sorted(truth, key=lambda name: (truth[name], name), reverse=True)
        for k in range(1, len(DOCUMENTS) + 1):
            result = searched.search(query, k)
            assert [hit.id for hit in result] == order[:k]
            assert [hit.score for hit in result] == pytest.approx([truth[name] for name in order[:k]], abs=1e-4)


def test_of_a_query_so_many_tokens_are_read() -> None:
    options = SearchOptions(normalisation="vocabulary")
    fitted = generative("semantic", query_length=6, search_options=options).fit(dataset())
    query = "pour boiling water over the leaves and wait for the bread to rise"
    expected = shared_scores(fitted, query, 6)
    assert {hit.id: hit.score for hit in fitted.search(query, 10)} == pytest.approx(expected, abs=1e-4)
    assert shared_scores(fitted, query) != pytest.approx(expected, abs=1e-3)


def test_a_result_has_the_certificate_of_an_exact_search_and_of_no_other() -> None:
    fitted = generative("semantic").fit(dataset())
    enough, little = (fitted.searching(method="exact", budget=budget).search("tea", 10) for budget in (100, 1))
    assert re.fullmatch(r"exact: \d+ prefixes opened", enough.certificate)
    assert little.certificate.startswith("budget spent after 1 prefixes")
    assert not fitted.search("tea", 10).certificate


def test_of_many_documents_on_one_docid_only_hits_are_told_their_docid(monkeypatch: pytest.MonkeyPatch) -> None:
    many = [Document(f"d{number:03}", "the same text") for number in range(300)]
    fitted = generative("cluster").fit(triever.Dataset.of("many", many, [], {}))
    asked: list[int] = []
    docids_of = Docids.docids_of
    monkeypatch.setattr(Docids, "docids_of", lambda self, numbers: asked.extend(numbers) or docids_of(self, numbers))
    assert [hit.id for hit in fitted.search("text", 3)] == ["d299", "d298", "d297"]
    assert asked == [299, 298, 297]


def test_free_decoding_survives_a_document_that_is_gone() -> None:
    fitted = generative(search_options=SearchOptions(method="free")).fit(dataset())
    fitted.delete(["tea"])
    assert "tea" not in [hit.id for hit in fitted.search("boiling water for tea leaves", 10)]


def test_adding_nothing_changes_nothing() -> None:
    fitted = generative(training=DocidTuning(steps=2, batch=4, rounds=1, add_steps=2)).fit(dataset())
    fitted.add([])
    assert len(fitted) == len(DOCUMENTS)


VOLCANO = Document("volcano", "Molten rock rises through the crust and erupts as lava.", "Volcanoes")
ODD = {"query_prefix": "asked: ", "document_prefix": "a: ", "document_length": 20}


def engine_of(retriever: triever.Retriever) -> Docids:
    return retriever.engine.docids


def data_ids(retriever: triever.Retriever) -> list[str]:
    return list(retriever.documents.ids)


def vectors_of(dense: Dense) -> torch.Tensor:
    return torch.from_numpy(np.array(dense.engine.index.vectors(), np.float32))


def output_rows(retriever: Generative) -> torch.Tensor:
    return engine_of(retriever).model.output.weight.detach()


@pytest.mark.parametrize("pooling", quick("mean", of=["mean", "first", "last"]))
@pytest.mark.parametrize("reading", [{}, ODD], ids=["plain", "prefixes"])
def test_before_training_added_documents_too_are_ranked_as_by_the_dense_retriever(
    pooling: str, reading: dict, tmp_path: Path
) -> None:
    old, new = dataset(DOCUMENTS[:6]), DOCUMENTS[6:]
    dense = Dense(backbone=SMALL, pooling=pooling, **reading).fit(old)  # ty: ignore[invalid-argument-type]
    generative(vectors=dense).fit(old).save(tmp_path / "m")
    written = triever.load(tmp_path / "m")
    for retriever in (dense, written):
        retriever.add(new)
    assert torch.allclose(output_rows(written), vectors_of(dense), atol=1e-6)  # ty: ignore[invalid-argument-type]
    for query in QUERIES:  # by their scores, as random states of one token are all nearly the same
        found, expected = ({hit.id: hit.score for hit in one.search(query, 10)} for one in (written, dense))
        cosines = {name: (score - found["tea"]) / 64**0.5 + expected["tea"] for name, score in found.items()}
        assert cosines == pytest.approx(expected, abs=1e-5)


def test_a_new_document_is_placed_by_the_vector_that_the_dense_retriever_gives_it() -> None:
    dense = Dense(backbone=SMALL, **ODD).fit(dataset())
    fitted = generative("semantic", vectors=dense).fit(dataset())
    with mock.patch.object(Semantic, "place", autospec=True, side_effect=Semantic.place) as place:
        fitted.add([VOLCANO])
    dense.add([VOLCANO])
    assert torch.allclose(place.call_args.args[2], vectors_of(dense)[-1], atol=1e-6)


def test_queries_and_what_stands_for_them_have_the_prefix_that_the_reader_was_tuned_with() -> None:
    expanded = dataset().with_expansions({"tides": ["what moves the sea"]})
    dense = Dense(backbone=SMALL, **ODD).fit(expanded)
    views = ViewOptions(names=("labelled", "generated", "chunks", "first"), length=8)
    fitted = generative(vectors=dense, views=views, training=DocidTuning(steps=1, batch=8, rounds=1, holdout=0.0))
    fitted.fit(expanded)
    engine, store = engine_of(fitted), fitted.documents
    tokenizer = engine.model.encoder.tokenizer
    prefix = tokenizer.ids(["asked:"], special=False)[0]
    made, _ = views_of(fitted, engine, expanded, store, None)
    for name, view in made.items():
        tokens, _ = view.take(np.arange(len(view)), np.random.default_rng(0))
        for row in range(len(tokens)):
            assert tokens[row].tolist()[: 1 + len(prefix)] == [*tokenizer.before, *prefix], name
    labelled, _ = made["labelled"].take(np.arange(4), np.random.default_rng(0))
    assert labelled[0].tolist() == tokenizer.ids(["asked: boiling water for tea leaves"], 64)[0]


def test_what_was_saved_before_prefixes_were_kept_still_opens(tmp_path: Path) -> None:
    fitted = generative().fit(dataset())
    write = DocidEngine.write
    with mock.patch.object(DocidEngine, "write", lambda *given: {**write(*given), "reading": {}}):
        fitted.save(tmp_path / "m")
    again = triever.load(tmp_path / "m")
    assert engine_of(again).reading == Reading("", "", 256)
    assert again.search_many(QUERIES, 5) == fitted.search_many(QUERIES, 5)


@pytest.mark.parametrize("rows", ["auto", "random"])
def test_the_row_of_a_new_document_follows_from_those_of_its_neighbours(rows: str) -> None:
    training = DocidTuning(steps=20, batch=8, rounds=1, learning_rate=2e-3, holdout=0.0)
    fitted = generative(decoder=DecoderOptions(rows=rows), training=training).fit(dataset())  # ty: ignore[invalid-argument-type]
    dense = Dense(backbone=SMALL).fit(dataset())
    before, begun = output_rows(fitted).clone(), vectors_of(dense)
    for one in (fitted, dense):
        one.add([VOLCANO])
    own = vectors_of(dense)[-1]
    near = [int(row) for row in (begun - own).norm(dim=1).argsort()[:5]]
    mean_change = sum(before[row] - begun[row] for row in near) / 5
    expected = own + mean_change if rows == "auto" else sum(before[row] for row in near) / 5
    assert torch.allclose(output_rows(fitted)[-1], expected, atol=1e-5)
    assert torch.equal(output_rows(fitted)[:-1], before)
    assert before.shape == begun.shape
    assert not torch.allclose(before, begun, atol=1e-3), "the training has changed them"


@pytest.mark.parametrize("steps", [0, 3])
def test_adding_leaves_the_global_random_generator_as_it_was(steps: int) -> None:
    fitted = generative(training=DocidTuning(steps=0, batch=4, add_steps=steps)).fit(dataset())
    state = torch.get_rng_state()
    fitted.add([VOLCANO])
    assert torch.equal(torch.get_rng_state(), state)


def test_a_new_atomic_document_begins_near_its_neighbours_and_the_old_ones_keep_their_scores() -> None:
    fitted = generative(search_options=SearchOptions(normalisation="vocabulary")).fit(dataset())
    before = fitted.engine.docids.model.output.weight.clone()
    fitted.add([Document("tea2", "Pour boiling water over the leaves and wait five minutes.", "How to brew green tea")])
    after = fitted.engine.docids.model.output.weight
    assert torch.equal(after[: len(before)], before)
    assert "tea2" in [hit.id for hit in fitted.search("boiling water over tea leaves", 3)]


def test_generated_queries_are_a_view_of_their_own() -> None:
    expanded = dataset().with_expansions({"tides": ["what makes the water of the ocean come and go"]})
    training = DocidTuning(steps=60, batch=4, rounds=1, learning_rate=3e-3)
    fitted = generative(training=training, views=ViewOptions(names=("d2q",))).fit(expanded)
    assert fitted.search("what makes the water of the ocean come and go", 1)[0].id == "tides"
    assert "view generated" in fitted.card
    with pytest.raises(UsageError, match="write-queries"):
        generative(training=training, views=ViewOptions(names=("d2q",))).fit(dataset())


@pytest.mark.parametrize(("most", "learned"), [(0, 5), (2, 3), (9, 5)])
def test_of_generated_queries_some_may_be_taken(most: int, learned: int) -> None:
    expanded = dataset().with_expansions({"tides": ["a", "b", "c", "d"], "tea": ["e"]})
    views = ViewOptions(names=("d2q",), questions=most)
    fitted = generative(training=DocidTuning(steps=1, batch=4, rounds=1), views=views).fit(expanded)
    assert fitted.engine.docids.trained["view generated"]["examples"] == learned


def test_queries_are_not_needed() -> None:
    alone = triever.Dataset.of("alone", DOCUMENTS, [], {})
    training = DocidTuning(steps=5, batch=4, rounds=1)
    fitted = generative("semantic", training=training).fit(alone)
    assert list(fitted.engine.docids.trained)[-1] == "view chunks"
    with pytest.raises(UsageError, match="no split"):
        generative(training=training, views=ViewOptions(names=("labelled",))).fit(alone)


def test_chunks_need_no_query_that_has_a_relevant_document() -> None:
    elsewhere = triever.Dataset.of("elsewhere", DOCUMENTS, QUERIES, {"train": {"q1": {"tea": 0}}})
    training = DocidTuning(steps=2, batch=4, rounds=1)
    fitted = generative(training=training, views=ViewOptions(names=("daq",))).fit(elsewhere)
    assert "view chunks" in engine_of(fitted).trained
    with pytest.raises(UsageError, match="no query of elsewhere's train has a relevant document"):
        generative(training=training, views=ViewOptions(names=("daq", "labelled"))).fit(elsewhere)


def test_a_batch_without_a_place_for_a_view_is_refused_before_texts_are_read() -> None:
    training = DocidTuning(steps=2, batch=8, rounds=1)
    lopsided = ViewOptions(names=("chunks", "labelled"), weights=(50, 1))
    with (
        mock.patch("triever.models.tokens.Tokens.of", side_effect=AssertionError),
        pytest.raises(UsageError, match="batch = 8 is too small for 2 views: it has no room for labelled; raise"),
    ):
        generative(training=training, views=lopsided).fit(dataset())
    fitted = generative(training=DocidTuning(steps=0, batch=1, add_steps=2)).fit(dataset())
    with pytest.raises(UsageError, match=r"batch = 1 is too small for .* no room for chunks"):
        fitted.add([VOLCANO])


def test_a_fitted_model_is_searched_with_other_options_and_nothing_else_of_it_changes() -> None:
    fitted = generative("semantic").fit(dataset())
    exact = fitted.searched_with({"search_options": {"method": "exact", "width": "7"}})
    assert (exact.search_options.method, exact.search_options.width) == ("exact", 7)
    assert engine_of(exact) is engine_of(fitted)
    expected = fitted.searching(method="exact", width=7).search_many(QUERIES, 3)
    assert exact.search_many(QUERIES, 3) == expected
    for values, message in (
        (
            {"docids": "atomic"},
            "docids of a generative retriever cannot be changed",
        ),
        ({"search_option": {}}, "did you mean search_options"),
        ({"search_options": {"method": "beem"}}, "beam"),
    ):
        with pytest.raises(UsageError, match=message):
            fitted.searched_with(values)


def test_vectors_of_a_dense_retriever_make_the_docids_and_the_reader(tmp_path: Path) -> None:
    data = dataset()
    dense = Dense(backbone=SMALL).fit(data)
    dense.save(tmp_path / "dense")
    given = {"docids": "semantic", "vectors": str(tmp_path / "dense"), "training": {"steps": "0"}}
    fitted = build(Generative, given | {"decoder": {"rows": "symbols"}}).fit(data)
    engine = fitted.engine.docids
    for name, weight in dense.engine.encoder.state_dict().items():
        assert torch.equal(weight, engine.model.reader.state_dict()[name])


NO_ROWS = ("naive", "title", "semantic")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"docids": "semantics"}, "semantic"),
        ({"docids": 5}, "names no docid scheme"),
        ({"docids": {"kind": "semantic", "brnch": 3}}, "branch"),
        ({"views": {"names": "labeled"}}, "labelled"),
        ({"views": {"names": "d2q,generated"}}, "twice"),
        ({"views": {"names": "daq", "weights": "1,2"}}, "a weight above zero for each"),
        ({"vectors": "bm25"}, "dense"),
        ({"search_options": {"method": "beem"}}, "beam"),
        ({"search_options": {"width": 0}}, "width"),
        ({"decoder": {"dropout": 1.0}}, "dropout from 0 to below 1"),
        *(({"docids": kind, "decoder": {"rows": "vectors"}}, f"these {kind} docids") for kind in NO_ROWS),
        ({"docids": {"kind": "cluster", "branch": 3}, "decoder": {"rows": "vectors"}}, "cluster with branch=0"),
        ({"docids": {"kind": "codebook", "positions": False}, "decoder": {"rows": "vectors"}}, "with positions"),
        ({"decoder": {"rows": "vectors", "begin": "symbol"}}, "leave decoder.begin or"),
        ({"decoder": {"layers": 0, "begin": "symbol"}}, "never sees the text"),
        ({"decoder": {"rows": "vectors"}, "vectors": {"kind": "dense", "size": 8}}, "size = 0"),
    ],
)
def test_a_mistake_is_one_sentence_that_helps(options: dict, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        build(Generative, options)


@pytest.fixture(scope="module")
def t5_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A T5 as a person has it on disk: small, with random weights."""
    from transformers import PreTrainedTokenizerFast, T5Config, T5ForConditionalGeneration

    from triever.models.backbones import learn_tokenizer

    folder = tmp_path_factory.mktemp("t5")
    learned = learn_tokenizer([document.full_text for document in DOCUMENTS], 400)
    fast = PreTrainedTokenizerFast(tokenizer_object=learned._tokenizer, pad_token="[PAD]", eos_token="[SEP]")
    fast.save_pretrained(folder)
    sizes = {"d_model": 32, "d_kv": 8, "num_heads": 4, "d_ff": 48, "num_layers": 2, "num_decoder_layers": 2}
    config = T5Config(vocab_size=len(fast), decoder_start_token_id=0, feed_forward_proj="gated-gelu", **sizes)
    torch.manual_seed(0)
    T5ForConditionalGeneration(config).save_pretrained(folder)
    return folder


def test_a_t5_brings_its_decoder(t5_folder: Path) -> None:
    from transformers import T5ForConditionalGeneration

    fitted = generative("semantic", backbone=str(t5_folder)).fit(dataset())
    engine = fitted.engine.docids
    theirs = T5ForConditionalGeneration.from_pretrained(t5_folder)
    ids, mask = engine.model.generator(64).tokenise(["boiling water"])
    start = torch.randn(1, 3, 32)
    with torch.inference_mode():
        states = theirs.encoder(input_ids=ids, attention_mask=mask).last_hidden_state
        expected = theirs.decoder(inputs_embeds=start, encoder_hidden_states=states, encoder_attention_mask=mask)
        with torch.no_grad():
            engine.model.symbols.weight[:3] = start[0]
        found, _ = engine.model.decode(torch.tensor([[0, 1, 2]]), None, engine.model.read(ids, mask))
    assert torch.allclose(found, expected.last_hidden_state, atol=1e-5)


def test_rows_from_vectors_are_refused_of_a_decoder_that_has_no_use_for_them(t5_folder: Path) -> None:
    asked = DecoderOptions(rows="vectors")
    with (
        mock.patch("triever.models.tokens.Tokens.of", side_effect=AssertionError),
        pytest.raises(UsageError, match="has no effect on the decoder that"),
    ):
        generative(backbone=str(t5_folder), decoder=asked).fit(dataset())
    fitted = generative(backbone=str(t5_folder), decoder=DecoderOptions(rows="vectors", begin="mean")).fit(dataset())
    assert torch.equal(output_rows(fitted), engine_of(fitted).scheme.rows())


def test_a_causal_model_where_a_decoder_has_to_attend_is_refused_before_texts_are_read(tmp_path: Path) -> None:
    folder = str(save_causal(tmp_path / "causal"))
    with mock.patch("triever.models.tokens.Tokens.of", side_effect=AssertionError):
        for options in ({"backbone": folder}, {"vectors": Dense(backbone=folder)}):
            with pytest.raises(UsageError, match="is a causal model, but this decoder attends"):
                GDR(**options).fit(dataset())
    fitted = Dense(backbone=folder).fit(dataset())
    with pytest.raises(UsageError, match="is a causal model"):
        GDR(vectors=fitted).fit(dataset())


LEARNED = 80
"""So many steps are enough for a T5."""


@pytest.mark.parametrize("steps", quick(8, of=[8, LEARNED]))
def test_a_t5_learns_and_is_saved(steps: int, t5_folder: Path, tmp_path: Path) -> None:
    training = DocidTuning(steps=steps, batch=8, rounds=1, learning_rate=3e-3, reader=1.0, holdout=0.0)
    views = ViewOptions(names=("labelled",))
    fitted = generative("naive", backbone=str(t5_folder), training=training, views=views).fit(dataset())
    fitted.save(tmp_path / "m")
    again = triever.load(tmp_path / "m")
    for query in QUERIES:
        assert [hit.id for hit in again.search(query, 3)] == [hit.id for hit in fitted.search(query, 3)]
    right = sum(result[0].id in ("tea", "bike", "東京", "bread") for result in again.search_many(QUERIES, 1))
    assert right >= 3 or steps < LEARNED


def test_output_rows_in_blocks_learn_the_same(tmp_path: Path) -> None:
    training = DocidTuning(steps=8, batch=8, rounds=1, learning_rate=2e-3, holdout=0.0)
    whole, blocks = (
        generative(training=training, decoder=DecoderOptions(shards=shards, layers=0, dropout=0.0)) for shards in (1, 3)
    )
    for retriever in (whole, blocks):
        retriever.fit(dataset())
    blocks.save(tmp_path / "m")
    for retriever in (blocks, triever.load(tmp_path / "m")):
        for query in QUERIES:
            found = {hit.id: hit.score for hit in retriever.search(query, 10)}
            assert found == pytest.approx({hit.id: hit.score for hit in whole.search(query, 10)}, abs=1e-3)


def test_a_reader_that_is_left_alone_stays_as_it_came() -> None:
    data = dataset()
    dense = Dense(backbone=SMALL).fit(data)
    training = DocidTuning(steps=5, batch=4, rounds=1, reader=0.0)
    fitted = generative(vectors=dense, training=training).fit(data)
    model = fitted.engine.docids.model
    for name, weight in dense.engine.encoder.state_dict().items():
        assert torch.equal(weight, model.reader.state_dict()[name])
    fresh = generative(vectors=dense).fit(data).engine.docids.model
    assert not torch.equal(model.output.weight, fresh.output.weight)


def test_a_training_does_not_go_on_with_other_docids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when the same fit gives other docids to its documents: the weights were learned for the old ones."""
    training = DocidTuning(steps=4, batch=4, rounds=1, holdout=0.0)
    whole = generative("naive", training=training).fit(dataset(), work=tmp_path).search_many(QUERIES, 3)
    assert generative("naive", training=training).fit(dataset(), work=tmp_path).search_many(QUERIES, 3) == whole
    place = Naive.place
    monkeypatch.setattr(Naive, "place", lambda self, one, _vector=None: place(self, Document(one.id[::-1], "")))
    with pytest.raises(UsageError, match="holds a training with other docids; name a new folder, or remove this one"):
        generative("naive", training=training).fit(dataset(), work=tmp_path)


def test_a_decoder_without_layers_sees_the_text() -> None:
    made = generative("semantic", decoder=DecoderOptions(layers=0)).fit(dataset())
    one, other = made.search_many(["metal", "the sea"], k=len(DOCUMENTS))
    assert {hit.id: hit.score for hit in one} != {hit.id: hit.score for hit in other}
