"""Generative retrieval with a row for every node: the contract, changes, passages, and a teacher."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import triever
from tests.retrievers.contract import DOCUMENTS, QUERIES, Contract, dataset
from triever import (
    Atomic,
    Codebook,
    DecoderOptions,
    Dense,
    DocidTuning,
    Document,
    Generative,
    MultiVector,
    Query,
    SearchOptions,
    Semantic,
    Tuning,
    UsageError,
    ViewOptions,
)
from triever.data.passages import passages
from triever.data.store import DocumentStore
from triever.docids.schemes import Scheme
from triever.engines.docids import DocidEngine, Reading
from triever.engines.node_docids import passage_vectors
from triever.engines.nodes import NodeEngine
from triever.learning.asked import MASSES, Asked
from triever.learning.node_lesson import Material, NodeLesson, row_loss
from triever.learning.nodes import NodeTeaching
from triever.learning.order import PrefixTree
from triever.models.backbones import load_backbone
from triever.models.encoder import Encoder
from triever.models.node_rows import Steering
from triever.models.row_model import RowModel, log_sums
from triever.models.tokens import Tokens
from triever.training.losses import divergence
from triever.training.opinions import Opinions, fitted_temperature
from triever.training.pairs import Pairs, held_out, pairs_of
from triever.training.views import Generated, Labelled

BACKBONE = "scratch:hidden=32,layers=1,heads=2,vocabulary=500"
NODES = DecoderOptions(rows="nodes")
TREE = Semantic(branch=2, leaf=2)


def nodes(docids: Scheme = TREE, steps: int = 0, **options: object) -> Generative:
    training = DocidTuning(steps=steps, batch=4, rounds=2, learning_rate=3e-3, reader=1.0, holdout=0.0, encoder_steps=0)
    given = {"training": training, "views": ViewOptions(names=("labelled",))} | options
    return Generative(backbone=BACKBONE, docids=docids, decoder=NODES, **given)  # ty: ignore[invalid-argument-type]


def engine_of(retriever: triever.Retriever) -> NodeEngine:
    assert isinstance(retriever.engine, NodeEngine)
    return retriever.engine


class TestSemanticNodes(Contract):
    def make(self) -> triever.Retriever:
        return nodes(steps=4)


@pytest.mark.long
class TestCodebookNodes(Contract):
    def make(self) -> triever.Retriever:
        return nodes(Codebook(levels=2, bits=2))


@pytest.mark.long
class TestExactNodes(Contract):
    def make(self) -> triever.Retriever:
        return nodes(Atomic(), search_options=SearchOptions(method="exact"))


SCHEMES: list[Scheme] = [TREE, Codebook(levels=2, bits=2), Atomic(), triever.Title(), triever.Cluster(clusters=3)]


@pytest.mark.parametrize("docids", SCHEMES, ids=[scheme.kind for scheme in SCHEMES])
def test_probabilities_are_the_softmax_of_rows_and_passages_add_up(docids: Scheme) -> None:
    fitted = nodes(docids).fit(dataset())
    engine = engine_of(fitted)
    for query in QUERIES:
        near = engine.rows.row.astype(np.float32) @ engine.vectors([query.text])[0].numpy()
        weights = engine.scale * near + np.log(engine.rows.mass)
        each = torch.from_numpy(weights).double().softmax(0).numpy()
        expected = [float(each[engine.rows.owners == row].sum()) for row in range(len(DOCUMENTS))]
        exact = {hit.id: math.exp(hit.score) for hit in fitted.searching(method="exact").search(query, 100)}
        wide = {hit.id: math.exp(hit.score) for hit in fitted.searching(width=100).search(query, 100)}
        truth = {document.id: share for document, share in zip(DOCUMENTS, expected, strict=True)}
        assert exact == pytest.approx(truth, abs=1e-4)
        assert wide == pytest.approx(truth, abs=1e-4)
        assert sum(exact.values()) == pytest.approx(1, abs=1e-4)


QUESTIONS = [Query(f"t{number}", text) for number, text in enumerate(("hot leaves", "two wheels", "lava", "rye"))]
ABOUT = {"t0": {"tea": 1}, "t1": {"bike": 1}, "t2": {"tea": 1}, "t3": {"bread": 1}}


def asked_dataset() -> triever.Dataset:
    """Documents with four training questions, two of them about one document."""
    return triever.Dataset.of("asked", DOCUMENTS, QUESTIONS, {"train": ABOUT})


def test_questions_are_docids_of_the_documents_that_answer_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Asked, "fitted_mass", lambda *_: 0.25)
    training = DocidTuning(steps=1, batch=4, rounds=1, holdout=0.3, learning_rate=1e-9, encoder_steps=0)
    data = asked_dataset()
    _, held = held_out(pairs_of(data, "train", DocumentStore.of(DOCUMENTS)), 0.3)
    assert 0 < len(held) < len(QUESTIONS)
    fitted = nodes(training=training).fit(data)
    engine = engine_of(fitted)
    of_questions = np.flatnonzero(engine.rows.mass == 0.25)
    known = [question for question in QUESTIONS if question.id not in held.ids]
    assert len(of_questions) == len(known)
    vectors = engine.vectors([question.text for question in known]).numpy()
    for question, vector in zip(known, vectors, strict=True):
        (document,) = ABOUT[question.id]
        at = of_questions[np.abs(engine.rows.row[of_questions] - vector).max(1).argmin()]
        np.testing.assert_allclose(engine.rows.row[at], vector, atol=1e-3)
        assert DOCUMENTS[engine.rows.owners[at]].id == document
    assert fitted.engine.trained["docids of questions"]["count"] == len(known)
    without = nodes(training=training, asked=0).fit(data)
    assert (engine_of(without).rows.mass == 1).all()


def test_what_a_question_counts_never_takes_from_unseen_documents() -> None:
    rows = torch.eye(4)
    model = RowModel(Encoder(load_backbone(BACKBONE, texts=["a text"])), rows, torch.arange(4))
    queries = torch.tensor([[0.7, 0.8, 0.0, 0.0], [0.0, 0.8, 0.7, 0.0]])  # both are nearer to 1
    right = Pairs(["a", "b"], ["a", "b"], np.array([0, 1]), np.arange(3), np.zeros(2))
    seen = np.array([True, False])
    helps = Asked(np.array([[0.7, 0.8, 0.0, 0.0]], np.float32), np.array([0]))  # asked about document 0 before
    assert helps.ranks(model, queries, right, 0.0) == [0.5, 1.0]
    assert helps.ranks(model, queries, right, 1.0) == [1.0, 1.0]
    assert helps.fitted_mass(model, queries, right, seen, [0.5, 1.0]) > 0
    harms = Asked(np.array([[0.7, 0.8, 0.0, 0.0], [0.0, 0.8, 0.7, 0.0]], np.float32), np.array([0, 2]))
    mass = harms.fitted_mass(model, queries, right, seen, [0.5, 1.0])
    assert harms.ranks(model, queries, right, mass)[1] == 1.0


def test_a_question_counts_a_little_where_held_out_questions_cannot_tell() -> None:
    model = RowModel(Encoder(load_backbone(BACKBONE, texts=["a text"])), torch.eye(4), torch.arange(4))
    queries = torch.tensor([[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0]])
    right = Pairs(["a", "b"], ["a", "b"], np.array([0, 1]), np.arange(3), np.zeros(2))
    about = Asked(np.array([[0.0, 0.0, 1.0, 0.0]], np.float32), np.array([2]))  # which no held-out question is near to
    for seen in ([True, False], [True, True], [False, False]):
        assert about.fitted_mass(model, queries, right, np.array(seen), [1.0, 1.0]) == MASSES[0]
    harms = Asked(np.array([[0.0, 1.0, 0.0, 0.0]], np.float32) * 2, np.array([2]))  # nearer to b than its document
    assert harms.fitted_mass(model, queries, right, np.array([True, False]), [1.0, 1.0]) == 0.0


def lesson_of(model: RowModel, queries: torch.Tensor, right: list[int]) -> NodeLesson:
    """A lesson whose held-out questions have these vectors, and these documents as answers."""
    count = len(right)
    ids = [str(number) for number in range(count)]
    held = Pairs(ids, ids, np.array(right), np.arange(count + 1), np.zeros(count))
    lesson = NodeLesson(model, Material(model, Reading("", "", 8), (8, "")), {}, held)
    lesson.__dict__["_held_once"] = queries  # as if they had been read
    return lesson


def test_a_passage_counts_as_much_as_held_out_questions_ask_for() -> None:
    encoder = Encoder(load_backbone(BACKBONE, texts=["a text"]))
    rows, owners = torch.zeros(4, 32), torch.tensor([0, 0, 1, 1])
    rows[0, 0] = rows[1, 1] = rows[2, 2] = rows[3, 3] = 1.0  # a whole text and a passage of each of two documents
    queries = torch.zeros(40, 32)
    queries[:, [0, 3]] = torch.tensor([0.7, 0.71])  # nearest to the passage of the second document
    for right, expected in ((1, 1.0), (0, 0.3)):
        model = RowModel(encoder, rows, owners, turned=True).eval()
        lesson = lesson_of(model, queries, [right] * 40)
        assert set(lesson.ranks()) == {1.0 if right == 1 else 0.5}
        lesson.choose_start()
        assert model.passage_mass == expected
        assert set(lesson.ranks()) == {1.0}
        assert model.masses().tolist() == pytest.approx([1.0, expected, 1.0, expected])


def test_as_much_of_the_matrices_is_kept_as_held_out_questions_ask_for() -> None:
    encoder = Encoder(load_backbone(BACKBONE, texts=["a text"]))
    rows = torch.eye(32)[:2]
    for nearness, expected in ((0.9, 0.5), (-0.4, 0.75), (-0.8, 1.0)):
        model = RowModel(encoder, rows, torch.arange(2), turned=True).eval()
        assert model.turns_questions is not None
        with torch.no_grad():  # learned: what points to the first document points to the second
            model.turns_questions.weight[:2, :2] = torch.tensor([[0.0, 0.0], [1.0, 1.0]])
        queries = torch.zeros(30, 32)
        queries[:, :2] = torch.tensor([1.0, nearness])
        lesson = lesson_of(model, queries, [1] * 30)
        lesson.choose_kept()
        assert model.kept == expected
        vector = model.questions(queries[:1])
        matrix = (1 - expected) * torch.eye(32) + expected * model.turns_questions.weight
        expected_vector = torch.nn.functional.normalize(queries[:1] @ matrix.T, dim=-1)
        torch.testing.assert_close(vector, expected_vector)


@pytest.mark.parametrize("better", ["generated", "labelled"])
def test_written_questions_are_taken_only_where_held_out_ones_gain(
    better: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def learn(_teaching: NodeTeaching, trial: NodeLesson, *_: object) -> dict[str, object]:
        """A training that is good for one mixture of views, and ruins everything with the other."""
        assert trial.model.turns_questions is not None
        torch.testing.assert_close(trial.model.turns_questions.weight.detach(), torch.eye(32))  # it begins anew
        if (better == "generated") != ("generated" in trial.views):
            with torch.no_grad():
                trial.model.turns_questions.weight.mul_(-3.0)
        return {}

    def ranks(lesson: NodeLesson) -> list[float]:
        assert lesson.held is not None
        assert lesson.model.turns_questions is not None
        return [float(lesson.model.turns_questions.weight[0, 0].detach() > 0)] * len(lesson.held)

    monkeypatch.setattr(NodeTeaching, "_learn_from", learn)
    monkeypatch.setattr(NodeLesson, "ranks", ranks)
    written = {document.id: [f"what about {document.id}"] for document in DOCUMENTS}
    data = triever.Dataset.of("asked", DOCUMENTS, [*QUESTIONS, *QUERIES], {"train": ABOUT}).with_expansions(written)
    training = DocidTuning(steps=1, batch=4, rounds=1, holdout=0.3, encoder_steps=0)
    engine = engine_of(nodes(training=training, views=ViewOptions()).fit(data))
    assert ("view generated" in engine.trained) == (better == "generated")
    plain = engine_of(nodes(views=ViewOptions()).fit(data))
    np.testing.assert_allclose(engine.vectors(["tea"]), plain.vectors(["tea"]), atol=1e-5)


def test_questions_are_learned_by_turning_vectors_unless_something_else_is_said() -> None:
    training = DocidTuning(steps=2, batch=4, rounds=1, holdout=0.0, encoder_steps=0)
    assert "kept of matrices" in engine_of(nodes(training=training).fit(dataset())).trained
    for options in ({"training": replace(training, reader=0.2)}, {"views": ViewOptions(names=("chunks",))}):
        fitted = nodes(**{"training": training} | options).fit(dataset())
        assert "kept of matrices" not in engine_of(fitted).trained


def test_passages_of_new_documents_count_as_much_as_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NodeLesson, "choose_start", lambda lesson: lesson._begin(0.25, 30.0))
    fitted = nodes(steps=1).fit(dataset())
    fitted.add([Document("new", "One sentence. Another one follows it. And a third one ends it.")])
    fitted.save(tmp_path / "grown")
    for retriever in (fitted, triever.load(tmp_path / "grown")):
        rows = engine_of(retriever).rows
        for row in range(len(DOCUMENTS) + 1):
            first, *others = rows.mass[rows.owners == row].tolist()
            assert first == 1.0
            assert set(others) <= {0.25}
        assert len(rows.mass[rows.owners == len(DOCUMENTS)]) == 4
        assert engine_of(retriever).passage_mass == 0.25


def test_at_most_so_many_questions_of_a_document_are_kept_and_judged_ones_first() -> None:
    tokens = Tokens.of([], load_backbone(BACKBONE, texts=["a text"]).tokenizer, 8)
    judged = Pairs(["a", "b"], ["a", "b"], np.array([0, 2, 0]), np.array([0, 2, 3]), np.zeros(2))
    views = {"generated": Generated(tokens, np.array([0, 1, 0])), "labelled": Labelled(judged, tokens)}
    vectors = {"labelled": np.array([[1.0], [2.0]]), "generated": np.array([[3.0], [4.0], [5.0]])}
    asked = Asked.of(views, vectors, 2)
    kept = sorted(zip(asked.owners.tolist(), asked.vectors[:, 0].tolist(), strict=True))
    assert kept == [(0, 1.0), (0, 2.0), (1, 4.0), (2, 1.0)]


def test_a_reader_that_stays_as_it_is_has_its_vectors_turned(tmp_path: Path) -> None:
    training = DocidTuning(steps=30, batch=4, rounds=2, learning_rate=3e-3, reader=0.0, holdout=0.0, encoder_steps=0)
    before, after = nodes().fit(dataset()), nodes(training=training).fit(dataset())
    plain, turned = engine_of(before), engine_of(after)
    for name, weight in plain.reader.module.named_parameters():
        assert torch.equal(weight, turned.reader.module.get_parameter(name))
    right = {"q1": "tea", "q2": "bike", "q3": "東京", "q4": "bread"}
    chances = [
        sum(hit.score for query in QUERIES for hit in system.search(query, 100) if hit.id == right[query.id])
        for system in (before, after)
    ]
    assert chances[1] > chances[0] + 1
    again, _ = passage_vectors(turned.placer, turned.reading, DOCUMENTS, turned.limit)  # new ones would lie there
    np.testing.assert_allclose(turned.rows.row, again, atol=2e-3)
    after.save(tmp_path / "turned")
    assert triever.load(tmp_path / "turned").search_many(QUERIES, 5) == after.search_many(QUERIES, 5)
    with pytest.raises(UsageError, match="learns from questions only"):
        nodes(training=training, views=ViewOptions(names=("labelled", "chunks"))).fit(dataset())


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_documents_that_share_a_docid_have_the_probability_of_their_own_rows(temperature: float) -> None:
    options = SearchOptions(width=100, temperature=temperature)
    beam = nodes(Codebook(levels=1, bits=1), search_options=options).fit(dataset())
    exact = beam.searched_with({"search_options": {"method": "exact"}})
    assert len(engine_of(beam).sums[0].shared) > 0
    for query in QUERIES:
        found, true = ({hit.id: hit.score for hit in system.search(query, 100)} for system in (beam, exact))
        assert found == pytest.approx(true, abs=1e-4)


def test_explanations_add_up_to_scores() -> None:
    explanation = nodes().fit(dataset()).explain("boiling water", 5)
    for hit, parts in zip(explanation.result, explanation.parts, strict=True):
        assert sum(weight for _, weight in parts) == pytest.approx(hit.score, abs=1e-4)


def test_added_and_deleted_documents_weigh_what_they_would_in_a_new_tree() -> None:
    fitted = nodes().fit(dataset())
    fitted.add([Document("crater", "Molten rock rises. It erupts as lava. Ash falls.", "Volcanoes")])
    fitted.delete(["tea", "東京"])
    engine = engine_of(fitted)
    assert engine.rows.owners.max() == len(fitted) - 1
    assert (engine.rows.owners == len(fitted) - 1).sum() == 4  # the whole text, and three sentences
    hits = {hit.id: hit.score for hit in fitted.searching(width=100).search("lava", 100)}
    exact = {hit.id: hit.score for hit in fitted.searching(method="exact").search("lava", 100)}
    assert hits == pytest.approx(exact, abs=1e-4)
    assert len(hits) == len(fitted)


def test_it_opens_as_it_was_saved(tmp_path: Path) -> None:
    fitted = nodes(steps=2).fit(dataset())
    fitted.save(tmp_path / "nodes")
    opened = triever.load(tmp_path / "nodes")
    assert opened.search_many(QUERIES, 5) == fitted.search_many(QUERIES, 5)
    opened.add([Document("crater", "Molten rock rises.")])
    assert len(opened) == len(DOCUMENTS) + 1


def test_few_rows_are_read_where_there_are_many_documents() -> None:
    many = [Document(str(number), f"text of number {number} and {number * 7 % 13}") for number in range(300)]
    data = triever.Dataset.of("many", many)
    fitted = nodes(Semantic(branch=4, leaf=4), search_options=SearchOptions(width=2)).fit(data)
    narrow, wide = fitted.compared(["number 3"], 1), fitted.searching(width=64).compared(["number 3"], 1)
    assert narrow is not None
    assert wide is not None
    assert 0 < narrow < 0.3 < wide
    assert fitted.searching(method="exact").compared(["number 3"], 1) == 1.0


def test_rows_learn_only_where_nearly_all_documents_have_questions() -> None:
    few = nodes(steps=2).fit(dataset())  # four of ten documents have one
    assert few.engine.trained["rows"] == "fixed"
    before = engine_of(nodes().fit(dataset())).rows.row
    assert np.array_equal(engine_of(few).rows.row, before)
    training = DocidTuning(steps=2, batch=4, rounds=1, learning_rate=3e-3, holdout=0.0, rows="learned", encoder_steps=0)
    asked = nodes(training=training).fit(dataset())
    assert not np.array_equal(engine_of(asked).rows.row, before)


def test_without_questions_nothing_is_trained() -> None:
    data = triever.Dataset.of("quiet", DOCUMENTS)
    fitted = nodes(steps=3, views=ViewOptions()).fit(data)
    assert dict(engine_of(fitted).trained) == {}
    assert fitted.search("boiling water", 3) == nodes().fit(data).search("boiling water", 3)


def test_training_raises_the_probability_of_right_documents() -> None:
    before, after = nodes().fit(dataset()), nodes(steps=30).fit(dataset())
    right = {"q1": "tea", "q2": "bike", "q3": "東京", "q4": "bread"}

    def chance(retriever: triever.Retriever) -> float:
        return sum(hit.score for query in QUERIES for hit in retriever.search(query, 100) if hit.id == right[query.id])

    assert chance(after) > chance(before) + 1


def test_a_teacher_is_followed_and_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIEVER_CACHE", str(tmp_path))
    teacher = MultiVector(backbone=BACKBONE).fit(dataset())
    fitted = nodes(steps=2, teacher=teacher).fit(dataset())
    assert fitted.engine.trained["teacher's temperature"] > 0
    (kept,) = tmp_path.glob("teacher-*.npz")
    before = kept.stat().st_mtime_ns
    again = nodes(steps=2, teacher=teacher).fit(dataset())
    assert kept.stat().st_mtime_ns == before
    assert again.search_many(QUERIES, 5) == fitted.search_many(QUERIES, 5)
    kept.write_bytes(b"torn")
    assert nodes(steps=2, teacher=teacher).fit(dataset()).search(QUERIES[0]) == fitted.search(QUERIES[0])


def test_a_teachers_temperature_makes_right_documents_likeliest() -> None:
    rows = np.array([[0, 1], [0, 1], [0, 1], [0, 1]], np.int32)
    scores = np.array([[0.1, 0.0]] * 4, np.float32)
    relevant = [np.array([0]), np.array([0]), np.array([0]), np.array([1])]  # right three times in four
    temperature = fitted_temperature(Opinions(rows, scores), relevant)
    chance = math.exp(Opinions(rows, scores).logprobs(temperature)[0, 0])
    assert chance == pytest.approx(0.75, abs=0.03)
    assert fitted_temperature(Opinions(rows, scores), [np.array([7])] * 4) == 1.0  # it never found any


class Scored(torch.nn.Module):
    """Gives the scores that it was given, whatever it reads."""

    def __init__(self, scores: torch.Tensor) -> None:
        super().__init__()
        self.scores = scores

    def forward(self, ids: torch.Tensor, mask: torch.Tensor, vectors: None = None) -> tuple[torch.Tensor, torch.Tensor]:
        return self.scores, ids


def test_a_text_that_no_teacher_was_asked_about_has_the_likelihood_alone() -> None:
    module, nothing = Scored(torch.randn(2, 5)), torch.zeros(2, 0)
    batch = {"ids": nothing, "mask": nothing, "targets": torch.tensor([[1], [2]])}
    likelihood = -module.scores.log_softmax(1)[[0, 1], [1, 2]].mean()
    assert set(row_loss(module, batch)) == {"likelihood"}
    candidates = torch.tensor([[0, 1], [0, 0]])
    taught = torch.tensor([[0.0, -1.0], [-torch.inf, -torch.inf]])
    both = row_loss(module, batch | {"candidates": candidates, "taught": taught}, 3.0)
    assert float(both["likelihood"]) == pytest.approx(float(likelihood), abs=1e-6)
    theirs, ours = taught[0].softmax(0), module.scores[0, [0, 1]].softmax(0)
    assert float(both["teacher"]) == pytest.approx(3 * float((theirs * (theirs / ours).log()).sum()) / 2, abs=1e-6)


def test_a_likelihood_may_be_among_some_documents_and_a_teacher_speaks_of_all() -> None:
    module, nothing = Scored(torch.randn(2, 5)), torch.zeros(2, 0)
    among, targets = torch.tensor([1, 2, 4]), torch.tensor([[2], [0]])  # documents 4 and 1
    candidates, taught = torch.tensor([[0, 3], [3, 4]]), torch.tensor([[0.0, -1.0], [-2.0, 0.0]])
    batch = {"ids": nothing, "mask": nothing, "targets": targets, "candidates": candidates, "taught": taught}
    losses = row_loss(module, batch, among=among)
    likely = -module.scores[:, among].log_softmax(1)[[0, 1], [2, 0]].mean()
    torch.testing.assert_close(losses["likelihood"], likely)
    torch.testing.assert_close(losses["teacher"], divergence(module.scores.gather(1, candidates), taught))


def test_margins_are_those_of_what_a_search_weighs_at_every_length() -> None:
    documents = [Document(str(number), f"text {number}") for number in range(9)]
    encoder = Encoder(load_backbone(BACKBONE, texts=["a text"]))
    rows = torch.nn.functional.normalize(torch.randn(9, 32), dim=1)
    model = RowModel(encoder, rows, torch.arange(9))
    tree = PrefixTree.of(TREE, documents, model)
    tables, queries = tree.tables(model, Steering()), torch.nn.functional.normalize(torch.randn(2, 32), dim=1)
    compared = torch.tensor([[0, 3, 7], [4, 1, -1]])

    def below(node: int) -> torch.Tensor:
        return rows[tree.arrays.document[tree.arrays.entries_of(node)].tolist()]

    def weight(query: torch.Tensor, node: int) -> torch.Tensor:
        each, scale = below(node), model.scale.detach() * (1.6 if len(below(node)) > 1 else 1.0)
        spread = (each - each.mean(0)).square().sum(1).mean() / 32
        return scale * query @ each.mean(0) + math.log(len(each)) + 3.0 * scale**2 / 2 * spread

    short = []
    for query, (right, *wrong) in zip(queries, compared.tolist(), strict=True):
        for other in (number for number in wrong if number >= 0):
            for mine, theirs in zip(tree.nodes[right].tolist(), tree.nodes[other].tolist(), strict=True):
                if mine != theirs:
                    short.append((1.0 - weight(query, mine) + weight(query, theirs)).clamp(min=0))
    loss = tables.margin_loss(queries, compared, model.scale)
    torch.testing.assert_close(loss, torch.stack(short).mean(), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("reader", [1.0, 0.0])
def test_a_training_for_order_makes_its_loss_smaller(reader: float, tmp_path: Path) -> None:
    training = DocidTuning(steps=30, batch=4, rounds=3, learning_rate=3e-3, reader=reader, holdout=0.0, encoder_steps=0)
    nodes(training=replace(training, order=2.0, log_every=1)).fit(dataset(), work=tmp_path / "work")
    lines = [json.loads(line) for line in (tmp_path / "work" / "training" / "metrics.jsonl").read_text().splitlines()]
    losses = [line["parts"]["order"] for line in lines if "parts" in line]
    assert len(losses) == 30
    assert np.mean(losses[-5:]) < 0.5 * np.mean(losses[:5])


def test_documents_that_nobody_asked_about_are_no_negatives() -> None:
    encoder = Encoder(load_backbone(BACKBONE, texts=["a text"]))
    owners = torch.tensor([0, 0, 1, 2, 2, 3])
    model = RowModel(encoder, torch.randn(6, 32) / 32, owners)
    vectors = torch.randn(3, 32) / 32
    model.train_among(torch.tensor([1, 2]))
    torch.testing.assert_close(model(vectors=vectors)[0], model.weights(vectors)[:, [1, 2]])
    model.rows.requires_grad_(True)
    model(vectors=vectors)[0].sum().backward()
    assert model.rows.grad is not None
    assert not model.rows.grad[[0, 1, 5]].any()
    assert model.rows.grad[[2, 3, 4]].any(1).all()


def test_log_sums_are_those_of_each_owner() -> None:
    values, owners = torch.randn(3, 6), torch.tensor([0, 0, 1, 2, 2, 2])
    expected = torch.stack([values[:, owners == owner].logsumexp(1) for owner in range(3)], 1)
    torch.testing.assert_close(log_sums(values, owners, 3), expected)


def test_passages_cover_the_whole_text_in_order() -> None:
    document = Document("d", " ".join(f"Sentence number {number}." for number in range(20)), "Title")
    pieces = passages(document, 7)
    assert len(pieces) == 7
    assert " ".join(piece.removeprefix("Title ") for piece in pieces) == document.text
    assert passages(Document("d", "One sentence."), 7) == []
    assert passages(document, 0) == []


def by_default(**options: object) -> type:
    """What searches where nothing says what docids are written with."""
    given = {"vectors": Dense(backbone=BACKBONE), "training": DocidTuning(steps=0)} | options
    return type(Generative(**given).fit(dataset()).engine)  # ty: ignore[invalid-argument-type]


def test_nodes_have_rows_by_default_where_documents_have_vectors() -> None:
    assert by_default() is NodeEngine
    assert by_default(docids=TREE) is NodeEngine
    assert by_default(vectors=None, backbone=BACKBONE) is DocidEngine  # vectors of random weights say nothing
    assert by_default(docids=triever.Title()) is DocidEngine
    assert by_default(decoder=DecoderOptions(rows="symbols")) is DocidEngine
    assert by_default(decoder=DecoderOptions(layers=1)) is DocidEngine  # a decoder was asked for
    assert by_default(search_options=SearchOptions(normalisation="vocabulary")) is DocidEngine
    assert by_default(vectors=None, backbone=BACKBONE, teacher=Dense(backbone=BACKBONE)) is NodeEngine


def test_an_encoder_of_its_own_learns_dense_retrieval_first() -> None:
    training = DocidTuning(steps=1, batch=4, rounds=1, holdout=0.0, learning_rate=1e-9)
    tuned, plain = (nodes(training=replace(training, encoder_steps=steps)).fit(dataset()) for steps in (3, 0))
    dense = Dense(backbone=BACKBONE, training=Tuning(steps=3, holdout=0.0)).fit(dataset())
    whole = np.flatnonzero(np.diff(engine_of(tuned).rows.owners, prepend=-1))  # before a document's passages
    np.testing.assert_allclose(engine_of(tuned).rows.row[whole], dense.engine.index.vectors(), atol=1e-3)
    assert not np.allclose(engine_of(tuned).rows.row, engine_of(plain).rows.row, atol=1e-3)


def test_it_says_that_an_encoder_learns_slowly_without_a_gpu(caplog: pytest.LogCaptureFixture) -> None:
    Generative(decoder=NODES, device="cpu", training=DocidTuning(encoder_steps=0)).node_teaching(dataset())
    assert "GPU" not in caplog.text
    Generative(decoder=NODES, device="cpu").node_teaching(dataset())
    assert "training.encoder_steps=0 leaves the encoder as it comes" in caplog.text


def test_what_a_search_may_not_do_is_refused_after_the_fit_too() -> None:
    fitted = Generative(vectors=Dense(backbone=BACKBONE), training=DocidTuning(steps=0)).fit(dataset())
    with pytest.raises(UsageError, match="score no symbols"):
        fitted.searching(method="free")
    symbols = Generative(backbone=BACKBONE, training=DocidTuning(steps=0)).fit(dataset())
    with pytest.raises(UsageError, match="needs a row for every node"):
        symbols.searching(normalisation="documents")
    trie = Generative(backbone=BACKBONE, training=DocidTuning(steps=0, normalisation="trie")).fit(dataset())
    with pytest.raises(UsageError, match=r"training.normalisation = trie trains a model that has none; leave one of"):
        trie.searching(normalisation="documents")


def test_what_rows_of_nodes_cannot_do_is_refused() -> None:
    for method in ("free", "mapped"):
        with pytest.raises(UsageError, match="score no symbols"):
            nodes(search_options=SearchOptions(method=method))
    with pytest.raises(UsageError, match="add_steps has nothing to train"):
        nodes(training=DocidTuning(add_steps=3))
    with pytest.raises(UsageError, match="a teacher is followed only by rows of nodes"):
        Generative(backbone=BACKBONE, teacher=Dense(backbone=BACKBONE), decoder=DecoderOptions(rows="symbols"))
    with pytest.raises(UsageError, match="needs a row for every node"):
        Generative(
            search_options=SearchOptions(normalisation="documents"), decoder=DecoderOptions(layers=0, rows="symbols")
        )
    with pytest.raises(UsageError, match="passages = -1"):
        nodes(passages=-1)
