"""Training on pairs: what it learns from, what it is judged by, and what it leaves alone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.retrievers.contract import DOCUMENTS, QUERIES, dataset
from triever import Document, Query
from triever.data.datasets import Dataset
from triever.data.store import DocumentStore
from triever.errors import UsageError
from triever.learning import encoders as encoding
from triever.learning.encoders import EncoderRetriever
from triever.models.tokens import TextTokenizer, Tokens
from triever.retrievers.dense import Dense
from triever.retrievers.multivector import MultiVector
from triever.training import memory_estimate, tuning
from triever.training.loop import Trained
from triever.training.opinions import LABELLED, Opinions, Teaching
from triever.training.pairs import Negatives, Pairs, hard_negatives, held_out, pairs_of
from triever.training.processes import own_rows
from triever.training.tuning import PairTraining, Tuning, blend, summary

COUNT = 40  # queries and documents: query i is relevant to the documents i and i + 1
FIRST_QUERY = 100  # the token of query 0; document i has the token i
OPTIONS = Tuning(steps=6, batch=8, rounds=3, learning_rate=0.05, holdout=0.3, temperature=0.5, pool=COUNT, keep="last")
SMALL = "scratch:hidden=32,layers=1,heads=2,vocabulary=500"


class Words(nn.Module):
    """A text is the mean of its tokens' vectors."""

    def __init__(self) -> None:
        super().__init__()
        self.vectors = nn.Embedding(200, 8)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        return (self.vectors(ids) * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)


def words(seed: int = 0) -> Words:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return Words()


def score(model: Words, query: list[int], document: list[int]) -> float:
    """Of one query and one document, by hand."""
    vectors = model.vectors.weight.detach().double().numpy()
    return float(vectors[query].mean(0) @ vectors[document].mean(0))


class Trial(PairTraining):
    """A training of `Words`, which remembers what it was asked."""

    def __init__(self, options: Tuning = OPTIONS, copies: Mapping[int, int] | None = None, **more: Any) -> None:
        self.asked: list[tuple[list[int], np.ndarray]] = []  # queries of each ranking, and the weights at that time
        self.learned: set[int] = set()  # queries in training batches
        self.mined = 0
        texts = [(copies or {}).get(row, row) for row in range(COUNT)]
        queries = [Query(f"q{number}", str(number)) for number in range(COUNT)]
        qrels = {f"q{number}": {f"d{number}": 1, f"d{(number + 1) % COUNT}": 1} for number in range(COUNT)}
        documents = [Document(f"d{number}", "text") for number in range(COUNT)]
        data = Dataset.of("pairs", documents, queries, {"train": qrels})
        super().__init__(
            model=more.pop("model", None) or words(),
            scores=self._score,
            rank=self._rank,
            mine=self._mine,
            queries=lambda texts: Tokens.from_lists([[FIRST_QUERY + int(text)] for text in texts]),
            documents=Tokens.from_lists([[text] for text in texts]),
            pairs=pairs_of(data, "train", DocumentStore.of(documents)),
            options=options,
            negatives=more.pop("negatives", Negatives()),
            **more,
        )

    def _score(self, model: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
        self.learned |= {int(token) - FIRST_QUERY for token in batch["query_ids"][:, 0]}
        queries = model(batch["query_ids"], batch["query_mask"])
        return queries @ model(batch["document_ids"], batch["document_mask"]).T

    def _rank(self, queries: Tokens, documents: Tokens, k: int) -> np.ndarray:
        weights = self.model.vectors.weight.detach().double().numpy()
        self.asked.append(([int(token) - FIRST_QUERY for token in queries.flat], weights.copy()))
        return np.argsort(-(weights[queries.flat] @ weights[documents.flat].T), axis=1, kind="stable")[:, :k]

    def _mine(self, texts: list[str], depth: int) -> list[list[int]]:
        self.mined += 1
        return [[(int(text) + step) % COUNT for step in range(depth)] for text in texts]


def halves(trial: Trial) -> tuple[set[int], set[int]]:
    """The numbers of the queries to train on, and of those held out."""
    return tuple({int(text) for text in some.texts} for some in held_out(trial.pairs, trial.options.holdout))


# The loss


@pytest.mark.parametrize("temperature", [0.5, 2.0])
def test_the_loss_is_that_of_each_positive_among_what_is_no_other_answer(temperature: float) -> None:
    trial = Trial(replace(OPTIONS, temperature=temperature), negatives=Negatives(count=1, hard=0.0))
    batch = trial._round(0)[0]
    queries, documents = (batch[name][:, 0].tolist() for name in ("query_ids", "document_ids"))
    expected, left_out = [], 0
    for place, query in enumerate(queries):
        number = query - FIRST_QUERY
        others = [
            document
            for at, document in enumerate(documents)
            if at == place or document not in (number, (number + 1) % COUNT)
        ]
        left_out += len(documents) - len(others)
        scores = [score(trial.model, [query], [document]) / temperature for document in others]
        own = score(trial.model, [query], [documents[place]]) / temperature
        expected.append(math.log(sum(map(math.exp, scores))) - own)
    assert left_out, "no document of the batch was another answer"
    found = trial._loss(trial.model, batch)["contrastive"].item()
    assert found == pytest.approx(np.mean(expected), abs=1e-5)


def opinions(pairs: Pairs, count: int = 12) -> Opinions:
    """A teacher that finds the documents behind the right ones, the nearest first, and then the right ones."""
    rows = [[(int(text) + 2 + step) % COUNT for step in range(count)] for text in pairs.texts]
    scores = np.tile(np.linspace(1, 0, count), (len(pairs), 1))
    return Opinions(np.array(rows, np.int32), scores.astype(np.float32))


def test_a_teachers_loss_is_how_far_its_softmax_is_from_that_of_the_model() -> None:
    options = replace(OPTIONS, teacher_weight=2.0, holdout=0.0)
    trial = Trial(options, teach=lambda pairs: Teaching({LABELLED: opinions(pairs, COUNT)}, 0.25))
    trial.teaching = trial.teach(trial.pairs) if trial.teach else None
    batch = trial._round(0)[0]
    expected, contrasts = [], []
    for place, query in enumerate(batch["query_ids"][:, 0].tolist()):
        documents = batch["document_ids"][:, 0].tolist()
        own = [documents[column] for column in batch["candidates"][place].tolist()]
        order = [(query - FIRST_QUERY + 2 + step) % COUNT for step in range(COUNT)]
        theirs = [math.exp(np.linspace(1, 0, COUNT)[order.index(row)] / 0.25) for row in own]
        ours = [math.exp(score(trial.model, [query], [row]) / options.temperature) for row in own]
        parts = [
            right / sum(theirs) * math.log(right / sum(theirs) / (mine / sum(ours)))
            for mine, right in zip(ours, theirs, strict=True)
        ]
        expected.append(sum(parts))
        left_out = {*own, query - FIRST_QUERY, (query - FIRST_QUERY + 1) % COUNT}
        others = [at for at, row in enumerate(documents) if at == place or row not in left_out]
        weights = [math.exp(score(trial.model, [query], [documents[at]]) / options.temperature) for at in others]
        contrasts.append(math.log(sum(weights)) - score(trial.model, [query], [documents[place]]) / options.temperature)
    losses = trial._loss(trial.model, batch)
    assert losses["teacher"].item() == pytest.approx(2 * np.mean(expected), abs=1e-4)
    assert losses["contrastive"].item() == pytest.approx(np.mean(contrasts), abs=1e-4)


def test_two_processes_are_taught_what_one_is() -> None:
    trial = Trial(teach=lambda pairs: Teaching({LABELLED: opinions(pairs)}, 0.25))
    trial.teaching = trial.teach(trial._train[0]) if trial.teach else None
    batch = trial._round(0)[0]
    whole = trial._loss(trial.model, batch)
    parts = []
    for process in range(2):  # each has a half of the queries, and gathers the documents of both
        half = own_rows(batch, process, 2) | {name: batch[name] for name in ("document_ids", "document_mask")}
        parts.append(trial._loss(trial.model, half))
    for name, value in whole.items():
        assert np.mean([part[name].item() for part in parts]) == pytest.approx(value.item(), abs=1e-5)


def test_a_teacher_is_asked_about_what_is_learned_and_about_nothing_else() -> None:
    asked: list[Pairs] = []

    def teach(pairs: Pairs) -> Teaching:
        asked.append(pairs)
        return Teaching({LABELLED: opinions(pairs)}, 1.0)

    trial = Trial(teach=teach)
    train, held = halves(trial)
    trial.run()
    assert [{int(text) for text in pairs.texts} for pairs in asked] == [train], "once, for all rounds"
    assert held


def test_a_student_moves_towards_what_its_teacher_prefers() -> None:
    options = replace(OPTIONS, steps=100, holdout=0.0, rounds=1)

    def liked(teach: tuning.Teach | None) -> float:
        """How many of all documents the model puts behind the first one of the teacher, which is wrong."""
        trial = Trial(options, teach=teach)
        trial.run()
        behind = []
        for number in range(COUNT):
            scores = [score(trial.model, [FIRST_QUERY + number], [row]) for row in range(COUNT)]
            behind += [value < scores[(number + 2) % COUNT] for value in scores]
        return float(np.mean(behind))

    untaught, taught = liked(None), liked(lambda pairs: Teaching({LABELLED: opinions(pairs)}, 0.1))
    assert untaught < 0.6
    assert taught > 0.85


def test_copies_of_answers_are_neither_mined_nor_negatives() -> None:
    copies = {row: row - 20 for row in range(20, COUNT)}  # the second half says what the first half says
    for source in ("bm25", "model"):
        trial = Trial(copies=copies, negatives=Negatives(count=2, source=source, depth=COUNT, hard=1.0))
        batches = trial._round(0)
        answers = [{row % 20 for row in trial._train[0].of(query)} for query in range(len(trial._train[0]))]
        assert batches.mined is not None
        for right, rows in zip(answers, batches.mined, strict=True):
            assert not right & {row % 20 for row in rows[rows >= 0]}
            assert (rows >= 0).sum() >= 30, "the others are mined"
        for step in range(len(batches)):
            batch = batches[step]
            for query, excluded in zip(batch["query_ids"][:, 0].tolist(), batch["excluded"], strict=True):
                right = {(query - FIRST_QUERY) % 20, (query - FIRST_QUERY + 1) % 20}
                assert excluded.tolist() == [text in right for text in batch["document_ids"][:, 0].tolist()]


# Queries that are held out


def test_what_is_held_out_is_judged_and_never_learned() -> None:
    options = replace(OPTIONS, steps=30, rounds=2)
    trial = Trial(options, negatives=Negatives(count=1, source="model"))
    train, held = halves(trial)
    trial.run()
    assert 5 < len(held) < 20
    assert trial.learned == train
    assert [set(asked) for asked, _ in trial.asked] == [train, held, train, held], "mined with one, judged by the other"


def test_without_queries_held_out_nothing_is_judged() -> None:
    once = replace(OPTIONS, steps=5, rounds=1, holdout=0.0)  # every query has its turn
    trial = Trial(replace(once, keep="best"))
    trained = trial.run()
    assert not trial.asked
    assert trained.best_step is None
    assert trial.learned == set(range(COUNT))
    assert summary(trained).keys() == {"trained steps", "seconds of training"}
    last = Trial(replace(once, keep="last"))
    last.run()
    assert torch.equal(trial.model.vectors.weight, last.model.vectors.weight)


def test_all_queries_held_out_are_refused() -> None:
    with pytest.raises(UsageError, match=r"all training queries are held out; lower training\.holdout"):
        Trial(replace(OPTIONS, holdout=1 - 1e-9))


@pytest.mark.parametrize("pool", [1, 30, 10_000])
def test_the_measure_is_that_of_every_document_of_the_pool_in_order(pool: int) -> None:
    trial = Trial(replace(OPTIONS, pool=pool))
    pairs = trial._held[0]
    needed = {int(row) for query in range(len(pairs)) for row in pairs.of(query)}
    among = trial._pool().tolist()
    assert needed <= set(among)
    assert len(among) == len(set(among)) == min(max(pool, len(needed)), COUNT)
    ranks, firsts = [], []
    for query, text in enumerate(pairs.texts):
        scores = {row: score(trial.model, [FIRST_QUERY + int(text)], [row]) for row in among}
        order = sorted(among, key=lambda row: -scores[row])
        place = min(order.index(row) for row in pairs.of(query))
        ranks.append(1 / (1 + place) if place < 10 else 0.0)
        firsts.append(place == 0)
    found = trial._evaluate(trial.model)
    known = set(trial._train[0].relevant.tolist())
    seen = [not known.isdisjoint(pairs.of(query).tolist()) for query in range(len(pairs))]
    assert found == {
        "RR@10": pytest.approx(np.mean(ranks)),
        "Success@1": pytest.approx(np.mean(firsts)),
        "RR@10 seen": pytest.approx(np.mean([rank for rank, known in zip(ranks, seen, strict=True) if known])),
        "RR@10 unseen": pytest.approx(np.mean([rank for rank, known in zip(ranks, seen, strict=True) if not known])),
    }
    assert 0 < found["RR@10"] < 1


def test_a_training_that_only_does_harm_leaves_the_model_as_it_came() -> None:
    model = words()
    with torch.no_grad():  # every query finds its documents; to be pushed away from the others' must be worse
        model.vectors.weight[FIRST_QUERY : FIRST_QUERY + COUNT] = model.vectors.weight[:COUNT]
    before = model.vectors.weight.detach().clone()
    trial = Trial(replace(OPTIONS, rounds=1, keep="best", learning_rate=5.0), model=model)
    trained = trial.run()
    assert trained.best_step == 0
    assert torch.equal(model.vectors.weight, before)
    assert summary(trained)["best step"] == 0


# Negatives


def test_the_model_looks_for_negatives_before_every_round() -> None:
    negatives = Negatives(count=1, source="model", depth=5)
    trial = Trial(replace(OPTIONS, holdout=0.0), negatives=negatives)
    rounds, original = [], trial._round
    trial._round = lambda number: rounds.append(original(number)) or rounds[-1]  # ty: ignore[invalid-assignment]
    trial.run()
    weights = [found for _, found in trial.asked]
    assert len(rounds) == len(weights) == 3
    assert not np.array_equal(weights[0], weights[1])
    assert not np.array_equal(weights[1], weights[2])
    for batches, one in zip(rounds, weights, strict=True):
        order = np.argsort(-(one[FIRST_QUERY : FIRST_QUERY + COUNT] @ one[:COUNT].T), axis=1, kind="stable")
        np.testing.assert_array_equal(batches.mined, hard_negatives(order.tolist(), trial.pairs, negatives))


def test_another_retriever_is_asked_once() -> None:
    trial = Trial(negatives=Negatives(count=1, source="bm25"))
    trial.run()
    assert trial.mined == 1
    trial = Trial(negatives=Negatives(count=2, hard=0.0))
    trial.run()
    assert trial.mined == 0, "nothing is mined where all are drawn at random"


# Blending


@pytest.mark.parametrize("share", [0.0, 0.25, 0.9, 1.0])
def test_blending_is_the_weighted_mean(share: float) -> None:
    trained, blended = Trial(), Trial(replace(OPTIONS, blend=share))
    trained.run()
    blended.run()
    before, after = words().vectors.weight.detach().double(), trained.model.vectors.weight.detach().double()
    assert (before - after).abs().max() > 0.05
    expected = share * before + (1 - share) * after
    torch.testing.assert_close(blended.model.vectors.weight.detach().double(), expected, atol=1e-6, rtol=0)


def test_what_is_no_real_number_is_not_blended() -> None:
    model = nn.BatchNorm1d(2)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    model(torch.randn(4, 2))
    blend(model, before, 0.5)
    assert int(model.num_batches_tracked) == 1


# What retrievers hand in


def test_prefixes_stand_before_every_text(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    original = TextTokenizer.ids

    def ids(self: TextTokenizer, texts: Any, *more: Any, **options: Any) -> Any:
        read.extend(texts)
        return original(self, texts, *more, **options)

    monkeypatch.setattr(TextTokenizer, "ids", ids)
    options = Tuning(steps=1, batch=4, holdout=0.0)
    dense = Dense(backbone=SMALL, query_prefix="query: ", document_prefix="passage: ", training=options).fit(dataset())
    documents = [f"passage: {document.full_text}" for document in DOCUMENTS]
    assert sorted(read) == sorted([*documents, *(f"query: {query.text}" for query in QUERIES)])
    read.clear()
    dense.search("tea leaves")
    dense.add([Document("new", "text")])
    assert read == ["query: tea leaves", "passage: text"]


def test_the_device_and_the_options_reach_the_loop(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    told: dict[str, Any] = {}

    def train(model: nn.Module, loss: Any, rounds: Any, options: Any, **more: Any) -> Trained:
        told.update(more, options=options)
        return Trained(0, 0, None, {}, {}, False, 0.0, 0.0, None, None)

    monkeypatch.setattr(tuning, "train", train)
    options = Tuning(steps=1, batch=4, holdout=0.5)
    Dense(backbone=SMALL, device="cpu", training=options).fit(dataset(), work=tmp_path)
    assert (told["device"], told["options"], told["watch"]) == ("cpu", options, "RR@10")
    assert told["folder"] == tmp_path / "training"


@pytest.mark.parametrize("kind", [Dense, MultiVector])
def test_a_training_that_cannot_fit_is_refused_before_it_begins(
    kind: type[EncoderRetriever], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_estimate, "available", lambda _device: 2**20)
    monkeypatch.setattr(tuning, "train", lambda *_, **__: pytest.fail("it has begun"))
    with pytest.raises(UsageError, match=r"training needs about 0\.0 GiB of memory on cpu, but 0\.0 GiB are free"):
        kind(backbone=SMALL, training=Tuning(steps=1, batch=4)).fit(dataset())
    kind(backbone=SMALL).fit(dataset())  # without a training, nothing is needed for one


def test_late_interaction_needs_memory_for_all_tokens_with_all_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    needed: list[int] = []
    monkeypatch.setattr(encoding, "check", lambda bytes_, _device: needed.append(bytes_))
    options, negatives = Tuning(steps=1, batch=3, holdout=0.0), Negatives(count=1, hard=0.0, shared=2)
    for counted in (True, False):
        late = MultiVector(backbone=SMALL, training=options, negatives=negatives)
        if not counted:
            monkeypatch.setattr(late, "_scored", lambda *_: 0)
        late.fit(dataset())
    encoder = late.engine.encoder
    query = np.percentile(late.reading.queries(encoder, [query.text for query in QUERIES]).lengths, 99)
    document = np.percentile(late.reading.documents(encoder, DOCUMENTS).lengths, 99)
    scores = 3 * int(query) * (6 + 2) * int(document)
    assert needed[0] - needed[1] == pytest.approx(memory_estimate.SLACK * memory_estimate.SCORES * 4 * scores, abs=2)


@pytest.mark.parametrize("punctuation", [True, False])
def test_late_interaction_learns_without_the_punctuation_it_searches_without(punctuation: bool) -> None:
    late = MultiVector(backbone=SMALL, size=16, punctuation=punctuation).fit(dataset())
    encoder = late.engine.encoder
    texts = ["boiling water, tea leaves!", "the sea: twice a day; salt.", "?"]
    documents = Tokens.of(texts, encoder.tokenizer, 64)
    queries = Tokens.of(["water!", "why, oh why?"], encoder.tokenizer, 64)
    skipped = set() if punctuation else set(encoder.tokenizer.punctuation())
    with torch.inference_mode():
        batch = dict(zip(("query_ids", "query_mask"), queries.padded([0, 1]), strict=True))
        batch |= dict(zip(("document_ids", "document_mask"), documents.padded([0, 1, 2]), strict=True))
        found = late._pair_scores(encoder, batch)
        for row in range(2):
            query = encoder.token_vectors(*queries.padded([row]))[0]
            for column in range(3):
                vectors = encoder.token_vectors(*documents.padded([column]))[0]
                kept = [place for place, token in enumerate(documents[column].tolist()) if token not in skipped]
                expected = np.mean([max(float(one @ vectors[place]) for place in kept) for one in query])
                assert float(found[row, column]) == pytest.approx(expected, abs=1e-5)
    tokens = set(documents.flat.tolist())
    assert punctuation or len(tokens & skipped) > 4, "there was no punctuation to leave out"


def test_a_training_needs_memory_for_texts_as_long_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few long texts among short ones do not make all of a batch long, which is read in pieces."""
    needed: list[int] = []
    monkeypatch.setattr(encoding, "check", lambda bytes_, _device: needed.append(bytes_))
    short, long = "a few words", "many words " * 60
    for texts in ([short] * 8, [short] * 5 + [long] * 3, [long] * 8):
        documents = [Document(f"d{number}", text) for number, text in enumerate(texts)]
        queries = [Query(f"q{number}", f"word {number}") for number in range(8)]
        judged = {"train": {f"q{number}": {f"d{number}": 1} for number in range(8)}}
        data = Dataset.of("texts", documents, queries, judged)
        Dense(backbone=SMALL, training=Tuning(steps=1, batch=8, rounds=1)).fit(data)
    few, some, all_long = needed
    assert few < some < all_long
    assert some < 0.8 * all_long
